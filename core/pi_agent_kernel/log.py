"""The event log: every step of an agent in order, and what each changed.

The agent appends every event it delivers, and every call the host made (`HostCall`). A record
has a sequence number, a monotonic time, and the state fields it changed from what to what. The
deltas of one response are kept as one compact block and become records when they are read, so
a long answer costs little more than its text.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from pi_agent_kernel.events import AgentEvent, MessageUpdate

__all__ = ["EventLog", "FieldChange", "HostCall", "LogRecord"]


class HostCall(msgspec.Struct, frozen=True, kw_only=True):
    """Record what the host did: a method called on the agent, or a field of state assigned."""

    type: ClassVar[str] = "host_call"

    name: str
    detail: str = ""


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
    changes: tuple[FieldChange, ...] = ()

    @property
    def type(self) -> str:
        """The event's wire string, or "host_call"."""
        return self.event.type


class _Burst:
    """Hold consecutive updates of one message."""

    __slots__ = ("before", "events", "times")

    def __init__(self, before: Any) -> None:
        self.before = before
        self.events: list[MessageUpdate] = []
        self.times = array("d")


_Entry = tuple[int, float, Any, tuple[Any, ...] | None]


class EventLog:
    """Hold the records of one agent, oldest first.

    Args:
        max_events: How many of the last events to keep; None keeps all. A response that is
            still streaming is kept whole.

    Iterating, `len` and indexing give `LogRecord`s; reading is safe from any thread.
    """

    __slots__ = ("_burst", "_count", "_entries", "_max", "_next")

    def __init__(self, max_events: int | None = 100_000) -> None:
        if max_events is not None and max_events < 1:
            raise ValueError(f"max_events is at least 1 or None, not {max_events!r}.")
        self._max = max_events
        self._entries: deque[_Entry] = deque()
        self._next = itertools.count(1).__next__
        self._burst: _Burst | None = None
        self._count = 0

    # ------------------------------------------------------------------------- appending

    def append(self, event: AgentEvent | HostCall, changes: tuple[Any, ...] | None = None) -> None:
        """Add a record; only the agent does.

        Args:
            event: What happened.
            changes: Flat triples of field, before, after.
        """
        now = time.monotonic()
        seq = self._next()
        self._burst = None
        self._entries.append((seq, now, event, changes))
        self._count += 1
        if self._max is not None and self._count > self._max:
            self._trim()

    def append_update(self, event: MessageUpdate, before: Any) -> None:
        """Add an update of the open message; `before` is what streamed so far."""
        burst = self._burst
        now = time.monotonic()
        seq = self._next()
        if burst is None:
            burst = _Burst(before)
            self._entries.append((seq, now, burst, None))
            self._burst = burst
        burst.events.append(event)
        burst.times.append(now)
        self._count += 1

    # --------------------------------------------------------------------------- reading

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[LogRecord]:
        for seq, now, event, changes in list(self._entries):
            if isinstance(event, _Burst):
                yield from _unfold(seq, event)
            else:
                yield LogRecord(seq=seq, time=now, event=event, changes=_changes(changes))

    def __getitem__(self, index: int) -> LogRecord:
        count = self._count
        if not -count <= index < count:
            raise IndexError(f"The log has {count} records; index {index} is outside.")
        return next(itertools.islice(iter(self), index % count, None))

    def record(self, seq: int) -> LogRecord:
        """Return the record with this number.

        Raises:
            KeyError: No such record was written, or it has been dropped.
        """
        for record in self.since(seq):
            if record.seq == seq:
                return record
            break
        raise KeyError(f"The log has no record {seq}.")

    def since(self, seq: int) -> Iterator[LogRecord]:
        """Iterate the records from this number on."""
        return (record for record in self if record.seq >= seq)

    def of_type(self, *kinds: str) -> list[LogRecord]:
        """Return the records of these types, by wire string."""
        return [record for record in self if record.type in kinds]

    def tail(self, kind: str, before: int = 0) -> list[LogRecord]:
        """Return the records from the last one of a type on, and `before` more ahead of it."""
        records = list(self)
        starts = [index for index, record in enumerate(records) if record.type == kind]
        return records[max(0, starts[-1] - before) :] if starts else []

    def last_change(self, field: str) -> tuple[LogRecord, FieldChange] | None:
        """Return which record last changed a field of the state, and how."""
        found = None
        for record in self:
            for change in record.changes:
                if change.field == field:
                    found = (record, change)
        return found

    def _trim(self) -> None:
        assert self._max is not None
        entries = self._entries
        while self._count > self._max and len(entries) > 1:
            event = entries.popleft()[2]
            self._count -= len(event.events) if isinstance(event, _Burst) else 1


def _unfold(first: int, burst: _Burst) -> Iterator[LogRecord]:
    before = burst.before
    for offset, (event, now) in enumerate(zip(list(burst.events), burst.times, strict=False)):
        yield LogRecord(
            seq=first + offset,
            time=now,
            event=event,
            changes=(FieldChange("streaming_message", _shown(before), event.message),),
        )
        before = event


def _changes(flat: tuple[Any, ...] | None) -> tuple[FieldChange, ...]:
    if not flat:
        return ()
    return tuple(
        FieldChange(flat[i], _shown(flat[i + 1]), _shown(flat[i + 2]))
        for i in range(0, len(flat), 3)
    )


def _shown(value: Any) -> Any:
    return value.message if isinstance(value, MessageUpdate) else value
