from __future__ import annotations

import asyncio
import threading

import anyio
import pytest
from pi_notebook.server.model_loops import ModelLoops

from pi_notebook.server import model_loops

LIMIT = 30  # seconds for what must end soon on any machine


@pytest.fixture
def anyio_backend():
    """Jupyter Server runs on asyncio alone."""
    return "asyncio"


async def items(loops, user, make):
    return [item async for item in loops.stream(user, make)]


async def test_a_stream_that_blocks_holds_up_its_user_alone():
    """While one user's stream never gives its loop back, this loop and other users go on."""
    free = threading.Event()
    loops = ModelLoops()

    async def blocks():
        yield free.wait(LIMIT)

    async def answers():
        yield threading.current_thread().name

    with anyio.fail_after(LIMIT / 2):
        blocked = asyncio.create_task(items(loops, "ada", blocks))
        others = await items(loops, "bob", answers)
        free.set()

        assert others == ["pi models"]
        assert await blocked == [True]


async def test_items_come_in_order_and_failures_at_their_end():
    """What a stream raises is raised here, after its items."""

    async def fails():
        for number in range(100):
            yield number
        raise KeyError("lost")

    stream = ModelLoops().stream("ada", fails)
    with anyio.fail_after(LIMIT):
        assert [await anext(stream) for _ in range(100)] == list(range(100))
        with pytest.raises(KeyError, match="lost"):
            await anext(stream)


async def test_leaving_a_stream_ends_it():
    """Whoever stops reading cancels the stream on its own loop."""
    ended = threading.Event()

    async def waits():
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.set()

    stream = ModelLoops().stream("ada", waits)
    with anyio.fail_after(LIMIT):
        assert await anext(stream) == 1
        await stream.aclose()
        assert await anyio.to_thread.run_sync(ended.wait, LIMIT)


async def test_a_loop_is_kept_while_its_user_comes_back(monkeypatch):
    """Requests one after the other share a loop, and its connections; an idle one ends."""
    loops = ModelLoops()

    async def where():
        yield asyncio.get_running_loop(), threading.current_thread()

    with anyio.fail_after(LIMIT):
        [(first, _)] = await items(loops, "ada", where)
        monkeypatch.setattr(model_loops, "IDLE_SECONDS", 0.0)
        [(second, thread)] = await items(loops, "ada", where)
        assert first is second
        await anyio.to_thread.run_sync(thread.join, LIMIT)
        assert not thread.is_alive()
        [(third, _)] = await items(loops, "ada", where)
        assert third is not second
