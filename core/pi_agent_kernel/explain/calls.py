"""Why a tool call ran, or did not."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import pairwise

from pi_agent_kernel.events import ToolExecutionEnd
from pi_agent_kernel.explain.answer import Answer
from pi_agent_kernel.explain.story import Call, Seen, Story, decided_by, short
from pi_agent_kernel.log import HostCall

__all__ = ["duplicate_ids", "nearest", "swap_of_tools", "verdict"]

_ABORTED = "Operation aborted"


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a remark that names the tool most like a name, or all there are."""
    close = difflib.get_close_matches(name, names, 1, 0.5)
    if close:
        return f"The nearest name is {close[0]!r}."
    return f"There is: {', '.join(names)}." if names else "There is no tool at all."


def verdict(story: Story, call: Call) -> Answer:
    """Say how one call went, and why."""
    name = f"Tool {call.call.name} (call {call.call.id})"
    if not call.start:
        return _never_taken_up(call, name)
    ended = call.ended
    if ended is None:
        return _still_open(story, call, name)
    if call.text == _ABORTED and ended.is_error:
        return _aborted(call, name)
    blocked = _decided(call, "before_tool_call", "blocked: ") is not None
    if ended.duration_ms is None and (blocked or "timed out after" not in call.text):
        return _did_not_run(story, call, ended, name)
    return _ran(call, ended, name)


def _never_taken_up(call: Call, name: str) -> Answer:
    reason = call.message.stop_reason
    if reason in ("error", "aborted"):
        return Answer(
            text=f"{name} did not run: the response that called it ended with {reason!r}, and "
            "calls of such a response are never executed.",
            events=(call.asked,),
            row="LP-04",
            remedy="Prompt again; the model has to make the call again.",
        )
    return Answer(
        text=f"{name} was called, and has not been taken up yet.",
        events=(call.asked,),
        row="TL-09",
        remedy="It is prepared after what comes before it; ask what is awaited.",
        is_problem=False,
    )


def _still_open(story: Story, call: Call, name: str) -> Answer:
    now = [one for one in story.log.awaited() if one.call_id == call.call.id]
    now.sort(key=lambda one: one.kind != "approval")  # a hook waits for it, too
    since = story.since(now[0].since if now and now[0].since else story.time_of(call.start))
    if now and now[0].kind == "tool":
        text = f"{name} is still running, for {since}."
        remedy = "Wait, abort() the run, or give the tool a timeout."
    elif now:
        what = "a person's approval" if now[0].kind == "approval" else f"hook {now[0].name}"
        text = f"{name} does not run yet: {what} ({now[0].by}) is awaited, for {since}."
        remedy = "Answer it, or abort() the run."
    else:
        text = (
            f"{name} was taken up {since} ago and has not ended: it waits for others, or its end "
            "is being told."
        )
        remedy = "Ask what is awaited; abort() ends it."
    return Answer(text=text, events=(call.start, call.asked), row="TL-09", remedy=remedy)


def _did_not_run(story: Story, call: Call, ended: ToolExecutionEnd, name: str) -> Answer:
    text, decided = call.text, _decided(call, "before_tool_call", "blocked: ")
    events = (call.end, call.start)
    if call.message.stop_reason == "length":
        return Answer(
            text=f"{name} did not run: the response was truncated at the output limit, so its "
            "arguments may be cut; no call of it is executed.",
            events=(call.end, call.asked),
            row="LP-03",
            remedy="Raise max_tokens, or have the model write less in one call.",
        )
    if decided is not None:
        by = decided_by(decided.event)
        ends = " It also asked to end the run." if ended.result.terminate else ""
        return Answer(
            text=f"{name} was blocked by {by}: {_said(decided, 'blocked: ')}{ends}",
            events=(decided.seq, call.end),
            row="HK-02",
            remedy="Allow it there, or change what it decides by.",
        )
    if text == f"Tool {call.call.name} not found":
        return _not_found(story, call, name)
    if text == _failure_of(call):
        cause = _cause_of_failure(call)
        return Answer(
            text=f"{name} did not end by itself: the run failed meanwhile, as {cause[0]}.",
            events=(*cause[1], call.end),
            row="FL-02",
            remedy="Correct what raised; the call got an error result.",
        )
    raised = _decided(call, "before_tool_call", "raised: ") or _decided(
        call, "prepare_arguments", "raised: "
    )
    if raised is not None:
        return Answer(
            text=f"{name} did not run: hook {raised.event.name} ({raised.event.by}) raised "
            f"{_said(raised, 'raised: ')}",
            events=(raised.seq, call.end),
            row="HK-06",
            remedy="Correct the hook; an exception in it fails the call.",
        )
    if text.startswith(("Validation failed for tool", "Invalid arguments for tool")):
        return _invalid(call, name, text)
    return Answer(text=f"{name} did not run: {short(text, 200)}", events=events, row="TL-18")


def _aborted(call: Call, name: str) -> Answer:
    aborts = [r for r in (call.run.aborts if call.run else ()) if r.seq < call.end]
    return Answer(
        text=f"{name} was aborted{_ran_before(call)}: {_abort_text(aborts)}.",
        events=(call.end, *(record.seq for record in aborts[:1])),
        row="AB-03",
        remedy="Prompt again to have it called again.",
    )


def _invalid(call: Call, name: str, text: str) -> Answer:
    lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]
    cut = next((i for i, line in enumerate(lines) if line.startswith("Received")), len(lines))
    which = "; ".join(line.removeprefix("- ") for line in lines[:cut]) or text.partition(": ")[2]
    replaced = _decided(call, "before_tool_call", "replaced the arguments")
    if replaced is not None:
        return Answer(
            text=f"{name} did not run: the arguments that {replaced.event.by} put in are invalid "
            f"({short(which, 200)}).",
            events=(replaced.seq, call.end),
            row="HK-03",
            remedy="Correct the hook: what it puts in is validated again.",
        )
    return Answer(
        text=f"{name} did not run: its arguments are invalid ({short(which, 200)}).",
        events=(call.end, call.start),
        row="TL-06" if call.call.arguments_error else "TL-05",
        remedy="The model was told, and may call again; a clearer schema or description helps.",
    )


def _not_found(story: Story, call: Call, name: str) -> Answer:
    tool, request = call.call.name, call.request
    executable = request.executable if request else story.executable
    declared = request is not None and tool in story.declared(request)
    began = call.run.start if call.run else 0
    changed = [
        (seq, tool in before, tool in after)
        for (_, before), (seq, after) in pairwise(story.loadouts)
        if seq < call.end
    ]
    late = [seq for seq, had, has in changed if seq > began and has and not had]
    gone = [seq for seq, had, has in changed if had and not has]
    known = any(tool in loadout for _, loadout in story.loadouts)
    swapped = swap_of_tools(story, call.end) if known and tool not in executable else None
    if late:
        return Answer(
            text=f"{name} did not run: the host added it while the run was active, and a run "
            "executes the tools it started with.",
            events=(late[-1], call.end),
            row="CO-12",
            remedy="Prompt again: the next run has it; or add it by prepare_next_turn.",
        )
    if swapped is not None:
        return Answer(
            text=f"{name} did not run: {swapped.event.name} replaced the run's tools, "
            f"and it is not among them.",
            events=(swapped.seq, call.end),
            row="TR-09",
            remedy="Return a context whose tools include it.",
        )
    hook = story.declaring_stage(request, tool) if declared and request else None
    if hook is not None and request is not None:
        return Answer(
            text=f"{name} did not run: {hook} declares it to the model in request "
            f"{request.number}; it is not executable, and the transcript knows nothing of it.",
            events=(call.end, request.seq),
            row="TR-10",
            remedy=f"Add the tool to state.tools, or have {hook} leave it out.",
        )
    if declared:
        when = f" The host removed it (#{gone[-1]})." if gone else ""
        return Answer(
            text=f"{name} did not run: the transcript declares it to the model, but it is not "
            f"executable.{when}",
            events=(call.end, request.seq if request else call.asked, *gone[-1:]),
            row="TR-10",
            remedy="Add the tool to state.tools, or remove its declaration with "
            "SystemMessage(tools_removed=[...]).",
        )
    if gone:
        return Answer(
            text=f"{name} did not run: the host removed it before.",
            events=(gone[-1], call.end),
            row="TL-04",
            remedy="Add it to state.tools again.",
        )
    return Answer(
        text=f"{name} did not run: no tool has this name. {nearest(tool, executable)}",
        events=(call.end, call.asked),
        row="TL-04",
        remedy="Add a tool of this name, or tell the model the right one.",
    )


def swap_of_tools(story: Story, before: int) -> Seen[HostCall] | None:
    """Return the last decision of a hook, before a record, that replaced the tools of its run."""
    swaps = [
        decision
        for run in story.runs
        if run.holds(before)
        for decision in run.decisions
        if decision.event.name in ("prepare_request", "prepare_next_turn")
        and "context" in decision.event.detail
        and decision.seq < before
    ]
    return swaps[-1] if swaps else None


def _ran(call: Call, ended: ToolExecutionEnd, name: str) -> Answer:
    text = short(call.text, 200)
    if "timed out after" in call.text and ended.duration_ms is None:
        return Answer(
            text=f"{name} was cut off: {text}.",
            events=(call.end, call.start),
            row="TL-13",
            remedy="Raise the tool's timeout, or make it faster.",
        )
    ran = f"{name} ran for {ended.duration_ms} ms"
    for hook in ("after_tool_call", "after_tool_result"):
        raised = _decided(call, hook, "raised: ")
        if raised is not None and ended.is_error:
            return Answer(
                text=f"{ran}, but hook {hook} ({raised.event.by}) raised "
                f"{_said(raised, 'raised: ')}",
                events=(raised.seq, call.end),
                row="HK-06",
                remedy="Correct the hook; an exception in it fails the call.",
            )
    if ended.is_error and ended.raised:
        return Answer(
            text=f"{ran} and raised {ended.raised}: {text}",
            events=(call.end, call.start),
            row="TL-13",
            remedy="Correct the tool; the model read the text as the call's result.",
        )
    for hook in ("after_tool_call", "after_tool_result"):
        changed = _decided(call, hook, "replaced")
        if changed is not None:
            outcome = "failed" if ended.is_error else "succeeded"
            return Answer(
                text=f"{ran} and {outcome}; hook {hook} ({changed.event.by}) "
                f"{changed.event.detail}: {text}",
                events=(call.end, changed.seq),
                row="HK-04" if hook == "after_tool_call" else "S4-09",
                is_problem=ended.is_error,
            )
    if ended.is_error:
        return Answer(
            text=f"{ran} and returned an error: {text}",
            events=(call.end, call.start),
            row="TL-14",
            remedy="The tool flagged its own result; look at what it returns.",
        )
    ends = " It asked to end the run." if ended.result.terminate else ""
    return Answer(
        text=f"{ran} and succeeded.{ends}",
        events=(call.end, call.start),
        row="TL-16" if ends else "TL-03",
        is_problem=False,
    )


def duplicate_ids(story: Story) -> list[Answer]:
    """Say which ids several calls have."""
    by_id: dict[str, list[Call]] = {}
    for call in story.calls:
        by_id.setdefault(call.call.id, []).append(call)
    return [
        Answer(
            text=f"{len(calls)} calls have the id {call_id!r} "
            f"({', '.join(call.call.name for call in calls[:5])}); results are matched in order.",
            events=tuple(call.asked for call in calls),
            row="TR-15",
            remedy="The provider or the script made the id twice; a request makes them unique.",
        )
        for call_id, calls in by_id.items()
        if len(calls) > 1
    ]


# ------------------------------------------------------------------------------- decisions


def _decided(call: Call, hook: str, start: str) -> Seen[HostCall] | None:
    fits = (
        one
        for one in reversed(call.decisions)
        if one.event.name == hook and one.event.detail.startswith(start)
    )
    return next(fits, None)


def _said(decision: Seen[HostCall], start: str) -> str:
    return short(decision.event.detail.removeprefix(start), 200)


def _failure_of(call: Call) -> str:
    """Return the error of a run that failed after the call had ended, else nothing."""
    failure = call.run.failure if call.run else None
    return "" if failure is None or failure.seq < call.end else failure.event.error_message or ""


def _cause_of_failure(call: Call) -> tuple[str, tuple[int, ...]]:
    for record in reversed(call.run.decisions if call.run else ()):
        event = record.event
        if event.detail.startswith("raised: ") and not event.call_id:
            return f"{event.name} ({event.by}) {short(event.detail, 200)}", (record.seq,)
    return "something raised", ()


def _ran_before(call: Call) -> str:
    ended = call.ended
    return "" if ended is None or ended.duration_ms is None else f" after {ended.duration_ms} ms"


def _abort_text(aborts: Sequence[Seen[HostCall]]) -> str:
    if not aborts:
        return "the run was aborted"
    event = aborts[0].event
    return f"the run was aborted ({event.detail or event.by or 'by the host'})"
