"""Why a message is there twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pi_agent_kernel.explain.answer import Answer
from pi_agent_kernel.explain.story import Entry, Story, message_text, short
from pi_agent_kernel.messages import AssistantMessage, CustomMessage, SystemMessage, UserMessage

__all__ = ["doubles"]

_WAYS = {
    "prompt": "prompted",
    "steer": "steered",
    "follow_up": "queued as a follow-up",
    "prepare_next_turn": "appended by the hook prepare_next_turn",
    "state.messages": "put into state.messages by the host",
}


def doubles(story: Story, words: Sequence[str] = ()) -> list[Answer]:
    """Say which messages the transcript, or the last request, has twice, and how that came."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in story.transcript:
        key = _key(entry.message)
        if key is not None:
            groups.setdefault(key, []).append(entry)
    answers = [_told(entries) for entries in groups.values() if len(entries) > 1]
    answers += _in_request(story, groups)
    named = [a for a in answers if any(word in a.text.lower() for word in words)]
    return named or answers


def _key(message: Any) -> tuple[str, str] | None:
    if not isinstance(message, UserMessage | SystemMessage | AssistantMessage | CustomMessage):
        return None
    if isinstance(message, AssistantMessage) and (
        message.tool_calls or message.stop_reason in ("error", "aborted")
    ):
        return None
    text = message_text(message)
    if isinstance(message, CustomMessage):
        text = repr(message)
    return (message.role, text) if text else None


def _told(entries: Sequence[Entry]) -> Answer:
    first, *_rest = entries
    sources = [_source(entry) for entry in entries[:4]]
    remedy, row = "Remove one from state.messages, or reset().", "LP-13"
    names = [entry.source.name if entry.source else "" for entry in entries]
    lines = {entry.source.by for entry in entries if entry.source}
    if names[0] == names[1] == "prompt" and len(lines) == 1 and "" not in lines:
        sources[1] += " (the same line, run again)"
        remedy = "Running a line or cell again prompts again: take the first turn back before."
    elif "steer" in names or "follow_up" in names:
        row, remedy = (
            "QU-01",
            "Queue a message in one way only; clear_all_queues() drops the others.",
        )
    elif "prepare_next_turn" in names:
        row, remedy = "LP-09", "Have the hook append it once."
    elif "state.messages" in names:
        row, remedy = "ST-06", "A run appends its messages itself: do not add them again."
    elif isinstance(first.message, AssistantMessage):
        row, remedy = "LP-01", "The model gave the same answer to two requests."
    # The later one is the one too many.
    numbers = [(e.source.seq if e.source else 0, e.seq) for e in reversed(entries)]
    events = [seq for pair in numbers for seq in pair if seq]
    return Answer(
        text=f"The {_role(first)} message {short(message_text(first.message), 60)!r} is there "
        f"{_times(len(entries))}: {', then '.join(sources)}.",
        events=tuple(events),
        row=row,
        remedy=remedy,
    )


def _in_request(story: Story, groups: dict[tuple[str, str], list[Entry]]) -> list[Answer]:
    """Find messages that a hook of the last request doubled."""
    if not story.requests:
        return []
    request = story.requests[-1]
    counts: dict[tuple[str, str], int] = {}
    for message in request.messages:
        key = _key(message)
        if key is not None:
            counts[key] = counts.get(key, 0) + 1
    answers: list[Answer] = []
    for key, count in counts.items():
        if count < 2 or count <= len(groups.get(key, ())):
            continue
        hook = next(
            (
                name
                for name, sent in request.stages
                if sum(_key(one) == key for one in sent) >= count
            ),
            "convert_to_llm",
        )
        answers.append(
            Answer(
                text=f"Request {request.number} has the {key[0]} message {short(key[1], 60)!r} "
                f"{_times(count)}: the hook {hook} added it; the transcript has it "
                f"{_times(len(groups.get(key, ())))}.",
                events=(request.seq,),
                row="CO-07",
                remedy=f"Have {hook} add it only where it is missing.",
            )
        )
    return answers


def _source(entry: Entry) -> str:
    if entry.source is not None:
        way = _WAYS.get(entry.source.name, f"given by {entry.source.name}")
        by = f" by {entry.source.by}" if entry.source.by else ""
        return f"{way}{by} (#{entry.source.seq})"
    if not entry.seq:
        return "there when the agent was made"
    return f"added by the run (#{entry.seq})"


def _role(entry: Entry) -> str:
    return str(getattr(entry.message, "role", ""))


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
