from __future__ import annotations

import threading

import anyio
import pytest
from pi_agent_kernel import AgentStateError
from scripted import LIMIT, Scripted, call, make_tool


async def test_idle_at_once():
    """Without a run there is nothing to wait for (AB-05)."""
    with anyio.fail_after(LIMIT):
        await Scripted().agent.wait_for_idle()


@pytest.mark.parametrize(
    "place",
    [
        *("agent_start", "message_update", "tool_execution_update", "agent_end"),
        *("tool", "before_tool_call", "after_tool_call", "transform_context", "finish_turn"),
    ],
)
async def test_waiting_for_oneself_is_refused(place):
    """From a listener, a hook or a tool of the run, waiting for its end raises (AB-05)."""
    raised = []

    async def wait(*_):
        with pytest.raises(AgentStateError, match="wait for itself"):
            await s.agent.wait_for_idle()
        raised.append(place)

    async def work(tool_call_id, params, signal, on_update):
        on_update("half")
        if place == "tool":
            await wait()
        return "ok"

    hooks = (
        {place: wait} if "_call" in place or place in ("transform_context", "finish_turn") else {}
    )
    s = Scripted(call(), "ok", tools=[make_tool(work)], **hooks)
    if place != "tool" and not hooks:
        s.agent.subscribe(wait, events=place)
    await s.prompt()

    assert place in raised
    assert s.last.text == "ok"


async def test_many_may_wait():
    """Each task that waits for idle is woken (AB-05)."""
    gate, woken = anyio.Event(), []

    async def hold(*_):
        await gate.wait()

    s = Scripted(call(), "ok", tools=[make_tool(hold)])

    async def wait():
        await s.agent.wait_for_idle()
        woken.append(s.state.is_streaming)

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await anyio.lowlevel.checkpoint()
            for _ in range(3):
                group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            gate.set()

    assert woken == [False] * 3


async def test_waiting_for_idle_on_another_loop():
    """A thread with a loop of its own may wait for a run of this one (AB-05)."""
    gate, waiting, woken = anyio.Event(), threading.Event(), []

    async def hold(*_):
        await gate.wait()

    s = Scripted(call(), "ok", tools=[make_tool(hold)])

    async def wait():
        waiting.set()
        await s.agent.wait_for_idle()
        woken.append(s.agent.signal)

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await anyio.lowlevel.checkpoint()
            group.start_soon(anyio.to_thread.run_sync, anyio.run, wait)
            await anyio.to_thread.run_sync(waiting.wait)
            gate.set()

    assert woken == [None]
