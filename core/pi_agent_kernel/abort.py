"""Abort: one flag per run that every part of it can see, from any thread.

`AbortController.abort()` may be called anywhere, a signal handler included. The flag is set at
once; whoever waits on an event loop is woken through that loop, never touched directly.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import anyio

__all__ = ["AbortController", "AbortSignal", "OperationAborted", "run_soon", "until_abort"]

T = TypeVar("T")


class OperationAborted(Exception):
    """Say that the run was aborted; `AbortSignal.raise_if_aborted` raises it."""

    def __init__(self, reason: str = "Operation aborted") -> None:
        super().__init__(reason)


class AbortSignal:
    """Be the reading side: what tools, hooks, listeners and stream functions get (AB-01)."""

    __slots__ = ("_listeners", "_lock", "_reason")

    def __init__(self) -> None:
        self._reason: str | None = None
        self._listeners: dict[int, tuple[Callable[[], object]]] = {}
        self._lock = threading.RLock()

    @property
    def aborted(self) -> bool:
        """Whether the run was aborted; once true, it stays true."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """Why, or None."""
        return self._reason

    def raise_if_aborted(self) -> None:
        """Raise `OperationAborted` if the run was aborted; for long plain functions."""
        if self._reason is not None:
            raise OperationAborted(self._reason)

    def add_listener(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` once on abort, in the thread that aborts; at once if already aborted.

        Args:
            callback: Takes nothing; what it returns or raises is ignored.

        Returns:
            A function that takes the callback off again; calling it twice is harmless.
        """
        with self._lock:
            if self._reason is None:
                entry = (callback,)  # its identity is the key: a callback may be added twice
                self._listeners[id(entry)] = entry
                return partial(self._remove, entry)
        _call(callback)
        return _nothing

    async def wait(self) -> None:
        """Wait until the run is aborted; return at once if it is."""
        import anyio

        if self.aborted:
            return
        woken = anyio.Event()
        remove = self.add_listener(run_soon(woken.set))
        try:
            await woken.wait()
        finally:
            remove()

    def cancel_on_abort(self, scope: anyio.CancelScope) -> Callable[[], None]:
        """Cancel a scope of the current event loop on abort.

        Returns:
            A function that ends the watch.
        """
        return self.add_listener(run_soon(scope.cancel))

    def _remove(self, entry: tuple[Callable[[], object]]) -> None:
        with self._lock:
            self._listeners.pop(id(entry), None)

    def _abort(self, reason: str) -> None:
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            entries = list(self._listeners.values())
            self._listeners.clear()
        for (callback,) in entries:
            _call(callback)


class AbortController:
    """Own one signal and set it off."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal: AbortSignal = AbortSignal()

    def abort(self, reason: str = "Operation aborted") -> None:
        """Abort: set the flag, then call the signal's listeners. Later calls do nothing.

        Args:
            reason: Kept as the signal's `reason`.
        """
        self.signal._abort(reason)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def run_soon(callback: Callable[[], object]) -> Callable[[], None]:
    """Bind a callback to the current event loop.

    Args:
        callback: Runs on the loop that is running now.

    Returns:
        A function, callable from any thread and from signal handlers, that has the loop run the
        callback and wakes it if it sleeps. Once the loop is gone it does nothing.
    """
    # Here and not at the top: the agent needs this module, a plain import of it needs no loop.
    from pi_agent_kernel.backend import current_backend

    return current_backend().soon(callback)


async def until_abort(signal: AbortSignal | None, operation: Awaitable[T]) -> T:
    """Await something, but no longer than until the abort.

    Args:
        signal: What ends the wait; None for nothing.
        operation: Is cancelled by the abort.

    Returns:
        What the operation returns.

    Raises:
        OperationAborted: The signal was set off first.
    """
    import anyio

    if signal is None:
        return await operation
    with anyio.CancelScope() as scope:
        stop_watching = signal.cancel_on_abort(scope)
        try:
            return await operation
        finally:
            stop_watching()
    raise OperationAborted


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001 - one listener must not keep the others from hearing it
        return


def _nothing() -> None:
    """Take nothing off."""
