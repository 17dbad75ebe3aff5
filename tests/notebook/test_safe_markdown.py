"""Markdown that goes to a viewer with HTML on: nothing of a model's text may run or load there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pi_notebook.render.safe_markdown import safe_markdown

# A viewer of the careless kind: HTML on, every scheme allowed.
viewer = MarkdownIt("commonmark", {"html": True}).enable("table")
viewer.validateLink = lambda url: True


def tags(text):
    """The raw HTML that the viewer would put into the page."""
    tokens = [inner for token in viewer.parse(text) for inner in (token, *(token.children or ()))]
    raw = ("html_block", "html_inline", "image")
    return [token.content or token.attrs.get("src") for token in tokens if token.type in raw]


@pytest.mark.parametrize(
    "text",
    [
        "`a\n<script>alert(1)</script>\n`",
        "`a\n<div onclick=x>\n`",
        "`a\n<!-- hidden\n`",
        "\\\\`a`<img src=x onerror=alert(1)>`",
        "\\\\`a`![i](http://evil.example/x.png)`",
        "> `a\n> <script>alert(1)</script>`",
        "- `a\n  <script>alert(1)</script>`",
    ],
)
def test_a_code_span_hides_no_tag(text):
    """What our parser takes for code may be HTML to another viewer, which then must not see it."""
    assert tags(safe_markdown(text)) == []


PIECES = (
    *("`", "``", "\\", "\n", "\n\n", "<script>", "<b>", "<!--", "-->", "a", " ", "> ", "- ", "|"),
    *("![i](http://e.example/x)", "```", "~~~", "    ", "[x](javascript:1)", "&lt;", "<?", "*"),
)


@settings(max_examples=1500, deadline=None, database=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_no_text_gets_a_tag_through(text):
    """However backticks, escapes, lines and containers are mixed."""
    assert tags(safe_markdown(text)) == []
