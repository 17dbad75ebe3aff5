from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import AgentToolResult, Model, Usage, faux_assistant_message
from scripted import Scripted, call, make_tool, ok

FULL = [
    "agent_start",
    "turn_start",
    "message_start",  # system: the tools are declared
    "message_end",
    "message_start",  # user
    "message_end",
    "model_request_start",
    "message_start",
    "message_end",
    "model_response",
    "tool_batch_start",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
    "message_start",
    "message_end",
    "tool_batch_end",
    "turn_end",
    "turn_start",
    "model_request_start",
    "message_start",
    "message_end",
    "model_response",
    "turn_end",
    "agent_end",
    "agent_idle",
]


def working(tool_call_id, params, signal, on_update):
    on_update("half")
    return "done"


async def test_the_complete_sequence_of_one_tool_call():
    """All events of both sets in their one order (S4-01, S4-13)."""
    s = Scripted(call(), "ok")
    s.state.tools = [make_tool(working)]
    await s.prompt()

    assert s.core == FULL
    s.check()


async def test_request_start_comes_right_before_the_stream_function():
    """After all request-side hooks; it names the model, the attempt, the messages (S4-02)."""
    seen = []

    def stream(model, context, options):
        seen.append(("stream_fn", len(context.messages)))
        return s.stream(model, context, options)

    s = Scripted(
        "ok",
        stream_fn=stream,
        get_api_key=lambda provider: seen.append(("key", provider)),
        before_model_request=lambda messages, _: [*messages, *messages],
    )
    s.agent.subscribe(
        lambda e, _: seen.append((e.type, e.model, e.attempt, e.message_count)),
        events="model_request_start",
    )
    await s.prompt()

    assert seen == [("key", "faux"), ("model_request_start", "faux-1", 1, 2), ("stream_fn", 2)]


@pytest.mark.parametrize(
    ("response", "reason"),
    [("ok", "stop"), (faux_assistant_message("x", error_message="no"), "error")],
)
async def test_one_response_event_per_request(response, reason):
    """After message_end, also of a failed one, with stop reason and usage (S4-03)."""
    s = Scripted(response)
    await s.prompt()

    (event,) = s.of("model_response")
    assert (event.stop_reason, event.message) == (reason, s.last)
    assert isinstance(event.usage, Usage)
    assert event.usage == s.last.usage
    kinds = s.core
    assert kinds[kinds.index("model_response") - 1] == "message_end"
    assert kinds[kinds.index("model_response") + 1] == "turn_end"


async def test_batch_events_frame_the_calls():
    """Both carry the number of calls; the end comes after the last result message (S4-04)."""
    s = Scripted([call("t", "a"), call("t", "b")], "ok", tools=[make_tool(ok)])
    await s.prompt()

    (start,), (end,) = s.of("tool_batch_start"), s.of("tool_batch_end")
    assert (start.count, end.count) == (2, 2)
    inside = s.core[s.core.index("tool_batch_start") : s.core.index("tool_batch_end")]
    assert inside.count("message_end") == 2


async def test_no_calls_no_batch():
    """A response without calls has no batch events (S4-04)."""
    s = Scripted("ok")
    await s.prompt()

    assert s.count("tool_batch_start") == s.count("tool_batch_end") == 0


async def test_a_truncated_batch_is_framed_too():
    """Calls of a response that was cut off by its length have batch events (S4-04)."""
    s = Scripted(
        faux_assistant_message([call()], stop_reason="length"), "ok", tools=[make_tool(ok)]
    )
    await s.prompt()

    assert s.count("tool_batch_start") == s.count("tool_batch_end") == 1


async def test_idle_comes_once_and_last():
    """After agent_end's listeners, when nothing runs any more (S4-05)."""
    s = Scripted("ok")
    seen = []

    async def slow(event, signal):
        await anyio.lowlevel.checkpoint()
        seen.append(("end", s.agent.signal is not None))

    s.agent.subscribe(slow, events="agent_end")
    s.agent.subscribe(
        lambda e, _: seen.append(("idle", s.agent.signal is not None)), events="agent_idle"
    )
    await s.prompt()

    assert seen == [("end", True), ("idle", False)]
    assert s.types[-1] == "agent_idle"


async def test_idle_listeners_are_awaited():
    """prompt() returns after agent_idle's listeners (S4-05)."""
    s = Scripted("ok")
    done = []

    async def slow(event, signal):
        await anyio.lowlevel.checkpoint()
        done.append(True)

    s.agent.subscribe(slow, events="agent_idle")
    await s.prompt()

    assert done == [True]


async def test_an_idle_listener_that_raises_makes_prompt_raise():
    """There is no run any more that could fail; the agent stays usable (FL-09)."""
    s = Scripted("one", "two")

    def broken(event, signal):
        raise LookupError("idle")

    off = s.agent.subscribe(broken, events="agent_idle")
    with pytest.raises(LookupError, match="idle"):
        await s.prompt()
    off()
    await s.prompt()

    assert s.last.text == "two"


async def test_every_ending_is_explicit():
    """Unknown tool, tool error and abort each have their own events (S4-14)."""

    def fail(*_):
        raise ValueError("failed")

    async def stop(*_):
        s.agent.abort()
        return "stopped"

    s = Scripted(
        call("nope", "a"),
        call("fail", "b"),
        call("stop", "c"),
        tools=[make_tool(fail, "fail"), make_tool(stop, "stop")],
    )
    await s.prompt()

    ends = [
        (e.tool_call_id, e.is_error, e.result.content[0].text) for e in s.of("tool_execution_end")
    ]
    assert ends[0] == ("a", True, "Tool nope not found")
    assert ends[1] == ("b", True, "failed")
    assert ends[2][0] == "c"
    assert s.last.stop_reason == "aborted"
    s.check()


async def test_results_are_in_call_order_and_ends_in_completion_order():
    """The log keeps which call ended when (S4-15)."""
    gates = {"a": anyio.Event(), "b": anyio.Event()}

    async def wait(tool_call_id, params, signal, on_update):
        if tool_call_id == "a":
            await gates["b"].wait()
        else:
            gates["b"].set()
        return AgentToolResult(content=tool_call_id)

    s = Scripted([call("t", "a"), call("t", "b")], "ok", tools=[make_tool(wait)])
    await s.prompt()

    logged = [r.event.tool_call_id for r in s.agent.log.of_type("tool_execution_end")]
    assert logged == ["b", "a"]
    assert [result.tool_call_id for result in s.results] == ["a", "b"]
    (turn, _last) = s.of("turn_end")
    assert [result.tool_call_id for result in turn.tool_results] == ["a", "b"]


async def test_the_model_of_a_request_is_named():
    """model_request_start names the model that a hook chose (S4-02)."""
    from pi_agent_kernel import AgentRequestUpdate

    s = Scripted("ok", prepare_request=lambda *_: AgentRequestUpdate(model=Model(id="m2")))
    await s.prompt()

    assert [event.model for event in s.of("model_request_start")] == ["m2"]
