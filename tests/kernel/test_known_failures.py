"""Bugs of other agents, of their loops, queues and aborts, that ours must not have (part A)."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from pi_agent_kernel import (
    AgentBusyError,
    AgentContext,
    AgentLoopConfig,
    AgentToolResult,
    BeforeToolCallResult,
    ImageContent,
    ResponseBuilder,
    TextContent,
    TurnDecision,
    agent_loop,
    faux_assistant_message,
    faux_provider,
)
from scripted import LIMIT, Scripted, call, make_tool, ok, problems_of, user


def said(messages):
    return [m.text for m in messages if m.role == "user"]


async def aborted_in_a_tool():
    async def honours(tool_call_id, params, signal, on_update):
        s.agent.abort()
        await signal.wait()
        return "done"

    s = Scripted(call(), "answered", tools=[make_tool(honours)])
    s.agent.subscribe(
        lambda e, _: s.agent.steer("queued") if len(s.requests) == 1 else None,
        events="tool_execution_start",
    )
    await s.prompt(user("go"))
    return s


async def test_a01_abort_during_a_tool_makes_no_dead_request():
    """One request, the steering still queued, every start has its end; continuing works (A01)."""
    s = await aborted_in_a_tool()

    assert len(s.requests) == 1
    assert said(s.agent.peek_queued_messages()) == ["queued"]
    assert (s.last.content, s.last.stop_reason) == ((), "aborted")
    s.check()
    await s.resume()
    assert said(s.requests[1]) == ["go", "queued"]


async def test_a02_a_message_taken_from_the_queue_is_answered():
    """After an abort it is delivered once, and answered (A02)."""
    s = await aborted_in_a_tool()
    await s.resume()

    assert said(s.state.messages) == ["go", "queued"]
    assert s.last.text == "answered"
    assert not s.agent.has_queued_messages()


async def test_a03_abort_in_a_before_hook_prepares_no_further_call():
    """One hook call, three results, nothing executed (A03)."""
    asked, ran = [], []

    def before(context, signal):
        asked.append(context.tool_call.id)
        s.agent.abort()

    s = Scripted(
        [call("t", x) for x in "abc"], tools=[make_tool(lambda *_: ran.append(1))],
        before_tool_call=before,
    )  # fmt: skip
    await s.prompt()

    assert (len(asked), len(s.results), len(ran)) == (1, 3, 0)
    s.check()


async def test_a04_calls_that_had_not_started_get_a_result():
    """Sequential batch, abort in the first: three results in call order (A04)."""
    ran = []

    async def first(tool_call_id, params, signal, on_update):
        ran.append(tool_call_id)
        s.agent.abort()
        return "first"

    s = Scripted(
        [call("t", x) for x in "abc"], tools=[make_tool(first)], tool_execution="sequential"
    )
    await s.prompt()

    assert ran == ["a"]
    assert s.outcomes == [("first", False)] + [("Operation aborted", True)] * 2
    s.check()


async def test_a05_calls_of_a_truncated_reply_are_answered():
    """None executes, each gets an error, a second request follows (A05)."""
    ran = []
    s = Scripted(
        faux_assistant_message([call()], stop_reason="length"),
        "end",
        tools=[make_tool(lambda *_: ran.append(1))],
    )
    await s.prompt()

    assert (ran, len(s.requests)) == ([], 2)
    assert [flag for _, flag in s.outcomes] == [True]
    assert problems_of(s.requests[1]) == []


@pytest.mark.parametrize(("both", "requests"), [(True, 1), (False, 2)])
async def test_a07_terminate_needs_every_result(both, requests):
    """One with terminate is not enough; the flag is not stored (A07)."""
    t = make_tool(lambda i, *_: AgentToolResult(content="x", terminate=both or i == "a"))
    s = Scripted([call("t", "a"), call("t", "b")], "end", tools=[t])
    await s.prompt()

    assert len(s.requests) == requests
    assert "terminate" not in s.results[0].__struct_fields__


async def test_a08_continue_delivers_one_batch():
    """Two queued messages: the first request has one, the second both (A08)."""
    s = Scripted("0", "1", "2")
    await s.prompt(user("go"))
    s.agent.steer("a")
    s.agent.steer("b")
    await s.resume()

    assert [said(request) for request in s.requests[1:]] == [["go", "a"], ["go", "a", "b"]]


async def test_a09_follow_ups_of_an_end_listener_stay_queued():
    """The ended run is not revived; continuing delivers it (A09)."""
    s = Scripted("one", "two")
    off = s.agent.subscribe(lambda e, _: s.agent.follow_up("late"), events="agent_end")
    await s.prompt()
    off()

    assert s.count("agent_end") == 1
    assert said(s.agent.peek_queued_messages()) == ["late"]
    await s.resume()
    assert s.state.messages[-2].text == "late"


async def test_a10_steering_does_not_cut_a_batch():
    """Both results are real, the steering comes after both (A10)."""
    first_ended = anyio.Event()

    async def execute(tool_call_id, params, signal, on_update):
        if tool_call_id == "b":
            await first_ended.wait()
        return f"real {tool_call_id}"

    def steer(event, signal):
        if event.tool_call_id == "a":
            s.agent.steer("turn")
            first_ended.set()

    s = Scripted([call("t", "a"), call("t", "b")], "end", tools=[make_tool(execute)])
    s.agent.subscribe(steer, events="tool_execution_end")
    await s.prompt()

    assert s.outcomes == [("real a", False), ("real b", False)]
    assert s.roles[-4:] == ["toolResult", "toolResult", "user", "assistant"]


async def test_a11_a_second_prompt_is_refused():
    """It raises at once and the first run completes unchanged (A11)."""
    refused = []

    async def again(event, signal):
        with pytest.raises(AgentBusyError, match=r"steer\(\) or follow_up\(\)"):
            await s.agent.prompt("mixed in")
        refused.append(1)

    s = Scripted("ok")
    s.agent.subscribe(again, events="message_update")
    await s.prompt(user("go"))

    assert refused
    assert said(s.state.messages) == ["go"]
    assert s.last.text == "ok"


async def test_a12_reset_during_a_run_is_refused():
    """From a message_update listener it raises; state is intact (A12)."""
    refused = []

    def reset(event, signal):
        with pytest.raises(AgentBusyError):
            s.agent.reset()
        refused.append(1)

    s = Scripted("ok", system_prompt="p")
    s.agent.subscribe(reset, events="message_update")
    await s.prompt()

    assert refused
    assert s.roles == ["system", "user", "assistant"]
    s.check()


async def test_a14_a_block_can_end_the_run():
    """An obstinate model is asked once (A14)."""
    s = Scripted(
        *[call("t", f"c{i}") for i in range(9)],
        tools=[make_tool(ok)],
        before_tool_call=lambda *_: BeforeToolCallResult(block=True, reason="no", terminate=True),
    )
    await s.prompt()

    assert len(s.requests) == 1


async def test_a14_finish_turn_can_end_the_run():
    """The host ends it after three equal calls (A14)."""
    seen = Counter()

    def finish(turn, signal):
        seen.update(repr((c.name, dict(c.arguments))) for c in turn.message.tool_calls)
        return TurnDecision(action="end") if max(seen.values()) == 3 else None

    s = Scripted(
        *[call("t", f"c{i}", x=1) for i in range(9)],
        tools=[make_tool(ok)],
        before_tool_call=lambda *_: BeforeToolCallResult(block=True),
        finish_turn=finish,
    )
    await s.prompt()

    assert len(s.requests) == 3
    s.check()


async def test_a15_abort_ends_a_silent_stream():
    """A stream that emits start and then nothing, deaf to the signal (A15)."""
    started = anyio.Event()

    class Silent:
        def __init__(self):
            self.sent = False

        def __aiter__(self):
            return self

        async def __anext__(self):
            if self.sent:
                started.set()
                await anyio.sleep_forever()
            self.sent = True
            return ResponseBuilder(api="a", provider="p", model="m").start()

    s = Scripted(stream_fn=lambda *_: Silent(), abort_grace=0.05)
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await started.wait()
            s.agent.abort()
            with anyio.fail_after(1):
                await s.agent.wait_for_idle()

    assert s.last.stop_reason == "aborted"
    s.check()


async def test_a16_a_stream_without_an_end_settles():
    """It is an error, the iterator ends, the agent becomes idle (A16)."""

    async def cut(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        yield builder.start()
        yield builder.text_start()
        yield builder.text_delta("half", 0)

    s = Scripted(stream_fn=cut)
    with anyio.fail_after(2):
        await s.prompt()
    assert (s.last.text, s.last.stop_reason) == ("half", "error")
    s.check()

    config = AgentLoopConfig(model=s.state.model)
    stream = agent_loop([user()], AgentContext(), config, None, cut)
    with anyio.fail_after(2):
        events = [event async for event in stream]
        result = await stream.result()
    assert events[-1].type == "agent_end"
    assert result[-1].stop_reason == "error"


async def test_a16_a_hook_that_raises_ends_the_iterator():
    """Iterator and result raise, nobody waits for ever (A16)."""

    def broken(*_):
        raise LookupError("hook")

    faux = faux_provider()
    config = AgentLoopConfig(model=faux.model(), transform_context=broken)
    stream = agent_loop([user()], AgentContext(), config, None, faux.stream_fn)
    with anyio.fail_after(2):
        with pytest.raises(LookupError):
            async for _ in stream:
                pass
        with pytest.raises(LookupError):
            await stream.result()


async def test_a17_queued_images_are_kept():
    """A steering message with text and image reaches the request whole (A17)."""
    blocks = (TextContent(text="see"), ImageContent(data="aGk=", mime_type="image/png"))
    s = Scripted("ok")
    s.agent.steer(user(blocks))
    await s.prompt()

    assert s.requests[0][-1].content == blocks


async def test_a18_image_only_messages_are_removed_by_identity():
    """After the delivery of one of two equal ones exactly one remains (A18)."""
    image = ImageContent(data="aGk=", mime_type="image/png")
    s = Scripted("ok", finish_turn=lambda *_: TurnDecision(action="end"))
    for _ in range(2):
        s.agent.steer(user((image,), timestamp=1))
    s.agent.steering_mode = "one-at-a-time"
    await s.prompt("go")

    assert len(s.agent.peek_queued_messages()) == 1
    s.agent.steering_mode = "all"
    assert len(s.agent.peek_queued_messages()) == 1


async def test_a21_the_order_of_tools_is_no_change():
    """Assigning them reversed writes no system message (A21)."""
    s = Scripted("1", "2", tools=[make_tool(ok, "a"), make_tool(ok, "b")])
    await s.prompt()
    s.state.tools = list(reversed(s.state.tools))
    await s.prompt()

    assert s.roles.count("system") == 1


async def test_a23_a_changed_mode_acts_on_the_next_drain():
    """Switched to "all" inside a tool, three messages arrive together (A23)."""

    def switch(*_):
        for text in "abc":
            s.agent.steer(text)
        s.agent.steering_mode = "all"

    s = Scripted(call(), "end", tools=[make_tool(switch)])
    await s.prompt(user("go"))

    assert said(s.requests[1]) == ["go", "a", "b", "c"]


def ends_normally(s): ...


def ends_by_abort(s):
    s.agent.subscribe(lambda e, _: s.agent.abort(), events="tool_execution_start")


def ends_by_error(s):
    s.faux.set_responses([faux_assistant_message("x", error_message="no")])


def ends_by_a_hook(s):
    def broken(*_):
        raise LookupError

    s.agent.finish_turn = broken


def ends_by_terminate(s):
    s.state.tools = [make_tool(lambda *_: AgentToolResult(content="x", terminate=True))]


@pytest.mark.parametrize(
    "ending", [ends_normally, ends_by_abort, ends_by_error, ends_by_a_hook, ends_by_terminate]
)
async def test_a24_every_start_has_one_end(ending):
    """However the run ends (A24)."""
    s = Scripted([call("t", "a"), call("t", "b")], "end", tools=[make_tool(ok)])
    ending(s)
    await s.prompt()

    s.check()
    assert s.count("agent_end") == 1
