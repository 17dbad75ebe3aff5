"""Why the model knows a tool, or does not, and when it is told."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from pi_agent_kernel.explain.answer import Answer
from pi_agent_kernel.explain.calls import nearest, swap_of_tools, verdict
from pi_agent_kernel.explain.story import Run, Story, decided_by
from pi_agent_kernel.messages import SystemMessage
from pi_agent_kernel.transcript import Replay

__all__ = ["knowledge_of", "mismatches", "why_tool"]


def why_tool(story: Story, name: str) -> list[Answer]:
    """Say why a tool ran or did not: each of its calls, or why there is none."""
    calls = [call for call in story.calls if call.call.name == name]
    if calls:
        answers = [verdict(story, call) for call in calls[-8:]]
        if story.run is not None and calls[-1].run is not story.run:
            return answers + _not_in_last_run(story, story.run, name)
        if answers[-1].is_problem:
            return answers
        return answers + [a for a in knowledge_of(story, name) if a.is_problem][:1]
    known = knowledge_of(story, name)
    if any(answer.is_problem for answer in known) or not story.requests:
        return known
    last = next(r for r in reversed(story.requests) if name in story.declared(r))
    return [
        Answer(
            text=f"The model never called {name}, though request {last.number} declared it.",
            events=(last.seq, *(() if last.response_seq is None else (last.response_seq,))),
            row="LP-02",
            remedy="Ask for it in the prompt, or say in its description when to use it.",
        ),
        *known,
    ]


def _not_in_last_run(story: Story, run: Run, name: str) -> list[Answer]:
    """Say why a tool that earlier runs called was not called in the last one."""
    declaring = [r for r in story.requests_of(run) if name in story.declared(r)]
    if not declaring or name not in declaring[-1].executable or name not in story.executable:
        return knowledge_of(story, name)
    last = declaring[-1]
    return [
        Answer(
            text=f"In the last run the model did not call {name}, though request {last.number} "
            "declared it.",
            events=(last.seq, *(() if last.response_seq is None else (last.response_seq,))),
            row="LP-02",
            remedy="Ask for it in the prompt, or say in its description when to use it.",
        )
    ]


def knowledge_of(story: Story, name: str) -> list[Answer]:
    """Say whether, since when, and why not the model knows a tool."""
    last = story.requests[-1] if story.requests else None
    declared = name in (_written(story) if last is None else story.declared(last))
    for_run = last is not None and name in last.executable
    executable = name in story.executable
    if name not in story.tool_names():
        return [
            Answer(
                text=f"No tool {name!r} was ever there. {nearest(name, story.executable)}",
                events=tuple(seq for seq, _tools in story.loadouts[-1:] if seq),
                row="TL-04",
                remedy="Add it to state.tools.",
            )
        ]
    if last is not None and not declared:
        hidden = _hidden(story, name)
        if hidden is not None:
            return [hidden]
    set_at = _changed_at(story, name, present=executable)
    if (executable or for_run) and not declared:
        return [_not_yet(story, name, set_at)]
    removed = last is not None and not story.active and set_at > last.seq
    if declared and not executable and (removed or not for_run):
        return [_declared_only(story, name, set_at)]
    if not executable and not for_run:
        gone = _taken_back_at(story, name)
        why = "was removed by the host" if set_at else "is not among state.tools"
        back = " The model was told that it is gone." if gone else ""
        return [
            Answer(
                text=f"{name} {why}.{back}",
                events=tuple(filter(None, (set_at, *gone, last.seq if last else 0))),
                row="TR-05",
                remedy="Add it to state.tools; the first request of the next run announces it.",
            )
        ]
    if last is None:
        return [
            Answer(
                text=f"The transcript declares {name}: request 1 tells the model of it.",
                events=_told_at(story, name),
                row="TR-05",
                is_problem=False,
            )
        ]
    first = next(r for r in story.requests if name in story.declared(r))
    last = next(r for r in reversed(story.requests) if name in story.declared(r))
    return [
        Answer(
            text=f"The model knows {name}: requests {first.number} to {last.number} declare it."
            if first.number != last.number
            else f"The model knows {name}: request {first.number} declares it.",
            events=(first.seq, *_told_at(story, name)),
            row="TR-05",
            is_problem=False,
        )
    ]


def _written(story: Story) -> Iterable[str]:
    """Return the tools that the transcript declares."""
    return Replay(e.message for e in story.transcript if e.message is not None).tools


def _not_yet(story: Story, name: str, set_at: int) -> Answer:
    last = story.requests[-1] if story.requests else None
    number = last.number + 1 if last else 1
    active = story.active
    events = tuple(seq for seq in (set_at, last.seq if last else 0) if seq)
    if last is not None and name in last.executable:
        return Answer(
            text=f"{name} is executable but not declared yet: the context that came with request "
            f"{last.number} is declared before the next one.",
            events=events,
            row="TR-09",
            remedy=f"Request {number} announces it.",
        )
    if active is not None and set_at > active.start:
        return Answer(
            text=f"{name} is executable but not declared yet: it was added while a run was "
            "active, and a run keeps the tools it started with.",
            events=events,
            row="CO-12",
            remedy=f"The first request of the next run announces it (request {number} or later).",
        )
    swap = swap_of_tools(story, last.seq) if last is not None and set_at < last.seq else None
    if swap is not None:
        return Answer(
            text=f"{name} was not offered: {decided_by(swap.event)} replaced the run's tools, and "
            "it is not among them.",
            events=(swap.seq, *events),
            row="TR-09",
            remedy="Return a context whose tools include it.",
        )
    return Answer(
        text=f"{name} is executable but not declared yet: no request was made since it was added.",
        events=events,
        row="TR-05",
        remedy=f"Request {number}, the first of the next run, announces it.",
    )


def _declared_only(story: Story, name: str, set_at: int) -> Answer:
    at = _told_at(story, name)
    gone = "the host removed it" if set_at else "it was never among state.tools"
    return Answer(
        text=f"{name} is declared to the model but not executable: {gone}.",
        events=tuple(seq for seq in (set_at, *at) if seq) or _last_request(story),
        row="TR-10",
        remedy="Add it to state.tools; or prompt: the next request of a new run takes the "
        "declaration back.",
    )


def _hidden(story: Story, name: str) -> Answer | None:
    """Find the hook that kept a declaration of the transcript from the model."""
    request = story.requests[-1]
    sent = [e.message for e in story.transcript if 0 < e.seq < request.seq or e.seq == 0]
    if name not in Replay(m for m in sent if m is not None).tools:
        return None
    if name not in request.executable:
        return None
    hook = story.dropping_stage(request, lambda messages: name in Replay(messages).tools)
    return Answer(
        text=f"The model does not know {name}: the transcript declares it, but {hook} dropped "
        f"that system message from request {request.number}.",
        events=(request.seq, *_told_at(story, name)),
        row="CX-18",
        remedy=f"Have {hook} keep the system messages: they carry prompt and tools.",
    )


def mismatches(story: Story) -> list[Answer]:
    """Say which tools of the last run are declared but not executable, or the other way round."""
    run = story.run
    requests = story.requests_of(run) if run else []
    if not requests:
        return []
    request = requests[-1]
    declared = story.declared(request)
    called = {call.call.name for call in story.calls}
    answers = [
        Answer(
            text=f"{name} is declared in request {request.number} but not executable.",
            events=(request.seq, *_told_at(story, name)),
            row="TR-10",
            remedy="Add it to state.tools, or take its declaration out of the transcript.",
        )
        for name in declared
        if name not in request.executable and name not in called
    ]
    unknown = [name for name in request.executable if name not in declared]
    for name in unknown[:3]:
        found = _hidden(story, name)
        answers += [found] if found else [_not_yet(story, name, 0)]
    return answers


def _changed_at(story: Story, name: str, *, present: bool) -> int:
    """Return the record that last added or removed a tool; 0 for none."""
    found = 0
    loadouts = story.loadouts
    for (_, before), (seq, after) in pairwise(loadouts):
        if (name in after) == present and (name in before) != present:
            found = seq
    return found


def _told_at(story: Story, name: str) -> tuple[int, ...]:
    """Return the last record whose system message declared a tool."""
    found = [
        entry.seq
        for entry in story.transcript
        if isinstance(entry.message, SystemMessage)
        and any(tool.name == name for tool in entry.message.tools_added or ())
    ]
    return tuple(seq for seq in found[-1:] if seq)


def _taken_back_at(story: Story, name: str) -> tuple[int, ...]:
    """Return the last record whose system message took a declaration back."""
    found = [
        entry.seq
        for entry in story.transcript
        if isinstance(entry.message, SystemMessage)
        and any(tool.name == name for tool in entry.message.tools_removed or ())
    ]
    return tuple(seq for seq in found[-1:] if seq)


def _last_request(story: Story) -> tuple[int, ...]:
    return tuple(request.seq for request in story.requests[-1:])
