"""How failed and repeated requests look, without a kernel."""

import pytest
from pi_agent_kernel import (
    Agent,
    AgentEnd,
    AgentStart,
    AssistantMessage,
    ContextOverflowError,
    MessageEnd,
    MessageStart,
    ModelRequestStart,
    ModelRetry,
    RetryPolicy,
    TextContent,
    ThinkingContent,
    ToolCall,
    TurnStart,
    faux_assistant_message,
    faux_provider,
)
from pi_agent_kernel.events import ALL_EVENTS
from pi_agent_kernel.models.catalog import choose_model

from pi_notebook.errors import AgentFailed
from pi_notebook.notebook_agent import NotebookAgent
from pi_notebook.render.bundle import final_bundle, run_json, run_markdown
from pi_notebook.render.html import run_html
from pi_notebook.render.live import TerminalView
from pi_notebook.render.text import plain_text
from pi_notebook.snapshot import Discarded, Retry, RunReducer, Text, Thinking

FAILED = AssistantMessage(
    content=[
        ThinkingContent(thinking="Hm."),
        TextContent(text="Half **an** answer"),
        ToolCall(id="c1", name="work", arguments={}),
    ],
    stop_reason="error",
    error_message="overloaded",
)
WHOLE = AssistantMessage(content=[TextContent(text="The whole.")])


def retry(attempt=2, delay=2150, kind="overloaded"):
    return ModelRetry(
        attempt=attempt, max_attempts=3, delay_ms=delay, error_message="overloaded", kind=kind
    )


def request(attempt=1):
    return ModelRequestStart(model="m", message_count=1, attempt=attempt)


def said(message):
    return [MessageStart(message=message), MessageEnd(message=message)]


BEGUN = [AgentStart(), TurnStart(), request()]
FAILING = [*BEGUN, *said(FAILED), retry()]
MENDED = [*FAILING, request(2), *said(WHOLE), AgentEnd(messages=(FAILED, WHOLE))]


def picture(*events):
    reducer = RunReducer("main")
    for event in events:
        reducer.apply(event)
    return reducer.snapshot()


def test_what_a_failed_request_answered_is_set_aside():
    """Its text is no part of the answer, its call no call; nothing else moves."""
    run = picture(*MENDED)

    assert run.parts == (
        Thinking(text="Hm."),
        Discarded(text="Half **an** answer"),
        Discarded(text=""),
        Retry(reason="overloaded", attempt=2, max_attempts=3, wait_ms=None),
        Text(text="The whole."),
    )
    assert (run.text, run.tool_runs, run.status, run.error) == ("The whole.", (), "ok", None)


def test_a_retry_before_the_reply_sets_nothing_aside():
    """A request that was refused takes nothing from the turn before."""
    run = picture(*BEGUN, *said(WHOLE), TurnStart(), request(), retry())

    assert [type(part) for part in run.parts] == [Text, Retry]


def test_the_wait_shows_while_it_lasts():
    """The live page says in how many seconds; once the request is made it does not."""
    waiting, asked = picture(*FAILING), picture(*FAILING, request(2))

    assert "overloaded, trying again in 2 s (2 of 3)" in run_html(waiting)
    assert "overloaded, trying again (2 of 3)" in run_html(asked)
    assert "overloaded, trying again (2 of 3)" in run_html(picture(*BEGUN, retry(), *said(WHOLE)))


def test_the_saved_output_is_the_same_whatever_the_wait():
    """No delay stands in a saved picture, also of a run that ended in the wait."""
    slow = [retry(delay=7_777) if isinstance(event, ModelRetry) else event for event in FAILING]

    for last in ("aborted", "stop"):
        end = [*said(AssistantMessage(stop_reason=last)), AgentEnd(messages=())]
        bundle = final_bundle(picture(*FAILING, *end))
        assert bundle == final_bundle(picture(*slow, *end))
        assert "trying again in" not in str(bundle)


def test_the_texts_say_what_is_dropped():
    """Plain text and Markdown mark the partial text; Markdown does not format it."""
    run = picture(*MENDED)

    assert plain_text(run) == (
        "Half **an** answer\n\n"
        "[overloaded, the text above is dropped, trying again (2 of 3)]\n\n"
        "The whole."
    )
    assert run_markdown(run) == (
        "~~~text\nHalf **an** answer\n~~~\n\n"
        "~~~text\n[overloaded, the text above is dropped, trying again (2 of 3)]\n~~~\n\n"
        "The whole."
    )
    assert "<summary>text of the attempt that failed</summary>" in run_html(run)
    assert run_json(run)["retries"] == [{"reason": "overloaded", "attempt": 2, "maxAttempts": 3}]
    assert "retries" not in run_json(picture(*BEGUN, *said(WHOLE)))


def test_a_terminal_only_writes_what_is_new():
    """The plain text grows through a failed attempt; nothing is written twice."""
    written = []
    view = TerminalView(written.append)
    seen = []
    view.open(lambda: seen[-1], lambda _seconds, _callback: None)
    for count in range(len(MENDED) + 1):
        seen.append(picture(*MENDED[:count]))
        view._update(seen[-1])

    assert "".join(written) == plain_text(seen[-1])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("rate_limit", "rate limit reached"),
        ("connection", "connection failed"),
        ("incomplete", "reply cut off"),
        ("never heard of", "request failed"),
    ],
)
def test_the_reason_is_in_words(kind, reason):
    """A reader gets words for the kind of a failure."""
    assert picture(*BEGUN, retry(kind=kind)).parts[0].reason == reason


def test_a_real_run_is_pictured():
    """What the kernel announces for a mended run gives the picture of one."""
    faux = faux_provider()
    broken = faux_assistant_message("Half", stop_reason="error", error_message="overloaded")
    faux.set_responses([broken, faux_assistant_message("ok")])
    policy = RetryPolicy(base_delay_ms=0)
    agent = Agent(stream_fn=faux.stream_fn, model=faux.model(), retry=policy)
    reducer = RunReducer("main")
    agent.subscribe(lambda event, _signal: reducer.apply(event), events=ALL_EVENTS)

    agent.prompt_sync("go")

    assert [type(part) for part in reducer.snapshot().parts] == [Discarded, Retry, Text]
    assert (reducer.status, reducer.snapshot().text) == ("ok", "ok")


async def test_a_notebook_agent_tries_again():
    """It asks three times in all."""
    agent = NotebookAgent("main", choose_model("demo"))

    assert agent.retry == RetryPolicy(max_retries=2)


@pytest.mark.parametrize(
    ("text", "cause"),
    [("prompt is too long: 9 tokens > 8", ContextOverflowError), ("Bad key", type(None))],
)
async def test_an_overflow_is_the_cause_of_a_failed_cell(text, cause):
    """Code around a prompt can tell a full window from other failures."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("", stop_reason="error", error_message=text)])
    agent = NotebookAgent("main", choose_model("demo"))
    agent.stream_fn = faux.stream_fn

    with pytest.raises(AgentFailed, match=text.split(":")[0]) as failed:
        await agent.prompt("go")

    assert type(failed.value.__cause__) is cause
