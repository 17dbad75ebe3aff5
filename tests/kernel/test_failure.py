from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import (
    ALL_EVENTS,
    RetryPolicy,
    TextContent,
    Usage,
    faux_assistant_message,
)
from scripted import LIMIT, Scripted, call, make_tool, ok, user


class Broken(Exception):
    pass


def breaks(*_):
    raise Broken("it broke")


async def breaks_async(*_):
    await anyio.lowlevel.checkpoint()
    raise Broken("it broke")


RUN_HOOKS = (
    "transform_context",
    "before_model_request",
    "convert_to_llm",
    "get_api_key",
    "prepare_request",
    "finish_turn",
    "after_model_response",
    "should_stop",
    "stream_fn",
    "prepare_next_turn",
    "prepare_next_turn_with_context",
)


@pytest.mark.parametrize("broken", [breaks, breaks_async])
@pytest.mark.parametrize("hook", RUN_HOOKS)
async def test_a_hook_that_raises_fails_the_run(hook, broken):
    """The run ends with a message that says why; prompt() returns (FL-02, S4-11)."""
    s = Scripted(call(), "end", tools=[make_tool(ok)], **{hook: broken})
    await s.prompt()

    last = s.last
    assert (last.stop_reason, last.error_message) == ("error", "it broke")
    assert last.content == (TextContent(text=""),)
    assert last.usage == Usage()
    assert (last.model, last.provider, last.api) == ("faux-1", "faux", "faux")
    assert last.thinking_level is None
    assert s.state.error_message == "it broke"
    closing = [kind for kind in s.core if kind != "model_response"][-5:]
    assert closing == ["message_start", "message_end", "turn_end", "agent_end", "agent_idle"]
    assert list(s.of("agent_end")[0].messages) == [last]
    s.check()


@pytest.mark.parametrize("hook", RUN_HOOKS)
async def test_the_agent_works_again_after_a_failure(hook):
    """A new prompt runs and clears the error (FL-06, FL-09)."""
    s = Scripted(call(), "x", tools=[make_tool(ok)], **{hook: breaks})
    await s.prompt()
    setattr(s.agent, hook, s.stream if hook == "stream_fn" else None)
    s.faux.set_responses([faux_assistant_message("works")])
    await s.prompt()

    assert s.last.text == "works"
    assert s.state.error_message is None
    s.check()


@pytest.mark.parametrize("kind", sorted(event.type for event in ALL_EVENTS - {None}))
async def test_a_listener_that_raises_once_fails_the_run(kind):
    """Whichever event it was, every start has its end and every call its result (FL-05)."""
    raised = []

    def once(event, signal):
        if not raised:
            raised.append(event)
            raise Broken("listener")

    s = Scripted(
        faux_assistant_message("", stop_reason="error", error_message="overloaded"),
        [call("t", "a"), call("t", "b")],
        "end",
        tools=[make_tool(lambda i, p, g, update: update("half"))],
        retry=RetryPolicy(base_delay_ms=0),
    )
    s.agent.subscribe(once, events=kind)
    if kind in {"agent_end", "agent_idle"}:  # the run is closed: it cannot become a message
        with pytest.raises(Broken):
            await s.prompt()
    else:
        await s.prompt()
        assert (s.last.stop_reason, s.last.error_message) == ("error", "listener")
    s.check()
    s.faux.set_responses([faux_assistant_message("works")])
    await s.prompt()
    assert s.last.text == "works"


@pytest.mark.parametrize("kind", ["message_start", "message_end", "turn_end", "agent_end"])
async def test_a_listener_that_raises_again_makes_prompt_raise(kind):
    """The failure sequence is finished all the same, and the agent is idle (FL-05)."""

    def always(event, signal):
        if s.events[-1].type == kind:
            raise Broken(kind)

    s = Scripted("ok")
    s.agent.subscribe(always)
    with pytest.raises(Broken, match=kind):
        await s.prompt()

    assert s.count("agent_end") >= 1
    assert s.types[-1] == "agent_idle"
    assert s.agent.signal is None
    assert not s.state.is_streaming


async def test_a_failure_while_streaming_ends_the_message():
    """The partial content stays, as an error, before the failure's own message (DEVIATIONS 3)."""
    s = Scripted("hello world", faux_options={"token_size": 1})

    def stop(event, signal):
        if len(event.message.text) >= 4:
            raise Broken("enough")

    s.agent.subscribe(stop, events="message_update")
    await s.prompt()

    partial, failure = s.state.messages[-2:]
    assert (partial.stop_reason, partial.error_message) == ("error", "enough")
    assert partial.text == "hell"
    assert failure.content == (TextContent(text=""),)
    s.check()


async def test_a_failure_in_a_batch_answers_every_call():
    """Calls that had ended keep their result, the others get the error (DEVIATIONS 2)."""
    gate = anyio.Event()

    async def tool(tool_call_id, params, signal, on_update):
        if tool_call_id == "b":
            await gate.wait()
        return f"result {tool_call_id}"

    def broken(event, signal):
        if event.tool_call_id == "a":
            raise Broken("listener")

    s = Scripted(
        [call("t", x) for x in "abc"], tools=[make_tool(tool)], tool_execution="sequential"
    )
    s.agent.subscribe(broken, events="tool_execution_end")
    await s.prompt()

    assert s.outcomes[0] == ("result a", False)
    assert s.outcomes[1:] == [("listener", True)] * 2
    assert [event.tool_call_id for event in s.of("tool_execution_end")] == ["a", "b", "c"]
    s.check()


async def test_a_failure_cancels_the_tools_that_run():
    """No tool outlives its run (DEVIATIONS 2)."""
    ended = []

    async def forever(*_):
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    def broken(event, signal):
        raise Broken("listener")

    s = Scripted(
        [call("forever", "a"), call("t", "b")],
        tools=[make_tool(forever, "forever"), make_tool(ok)],
    )
    s.agent.subscribe(broken, events="tool_execution_end")
    with pytest.raises(Broken):
        await s.prompt()

    assert ended == [True]
    assert len(s.results) == 2
    s.check()


async def test_a_failure_after_abort_is_an_abort():
    """The stop reason follows the abort flag (FL-02)."""

    def abort_and_break(*_):
        s.agent.abort()
        raise Broken("while aborting")

    s = Scripted("ok", transform_context=abort_and_break)
    await s.prompt()

    assert (s.last.stop_reason, s.last.error_message) == ("aborted", "while aborting")
    s.check()


async def test_an_error_without_text_is_named():
    """An exception without a text is shown by its class (FL-02)."""

    def silent(*_):
        raise Broken

    s = Scripted("ok", transform_context=silent)
    await s.prompt()

    assert s.last.error_message == "Broken"


async def test_a_stream_error_is_a_message():
    """A failed request is no exception; the turn ends as usual (FL-01, LP-04)."""
    s = Scripted(faux_assistant_message("part", error_message="overloaded"))
    await s.prompt()

    assert (s.last.text, s.last.stop_reason, s.last.error_message) == (
        "part",
        "error",
        "overloaded",
    )
    assert s.count("turn_start") == s.count("turn_end") == 1
    assert len(s.of("agent_end")[0].messages) == 2
    s.check()


async def test_continue_after_an_error_is_refused():
    """The failed message is an assistant tail; without it the run can be repeated (FL-08)."""
    from pi_agent_kernel import NothingToContinueError

    s = Scripted(faux_assistant_message("", error_message="no"), "fine")
    await s.prompt()

    with pytest.raises(NothingToContinueError):
        await s.resume()
    del s.state.messages[-1]
    await s.resume()
    assert s.last.text == "fine"


async def test_a_prompt_of_two_messages_that_fails_at_the_first():
    """What was announced is in the transcript, with its end (EV-08)."""

    def broken(event, signal):
        if event.message.content == "a":
            raise Broken("first")

    s = Scripted("ok")
    s.agent.subscribe(broken, events="message_start")
    await s.prompt([user("a"), user("b")])

    assert s.state.messages[0].content == "a"
    assert s.last.error_message == "first"
    s.check()


async def test_old_unanswered_calls_are_not_this_runs_business():
    """A failing run answers its own calls only; an imported transcript stays as it was."""
    old = faux_assistant_message(call("t", "old"))
    s = Scripted("ok", messages=[user("x"), old], transform_context=breaks)
    await s.prompt()

    assert s.count("tool_execution_start") == 0
    assert s.roles == ["user", "assistant", "user", "assistant"]


async def test_a_small_log_does_not_spoil_the_closing():
    """What is open is known even when the log has dropped its beginning (DEVIATIONS 2, 3)."""
    raised = []

    def once(event, signal):
        if event.message.role == "toolResult" and not raised:
            raised.append(1)
            raise Broken("listener")

    s = Scripted([call("t", "a"), call("t", "b")], tools=[make_tool(ok)], max_log_events=1)
    s.agent.subscribe(once, events="message_start")
    await s.prompt()

    assert s.outcomes == [("ok", False), ("ok", False)]
    assert s.count("tool_execution_end") == 2
    s.check()


@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        ("finish_turn", "end", "finish_turn.*TurnDecision.*str"),
        ("prepare_request", "x", "prepare_request.*AgentRequestUpdate.*str"),
        ("prepare_next_turn", "x", "prepare_next_turn.*AgentTurnUpdate.*str"),
        ("after_model_response", "x", "after_model_response.*AssistantMessage.*str"),
        ("convert_to_llm", None, "convert_to_llm.*None"),
        ("transform_context", 5, "transform_context.*int"),
        ("before_model_request", 5, "before_model_request.*int"),
        ("stream_fn", None, "stream function.*NoneType"),
    ],
)
async def test_a_hook_that_returns_the_wrong_thing_is_named(hook, answer, words):
    """The failure says which hook returned what, and nothing strange enters the transcript."""
    import re

    s = Scripted(call(), "end", tools=[make_tool(ok)], **{hook: lambda *_: answer})
    await s.prompt()

    assert all(hasattr(m, "role") for m in s.state.messages)
    assert s.last.stop_reason == "error"
    assert re.search(words, s.last.error_message), s.last.error_message
    s.check()


async def test_nothing_is_left_after_a_broken_run():
    """No wait hangs on a run that failed (FL-09)."""
    s = Scripted("ok", convert_to_llm=breaks)
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await anyio.lowlevel.checkpoint()
            await s.agent.wait_for_idle()

    assert s.last.error_message == "it broke"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", ["transform_context", "finish_turn", "listener"])
async def test_an_interrupt_in_a_hook_closes_the_run_and_goes_on(place, error):
    """It is not swallowed, and the run has its end (P2, FL-09)."""

    def interrupted(*_):
        raise error("now")

    s = Scripted("ok", "fine", **({} if place == "listener" else {place: interrupted}))
    off = s.agent.subscribe(interrupted, events="turn_start") if place == "listener" else None
    with pytest.raises(error):
        await s.prompt()

    assert s.count("agent_end") == 1
    assert s.agent.signal is None
    s.check()
    if off is None:
        setattr(s.agent, place, None)
    else:
        off()
    s.faux.set_responses([faux_assistant_message("fine")])
    await s.prompt()
    assert s.last.text == "fine"


@pytest.mark.parametrize("hook", ["after_tool_call", "after_tool_result"])
async def test_a_failure_cancels_hooks_that_still_run(hook):
    """A hook of another call is cancelled with its call; the call is answered (DEVIATIONS 2)."""
    cancelled = []

    async def hang(context, signal):
        asked = context.tool_call_id if hook == "after_tool_result" else context.tool_call.id
        if asked == "a":
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.append(asked)

    def broken(event, signal):
        off()
        raise Broken("listener")

    s = Scripted([call("t", "a"), call("t", "b")], tools=[make_tool(ok)], **{hook: hang})
    off = s.agent.subscribe(broken, events="tool_execution_end")
    await s.prompt()

    assert cancelled == ["a"]
    assert s.outcomes == [("listener", True), ("ok", False)]
    s.check()
