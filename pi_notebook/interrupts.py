"""SIGINT while a run is in the foreground, and the plain tool functions it may cut off.

ipykernel's own handler does not wake a waiting loop (ipython/ipykernel#881), so a run brings its
own. KeyboardInterrupt is raised only while a plain tool function is on the stack: out of a task it
would tear the loop down.

A Python handler runs between bytecodes. A signal that comes just before the main thread blocks in
`select`, a lock or `sleep` is not seen until that ends, and an exception that a handler raises in a
destructor is dropped. So a second thread hears of each signal by `signal.set_wakeup_fd` and sends
it again until it has had its effect.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from pi_agent_kernel.abort import OperationAborted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Interruptible", "UserCode", "interrupts"]

#: Seconds in which the main thread handles a signal unless it missed it.
SEE_WITHIN = 0.02
#: Seconds until a function that still runs is interrupted again.
INSIST_AFTER = 0.25

#: Held while a signal is sent again and while what it is meant for ends, so that it hits nothing
#: else. The handler never takes it.
_edge = threading.Lock()


class UserCode:
    """Call plain tool functions so that an interrupt cuts them off, and nothing else."""

    def __init__(self) -> None:
        self.running = False
        self.calls = 0  # rises with each beginning and each end

    def call(self, function: Callable[[], Any], *, forbidden: Callable[[], bool]) -> Any:
        """Call a function.

        Args:
            function: The function.
            forbidden: Whether an interrupt has come already.

        Raises:
            OperationAborted: It was interrupted, before or while it ran.
        """
        try:
            return self._call(function, forbidden)
        except KeyboardInterrupt:
            raise OperationAborted from None

    def _call(self, function: Callable[[], Any], forbidden: Callable[[], bool]) -> Any:
        # The flag first, then the question, then the call: an interrupt finds no gap.
        outer, self.running = self.running, True
        self.calls += 1
        try:
            if forbidden():
                raise OperationAborted
            return function()
        finally:
            with _edge:
                self.calls += 1
                self.running = outer


class Interruptible(Protocol):
    """**Protocol:** what an interrupt can end."""

    @property
    def user_code(self) -> UserCode:
        """The plain tool functions that run for it."""
        ...

    @property
    def interrupted(self) -> bool:
        """Whether `interrupt` was called."""
        ...

    def interrupt(self) -> None:
        """Ask it to end; called from the signal handler."""
        ...


class _Watcher(threading.Thread):
    """Hear of signals beside the main thread, and see to it that they have an effect."""

    def __init__(self) -> None:
        super().__init__(name="pi-notebook interrupt", daemon=True)
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)  # noqa: FBT003 - the standard library has it so
        self._before = -1
        self._over = False
        self.insisting = False

    def begin(self) -> None:
        self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self.start()

    def end(self) -> None:
        with _edge:
            self._over = True
        signal.set_wakeup_fd(self._before)
        self._writer.close()

    def run(self) -> None:
        with self._reader:
            while signals := self._reader.recv(64):
                if self._before != -1:
                    with contextlib.suppress(OSError):
                        os.write(self._before, signals)
                if signal.SIGINT in signals:
                    self._see_through()

    def _see_through(self) -> None:
        time.sleep(SEE_WITHIN)
        while self._send_again(lambda run: not run.interrupted):
            time.sleep(SEE_WITHIN)
        calls = {id(run): run.user_code.calls for run in list(_active)}

        def still_in(run: Interruptible) -> bool:
            return run.user_code.running and run.user_code.calls == calls.get(id(run))

        self.insisting = True
        while not self._over and any(map(still_in, list(_active))):
            time.sleep(INSIST_AFTER)
            self._send_again(lambda run: still_in(run) and not _cleans_up())
        self.insisting = False

    def _send_again(self, wanted: Callable[[Interruptible], bool]) -> bool:
        """Interrupt the main thread once more, if that is still wanted."""
        main = threading.main_thread().ident
        with _edge:
            if self._over or main is None or not hasattr(signal, "pthread_kill"):
                return False
            if not any(map(wanted, _active)):
                return False
            signal.pthread_kill(main, signal.SIGINT)
            return True


def _cleans_up() -> bool:
    """Tell whether the main thread handles a KeyboardInterrupt: in a `finally` or an `except`."""
    exceptions = sys._current_exceptions()  # noqa: SLF001 - documented, for debuggers
    active: Any = exceptions.get(threading.main_thread().ident or 0)
    error = active[1] if isinstance(active, tuple) else active  # the whole triple before 3.12
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


_active: list[Interruptible] = []
_handler_before: Any = None
_watcher: _Watcher | None = None


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
    global _handler_before, _watcher  # noqa: PLW0603 - there is one signal handler in a process
    installed = signal.getsignal(signal.SIGINT)
    if installed is not _on_sigint:
        # The kernel puts its own handler back after each cell: runs left over from an earlier
        # cell are in the background now, and this cell's interrupt is not theirs.
        _active.clear()
        _handler_before = installed
        signal.signal(signal.SIGINT, _on_sigint)
    _active.append(run)
    if _watcher is None:
        _watcher = _Watcher()
        _watcher.begin()


def _leave(run: Interruptible) -> None:
    global _watcher  # noqa: PLW0603 - as above
    with _edge:
        if run in _active:
            _active.remove(run)
    if _active:
        return
    if signal.getsignal(signal.SIGINT) is _on_sigint:
        # None: it was not installed from Python, so it cannot be put back.
        signal.signal(signal.SIGINT, _handler_before or signal.SIG_DFL)
    if _watcher is not None:
        _watcher.end()
        _watcher = None


def _on_sigint(_number: int, _frame: FrameType | None) -> None:
    if _watcher is None or not _watcher.insisting:
        for run in reversed(_active):
            run.interrupt()
    if any(run.user_code.running for run in _active):
        raise KeyboardInterrupt
