"""Streams between a provider and the loop.

A stream function may return any async iterable of stream events; an async generator is the
simplest and is cancelled at once on abort. `AssistantMessageEventStream` is for a producer that
runs elsewhere (a task, a thread, a callback API): it is a queue that always settles.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from pi_agent_kernel.abort import run_soon
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.events import AssistantMessageEvent, StreamDone, StreamError
from pi_agent_kernel.messages import AssistantMessage, now_ms

__all__ = ["AssistantMessageEventStream", "EventStream"]

E = TypeVar("E")
R = TypeVar("R")

_UNSET: Any = object()


class EventStream(Generic[E, R]):
    """Carry events from any thread to one or more consumers, in order and in linear time.

    Args:
        is_complete: Whether an event is the last one.
        extract_result: The result that the last event carries.

    Every wait ends: `end()` without a result makes `result()` raise, `fail()` raises its error
    to the consumer and from `result()` (MD-09, D11, D12).
    """

    def __init__(self, is_complete: Callable[[E], bool], extract_result: Callable[[E], R]) -> None:
        self._is_complete = is_complete
        self._extract_result = extract_result
        self._queue: deque[E] = deque()
        self._wakers: list[Callable[[], None]] = []
        self._ended = False
        self._result: R = _UNSET
        self._error: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more can be pushed."""
        return self._ended

    @property
    def settled(self) -> bool:
        """Whether `result()` has something to return or raise beside "no result"."""
        return self._error is not None or self._result is not _UNSET

    def push(self, event: E) -> None:
        """Add an event; ignored after the last one (MD-03). Callable from any thread."""
        if self._ended:
            return
        if self._is_complete(event):
            self._ended = True
            self._result = self._extract_result(event)
        self._queue.append(event)
        self._wake()

    def end(self, result: R | None = None) -> None:
        """End the stream; the result counts unless the last event has already given one."""
        self._ended = True
        if result is not None and self._result is _UNSET:
            self._result = result
        self._wake()

    def fail(self, error: BaseException) -> None:
        """End the stream by an error that the consumer and `result()` raise (LL-06)."""
        if not self._ended:
            self._ended = True
            self._error = error
        self._wake()

    async def result(self) -> R:
        """Wait for the end and return the result.

        Raises:
            ModelError: The stream ended without a result.
        """
        while not self._ended:
            # Events may be queued that nobody reads; only the end counts here.
            await self._wait(for_end=True)
        if self._error is not None:
            raise self._error
        if self._result is _UNSET:
            raise ModelError("The stream ended without a final event or a result.")
        return self._result

    def __aiter__(self) -> AsyncIterator[E]:
        # Not a generator: a reader that stops early leaves nothing to be closed.
        return _Reader(self)

    async def next_event(self) -> E:
        """Wait for the next event; raises `StopAsyncIteration` after the last one."""
        while not self._queue:
            if self._ended:
                raise self._error or StopAsyncIteration
            await self._wait()
        return self._queue.popleft()

    async def _wait(self, *, for_end: bool = False) -> None:
        import anyio

        woken = anyio.Event()
        waker = run_soon(woken.set)
        self._wakers.append(waker)
        # A push from another thread between the caller's check and the append is seen here.
        try:
            if not self._ended and (for_end or not self._queue):
                await woken.wait()
        finally:
            if waker in self._wakers:
                self._wakers.remove(waker)

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()


class _Reader(AsyncIterator[E]):
    __slots__ = ("_stream",)

    def __init__(self, stream: EventStream[E, Any]) -> None:
        self._stream = stream

    async def __anext__(self) -> E:
        return await self._stream.next_event()


class AssistantMessageEventStream(EventStream[AssistantMessageEvent, AssistantMessage]):
    """Carry the events of one model response.

    The final message gets `duration_ms`, measured from the creation of the stream, unless it has
    one or its timestamp predates the stream (MD-10).
    """

    def __init__(self) -> None:
        super().__init__(
            lambda event: isinstance(event, StreamDone | StreamError),
            lambda event: cast("StreamDone | StreamError", event).message,
        )
        self._created = time.monotonic()
        self._created_ms = now_ms()

    def push(self, event: AssistantMessageEvent) -> None:
        """Add an event; ignored after the last one (MD-03). Callable from any thread."""
        match event:
            case StreamDone():
                event = msgspec.structs.replace(event, message=self._timed(event.message))
            case StreamError():
                event = msgspec.structs.replace(event, error=self._timed(event.error))
            case _:
                pass
        super().push(event)

    def end(self, result: AssistantMessage | None = None) -> None:
        """End the stream; without a final event or a result it counts as failed (MD-09)."""
        super().end(None if result is None else self._timed(result))

    def _timed(self, message: AssistantMessage) -> AssistantMessage:
        if message.duration_ms is not None or message.timestamp < self._created_ms:
            return message
        elapsed = round((time.monotonic() - self._created) * 1000)
        return msgspec.structs.replace(message, duration_ms=max(0, elapsed))
