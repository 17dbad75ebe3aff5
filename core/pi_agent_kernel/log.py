"""The event log: every step of an agent in order, and what each changed.

The agent appends every event it delivers, and every call the host made (`HostCall`). A record
has a sequence number, a monotonic time, and the state fields it changed from what to what. The
deltas of one response are kept as times only and become records when they are read, so a long
answer costs little more than its text.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, ClassVar, cast

import msgspec

from pi_agent_kernel.events import (
    AgentEvent,
    AgentStart,
    AssistantMessageUpdate,
    MessageEnd,
    MessageUpdate,
    ModelRequestStart,
    ModelResponse,
    ResponseRecord,
)
from pi_agent_kernel.message_chain import KeptMessages
from pi_agent_kernel.messages import AgentMessage, AssistantMessage
from pi_agent_kernel.notes import Awaited, Notes, SentRequest, calling_line
from pi_agent_kernel.request_log import KeptRequest, LoggedRequest, RequestKeeper

__all__ = ["EventLog", "FieldChange", "HostCall", "LogRecord", "UpdateSpan"]


class HostCall(msgspec.Struct, frozen=True, kw_only=True):
    """Record what the host did: a method called, a field of state assigned, a hook's decision.

    Args:
        name: The method; "state" for a field; "prompt_refused" and the like for what the agent
            refused because it was busy; the hook's name; "listener of ..." for one that raised.
        detail: A short text; the field; what the hook decided.
        by: The line that called, or the function that decided.
        call_id: The tool call that a hook decided about.
        messages: What was prompted, queued or appended; the whole list where it was assigned.
    """

    type: ClassVar[str] = "host_call"

    name: str
    detail: str = ""
    by: str = ""
    call_id: str = ""
    messages: Sequence[AgentMessage] = ()


class FieldChange(msgspec.Struct, frozen=True):
    """Say that one field of the state changed; for `messages`, from one length to another."""

    field: str
    before: Any
    after: Any


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Be one step: its number from 1, its time in seconds on the monotonic clock, its event."""

    seq: int
    time: float
    event: AgentEvent | HostCall
    flat: tuple[Any, ...] = ()

    @property
    def changes(self) -> tuple[FieldChange, ...]:
        """What the step changed; a message that streamed is built when this is read."""
        flat = self.flat
        return tuple(
            FieldChange(flat[i], _shown(flat[i + 1]), _shown(flat[i + 2]))
            for i in range(0, len(flat), 3)
        )

    @property
    def type(self) -> str:
        """The event's wire string, or "host_call"."""
        return self.event.type


class UpdateSpan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Stand for updates of one message that follow each other: `seq` to `last`, both counted."""

    type: ClassVar[str] = "message_update"

    seq: int
    last: int
    time: float
    until: float


_trimming = threading.Lock()


class EventLog:
    """Hold the records of one agent, oldest first.

    Args:
        max_events: How many of the last events to keep; None keeps all. Up to twice as many
            may be held before the oldest are dropped.

    Iterating, `len` and indexing give `LogRecord`s; reading is safe from any thread.
    """

    # One list, one append per event: nothing can come between the parts of a record, whichever
    # thread or signal handler adds one meanwhile. An entry is (time, event, changes); the first
    # update of a response adds what streamed before it, and each further update of the same
    # response is its time alone: the response's own record knows the rest. The record of a
    # request adds what was sent, after a fourth part that is None.

    __slots__ = (
        "_at", "_dropped", "_entries", "_keeper", "_max", "_origin", "_run_dropped", "_sent",
        "first_messages", "first_tools", "notes", "unused_prompt",
    )  # fmt: skip

    def __init__(self, max_events: int | None = 100_000) -> None:
        if max_events is not None and max_events < 1:
            raise ValueError(
                f"max_events, an agent's max_log_events, is at least 1 or None: {max_events!r}"
            )
        self._max = max_events
        self._entries: list[Any] = []
        self._dropped = 0
        self._run_dropped = False
        self._origin: ResponseRecord | None = None
        self._at = 0
        self._keeper = RequestKeeper()
        self._sent: KeptRequest | None = None
        #: What a run tells this log.
        self.notes: Notes = Notes(self._note_request, self._note_decision)
        #: What the agent was made with: the transcript, and the names of the tools.
        self.first_messages: Sequence[AgentMessage] = ()
        self.first_tools: tuple[str, ...] = ()
        #: The system prompt that did not count, as the messages began with a system message.
        self.unused_prompt: str = ""

    # ------------------------------------------------------------------------- appending

    def append(self, event: AgentEvent | HostCall, changes: tuple[Any, ...] | None = None) -> None:
        """Add a record; only the agent does.

        Args:
            event: What happened.
            changes: Flat triples of field, before, after.
        """
        if type(event) is ModelRequestStart and self._sent is not None:
            sent, self._sent = self._sent, None
            self._entries.append((monotonic(), event, changes, None, sent))
        else:
            self._entries.append((monotonic(), event, changes))
        if self._max is not None and len(self._entries) > 2 * self._max:
            self._trim(self._max)

    def note(
        self,
        name: str,
        detail: str = "",
        changes: tuple[Any, ...] | None = None,
        *,
        by: str | None = None,
        messages: Sequence[AgentMessage] = (),
    ) -> None:
        """Add a call of the host, with the state fields it changed and the line it came from."""
        line = calling_line() if by is None else by
        self.append(HostCall(name=name, detail=detail, by=line, messages=messages), changes)

    def note_list(self, field: str, before: int, messages: Sequence[AgentMessage]) -> None:
        """Add that the host changed a list of messages other than by appending."""
        kept = self._keeper.keep_list(messages)
        self.note("state", field, (field, before, len(messages)), messages=kept)

    def begin_with(
        self, messages: Sequence[AgentMessage], tools: Sequence[str], unused_prompt: str
    ) -> None:
        """Keep what the agent was made with; no record is made of that."""
        self.unused_prompt = unused_prompt
        self.first_messages = self._keeper.keep_list(messages)
        self.first_tools = tuple(tools)

    def _note_decision(
        self, hook: str, what: str, by: str, call_id: str, messages: Sequence[AgentMessage]
    ) -> None:
        call = HostCall(name=hook, detail=what, by=by, call_id=call_id, messages=messages)
        self.append(call)

    def _note_request(self, sent: SentRequest) -> None:
        self._sent = self._keeper.keep(sent)

    def append_update(self, event: MessageUpdate, before: Any) -> None:
        """Add an update of the open message; `before` is what streamed so far."""
        step = event.assistant_message_event
        origin, at = step.origin, step.at
        if origin is self._origin and at == self._at + 1:
            self._entries.append(monotonic())
        else:
            self._entries.append((monotonic(), event, None, before))
            self._origin = None if isinstance(origin, AssistantMessage) else origin
        self._at = at

    # --------------------------------------------------------------------------- reading

    def __repr__(self) -> str:
        return f"<EventLog: {len(self)} records>"

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[LogRecord]:
        return self.since(1)

    def _snapshot(self) -> tuple[int, list[Any]]:
        with _trimming:
            return self._dropped, list(self._entries)

    def __getitem__(self, index: int) -> LogRecord:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"The log has {count} records; index {index} is outside.")
        return next(self.since(self._dropped + index % count + 1))

    @property
    def first_seq(self) -> int:
        """The number of the oldest record that is kept, or will be the first."""
        return self._dropped + 1

    @property
    def last_seq(self) -> int:
        """The number of the newest record; 0 before the first."""
        return self._dropped + len(self._entries)

    @property
    def max_events(self) -> int | None:
        """How many of the last events are kept at least; None for all."""
        return self._max

    @property
    def run_dropped(self) -> bool:
        """Whether the start of a run is among the records no longer kept."""
        return self._run_dropped

    def record(self, seq: int) -> LogRecord:
        """Return the record with this number.

        Raises:
            KeyError: No such record was written, or it has been dropped.
        """
        index = seq - self._dropped - 1
        if not 0 <= index < len(self):
            raise KeyError(f"The log has no record {seq}.")
        return self[index]

    def since(self, seq: int) -> Iterator[LogRecord]:
        """Iterate the records from this number on; what was before it is not read."""
        dropped, entries = self._snapshot()
        at = max(0, seq - dropped - 1)
        first, offset = _opening(entries, at)
        for number, entry in enumerate(entries[at:], dropped + at + 1):
            if isinstance(entry, float):
                offset += 1
                yield _update(number, entry, _later(first, offset), _later(first, offset - 1))
            elif len(entry) == 4:
                now, first, _, before = entry
                offset = 0
                yield _update(number, now, first, before)
            else:
                now, event, changes = entry[:3]
                yield LogRecord(seq=number, time=now, event=event, flat=changes or ())

    def folded(self, since: int = 1) -> Iterator[LogRecord | UpdateSpan]:
        """Iterate the records from a number on; updates that follow each other come as one."""
        dropped, entries = self._snapshot()
        at = max(0, since - dropped - 1)
        opened: int | None = None
        began = until = 0.0
        for number, entry in enumerate(entries[at:], dropped + at + 1):
            if isinstance(entry, float) or len(entry) == 4:
                until = entry if isinstance(entry, float) else entry[0]
                if opened is None:
                    opened, began = number, until
                continue
            if opened is not None:
                yield UpdateSpan(seq=opened, last=number - 1, time=began, until=until)
                opened = None
            now, event, changes = entry[:3]
            yield LogRecord(seq=number, time=now, event=event, flat=changes or ())
        if opened is not None:
            yield UpdateSpan(seq=opened, last=dropped + len(entries), time=began, until=until)

    def of_type(self, *kinds: str) -> list[LogRecord]:
        """Return the records of these types, by wire string."""
        return [record for record in self if record.type in kinds]

    def tail(self, kind: str, before: int = 0) -> list[LogRecord]:
        """Return the records from the last one of a type on, and `before` more ahead of it."""
        records = list(self)
        starts = [index for index, record in enumerate(records) if record.type == kind]
        return records[max(0, starts[-1] - before) :] if starts else []

    def steps(self) -> Iterator[LogRecord]:
        """Iterate the records without the updates of messages, which cost time to read."""
        dropped, entries = self._snapshot()
        for seq, entry in enumerate(entries, dropped + 1):
            if not isinstance(entry, float) and len(entry) != 4:
                now, event, changes = entry[:3]
                yield LogRecord(seq=seq, time=now, event=event, flat=changes or ())

    def last_sign(self) -> tuple[int, float]:
        """Return number and time of the last record, updates included; zeros if there is none."""
        dropped, entries = self._snapshot()
        if not entries:
            return 0, 0.0
        last = entries[-1]
        return dropped + len(entries), last if isinstance(last, float) else last[0]

    def requests(self) -> list[LoggedRequest]:
        """Return what the model saw at each request, as far as their records are kept."""
        found: list[LoggedRequest] = []
        dropped, entries = self._snapshot()
        for seq, entry in enumerate(entries, dropped + 1):
            if isinstance(entry, float):
                continue
            now, event = entry[:2]
            if len(entry) == 5:
                found.append(_logged(entry[4], seq, now, event))
            elif type(event) is ModelResponse and found and found[-1].response is None:
                found[-1] = msgspec.structs.replace(found[-1], response_seq=seq, response=event)
        return found

    def awaited(self) -> list[Awaited]:
        """Return what the run waits for right now, the longest wait first."""
        return self.notes.awaited()

    def last_change(self, field: str) -> tuple[LogRecord, FieldChange] | None:
        """Return which record last changed a field of the state, and how."""
        found = None
        for record in self:
            if field in record.flat[::3]:
                found = record
        if found is None:
            return None
        return found, next(change for change in found.changes if change.field == field)

    def _trim(self, keep: int) -> None:
        # Whoever comes while another thread, or the code a signal has interrupted, trims: later.
        if not _trimming.acquire(blocking=False):
            return
        try:
            entries = self._entries
            cut = len(entries) - keep
            if cut <= 0:
                return
            # An update that is a time alone is counted from the first one of its response.
            first: Any = None
            offset = 0
            for index, entry in enumerate(entries[: len(entries)]):
                if not isinstance(entry, float):
                    if len(entry) == 4:
                        first, offset = entry[1], 0
                        if index >= cut:
                            break
                    continue
                offset += 1
                if index >= cut:
                    event, before = _later(first, offset), _later(first, offset - 1)
                    entries[index] = (entry, event, None, before)
                    break
            self._run_dropped = self._run_dropped or any(
                not isinstance(entry, float) and isinstance(entry[1], AgentStart)
                for entry in entries[:cut]
            )
            # In place and at once: other threads go on appending to this list.
            del entries[:cut]
            self._dropped += cut
            self.first_messages = ()
            self._forget(entries)
            self._origin = None  # the next update may find nothing here to be counted from
        finally:
            _trimming.release()

    def _forget(self, entries: list[Any]) -> None:
        """Forget what no entry speaks of any more."""
        requests: list[KeptRequest] = []
        lists: list[KeptMessages] = []
        for entry in entries:
            if isinstance(entry, float):
                continue
            if len(entry) == 5:
                requests.append(entry[4])
            elif type(entry[1]) is HostCall and isinstance(entry[1].messages, KeptMessages):
                lists.append(entry[1].messages)
        self._keeper.keep_only(requests, lists)


def _logged(kept: KeptRequest, seq: int, now: float, event: ModelRequestStart) -> LoggedRequest:
    return LoggedRequest(
        number=kept.number,
        seq=seq,
        time=now,
        attempt=event.attempt,
        model=kept.model,
        provider=kept.provider,
        thinking_level=kept.thinking_level,
        options=kept.options,
        executable=kept.executable,
        transcript_length=kept.transcript_length,
        messages=kept.messages,
        stages=kept.stages,
    )


def _opening(entries: list[Any], at: int) -> tuple[Any, int]:
    """Find the update from which those at an index are counted, and how many lie between."""
    offset = 0
    for entry in reversed(entries[:at]):
        if isinstance(entry, float):
            offset += 1
        elif len(entry) == 4:
            return entry[1], offset
        elif isinstance(entry[1], MessageEnd):
            break
    return None, 0


def _later(first: MessageUpdate, offset: int) -> MessageUpdate:
    """Rebuild the update that came `offset` steps after the first of its response."""
    if offset == 0:
        return first
    step = first.assistant_message_event
    origin = step.origin
    record = cast("ResponseRecord", origin)
    event = cast("AssistantMessageUpdate", record.event_at(step.at + offset))
    return MessageUpdate(assistant_message_event=event)


def _update(seq: int, now: float, event: MessageUpdate, before: Any) -> LogRecord:
    return LogRecord(seq=seq, time=now, event=event, flat=("streaming_message", before, event))


def _shown(value: Any) -> Any:
    return value.message if isinstance(value, MessageUpdate) else value
