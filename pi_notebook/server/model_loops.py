"""An event loop of its own for each user's requests, beside that of the Jupyter Server.

A provider's SDK goes through a long conversation for seconds without ever giving the loop back.
Here that holds up its own user and nobody else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TypeVar

__all__ = ["ModelLoops"]

T = TypeVar("T")

#: How long a loop, and with it its open connections, is kept for a user who asks nothing.
IDLE_SECONDS = 60.0


class _Loop:
    """A loop in a daemon thread: it never keeps the server from ending."""

    def __init__(self) -> None:
        self.streams = 0
        self.ending: asyncio.TimerHandle | None = None
        self._runner = asyncio.Runner()
        self.loop = self._runner.get_loop()
        self._stopped = asyncio.Event()
        threading.Thread(target=self._run, name="pi models", daemon=True).start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stopped.set)

    def _run(self) -> None:
        with self._runner as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stopped.wait()


class ModelLoops:
    """Run streams on the loops of their users."""

    def __init__(self) -> None:
        self._loops: dict[str, _Loop] = {}

    async def stream(
        self, user: str, make: Callable[[], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        """Run a stream on a user's loop and give its items here.

        Args:
            user: Whose loop.
            make: Called there; makes the stream.

        Yields:
            The items, as they come.

        Raises:
            Exception: What the stream raised.

        Cancellation: Cancels the stream too.
        """
        here = asyncio.get_running_loop()
        arrived: asyncio.Queue[T | None] = asyncio.Queue()

        def give(item: T | None) -> None:
            with suppress(RuntimeError):  # this loop has ended, nobody waits for the item
                here.call_soon_threadsafe(arrived.put_nowait, item)

        async def pump() -> None:
            try:
                async with aclosing(make()) as items:
                    async for item in items:
                        give(item)
            finally:
                give(None)

        theirs = self._begin(user)
        running = asyncio.run_coroutine_threadsafe(pump(), theirs.loop)
        try:
            while (item := await arrived.get()) is not None:
                yield item
            await asyncio.wrap_future(running)
        finally:
            running.cancel()
            self._end(user, theirs)

    def _begin(self, user: str) -> _Loop:
        loop = self._loops.get(user)
        if loop is None:
            loop = self._loops[user] = _Loop()
        if loop.ending is not None:
            loop.ending.cancel()
            loop.ending = None
        loop.streams += 1
        return loop

    def _end(self, user: str, loop: _Loop) -> None:
        loop.streams -= 1
        if loop.streams == 0:
            here = asyncio.get_running_loop()
            loop.ending = here.call_later(IDLE_SECONDS, self._drop, user, loop)

    def _drop(self, user: str, loop: _Loop) -> None:
        del self._loops[user]
        loop.stop()
