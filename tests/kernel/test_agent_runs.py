from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import (
    AgentBusyError,
    Model,
    NothingToContinueError,
    SystemMessage,
    ToolContext,
    tool,
)
from scripted import LIMIT, Scripted, call, make_tool, ok

# -------------------------------------------------------------------------------- continue


@pytest.mark.parametrize("messages", [[], [SystemMessage(content="p")]])
async def test_nothing_to_continue_from(messages):
    """An empty or system-only transcript raises and leaves the queues alone (LP-14)."""
    s = Scripted("ok", messages=messages)
    s.agent.steer("queued")

    with pytest.raises(NothingToContinueError, match="prompt"):
        await s.resume()

    assert s.agent.peek_queued_messages()[0].text == "queued"
    assert s.events == []


async def test_an_assistant_tail_needs_queued_messages():
    """Without any, continuing raises, naming the role (LP-14)."""
    s = Scripted("one", "two")
    await s.prompt()

    with pytest.raises(NothingToContinueError, match="assistant") as caught:
        await s.resume()
    assert caught.value.role == "assistant"
    assert isinstance(caught.value, ValueError)
    s.agent.follow_up("more")
    await s.resume()
    assert s.state.messages[-2].text == "more"


async def test_continue_on_a_tool_result():
    """A tool result is a tail to go on from, and is not sent again as new (LP-14, LP-11)."""
    first = Scripted(call("t"), "done", tools=[make_tool(ok)])
    await first.prompt()
    s = Scripted("again", messages=first.state.messages[:-1], tools=[make_tool(ok)])
    await s.resume()

    (end,) = s.of("agent_end")
    assert [m.role for m in end.messages] == ["assistant"]
    assert s.last.text == "again"


# ------------------------------------------------------------------------------------ busy


async def test_a_second_run_is_refused_with_advice():
    """prompt, continue_ and reset raise while a run is active, and change nothing (LP-16)."""
    raised = []

    async def listener(event, signal):
        for action in (lambda: s.agent.prompt("x"), s.agent.continue_):
            with pytest.raises(AgentBusyError, match=r"steer\(\).*follow_up\(\).*wait_for_idle"):
                await action()
        with pytest.raises(RuntimeError, match="wait_for_idle"):
            s.agent.reset()
        raised.append(event.type)

    s = Scripted("ok")
    s.agent.subscribe(listener, events=["turn_start", "message_update", "agent_end"])
    await s.prompt()

    assert {"turn_start", "message_update", "agent_end"} == set(raised)
    assert s.roles == ["user", "assistant"]
    assert s.state.error_message is None
    s.check()


async def test_two_prompts_at_once():
    """Of two prompts started together, one runs and the other raises (LP-16)."""
    s = Scripted("ok")
    refused = []

    async def one():
        try:
            await s.agent.prompt("go")
        except AgentBusyError as error:
            refused.append(error.action)

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)

    assert refused == ["prompt"]
    assert s.roles == ["user", "assistant"]


# ----------------------------------------------------------------------------------- reset


async def test_reset_keeps_prompt_and_tools():
    """What was said is gone; the replayed head, tools and listeners stay (AB-06, D13)."""
    s = Scripted("one", "two", system_prompt="p", tools=[make_tool(ok)])
    s.state.messages.append(SystemMessage(content="more", sections={"a": "A"}, timestamp=7))
    await s.prompt()
    s.agent.follow_up("x")
    s.agent.reset()

    (head,) = s.state.messages
    assert (head.content, dict(head.sections), head.timestamp) == ("p\n\nmore", {"a": "A"}, 0)
    assert [one.name for one in head.tools_added] == ["t"]
    assert [one.name for one in s.state.tools] == ["t"]
    assert not s.agent.has_queued_messages()
    await s.prompt()
    assert s.last.text == "two"


async def test_reset_clears_the_error():
    """After a failed run `reset()` forgets why (AB-06)."""
    s = Scripted()
    await s.prompt()
    assert s.state.error_message == "No more faux responses queued"

    s.agent.reset()

    assert (s.state.error_message, s.roles) == (None, [])


# ------------------------------------------------------------------------- nested and idle


async def test_an_agent_as_a_tool_keeps_its_own_transcript():
    """Two runs may be nested; each agent has its own state (B43)."""
    child = Scripted("child one", "child two")

    async def ask(tool_call_id, params, signal, on_update):
        await child.agent.prompt("sub")
        return child.last.text

    parent = Scripted(call("ask", "c1"), call("ask", "c2"), "end", tools=[make_tool(ask, "ask")])
    await parent.prompt()

    assert parent.outcomes == [("child one", False), ("child two", False)]
    assert child.roles == ["user", "assistant"] * 2
    assert parent.last.text == "end"
    parent.check()
    child.check()


async def test_an_aborted_agent_closes_the_one_it_runs():
    """Aborting the outer run cancels the tool, and the inner run closes itself properly (AB-09)."""
    started = anyio.Event()

    async def forever(*_):
        started.set()
        await anyio.sleep_forever()

    child = Scripted(call("t"), tools=[make_tool(forever)], abort_grace=0.01)

    @tool
    async def ask() -> str:
        """Ask the child."""
        await child.agent.prompt("sub")
        return "never"

    parent = Scripted(call("ask"), tools=[ask])
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(parent.agent.prompt, "go")
            await started.wait()
            parent.agent.abort()

    assert parent.outcomes == [("Operation aborted", True)]
    assert child.outcomes == [("Operation aborted", True)]
    assert parent.last.stop_reason == child.last.stop_reason == "aborted"
    parent.check()
    child.check()


async def test_the_running_agent_is_known_to_its_tools():
    """`ctx.agent` is the agent whose run it is, also when agents are nested (api.md)."""
    seen = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx.agent)
        return "x"

    child = Scripted(call("look"), "done", tools=[look])

    async def ask(*_):
        await child.agent.prompt("sub")

    parent = Scripted(call("ask"), call("look"), "end", tools=[make_tool(ask, "ask"), look])
    await parent.prompt()

    assert seen == [child.agent, parent.agent]


async def test_a_prompt_may_start_from_agent_idle():
    """In an agent_idle listener the agent is free again (S4-05)."""
    s = Scripted("one", "two")
    asked = []

    async def again(event, signal):
        if not asked:
            asked.append((s.agent.signal, s.state.is_streaming))
            await s.agent.prompt("more")

    s.agent.subscribe(again, events="agent_idle")
    await s.prompt()

    assert asked == [(None, False)]
    assert [m.role for m in s.state.messages] == ["user", "assistant"] * 2
    assert s.count("agent_idle") == 2


async def test_two_agents_run_side_by_side():
    """Agents share nothing: their runs interleave freely (B43)."""
    both = [Scripted("a" * 400), Scripted("b" * 400)]
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            for one in both:
                group.start_soon(one.agent.prompt, "go")

    assert [one.last.text for one in both] == ["a" * 400, "b" * 400]


async def test_settings_are_captured_at_the_start_of_a_run():
    """Reassigning a hook or the stream function counts from the next run (CO-12)."""

    def replaced(*_):
        raise AssertionError("the run uses what it started with")

    def swap(tool_call_id, params, signal, on_update):
        s.agent.transform_context = replaced
        s.agent.stream_fn = replaced
        s.state.model = Model(id="other")
        return "swapped"

    s = Scripted(call("t"), "end", tools=[make_tool(swap)])
    await s.prompt()

    assert s.last.text == "end"
    assert [model.id for model in s.models] == ["faux-1", "faux-1"]
