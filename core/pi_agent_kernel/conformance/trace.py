"""Turn what happened into trace entries: normalised messages, results, events, outcomes.

Source: FORMAT.md, section 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from pi_agent_kernel import (
    AbortSignal,
    AgentEnd,
    AgentEvent,
    AgentMessage,
    AgentToolResult,
    AssistantMessage,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    StreamDone,
    StreamError,
    TextContent,
    TextEnd,
    ThinkingEnd,
    ToolCallEnd,
    ToolCallOutcome,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    to_json,
)
from pi_agent_kernel.conformance.script import Json, is_array, is_object
from pi_agent_kernel.messages import ZERO_USAGE

__all__ = [
    "TraceLog",
    "aborted_state",
    "event_facts",
    "event_trace",
    "joined_surrogates",
    "message_trace",
    "messages_trace",
    "outcome_trace",
    "plain",
    "result_trace",
    "roles",
]


class TraceLog:
    """Collect entries in order; deltas of one block that follow each other become one entry."""

    def __init__(self) -> None:
        self.entries: list[Json] = []

    def add(self, entry: Json) -> None:
        """Append an entry."""
        self.entries.append(entry)

    def add_event(self, event: AgentEvent) -> None:
        """Append the entry of an event, or add its delta to the last entry."""
        entry = event_trace(event)
        last = self.entries[-1] if self.entries else {}
        if _continues(last, entry):
            last["update"]["text"] += entry["update"]["text"]
            last["update"]["count"] += 1
        else:
            self.entries.append(entry)


def _continues(last: Json, entry: Json) -> bool:
    if "update" not in entry or "update" not in last or last.get("event") != "message_update":
        return False
    before, update = last["update"], entry["update"]
    return (
        "count" in update
        and update["type"] == before["type"]
        and update["contentIndex"] == before["contentIndex"]
    )


def plain(value: Any) -> Any:
    """Copy any value into plain JSON.

    Args:
        value: A message, block, result or other record, or JSON with such values in it.

    Returns:
        Dicts and lists that nothing else holds.
    """
    if isinstance(value, msgspec.Struct) or hasattr(value, "role"):
        return plain(to_json(value))
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        return {key: plain(item) for key, item in items.items()}
    if isinstance(value, (list, tuple)):
        entries = cast("Sequence[Any]", value)
        return [plain(item) for item in entries]
    return value


def roles(messages: Sequence[AgentMessage]) -> list[str]:
    """Return the roles of messages."""
    return [message.role for message in messages]


def aborted_state(signal: AbortSignal | None) -> bool | None:
    """Return whether a signal is aborted; None without a signal."""
    return None if signal is None else signal.aborted


def message_trace(message: AgentMessage) -> Json:
    """Normalise a message."""
    data: Json = plain(message)
    data.pop("timestamp", None)
    if isinstance(message, AssistantMessage):
        del data["usage"]
        data.pop("durationMs", None)
        if message.stop_reason == "pending":
            data.pop("errorMessage", None)
        if _is_failure(message):
            data["usage"] = "zero" if message.usage == ZERO_USAGE else "nonzero"
    elif isinstance(message, ToolResultMessage):
        if "durationMs" in data:
            data["durationMs"] = True
    elif message.role == "user" and isinstance(data["content"], str):
        data["content"] = [{"type": "text", "text": data["content"]}]
    return data


def _is_failure(message: AssistantMessage) -> bool:
    content = tuple(message.content)
    return message.stop_reason in {"error", "aborted"} and content == (TextContent(text=""),)


def messages_trace(messages: Sequence[AgentMessage]) -> list[Json]:
    """Normalise messages."""
    return [message_trace(message) for message in messages]


def result_trace(result: AgentToolResult) -> Json:
    """Normalise a tool result: only the fields that have a value."""
    fields = {
        "content": result.content,
        "details": result.details,
        "structuredContent": result.structured_content,
        "isError": result.is_error,
        "usage": result.usage,
        "terminate": result.terminate,
    }
    return {name: plain(value) for name, value in fields.items() if value is not None}


def outcome_trace(outcome: ToolCallOutcome) -> Json:
    """Make the entry of a call that `run_tool_call` ran."""
    call = outcome.tool_call
    return {
        "outcome": call.id,
        "name": call.name,
        "arguments": plain(call.arguments),
        "result": result_trace(outcome.result),
        "isError": outcome.is_error,
        **_duration(outcome.duration_ms),
    }


def _duration(duration_ms: int | None) -> Json:
    return {} if duration_ms is None else {"durationMs": True}


def event_trace(event: AgentEvent) -> Json:
    """Make the entry of an event."""
    entry: Json = {"event": event.type}
    match event:
        case MessageStart() | MessageEnd():
            entry["message"] = message_trace(event.message)
        case MessageUpdate():
            entry |= {"role": "assistant", "update": _update(event)}
        case AgentEnd():
            entry["messages"] = messages_trace(event.messages)
        case TurnEnd():
            entry["message"] = message_trace(event.message)
            entry["toolResults"] = messages_trace(event.tool_results)
        case ToolExecutionStart() | ToolExecutionUpdate():
            entry |= {"toolCallId": event.tool_call_id, "toolName": event.tool_name}
            entry["args"] = plain(event.args)
            if isinstance(event, ToolExecutionUpdate):
                entry["partialResult"] = result_trace(event.partial_result)
        case ToolExecutionEnd():
            entry |= {"toolCallId": event.tool_call_id, "toolName": event.tool_name}
            entry |= {"result": result_trace(event.result), "isError": event.is_error}
            entry |= _duration(event.duration_ms)
        case _:
            pass
    return entry


def _update(event: MessageUpdate) -> Json:
    step = event.assistant_message_event
    update: Json = {"type": step.type}
    if not isinstance(step, (StreamDone, StreamError)):
        update["contentIndex"] = getattr(step, "content_index", None)
    delta: str | None = getattr(step, "delta", None)
    if delta is not None:
        update |= {"text": delta, "count": 1}
    if isinstance(step, (TextEnd, ThinkingEnd)):
        update["content"] = step.content
    if isinstance(step, ToolCallEnd):
        update["toolCall"] = plain(step.tool_call)
    return update


def event_facts(event: AgentEvent) -> Json:
    """Return what rules and `waitEvent` can ask of an event (FORMAT.md, section 9)."""
    facts: Json = {"type": event.type}
    match event:
        case MessageUpdate():
            step = event.assistant_message_event
            facts |= {"role": "assistant", "update": step.type}
            delta: str | None = getattr(step, "delta", None)
            if delta is not None:
                facts["delta"] = delta
        case MessageStart() | MessageEnd() | TurnEnd():
            message = event.message
            facts["role"] = message.role
            if isinstance(message, AssistantMessage):
                facts["stopReason"] = message.stop_reason
            elif isinstance(message, ToolResultMessage):
                facts |= {"id": message.tool_call_id, "tool": message.tool_name}
        case ToolExecutionStart() | ToolExecutionUpdate() | ToolExecutionEnd():
            facts |= {"id": event.tool_call_id, "tool": event.tool_name}
            if isinstance(event, ToolExecutionEnd):
                facts["isError"] = event.is_error
        case _:
            pass
    return facts


def joined_surrogates(value: Any) -> Any:
    """Join the halves of characters that were streamed in two pieces, in every string.

    Args:
        value: JSON.

    Returns:
        An equal value, as the reference's strings of UTF-16 units would read.
    """
    if isinstance(value, str):
        return value if value.isascii() else _joined(value)
    if is_object(value):
        return {joined_surrogates(key): joined_surrogates(item) for key, item in value.items()}
    if is_array(value):
        return [joined_surrogates(item) for item in value]
    return value


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
