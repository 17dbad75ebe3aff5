"""Threads for plain tool functions: daemons, so that an abandoned one never keeps the program up.

The standard executor, and anyio's threads, are joined when the interpreter exits: a tool that
hangs would hang the program with it. These are not. A call whose caller gave up still occupies
its thread; it no longer counts against the limit.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["WorkerThreads"]

_Work = tuple[Callable[[], Any], "Future[Any]"]


class WorkerThreads:
    """Run calls in daemon threads, oldest first.

    Args:
        limit: How many calls run at the same time, abandoned ones not counted.
        idle_seconds: How long a thread waits for its next call before it ends.
    """

    def __init__(self, limit: int = 64, idle_seconds: float = 10.0) -> None:
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._begin()
        if hasattr(os, "register_at_fork"):
            # A forked process has the counts of its parent, but none of the threads.
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._queue: deque[_Work] = deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._busy = 0
        self._abandoned: set[Future[Any]] = set()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call in a thread; `abandon` gives it up."""
        future: Future[Any] = Future()
        with self._changed:
            self._queue.append((call, future))
            if self._idle >= len(self._queue):
                self._changed.notify()
            elif self._busy + self._idle < self._limit + len(self._abandoned):
                self._idle += 1
                threading.Thread(target=self._run, name="pi tool", daemon=True).start()
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Give a call up: one that waits is not started, one that runs is left behind."""
        with self._changed:
            if not future.cancel() and not future.done():
                self._abandoned.add(future)

    def _run(self) -> None:
        changed, queue = self._changed, self._queue
        while True:
            with changed:
                if not queue and not changed.wait_for(lambda: bool(queue), self._idle_seconds):
                    self._idle -= 1
                    return
                self._idle -= 1
                self._busy += 1
                call, future = queue.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future
                    future.set_exception(error)
            with changed:
                self._busy -= 1
                self._idle += 1
                self._abandoned.discard(future)
            del call, future
