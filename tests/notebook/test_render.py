"""What is shown of a run, without a kernel: untrusted text, Markdown, HTML, the bundles."""

import json
import time
from html.parser import HTMLParser

import pytest

from pi_notebook.render.bundle import RUN_MIME, final_bundle, live_bundle, run_json
from pi_notebook.render.html import run_html
from pi_notebook.render.markdown import MarkdownStream, markdown_html
from pi_notebook.render.safe_markdown import fenced, safe_markdown
from pi_notebook.render.status import table_bundle
from pi_notebook.render.text import plain_text
from pi_notebook.render.untrusted import bound, clean, first_line, signature
from pi_notebook.snapshot import (
    Image,
    Note,
    Progress,
    RunSnapshot,
    Text,
    Thinking,
    Tokens,
    ToolRun,
)

TAGS = """
    a b blockquote br code details div em h1 h2 h3 h4 h5 h6 hr i img li ol p pre s span strong
    style summary table tbody td th thead tr ul
"""
ATTRIBUTES = """
    alt aria-label aria-live class dir href open rel role scope src start style target title
"""


def run_of(*parts, status="ok", **fields):
    values = {
        "agent": "main",
        "model": "demo",
        "turns": 1,
        "tokens": Tokens(1200, 34, 0, 0, 1234),
        "stop_reason": "stop",
        "error": None,
        **fields,
    }
    return RunSnapshot(status=status, parts=parts, **values)


class Page(HTMLParser):
    """Check that a page is well formed and has only what this package writes."""

    targets = ("http://", "https://", "mailto:")

    def __init__(self, page):
        super().__init__()
        self.open = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS.split(), tag
        for name, value in attrs:
            assert name in ATTRIBUTES.split(), name
            if name == "href":
                assert value.startswith(self.targets), value
            if name == "src":
                assert value.startswith("data:image/"), value
        if tag not in ("br", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


class RelativePage(Page):
    """Allow what leads to a place beside the notebook, too."""

    targets = (*Page.targets, "#")


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "text <b onclick='x'>bold</b> <!-- comment --> <style>*{display:none}</style>",
    "</div></details></style><iframe src=//e.example>",
    "![pixel](https://e.example/p.png)",
    "![ref][r]\n\n[r]: https://e.example/p.png",
    "[click](javascript:alert(1))",
    "[click](JaVaScRiPt&#58;alert(1))",
    "[click](\tjavascript:alert(1))",
    "[click](<java\nscript:alert(1)>)",
    "[click](data:text/html,<script>alert(1)</script>)",
    "[click](vbscript:x) [f](file:///etc/passwd) [r](/lab/api/shutdown) [h](#x)",
    "[ref]\n\n[ref]: javascript:alert(1)",
    "<javascript:alert(1)> <https://e.example/?a=<b>>",
    "```html\n<script>alert(1)</script>",
    "~~~\nnever closed\n<img src=x>",
    '```" onmouseover=alert(1)\ncode\n```',
    "| a | ` |\n|---|---|\n| <img src=x> | ` |",
    "`<b>` and ``<i> ` `` and ` <u>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;http://e.example\x1b\\link \x9b31m",
    "nul \x00 bell \x07 backspace \x08 delete \x7f",
    "lone \ud800 surrogate \udfff",
    "\u202eright to left\u202c \u2066isolated\u2069 עברית",
    "line\rover\r\nwritten",
    "$$\\text{x}$$ &lt;b&gt; &amp; &#x3c;script&#x3e;",
    "> " * 500 + "deep",
    "- " * 500 + "deep",
    "[" * 5000,
    "*a **a " * 2000,
    "\n".join("  " * depth + "- item" for depth in range(100)),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_becomes_a_harmless_page(text):
    """Whatever a model, a tool, a person or a name says: no foreign tag, link, image or control."""
    run = run_of(
        Text(text),
        Thinking(text),
        Note(text),
        ToolRun(text, {text: text, "list": [text]}, "ok", result=text),
        ToolRun("t", {"a": text}, "error", result=f"{text}\n{text}"),
        agent=text,
        model=text,
        status="error",
        error=text,
    )
    bundle = final_bundle(run)
    page = bundle["text/html"]
    Page(page)
    Page(live_bundle(run, MarkdownStreams())["text/html"])
    for mime in ("text/plain", "text/markdown", "text/html"):
        assert clean(bundle[mime]) == bundle[mime]
    # What a front end receives: strict JSON in UTF-8.
    json.dumps(bundle, ensure_ascii=False, allow_nan=False).encode("utf-8")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_markdown_is_harmless_in_a_viewer_that_allows_html(text):
    """`text/markdown` has no tag, image or odd link even for a viewer that renders them all."""
    from markdown_it import MarkdownIt

    viewer = MarkdownIt("commonmark", {"html": True}).enable("table")
    viewer.validateLink = lambda address: True
    shown = viewer.render(safe_markdown(clean(text)) + "\n\n# after")
    RelativePage(shown.replace(' class="language-html"', ""))
    assert "<img" not in shown
    if "```" in text or "~~~" in text:
        assert "<h1>after</h1>" in shown


class MarkdownStreams:
    """Render as a live view does."""

    def __init__(self):
        self.streams = {}

    def __call__(self, position, text):
        return self.streams.setdefault(position, MarkdownStream()).html(text)


def test_harmless_markdown_is_left_as_it_is():
    """Code, links and autolinks of ordinary answers are not touched."""
    text = (
        "Use `<div>` or `a[0](x)`, see [docs](https://x.y/a_b?c=d#e), <https://x.y> and\n"
        "[here](other.md).\n\n```html\n<b>![x](y)</b>\n```\n\n    <i>indented</i>\n\n2 < 3, a & b"
    )
    assert safe_markdown(text) == text


def test_growing_markdown_ends_as_the_whole_does():
    """Rendering piece by piece gives at each step what rendering the text so far gives."""
    text = (
        "# Title\n\nA paragraph with *emphasis*\nand a second line.\n\n- one\n- two\n\n"
        "  with a paragraph\n- three\n\n```python\nx = 1\n\ny = 2\n```\n\n| a | b |\n|---|---|\n"
        "| 1 | 2 |\n\n> quoted\n> more\n\nlast words\n===\n\n1. first\n2. second\n\nend"
    )
    stream = MarkdownStream()
    for end in range(len(text) + 1):
        assert stream.html(text[:end]) == markdown_html(text[:end])
    assert stream.html("something else") == markdown_html("something else")


def test_growing_markdown_costs_what_is_new():
    """Blocks that are complete are rendered once, however often the text grows."""
    from pi_notebook.render.markdown import parser

    blocks = [f"paragraph {number}\n\n" for number in range(400)]
    seen = []
    parse = parser().parse
    parser().parse = lambda text, env=None: (seen.append(len(text)), parse(text, env))[1]
    try:
        stream = MarkdownStream()
        for end in range(1, len(blocks) + 1):
            stream.html("".join(blocks[:end]))
    finally:
        parser().parse = parse
    assert max(seen) < 100


def test_huge_texts_are_bounded_and_fast():
    """A megabyte in one line costs milliseconds, and leaves the notebook small."""
    huge = "x" * 1_000_000
    run = run_of(
        Text(huge),
        Thinking(huge),
        ToolRun(huge, {huge: huge, "deep": {"list": [huge] * 3}}, "ok", result=huge),
        error=huge,
        status="error",
    )
    began = time.perf_counter()
    bundle = final_bundle(run)
    assert time.perf_counter() - began < 2
    assert len(json.dumps(bundle)) < 1_100_000
    assert "characters left out" in bundle["text/plain"]


def test_bundle_has_four_views_of_one_run():
    """Plain text, Markdown, HTML and JSON tell the same, and nothing volatile."""
    run = run_of(
        Thinking("hm"),
        ToolRun("add", {"a": 2, "b": 40}, "ok", result="42", duration_ms=17),
        ToolRun("div", {"a": 1}, "error", result="ZeroDivisionError", duration_ms=18),
        Text("It is **42**."),
        turns=2,
    )
    bundle = final_bundle(run)
    assert bundle["text/plain"] == (
        "▸ add(a=2, b=40) → 42\n▸ div(a=1) ✗ ZeroDivisionError\n\nIt is **42**."
    )
    assert bundle["text/markdown"].endswith("\n\nIt is **42**.")
    assert "<strong>42</strong>" in bundle["text/html"]
    assert bundle[RUN_MIME] == {
        "version": 1,
        "agent": "main",
        "model": "demo",
        "status": "ok",
        "turns": 2,
        "text": "It is **42**.",
        "toolCalls": [
            {"name": "add", "arguments": {"a": 2, "b": 40}, "status": "ok", "result": "42"},
            {
                "name": "div",
                "arguments": {"a": 1},
                "status": "error",
                "result": "ZeroDivisionError",
            },
        ],
        "usage": {
            "input": 1200,
            "output": 34,
            "cacheRead": 0,
            "cacheWrite": 0,
            "totalTokens": 1234,
        },
        "stopReason": "stop",
    }
    assert "17" not in bundle["text/html"].split("</style>")[1]


def test_json_keeps_arguments_that_a_notebook_can_hold():
    """Odd numbers, surrogates and huge values become text; others stay what they are."""
    arguments = [
        {"a": [1, None, {"b": "ü"}]},
        {"x": float("nan")},
        {"x": "\ud800"},
        {"x": "y" * 30_000},
    ]
    run = run_of(*(ToolRun("t", value, "ok") for value in arguments))
    kept, *texts = (call["arguments"] for call in run_json(run)["toolCalls"])
    assert kept == arguments[0]
    assert [type(text["x"]) for text in texts] == [str] * 3
    assert len(texts[2]["x"]) < 5_000


def test_tool_cards_tell_how_the_call_stands():
    """One fold per call: what was asked, how it ended; open only while it reports."""
    card = lambda *tools, **fields: run_html(run_of(*tools, **fields)).split("</style>")[1]  # noqa: E731
    assert "✓ 42" in card(ToolRun("add", {}, "ok", result="42"))
    assert 'class="pi-fold pi-bad"' in card(ToolRun("add", {}, "error", result="no"))
    live = card(ToolRun("add", {}, "running", Progress("half", 0.5)), status="running")
    assert 'style="width:50%"' in live
    assert "50 % · half" in live
    assert "<details" in live
    assert " open>" in live
    assert "writes its arguments" in card(ToolRun("add", {}, "announced"), status="running")
    assert "not run" in card(ToolRun("add", {}, "announced"), status="aborted")
    assert "did not finish" in card(ToolRun("add", {}, "running"), status="aborted")
    assert "0.31 s" in card(ToolRun("add", {}, "ok", duration_ms=310), status="running")
    long = card(ToolRun("add", {"a": "x" * 200}, "ok", result="one\ntwo"))
    assert "<pre>one\ntwo</pre>" in long
    assert "x" * 200 in long


def test_images_of_tools_are_inline_and_checked():
    """Only real image data of known types becomes an image, and not while the run goes on."""
    good, bad = Image("iVBORw0KGgo=", "image/png"), Image('"><script>', "image/png")
    svg = Image("AAAA", "image/svg+xml")
    tool = ToolRun("plot", {}, "ok", images=(good, bad, svg))
    page = run_html(run_of(tool))
    Page(page)
    assert page.count("<img") == 1
    assert "<img" not in run_html(run_of(tool, status="running"))
    assert plain_text(run_of(tool)) == "▸ plot() → [3 images]"


def test_a_failed_tool_shows_where_it_failed():
    """The fold of a failed call names the class and the line, below what the model reads."""
    tool = ToolRun("boom", {}, "error", result="no", raised="ValueError at line 2 in boom <x>")
    page = run_html(run_of(tool))
    assert '<div class="pi-label">ValueError at line 2 in boom &lt;x&gt;</div>' in page
    plain = run_html(run_of(ToolRun("boom", {}, "error", result="no")))
    assert 'class="pi-label"' not in plain


def test_footer_has_model_turns_tokens_and_how_it_ended():
    """The one footer says what a reader asks first."""
    foot = lambda **fields: run_html(run_of(**fields)).split("pi-foot")[-1]  # noqa: E731
    assert "done" in foot()
    assert "1\u202f200 in" in foot()
    assert "34 out" in foot()
    assert "2 turns" in foot(turns=2)
    assert "stopped: length" in foot(stop_reason="length")
    assert "aborted" in foot(status="aborted", stop_reason="aborted")
    assert "pi-bad" in foot(status="error", stop_reason="error")
    assert "turn 1" in foot(status="running", stop_reason=None)
    cached = foot(tokens=Tokens(100, 5, 900, 0, 1005))
    assert "1\u202f000 in (900 cached) · 5 out" in cached


def test_code_is_coloured_by_classes():
    """Known languages are highlighted, unknown ones and huge ones only escaped."""
    assert 'class="pi-k"' in markdown_html("```python\ndef f(): pass\n```")
    assert "<span" not in markdown_html("```nonsense\n<def>\n```")
    assert "<span" not in markdown_html("```python\n" + "x = 1\n" * 5_000 + "```")


def test_style_is_small_and_only_what_the_page_needs():
    """A plain answer carries no rules for tables, folds or code; every selector is scoped."""
    small = run_html(run_of(Text("hi")))
    assert len(small) < 2_000
    usual = run_html(run_of(Text("`hi`"), ToolRun("t", {}, "ok")))
    assert len(usual.split("<style>")[1].split("</style>")[0]) <= 2_500
    for word in ("pi-fold", "<table", ".pi-bar"):
        assert word not in small
    big = run_html(
        run_of(Text("`x`\n\n|a|\n|-|\n|b|\n\n> q\n\n```python\n1\n```"), ToolRun("t", {}, "ok"))
    )
    css = big.split("<style>")[1].split("</style>")[0]
    assert len(css) < 3_500
    outer, _, nested = css.partition(".pi.pi-run{")
    assert nested.endswith("}}")
    assert nested.count("{") == nested.count("}") - 1
    rules = outer.replace("@media (prefers-color-scheme: dark){", "").split("}")
    for rule in rules:
        selectors = rule.partition("{")[0]
        for selector in filter(None, _selectors(selectors)):
            assert ".pi" in selector, selector


def _selectors(text):
    depth, start, parts = 0, 0, []
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def test_texts_are_cut_with_a_word_about_it():
    """Both ends of a long text stay; a signature stays on one line."""
    text = bound("a" * 3000 + "b" * 3000, 1000)
    assert text.startswith("a" * 750)
    assert text.endswith("b" * 250)
    assert "5000 characters left out" in text
    assert first_line("\n\n  one\ntwo") == "one"
    short = signature({"a": "x\ny", "b": [1, 2], "c": {"d": None}})
    assert short == 'a="x\\ny", b=[1, 2], c={"d": null}'
    assert len(signature({f"name{n}": n for n in range(1000)})) <= 160
    assert fenced("~~~~\nx").startswith("~~~~~text\n")


def test_table_of_the_status_is_text_and_page():
    """`%agent` shows aligned text and a small table, both escaped."""
    bundle = table_bundle([("agent", "main"), ("last <error>", "one\ntwo")])
    assert bundle["text/plain"] == "agent         main\nlast <error>  one\n              two"
    Page(bundle["text/html"])
