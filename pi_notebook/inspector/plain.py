"""The inspector as text: for terminals, for headless execution, for readers of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pi_notebook.inspector.page import saved_rows
from pi_notebook.inspector.panel import Chart, Listing, Note, Table
from pi_notebook.inspector.tabs import panel_of, tab_titles, titled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pi_notebook.inspector.panel import Block, Layout, Row
    from pi_notebook.inspector.panels.events import EventQuery
    from pi_notebook.inspector.scene import Scene

__all__ = ["plain_inspector"]

#: Rows of a long list, and characters of a line and of a name, that text has room for.
MOST_ROWS = 12
WIDTH = 100
LONGEST_NAME = 30
#: Panels that the text form of an agent has; %agent inspect in a notebook shows all.
SHOWN = ("state", "tools", "transcript", "events", "requests", "queues", "tree")
LONGEST_LISTING = 6


def plain_inspector(scene: Scene, *, query: EventQuery | None = None) -> str:
    """Write the panels below each other, of long lists the last rows.

    Args:
        scene: What to show.
        query: Which events are wanted.
    """
    pieces = [scene.words.line(repr(scene.agent), WIDTH)]
    titles = tab_titles(scene)
    for name in SHOWN:
        if name not in titles:
            continue
        panel = panel_of(scene, name, query)
        lines = [titled(*titles[name])]
        for block in panel.blocks:
            if name == "tools" and isinstance(block, Note) and block.tone == "warn":
                continue  # the state has said so
            lines.extend(f"  {line}" for line in _block(block))
        if panel.rows is not None and panel.rows.total:
            start, stop = saved_rows(panel.rows, MOST_ROWS)
            if start:
                lines.append(f"  … {start} earlier")
            rows = panel.rows.read(start, stop)
            lines.extend(f"  {line}" for line in _rows(panel.rows.layout, rows))
            if stop < panel.rows.total:
                lines.append(f"  … {panel.rows.total - stop} later")
        pieces.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join(pieces)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Table(layout=layout, rows=rows):
            yield from _rows(layout, rows)
        case Note(about=about, text=text, tone=tone):
            yield f"{'! ' if tone in ('warn', 'bad') else ''}{about} {text}"
        case Listing(title=title, text=text):
            lines = text.split("\n")
            more = [f"… {len(lines) - LONGEST_LISTING} more lines"] * (len(lines) > LONGEST_LISTING)
            yield f"{title}: {lines[0]}"
            yield from (f"  {line[:WIDTH]}" for line in (*lines[1:LONGEST_LISTING], *more))
        case Chart():
            return


def _rows(layout: Layout, rows: Sequence[Row]) -> Iterator[str]:
    """Set the rows in columns; the text gives way where the line is too long."""
    kinds = [kind for _, kind in layout.columns]
    widths = [
        min(max((len(row.cells[at]) for row in rows), default=0), LONGEST_NAME)
        for at in range(len(kinds))
    ]
    others = sum(width + 2 for width, kind in zip(widths, kinds, strict=True) if kind != "v")
    room = max(20, WIDTH - others)
    texts = [_with_tags(row, kinds.index("v"), room) for row in rows]
    longest = max(map(len, texts), default=0)
    for row, text in zip(rows, texts, strict=True):
        yield "  ".join(
            text.ljust(longest) if kind == "v" else _cut(cell, width).ljust(width)
            for cell, kind, width in zip(row.cells, kinds, widths, strict=True)
        )


def _with_tags(row: Row, at: int, room: int) -> str:
    tags = "".join(f" [{tag.text}]" for tag in row.tags)
    return _cut(row.cells[at], max(20, room - len(tags))) + tags


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(0, room - 1)]}…"
