"""Why a run stopped, went on, or asked again."""

from __future__ import annotations

from itertools import pairwise

from pi_agent_kernel.explain.answer import Answer
from pi_agent_kernel.explain.story import Run, Seen, Story, decided_by, short
from pi_agent_kernel.log import HostCall
from pi_agent_kernel.messages import AssistantMessage

__all__ = ["overflows", "retries", "why_on", "why_stopped"]

#: What to do about a failed request, by its class.
_REMEDIES = {
    "rate_limit": "Wait, or make the agent with a RetryPolicy.",
    "overloaded": "Try again later, or make the agent with a RetryPolicy.",
    "server": "Try again later.",
    "connection": "Look at the network, then prompt again.",
    "timeout": "Try again; a smaller request is faster.",
    "incomplete": "Try again; the answer was cut.",
    "context_overflow": "Shorten the transcript (compaction, reset) or use a larger model.",
    "auth": "Look at the provider's key.",
    "quota": "Look at the provider's account; trying again does not help.",
    "not_found": "Look at the model's name.",
}


def why_stopped(story: Story) -> list[Answer]:
    """Say why the last run that ended stopped."""
    ended = [run for run in story.runs if run.end]
    if not ended:
        return []
    run = ended[-1]
    if run.failure is not None:
        return [_failed(run, run.failure)]
    return [_stopped(story, run)]


def _failed(run: Run, record: Seen[AssistantMessage]) -> Answer:
    message = record.event
    error = short(message.error_message or "", 300)
    response = next((r for r in run.responses if r.event.message is message), None)
    raised = _raised(run, record.seq)
    if message.stop_reason == "aborted":
        abort = run.aborts[0] if run.aborts else None
        by = (abort.event.detail or abort.event.by) if abort else ""
        return Answer(
            text=f"The run was aborted{f' ({by})' if by else ''}.",
            events=((abort.seq,) if abort else ()) + (record.seq, run.end),
            row="AB-01",
            remedy="prompt() goes on from the transcript as it is.",
        )
    if raised is not None:
        call = raised.event
        return Answer(
            text=f"The run failed: {call.name} ({call.by}) {short(call.detail, 200)}",
            events=(raised.seq, record.seq),
            row="FL-05" if call.name.startswith("listener") else "FL-02",
            remedy="Correct it; nothing else was lost, and a new prompt() works.",
        )
    kind = _kind(message)
    tried = f" after {len(run.retries)} more attempts" if run.retries else ""
    return Answer(
        text=f"The run ended in an error{tried}{f' ({kind})' if kind else ''}: {error}",
        events=(record.seq, *((response.seq,) if response else ()), run.end),
        row="MD-24" if kind == "context_overflow" else "FL-01" if response else "FL-02",
        remedy=_REMEDIES.get(kind, "prompt() again; the failed message is skipped in requests."),
    )


def _stopped(story: Story, run: Run) -> Answer:
    last = run.responses[-1] if run.responses else None
    message = last.event.message if last else None
    after = last.seq if last else run.start
    for record in run.decisions:
        call = record.event
        if (
            record.seq > after
            and call.name in ("finish_turn", "should_stop")
            and call.detail == "end"
        ):
            return Answer(
                text=f"The run was ended after this turn by {decided_by(call)}.",
                events=(record.seq, run.end),
                row="LP-07" if call.name == "finish_turn" else "S4-10",
                remedy="prompt() or continue_() goes on; queued messages are still queued.",
            )
    calls = [c for c in story.calls if message is not None and c.message is message]
    if calls and all(c.ended is not None and c.ended.result.terminate for c in calls):
        return Answer(
            text="The run stopped because every result of the last batch asked to terminate.",
            events=(*(c.end for c in calls), run.end),
            row="TL-16",
            remedy="Leave terminate out of one result to have the model answer.",
        )
    if message is not None and message.stop_reason == "length":
        return Answer(
            text="The run stopped with an answer cut at the output limit (length).",
            events=((last.seq,) if last else ()) + (run.end,),
            row="MS-04",
            remedy="Raise max_tokens, or prompt it to go on.",
        )
    return Answer(
        text="The run stopped because the model answered without calling a tool, and no message "
        "was queued.",
        events=((last.seq,) if last else ()) + (run.end,),
        row="LP-12",
        is_problem=False,
    )


def why_on(story: Story) -> list[Answer]:
    """Say for each further turn of the last run why it was taken."""
    run = story.run
    if run is None:
        return []
    answers: list[Answer] = []
    for begin, turn in pairwise(run.turns):
        answers.append(_reason(story, run, begin, turn))
    if not answers:
        return [
            Answer(
                text="The last run has one turn; it did not go on.",
                events=(run.start,),
                row="LP-01",
                is_problem=False,
            )
        ]
    return answers[-8:]


def _reason(story: Story, run: Run, begin: int, turn: int) -> Answer:
    number = run.turns.index(turn) + 1
    before = [c for c in story.calls if begin < c.asked < turn and c.start]
    if before and not all(c.ended and c.ended.result.terminate for c in before):
        cut = before[0].message.stop_reason == "length"
        names = ", ".join(c.call.name for c in before[:5])
        return Answer(
            text=f"Turn {number} was taken because the model called {names}"
            + (" in a truncated response, and has to call again." if cut else "."),
            events=(turn, before[0].asked),
            row="LP-03" if cut else "LP-01",
            is_problem=False,
        )
    nexts = [t for t in run.turns if t > turn]
    until = nexts[0] if nexts else run.end or 1 << 60
    for entry in story.transcript:
        if turn < entry.seq < until and entry.source is not None:
            name = entry.source.name
            if name in ("steer", "follow_up", "prepare_next_turn"):
                return Answer(
                    text=f"Turn {number} was taken for a message that {name} gave.",
                    events=(turn, entry.source.seq, entry.seq),
                    row={"steer": "QU-03", "follow_up": "LP-12"}.get(name, "LP-09"),
                    is_problem=False,
                )
    for record in run.decisions:
        call = record.event
        if begin < record.seq < turn and call.name == "finish_turn" and call.detail == "continue":
            return Answer(
                text=f"Turn {number} was taken because {decided_by(call)} said continue.",
                events=(turn, record.seq),
                row="LP-08",
                is_problem=False,
            )
    return Answer(text=f"Turn {number} was taken.", events=(turn,), row="LP-01", is_problem=False)


def retries(story: Story) -> list[Answer]:
    """Say which requests of the last run were made again, and why."""
    run = story.run
    answers: list[Answer] = []
    for record in run.retries if run else ():
        retry = record.event
        answers.append(
            Answer(
                text=f"The request failed ({retry.kind}: {short(retry.error_message)}) and was "
                f"made again after {retry.delay_ms} ms, attempt {retry.attempt} of "
                f"{retry.max_attempts}.",
                events=(record.seq,),
                row="MD-22",
                remedy=_REMEDIES.get(retry.kind, ""),
            )
        )
    return answers


def overflows(story: Story) -> list[Answer]:
    """Say which request did not fit the model's context window."""
    return [
        Answer(
            text="The request did not fit the context window: "
            f"{short(message.error_message or '', 200)}",
            events=(record.seq, *(r.seq for r in story.requests if r.response_seq == record.seq)),
            row="MD-24",
            remedy=_REMEDIES["context_overflow"],
        )
        for run in story.runs[-1:]
        for record in run.responses
        if _kind(message := record.event.message) == "context_overflow"
    ]


def _raised(run: Run, before: int) -> Seen[HostCall] | None:
    """Return what raised and failed the run; what failed a call only is not meant."""
    for record in run.decisions:
        call = record.event
        if record.seq < before and not call.call_id and call.detail.startswith("raised: "):
            return record
    return None


def _kind(message: AssistantMessage) -> str:
    from pi_agent_kernel.models.overflow import error_details, is_context_overflow
    from pi_agent_kernel.models.transient import transient_kind

    details = error_details(message)
    if details.get("kind"):
        return str(details["kind"])

    if is_context_overflow(message):
        return "context_overflow"
    return transient_kind(message) or ""
