"""Small tables, for `%agent`."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from pi_notebook.render.html import style
from pi_notebook.render.untrusted import bound
from pi_notebook.shown_text import without_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pi_notebook.render.bundle import MimeBundle

__all__ = ["columns_bundle", "table_bundle"]

#: A first cell longer than this has its own line in text.
LONGEST_FIRST = 34


def table_bundle(rows: Sequence[tuple[str, str]]) -> MimeBundle:
    """Build the bundle of a table with a name and a value in each row.

    Args:
        rows: Names and values; both may come from a model or a tool.
    """
    rows = [
        (bound(without_secrets(name), 200), bound(without_secrets(value))) for name, value in rows
    ]
    width = max((len(name) for name, _ in rows), default=0)
    indent = "\n" + " " * (width + 2)
    plain = "\n".join(
        f"{name.ljust(width)}  {value.replace(chr(10), indent)}".rstrip() for name, value in rows
    )
    cells = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    body = f'<table class="pi-rows"><tbody>{cells}</tbody></table>'
    page = f'<div class="pi pi-run">\n<style>{style(body)}</style>\n{body}\n</div>'
    return {"text/plain": plain, "text/html": page}


def columns_bundle(header: Sequence[str], rows: Sequence[Sequence[str]]) -> MimeBundle:
    """Build the bundle of a table with named columns.

    Args:
        header: The name of each column.
        rows: The cells; they may come from a server.
    """
    table = [
        [bound(" ".join(without_secrets(cell).split()), 200) for cell in row]
        for row in [header, *rows]
    ]
    short = [row for row in table if len(row[0]) <= LONGEST_FIRST]
    widths = [max(len(row[column]) for row in short) for column in range(len(header))]
    widths[1:] = [max(len(row[column]) for row in table) for column in range(1, len(header))]
    lines: list[str] = []
    for row in table:
        first = row[0]
        if len(first) > LONGEST_FIRST:
            lines.append(first)
            first = ""
        cells = [first, *row[1:]]
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append(line.rstrip())
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in table[1:]
    )
    page = f'<table class="pi-rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    written = [f"| {' | '.join(_markdown(cell) for cell in row)} |" for row in table]
    written.insert(1, f"|{' --- |' * len(header)}")
    return {
        "text/plain": "\n".join(lines),
        "text/markdown": "\n".join(written),
        "text/html": f'<div class="pi pi-run">\n<style>{style(page)}</style>\n{page}\n</div>',
    }


def _markdown(cell: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~$&])", r"\\\1", cell)
