"""Texts of models and tools, made safe to show and bounded in size.

They may hold terminal escapes, control characters, halves of surrogate pairs (which no JSON
encoder sends) and direction overrides that make a line read other than it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pi_notebook.shown_text import clean

__all__ = ["bound", "clean", "first_line", "json_text", "signature"]

#: An answer longer than this is shown by its two ends; the transcript keeps the whole.
LONGEST_ANSWER = 200_000
#: The same for thinking, arguments and results.
LONGEST_DETAIL = 4_000
LONGEST_SIGNATURE = 160
LONGEST_VALUE = 60


def bound(text: str, limit: int = LONGEST_DETAIL) -> str:
    """Clean a text and keep its two ends if it is longer than `limit` characters."""
    if len(text) <= limit:
        return clean(text)
    head, tail = limit - limit // 4, limit // 4
    left_out = len(text) - head - tail
    return f"{clean(text[:head])}\n… {left_out} characters left out …\n{clean(text[-tail:])}"


def first_line(text: str, limit: int = LONGEST_SIGNATURE) -> str:
    """Clean the first line that is not blank, and cut it to `limit` characters."""
    line = next((line for line in clean(text[: limit * 8]).split("\n") if line.strip()), "")
    return _cut(line.strip(), limit)


def signature(arguments: Mapping[str, Any]) -> str:
    """Write arguments the way a call has them, on one line of bounded length."""
    pieces: list[str] = []
    length = 0
    for name, value in arguments.items():
        piece = f"{clean(_cut(name, LONGEST_VALUE))}={_cut(_one_line(value), LONGEST_VALUE)}"
        pieces.append(piece)
        length += len(piece) + 2
        if length > LONGEST_SIGNATURE:
            break
    return _cut(", ".join(pieces), LONGEST_SIGNATURE)


def json_text(value: Any) -> str:
    """Write a value as JSON for a reader, bounded; what is no JSON is written by its type."""
    return bound(json.dumps(value, indent=2, ensure_ascii=False, default=_type_name))


def _one_line(value: Any) -> str:
    if isinstance(value, str):
        value = value[: LONGEST_VALUE * 2]  # quotes and escapes of a megabyte are never seen
    elif isinstance(value, Mapping | list) and len(value) > LONGEST_VALUE:
        return f"<{len(value)} items>"
    return clean(json.dumps(value, ensure_ascii=False, default=_type_name))


def _type_name(value: object) -> str:
    return f"<{type(value).__name__}>"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
