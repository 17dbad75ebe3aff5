"""The state of an agent: who writes which field, and when.

`FIELDS` is the whole answer. The host writes four fields; everything else is written by
`AgentState.apply`, which turns one event into changes of the state, and by the start and end of
a run. No other code writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args

import msgspec

from pi_agent_kernel.events import (
    AgentEnd,
    AgentEvent,
    AgentIdle,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from pi_agent_kernel.log import EventLog
from pi_agent_kernel.messages import (
    AgentMessage,
    SystemMessage,
    ThinkingLevel,
)
from pi_agent_kernel.request import UNKNOWN_MODEL, Model
from pi_agent_kernel.state_lists import MessageList, ToolList
from pi_agent_kernel.tools import AgentTool, to_tool_declaration
from pi_agent_kernel.transcript import Replay, create_initial_system_message

__all__ = ["FIELDS", "AgentState", "Changes", "Field"]

#: What one event changed: field, before, after, field, before, after, ...
Changes = tuple[Any, ...]


class Field(msgspec.Struct, frozen=True):
    """Document one field of the state: its owner and the moments it is written."""

    name: str
    owner: str
    written: str
    source: str


#: Every field of the state, its one writer and its moments (ST-01 to ST-11).
FIELDS: tuple[Field, ...] = (
    Field("system_prompt", "runtime", "never: replayed from messages at each read", "ST-03"),
    Field("model", "host", "by assignment; a run uses the value it started with", "ST-01"),
    Field("thinking_level", "host", "by assignment; as model", "ST-01"),
    Field("tools", "host", "by assignment (copies) or in place; as model", "ST-02"),
    Field("messages", "host, runtime", "by the host as tools; message_end appends", "ST-06"),
    Field("is_streaming", "runtime", "true before agent_start; false before agent_idle", "ST-04"),
    Field(
        "streaming_message",
        "runtime",
        "message_start and message_update set; message_end and agent_end clear",
        "ST-05",
    ),
    Field(
        "pending_tool_calls",
        "runtime",
        "tool_execution_start adds; tool_execution_end removes",
        "ST-07",
    ),
    Field("error_message", "runtime", "turn_end sets; agent_start and reset() clear", "ST-08"),
    Field("turn_index", "runtime", "agent_start sets 0; turn_start adds 1", "ST-11"),
    Field("total_turns", "runtime", "turn_end adds 1 for a turn that was started", "ST-11"),
)

# Two readers at once must not feed one replay the same message twice.
_replaying = threading.Lock()

_LEVELS: tuple[str, ...] = get_args(ThinkingLevel)


class AgentState:
    """Hold what advances the loop, nothing else (ST-10). See `FIELDS` for who writes what.

    Reads are safe from any thread.
    """

    __slots__ = (
        "_error_message",
        "_is_streaming",
        "_log",
        "_messages",
        "_model",
        "_pending",
        "_replayed",
        "_thinking_level",
        "_tools",
        "_total_turns",
        "_turn_index",
        "_turn_open",
        "streaming",
    )

    def __init__(
        self,
        *,
        system_prompt: str,
        model: Model | None,
        thinking_level: ThinkingLevel,
        tools: Sequence[AgentTool],
        messages: Sequence[AgentMessage],
        log: EventLog,
    ) -> None:
        self._log = log
        self._tools = ToolList(tools, log)
        self._messages = MessageList(messages, log)
        led = bool(self._messages) and isinstance(self._messages[0], SystemMessage)
        if not led:
            declared = [to_tool_declaration(tool) for tool in self._tools]
            head = create_initial_system_message(system_prompt, declared)
            if head is not None:
                self._messages.lead_with(head)
        unused = system_prompt if led else ""
        log.begin_with(self._messages, [tool.name for tool in self._tools], unused)
        self._model = _model(model or UNKNOWN_MODEL)
        self._thinking_level: ThinkingLevel = _level(thinking_level)
        self._is_streaming = False
        #: What streams, unread: an update is turned into its message only when asked for.
        self.streaming: AgentMessage | MessageUpdate | None = None
        self._pending: frozenset[str] = frozenset()
        self._error_message: str | None = None
        self._turn_index = 0
        self._total_turns = 0
        self._turn_open = False
        self._replayed: tuple[MessageList, int, Replay] | None = None

    def __repr__(self) -> str:
        state = "running" if self._is_streaming else "idle"
        counts = f"{len(self._messages)} messages, {len(self._tools)} tools"
        return f"<AgentState: {state}, model {self._model.id}, {counts}>"

    # ----------------------------------------------------------------- written by the host

    @property
    def model(self) -> Model:
        """The model of the next run."""
        return self._model

    @model.setter
    def model(self, model: Model) -> None:
        before, self._model = self._model, _model(model)
        self._log.note("state", "model", ("model", before, self._model))

    @property
    def thinking_level(self) -> ThinkingLevel:
        """The thinking level of the next run."""
        return self._thinking_level

    @thinking_level.setter
    def thinking_level(self, level: ThinkingLevel) -> None:
        before, self._thinking_level = self._thinking_level, _level(level)
        self._log.note("state", "thinking_level", ("thinking_level", before, level))

    @property
    def tools(self) -> ToolList:
        """The tools of the next run; assigning copies the list, changing it in place counts."""
        return self._tools

    @tools.setter
    def tools(self, tools: Sequence[AgentTool]) -> None:
        before, self._tools = self._tools, ToolList(tools, self._log)
        self._log.note("state", "tools", ("tools", before.shown(), self._tools.shown()))

    @property
    def messages(self) -> MessageList:
        """The transcript; assigning copies the list, changing it in place counts."""
        return self._messages

    @messages.setter
    def messages(self, messages: Sequence[AgentMessage]) -> None:
        before, self._messages = self._messages, MessageList(messages, self._log)
        self._log.note_list("messages", len(before), self._messages)

    # -------------------------------------------------------------- written by the runtime

    @property
    def system_prompt(self) -> str:
        """The prompt in force, replayed from the system messages (ST-03)."""
        return self.replay().prompt

    @system_prompt.setter
    def system_prompt(self, _value: object) -> NoReturn:
        _read_only(
            "system_prompt",
            "it is replayed from the system messages: append a SystemMessage to state.messages, "
            "for example one with sections, or build a new agent",
        )

    @property
    def is_streaming(self) -> bool:
        """Whether a run is active, its agent_end listeners included (ST-04)."""
        return self._is_streaming

    @is_streaming.setter
    def is_streaming(self, _value: object) -> NoReturn:
        _read_only("is_streaming", "a run sets it: use prompt() and abort()")

    @property
    def streaming_message(self) -> AgentMessage | None:
        """The message between its start and its end, as it is by now (ST-05)."""
        streaming = self.streaming
        return streaming.message if isinstance(streaming, MessageUpdate) else streaming

    @streaming_message.setter
    def streaming_message(self, _value: object) -> NoReturn:
        _read_only("streaming_message", "the message events of a run set it")

    @property
    def pending_tool_calls(self) -> frozenset[str]:
        """Ids of the calls between their start and their end; a new set each time (ST-07)."""
        return self._pending

    @pending_tool_calls.setter
    def pending_tool_calls(self, _value: object) -> NoReturn:
        _read_only("pending_tool_calls", "the tool events of a run set it")

    @property
    def error_message(self) -> str | None:
        """Why the last turn failed or was aborted; cleared when a run starts (ST-08)."""
        return self._error_message

    @error_message.setter
    def error_message(self, _value: object) -> NoReturn:
        _read_only("error_message", "turn_end sets it and the next run clears it")

    @property
    def turn_index(self) -> int:
        """Turns started in this run, or in the last one (ST-11)."""
        return self._turn_index

    @turn_index.setter
    def turn_index(self, _value: object) -> NoReturn:
        _read_only("turn_index", "turn_start counts it")

    @property
    def total_turns(self) -> int:
        """Turns completed since the agent was made (ST-11)."""
        return self._total_turns

    @total_turns.setter
    def total_turns(self, _value: object) -> NoReturn:
        _read_only("total_turns", "turn_end counts it")

    # ------------------------------------------------------------------------------- writing

    def replay(self) -> Replay:
        """Replay the transcript; what an earlier call has seen is not read again."""
        with _replaying:
            return self._replay_now()

    def _replay_now(self) -> Replay:
        messages = self._messages
        known = self._replayed
        total = len(messages)
        if (
            known is not None
            and known[0] is messages
            and messages.version - messages.appended <= known[1]
        ):
            replay = known[2]
            start = total - (messages.version - known[1])
        else:
            replay = Replay()
            start = 0
        if start < total or known is None:
            replay.extend(messages[start:])
        self._replayed = (messages, messages.version, replay)
        return replay

    def begin_run(self) -> None:
        """Open a run: before its first event (ST-04)."""
        self._is_streaming = True

    def end_run(self) -> None:
        """Close a run: after its agent_end listeners (ST-04)."""
        self._is_streaming = False
        self.streaming = None
        self._pending = frozenset()

    def apply(self, event: AgentEvent) -> Changes | None:
        """Let one event change the state.

        Returns:
            What changed, or None; for `messages` before and after are lengths. A MessageUpdate
            does not come here: there are many, and it only sets `streaming`.
        """
        write = _WRITERS.get(type(event))
        return None if write is None else write(self, event)

    def _on_message_start(self, event: MessageStart) -> Changes:
        before, self.streaming = self.streaming, event.message
        return ("streaming_message", before, event.message)

    def _on_message_end(self, event: MessageEnd) -> Changes:
        before, self.streaming = self.streaming, None
        count = len(self._messages)
        self._messages.append_by_run(event.message)
        return ("streaming_message", before, None, "messages", count, count + 1)

    def _on_tool_start(self, event: ToolExecutionStart) -> Changes:
        before, self._pending = self._pending, self._pending | {event.tool_call_id}
        return ("pending_tool_calls", before, self._pending)

    def _on_tool_end(self, event: ToolExecutionEnd) -> Changes:
        before, self._pending = self._pending, self._pending - {event.tool_call_id}
        return ("pending_tool_calls", before, self._pending)

    def _on_turn_start(self, _event: TurnStart) -> Changes:
        before = self._turn_index
        self._turn_index = before + 1
        self._turn_open = True
        return ("turn_index", before, before + 1)

    def _on_turn_end(self, event: TurnEnd) -> Changes:
        changes: Changes = ()
        error = event.message.error_message
        if error:
            changes = ("error_message", self._error_message, error)
            self._error_message = error
        if self._turn_open:
            self._turn_open = False
            changes = (*changes, "total_turns", self._total_turns, self._total_turns + 1)
            self._total_turns += 1
        return changes

    def _on_agent_start(self, _event: AgentStart) -> Changes:
        changes: Changes = ("is_streaming", False, True)
        if self._error_message is not None:
            changes = (*changes, "error_message", self._error_message, None)
            self._error_message = None
        if self._turn_index:
            changes = (*changes, "turn_index", self._turn_index, 0)
            self._turn_index = 0
        self._turn_open = False
        return changes

    def _on_agent_end(self, _event: AgentEnd) -> Changes | None:
        if self.streaming is None:
            return None
        before, self.streaming = self.streaming, None
        return ("streaming_message", before, None)

    def _on_idle(self, _event: AgentIdle) -> Changes:
        return ("is_streaming", True, False)

    def clear_error(self) -> None:
        """Forget the last error; `reset` does (AB-06)."""
        before, self._error_message = self._error_message, None
        if before is not None:
            self._log.note("state", "error_message", ("error_message", before, None))


# Which method writes what an event changes.
_WRITERS: dict[type[Any], Callable[[AgentState, Any], Changes | None]] = {
    kind: vars(AgentState)[name]
    for kind, name in (
        (MessageStart, "_on_message_start"),
        (MessageEnd, "_on_message_end"),
        (ToolExecutionStart, "_on_tool_start"),
        (ToolExecutionEnd, "_on_tool_end"),
        (TurnStart, "_on_turn_start"),
        (TurnEnd, "_on_turn_end"),
        (AgentStart, "_on_agent_start"),
        (AgentEnd, "_on_agent_end"),
        (AgentIdle, "_on_idle"),
    )
}


def _read_only(name: str, remedy: str) -> NoReturn:
    raise AttributeError(f"state.{name} is read-only: {remedy}.")


def _model(model: object) -> Model:
    if not isinstance(model, Model):
        raise TypeError(f"A model is a Model, not {type(model).__name__}: {model!r}")
    return model


def _level(level: str) -> Any:
    if level not in _LEVELS:
        raise ValueError(f"A thinking level is one of {', '.join(_LEVELS)}, not {level!r}.")
    return level
