"""A small table of names and values, for `%agent`."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from pi_notebook.render.html import style
from pi_notebook.render.untrusted import bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pi_notebook.render.bundle import MimeBundle

__all__ = ["table_bundle"]


def table_bundle(rows: Sequence[tuple[str, str]]) -> MimeBundle:
    """Build the bundle of a table with a name and a value in each row.

    Args:
        rows: Names and values; both may come from a model or a tool.
    """
    rows = [(bound(name, 200), bound(value)) for name, value in rows]
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
