"""What a server says in its headers about trying again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

__all__ = ["retry_wanted", "wait_wanted"]

#: Longer waits are taken for nonsense: no server means thirty years.
_LONGEST = 1e9


def wait_wanted(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return the seconds a server wants us to wait.

    Args:
        headers: Of its response; whatever their case.
        now: What a date counts from; the present by default.

    Returns:
        From `retry-after-ms`, else from `retry-after` in seconds or as a date; None if neither
        can be read. A date that has passed says nothing: one of the clocks is wrong.

    Source: MD-23, E15.
    """
    given = {name.lower(): value for name, value in headers.items()}
    milliseconds = _number(given.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = given.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    from email.utils import parsedate_to_datetime  # costs what few replies need

    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    wait = (date - (now or datetime.now(UTC))).total_seconds()
    return math.ceil(wait) if 0 < wait < _LONGEST else None


def retry_wanted(headers: Mapping[str, str]) -> bool | None:
    """Return what a server's `x-should-retry` says, or None if it says nothing."""
    for name, value in headers.items():
        if name.lower() == "x-should-retry":
            return {"true": True, "false": False}.get(value.strip().lower())
    return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number < _LONGEST else None
