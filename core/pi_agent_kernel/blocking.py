"""Run a coroutine from plain code, whether or not a loop runs in this thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pi_agent_kernel.backend import current_backend

__all__ = ["run_blocking"]


def run_blocking(call: Callable[[], Coroutine[Any, Any, None]], abort: Callable[[], None]) -> None:
    """Run to the end and return; on Ctrl-C abort, wait for the end, and re-raise.

    With a loop running in this thread, the coroutine gets a loop of its own in another thread;
    this thread, and its loop, wait.

    Args:
        call: Makes the coroutine.
        abort: Makes it end early; callable from any thread.
    """
    try:
        current_backend()
    except RuntimeError:
        # Its runner turns Ctrl-C into a cancellation, which acts as an abort.
        asyncio.run(call())
        return
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal:
        future = portal.start_task_soon(call)
        try:
            future.result()
        except KeyboardInterrupt:
            abort()
            raise
