"""Headers of a request, merged from those of its provider, its model and itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pi_agent_kernel.models.error_kinds import ReplyError

__all__ = ["check_headers", "is_header_value", "merge_headers"]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def merge_headers(*sources: Mapping[str, str | None] | None) -> dict[str, str | None]:
    """Merge headers whatever their case; a later source wins.

    Args:
        *sources: In the order provider, model, request. None takes a header out of what follows
            from earlier sources, and stays as None for whoever merges next.

    Source: MD-14.
    """
    merged: dict[str, tuple[str, str | None]] = {}
    for source in sources:
        for name, value in (source or {}).items():
            merged[name.lower()] = (name, value)
    return dict(merged.values())


def is_header_value(text: str) -> bool:
    """Say whether a header can carry a text: without line breaks, NUL or other controls."""
    return text.isascii() and all(character >= " " and character != "\x7f" for character in text)


def check_headers(headers: Iterable[tuple[object, object]]) -> dict[str, str]:
    """Return headers as they may be sent, without spaces and line breaks around their values.

    Args:
        headers: Names and values.

    Raises:
        ReplyError: A header cannot be sent. Its value, which may be a secret, is not in the text.
    """
    checked: dict[str, str] = {}
    for name, value in headers:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ReplyError(
                f"{_shown(name)} is no name of a header: letters, digits and hyphens make one.",
                "setup",
            )
        if not isinstance(value, str):
            raise ReplyError(
                f"The header {name} must be a text, or None to leave it out, not a "
                f"{type(cast('Any', value)).__name__}.",
                "setup",
            )
        if not is_header_value(value.strip()):
            raise ReplyError(
                f"The value of the header {name} has a line break or another character that no "
                "header can carry. Take it out; nothing was sent.",
                "setup",
            )
        checked[name] = value.strip()
    return checked


def _shown(name: object) -> str:
    # Whoever breaks a line in a name may have put the value there, too.
    return repr(re.split(r"[^!-9;-~]", name)[0][:60] if isinstance(name, str) else name)
