"""Headers of a request, merged from those of its provider, its model and itself."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["merge_headers"]


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
