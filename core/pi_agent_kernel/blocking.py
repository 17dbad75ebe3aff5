"""Run a coroutine from plain code, whether or not a loop runs in this thread."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from pi_agent_kernel.backend import current_backend

__all__ = ["run_blocking"]


def run_blocking(call: Callable[[], Coroutine[Any, Any, None]], abort: Callable[[], None]) -> None:
    """Run to the end and return; on Ctrl-C abort, wait for the end, and raise KeyboardInterrupt.

    With a loop running in this thread, the coroutine gets a loop of its own in another thread;
    this thread, and its loop, wait.

    Args:
        call: Makes the coroutine.
        abort: Makes it end early; callable from any thread and from a signal handler.
    """
    try:
        current_backend()
    except RuntimeError:
        # Its runner turns Ctrl-C into a cancellation, which acts as an abort.
        asyncio.run(call())
        return
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal, _interrupts(abort):
        portal.start_task_soon(call).result()


@contextlib.contextmanager
def _interrupts(abort: Callable[[], None]) -> Generator[None]:
    """Abort on Ctrl-C: the handler of the waiting loop would only cancel a task that waits too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def on_interrupt(_number: int, _frame: object) -> None:
        nonlocal came
        came = True
        abort()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
