from __future__ import annotations

import asyncio

import anyio
import pytest
from pi_agent_kernel import tool
from scripted import LIMIT, Scripted, call, make_tool, ok

asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"])
trio_only = pytest.mark.parametrize("anyio_backend", ["trio"])


def hanging(place):
    """An agent whose run hangs at a place, and the event that says it does."""
    started = anyio.Event()

    async def hang(*_):
        started.set()
        await anyio.sleep_forever()

    @tool
    async def deaf() -> str:
        """Hang."""
        await hang()

    options = {"abort_grace": 0.02}
    tools = [deaf]
    answers = [call("deaf"), "never"]
    if place == "tool with signal":
        tools = [make_tool(hang, "deaf")]
    elif place == "stream":
        options["stream_fn"] = hang
    elif place != "tool":
        options[place] = hang
        tools = [make_tool(ok, "deaf")]
    return Scripted(*answers, tools=tools, **options), started


PLACES = (
    "tool",
    "tool with signal",
    "stream",
    "transform_context",
    "before_tool_call",
    "finish_turn",
)


@pytest.mark.parametrize("place", PLACES)
async def test_a_cancelled_scope_aborts_the_run(place):
    """Events are completed, then the cancellation goes on (DEVIATIONS 13, AB-09)."""
    s, started = hanging(place)
    after = []
    scope = anyio.CancelScope()

    async def prompt():
        with scope:
            await s.agent.prompt("go")
            after.append("returned")

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(prompt)
            await started.wait()
            scope.cancel()

    assert after == []
    assert scope.cancelled_caught
    assert s.types[-2:] == ["agent_end", "agent_idle"]
    assert s.last.stop_reason == "aborted"
    s.check()


@pytest.mark.parametrize("place", PLACES)
async def test_a_timeout_around_prompt(place):
    """A deadline of the caller is a cancellation like any other (AB-09)."""
    s, _ = hanging(place)
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.1):
            await s.agent.prompt("go")

    assert s.last.stop_reason == "aborted"
    assert s.count("agent_idle") == 1
    s.check()
    s.agent.stream_fn = s.stream
    s.faux.set_responses([])
    for hook in ("transform_context", "before_tool_call", "finish_turn"):
        setattr(s.agent, hook, None)
    await s.prompt()
    assert s.last.error_message == "No more faux responses queued"


@asyncio_only
@pytest.mark.parametrize("place", PLACES)
async def test_a_cancelled_task_aborts_the_run(place, anyio_backend):
    """The task.cancel() of asyncio aborts it, too (AB-09)."""
    s, started = hanging(place)
    task = asyncio.create_task(s.agent.prompt("go"))
    await started.wait()
    task.cancel("enough")
    with anyio.fail_after(LIMIT), pytest.raises(asyncio.CancelledError):
        await task

    assert task.cancelled()
    assert s.last.stop_reason == "aborted"
    assert s.types[-2:] == ["agent_end", "agent_idle"]
    s.check()


@asyncio_only
@pytest.mark.parametrize("times", [2, 5])
@pytest.mark.parametrize("place", PLACES)
async def test_cancelling_again_does_not_tear_the_run_apart(place, times, anyio_backend):
    """However often the awaiting task is cancelled, the run closes itself (AB-09)."""
    s, started = hanging(place)
    task = asyncio.create_task(s.agent.prompt("go"))
    await started.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with anyio.fail_after(LIMIT), pytest.raises(asyncio.CancelledError):
        await task

    assert s.count("agent_end") == 1
    assert s.last.stop_reason == "aborted"
    s.check()


@asyncio_only
async def test_no_task_is_left(anyio_backend):
    """After a cancelled run nothing of it lives on (B37)."""
    before = asyncio.all_tasks()
    s, started = hanging("tool")
    task = asyncio.create_task(s.agent.prompt("go"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert asyncio.all_tasks() == before


@asyncio_only
async def test_wait_for_with_a_timeout(anyio_backend):
    """asyncio.wait_for cancels the run and raises its own error (AB-09)."""
    s, _ = hanging("tool")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(s.agent.prompt("go"), 0.05)

    assert s.last.stop_reason == "aborted"
    s.check()


async def test_cancelling_before_the_run_began():
    """A scope cancelled beforehand leaves the agent idle and usable (FL-09)."""
    s = Scripted("one", "two")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await s.agent.prompt("go")

    assert s.agent.signal is None
    s.check()
    await s.agent.wait_for_idle()


async def test_cancelling_wait_for_idle_leaves_the_run_alone():
    """Only who awaits prompt() aborts the run (AB-05)."""
    gate = anyio.Event()

    async def hold(*_):
        await gate.wait()
        return "held"

    s = Scripted(call(), "end", tools=[make_tool(hold)])
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await anyio.lowlevel.checkpoint()
            with anyio.move_on_after(0.01):
                await s.agent.wait_for_idle()
            gate.set()

    assert s.last.text == "end"
    s.check()


async def test_cancelling_continue():
    """`continue_()` behaves like prompt() (AB-09)."""
    s, started = hanging("tool")
    s.state.messages = [{"role": "user", "content": "go"}]
    with anyio.fail_after(LIMIT), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.continue_)
            await started.wait()
            scope.cancel()

    assert s.last.stop_reason == "aborted"
    s.check()


CANCELLED_PLACES = (
    *("transform_context", "convert_to_llm", "prepare_request", "get_api_key", "finish_turn"),
    *("after_model_response", "stream_fn", "listener", "before_tool_call", "after_tool_call"),
    "after_tool_result",
)


@asyncio_only
@pytest.mark.parametrize("place", CANCELLED_PLACES)
async def test_a_cancellation_that_nobody_asked_for_is_a_failure(place, anyio_backend):
    """Code that awaits a cancelled task raises CancelledError: that never ends a run silently."""

    async def cancelled(*_):
        task = asyncio.ensure_future(asyncio.sleep(10))
        task.cancel()
        await task

    s = Scripted(
        call(),
        "end",
        tools=[make_tool(ok)],
        **({} if place == "listener" else {place: cancelled}),
    )
    if place == "listener":
        s.agent.subscribe(cancelled, events="turn_start")
    await s.prompt()

    s.check()
    assert s.count("agent_end") == 1
    if "tool" in place:
        assert [flag for _, flag in s.outcomes] == [True]
        assert "aborted" not in s.outcomes[0][0]
        assert s.last.text == "end"
    else:
        assert s.last.stop_reason == "error"
        assert "Cancel" in s.state.error_message


@asyncio_only
async def test_a_tool_that_raises_cancelled_error(anyio_backend):
    """A tool's own CancelledError is an error result (P2)."""

    async def cancelled(*_):
        raise asyncio.CancelledError("mine")

    s = Scripted(call(), "end", tools=[make_tool(cancelled)])
    await s.prompt()

    assert s.results[0].is_error
    assert s.last.text == "end"
    s.check()


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, SystemExit, GeneratorExit, StopAsyncIteration]
)
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_tool_that_raises_anything(error, kind):
    """Whatever a tool raises is its result; only the run's cancellation ends the run (P2)."""

    def raises(*_):
        raise error("from the tool")

    async def raises_async(*_):
        raise error("from the tool")

    s = Scripted(call(), "end", tools=[make_tool(raises if kind == "thread" else raises_async)])
    await s.prompt()

    assert s.outcomes == [("from the tool", True)]
    assert s.last.text == "end"
    s.check()


async def test_cancellation_inside_a_worker_of_the_tool():
    """A tool may use cancel scopes of its own (TL-13)."""

    async def scoped(*_):
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.cancel_scope.cancel()
        return "fine"

    s = Scripted(call(), "end", tools=[make_tool(scoped)])
    await s.prompt()

    assert s.outcomes == [("fine", False)]
    s.check()
