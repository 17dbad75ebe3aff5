from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import ContextVar

import anyio
import pytest
from pi_agent_kernel import AbortController, ToolContext, run_tool_call, tool
from scripted import LIMIT, Scripted, call, make_tool, ok

variable = ContextVar("variable", default="unset")


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2, "pool") as made:
        yield made


def where(*_):
    return threading.current_thread().name


async def outcome_of(made, **options):
    with anyio.fail_after(LIMIT):
        return await run_tool_call(call(made.name), tools=[made], **options)


async def text_of(made, **options):
    return (await outcome_of(made, **options)).result.content[0].text


# ------------------------------------------------------------------------ where it runs


async def test_a_plain_function_runs_in_a_worker_thread():
    """By default it does not block the loop (P3)."""
    here = threading.current_thread().name

    assert await text_of(make_tool(where)) != here
    assert await text_of(make_tool(where, thread=True)) != here


async def test_thread_false_runs_on_the_runs_own_thread():
    """`thread=False` is the loop's thread (api.md)."""
    here = threading.current_thread().name

    assert await text_of(make_tool(where, thread=False)) == here


async def test_run_sync_decides_for_plain_functions():
    """The host's `run_sync` runs them, its answer may be awaited; `thread=True` overrides."""
    here = threading.current_thread().name
    ran = []

    def run_sync(run):
        ran.append("plain")
        return run()

    async def run_sync_async(run):
        ran.append("async")
        return run()

    assert await text_of(make_tool(where), run_sync=run_sync) == here
    assert await text_of(make_tool(where), run_sync=run_sync_async) == here
    assert await text_of(make_tool(where, thread=False), run_sync=run_sync) == here
    assert ran == ["plain", "async", "plain"]
    assert await text_of(make_tool(where, thread=True), run_sync=run_sync) != here
    assert await text_of(make_tool(where, timeout=5), run_sync=run_sync) != here
    assert await text_of(make_tool(ok), run_sync=run_sync) == "ok"
    assert len(ran) == 3


async def test_run_sync_of_the_agent():
    """The agent hands `run_sync` to every plain tool (api.md)."""
    ran = []

    def run_sync(run):
        ran.append(1)
        return run()

    s = Scripted(call(), "end", tools=[make_tool(lambda *_: "x")], run_sync=run_sync)
    await s.prompt()

    assert ran == [1]


async def test_a_run_sync_that_raises_fails_the_call():
    """The host's runner is part of the call (TL-13)."""

    def run_sync(run):
        raise RuntimeError("no thread for you")

    assert await text_of(make_tool(where), run_sync=run_sync) == "no thread for you"


async def test_a_plain_function_may_return_an_awaitable():
    """Its value is awaited on the loop (TL-02)."""

    async def later():
        return "later"

    assert await text_of(make_tool(lambda *_: later())) == "later"
    assert await text_of(make_tool(lambda *_: later(), thread=False)) == "later"


async def test_a_thread_pool(pool):
    """`executor=` runs the function there (api.md)."""
    assert (await text_of(make_tool(where, executor=pool))).startswith("pool")


async def test_context_reaches_every_thread(pool):
    """Context variables and `ctx.agent` are those of the run, wherever the tool runs."""
    variable.set("set")
    seen = []

    def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append((ctx.agent, variable.get()))
        return "x"

    tools = [
        tool(look, name="a"),
        tool(look, name="b", executor=pool),
        tool(look, name="c", thread=False),
    ]
    s = Scripted([call(name, name) for name in "abc"], "end", tools=tools)
    await s.prompt()

    assert s.outcomes == [("x", False)] * 3
    assert seen == [(s.agent, "set")] * 3


async def test_a_pool_that_is_closed_is_an_error(pool):
    """What the executor raises is the result (TL-13)."""
    closed = ThreadPoolExecutor(1)
    closed.shutdown()

    assert "after shutdown" in await text_of(make_tool(where, executor=closed))


def square(tool_call_id, params, signal, on_update):
    on_update("ignored")
    return params["n"] ** 2


@tool
def cube(n: int) -> int:
    """Cube."""
    return n**3


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_process_pool():
    """A function that can be sent runs in another process; a ToolContext cannot be sent."""
    import multiprocessing

    def needs(ctx: ToolContext) -> str:
        """Needs."""
        return ctx.tool_call_id

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        squared = make_tool(square, "square", executor=processes)
        outcome = await run_tool_call(call("square", n=7), tools=[squared])
        assert (outcome.result.content[0].text, outcome.is_error) == ("49", False)
        refused = tool(needs, executor=processes)
        assert "ToolContext" in await text_of(refused)


@pytest.mark.parametrize("kind", ["thread", "pool"])
async def test_an_exception_in_a_thread_is_the_result(kind, pool):
    """It comes over with its text (TL-13)."""

    def fails(*_):
        raise ValueError("from the thread")

    options = {"executor": pool} if kind == "pool" else {}

    assert await text_of(make_tool(fails, **options)) == "from the thread"


async def test_parallel_plain_tools_run_at_the_same_time():
    """Two functions that wait for each other both end (P3)."""
    both = threading.Barrier(2, timeout=5)

    def meet(*_):
        both.wait()
        return "met"

    s = Scripted([call("t", "a"), call("t", "b")], "end", tools=[make_tool(meet)])
    await s.prompt()

    assert s.outcomes == [("met", False)] * 2


async def test_progress_from_a_thread():
    """Reports from any thread become events, in order, before the end (TL-17)."""

    def execute(tool_call_id, params, signal, on_update):
        for n in range(5):
            on_update(f"step {n}")
        other = threading.Thread(target=on_update, args=["other"])
        other.start()
        other.join()
        return "done"

    s = Scripted(call(), "end", tools=[make_tool(execute)])
    await s.prompt()

    texts = [e.partial_result.content[0].text for e in s.of("tool_execution_update")]
    assert texts == [*(f"step {n}" for n in range(5)), "other"]
    assert s.core.index("tool_execution_end") > s.core.index("tool_execution_update")


async def test_a_late_report_is_ignored():
    """After the tool has settled nothing more is announced (B03)."""
    kept = []

    def execute(tool_call_id, params, signal, on_update):
        kept.append(on_update)
        return "done"

    s = Scripted(call(), "end", tools=[make_tool(execute)])
    s.agent.subscribe(lambda e, _: kept[0]("late"), events=["turn_end"])
    await s.prompt()
    await anyio.to_thread.run_sync(kept[0], "later")

    assert s.count("tool_execution_update") == 0


def test_loops_that_are_gone_are_forgotten():
    """Running plain tools on many loops keeps none of them alive."""
    import weakref

    loops = []

    async def once():
        import asyncio

        loops.append(weakref.ref(asyncio.get_running_loop()))
        await outcome_of(make_tool(where))

    for _ in range(5):
        anyio.run(once)
    gc.collect()

    assert sum(one() is not None for one in loops) <= 1


# ------------------------------------------------------------------------ abort, timeout


async def test_a_deaf_async_tool_is_cancelled_at_once():
    """Without signal or context it gets no grace (DEVIATIONS 14)."""

    @tool
    async def deaf() -> str:
        """Hang."""
        s.agent.abort()
        await anyio.sleep_forever()

    s = Scripted(call("deaf"), tools=[deaf], abort_grace=30)
    await s.prompt()

    assert s.outcomes == [("Operation aborted", True)]
    s.check()


async def test_an_async_tool_that_takes_the_signal_has_the_grace():
    """Within `abort_grace` its own result counts, after it the call is cut off (DEVIATIONS 14)."""

    @tool
    async def hears(ctx: ToolContext) -> str:
        """Hear."""
        s.agent.abort()
        await ctx.signal.wait()
        await anyio.lowlevel.checkpoint()
        return "own words"

    @tool
    async def ignores(ctx: ToolContext) -> str:
        """Ignore."""
        s.agent.abort()
        await anyio.sleep_forever()

    s = Scripted(call("hears"), tools=[hears])
    await s.prompt()
    assert s.outcomes == [("own words", False)]
    s = Scripted(call("ignores"), tools=[ignores], abort_grace=0.01)
    await s.prompt()
    assert s.outcomes == [("Operation aborted", True)]


@pytest.mark.parametrize("kind", ["thread", "pool"])
async def test_a_blocking_tool_is_abandoned(kind, pool):
    """The run goes on without it; its late result and reports are discarded (DEVIATIONS 14)."""
    gate, ended = threading.Event(), threading.Event()

    def blocks(tool_call_id, params, signal, on_update):
        s.agent.abort()
        gate.wait(5)
        on_update("too late")
        ended.set()
        return "too late"

    options = {"executor": pool} if kind == "pool" else {}
    s = Scripted(call(), "end", tools=[make_tool(blocks, **options)], abort_grace=0.01)
    await s.prompt()
    before = len(s.events)
    gate.set()
    assert await anyio.to_thread.run_sync(ended.wait, 5)
    await anyio.lowlevel.checkpoint()

    assert s.outcomes == [("Operation aborted", True)]
    assert len(s.events) == before
    s.check()


async def test_an_abandoned_tool_stays_silent_while_the_run_closes():
    """Once its end was announced, no report of it is (B03)."""
    started, gate, reported = threading.Event(), threading.Event(), threading.Event()

    def blocks(tool_call_id, params, signal, on_update):
        started.set()
        gate.wait(5)
        on_update("too late")
        reported.set()

    async def quick(tool_call_id, params, signal, on_update):
        await anyio.to_thread.run_sync(started.wait, 5)
        return "ok"

    async def listener(event, signal):
        if event.type == "tool_execution_end" and event.tool_call_id == "b":
            raise ValueError("listener")
        if event.type == "turn_end":
            gate.set()
            await anyio.to_thread.run_sync(reported.wait, 5)
            await anyio.lowlevel.checkpoint()

    s = Scripted(
        [call("blocks", "a"), call("t", "b")], tools=[make_tool(blocks, "blocks"), make_tool(quick)]
    )
    s.agent.subscribe(listener)
    await s.prompt()

    assert reported.is_set()
    assert s.count("tool_execution_update") == 0
    s.check()


@pytest.mark.parametrize("kind", ["async", "thread", "pool"])
async def test_a_timeout_is_an_error_result(kind, pool):
    """Its text names the tool and the time (DEVIATIONS 14)."""
    gate = threading.Event()

    async def hangs(*_):
        await anyio.sleep_forever()

    function = hangs if kind == "async" else lambda *_: gate.wait(5)
    options = {"executor": pool} if kind == "pool" else {}
    s = Scripted(call(), "end", tools=[make_tool(function, timeout=0.05, **options)])
    await s.prompt()
    gate.set()

    assert s.outcomes == [("Tool t timed out after 0.05 s", True)]
    assert s.last.text == "end"
    assert s.results[0].duration_ms is None
    s.check()


async def test_a_timeout_that_is_not_reached():
    """It costs nothing (DEVIATIONS 14)."""
    assert await text_of(make_tool(ok, timeout=5)) == "ok"


async def test_an_abort_comes_before_a_long_timeout():
    """A tool with `timeout=` gets the grace of any other after an abort (DEVIATIONS 14)."""
    controller = AbortController()

    async def hangs(*_):
        controller.abort()
        await anyio.sleep_forever()

    began = time.monotonic()
    outcome = await outcome_of(
        make_tool(hangs, timeout=8), signal=controller.signal, abort_grace=0.01
    )

    assert outcome.result.content[0].text == "Operation aborted"
    assert time.monotonic() - began < 4


async def test_a_timeout_comes_before_a_long_grace():
    """An abort does not give a tool more time than its timeout (DEVIATIONS 14)."""
    controller = AbortController()

    async def hangs(*_):
        controller.abort()
        await anyio.sleep_forever()

    with anyio.fail_after(4):
        outcome = await run_tool_call(
            call(),
            tools=[make_tool(hangs, timeout=0.05)],
            signal=controller.signal,
            abort_grace=60,
        )

    assert outcome.is_error


async def test_a_tool_that_swallows_its_cancellation(caplog):
    """The run does not wait for it for ever; its call is answered (DEVIATIONS 14)."""
    release = anyio.Event()

    @tool
    async def deaf() -> str:
        """Be deaf."""
        s.agent.abort()
        with anyio.CancelScope(shield=True):
            try:
                await release.wait()
            except BaseException:  # noqa: BLE001 - what such tools do
                await release.wait()
        return "late"

    s = Scripted(call("deaf"), tools=[deaf], abort_grace=0.01)

    def let_go(event, signal):
        release.set()  # trio cannot leave a task behind

    s.agent.subscribe(let_go, events="tool_execution_end")
    await s.prompt()

    assert s.outcomes == [("Operation aborted", True)]
    assert "ignores its cancellation" in caplog.text
    s.check()


@pytest.mark.timeout(60)
def test_an_abandoned_tool_does_not_keep_the_process(tmp_path):
    """A script ends although a blocking tool was left behind (DEVIATIONS 14)."""
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        "import threading, time\n"
        "from pi_agent_kernel import *\n"
        "def blocks(*_):\n"
        "    agent.abort()\n"
        "    time.sleep(30)\n"
        "faux = faux_provider()\n"
        "faux.set_responses([faux_assistant_message(faux_tool_call('t', {}))])\n"
        "tools = [AgentTool(name='t', execute=blocks)]\n"
        "agent = Agent(stream_fn=faux.stream_fn, tools=tools, abort_grace=0.01)\n"
        "agent.prompt_sync('go')\n"
        "print(agent.state.messages[-1].stop_reason)\n"
    )
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=20, check=False
    )

    assert ended.stdout.strip() == "aborted"


async def test_hung_threads_do_not_use_up_the_workers():
    """A tool still runs after many were abandoned (DEVIATIONS 14)."""
    gate = threading.Event()

    def blocks(*_):
        gate.wait(10)

    try:
        for _ in range(65):  # one more than there are workers
            await outcome_of(make_tool(blocks, timeout=0.005))
        assert await text_of(make_tool(where, timeout=3)) != "Tool t timed out after 3 s"
    finally:
        gate.set()


async def test_more_calls_than_workers():
    """A batch larger than the number of worker threads is carried out whole (P3)."""
    calls = [call("t", f"c{n}") for n in range(150)]
    s = Scripted(calls, "end", tools=[make_tool(lambda i, *_: i)])
    await s.prompt()

    assert [text for text, _ in s.outcomes] == [one.id for one in calls]
