"""What a transcript is made of: messages, content blocks, usage.

All of them are immutable values: assignment raises, lists become tuples, JSON inside them is
frozen (`json_value`). So an event, a hook or a cell can hold a message for ever, and the
transcript changes in one way only: by its list. `wire.to_json` and `wire.from_json` turn them
into the reference's camelCase JSON and back; `extra` keeps what that JSON held beyond the
fields known here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, cast, runtime_checkable

import msgspec

from pi_agent_kernel.json_value import FrozenDict, freeze

__all__ = [
    "STANDARD_ROLES",
    "ZERO_USAGE",
    "AgentMessage",
    "AssistantBlock",
    "AssistantMessage",
    "Cost",
    "CustomMessage",
    "CustomMessageLike",
    "ImageContent",
    "Message",
    "StopReason",
    "SystemMessage",
    "TextContent",
    "ThinkingContent",
    "ThinkingLevel",
    "Tool",
    "ToolCall",
    "ToolReference",
    "ToolResultMessage",
    "Usage",
    "UserMessage",
    "now_ms",
    "text_of",
]

StopReason = Literal["pending", "stop", "length", "toolUse", "error", "aborted", "deferred"]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]

#: Roles that have a class here; every other role is a custom one (CO-13, MS-05).
STANDARD_ROLES = frozenset({"system", "user", "assistant", "toolResult"})

_set = msgspec.structs.force_setattr


def _tuple_in(message: msgspec.Struct, name: str) -> None:
    value: Any = getattr(message, name)
    if type(value) is list:
        _set(message, name, tuple(cast("list[Any]", value)))


def now_ms() -> int:
    """Return the wall clock in whole milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class TextContent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold text, with the provider's opaque signature of it (MS-06)."""

    type: ClassVar[Literal["text"]] = "text"

    text: str
    text_signature: str | None = None
    extra: FrozenDict | None = None


class ThinkingContent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold a model's reasoning; a redacted one carries only its signature (MS-06)."""

    type: ClassVar[Literal["thinking"]] = "thinking"

    thinking: str
    thinking_signature: str | None = None
    redacted: bool | None = None
    extra: FrozenDict | None = None


class ImageContent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold an image: base64 text and its media type (MS-06)."""

    type: ClassVar[Literal["image"]] = "image"

    data: str
    mime_type: str
    extra: FrozenDict | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold a request of the model to run a tool (MS-06).

    `arguments` is always an object and never changes. When the model's text was not a JSON
    object, or they are nested too deeply, `arguments` is empty and `arguments_error` says why;
    such a call is never executed (TL-06).
    """

    type: ClassVar[Literal["toolCall"]] = "toolCall"

    id: str
    name: str
    arguments: Mapping[str, Any] = FrozenDict()
    thought_signature: str | None = None
    namespace: str | None = None
    arguments_error: str | None = None
    extra: FrozenDict | None = None

    def __post_init__(self) -> None:
        if type(self.arguments) is not FrozenDict:
            try:
                _set(self, "arguments", freeze(self.arguments))
            except ValueError as error:  # nested too deeply
                _set(self, "arguments", FrozenDict())
                _set(self, "arguments_error", self.arguments_error or str(error))


AssistantBlock = TextContent | ThinkingContent | ToolCall


class Cost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold the price of one response in US dollars, by part (MD-19)."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0
    total: float = 0
    total_from_provider: bool | None = None
    extra: FrozenDict | None = None


ZERO_COST = Cost()


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold the tokens of one response; `input` excludes what the cache served (MD-19)."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int | None = msgspec.field(default=None, name="cacheWrite1h")
    reasoning: int | None = None
    total_tokens: int = 0
    cost: Cost = ZERO_COST
    extra: FrozenDict | None = None


#: The usage of a message that no request produced; shared, as it never changes.
ZERO_USAGE = Usage()


class Tool(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Declare a tool to the model: what it may see, nothing of how the tool runs (TR-11)."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = FrozenDict()
    constrained_sampling: Any = None
    extra: FrozenDict | None = None

    def __post_init__(self) -> None:
        if type(self.parameters) is not FrozenDict:
            _set(self, "parameters", freeze(self.parameters))
        if self.constrained_sampling is not None:
            _set(self, "constrained_sampling", freeze(self.constrained_sampling))


class ToolReference(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Name a tool that a system message withdraws (TR-01)."""

    name: str
    extra: FrozenDict | None = None


class SystemMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Patch the prompt and the tools the model knows (TR-01).

    The first one is the system prompt. A later one adds content, sets or removes (None) named
    `sections`, and declares tools added and removed. Replaying all of them in order gives the
    prompt and tools in force (TR-02, TR-03).
    """

    role: ClassVar[Literal["system"]] = "system"

    content: str | Sequence[TextContent] = ""
    sections: Mapping[str, str | None] | None = None
    tools_added: Sequence[Tool] | None = None
    tools_removed: Sequence[ToolReference] | None = None
    timestamp: int = msgspec.field(default_factory=now_ms)
    extra: FrozenDict | None = None

    def __post_init__(self) -> None:
        _tuple_in(self, "content")
        if self.sections is not None:
            _set(self, "sections", freeze(self.sections))
        _tuple_in(self, "tools_added")
        _tuple_in(self, "tools_removed")

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines; the sections are not in it."""
        return text_of(self.content)


class UserMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold what the user said: text, or text and image blocks (MS-01)."""

    role: ClassVar[Literal["user"]] = "user"

    content: str | Sequence[TextContent | ImageContent]
    timestamp: int = msgspec.field(default_factory=now_ms)
    extra: FrozenDict | None = None

    def __post_init__(self) -> None:
        _tuple_in(self, "content")

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return text_of(self.content)


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold one response of a model, complete or (stop_reason "pending") so far (MS-02)."""

    role: ClassVar[Literal["assistant"]] = "assistant"

    content: Sequence[AssistantBlock] = ()
    api: str = "unknown"
    provider: str = "unknown"
    model: str = "unknown"
    response_model: str | None = None
    response_id: str | None = None
    provider_thinking_level: str | None = None
    thinking_level: str | None = None
    diagnostics: Sequence[Any] | None = None
    usage: Usage = ZERO_USAGE
    stop_reason: StopReason = "stop"
    deferred: Mapping[str, Any] | None = None
    error_message: str | None = None
    raw_stop_reason: str | None = None
    end_turn: bool | None = None
    timestamp: int = msgspec.field(default_factory=now_ms)
    duration_ms: int | None = None
    extra: FrozenDict | None = None

    def __post_init__(self) -> None:
        _tuple_in(self, "content")
        if self.diagnostics is not None:
            _set(self, "diagnostics", freeze(self.diagnostics))
        if self.deferred is not None:
            _set(self, "deferred", freeze(self.deferred))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls among the blocks, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolCall))

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return text_of(self.content)


class ToolResultMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Answer one tool call (MS-03).

    `details` is for the application, never for the model; dicts and lists in it are frozen.
    `duration_ms` is absent when the tool did not run (TL-18).
    """

    role: ClassVar[Literal["toolResult"]] = "toolResult"

    tool_call_id: str
    tool_name: str
    content: Sequence[TextContent | ImageContent] = ()
    details: Any = None
    usage: Usage | None = None
    nested_calls: Mapping[str, Any] | None = None
    is_error: bool = False
    timestamp: int = msgspec.field(default_factory=now_ms)
    duration_ms: int | None = None
    extra: FrozenDict | None = None

    def __post_init__(self) -> None:
        _tuple_in(self, "content")
        if self.details is not None:
            _set(self, "details", freeze(self.details))
        if self.nested_calls is not None:
            _set(self, "nested_calls", freeze(self.nested_calls))

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return text_of(self.content)


class CustomMessage:
    """Hold a message of a role of your own; it reaches a model only if `convert_to_llm` maps it.

    Args:
        role: Any role but the four standard ones.
        timestamp: Milliseconds since the epoch; now by default.
        **fields: Everything else, readable as attributes.

    Raises:
        ValueError: The role is a standard one.

    Source: CO-13, MS-05.
    """

    __slots__ = ("fields", "role", "timestamp")

    role: str
    timestamp: int
    fields: FrozenDict

    def __init__(self, /, *, role: str, timestamp: int | None = None, **fields: Any) -> None:
        if role in STANDARD_ROLES:
            raise ValueError(f"{role!r} is a standard role: use its own message class.")
        object.__setattr__(self, "role", role)
        object.__setattr__(self, "timestamp", now_ms() if timestamp is None else timestamp)
        object.__setattr__(self, "fields", freeze(fields))

    def __getattr__(self, name: str) -> Any:
        if name not in CustomMessage.__slots__ and name in self.fields:
            return self.fields[name]
        raise AttributeError(f"This {self.role!r} message has no field {name!r}.")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"immutable type: 'CustomMessage' (setting {name!r})")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"immutable type: 'CustomMessage' (deleting {name!r})")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CustomMessage):
            return NotImplemented
        return (self.role, self.timestamp, self.fields) == (
            other.role,
            other.timestamp,
            other.fields,
        )

    def __hash__(self) -> int:
        return hash((self.role, self.timestamp))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_custom, (self.role, self.timestamp, dict(self.fields)))

    def __repr__(self) -> str:
        fields = "".join(f", {name}={value!r}" for name, value in self.fields.items())
        return f"CustomMessage(role={self.role!r}, timestamp={self.timestamp}{fields})"


def _rebuild_custom(role: str, timestamp: int, fields: dict[str, Any]) -> CustomMessage:
    return CustomMessage(role=role, timestamp=timestamp, **fields)


@runtime_checkable
class CustomMessageLike(Protocol):
    """**Protocol:** any object with a role and a timestamp may stand in a transcript (CO-13)."""

    @property
    def role(self) -> str:
        """A role of the application's own."""
        ...

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch."""
        ...


#: What a model understands.
Message = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage
#: What a transcript may hold.
AgentMessage = Message | CustomMessage | CustomMessageLike


def text_of(content: str | Sequence[object], separator: str = "\n") -> str:
    """Return the text of a message's content.

    Args:
        content: Text, or blocks; blocks other than text are skipped.
        separator: What joins the text blocks.

    Returns:
        The joined text.
    """
    if isinstance(content, str):
        return content
    return separator.join(block.text for block in content if isinstance(block, TextContent))
