"""Replay of a transcript: which prompt and which tools are in force after these messages.

System messages are patches. Everything here is a pure function of a list of messages; roles
other than "system" are skipped, so any list works. `Replay` is the incremental form: feeding it
each message once gives the same answers in O(changes).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from pi_agent_kernel.json_value import thaw
from pi_agent_kernel.messages import (
    AgentMessage,
    Message,
    SystemMessage,
    Tool,
    ToolReference,
    text_of,
)
from pi_agent_kernel.request import TranscriptContext

__all__ = [
    "Replay",
    "ResolvedTools",
    "ToolStateChanges",
    "collapse_system_messages",
    "content_text",
    "create_initial_system_message",
    "declarations_equal",
    "declare_tool_changes",
    "get_current_system_message",
    "get_current_system_prompt",
    "get_current_tools",
    "get_declared_tools",
    "get_initial_system_message",
    "get_system_message_text",
    "get_tool_state_changes",
    "has_non_additive_tool_changes",
    "normalize_context",
    "render_system_message_update",
    "resolve_transcript",
    "resolve_transcript_tools",
    "without_initial_system_message",
]

content_text = text_of


class ToolStateChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the difference between two sets of tools (TR-05)."""

    tools_added: tuple[Tool, ...]
    tools_removed: tuple[ToolReference, ...]

    def __bool__(self) -> bool:
        return bool(self.tools_added or self.tools_removed)


class ResolvedTools(msgspec.Struct, frozen=True, kw_only=True):
    """Say which tools go into a request and how many system messages they come from."""

    request_tools: tuple[Tool, ...]
    folded_system_messages: int


class Replay:
    """Hold the prompt and tools in force after the messages fed so far (TR-02, TR-03)."""

    __slots__ = ("contents", "sections", "timestamp", "tools", "version")

    def __init__(self, messages: Iterable[AgentMessage] = ()) -> None:
        self.contents: list[str] = []
        self.sections: dict[str, str] = {}
        self.tools: dict[str, Tool] = {}
        self.timestamp: int | None = None
        #: Rises with every system message; equal versions mean equal answers.
        self.version: int = 0
        self.extend(messages)

    def extend(self, messages: Iterable[AgentMessage]) -> None:
        """Feed further messages, in order."""
        for message in messages:
            if isinstance(message, SystemMessage):
                self.add(message)

    def add(self, message: SystemMessage) -> None:
        """Feed one system message: removals first, then additions (TR-02)."""
        self.version += 1
        if self.timestamp is None:
            self.timestamp = message.timestamp
        text = text_of(message.content)
        if text:
            self.contents.append(text)
        for name, value in (message.sections or {}).items():
            if value is None:
                self.sections.pop(name, None)
            else:
                self.sections[name] = value
        for reference in message.tools_removed or ():
            self.tools.pop(reference.name, None)
        for tool in message.tools_added or ():
            self.tools[tool.name] = tool

    @property
    def head(self) -> SystemMessage | None:
        """All system messages as one; None if there were neither messages nor tools (TR-03)."""
        if self.timestamp is None:
            return None
        return SystemMessage(
            content="\n\n".join(self.contents),
            sections=dict(self.sections) if self.sections else None,
            tools_added=tuple(self.tools.values()) or None,
            timestamp=self.timestamp,
        )

    @property
    def prompt(self) -> str:
        """The prompt text: contents, then sections, empty parts skipped (TR-04)."""
        parts = [*self.contents, *self.sections.values()]
        return "\n\n".join(part for part in parts if part)


def create_initial_system_message(
    system_prompt: str | None, tools: Sequence[Tool] | None = None
) -> SystemMessage | None:
    """Make the leading system message with timestamp 0; None if both are empty (CO-04)."""
    if not system_prompt and not tools:
        return None
    return SystemMessage(
        content=system_prompt or "", tools_added=tuple(tools) if tools else None, timestamp=0
    )


def get_initial_system_message(messages: Sequence[AgentMessage]) -> SystemMessage | None:
    """Return the first message if it is a system message."""
    first = messages[0] if messages else None
    return first if isinstance(first, SystemMessage) else None


def without_initial_system_message(
    messages: Sequence[AgentMessage],
) -> Sequence[AgentMessage]:
    """Return the messages after a leading system message."""
    return messages[1:] if get_initial_system_message(messages) else messages


def get_current_tools(messages: Iterable[AgentMessage]) -> list[Tool]:
    """Return the tools the transcript declares, in order (TR-02)."""
    return list(Replay(messages).tools.values())


def get_current_system_message(messages: Iterable[AgentMessage]) -> SystemMessage | None:
    """Return the replayed head: prompt, sections and tools in force as one message (TR-03)."""
    return Replay(messages).head


def get_current_system_prompt(messages: Iterable[AgentMessage]) -> str:
    """Return the prompt text in force (TR-04)."""
    return Replay(messages).prompt


def get_declared_tools(messages: Iterable[AgentMessage]) -> list[Tool]:
    """Return every tool ever declared, each with its latest definition."""
    tools: dict[str, Tool] = {}
    for message in messages:
        if isinstance(message, SystemMessage):
            tools.update((tool.name, tool) for tool in message.tools_added or ())
    return list(tools.values())


def declarations_equal(left: Tool, right: Tool) -> bool:
    """Say whether two declarations tell a model the same (TR-06)."""
    # By their JSON: for Python 1 equals true.
    return left is right or _declaration_text(left) == _declaration_text(right)


def get_tool_state_changes(previous: Sequence[Tool], current: Sequence[Tool]) -> ToolStateChanges:
    """Return what to add and remove to get from one set of tools to another.

    A changed definition is a removal and an addition (TR-06); order does not count (A21).
    """
    before = {tool.name: tool for tool in previous}
    after = {tool.name: tool for tool in current}

    def same(name: str) -> bool:
        return name in before and name in after and declarations_equal(before[name], after[name])

    return ToolStateChanges(
        tools_added=tuple(tool for tool in current if not same(tool.name)),
        tools_removed=tuple(
            ToolReference(name=tool.name) for tool in previous if not same(tool.name)
        ),
    )


def declare_tool_changes(
    committed: Replay, executable: Sequence[Tool], pending: Sequence[AgentMessage]
) -> list[AgentMessage]:
    """Make the declared tools equal the executable ones, by a system message if need be.

    Args:
        committed: Replay of the transcript so far.
        executable: Declarations of the tools that can run.
        pending: Messages about to be appended. The last system message among them gets the true
            difference in place of its own tool fields, which are intent, not fact (TR-07).
            Without one, a new system message goes before the first other message (TR-08).

    Returns:
        The messages to append; the same objects where nothing had to change.
    """
    last = max(
        (i for i, message in enumerate(pending) if isinstance(message, SystemMessage)), default=-1
    )
    baseline: list[AgentMessage] = list(pending)
    declared = list(committed.tools.values())
    intent = pending[last] if last >= 0 else None
    if isinstance(intent, SystemMessage):
        baseline[last] = _with_tool_changes(intent, None)
        replay = Replay()
        replay.tools = dict(committed.tools)
        replay.extend(baseline)
        declared = list(replay.tools.values())
    changes = get_tool_state_changes(declared, executable)
    if isinstance(intent, SystemMessage):
        if changes or intent.tools_added or intent.tools_removed:
            baseline[last] = _with_tool_changes(intent, changes)
            return baseline
        return list(pending)
    if not changes:
        return baseline
    at = next(
        (i for i, message in enumerate(pending) if not isinstance(message, SystemMessage)),
        len(pending),
    )
    baseline.insert(at, _with_tool_changes(SystemMessage(), changes))
    return baseline


def normalize_context(
    messages: Sequence[Message],
    *,
    system_prompt: str | None = None,
    tools: Sequence[Tool] | None = None,
) -> TranscriptContext:
    """Put a separate prompt and tools, if any, into a leading system message (CO-02)."""
    head = create_initial_system_message(system_prompt, tools)
    return TranscriptContext(messages=[head, *messages] if head else messages)


def collapse_system_messages(context: TranscriptContext) -> TranscriptContext:
    """Fold all system messages into one leading message (TR-13)."""
    head = get_current_system_message(context.messages)
    rest = [message for message in context.messages if not isinstance(message, SystemMessage)]
    return TranscriptContext(messages=[head, *rest] if head else rest)


def resolve_transcript(
    context: TranscriptContext, *, supports_mid_conversation_system_messages: bool
) -> TranscriptContext:
    """Return the context as a provider can take it (TR-13)."""
    if supports_mid_conversation_system_messages:
        return context
    return collapse_system_messages(context)


def has_non_additive_tool_changes(messages: Iterable[AgentMessage]) -> bool:
    """Say whether any system message removes or redeclares a tool."""
    return _last_non_additive(_system_messages(messages)) >= 0


def resolve_transcript_tools(
    messages: Sequence[AgentMessage], support: Literal["none", "additions", "changes"]
) -> ResolvedTools:
    """Split tool declarations between the request and the transcript.

    Args:
        messages: The transcript.
        support: What the provider understands within a conversation: no tool changes, only
            additions, or all of them.

    Returns:
        The tools to send with the request, and how many leading system messages they replay.
    """
    system = _system_messages(messages)
    if support == "none":
        return ResolvedTools(
            request_tools=tuple(get_current_tools(system)), folded_system_messages=len(system)
        )
    if support == "changes":
        return ResolvedTools(request_tools=(), folded_system_messages=0)
    folded = max(1 if get_initial_system_message(messages) else 0, _last_non_additive(system) + 1)
    return ResolvedTools(
        request_tools=tuple(get_current_tools(system[:folded])), folded_system_messages=folded
    )


def get_system_message_text(message: SystemMessage) -> str:
    """Return one system message as a whole prompt (TR-04)."""
    parts = [text_of(message.content), *(message.sections or {}).values()]
    return "\n\n".join(part for part in parts if part)


def render_system_message_update(message: SystemMessage) -> str:
    """Return a later system message as text, its section changes framed by name."""
    parts = [text_of(message.content)]
    for name, value in (message.sections or {}).items():
        parts.append(
            f'Removed system prompt section "{name}".'
            if value is None
            else f'Updated system prompt section "{name}":\n\n{value}'
        )
    return "\n\n".join(part for part in parts if part)


def _declaration_text(tool: Tool) -> str:
    shown: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": thaw(tool.parameters),
    }
    if tool.constrained_sampling is not None:
        shown["constrainedSampling"] = thaw(tool.constrained_sampling)
    return json.dumps(shown, sort_keys=True)


def _with_tool_changes(message: SystemMessage, changes: ToolStateChanges | None) -> SystemMessage:
    return msgspec.structs.replace(
        message,
        tools_added=(changes.tools_added or None) if changes else None,
        tools_removed=(changes.tools_removed or None) if changes else None,
    )


def _system_messages(messages: Iterable[AgentMessage]) -> list[SystemMessage]:
    return [message for message in messages if isinstance(message, SystemMessage)]


def _last_non_additive(messages: Sequence[SystemMessage]) -> int:
    """Find the last message that removes a tool or declares a name a second time."""
    declared: set[str] = set()
    last = -1
    for index, message in enumerate(messages):
        if message.tools_removed:
            last = index
        for tool in message.tools_added or ():
            if tool.name in declared:
                last = index
            declared.add(tool.name)
    return last
