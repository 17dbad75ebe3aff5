"""Run a coroutine on an event loop whose clock skips idle time.

Scenarios order things by delays. When everything waits, the clock jumps to the next deadline, so
a scenario takes only the time it computes, and its order cannot depend on the machine's load.
While something computes, the clock runs as usual: a scenario that is busy for ever meets its
time limit as well.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import selectors
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import anyio

__all__ = ["BackendName", "run_in_virtual_time"]

T = TypeVar("T")
BackendName = Literal["asyncio", "trio"]


class _SkippingSelector(selectors.DefaultSelector):
    def __init__(self, skip: Callable[[float], None]) -> None:
        super().__init__()
        self._skip = skip

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self._skip(timeout)
        return ready


class _SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipped = 0.0
        super().__init__(_SkippingSelector(self._skip))

    def _skip(self, seconds: float) -> None:
        self._skipped += seconds

    def time(self) -> float:
        return super().time() + self._skipped


def run_in_virtual_time(
    function: Callable[[], Awaitable[T]], backend: BackendName = "asyncio"
) -> T:
    """Run an async function to its end on a fresh event loop with a skipping clock.

    Args:
        function: Takes nothing; it must not wait for other threads or processes, whose time
            would be skipped.
        backend: The event loop: "asyncio", or "trio" if it is installed.

    Returns:
        What the function returned.

    Raises:
        RuntimeError: An event loop runs in this thread already.
    """
    if backend == "trio":
        from trio.testing import MockClock

        clock = MockClock(rate=1.0, autojump_threshold=0)
        with _first_come_first_served():
            return anyio.run(function, backend="trio", backend_options={"clock": clock})
    return anyio.run(function, backend_options={"loop_factory": _SkippingLoop})


class _NoChance(random.Random):
    # trio compares this with one half to decide on the direction.
    def random(self) -> float:
        return 0.0


@contextmanager
def _first_come_first_served() -> Generator[None]:
    """Have trio run tasks in the order they became runnable.

    It takes every other batch of them backwards, by chance, so that nobody relies on an order;
    but traces show in which order the tools of a batch were entered.
    """
    scheduler = importlib.import_module("trio._core._run").__dict__
    # Under hypothesis trio sorts the tasks by age and shuffles them instead.
    ours: dict[str, Any] = {"_r": _NoChance(), "_ALLOW_DETERMINISTIC_SCHEDULING": False}
    before = {name: scheduler[name] for name in ours}
    scheduler.update(ours)
    try:
        yield
    finally:
        scheduler.update(before)
