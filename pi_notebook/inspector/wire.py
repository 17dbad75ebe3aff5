"""Panels as the live view gets them: data without HTML, and of that only what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pi_notebook.inspector.panel import Chart, Listing, Note, Row, Table

if TYPE_CHECKING:
    from pi_notebook.inspector.panel import Block, Panel

__all__ = ["Picture", "block_data", "row_data"]

RowData = tuple[Any, ...]


class Picture:
    """Remember what the page has of one panel, so that it is not told again."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[dict[str, Any]]] = {}
        self._rows: dict[int, RowData] = {}
        self._list: tuple[Any, ...] | None = None

    def update(
        self, panel: Panel, window: tuple[int, int], epoch: str, *, shows_aside: bool = True
    ) -> dict[str, Any]:
        """Take a panel as it is now; return what is new in it, nothing if nothing is.

        Args:
            panel: The panel.
            window: Which rows of its long list are in sight.
            epoch: Changes when the rows of the list are others than before.
            shows_aside: Send what stands beside it.
        """
        message: dict[str, Any] = {}
        for part, blocks in (
            ("blocks", panel.blocks),
            ("aside", panel.aside if shows_aside else ()),
        ):
            now = [block_data(block) for block in blocks]
            before = self._blocks.get(part)
            if now != before:
                old = before or []
                changed = [
                    (place, block)
                    for place, block in enumerate(now)
                    if place >= len(old) or block != old[place]
                ]
                message[part] = {"of": len(now), "changed": changed}
                self._blocks[part] = now
        rows = panel.rows
        if rows is None:
            if self._list is not None or not message.keys().isdisjoint({"blocks"}):
                message["list"] = None
            self._list = None
            return message
        start, stop = max(0, window[0]), min(rows.total, window[1])
        shape = (rows.layout, rows.total, epoch)
        if self._list is None or self._list[0] != rows.layout or self._list[2] != epoch:
            self._rows = {}
        sent: list[tuple[int, RowData]] = []
        kept: dict[int, RowData] = {}
        for place, row in enumerate(rows.read(start, stop), start):
            data = row_data(row)
            kept[place] = data
            if self._rows.get(place) != data:
                sent.append((place, data))
        self._rows = kept
        if sent or shape != self._list or "list" in message:
            message["list"] = {
                "layout": rows.layout.name,
                "columns": rows.layout.columns,
                "total": rows.total,
                "rows": sent,
                "epoch": epoch,
            }
        self._list = shape
        return message


def row_data(row: Row) -> RowData:
    """Write a row for the page."""
    tags = [(tag.text, tag.tone) for tag in row.tags]
    return (row.cells, tags, row.tone, row.ref, row.more)


def block_data(block: Block) -> dict[str, Any]:
    """Write a block for the page."""
    match block:
        case Table(layout=layout, rows=rows):
            # Rows that can be opened say more there; the others fold it away.
            shown = [(*row_data(row)[:4], "" if row.ref is not None else row.more) for row in rows]
            return {
                "k": "table",
                "layout": layout.name,
                "columns": layout.columns,
                "rows": shown,
            }
        case Note(about=about, text=text, tone=tone):
            return {"k": "note", "about": about, "text": text, "tone": tone}
        case Listing(title=title, text=text, is_difference=diff):
            return {"k": "listing", "title": title, "text": text, "diff": diff}
        case Chart():
            return {
                "k": "chart",
                "title": block.title,
                "lanes": block.lanes,
                "bars": [
                    (bar.lane, round(bar.start, 4), round(bar.end, 4), bar.tone, bar.title, bar.ref)
                    for bar in block.bars
                ],
                "ticks": [(tick.at, tick.label) for tick in block.ticks],
            }
