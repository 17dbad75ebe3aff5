"""Act on an abort on the run's own loop, whichever thread it came from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.backend import Backend

__all__ = ["AbortWatch"]

T = TypeVar("T")


class AbortWatch:
    """Call back on the loop once the signal is set off: one wake-up for all of a run's waits.

    Args:
        signal: The signal to watch; None for a run that cannot be aborted.
        backend: The loop.
        grace: Seconds that hooks, and tools that know of the abort, have to end by themselves.
    """

    __slots__ = ("_backend", "_callbacks", "_remove", "grace", "signal")

    def __init__(self, signal: AbortSignal | None, backend: Backend, grace: float) -> None:
        self.signal: AbortSignal | None = signal
        self.grace: float = grace
        self._backend = backend
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._remove: Callable[[], None] | None = None
        if signal is not None:
            self._remove = signal.add_listener(backend.soon(self._fire))

    @property
    def aborted(self) -> bool:
        """Whether the signal was set off."""
        return self.signal is not None and self.signal.aborted

    def add(self, callback: Callable[[], object]) -> int:
        """Have a callback called on abort; soon, if there was one. Returns what `discard` takes."""
        key = id(callback)
        self._callbacks[key] = callback
        if self.signal is not None and self.signal.aborted:
            self._backend.soon(self._fire)()
        return key

    def discard(self, key: int) -> None:
        """Take a callback off."""
        self._callbacks.pop(key, None)

    async def outlast(self, answer: Awaitable[T]) -> T | None:
        """Await a hook's answer; once aborted it has the grace, then None stands for it."""
        if self.signal is None:
            return await answer
        with self._backend.expiry() as expiry:
            key = self.add(partial(expiry.expire_in, self.grace))
            try:
                return await answer
            finally:
                self.discard(key)
        return None

    def close(self) -> None:
        """Take the watch off the signal, which may outlive the run (E17)."""
        if self._remove is not None:
            self._remove()
        self._callbacks.clear()

    def _fire(self) -> None:
        callbacks = list(self._callbacks.values())
        self._callbacks.clear()
        for callback in callbacks:
            callback()
