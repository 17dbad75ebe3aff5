"""Planted keys never appear in what a kernel sends or an export holds: notebook.md 5."""

import html
import json

import pytest
from pi_agent_kernel import SystemMessage
from scripted import Scripted, call, make_tool

from pi_notebook.explain_verb import ShownExplanation
from pi_notebook.inspector.page import page_of
from pi_notebook.inspector.plain import plain_inspector
from pi_notebook.inspector.scene import Scene
from pi_notebook.shown_text import GrowingText, without_secrets

pytestmark = pytest.mark.kernel

#: One that only the environment tells, one that looks like a key.
PLANTED = "Zq9/planted+value-7731"
PATTERNED = "sk-" + "planted" * 6

SETUP = '''
import asyncio, os
planted, patterned = os.environ["SOME_API_KEY"], "sk-" + "planted" * 6
both = f"a {planted} b {patterned} c"

@pi.tool
def leaks(text: str = "") -> str:
    """Leak."""
    print("printed", both)
    display(both)
    for piece in (planted[:9], planted[9:], "\\n"):
        print(piece, end="")
    return both

@pi.tool
def fails() -> str:
    """Fail."""
    raise ValueError(f"no access with {both}")

@pi.tool(effects="write")
def writes(text: str) -> str:
    """Write."""
    return f"wrote {text}"

@pi.tool
def table() -> object:
    """Return a table."""
    import pandas as pd
    return pd.DataFrame({planted: [patterned]})

async def leaking(model, context, options):
    """Say the keys in small pieces, then call tools with them."""
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    opened = response.thinking_start()
    yield opened
    yield response.thinking_delta(both, opened.content_index)
    yield response.thinking_end(opened.content_index)
    opened = response.text_start()
    yield opened
    for piece in both + f" **{planted}** `{patterned}` " + "words " * 10:
        yield response.text_delta(piece, opened.content_index)
        await asyncio.sleep(0.004)
    yield response.text_end(opened.content_index)
    if context.messages[-1].role != "toolResult":
        for number, (name, text) in enumerate([("leaks", both), ("fails", None), ("table", None)]):
            opened = response.toolcall_start(f"call_{number}", name)
            yield opened
            if text:
                for piece in json.dumps({"text": text}):
                    yield response.toolcall_delta(piece, opened.content_index)
                    await asyncio.sleep(0.002)
            yield response.toolcall_end(opened.content_index)
    yield response.done()

async def refused(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    yield response.error(f"401: bad key {both}")

async def asking(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    if context.messages[-1].role != "toolResult":
        opened = response.toolcall_start("call_0", "writes")
        yield opened
        yield response.toolcall_end(opened.content_index, ToolCall(
            id="call_0", name="writes", arguments={"text": both}))
    yield response.done()

import json
from pi_agent_kernel import ToolCall
register_model("leaking", leaking)
register_model("refused", refused)
register_model("asking", asking)
'''


def leaked(outcome):
    """Return the planted texts in the bytes of everything that a cell sent."""
    sent = "".join(json.dumps(m["content"], ensure_ascii=False) for m in outcome.messages)
    pieces = (PLANTED, PLANTED[:12], PATTERNED, PATTERNED[:14])
    return [piece for piece in pieces if piece in sent]


def watched(start_kernel, scripted_models, headless="0"):
    kernel = start_kernel(PI_NOTEBOOK_HEADLESS=headless, SOME_API_KEY=PLANTED)
    for cell in ("%load_ext pi_notebook", scripted_models, SETUP):
        assert kernel.run(cell).error is None
    return kernel


def ready(message):
    """Be a page whose widget is there."""
    return [{"t": "ready"}] if message["msg_type"] == "comm_open" else []


@pytest.mark.parametrize("page", [None, ready], ids=["updates", "widget"])
def test_no_key_is_sent_while_a_run_goes_on_or_after(start_kernel, scripted_models, page):
    """Neither the answer, pieces of it, arguments, prints, results nor errors carry a key."""
    kernel = watched(start_kernel, scripted_models)
    outcome = kernel.run("%%agent --model leaking\ngo", answer=page)
    assert outcome.error is None
    assert len(outcome.messages) > 10
    assert leaked(outcome) == []
    shown = json.dumps(outcome.displays[0]["data"])
    assert shown.count("[redacted]") > 10
    assert PLANTED in kernel.run("pi.agent.state.messages[-1].text").value
    failed = kernel.run("%%agent --model refused\ngo")
    assert failed.error == "AgentFailed"
    assert leaked(failed) == []
    assert "[redacted]" in failed.reply["evalue"]
    for verb in ("status", "tree", "queue", "list"):
        assert leaked(kernel.run(f"%agent {verb}")) == [], verb


def test_exports_hold_no_key(start_kernel, scripted_models, tmp_path):
    """A prompt and an answer with keys are exported without them, in every form."""
    kernel = watched(start_kernel, scripted_models, headless="1")
    assert kernel.run("pi.agent.set_model('leaking')").error is None
    assert kernel.run("await pi.agent.prompt(both)").error is None
    for ending in ("md", "html", "ipynb"):
        file = tmp_path / f"talk.{ending}"
        assert kernel.run(f"pi.agent.export({str(file)!r})").error is None
        text = file.read_text(encoding="utf-8")
        assert "[redacted]" in text
        assert PLANTED not in text
        assert PATTERNED not in text


def test_an_approval_hides_keys_and_runs_with_them(start_kernel, scripted_models):
    """The question has no key; a call that was edited elsewhere still runs with the real one."""
    kernel = watched(start_kernel, scripted_models)
    answered = []

    def approve(message):
        data = message["content"].get("data", {})
        content = data.get("content", {}) if isinstance(data, dict) else {}
        asks = content.get("asks") or []
        if message["msg_type"] == "comm_open":
            return [{"t": "ready"}]
        if asks and not answered:
            answered.append(asks[0]["args"])
            args = json.loads(asks[0]["args"]) | {"text": json.loads(asks[0]["args"])["text"]}
            return [{"t": "approve", "number": asks[0]["number"], "args": json.dumps(args)}]
        return []

    outcome = kernel.run("%%agent --model asking\ngo", answer=approve)
    assert outcome.error is None
    assert "[redacted]" in answered[0]
    assert leaked(outcome) == []
    result = kernel.run("pi.agent.state.messages[-2].content[0].text").value
    assert PLANTED in result


def test_a_key_that_is_being_written_waits(monkeypatch):
    """Whatever pieces a text comes in, no beginning of a key of some length is ever shown."""
    monkeypatch.setenv("SOME_TOKEN", PLANTED)
    text = f"first {PLANTED} then {PATTERNED}, {'long ' * 3000} and {PLANTED} at the end"
    growing, shown = GrowingText(), ""
    for end in range(0, len(text) + 1, 1):
        if end > 200 and end < len(text) - 100 and end % 97:
            continue
        shown = growing.shown(text[:end])
        assert PLANTED[:6] not in shown
        assert PATTERNED[:8] not in shown
    assert shown == without_secrets(text)


def test_escapes_do_not_hide_a_key(monkeypatch):
    """A terminal escape or a direction mark inside of a key does not let it through."""
    monkeypatch.setenv("SOME_TOKEN", PLANTED)
    for between in ("\x1b[0m", "\u202e", "\u2066"):
        assert without_secrets(f"{PLANTED[:5]}{between}{PLANTED[5:]}") == "[redacted]"


@pytest.mark.parametrize(
    "text", ["x KEY[:20]…", "x KEY[:20]", "KEY[:20]\n… 9 left out …\nKEY[20:]", "…KEY[9:] x"]
)
def test_what_a_cut_left_of_a_key_is_taken_out(monkeypatch, text):
    """A beginning of a known key before a cut, and an end after one, are hidden; words are not."""
    key = "Zq9planted0value1abc2def3ghi4jkl5mno6"
    monkeypatch.setenv("SOME_API_KEY", key)
    for part in (key[:20], key[20:], key[9:]):
        place = "KEY[:20]" if part == key[:20] else "KEY[20:]" if part == key[20:] else "KEY[9:]"
        text = text.replace(place, part)

    shown = without_secrets(text)

    assert "planted" not in shown
    assert "mno6" not in shown
    assert without_secrets(f"{key[:9]} and more") == f"{key[:9]} and more"


@pytest.mark.parametrize("exact", [True, False])
async def test_explanations_and_the_inspector_hold_no_part_of_a_key(monkeypatch, exact):
    """Whatever cuts first: errors, results, prompts, arguments, sections, escapes in the middle."""
    key = "Zq9planted0value1abc2def3ghi4jkl5mno6"
    monkeypatch.setenv("SOME_API_KEY", key)

    async def fails(*_):
        raise ValueError("x" * 179 + " " + key)

    async def says(*_):
        return "y" * 79 + " " + key + f" {key[:10]}\x1b[0m{key[10:]}"

    parameters = {"type": "object", "properties": {"q": {"type": "string"}}}
    replies = (call("f"), call("s", "c2", q="z" * 25 + " " + key + " tail"), "end")
    scripted = Scripted(
        *replies,
        tools=[make_tool(fails, name="f"), make_tool(says, name="s", parameters=parameters)],
        messages=[SystemMessage(content="p", sections={"a": "s" * 50 + " " + key})],
    )
    await scripted.prompt("p" * 75 + " " + key)

    scene = Scene.of(scripted.agent, exact=exact)
    shown = [html.unescape(page_of(scene)), plain_inspector(scene)]
    for question in (None, "why did f fail?", "what became of my message?", "why did s not run?"):
        bundle = ShownExplanation(scripted.agent.explain(question)).bundle()
        shown += bundle["text/plain"], html.unescape(bundle["text/html"])

    assert not [text for text in shown if key[:9] in text or key[-9:] in text]
