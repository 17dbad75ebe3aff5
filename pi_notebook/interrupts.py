"""SIGINT while a run is in the foreground, and the plain tool functions it may cut off.

ipykernel's own handler does not wake a waiting loop (ipython/ipykernel#881), so a run brings its
own. KeyboardInterrupt is raised only while a plain tool function is on the stack: out of a task it
would tear the loop down. Python drops an exception that a signal raises inside a destructor or a
callback of the collector, so a function that runs on is interrupted again, unless it is just
cleaning up after the first time.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from pi_agent_kernel.abort import OperationAborted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Interruptible", "UserCode", "interrupts"]

#: Seconds until a function that still runs is interrupted again.
INSIST_AFTER = 0.25


class Interruptible(Protocol):
    """**Protocol:** what an interrupt can end."""

    @property
    def user_code(self) -> UserCode:
        """The plain tool functions that run for it."""
        ...

    def interrupt(self) -> None:
        """Ask it to end; called from the signal handler."""
        ...


class UserCode:
    """Call plain tool functions so that an interrupt cuts them off, and nothing else."""

    def __init__(self) -> None:
        self.running = False
        self.insisting = False
        self._calls = 0
        # Its `put` may be called while a `put` of the same thread is interrupted.
        self._cut_off: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._edge = threading.Lock()
        self._watcher: threading.Thread | None = None

    def call(self, function: Callable[[], Any], *, forbidden: Callable[[], bool]) -> Any:
        """Call a function.

        Args:
            function: The function.
            forbidden: Whether an interrupt has come already.

        Raises:
            OperationAborted: It was interrupted, before or while it ran.
        """
        self._watch()
        try:
            return self._call(function, forbidden)
        except KeyboardInterrupt:
            raise OperationAborted from None

    def insist(self) -> None:
        """See to it that the running function ends; called from the signal handler."""
        if self.running and not self.insisting:
            self._cut_off.put(self._calls)
        self.insisting = False

    def close(self) -> None:
        """End the watch: no function will be called any more."""
        self._cut_off.put(None)

    def _call(self, function: Callable[[], Any], forbidden: Callable[[], bool]) -> Any:
        # The flag first, then the question, then the call: an interrupt finds no gap.
        outer, self.running = self.running, True
        self._calls += 1
        try:
            if forbidden():
                raise OperationAborted
            return function()
        finally:
            with self._edge:
                self._calls += 1
                self.running = outer

    def _watch(self) -> None:
        if self._watcher is None and threading.current_thread() is threading.main_thread():
            self._watcher = threading.Thread(
                target=self._interrupt_again, name="pi-notebook interrupt", daemon=True
            )
            self._watcher.start()

    def _interrupt_again(self) -> None:
        main = threading.main_thread().ident
        if main is None or not hasattr(signal, "pthread_kill"):
            return
        while (call := self._cut_off.get()) is not None:
            while self._calls == call:
                time.sleep(INSIST_AFTER)
                # Under the lock the function cannot end, so the signal finds our handler.
                with self._edge:
                    if self._calls == call and not _cleans_up(main):
                        self.insisting = True
                        signal.pthread_kill(main, signal.SIGINT)


def _cleans_up(thread: int) -> bool:
    """Tell whether a thread handles a KeyboardInterrupt: it is in a `finally` or an `except`."""
    active: Any = sys._current_exceptions().get(thread)  # noqa: SLF001 - documented, for debuggers
    error = active[1] if isinstance(active, tuple) else active  # the whole triple before 3.12
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


_active: list[Interruptible] = []
_handler_before: Any = None


@contextlib.contextmanager
def interrupts(run: Interruptible) -> Iterator[None]:
    """Let SIGINT reach a run, and the runs it is nested in; only the main thread ever gets one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _enter(run)
    try:
        yield
    finally:
        _leave(run)


def _enter(run: Interruptible) -> None:
    global _handler_before  # noqa: PLW0603 - there is one signal handler in a process
    installed = signal.getsignal(signal.SIGINT)
    if installed is not _on_sigint:
        # The kernel puts its own handler back after each cell: runs left over from an earlier
        # cell are in the background now, and this cell's interrupt is not theirs.
        _active.clear()
        _handler_before = installed
        signal.signal(signal.SIGINT, _on_sigint)
    _active.append(run)


def _leave(run: Interruptible) -> None:
    if run not in _active:
        return
    _active.remove(run)
    if not _active and signal.getsignal(signal.SIGINT) is _on_sigint:
        # None: it was not installed from Python, so it cannot be put back.
        signal.signal(signal.SIGINT, _handler_before or signal.SIG_DFL)


def _on_sigint(_number: int, _frame: FrameType | None) -> None:
    again = any(run.user_code.insisting for run in _active)
    for run in reversed(_active):
        if not again:
            run.interrupt()
        run.user_code.insist()
    if any(run.user_code.running for run in _active):
        raise KeyboardInterrupt
