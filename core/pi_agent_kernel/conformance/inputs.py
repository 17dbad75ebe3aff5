"""Make the package's values from what a scenario says, filling in what it omits.

Scenarios speak the reference's JSON and leave out timestamps, usage and the like
(FORMAT.md, section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from pi_agent_kernel import (
    AgentMessage,
    AgentToolResult,
    AssistantMessage,
    AssistantMessageEvent,
    ImageContent,
    Model,
    StreamDone,
    StreamError,
    StreamStart,
    TextContent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UserMessage,
    from_json,
)
from pi_agent_kernel.conformance.script import Json, ScenarioError, is_array, snake_case
from pi_agent_kernel.messages import STANDARD_ROLES, now_ms

__all__ = [
    "apply_operations",
    "assistant_message",
    "call_message",
    "default_filter",
    "message_from",
    "messages_from",
    "model_named",
    "stream_event_from",
    "tool_call_from",
    "tool_result_fields",
    "tool_result_from",
]

_ZERO_USAGE: Json = {
    "input": 0,
    "output": 0,
    "cacheRead": 0,
    "cacheWrite": 0,
    "totalTokens": 0,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
}

_STREAM_EVENTS: dict[str, Callable[..., AssistantMessageEvent]] = {
    event.type: event
    for event in (
        StreamStart,
        TextStart,
        TextDelta,
        TextEnd,
        ThinkingStart,
        ThinkingDelta,
        ThinkingEnd,
        ToolCallStart,
        ToolCallDelta,
        ToolCallEnd,
    )
}


def model_named(model_id: str) -> Model:
    """Return one of the scripted models; they differ by their id alone."""
    return Model(
        id=model_id,
        name=model_id,
        api="faux",
        provider="faux",
        base_url="http://localhost:0",
        reasoning=True,
        context_window=128_000,
        max_tokens=16_384,
    )


def message_from(data: str | Json) -> AgentMessage:
    """Make a message; a plain string is a user message with that content."""
    if isinstance(data, str):
        return UserMessage(content=data)
    match data.get("role"):
        case "assistant":
            return assistant_message(data)
        case "toolResult":
            defaults: Json = {"isError": False, "details": {}}
        case _:
            defaults = {}
    return cast("AgentMessage", from_json({**defaults, "timestamp": now_ms(), **data}))


def messages_from(data: Sequence[str | Json]) -> list[AgentMessage]:
    """Make a list of messages."""
    return [message_from(message) for message in data]


def assistant_message(data: Json, model: str = "faux-1") -> AssistantMessage:
    """Make an assistant message; the role may be missing as well."""
    content: Any = data.get("content", [])
    blocks: list[Json] = (
        [
            {"arguments": {}, **block} if block.get("type") == "toolCall" else block
            for block in content
        ]
        if is_array(content)
        else [{"type": "text", "text": content}]
    )
    calls = any(block.get("type") == "toolCall" for block in blocks)
    return cast(
        "AssistantMessage",
        from_json(
            {
                "role": "assistant",
                "api": "faux",
                "provider": "faux",
                "model": model,
                "usage": _ZERO_USAGE,
                "stopReason": "toolUse" if calls else "stop",
                "timestamp": now_ms(),
                **data,
                "content": blocks,
            }
        ),
    )


def tool_call_from(data: Json) -> ToolCall:
    """Make a tool call; `type` and `arguments` may be missing."""
    return cast("ToolCall", from_json({"type": "toolCall", "arguments": {}, **data}))


def call_message(call: ToolCall) -> AssistantMessage:
    """Make the assistant message that consists of one call."""
    return AssistantMessage(
        content=(call,), api="faux", provider="faux", model="faux-1", stop_reason="toolUse"
    )


def tool_result_fields(data: Json) -> dict[str, Any]:
    """Turn a scenario's result into keyword arguments; what is missing is left out."""
    fields: dict[str, Any] = {
        snake_case(name): data[name]
        for name in ("details", "structuredContent", "isError", "terminate")
        if name in data
    }
    if data.get("content") is not None:
        fields["content"] = tuple(content_blocks(data["content"]))
    if data.get("usage") is not None:
        fields["usage"] = from_json({**_ZERO_USAGE, **data["usage"]}, Usage)
    return fields


def tool_result_from(data: Json | None) -> AgentToolResult | None:
    """Make a tool's result; null is a tool that returned nothing."""
    return (
        None if data is None else AgentToolResult(**{"details": None, **tool_result_fields(data)})
    )


def content_blocks(data: Sequence[Json]) -> list[TextContent | ImageContent]:
    """Make text and image blocks."""
    return [cast("TextContent | ImageContent", from_json(block)) for block in data]


def stream_event_from(data: Json) -> AssistantMessageEvent:
    """Make the stream event of a `push` entry; its message is filled in as an assistant's.

    Raises:
        ScenarioError: The event's type is unknown.
    """
    kind: str = data.get("type", "")
    if kind == "done":
        message = assistant_message(data.get("message", {}))
        return StreamDone(reason=data.get("reason", message.stop_reason), message=message)
    if kind == "error":
        message = assistant_message(data.get("error", {}))
        return StreamError(reason=data.get("reason", message.stop_reason), error=message)
    if kind not in _STREAM_EVENTS:
        raise ScenarioError(f"unknown stream event {kind!r}")
    fields: dict[str, Any] = {
        snake_case(name): value
        for name, value in data.items()
        if name in ("contentIndex", "delta", "content")
    }
    if "toolCall" in data:
        fields["tool_call"] = tool_call_from(data["toolCall"])
    origin = assistant_message({"stopReason": "pending", **data.get("partial", {})})
    return _STREAM_EVENTS[kind](origin=origin, **fields)


def default_filter(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    """Keep the four standard roles, as `convertToLlm` without a rule does."""
    return [message for message in messages if message.role in STANDARD_ROLES]


def apply_operations(
    messages: Sequence[AgentMessage], operations: Sequence[Json]
) -> list[AgentMessage]:
    """Apply message operations, in order, to a copy of the messages.

    Raises:
        ScenarioError: An operation is unknown.

    Source: FORMAT.md, section 8.
    """
    kept = list(messages)
    for operation in operations:
        for name, value in operation.items():
            kept = _apply(kept, name, value)
    return kept


def _apply(messages: list[AgentMessage], operation: str, value: Any) -> list[AgentMessage]:
    match operation:
        case "keepLast":
            return messages[max(0, len(messages) - value) :]
        case "keepFirst":
            return messages[:value]
        case "append":
            return [*messages, *messages_from(value)]
        case "prepend":
            return [*messages_from(value), *messages]
        case "dropRoles":
            return [message for message in messages if message.role not in value]
        case "keepRoles":
            return [message for message in messages if message.role in value]
        case "toUser":
            return [
                message_from({"role": "user", "content": getattr(message, value["field"])})
                if message.role == value["role"]
                else message
                for message in messages
            ]
        case _:
            raise ScenarioError(f"unknown message operation {operation!r}")
