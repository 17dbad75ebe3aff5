"""Read a proxy's response: bytes in, stream events out, whatever way the bytes are cut.

The message is rebuilt by a `ResponseBuilder`, so a delta costs the same however long the
response is. Nothing here raises for what the proxy sent: a line that cannot be read ends the
response as an error, and what came before it is kept.
"""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from pi_agent_kernel.events import AssistantMessageEvent, StreamDone, StreamError
from pi_agent_kernel.messages import (
    ZERO_USAGE,
    AssistantMessage,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)
from pi_agent_kernel.models.proxy_protocol import (
    PROXY_EVENTS,
    ProxyDone,
    ProxyError,
    ProxyEvent,
    ProxyStart,
    ProxyTextDelta,
    ProxyTextEnd,
    ProxyTextStart,
    ProxyThinkingDelta,
    ProxyThinkingEnd,
    ProxyThinkingStart,
    ProxyToolCallDelta,
    ProxyToolCallEnd,
    ProxyToolCallStart,
)
from pi_agent_kernel.models.sound_messages import sound_message, sound_usage
from pi_agent_kernel.request import Model
from pi_agent_kernel.response import ResponseBuilder
from pi_agent_kernel.wire import from_json

__all__ = ["CLOSED_EARLY", "MAX_LINE_BYTES", "ProxyReader"]

CLOSED_EARLY = "The proxy's connection closed early, before the response was complete. Try again."
#: A longer line is not an event of any model.
MAX_LINE_BYTES = 256 * 1024 * 1024


class ProxyReader:
    """Rebuild one response.

    Args:
        model: Whom the request asked; what the partial messages name.

    Source: PX-02, PX-04 to PX-06, E21.
    """

    def __init__(self, model: Model) -> None:
        self.builder: ResponseBuilder = ResponseBuilder(
            api=model.api, provider=model.provider, model=model.id
        )
        #: Whether the last event has been given out; what comes after it is not read.
        self.ended: bool = False
        self._started = False
        self._line: list[bytes] = []  # pieces of a line whose end has not come yet
        self._line_bytes = 0
        # The open blocks by the index that the proxy gave them: their kind and our index.
        self._open: dict[int, tuple[type[Any], int]] = {}

    def feed(self, chunk: bytes) -> list[AssistantMessageEvent]:
        """Take the next bytes; return the events that they complete."""
        *complete, rest = chunk.split(b"\n")
        events: list[AssistantMessageEvent] = []
        for end in complete:
            if self.ended:
                return events
            self._line.append(end)
            line = b"".join(self._line)
            self._line.clear()
            self._line_bytes = 0
            events += self._read(line)
        self._line.append(rest)
        self._line_bytes += len(rest)
        if self._line_bytes > MAX_LINE_BYTES and not self.ended:
            events.append(self.fail(f"The proxy sent a line of over {MAX_LINE_BYTES} bytes."))
        return events

    def finish(self) -> list[AssistantMessageEvent]:
        """Say that the connection has ended; return the last events, always with an end."""
        events = self.flush()
        return events if self.ended else [*events, self.fail(CLOSED_EARLY)]

    def flush(self) -> list[AssistantMessageEvent]:
        """Read a last line that has no end, if it is whole (PX-04)."""
        line = b"".join(self._line)
        self._line.clear()
        return [] if self.ended else self._read(line, cut_off=True)

    def fail(
        self, text: str, *, aborted: bool = False, usage: Usage | None = None
    ) -> AssistantMessageEvent:
        """End the response as an error; what arrived is kept."""
        self.ended = True
        return self.builder.error(text, aborted=aborted, usage=usage)

    # ------------------------------------------------------------------------- one line

    def _read(self, line: bytes, *, cut_off: bool = False) -> list[AssistantMessageEvent]:
        if not line.startswith(b"data:"):
            return []  # the blank line after an event, a comment, another field
        text = line[5:].strip()
        if not text:
            return []
        try:
            event = _decode(text)
            return [] if event is None else self._events_of(event)
        except _UnreadableError as error:
            if cut_off and not error.is_json:
                return []
            return [self.fail(f"The proxy sent an event that cannot be read: {error}")]

    def _events_of(self, event: ProxyEvent) -> list[AssistantMessageEvent]:
        begun: list[AssistantMessageEvent] = []
        if not self._started and not isinstance(event, ProxyError):
            self._started = True  # also for a proxy that does not say so (MD-03)
            begun.append(self.builder.start())
        found = self._event_of(event)
        return begun if found is None else [*begun, found]

    def _event_of(self, event: ProxyEvent) -> AssistantMessageEvent | None:
        builder = self.builder
        match event:
            case ProxyStart():
                return None
            case ProxyTextStart():
                return self._opened(event.content_index, TextContent, builder.text_start())
            case ProxyTextDelta():
                return builder.text_delta(event.delta, self._index(event, TextContent))
            case ProxyTextEnd():
                index = self._closed(event, TextContent)
                return builder.text_end(index, event.content, signature=event.content_signature)
            case ProxyThinkingStart():
                return self._opened(event.content_index, ThinkingContent, builder.thinking_start())
            case ProxyThinkingDelta():
                return builder.thinking_delta(event.delta, self._index(event, ThinkingContent))
            case ProxyThinkingEnd():
                return builder.thinking_end(
                    self._closed(event, ThinkingContent),
                    event.content,
                    signature=event.content_signature,
                    redacted=event.redacted,
                )
            case ProxyToolCallStart():
                opened = builder.toolcall_start(event.id, event.tool_name)
                return self._opened(event.content_index, ToolCall, opened)
            case ProxyToolCallDelta():
                return builder.toolcall_delta(event.delta, self._index(event, ToolCall))
            case ProxyToolCallEnd():
                return self._toolcall_end(event)
            case ProxyDone() | ProxyError():
                return self._last(event)

    def _opened(self, index: int, kind: type[Any], event: Any) -> AssistantMessageEvent:
        self._open[index] = (kind, event.content_index)
        return event

    def _index(self, event: Any, kind: type[Any]) -> int:
        """Return our index of an open block (PX-05)."""
        block, index = self._open.get(event.content_index, (None, -1))
        if block is not kind:
            what = "no open block" if block is None else f"a {cast('Any', block).type} block"
            name = cast("type[ProxyEvent]", type(event)).__struct_config__.tag
            raise _UnreadableError(
                f"{name} for content index {event.content_index}, which is {what}."
            )
        return index

    def _closed(self, event: Any, kind: type[Any]) -> int:
        index = self._index(event, kind)
        del self._open[event.content_index]
        return index

    def _toolcall_end(self, event: ProxyToolCallEnd) -> AssistantMessageEvent | None:
        kind, index = self._open.get(event.content_index, (None, -1))
        if kind is not ToolCall:
            return None
        call = None
        if event.tool_call is not None:
            call = _of_kind(event.tool_call, ToolCall, "toolCall")
        del self._open[event.content_index]
        return self.builder.toolcall_end(index, call)

    def _last(self, event: ProxyDone | ProxyError) -> AssistantMessageEvent:
        usage = ZERO_USAGE
        if event.usage is not None:
            usage = sound_usage(_of_kind(event.usage, Usage, "usage"))
        if event.provider_thinking_level is not None:
            self.builder.fields["provider_thinking_level"] = event.provider_thinking_level
        whole: AssistantMessage | None = None
        if event.message is not None:
            whole = sound_message(_of_kind(event.message, AssistantMessage, "message"))
        self.ended = True
        reason: StopReason = event.reason
        if isinstance(event, ProxyDone):
            if whole is None:
                return self.builder.done(event.reason, usage=usage)
            return StreamDone(reason=reason, message=_ending(whole, stop_reason=reason))
        text = event.error_message
        if text is None:
            text = (whole and whole.error_message) or "The proxy ended the response as an error."
        if whole is None:
            return self.builder.error(text, aborted=reason == "aborted", usage=usage)
        return StreamError(
            reason=reason, error=_ending(whole, stop_reason=reason, error_message=text)
        )


def _ending(message: AssistantMessage, **fields: Any) -> AssistantMessage:
    return msgspec.structs.replace(message, **fields)


class _UnreadableError(Exception):
    """Say what is wrong with a line."""

    def __init__(self, text: str, *, is_json: bool = True) -> None:
        super().__init__(text)
        self.is_json = is_json


def _decode(text: bytes) -> ProxyEvent | None:
    """Read one event; None for a type that is not known here."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UnreadableError(f"it is not JSON ({error}).", is_json=False) from None
    kind = cast("dict[str, Any]", value).get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise _UnreadableError("it is not an object with a type.")
    expected = PROXY_EVENTS.get(kind)
    if expected is None:
        return None
    try:
        return msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        raise _UnreadableError(f"{kind}: {error}.") from None


def _of_kind(value: dict[str, Any], kind: type[Any], name: str) -> Any:
    if kind is AssistantMessage and value.get("role") != "assistant":
        raise _UnreadableError(f"{name}: its role is not assistant.")
    try:
        return from_json(value, kind)
    except ValueError as error:
        raise _UnreadableError(f"{name}.{error}") from None
