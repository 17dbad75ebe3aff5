"""Markdown of a model as HTML that cannot run, load or imitate anything.

HTML is off in the parser. Links lead to http, https and mailto only, images become links that say
so, and nothing is loaded. `MarkdownStream` renders a growing text in time proportional to what is
new: once a block has begun, the ones before it no longer change.
"""

from __future__ import annotations

import html
import re
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import OptionsDict

__all__ = ["MarkdownStream", "markdown_html", "parser", "too_much"]

SCHEMES = frozenset({"http", "https", "mailto"})
#: Longer lines and texts are shown as they are: no reader formats them, and parsers may choke.
LONGEST_LINE = 20_000
LONGEST_MARKDOWN = 100_000
LONGEST_CODE = 20_000
#: Cells that a table may have beyond those that are written.
MOST_CELLS = 2_000

#: More quotes and lists in each other than anybody writes; each line would go through all of them.
_TOO_DEEP = re.compile(r"^(?:[ \t]*(?:>|[-*+]|\d{1,9}[.)])){30}", re.MULTILINE)
#: The kinds of token that the style sheet tells from plain code.
_COLOURED = re.compile(r"[ksmc]|n[fc]$")


def markdown_html(text: str) -> str:
    """Render a clean text as HTML that cannot run, load or imitate anything."""
    if too_much(text):
        return _as_it_is(text)
    return parser().render(text)


class MarkdownStream:
    """Render one text again and again while it grows."""

    def __init__(self) -> None:
        self._done = ""  # the text that no longer changes
        self._html = ""

    def html(self, text: str) -> str:
        """Render the text so far.

        Args:
            text: What it was given last, and more; any other text starts over.
        """
        if too_much(text):
            return _as_it_is(text)
        done, rest = self.split(text)
        return done + parser().render(rest)

    def split(self, text: str) -> tuple[str, str]:
        """Divide the text so far: HTML of the blocks that no longer change, and the last one.

        Args:
            text: As for `html`.

        Returns:
            The HTML, and the text of the block that still grows.
        """
        if too_much(text):
            return "", text
        if not text.startswith(self._done):
            self._done = self._html = ""
        markdown = parser()
        rest = text[len(self._done) :]
        environment: MutableMapping[str, Any] = {}
        tokens = markdown.parse(rest, environment)
        last = _last_block(tokens)
        start = tokens[last].map if last else None
        if start:
            self._html += markdown.renderer.render(tokens[:last], markdown.options, environment)
            lines = rest.split("\n", start[0])
            self._done += rest[: len(rest) - len(lines[-1])]
        return self._html, text[len(self._done) :]


def too_much(text: str) -> bool:
    """Tell whether a text is too long, too wide or too deep to be read as Markdown."""
    lines = text.split("\n")
    if len(text) > LONGEST_MARKDOWN or any(len(line) > LONGEST_LINE for line in lines):
        return True
    # A row of a table that has too few cells is filled up, which may be a thousand cells a line.
    filled = max(line.count("|") for line in lines) * len(lines)
    return filled > len(text) + MOST_CELLS or _TOO_DEEP.search(text) is not None


def _as_it_is(text: str) -> str:
    return f'<p class="pi-verbatim">{html.escape(text)}</p>\n'


def _last_block(tokens: Sequence[Token]) -> int:
    """Find where the last top-level block begins."""
    for index in range(len(tokens) - 1, -1, -1):
        if tokens[index].level == 0 and tokens[index].nesting >= 0:
            return index
    return 0


@cache
def parser() -> MarkdownIt:
    """Return the one parser: CommonMark with tables, without HTML."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False, "maxNesting": 60})
    markdown.enable(["table", "strikethrough"])
    markdown.validateLink = _is_link  # pyright: ignore[reportAttributeAccessIssue]
    markdown.add_render_rule("link_open", _link_open)
    markdown.add_render_rule("image", _image)
    markdown.add_render_rule("fence", _fence)
    markdown.add_render_rule("code_block", _fence)
    return markdown


def _is_link(address: str) -> bool:
    # Browsers ignore control characters and blanks in a scheme, so they are no part of a link.
    if re.search(r"[\x00-\x20\x7f-\xa0]", address):
        return False
    try:
        return urlsplit(html.unescape(address)).scheme.lower() in SCHEMES
    except ValueError:
        return False


def _link_open(
    self: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    _environment: MutableMapping[str, Any],
) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    tokens[index].attrSet("target", "_blank")
    return self.renderToken(tokens, index, options, _environment)


def _image(
    self: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    environment: MutableMapping[str, Any],
) -> str:
    token = tokens[index]
    name = self.renderInlineAsText(token.children or [], options, environment)
    address = str(token.attrGet("src") or "")
    label = html.escape(f"[image: {name or address}]")
    if not _is_link(address):
        return label
    return (
        f'<a href="{html.escape(address)}" rel="noopener noreferrer nofollow" target="_blank">'
        f"{label}</a>"
    )


def _fence(
    _self: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _environment: MutableMapping[str, Any],
) -> str:
    token = tokens[index]
    words = token.info.split()
    return f"<pre><code>{_highlighted(token.content, words[0] if words else '')}</code></pre>\n"


def _highlighted(code: str, language: str) -> str:
    """Colour code by classes; without a known language it is only escaped."""
    if not language or len(code) > LONGEST_CODE:
        return html.escape(code)
    from pygments.lexers import get_lexer_by_name
    from pygments.token import STANDARD_TYPES
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language[:40], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return html.escape(code)
    # Only what has a colour gets a class, and neighbours of one kind share it: most is plain.
    pieces: list[str] = []
    kinds = ((STANDARD_TYPES.get(kind, ""), text) for kind, text in lexer.get_tokens(code))
    shown = ((kind if _COLOURED.match(kind) else "", text) for kind, text in kinds)
    for kind, group in groupby(shown, key=itemgetter(0)):
        text = html.escape("".join(text for _, text in group))
        pieces.append(f'<span class="pi-{kind}">{text}</span>' if kind else text)
    return "".join(pieces)
