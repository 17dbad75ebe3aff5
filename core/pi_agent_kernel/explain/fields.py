"""Who changed a field of the state, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pi_agent_kernel.explain.answer import Answer
from pi_agent_kernel.explain.story import Story, short
from pi_agent_kernel.log import HostCall, LogRecord

__all__ = ["FIELD_ROWS", "writers_of"]

#: Every field of the state, and the rule that says who writes it.
FIELD_ROWS = {
    "system_prompt": "ST-03",
    "model": "ST-01",
    "thinking_level": "ST-01",
    "tools": "ST-02",
    "messages": "ST-06",
    "is_streaming": "ST-04",
    "streaming_message": "ST-05",
    "pending_tool_calls": "ST-07",
    "error_message": "ST-08",
    "turn_index": "ST-11",
    "total_turns": "ST-11",
}


def writers_of(story: Story, field: str) -> Answer:
    """Say what wrote a field last, and how often what wrote it before."""
    # The prompt is replayed from the messages: who changes these changes it.
    wanted = "messages" if field == "system_prompt" else field
    writers = [record for record in story.records if wanted in record.flat[::3]]
    if field == "system_prompt":
        writers = [record for record in writers if _is_system(record)]
    if not writers:
        return Answer(
            text=f"Nothing has changed {field} since the agent was made.",
            row=FIELD_ROWS[field],
            is_problem=False,
        )
    last = writers[-1]
    counts: dict[str, int] = {}
    for record in writers:
        counts[_writer(record)] = counts.get(_writer(record), 0) + 1
    all_ = ", ".join(f"{writer} {count}x" for writer, count in counts.items())
    change = next(c for c in last.changes if c.field == wanted)
    ago = story.since(last.time)
    moved = f", from {_shown(change.before)} to {_shown(change.after)}"
    if field == "system_prompt":
        moved = ", by a change of messages"
    return Answer(
        text=f"{field} was last written by {_named(last)}, {ago} ago{moved}. All writers: {all_}.",
        events=tuple(record.seq for record in reversed(writers)),
        row=FIELD_ROWS[field],
        is_problem=False,
    )


def _is_system(record: LogRecord) -> bool:
    message = getattr(record.event, "message", None)
    return isinstance(record.event, HostCall) or getattr(message, "role", "") == "system"


def _writer(record: LogRecord) -> str:
    return "the host" if isinstance(record.event, HostCall) else record.type


def _named(record: LogRecord) -> str:
    event = record.event
    if not isinstance(event, HostCall):
        return record.type
    return f"the host{f' ({event.by})' if event.by else ''}"


def _shown(value: Any) -> str:
    value = getattr(value, "id", None) or value
    if isinstance(value, tuple | frozenset):
        return f"({', '.join(sorted(map(str, cast('Sequence[object]', value))))})"
    return short(repr(value), 60)
