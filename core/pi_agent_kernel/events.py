"""Every event a run can produce, and the events of a model's stream inside it.

Two levels. A *stream event* (`AssistantMessageEvent`) is one step of one model response; an
*agent event* (`AgentEvent`) is one step of a run and may carry a stream event
(`message_update`). All are immutable and match by class; `.type` is the reference's wire string.

Those that cannot be part of a reference cycle are outside the garbage collector's care
(`gc=False`): a session holds many.

A stream event does not hold a copy of the message so far: it holds its `origin` (the record of
the response) and its position `at` in it; `partial` builds the message as it was at that event,
whenever it is read (MD-05, DEVIATIONS 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    StopReason,
    ToolCall,
    ToolResultMessage,
    Usage,
)
from pi_agent_kernel.tool_results import AgentToolResult

__all__ = [
    "AGENT_EVENTS",
    "ALL_EVENTS",
    "LIFECYCLE_EVENTS",
    "STREAM_EVENTS",
    "AgentEnd",
    "AgentEvent",
    "AgentIdle",
    "AgentStart",
    "AssistantMessageEvent",
    "AssistantMessageUpdate",
    "MessageEnd",
    "MessageStart",
    "MessageUpdate",
    "ModelRequestStart",
    "ModelResponse",
    "ModelRetry",
    "ResponseRecord",
    "StreamDone",
    "StreamError",
    "StreamEvent",
    "StreamStart",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ThinkingDelta",
    "ThinkingEnd",
    "ThinkingStart",
    "ToolBatchEnd",
    "ToolBatchStart",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "TurnEnd",
    "TurnStart",
]


class ResponseRecord(Protocol):
    """**Protocol:** the record of a response that a stream event points into."""

    def message_at(self, at: int) -> AssistantMessage:
        """Build the message as it was after the first `at` steps."""
        ...

    def event_at(self, at: int) -> StreamEvent:
        """Make the event of step `at` again."""
        ...


# ------------------------------------------------------------------------- stream events


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Be a step of a response; `origin` and `at` say where in its record (MD-05)."""

    type: ClassVar[str]

    origin: AssistantMessage | ResponseRecord
    at: int = 0

    @property
    def partial(self) -> AssistantMessage:
        """The message as it was at this event (MD-05)."""
        origin = self.origin
        return origin if isinstance(origin, AssistantMessage) else origin.message_at(self.at)


class StreamStart(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Say that the response has begun; precedes every update (MD-03)."""

    type: ClassVar[str] = "start"


class TextStart(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Say that a text block has begun, empty (MD-05)."""

    type: ClassVar[str] = "text_start"

    content_index: int


class TextDelta(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Carry the next piece of a text block."""

    type: ClassVar[str] = "text_delta"

    content_index: int
    delta: str


class TextEnd(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Carry a whole text block; authoritative over its deltas (MD-05)."""

    type: ClassVar[str] = "text_end"

    content_index: int
    content: str


class ThinkingStart(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Say that a thinking block has begun, empty."""

    type: ClassVar[str] = "thinking_start"

    content_index: int


class ThinkingDelta(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Carry the next piece of a thinking block."""

    type: ClassVar[str] = "thinking_delta"

    content_index: int
    delta: str


class ThinkingEnd(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Carry a whole thinking block."""

    type: ClassVar[str] = "thinking_end"

    content_index: int
    content: str


class ToolCallStart(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Say that a tool call has begun; `partial` already names it."""

    type: ClassVar[str] = "toolcall_start"

    content_index: int


class ToolCallDelta(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Carry the next piece of a tool call's argument text.

    The arguments so far are `partial.content[content_index].arguments`, always an object (MD-06).
    """

    type: ClassVar[str] = "toolcall_delta"

    content_index: int
    delta: str


class ToolCallEnd(StreamEvent, frozen=True, kw_only=True, gc=False):
    """Carry the complete tool call."""

    type: ClassVar[str] = "toolcall_end"

    content_index: int
    tool_call: ToolCall


class StreamDone(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """End a stream with its final message; nothing follows (MD-03)."""

    type: ClassVar[str] = "done"

    reason: StopReason
    message: AssistantMessage


class StreamError(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """End a stream that failed or was aborted; may come without a start (MD-03)."""

    type: ClassVar[str] = "error"

    reason: StopReason
    error: AssistantMessage

    @property
    def message(self) -> AssistantMessage:
        """The final message, under the name that `StreamDone` uses."""
        return self.error


#: What a `message_update` forwards.
AssistantMessageUpdate = (
    TextStart
    | TextDelta
    | TextEnd
    | ThinkingStart
    | ThinkingDelta
    | ThinkingEnd
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
)

#: Every event of a response.
AssistantMessageEvent = StreamStart | AssistantMessageUpdate | StreamDone | StreamError

#: The steps of a response; `StreamDone` and `StreamError` end it.
STREAM_EVENTS: frozenset[type[StreamEvent]] = frozenset(
    {
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
    }
)

# -------------------------------------------------------------------------- agent events


class AgentStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Open a run; always its first event (EV-02).

    Writes `is_streaming`, `error_message` and `turn_index`.
    """

    type: ClassVar[str] = "agent_start"


class AgentEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Close a run with the messages it produced; always its last agent event (LP-11).

    Writes `streaming_message`, should a message be without its end.
    """

    type: ClassVar[str] = "agent_end"

    messages: Sequence[AgentMessage]


class TurnStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Open a turn: one model response and its tool results (LP-01).

    Writes `turn_index`.
    """

    type: ClassVar[str] = "turn_start"


class TurnEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Close a turn; `tool_results` are in the order of the calls (TL-10).

    Writes `total_turns`, and `error_message` if the message failed.
    """

    type: ClassVar[str] = "turn_end"

    message: AssistantMessage
    tool_results: Sequence[ToolResultMessage]


class MessageStart(msgspec.Struct, frozen=True, kw_only=True):
    """Open a message of any role (EV-08).

    Writes `streaming_message`.
    """

    type: ClassVar[str] = "message_start"

    message: AgentMessage


class MessageUpdate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Forward one stream event of the open assistant message, unchanged (EV-09).

    Writes `streaming_message`.
    """

    type: ClassVar[str] = "message_update"

    assistant_message_event: AssistantMessageUpdate

    @property
    def message(self) -> AssistantMessage:
        """The message as it was at this event; built when read."""
        return self.assistant_message_event.partial


class MessageEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Close a message; it is in the transcript before any listener sees this (ST-06).

    Writes `streaming_message` and `messages`.
    """

    type: ClassVar[str] = "message_end"

    message: AgentMessage


class ToolExecutionStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Open the handling of one tool call; `args` are the raw arguments (TL-20).

    Writes `pending_tool_calls`.
    """

    type: ClassVar[str] = "tool_execution_start"

    tool_call_id: str
    tool_name: str
    args: Mapping[str, Any]


class ToolExecutionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Carry progress that a running tool reported (TL-17)."""

    type: ClassVar[str] = "tool_execution_update"

    tool_call_id: str
    tool_name: str
    args: Mapping[str, Any]
    partial_result: AgentToolResult


class ToolExecutionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Close one tool call, in order of completion (TL-10).

    `duration_ms` is None when the tool did not run: blocked, unknown, invalid or aborted (TL-18).
    `raised` tells a person what the tool or a hook raised and where; the model does not see it.

    Writes `pending_tool_calls`.
    """

    type: ClassVar[str] = "tool_execution_end"

    tool_call_id: str
    tool_name: str
    result: AgentToolResult
    is_error: bool
    duration_ms: int | None = None
    raised: str | None = None


# ---------------------------------------------------------------------- lifecycle events


class ModelRequestStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Say that the stream function is called next (S4-02).

    `message_count` is the number of messages the model will see; `attempt` counts from 1.
    """

    type: ClassVar[str] = "model_request_start"

    model: str
    message_count: int
    attempt: int = 1


class ModelResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Say how a request ended, right after its message_end (S4-03)."""

    type: ClassVar[str] = "model_response"

    stop_reason: StopReason
    usage: Usage
    message: AssistantMessage


class ModelRetry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Say that a request failed and is made again after `delay_ms` (MD-22, MD-23).

    `attempt` is the number of the one to come. `error_message` says what happened; `kind` is its
    class in one word, such as "rate_limit", "overloaded" or "incomplete".
    """

    type: ClassVar[str] = "model_retry"

    attempt: int
    max_attempts: int
    delay_ms: int
    error_message: str
    kind: str = "unknown"


class ToolBatchStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Open the tool calls of one response (S4-04)."""

    type: ClassVar[str] = "tool_batch_start"

    count: int


class ToolBatchEnd(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Close the tool calls of one response, after the last result message (S4-04)."""

    type: ClassVar[str] = "tool_batch_end"

    count: int


class AgentIdle(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Say that the run has settled: a new prompt may start from here (S4-05).

    Writes `is_streaming`.
    """

    type: ClassVar[str] = "agent_idle"


AgentEvent = (
    AgentStart
    | AgentEnd
    | TurnStart
    | TurnEnd
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | ModelRequestStart
    | ModelResponse
    | ModelRetry
    | ToolBatchStart
    | ToolBatchEnd
    | AgentIdle
)

#: The ten events of the reference: what a listener gets unless it asks for others (EV-01).
AGENT_EVENTS: frozenset[type[AgentEvent]] = frozenset(
    {
        AgentStart,
        AgentEnd,
        TurnStart,
        TurnEnd,
        MessageStart,
        MessageUpdate,
        MessageEnd,
        ToolExecutionStart,
        ToolExecutionUpdate,
        ToolExecutionEnd,
    }
)

#: The events of group S4 and `ModelRetry`, for listeners that ask for them (D8).
LIFECYCLE_EVENTS: frozenset[type[AgentEvent]] = frozenset(
    {ModelRequestStart, ModelResponse, ModelRetry, ToolBatchStart, ToolBatchEnd, AgentIdle}
)

#: Everything: `agent.subscribe(listener, events=ALL_EVENTS)`.
ALL_EVENTS: frozenset[type[AgentEvent]] = AGENT_EVENTS | LIFECYCLE_EVENTS
