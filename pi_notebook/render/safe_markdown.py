"""Markdown of a model as Markdown again, for viewers that render `text/markdown` themselves.

Outside of code, tags become text, images become text, and links keep only harmless targets. What
is code is taken from the parser, so a text cannot pass off a tag as code; where it is not certain
(a code span in a table row), the tag loses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pi_notebook.render.markdown import parser, too_much

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["fenced", "safe_markdown"]

_TAG = re.compile(r"<(?=[A-Za-z/!?])(?!(?:https?://|mailto:)[^\s<>`]*>)")
_IMAGE = re.compile(r"!\[")
_TARGET = re.compile(
    r"\]\((?!\s*<?(?:https?://|mailto:))"  # neither a known scheme
    # nor a plain relative path, which is looked at so far and no farther
    r"(?=\s*$|\s*<?/|[^)\n]{0,500}[:&\\]|[^)\n]{500})",
    re.MULTILINE,
)
_REFERENCE = re.compile(r"\](?=:(?!\s*<?(?:https?://|mailto:)))")
_FENCE_END = re.compile(r"[\s>]*(`{3,}|~{3,})\s*")
_BACKTICKS = re.compile(r"\\[\s\S]|`+")  # an escaped character is neither opening nor escape


def safe_markdown(text: str) -> str:
    """Rewrite a clean Markdown text so that no viewer runs, loads or is misled by anything in it.

    Code is left alone, and code that was not closed is closed, so the text can be joined to others.
    """
    if too_much(text):
        return fenced(text)
    lines = text.split("\n")
    tokens = parser().parse(text)
    code = [token for token in tokens if token.type in ("fence", "code_block") and token.map]
    safe: list[str] = []
    position = 0
    for start, end, kind in _regions(tokens, len(lines)):
        safe.extend(_harmless(line) for line in lines[position:start])
        region = "\n".join(lines[start:end])
        safe.append(region if kind == "code" else _outside_spans(region))
        position = end
    safe.extend(_harmless(line) for line in lines[position:])
    if code and code[-1].type == "fence" and (code[-1].map or (0, 0))[1] >= len(lines):
        closing = _FENCE_END.fullmatch(lines[-1])
        opened_alone = (code[-1].map or (0, 0))[0] == len(lines) - 1
        if opened_alone or closing is None or not closing[1].startswith(code[-1].markup):
            safe.append(code[-1].markup)
    return "\n".join(safe)


def fenced(text: str, language: str = "text") -> str:
    """Put a clean text into a fence that it cannot close."""
    longest = max((len(run) for run in re.findall("~+", text)), default=0)
    fence = "~" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _regions(tokens: list[Token], count: int) -> list[tuple[int, int, str]]:
    """Find the lines that are code, or paragraphs in which code spans count."""
    regions: list[tuple[int, int, str]] = []
    position = 0
    in_table = False
    for token in tokens:
        if token.type in ("table_open", "table_close"):
            in_table = token.type == "table_open"
        if token.map is None or in_table or token.type not in ("fence", "code_block", "inline"):
            continue
        start, end = token.map[0], min(token.map[1], count)
        if position <= start < end:
            regions.append((start, end, "inline" if token.type == "inline" else "code"))
            position = end
    return regions


def _outside_spans(region: str) -> str:
    """Make everything but the code spans of one paragraph harmless."""
    pieces: list[str] = []
    position = 0
    while (opening := _BACKTICKS.search(region, position)) is not None:
        run = opening[0]
        if run[0] == "\\":
            pieces.append(_harmless(region[position : opening.end()]))
            position = opening.end()
            continue
        closing = re.compile(rf"(?<!`){run}(?!`)").search(region, opening.end())
        end = opening.end() if closing is None else closing.end()
        pieces.append(_harmless(region[position : opening.start()]))
        span = region[opening.start() : end]
        # To a viewer that knows HTML, a line that begins with a tag ends the span before it.
        pieces.append(_harmless(span) if "\n" in span else span)
        position = end
    pieces.append(_harmless(region[position:]))
    return "".join(pieces)


def _harmless(text: str) -> str:
    text = _IMAGE.sub(r"!\\[", _TAG.sub("&lt;", text))
    return _REFERENCE.sub(r"\\]", _TARGET.sub(r"]\\(", text))
