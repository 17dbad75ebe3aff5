"""A stream that is there at once and does its setup when it is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.errors import error_text
from pi_agent_kernel.events import AssistantMessageEvent, StreamDone, StreamError
from pi_agent_kernel.request import Model, StreamEvents
from pi_agent_kernel.response import ResponseBuilder

__all__ = ["lazy_stream"]

_ABORTED = "Request was aborted"


async def lazy_stream(
    model: Model,
    open_stream: Callable[[], StreamEvents | Awaitable[StreamEvents]],
    signal: AbortSignal | None = None,
) -> AsyncGenerator[AssistantMessageEvent, None]:
    """Stream what a function opens; the function is called when the first event is asked for.

    Authenticating and loading belong into the function. Whatever it raises ends the stream with an
    error event, and an abort while it runs ends the stream as aborted (E18).

    Args:
        model: What the messages of such an end name.
        open_stream: Plain or async; returns the stream.
        signal: Ends the setup at once. While events arrive the stream watches it itself.

    Yields:
        The stream's events; the last one is final in any case.

    Cancellation: Closes the stream that was opened.
    Source: MD-25.
    """
    stream: Any = None
    try:
        if signal is None:
            stream = await _opened(open_stream)
        elif not signal.aborted:
            with anyio.CancelScope() as scope:
                stop_watching = signal.cancel_on_abort(scope)
                try:
                    stream = await _opened(open_stream)
                finally:
                    stop_watching()
        if stream is None:
            yield _end(model, _ABORTED, aborted=True)
            return
        async for event in stream:
            yield event
            if isinstance(event, StreamDone | StreamError):
                return
        aborted = signal is not None and signal.aborted
        text = _ABORTED if aborted else "The stream ended without a final event."
        yield _end(model, text, aborted=aborted)
    except Exception as error:  # noqa: BLE001 - MD-01: a failure is an event
        aborted = signal is not None and signal.aborted
        yield _end(model, _ABORTED if aborted else error_text(error), aborted=aborted)
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await close()


async def _opened(open_stream: Callable[[], StreamEvents | Awaitable[StreamEvents]]) -> Any:
    opened: Any = open_stream()
    if not hasattr(opened, "__aiter__"):
        opened = await opened
    if not hasattr(opened, "__aiter__"):
        raise TypeError(f"The setup of a stream returns a stream, not {type(opened).__name__}.")
    return opened


def _end(model: Model, text: str, *, aborted: bool) -> StreamError:
    builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
    return builder.error(text, aborted=aborted)
