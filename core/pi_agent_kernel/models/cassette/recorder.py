"""Write a cassette: the request before it is sent, the response when it has ended."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from pi_agent_kernel.errors import ModelError, error_text
from pi_agent_kernel.events import AssistantMessageEvent, ModelRetry, StreamDone, StreamError
from pi_agent_kernel.messages import AssistantMessage
from pi_agent_kernel.models.cassette.conversation import (
    Node,
    Seen,
    follow,
    is_failed,
    json_line,
    model_spec,
)
from pi_agent_kernel.models.cassette.file import HEADER, CassetteFile
from pi_agent_kernel.models.cassette.redaction import Redactor
from pi_agent_kernel.models.cassette.response import ResponseNotes, final_diagnostics
from pi_agent_kernel.request import Model, StreamOptions, TranscriptContext
from pi_agent_kernel.response import ResponseBuilder
from pi_agent_kernel.streams import EventStream
from pi_agent_kernel.wire import to_json

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from pi_agent_kernel.request import StreamFn

__all__ = ["CassetteRecorder"]

_ABORTED = "Request was aborted"
# Why something cannot be recorded.
_REFUSED = (ModelError, OSError, TypeError, ValueError, RecursionError)
# Where a request went, what its headers held and what it costs are no part of what was said.
_MODEL_FIELDS = (
    *("id", "name", "api", "provider", "reasoning", "input", "contextWindow", "maxTokens"),
    "thinkingLevelMap",
)


class Place(NamedTuple):
    """Say where a request stands: its number, its last message, the tree these belong to."""

    number: int
    end: Node[None]
    root: Node[None]


class CassetteRecorder:
    """Record what passes through stream functions into one file.

    The first request of a recorder starts the file; one that was there is kept as `FILE.bak`
    (`FILE.bak2` and so on). Any number of agents, threads and event loops may share a recorder; of
    two recorders of one file, the one that began last has it.

    Args:
        path: The file. Its folder must exist.

    Raises:
        ModelError: The file cannot be written, or is there and is no cassette.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        #: Responses written so far.
        self.responses: int = 0
        self._file = CassetteFile(path)
        self._lock = threading.Lock()
        self._begin()

    def __repr__(self) -> str:
        return f"<cassette recorder {self.path}: {self.responses} responses>"

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def backup(self) -> Path | None:
        """Where the recording is that was there before, once there is one."""
        return self._file.backup

    def wrap(self, stream_fn: StreamFn) -> StreamFn:
        """Return a stream function that asks another one and records both sides.

        Its streams are of the kind they were: an async generator stays one, so an abort cuts it
        off as before. A request that cannot be recorded is not sent: it ends in an error.
        """

        def stream(model: Model, context: TranscriptContext, options: StreamOptions, /) -> Any:
            try:
                place = self._write_request(model, context, options)
            except _REFUSED as error:
                return _only(_failed(model, f"The request was not sent. {error_text(error)}"))
            take = _Take(self, place, model)
            listening = msgspec.structs.replace(options, on_retry=take.hearing(options.on_retry))
            try:
                opened: Any = stream_fn(model, context, listening)
            except BaseException as error:
                take.broken(error)
                raise
            if isinstance(opened, AsyncGeneratorType):
                return take.follow(cast("AsyncGenerator[AssistantMessageEvent, None]", opened))
            if isinstance(opened, Awaitable):
                return take.opened(cast("Awaitable[Any]", opened))
            return _Followed(take, opened)

        return stream

    def write_response(
        self,
        place: Place,
        notes: ResponseNotes,
        kind: str,
        message: AssistantMessage | None,
    ) -> None:
        """Append a response.

        Raises:
            OSError: It cannot be written.
            ModelError: Somebody else has changed the file.
        """
        with self._lock:
            if place.root is not self._root:
                raise ModelError(f"{self.path} was deleted while the reply came in.")
            lines = notes.lines(kind, message, self._redactor)
            response = {"type": "response", "request": place.number}
            self._file.append([json_line(line) for line in (response, *lines)])
            self.responses += 1
            if message is not None and not is_failed(message):
                text = Seen(self._redactor).text(message)
                place.end.add(text, place.number, answered=True)

    def _begin(self) -> None:
        self._count = 0
        self._redactor = Redactor()
        self._seen = Seen(self._redactor)
        self._root: Node[None] = Node()
        self._models: dict[str, dict[str, Any]] = {}

    def _write_request(
        self, model: Model, context: TranscriptContext, options: StreamOptions
    ) -> Place:
        with self._lock:
            if self._file.begin_again():
                self._begin()  # deleting the file is how one starts over
            if self._redactor.learn(model, options):
                self._seen.forget()
            texts = self._seen.texts(context.messages)
            lines: list[str] = []
            if not self._file.begun:
                lines.append(json_line(HEADER))
            spec = self._redactor.text(model_spec(model))
            described = self._redactor.json(_described(model))
            if self._models.get(spec) != described:
                lines.append(json_line({"type": "model", **described}))
            number = self._count + 1
            node, known = follow(self._root, texts, exact=True)
            request: dict[str, Any] = {"type": "request", "request": number, "model": spec}
            request["thinking"] = options.reasoning or "off"
            if known:
                request["after"] = node.request
                if not node.answered:
                    request["keep"] = known
            lines.append(json_line(request))
            lines.extend('{"type": "message", ' + text[1:] for text in texts[known:])
            self._file.append(lines)
            for text in texts[known:]:
                node = node.add(text, number)
            self._count, self._models[spec] = number, described
            return Place(number, node, self._root)


class _Take:
    """Be one request on its way: notes what comes and writes it at the end, once."""

    def __init__(self, recorder: CassetteRecorder, place: Place, model: Model) -> None:
        self._recorder = recorder
        self._place = place
        self._model = model
        self._notes = ResponseNotes(model)
        #: Whether the response has ended.
        self.written = False

    def note(self, event: AssistantMessageEvent) -> AssistantMessageEvent:
        """Take note of an event; returns the one to send on."""
        if not isinstance(event, StreamDone | StreamError):
            self._notes.add(event)
            return event
        if self.written:
            return event
        message = event.message
        if message.stop_reason == "pending":
            failed = isinstance(event, StreamError)
            meant = event.reason if event.reason != "pending" else "error" if failed else "stop"
            message = msgspec.structs.replace(message, stop_reason=meant)
        return self._write("error" if is_failed(message) else "done", message) or event

    def hearing(self, on_retry: Callable[..., object] | None) -> Callable[[ModelRetry], object]:
        """Return an `on_retry` that takes note of every attempt and tells the given one."""

        def hear(retry: ModelRetry) -> object:
            self._notes.add_retry(retry)
            return None if on_retry is None else on_retry(retry)

        return hear

    def ended(self) -> StreamError | None:
        """Note that the stream is over; without a last event that is a response, too.

        Returns:
            What to end it with if that cannot be recorded.
        """
        return None if self.written else self._write("cut", None)

    def broken(self, error: BaseException) -> None:
        """Note that the stream raised, or was left: whoever left it has aborted."""
        if self.written:
            return
        aborted = not isinstance(error, Exception)
        message = msgspec.structs.replace(
            self._notes.partial(),
            stop_reason="aborted" if aborted else "error",
            error_message=_ABORTED if aborted else error_text(error),
        )
        # Unrecorded, the request stands there without a response, which replay explains.
        self._write("error", message)

    async def follow(
        self, stream: AsyncGenerator[AssistantMessageEvent, None]
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        """Send on a generator's events."""
        try:
            async for event in stream:
                yield self.note(event)
            lost = self.ended()
            if lost is not None:
                yield lost
        except BaseException as error:
            self.broken(error)
            raise
        finally:
            await stream.aclose()

    async def opened(self, opening: Awaitable[Any]) -> Any:
        """Await a stream."""
        try:
            stream = await opening
        except BaseException as error:
            self.broken(error)
            raise
        return _Followed(self, stream)

    def _write(self, kind: str, message: AssistantMessage | None) -> StreamError | None:
        """Write the response; returns the event that says why it could not be."""
        self.written = True
        try:
            self._recorder.write_response(self._place, self._notes, kind, message)
        except _REFUSED as error:
            lost = msgspec.structs.replace(
                message or self._notes.partial(),
                stop_reason="error",
                error_message=f"The reply could not be recorded. {error_text(error)}",
                diagnostics=final_diagnostics(),
            )
            return StreamError(reason="error", error=lost)
        return None


class _Followed(AsyncIterator[AssistantMessageEvent]):
    """Send on the events of a stream that is no generator."""

    def __init__(self, take: _Take, stream: Any) -> None:
        self._take = take
        self._stream = stream
        self._events: Any = None

    async def __anext__(self) -> AssistantMessageEvent:
        try:
            if self._events is None:
                self._events = aiter(self._stream)
            return self._take.note(await anext(self._events))
        except StopAsyncIteration:
            return await self._last()
        except BaseException as error:
            self._take.broken(error)
            raise

    async def _last(self) -> AssistantMessageEvent:
        """Make the last event of a stream that ended with a result alone."""
        stream = self._stream
        if isinstance(stream, EventStream) and stream.settled and not self._take.written:
            result = await cast("EventStream[Any, AssistantMessage]", stream).result()
            if is_failed(result):
                return self._take.note(StreamError(reason=result.stop_reason, error=result))
            return self._take.note(StreamDone(reason=result.stop_reason, message=result))
        lost = self._take.ended()
        if lost is None:
            raise StopAsyncIteration
        return lost


def _described(model: Model) -> dict[str, Any]:
    wire: dict[str, Any] = to_json(model)
    return {name: wire[name] for name in _MODEL_FIELDS if wire.get(name)}


def _failed(model: Model, text: str) -> StreamError:
    builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
    builder.fields["diagnostics"] = final_diagnostics()
    return builder.error(text)


async def _only(event: AssistantMessageEvent) -> AsyncGenerator[AssistantMessageEvent, None]:
    yield event
