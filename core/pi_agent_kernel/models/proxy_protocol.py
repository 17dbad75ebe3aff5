"""The proxy protocol: one definition for those who ask a proxy and those who are one.

A request is a POST of `{"model", "context", "options"}`; the response is a stream of lines
`data: JSON`. An event on the wire has no `partial`: who reads it rebuilds the message from the
pieces (`proxy_reader`). Keys are the reference's camelCase. Everything here is a pure function.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from pi_agent_kernel.events import (
    AssistantMessageEvent,
    StreamDone,
    StreamError,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from pi_agent_kernel.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.request import Model, StreamOptions, TranscriptContext
from pi_agent_kernel.wire import from_json, to_json

__all__ = [
    "KEEP_ALIVE",
    "PROXY_EVENTS",
    "PROXY_OPTIONS",
    "ProxyDone",
    "ProxyError",
    "ProxyEvent",
    "ProxyRequest",
    "ProxyStart",
    "ProxyTextDelta",
    "ProxyTextEnd",
    "ProxyTextStart",
    "ProxyThinkingDelta",
    "ProxyThinkingEnd",
    "ProxyThinkingStart",
    "ProxyToolCallDelta",
    "ProxyToolCallEnd",
    "ProxyToolCallStart",
    "decode_proxy_request",
    "encode_proxy_event",
    "encode_proxy_request",
]

#: A line that keeps an idle connection open; readers skip it.
KEEP_ALIVE = b": keep-alive\n\n"

#: The options that a request carries, by their names on the wire (PX-01, E22). The signal, the
#: key and the callbacks stay here.
PROXY_OPTIONS: Mapping[str, str] = {
    "temperature": "temperature",
    "samplingParams": "sampling_params",
    "maxTokens": "max_tokens",
    "reasoning": "reasoning",
    "cacheRetention": "cache_retention",
    "sessionId": "session_id",
    "headers": "headers",
    "metadata": "metadata",
    "transport": "transport",
    "thinkingBudgets": "thinking_budgets",
    "maxRetryDelayMs": "max_retry_delay_ms",
}

# ------------------------------------------------------------------------------- events


class _OnTheWire(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True
):
    """Be one line of a response."""


class ProxyStart(_OnTheWire, frozen=True, kw_only=True, tag="start"):
    """Say that the response has begun."""


class ProxyTextStart(_OnTheWire, frozen=True, kw_only=True, tag="text_start"):
    """Open a text block."""

    content_index: int


class ProxyTextDelta(_OnTheWire, frozen=True, kw_only=True, tag="text_delta"):
    """Carry the next piece of a text block."""

    content_index: int
    delta: str


class ProxyTextEnd(_OnTheWire, frozen=True, kw_only=True, tag="text_end"):
    """Close a text block; `content` is there when it is not simply the pieces."""

    content_index: int
    content: str | None = None
    content_signature: str | None = None


class ProxyThinkingStart(_OnTheWire, frozen=True, kw_only=True, tag="thinking_start"):
    """Open a thinking block."""

    content_index: int


class ProxyThinkingDelta(_OnTheWire, frozen=True, kw_only=True, tag="thinking_delta"):
    """Carry the next piece of a thinking block."""

    content_index: int
    delta: str


class ProxyThinkingEnd(_OnTheWire, frozen=True, kw_only=True, tag="thinking_end"):
    """Close a thinking block; `content` is there when it is not simply the pieces."""

    content_index: int
    content: str | None = None
    content_signature: str | None = None
    redacted: bool | None = None


class ProxyToolCallStart(_OnTheWire, frozen=True, kw_only=True, tag="toolcall_start"):
    """Open a tool call."""

    content_index: int
    id: str
    tool_name: str


class ProxyToolCallDelta(_OnTheWire, frozen=True, kw_only=True, tag="toolcall_delta"):
    """Carry the next piece of a tool call's argument text."""

    content_index: int
    delta: str


class ProxyToolCallEnd(_OnTheWire, frozen=True, kw_only=True, tag="toolcall_end"):
    """Close a tool call with the call itself; without it the pieces are parsed."""

    content_index: int
    tool_call: dict[str, Any] | None = None


class ProxyDone(_OnTheWire, frozen=True, kw_only=True, tag="done"):
    """End the response; `message` is the whole of it, where the proxy sends that."""

    reason: Literal["stop", "length", "toolUse", "deferred"]
    usage: dict[str, Any] | None = None
    provider_thinking_level: str | None = None
    message: dict[str, Any] | None = None


class ProxyError(_OnTheWire, frozen=True, kw_only=True, tag="error"):
    """End a response that failed or was aborted."""

    reason: Literal["error", "aborted"]
    error_message: str | None = None
    usage: dict[str, Any] | None = None
    provider_thinking_level: str | None = None
    message: dict[str, Any] | None = None


#: What a line of a response holds.
ProxyEvent = (
    ProxyStart
    | ProxyTextStart
    | ProxyTextDelta
    | ProxyTextEnd
    | ProxyThinkingStart
    | ProxyThinkingDelta
    | ProxyThinkingEnd
    | ProxyToolCallStart
    | ProxyToolCallDelta
    | ProxyToolCallEnd
    | ProxyDone
    | ProxyError
)

#: The class of each event by its `type`.
PROXY_EVENTS: Mapping[str, type[ProxyEvent]] = {
    cast("str", kind.__struct_config__.tag): kind
    for kind in (
        *(ProxyStart, ProxyTextStart, ProxyTextDelta, ProxyTextEnd),
        *(ProxyThinkingStart, ProxyThinkingDelta, ProxyThinkingEnd),
        *(ProxyToolCallStart, ProxyToolCallDelta, ProxyToolCallEnd, ProxyDone, ProxyError),
    )
}


def encode_proxy_event(event: AssistantMessageEvent) -> bytes:
    """Turn an event of a model's stream into what a proxy sends for it.

    Args:
        event: Of any stream function. The last one carries its message whole.

    Returns:
        One line `data: JSON` and an empty one, UTF-8.

    Raises:
        TypeError: Something in the message has no JSON form.
        ValueError: A number in it is not finite, or it is nested too deeply.

    Source: PX-02.
    """
    line = msgspec.to_builtins(_on_the_wire(event))
    # ASCII: half of a surrogate pair, which a provider may send, has no other form.
    return b"data: " + json.dumps(line, separators=(",", ":")).encode() + b"\n\n"


def _on_the_wire(event: AssistantMessageEvent) -> ProxyEvent:
    match event:
        case StreamStart():
            return ProxyStart()
        case TextStart():
            return ProxyTextStart(content_index=event.content_index)
        case TextDelta():
            return ProxyTextDelta(content_index=event.content_index, delta=event.delta)
        case TextEnd():
            streamed = _streamed(event)
            block = event.partial.content[event.content_index]
            return ProxyTextEnd(
                content_index=event.content_index,
                content=None if event.content == streamed else event.content,
                content_signature=getattr(block, "text_signature", None),
            )
        case ThinkingStart():
            return ProxyThinkingStart(content_index=event.content_index)
        case ThinkingDelta():
            return ProxyThinkingDelta(content_index=event.content_index, delta=event.delta)
        case ThinkingEnd():
            streamed = _streamed(event)
            block = event.partial.content[event.content_index]
            return ProxyThinkingEnd(
                content_index=event.content_index,
                content=None if event.content == streamed else event.content,
                content_signature=getattr(block, "thinking_signature", None),
                redacted=getattr(block, "redacted", None),
            )
        case ToolCallStart():
            call = cast("ToolCall", event.partial.content[event.content_index])
            return ProxyToolCallStart(
                content_index=event.content_index, id=call.id, tool_name=call.name
            )
        case ToolCallDelta():
            return ProxyToolCallDelta(content_index=event.content_index, delta=event.delta)
        case ToolCallEnd():
            return ProxyToolCallEnd(
                content_index=event.content_index, tool_call=to_json(event.tool_call)
            )
        case StreamDone():
            return ProxyDone(
                reason=cast("Any", event.reason),
                usage=to_json(event.message.usage),
                provider_thinking_level=event.message.provider_thinking_level,
                message=to_json(event.message),
            )
        case StreamError():
            return ProxyError(
                reason=cast("Any", event.reason),
                error_message=event.error.error_message,
                usage=to_json(event.error.usage),
                provider_thinking_level=event.error.provider_thinking_level,
                message=to_json(event.error),
            )


def _streamed(event: TextEnd | ThinkingEnd) -> str | None:
    """Return the pieces of a block that ends, or None where the event has no record of them."""
    origin = event.origin
    if isinstance(origin, AssistantMessage):
        return None
    match origin.message_at(event.at - 1).content[event.content_index]:
        case TextContent() as block:
            return block.text
        case ThinkingContent() as block:
            return block.thinking
        case ToolCall():
            return None


# ------------------------------------------------------------------------------ request


class ProxyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a client asked of a proxy."""

    model: Model
    context: TranscriptContext
    options: StreamOptions


def encode_proxy_request(
    model: Model,
    context: TranscriptContext,
    options: StreamOptions,
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """Write the body of a request.

    Args:
        model: Whom to ask.
        context: The messages.
        options: Those of `PROXY_OPTIONS` are sent, if set.
        more: Further options by their Python names; they win over `options`.

    Returns:
        JSON, UTF-8.

    Raises:
        TypeError: Something in it has no JSON form.
        ValueError: A number in it is not finite, or it is nested too deeply.

    Source: PX-01, E22.
    """
    sent: dict[str, Any] = {}
    for wire, name in PROXY_OPTIONS.items():
        value = (more or {}).get(name)
        value = getattr(options, name, None) if value is None else value
        if value is not None:
            sent[wire] = to_json(value)
    body = {
        "model": to_json(model),
        "context": {"messages": [to_json(message) for message in context.messages]},
        "options": sent,
    }
    return json.dumps(body, separators=(",", ":")).encode()


class _Options(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Check the options of a request; what `StreamOptions` does not have is only checked."""

    temperature: float | None = None
    sampling_params: dict[str, Any] | None = None
    max_tokens: int | None = None
    reasoning: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    cache_retention: str | None = None
    session_id: str | None = None
    headers: dict[str, str | None] | None = None
    metadata: dict[str, Any] | None = None
    transport: Literal["sse", "websocket", "websocket-cached", "auto"] | None = None
    thinking_budgets: dict[str, int] | None = None
    max_retry_delay_ms: int | None = None


def decode_proxy_request(body: bytes) -> ProxyRequest:
    """Read the body of a request, strictly.

    Args:
        body: As it came, UTF-8.

    Returns:
        The model as the client described it, which a proxy should not take its word for, the
        messages and the options.

    Raises:
        ValueError: It is no such request; the message says where, what was expected and what
            came. It may quote from the body.

    Source: PX-01.
    """
    try:
        request: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The body is not JSON: {error}.") from None
    if not isinstance(request, dict):
        raise ValueError(  # noqa: TRY004 - bad data, as every other finding here
            'The body must be a JSON object {"model", "context", "options"}, not '
            f"{_kind(request)}."
        )
    parts = cast("dict[str, Any]", request)
    unknown = sorted(parts.keys() - {"model", "context", "options"})
    if unknown:
        raise ValueError(f"{unknown[0]}: unknown; the body has model, context and options.")
    return ProxyRequest(
        model=_read_model(parts.get("model")),
        context=TranscriptContext(messages=_read_messages(parts.get("context"))),
        options=_read_options(parts.get("options")),
    )


def _read_model(value: Any) -> Model:
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004 - as above
            f"model: expected an object with id and provider, got {_kind(value)}."
        )
    try:
        return from_json(cast("Any", value), Model)
    except ValueError as error:
        raise ValueError(f"model.{error}") from None


def _read_messages(value: Any) -> list[Message]:
    context = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    messages = context.get("messages")
    if not isinstance(messages, list) or len(context) != 1:
        raise ValueError('context: expected {"messages": [...]} and nothing else in it.')
    read: list[Message] = []
    for index, item in enumerate(cast("list[Any]", messages)):
        try:
            message: Any = from_json(item)
        except ValueError as error:
            raise ValueError(f"context.messages[{index}]: {error}") from None
        if not isinstance(
            message, (SystemMessage, UserMessage, AssistantMessage, ToolResultMessage)
        ):
            raise ValueError(  # noqa: TRY004 - as above
                f"context.messages[{index}]: expected the role system, user, assistant or "
                "toolResult; convert messages of other roles before they are sent."
            )
        read.append(message)
    return read


def _read_options(value: Any) -> StreamOptions:
    try:
        read = msgspec.convert({} if value is None else value, _Options)
    except msgspec.ValidationError as error:
        known = ", ".join(PROXY_OPTIONS)
        raise ValueError(f"options: {error}. These are known: {known}.") from None
    names = set(_Options.__struct_fields__) & set(StreamOptions.__struct_fields__)
    return StreamOptions(**{name: getattr(read, name) for name in names})


def _kind(value: object) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "text"
        case None:
            return "null"
        case bool():
            return "a boolean"
        case _:
            return "a number"
