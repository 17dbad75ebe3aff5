"""What a panel shows, as data: text that is clean, bounded and free of secrets, in rows and blocks.

The three renderers (a page for saved files, text for terminals, the live view) know these types and
nothing of agents. A long list gives its rows by range, so that 50,000 of them cost what is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Bar",
    "Block",
    "Chart",
    "Layout",
    "Listing",
    "Note",
    "Panel",
    "Row",
    "Rows",
    "Table",
    "Tag",
    "Tick",
    "Tone",
]

#: What a colour means: nothing, went well, goes on, needs attention, failed.
Tone = Literal["", "ok", "live", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Tag:
    """Mark a row with a few words."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Name the columns of a table.

    The kind of a column says how it is set: "k" a name, "v" the text that takes the room, "s" a
    soft word, "n" a number or a reference, flush right.
    """

    name: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """Hold one row: a cell for each column of its layout."""

    cells: tuple[str, ...]
    tags: tuple[Tag, ...] = ()
    tone: Tone = ""
    #: By what its details are asked for; None if there are none.
    ref: int | None = None
    #: What a page without a kernel folds away below the row.
    more: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Hold a short table."""

    layout: Layout
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """Say something about what is shown; `about` is its subject."""

    about: str
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """Hold text as it is; in a difference each line begins with "+", "-", "@" or a space."""

    title: str
    text: str
    is_difference: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """Be one bar of a chart, from `start` to `end`, fractions of its width."""

    lane: int
    start: float
    end: float
    tone: Tone
    title: str
    ref: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Name a place on the axis, a fraction of its width."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Show what happened side by side: lanes by name, from top to bottom, and their bars."""

    title: str
    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]


Block = Table | Note | Listing | Chart


@dataclass(frozen=True, slots=True)
class Rows:
    """Hold a long list: its length, and how to read a part of it."""

    layout: Layout
    total: int
    read: Callable[[int, int], Sequence[Row]]
    #: The row to show first, if one is meant; by default the last ones are.
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """Hold one panel: blocks, then a long list if it has one; `aside` stands beside them."""

    name: str
    title: str
    blocks: tuple[Block, ...] = ()
    rows: Rows | None = None
    aside: tuple[Block, ...] = ()
