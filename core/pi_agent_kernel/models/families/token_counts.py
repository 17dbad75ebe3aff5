"""Counts of tokens as providers report them, made what they are meant to be: whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar, cast

__all__ = ["whole_count", "whole_counts"]

U = TypeVar("U")

#: More is nonsense, and no longer an exact number in JSON elsewhere.
_MOST = 2**53 - 1


def whole_count(value: object) -> int:
    """Return a count: 0 for what is none, the whole part of a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return min(max(0, int(value)), _MOST)


def whole_counts(usage: U, always: Iterable[str] = ()) -> U | None:
    """Correct the counts of tokens in a report of usage, where they stand.

    Args:
        usage: A mapping or an object of an SDK, perhaps with others in it.
        always: Names of counts that it has in any case.

    Returns:
        The same report; None if it is none.
    """
    fields = _fields(usage)
    if fields is None:
        return None
    for name in always:
        fields.setdefault(name, None)
        if fields[name] is None:
            _put(usage, name, 0)
    for name, value in fields.items():
        if name.lower().endswith("details"):
            parts = cast("list[object]", value) if isinstance(value, list) else [value]
            kept = [part for part in parts if whole_counts(part) is not None]
            if len(kept) < len(parts):
                _put(usage, name, kept or None)
        elif "token" in name.lower() and value is not None:
            if _fields(value) is not None:
                whole_counts(value)
            elif whole_count(value) != value or type(value) is not int:
                _put(usage, name, whole_count(value))
    return usage


def _fields(usage: object) -> dict[str, Any] | None:
    if isinstance(usage, dict):
        return dict(cast("dict[str, Any]", usage))
    if not hasattr(usage, "model_fields_set"):
        return None
    return {**vars(usage), **(getattr(usage, "model_extra", None) or {})}


def _put(usage: Any, name: str, value: object) -> None:
    if isinstance(usage, dict):
        usage[name] = value
    else:
        setattr(usage, name, value)
