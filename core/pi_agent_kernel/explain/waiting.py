"""What a run waits for right now, and since when."""

from __future__ import annotations

from time import monotonic

from pi_agent_kernel.events import ModelRetry
from pi_agent_kernel.explain.answer import Answer
from pi_agent_kernel.explain.story import Seen, Story
from pi_agent_kernel.notes import Awaited
from pi_agent_kernel.request_log import LoggedRequest

__all__ = ["why_waiting"]


def why_waiting(story: Story) -> list[Answer]:
    """Say what is awaited; that nothing is, if no run is active."""
    awaited = story.log.awaited()
    run = story.active
    if run is None and not awaited:
        last = story.run
        return [
            Answer(
                text="Nothing is awaited: no run is active"
                + (", the last one has settled." if last else " and none has been."),
                events=(last.idle,) if last else (),
                row="ST-04",
                is_problem=False,
            )
        ]
    asked = {one.call_id for one in awaited if one.kind == "approval"}
    awaited = [one for one in awaited if one.kind != "hook" or one.call_id not in asked]
    if awaited:
        busy = [one for one in awaited if one.kind != "tool"]
        return [_told(story, one) for one in (*busy, *(a for a in awaited if a.kind == "tool"))]
    retry = run.retries[-1] if run and run.retries else None
    if retry is not None and retry.seq == story.last_seq:
        return [_pause(retry)]
    request = story.requests[-1] if story.requests else None
    if request is not None and request.response is None:
        return [_model(story, request)]
    seq, time = story.log.last_sign()
    return [
        Answer(
            text=f"The run is active, between two steps; its last record is {story.since(time)} "
            "old.",
            events=(seq,),
            row="ST-04",
            remedy="Ask again; if nothing changes, something blocks the event loop of the run.",
        )
    ]


def _model(story: Story, request: LoggedRequest) -> Answer:
    last, time = story.log.last_sign()
    came = ", which has said nothing yet"
    if last > request.seq:
        came = f"; the last sign of it came {story.since(time)} ago"
    return Answer(
        text=f"The run waits for the model: request {request.number} to {request.model} was made "
        f"{story.since(request.time)} ago{came}.",
        events=(request.seq, *((last,) if last > request.seq else ())),
        row="S4-02",
        remedy="Wait, or abort(): a model's stream is cut off at once.",
    )


def _pause(retry: Seen[ModelRetry]) -> Answer:
    delay = retry.event.delay_ms / 1000
    left = max(0.0, delay - (monotonic() - retry.time))
    return Answer(
        text=f"The run waits before it makes the request again ({retry.event.kind}): {left:.1f} s "
        f"of {delay:g} s are left.",
        events=(retry.seq,),
        row="MD-22",
        remedy="Wait, or abort().",
    )


def _told(story: Story, one: Awaited) -> Answer:
    since = one.since
    seq = story.seq_at(since)
    for_ = f" for {story.since(since)}" if since is not None else ""
    by = f" ({one.by})" if one.by else ""
    if one.kind == "listener":
        if since is None:
            seq = story.event_before(one.name) or seq
            for_ = f" for {story.since(story.time_of(seq))}"
        ending = " The run counts as streaming until it returns." if one.name == "agent_end" else ""
        return Answer(
            text=f"The run waits for a listener of {one.name}{by}{for_}.{ending}",
            events=(seq,),
            row="EV-04" if one.name != "agent_end" else "ST-04",
            remedy="Have the listener return: an abort does not cut it off.",
        )
    if one.kind == "tool":
        call = story.call_of(one.call_id)
        return Answer(
            text=f"Tool {one.name} (call {one.call_id}) has been running{for_}{by}.",
            events=(call.start, seq) if call else (seq,),
            row="TL-09",
            remedy="Wait, abort(), or give the tool a timeout.",
        )
    call = story.call_of(one.call_id) if one.call_id else None
    about = f" about call {one.call_id} of {call.call.name}" if call else ""
    what = "a person's approval" if one.kind == "approval" else f"the hook {one.name}{by}"
    return Answer(
        text=f"The run waits for {what}{about}{for_}.",
        events=(call.start, seq) if call else (seq,),
        row="HK-01" if call else "CO-07",
        remedy="Answer it, or abort()."
        if one.kind == "approval"
        else "Have the hook return; after abort() it has the time of abort_grace.",
    )
