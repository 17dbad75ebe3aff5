"""The inspector as a page that needs no kernel and no script: what a saved notebook keeps.

Each panel is a `<details>`; where the style reaches it, they look and work like tabs, and where a
front end strips styles from a notebook it does not trust, they are plain folds with plain tables.
"""

from __future__ import annotations

import hashlib
import html
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from pi_notebook.inspector.panel import Chart, Listing, Note, Row, Rows, Table
from pi_notebook.inspector.tabs import panel_of, tab_titles, titled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pi_notebook.inspector.panel import Block, Layout, Panel
    from pi_notebook.inspector.panels.events import EventQuery
    from pi_notebook.inspector.scene import Scene

__all__ = ["BAR_HEIGHT", "LANE_HEIGHT", "LONGEST_PAGE", "inspector_style", "page_of", "saved_rows"]

#: Characters of a page; of long lists fewer rows are kept until it fits.
LONGEST_PAGE = 160_000
#: Rows that a page keeps of a long list, at most.
MOST_ROWS = {"transcript": 40, "events": 150, "requests": 20, "usage": 60}
#: Rows around the one that is meant.
AROUND = 15
LANE_HEIGHT = 28
BAR_HEIGHT = 16


def page_of(
    scene: Scene, *, tab: str = "state", query: EventQuery | None = None, mount: str = ""
) -> str:
    """Write the page.

    Args:
        scene: What to show.
        tab: Which panel is open.
        query: Which events are wanted.
        mount: By which the live view finds this page; empty for a page that stays as it is.
    """
    name = getattr(scene.agent, "name", "")
    label = html.escape(f"inspector of agent {scene.words.line(name, 60)}".removesuffix(" agent "))
    page = ""
    for share in (1, 2, 4, 8, 16):
        body = _body(scene, tab, query, share)
        group = hashlib.sha256(body.encode()).hexdigest()[:8]
        body = body.replace("<details class=pi-tab", f'<details class=pi-tab name="pi-{group}"')
        live = f' data-pi-view="{html.escape(mount)}"' if mount else ""
        page = (
            f'<div class="pi pi-insp" role="group" aria-label="{label}"{live}>\n'
            f'<style>{inspector_style()}</style>\n<div class="pi-twin">\n{body}</div>\n</div>'
        )
        if len(page) <= LONGEST_PAGE:
            break
    return page


@cache
def inspector_style() -> str:
    """Return the style sheet, without comments."""
    source = resources.files("pi_notebook.inspector").joinpath("inspector.css").read_text("utf-8")
    rules = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    rules = re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", rules))
    return rules.replace(";}", "}").strip()


def saved_rows(rows: Rows, most: int) -> tuple[int, int]:
    """Return which part of a long list is kept: the last rows, or those around the one meant."""
    if rows.at is not None:
        most = min(most, AROUND)
        start = max(0, min(rows.at - most // 2, rows.total - most))
    else:
        start = max(0, rows.total - most)
    return start, min(rows.total, start + most)


def _body(scene: Scene, tab: str, query: EventQuery | None, share: int) -> str:
    pieces: list[str] = []
    for name, (title, count) in tab_titles(scene).items():
        panel = panel_of(scene, name, query)
        opened = " open" if name == tab else ""
        most = max(4, MOST_ROWS.get(name, 100) // share)
        pieces.append(
            f"<details class=pi-tab{opened}><summary>{_escaped(titled(title, count))}</summary>\n"
            f'<div class="pi-pane">{_panel(panel, most)}</div></details>\n'
        )
    return "".join(pieces)


def _panel(panel: Panel, most: int) -> str:
    main = "".join(map(_block, panel.blocks))
    if panel.rows is not None and panel.rows.total:
        start, stop = saved_rows(panel.rows, most)
        rows = panel.rows.read(start, stop)
        marked = None if panel.rows.at is None else panel.rows.at - start
        if start:
            main += f'<p class="pi-out">{start} earlier rows are left out</p>'
        table = _table(panel.rows.layout, rows, marked)
        main += f'<div class="pi-long" tabindex="0">{table}</div>'
        if stop < panel.rows.total:
            main += f'<p class="pi-out">{panel.rows.total - stop} later rows are left out</p>'
    if not panel.aside:
        return main
    aside = "".join(map(_block, panel.aside))
    return f'<div class="pi-two"><div>{main}</div><div class="pi-aside">{aside}</div></div>'


def _block(block: Block) -> str:
    match block:
        case Table(layout=layout, rows=rows):
            return _table(layout, rows, None)
        case Note(about=about, text=text, tone=tone):
            classes = f"pi-say pi-{tone}" if tone else "pi-say"
            return f'<p class="{classes}"><strong>{_escaped(about)}</strong> {_escaped(text)}</p>'
        case Listing():
            return _listing(block)
        case Chart():
            return _chart(block)


def _listing(listing: Listing) -> str:
    if listing.is_difference:
        kinds = {"+": "add", "-": "del", "@": "at"}
        lines = "\n".join(
            f'<span class="pi-{kinds[line[0]]}">{_escaped(line)}</span>'
            if line[:1] in kinds
            else _escaped(line)
            for line in listing.text.split("\n")
        )
    else:
        lines = _escaped(listing.text)
    title = f'<div class="pi-of">{_escaped(listing.title)}</div>'
    return f'<div class="pi-list">{title}<pre>{lines}</pre></div>'


def _table(layout: Layout, rows: Sequence[Row], marked: int | None) -> str:
    kinds = [kind for _, kind in layout.columns]
    head = "".join(
        f'<th scope="col" class="pi-{kind}">{_escaped(title)}</th>'
        for title, kind in layout.columns
    )
    body = "".join(_row(row, kinds, marked=place == marked) for place, row in enumerate(rows))
    return (
        f'<table class="pi-t pi-l-{layout.name}"><thead><tr class="pi-r pi-h">{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _row(row: Row, kinds: Sequence[str], *, marked: bool) -> str:
    classes = "pi-r" + (f" pi-{row.tone}" if row.tone else "") + (" pi-on" if marked else "")
    cells: list[str] = []
    for kind, cell in zip(kinds, row.cells, strict=True):
        text = _escaped(cell)
        if kind == "v":
            for tag in row.tags:
                tone = f" pi-{tag.tone}" if tag.tone else ""
                text += f' <span class="pi-tag{tone}">{_escaped(tag.text)}</span>'
            if row.more:
                text = (
                    f'<details class="pi-more"><summary>{text}</summary>'
                    f"<pre>{_escaped(row.more)}</pre></details>"
                )
        cells.append(f'<td class="pi-{kind}">{text}</td>')
    return f'<tr class="{classes}">{"".join(cells)}</tr>'


def _chart(chart: Chart) -> str:
    height = LANE_HEIGHT * len(chart.lanes)
    names = "".join(f"<div>{_escaped(name)}&nbsp;</div>" for name in chart.lanes)
    lines = "".join(
        f'<line x1="{_percent(tick.at)}" x2="{_percent(tick.at)}" y1="0" y2="{height}"/>'
        for tick in chart.ticks
    )
    bars = "".join(
        f'<rect class="{"pi-turn" if not bar.tone else f"pi-{bar.tone}"}" rx="3" '
        f'x="{_percent(bar.start)}" y="{LANE_HEIGHT * bar.lane + (LANE_HEIGHT - BAR_HEIGHT) // 2}" '
        f'width="{_percent(max(0.002, bar.end - bar.start))}" height="{BAR_HEIGHT}">'
        f"<title>{_escaped(bar.title)}</title></rect>"
        for bar in chart.bars
    )
    ticks = "".join(
        f'<span style="left:{_percent(tick.at)}">{_escaped(tick.label)} </span>'
        for tick in chart.ticks
    )
    return (
        f'<div class="pi-gantt"><div class="pi-lanes">{names}</div><div class="pi-plot">'
        f'<svg width="100%" height="{height}" role="img" aria-label="{_escaped(chart.title)}">'
        f'<g class="pi-grid">{lines}</g>{bars}</svg><div class="pi-ticks">{ticks}</div></div></div>'
        f'<p class="pi-out">{_escaped(chart.title)}</p>'
    )


def _percent(share: float) -> str:
    return f"{share * 100:.2f}%"


def _escaped(text: str) -> str:
    return html.escape(text)
