"""What a test expects of an event, and how it is told when something else came."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any, cast, get_args

import msgspec

from pi_agent_kernel.events import (
    ALL_EVENTS,
    AgentEvent,
    AssistantMessageUpdate,
    MessageUpdate,
    StreamEvent,
)
from pi_agent_kernel.messages import (
    AssistantMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from pi_agent_kernel.tool_results import AgentToolResult

__all__ = ["Expected", "Seen", "difference", "expect", "expected_of", "listing"]

_CLASSES: dict[str, type[Any]] = {kind.type: kind for kind in ALL_EVENTS}
#: What an event carries, and whose fields therefore count as its own.
_CARRIED: dict[str, tuple[type[Any], ...]] = {
    "message": (SystemMessage, UserMessage, AssistantMessage, ToolResultMessage),
    "result": (AgentToolResult,),
    "partial_result": (AgentToolResult,),
    "assistant_message_event": get_args(AssistantMessageUpdate),
}
_MISSING = object()
_LONGEST = 60


class Expected(msgspec.Struct, frozen=True):
    """Be what a test expects of one event; `expect` makes one."""

    type: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={_short(value)}" for name, value in self.fields.items())
        return f"{self.type}({shown})" if shown else self.type

    def fault(self, event: AgentEvent) -> str | None:
        """Say in what the event is not as expected, or None."""
        if event.type != self.type:
            return f"it is {event.type}"
        for name, wanted in self.fields.items():
            value = _value(event, name)
            if not _fits(value, wanted):
                has = "missing" if value is _MISSING else _short(value)
                return f"{name} is {has}, expected {_short(wanted)}"
        return None


class Seen(msgspec.Struct, frozen=True):
    """Be one event that came, with its number in the agent's log."""

    number: int | None
    event: AgentEvent

    @property
    def place(self) -> str:
        """The number as `explain` writes it; none if the log dropped the event."""
        return "#?" if self.number is None else f"#{self.number}"

    def __str__(self) -> str:
        return f"{self.place:<5} {self.event.type:<22} {_summary(self.event)}".rstrip()


def expect(event: str | type[Any], /, **fields: Any) -> Expected:
    """Say what an event has to be, for the assertions of `EventRecorder`.

    Args:
        event: Its wire string or class.
        **fields: Values of its fields, or of the fields of its message or result; `text` is the
            text of either. A function of the value says whether it is right, a compiled pattern
            is searched in it.

    Returns:
        What to give to an assertion.

    Raises:
        ValueError: There is no such event, or it has no such field.

    Example:
        >>> str(expect("tool_execution_end", tool_name="add", is_error=False))
        "tool_execution_end(tool_name='add', is_error=False)"
        >>> expect("tool_execution_end", tool="add")
        Traceback (most recent call last):
        ValueError: tool_execution_end has no field 'tool', only: content, details, duration_ms, is_error, raised, result, structured_content, terminate, text, tool_call_id, tool_name, usage.
    """  # noqa: E501 - the message is one line
    kind = getattr(event, "type", None) if isinstance(event, type) else event
    known = _CLASSES.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ValueError(f"There is no event {event!r}; the events are {sorted(_CLASSES)}.")
    names = _names(known)
    for name in fields:
        if name not in names:
            only = f"only: {', '.join(sorted(names))}" if names else "nor any other"
            raise ValueError(f"{known.type} has no field {name!r}, {only}.")
    return Expected(known.type, fields)


def expected_of(events: Iterable[str | type[Any] | Expected]) -> list[Expected]:
    """Turn names and classes into what they expect."""
    if isinstance(events, str | Expected):
        events = (events,)
    return [event if isinstance(event, Expected) else expect(event) for event in events]


def listing(seen: Sequence[Seen]) -> str:
    """List events one a line; updates in a row are one line."""
    return "\n".join(f"    {line}" for line in _lines(seen)) or "    nothing"


def difference(expected: Sequence[Expected], seen: Sequence[Seen]) -> str | None:
    """Compare events one by one; updates in a row count as one.

    Returns:
        None if all are as expected, else the lines of both: "-" what is missing, "+" what came
        instead, "!" what came with another field.
    """
    rows = _grouped(seen)
    kinds = [row[0].event.type for row in rows]
    lines: list[str] = []
    differ = False
    matcher = SequenceMatcher(a=[one.type for one in expected], b=kinds, autojunk=False)
    for tag, a0, a1, b0, b1 in matcher.get_opcodes():
        if tag == "equal":
            for wanted, row in zip(expected[a0:a1], rows[b0:b1], strict=True):
                # Of updates in a row any may be the one that is meant.
                fault = (
                    None
                    if any(not wanted.fault(one.event) for one in row)
                    else (wanted.fault(row[0].event))
                )
                differ = differ or fault is not None
                lines += [f"  ! {_row(row)}", f"      {fault}"] if fault else [f"    {_row(row)}"]
            continue
        differ = True
        lines += [f"  - {'':5} {one}" for one in expected[a0:a1]]
        lines += [f"  + {_row(row)}" for row in rows[b0:b1]]
    return "\n".join(lines) if differ else None


def _grouped(seen: Sequence[Seen]) -> list[list[Seen]]:
    rows: list[list[Seen]] = []
    for one in seen:
        update = isinstance(one.event, MessageUpdate)
        if update and rows and isinstance(rows[-1][0].event, MessageUpdate):
            rows[-1].append(one)
        else:
            rows.append([one])
    return rows


def _row(row: Sequence[Seen]) -> str:
    first = row[0]
    if len(row) == 1:
        return str(first)
    return f"{first.place:<5} {first.event.type:<22} {len(row)} of them, to {row[-1].place}"


def _lines(seen: Sequence[Seen]) -> list[str]:
    return [_row(row) for row in _grouped(seen)]


def _names(kind: type[Any]) -> set[str]:
    own: set[str] = set(kind.__struct_fields__)
    if kind is MessageUpdate:
        own.add("message")
    carriers = [name for name in own if name in _CARRIED]
    names = set(own)
    for carrier in carriers:
        for carried in _CARRIED[carrier]:
            names |= set(carried.__struct_fields__) - {"origin", "at", "extra"}
        names |= {"role", "text"} if carrier == "message" else set[str]()
        names |= {"text"} if carrier.endswith("result") else set[str]()
        names |= {"kind"} if carrier == "assistant_message_event" else set[str]()
    return names


def _value(event: AgentEvent, name: str) -> Any:
    if name in event.__struct_fields__ or (name == "message" and hasattr(event, name)):
        return getattr(event, name)
    for carrier in _CARRIED:
        carried: Any = getattr(event, carrier, None)
        if carried is None:
            continue
        if name == "text":
            return text_of(getattr(carried, "content", None) or ())
        if name == "kind" and isinstance(carried, StreamEvent):
            return carried.type
        value: Any = getattr(carried, name, _MISSING)
        if value is not _MISSING:
            return value
    return _MISSING


def _fits(value: Any, wanted: Any) -> bool:
    if value is _MISSING:
        return False
    if isinstance(wanted, re.Pattern):
        pattern = cast("re.Pattern[str]", wanted)
        return isinstance(value, str) and pattern.search(value) is not None
    if callable(wanted) and not isinstance(wanted, type):
        return bool(cast("Callable[[Any], object]", wanted)(value))
    return bool(value == wanted)


def _short(value: Any) -> str:
    if isinstance(value, re.Pattern):
        return f"/{cast('re.Pattern[str]', value).pattern}/"
    if callable(value) and not isinstance(value, type):
        return getattr(value, "__name__", "a function")
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _summary(event: AgentEvent) -> str:
    """Tell what of an event helps to recognise it."""
    parts: list[str] = []
    for name in ("tool_name", "is_error", "count", "attempt", "role", "stop_reason", "text"):
        value = _value(event, name) if name in _names(type(event)) else _MISSING
        if value is not _MISSING and value != "":
            parts.append(f"{name}={_short(value)}")
    return " ".join(parts)
