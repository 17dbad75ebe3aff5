"""Why a prompt, a section or a message applies, or does not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pi_agent_kernel.explain.answer import Answer
from pi_agent_kernel.explain.story import Entry, Seen, Story, message_text, short
from pi_agent_kernel.log import HostCall
from pi_agent_kernel.messages import AssistantMessage, SystemMessage, UserMessage
from pi_agent_kernel.transcript import Replay

__all__ = ["lost_messages", "why_message", "why_prompt"]


def why_prompt(story: Story, words: Sequence[str] = ()) -> list[Answer]:
    """Say why the system prompt and its sections apply, or do not."""
    found = [*_overridden(story), *_replaced(story), *_dropped(story)]
    found += _patched(story, words)
    found += _collapsed(story)
    if not found and story.requests:
        request = story.requests[-1]
        line = short(request.system_prompt.split("\n", 1)[0]) or "empty"
        found.append(
            Answer(
                text=f"The prompt in force went with request {request.number}; it begins: {line}",
                events=(request.seq,),
                row="ST-03",
                is_problem=False,
            )
        )
    return found


def _overridden(story: Story) -> list[Answer]:
    prompt = story.log.unused_prompt
    if not prompt:
        return []
    return [
        Answer(
            text=f"The system_prompt {short(prompt, 40)!r} was never used: the messages the agent "
            "was made with begin with a system message, which wins.",
            events=tuple(request.seq for request in story.requests[:1]),
            row="CO-04",
            remedy="Leave one of the two out; or append a SystemMessage to state.messages.",
        )
    ]


def _replaced(story: Story) -> list[Answer]:
    """Find an assignment of messages that took the prompt away, or put another in."""
    answers: list[Answer] = []
    prompt = Replay(story.log.first_messages).prompt
    for record in story.assigned:
        now = Replay(record.event.messages).prompt
        if prompt and now != prompt and not now.startswith(prompt):
            what = "another prompt" if now else "no system message, so without prompt and tools"
            answers.append(
                Answer(
                    text=f"The host assigned messages with {what}.",
                    events=(record.seq,),
                    row="ST-03",
                    remedy="Keep the leading system message: the prompt is replayed from messages.",
                )
            )
        prompt = now
    return answers[-1:]


def _dropped(story: Story) -> list[Answer]:
    for request in reversed(story.requests[-20:]):
        before = [e.message for e in story.transcript if e.seq < request.seq]
        lost = [m for m in before if isinstance(m, SystemMessage) and _lacks(request.messages, m)]
        if lost and len(before) <= request.transcript_length:
            hook = story.dropping_stage(request, partial(_has, lost[0]))
            return [
                Answer(
                    text=f"{hook} dropped {_count(lost, 'system message')} from request "
                    f"{request.number}: the model saw neither that prompt nor its tools.",
                    events=(request.seq,),
                    row="CX-18",
                    remedy=f"Have {hook} keep the system messages.",
                )
            ]
    return []


def _patched(story: Story, words: Sequence[str]) -> list[Answer]:
    """Find sections that a later system message changed or removed."""
    answers: list[Answer] = []
    value: dict[str, str] = {}
    for entry in story.transcript:
        if not isinstance(entry.message, SystemMessage):
            continue
        for name, text in (entry.message.sections or {}).items():
            if name in value and value[name] != text:
                done = "removed" if text is None else f"replaced by {short(text, 40)!r}"
                who = f" ({entry.source.name}, {entry.source.by})" if entry.source else ""
                answers.append(
                    Answer(
                        text=f"Section {name!r} was {done} by a later system message{who}.",
                        events=tuple(
                            s for s in (entry.seq, entry.source and entry.source.seq) if s
                        ),
                        row="TR-03",
                        remedy="Append a system message with the section you want; the last wins.",
                        is_problem=bool(words),
                    )
                )
            if text is None:
                value.pop(name, None)
            else:
                value[name] = text
    named = [a for a in answers if any(repr(word) in a.text.lower() for word in words)]
    return named or answers


def _collapsed(story: Story) -> list[Answer]:
    if not story.requests:
        return []
    request = story.requests[-1]
    messages = list(request.messages)
    talk = next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), 0)
    later = [m for m in messages[talk:] if isinstance(m, SystemMessage) and _speaks(m)]
    if not later:
        return []
    return [
        Answer(
            text=f"Request {request.number} has {_count(later, 'system message')} in "
            f"mid-conversation; {request.provider} may take none there, and then reads the "
            "replayed prompt as one message in front.",
            events=(request.seq, *story.seqs_of(later)),
            row="TR-13",
            remedy="Do not rely on where it stands; its words count either way.",
            is_problem=False,
        )
    ]


def _speaks(message: SystemMessage) -> bool:
    return bool(message_text(message) or message.sections)


# --------------------------------------------------------------------- messages of the user


def why_message(story: Story, words: Sequence[str] = ()) -> list[Answer]:
    """Say what became of the messages that the user gave; those with the words, if any has."""
    found = lost_messages(story)
    if words:
        named = [a for a in found if any(word in a.text.lower() for word in words)]
        found = named or found
    if found:
        return found
    for entry in reversed(story.transcript):
        if isinstance(entry.message, UserMessage) and entry.seq:
            seen = next((r for r in story.requests if r.seq > entry.seq), None)
            if seen is not None:
                return [
                    Answer(
                        text=f"The message {_quoted(entry.message)} reached the model with request "
                        f"{seen.number}.",
                        events=(entry.seq, seen.seq),
                        row="LP-13",
                        is_problem=False,
                    )
                ]
    return []


def lost_messages(story: Story) -> list[Answer]:
    """Say which messages of the user did not reach the model."""
    return [
        *_refused(story),
        *_cleared(story),
        *_queued(story),
        *_unasked(story),
        *_dropped_users(story),
    ]


def _refused(story: Story) -> list[Answer]:
    return [
        Answer(
            text=f"{record.event.name.removesuffix('_refused')}({short(record.event.detail)!r}) "
            "was refused: a run was active, and nothing was changed.",
            events=(record.seq, *(run.start for run in story.runs if run.holds(record.seq))),
            row="LP-16",
            remedy="steer() or follow_up() it, or await wait_for_idle() first.",
        )
        for record in story.hosts_named("prompt_refused", "continue_refused", "reset_refused")
    ][-3:]


def _cleared(story: Story) -> list[Answer]:
    answers: list[Answer] = []
    waiting: list[Seen[HostCall]] = []
    kinds = {"clear_steering_queue": ("steer",), "clear_follow_up_queue": ("follow_up",)}
    for record in story.hosts:
        name = record.event.name
        if name in ("steer", "follow_up"):
            waiting.append(record)
        elif name in (*kinds, "reset"):
            dropped = [
                q for q in waiting if q.event.name in kinds.get(name, ("steer", "follow_up"))
            ]
            waiting = [q for q in waiting if q not in dropped]
            answers += [
                Answer(
                    text=f"The queued message {q.event.detail!r} was dropped by {name}().",
                    events=(record.seq, q.seq),
                    row="QU-06" if name in kinds else "AB-06",
                    remedy="Queue it again.",
                )
                for q in dropped
                if not story.delivered(q)
            ]
    return answers


def _queued(story: Story) -> list[Answer]:
    answers: list[Answer] = []
    for record in story.queued():
        call = record.event
        when = (
            "it is delivered after the current turn"
            if call.name == "steer"
            else "it is delivered when the agent would stop"
        )
        if story.active is None:
            when = "no run is active, so it waits for the next prompt()"
        answers.append(
            Answer(
                text=f"The message {call.detail!r} ({call.name}) is still queued: {when}.",
                events=(record.seq,),
                row="QU-03" if call.name == "steer" else "LP-12",
                remedy="prompt() or continue_() delivers it; clear_all_queues() drops it.",
            )
        )
    return answers


def _unasked(story: Story) -> list[Answer]:
    """Find messages of a run that ended before any request."""
    answers: list[Answer] = []
    for run in story.runs[-3:]:
        if story.requests_of(run) or not run.end:
            continue
        users = [
            e for e in story.transcript if run.holds(e.seq) and isinstance(e.message, UserMessage)
        ]
        if not users:
            continue
        aborted = bool(run.aborts)
        why = "aborted" if aborted else "failed"
        cause = run.aborts[0] if aborted else (run.decisions[-1] if run.decisions else run.failure)
        answers.append(
            Answer(
                text=f"The message {_quoted(users[-1].message)} reached no model: the run {why} "
                "before its first request.",
                events=(users[-1].seq, *([cause.seq] if cause else [])),
                row="DEVIATIONS 1" if aborted else "FL-02",
                remedy="It is in the transcript: prompt() again.",
            )
        )
    return answers


def _dropped_users(story: Story) -> list[Answer]:
    if not story.requests:
        return []
    request = story.requests[-1]
    before = [e for e in story.transcript if e.seq < request.seq and e.message is not None]
    last = next((e for e in reversed(before) if isinstance(e.message, UserMessage)), None)
    if last is None or not _lacks(request.messages, last.message):
        return []
    if not request.stages and not _is_converted(request.messages, before):
        return []
    hook = story.dropping_stage(request, partial(_has, last.message))
    return [
        Answer(
            text=f"{hook} dropped or changed the message {_quoted(last.message)} in request "
            f"{request.number}.",
            events=(request.seq, *([last.seq] if last.seq else [])),
            row="CO-07",
            remedy=f"Look at what {hook} returns; the transcript still has the message.",
        )
    ]


def _is_converted(sent: Sequence[Any], before: Sequence[Entry]) -> bool:
    """Whether what was sent is not just the transcript."""
    known = {id(entry.message) for entry in before}
    return any(id(m) not in known for m in sent if not isinstance(m, AssistantMessage))


def _has(message: Any, sent: Sequence[Any]) -> bool:
    return not _lacks(sent, message)


def _lacks(sent: Sequence[Any], message: Any) -> bool:
    return not any(one is message or one == message for one in sent)


def _quoted(message: Any) -> str:
    return repr(short(message_text(message), 60))


def _count(items: Sequence[Any], what: str) -> str:
    return f"1 {what}" if len(items) == 1 else f"{len(items)} {what}s"
