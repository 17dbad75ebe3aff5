"""What a person sees of a tool beside its result: what it printed and showed, what it returned.

These are pictures: plain, bounded, and never the object itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["NO_OUTPUT", "Display", "Image", "Output", "Table", "Value", "table_of"]

ROWS = 10
COLUMNS = 12
LONGEST_CELL = 80


@dataclass(frozen=True, slots=True)
class Image:
    """Hold an image: base64 text and its media type."""

    data: str
    mime_type: str


@dataclass(frozen=True, slots=True)
class Display:
    """Hold one thing that a tool displayed: its text, or an image of it."""

    text: str = ""
    image: Image | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Hold the first rows and columns of a table, as texts."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more_rows: int = 0
    more_columns: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """Hold what a returned object is, and where the whole of it stays."""

    kind: str
    name: str
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """Hold what a tool printed, displayed and returned, as far as it goes."""

    printed: str = ""
    displays: tuple[Display, ...] = ()
    #: Displays between the first and the last ones that are not kept.
    left_out: int = 0
    value: Value | None = None


NO_OUTPUT = Output()


def table_of(value: Any) -> Table | None:
    """Read the beginning of a table of pandas or polars; None for what is none."""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2 or isinstance(value, type):
        return None
    if not hasattr(value, "columns") or not callable(getattr(value, "head", None)):
        return None
    names = list(value.columns)[:COLUMNS]
    head = value.head(ROWS)
    if callable(getattr(head, "itertuples", None)):
        header = ("", *map(_cell, names))
        found = head.iloc[:, :COLUMNS].itertuples(index=True, name=None)
    else:
        header = tuple(map(_cell, names))
        found = (row[:COLUMNS] for row in head.rows())
    return Table(
        header=header,
        rows=tuple(tuple(map(_cell, row)) for row in found),
        more_rows=max(0, shape[0] - ROWS),
        more_columns=max(0, shape[1] - COLUMNS),
    )


def _cell(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
