"""Hostile and huge texts: what is shown grows with them at most in proportion, and is bounded."""

import json
import sys

import pytest

from pi_notebook.picture import RunSnapshot, Text, Thinking, Tokens, ToolRun
from pi_notebook.render.bundle import RUN_MIME, final_bundle
from pi_notebook.render.markdown import MarkdownStream, markdown_html
from pi_notebook.render.safe_markdown import safe_markdown
from pi_notebook.tool_view import Display, Output, Table, Value

GROWING = {
    "wide table": lambda n: "|" + "a|" * n + "\n|" + "-|" * n + "\n|" + "b|" * n,
    "tall table": lambda n: "|a|b|\n|-|-|\n" + "|c|d|\n" * n,
    "table of short rows": lambda n: "|" + "a|" * n + "\n|" + "-|" * n + "\n" + "x\n" * n,
    "quotes in quotes": lambda n: ">" * n + " x",
    "lines of a deep quote": lambda n: "> " * 100 + "\n" + "> x\n" * n,
    "lists in lists": lambda n: "".join("  " * depth + "- x\n" for depth in range(n // 10)),
    "dashes": lambda n: "- " * n + "x",
    "brackets": lambda n: "[" * n,
    "half links": lambda n: "[a](b" * n,
    "half images": lambda n: "![a" * n,
    "stars": lambda n: "*a **b " * n,
    "backticks": lambda n: "` `` ```" * n,
    "fences that do not fit": lambda n: "```" + "\n~~~" * n,
    "references": lambda n: "".join(f"[a{number}]: http://x/{number}\n" for number in range(n)),
    "half tags": lambda n: "<div " * n,
    "back-slashes": lambda n: "\\" * n,
    "code": lambda n: "```python\n" + "(['" * n,
    "markup in code": lambda n: "```html\n" + "<a " * n,
    "escapes": lambda n: "\x1b]8;;http://x" * n,
    "one line": lambda n: "x" * (20 * n),
}


def calls(function):
    """Count the calls of Python and C functions that something takes."""
    count = 0

    def hear(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    function()  # what is made once is made now
    sys.setprofile(hear)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("make", GROWING.values(), ids=GROWING)
def test_four_times_the_text_is_at_most_some_four_times_the_work(make):
    """Rendering, also while a text streams, takes calls and characters in proportion to it."""
    small, large = make(400), make(1600)
    times = 1.25 * len(large) / len(small)
    for render in (markdown_html, safe_markdown, lambda text: MarkdownStream().html(text)):
        assert calls(lambda: render(large)) <= times * calls(lambda: render(small)) + 200  # noqa: B023
        assert len(render(large)) <= times * len(render(small)) + 1_000
        assert len(render(large)) <= 30 * len(large) + 1_000


def run_of(*parts):
    return RunSnapshot(
        agent="main", model="m", status="ok", turns=1, parts=parts,
        tokens=Tokens(), stop_reason="stop", error=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "x\n" * 500_000,
        "|" + "a|" * 10_000 + "\n|" + "-|" * 10_000 + "\n",
        "<" * 10**6,
    ],
    ids=["a line", "lines", "columns", "tags"],
)
def test_a_megabyte_everywhere_is_bounded(text):
    """Answer, thinking, arguments, results, prints and displays of a megabyte fit in a cell."""
    output = Output(
        printed=text,
        displays=(Display(text=text),) * 8,
        value=Value("kind", "name", Table(("a",) * 13, (("b" * 80,) * 13,) * 10)),
    )
    tool = ToolRun(
        "t" * 1000, {"a": text, text: 1}, "error", result=text, raised=text, output=output
    )
    bundle = final_bundle(run_of(Text(text), Thinking(text), tool))
    sizes = {kind: len(json.dumps(content, ensure_ascii=False)) for kind, content in bundle.items()}
    assert sizes["text/plain"] < 450_000
    assert sizes["text/markdown"] < 1_300_000  # a "<" is written as "&lt;"
    assert sizes[RUN_MIME] < 450_000
    assert sizes["text/html"] < 1_300_000


@pytest.mark.parametrize("size", [0, 1_000, 20_000, 80_000])
def test_saved_text_and_markdown_are_small(size):
    """A saved cell holds at most twice the text and 4 KB in each of them; a page a little more."""
    words = "The quick **brown** fox jumps over `the` lazy dog, and says so.\n\n"
    text = (words * (size // len(words) + 1))[:size]
    bundle = final_bundle(run_of(ToolRun("add", {"a": 1, "b": 2}, "ok", result="3"), Text(text)))
    assert len(bundle["text/plain"].encode()) <= 2 * size + 4_096
    assert len(bundle["text/markdown"].encode()) <= 2 * size + 4_096
    assert len(json.dumps(bundle[RUN_MIME])) <= 2 * size + 4_096
    assert len(bundle["text/html"].encode()) <= 2 * size + 4_096


HOSTILE_TOOL = r'''
nasty = (
    "<script>document.title='run'</script><img src=x onerror=alert(1)>"
    "![p](https://e.example/p.png) [l](javascript:alert(1)) [d](data:text/html,x)"
    "\x1b[31mred\x1b]0;t\x07 \u202eover\u202c \ud800 \x00 ```\n~~~\nopen"
)

@pi.tool
def hostile(text: str = "") -> object:
    """Be hostile in every way."""
    print(nasty)
    display({"text/plain": nasty, "text/html": nasty}, raw=True)
    class Odd:
        def __repr__(self): return nasty
    return Odd()

@pi.tool
def fails() -> str:
    """Raise something hostile."""
    raise ValueError(nasty)

async def evil(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=nasty)
    yield response.start()
    for begin, delta, end in (
        (response.thinking_start, response.thinking_delta, response.thinking_end),
        (response.text_start, response.text_delta, response.text_end),
    ):
        opened = begin()
        yield opened
        for character in nasty:
            yield delta(character, opened.content_index)
        yield end(opened.content_index)
    if context.messages[-1].role != "toolResult":
        for number, name in enumerate(("hostile", "fails", nasty)):
            opened = response.toolcall_start(f"call_{number}", name)
            yield opened
            yield response.toolcall_end(opened.content_index)
    yield response.done()
register_model("evil", evil)
'''


@pytest.mark.kernel
@pytest.mark.parametrize("page", [False, True], ids=["updates", "widget"])
def test_nothing_hostile_is_sent_as_markup(kernel, page):
    """Prompt, answer, tools, prints, objects and errors reach no page as tags or foreign links."""
    assert kernel.run(HOSTILE_TOOL).error is None

    def ready(message):
        return [{"t": "ready"}] if page and message["msg_type"] == "comm_open" else []

    outcome = kernel.run(
        "%%agent --model evil\n<script>1</script> ![p](https://e.example/p.png) \x1b[31m",
        answer=ready,
    )
    assert outcome.error is None
    for message in outcome.messages:
        if message["msg_type"] in ("execute_input", "status"):
            continue
        sent = json.dumps(message["content"], ensure_ascii=False)
        for part in ("<script", "<img src=x", "\x1b[31", "\u202e", "\ud800", "\x00", "\\u0000"):
            if part.startswith("<") and "text/plain" in sent:
                data = {k: v for k, v in message["content"]["data"].items() if k == "text/html"}
                sent_page = json.dumps(data, ensure_ascii=False)
                assert part not in sent_page, message
            else:
                assert part not in sent, message
    html = outcome.displays[0]["data"]["text/html"]
    assert 'href="javascript' not in html
    assert 'href="data:' not in html
    assert "&lt;script&gt;" in html
