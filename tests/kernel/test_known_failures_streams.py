"""Bugs of other agents, of their streams and requests, that ours must not have (part E)."""

from __future__ import annotations

import asyncio
import gc

import anyio
import pytest
from pi_agent_kernel import (
    AgentContext,
    AgentLoopConfig,
    ResponseBuilder,
    agent_loop,
    faux_assistant_message,
    faux_provider,
    faux_text,
    faux_thinking,
    to_json,
)
from pi_agent_kernel.streams import EventStream
from scripted import LIMIT, Scripted, call, make_tool, ok, problems_of, user


def builder():
    return ResponseBuilder(api="a", provider="p", model="m")


def test_e02_the_index_tells_the_call():
    """Fragments of one index are one call (E02)."""
    b = builder()
    b.toolcall_start("c", "t")
    for piece in ('{"a"', ": 1", "}"):
        b.toolcall_delta(piece, 0)
    b.toolcall_end(0)

    (finished,) = b.done().message.tool_calls
    assert finished.arguments == {"a": 1}


def test_e02_interleaved_calls_stay_apart():
    """Two calls whose fragments alternate keep their own arguments (E02, MD-04)."""
    b = builder()
    b.toolcall_start("c0", "t")
    b.toolcall_start("c1", "t")
    for index, piece in [(0, '{"a":'), (1, '{"b":'), (0, "1}"), (1, "2}")]:
        b.toolcall_delta(piece, index)
    b.toolcall_end(1)
    b.toolcall_end(0)

    assert [c.arguments for c in b.done().message.tool_calls] == [{"a": 1}, {"b": 2}]


async def test_e03_mixed_arguments_are_not_executed():
    """Two calls run together make no JSON object: an error result, nothing runs (E03)."""

    async def stream_fn(model, context, options):
        b = builder()
        yield b.start()
        if len(context.messages) == 2:
            yield b.toolcall_start("c", "t")
            yield b.toolcall_delta('{"a": 1}{"b": 2}', 0)
            yield b.toolcall_end(0)
        yield b.done()

    ran = []
    s = Scripted(stream_fn=stream_fn, tools=[make_tool(lambda *_: ran.append(1))])
    await s.prompt()

    assert ran == []
    assert s.results[0].is_error


async def test_e04_reasoning_comes_before_text():
    """The order of the blocks is the order in which they were opened (E04)."""
    s = Scripted(faux_assistant_message([faux_thinking("hm"), faux_text("x")]))
    await s.prompt()

    assert [block.type for block in s.last.content] == ["thinking", "text"]


async def test_e05_a_cut_stream_is_an_error():
    """Events start and text_delta, then the end: the partial is kept (E05)."""

    async def cut(model, context, options):
        b = builder()
        yield b.start()
        yield b.text_start()
        yield b.text_delta("half", 0)

    s = Scripted(stream_fn=cut)
    await s.prompt()

    assert (s.last.text, s.last.stop_reason) == ("half", "error")


def test_e06_text_of_a_start_is_a_delta():
    """A block is empty at its start and grows only by deltas (E06, MD-05)."""
    b = builder()

    assert b.text_start().partial.text == ""
    b.text_delta("from the start", 0)
    b.text_end(0)
    assert b.done().message.text == "from the start"


async def test_e07_a_stored_call_has_the_known_keys():
    """No scratch data of the parser is stored (E07)."""
    s = Scripted(call("t", "c", a=1), "end", tools=[make_tool(ok)])
    await s.prompt()
    (block,) = to_json(s.state.messages[2])["content"]

    assert block == {"type": "toolCall", "id": "c", "name": "t", "arguments": {"a": 1}}


async def test_e08_two_calls_of_one_id():
    """Both are executed and answered, in order (E08)."""
    ran = []

    def execute(tool_call_id, params, signal, on_update):
        ran.append(params["x"])
        return f"result {params['x']}"

    s = Scripted([call("t", "c1", x=1), call("t", "c1", x=2)], "end", tools=[make_tool(execute)])
    await s.prompt()

    assert sorted(ran) == [1, 2]
    assert [text for text, _ in s.outcomes] == ["result 1", "result 2"]
    s.check()


async def test_e08_two_calls_of_one_id_in_a_failed_run():
    """Also then each call has its own result (E08, DEVIATIONS 2)."""

    def broken(event, signal):
        raise ValueError("listener")

    s = Scripted([call("t", "c1", x=1), call("t", "c1", x=2)], "end", tools=[make_tool(ok)])
    off = s.agent.subscribe(lambda e, g: (off(), broken(e, g)), events="tool_execution_end")
    await s.prompt()

    assert len(s.results) == 2
    s.check()


async def test_e09_a_failed_reply_invents_no_results():
    """Its calls are not answered, and the next prompt works (E09)."""
    failed = faux_assistant_message(call("t", "c1"), stop_reason="error", error_message="no")
    s = Scripted(failed, "fine", tools=[make_tool(ok)])
    await s.prompt()
    await s.prompt()

    assert s.results == []
    assert problems_of(s.requests[1]) == []


@pytest.mark.timeout(20)
async def test_e14_a_long_buffer_is_drained():
    """100,000 buffered events are read in order (E14; test_linear counts the cost)."""
    stream = EventStream(lambda n: n < 0, abs)
    for n in range(100_000):
        stream.push(n)
    stream.push(-1)

    assert [n async for n in stream] == [*range(100_000), -1]


async def test_e18_abort_while_a_key_is_fetched():
    """A slow key callback and an abort: aborted, not an error (E18)."""
    started = anyio.Event()

    async def slow_key(provider):
        started.set()
        await anyio.sleep_forever()

    s = Scripted("never", get_api_key=slow_key, abort_grace=0.01)
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await started.wait()
            s.agent.abort()

    assert s.last.stop_reason == "aborted"
    assert s.requests == []
    s.check()


async def test_e18_abort_while_a_stream_is_opened():
    """An awaitable stream function is cut off, too (E18)."""
    started = anyio.Event()

    async def opening(model, context, options):
        started.set()
        await anyio.sleep_forever()

    s = Scripted(stream_fn=opening, abort_grace=0.01)
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await started.wait()
            s.agent.abort()

    assert s.last.stop_reason == "aborted"
    s.check()


async def test_e19_empty_pieces_are_fine():
    """Deltas without text change nothing (E19)."""

    async def stream_fn(model, context, options):
        b = builder()
        yield b.start()
        yield b.text_start()
        for piece in ("", "a", "", "b", ""):
            yield b.text_delta(piece, 0)
        yield b.text_end(0)
        yield b.done()

    s = Scripted(stream_fn=stream_fn)
    await s.prompt()

    assert s.last.text == "ab"


@pytest.mark.parametrize("text", ["I will look.", " ", ""])
async def test_e23_text_before_a_call_does_not_end_the_run(text):
    """The presence of calls decides (E23)."""
    s = Scripted([faux_text(text), call()], "end", tools=[make_tool(ok)])
    await s.prompt()

    assert s.outcomes == [("ok", False)]
    assert s.last.text == "end"


async def test_e24_one_message_per_reply():
    """A streamed reply is added once (E24)."""
    s = Scripted("a long answer in many pieces", faux_options={"token_size": 1})
    await s.prompt()

    assert s.roles == ["user", "assistant"]


async def test_e25_a_tool_that_fails_twice():
    """Call and result pairs stay intact (E25)."""
    tries = []

    def execute(*_):
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("try again")
        return "at last"

    s = Scripted(*[call("t", f"c{i}") for i in range(3)], "end", tools=[make_tool(execute)])
    await s.prompt()

    assert [text for text, _ in s.outcomes] == ["try again", "try again", "at last"]
    assert [problems_of(request) for request in s.requests] == [[]] * 4
    s.check()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_e27_leaving_an_iteration_early_is_clean(anyio_backend, recwarn):
    """Break after the third event, close, collect: no warning, no task left (E27)."""
    before = asyncio.all_tasks()
    faux = faux_provider()
    faux.set_responses([faux_assistant_message(call()), faux_assistant_message("end")])
    config = AgentLoopConfig(model=faux.model())
    stream = agent_loop([user()], AgentContext(tools=[make_tool(ok)]), config, None, faux.stream_fn)
    events = aiter(stream)
    for _ in range(3):
        await anext(events)
    del events
    gc.collect()
    with anyio.fail_after(LIMIT):
        assert (await stream.result())[-1].text == "end"
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before
    assert list(recwarn) == []
