"""Say in words what an agent did and why, from its log alone, citing record numbers.

No model is asked. A question is matched to rules by the subjects it names (tools, calls, fields,
requests, records) and by its words; each rule answers in one sentence, with the records that
show it, the rule's row, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pi_agent_kernel.explain.answer import Answer, Explanation
from pi_agent_kernel.explain.calls import duplicate_ids, verdict
from pi_agent_kernel.explain.contents import request_answers
from pi_agent_kernel.explain.declarations import knowledge_of, mismatches, why_tool
from pi_agent_kernel.explain.doubles import doubles
from pi_agent_kernel.explain.endings import overflows, retries, why_on, why_stopped
from pi_agent_kernel.explain.fields import writers_of
from pi_agent_kernel.explain.findings import findings
from pi_agent_kernel.explain.prompts import lost_messages, why_message, why_prompt
from pi_agent_kernel.explain.question import TOPICS, Question, read_question
from pi_agent_kernel.explain.steps import told
from pi_agent_kernel.explain.story import Story
from pi_agent_kernel.explain.waiting import why_waiting
from pi_agent_kernel.log import EventLog

__all__ = ["Answer", "Explanation", "explain"]


def explain(log: EventLog, question: str | None = None) -> Explanation:
    """Answer a question, or tell the last run.

    Args:
        log: The agent's log.
        question: What to ask, in any words. By default the last run is told in steps, and before
            them what the rules find odd about it.

    Returns:
        A text: answers, each with the records it cites, then steps of the form "#12 ...". Its
        `answers` are there to be rendered. A line before them says so when the log no longer holds
        all that was asked for.
    """
    story = Story(log)
    if question is None or not question.strip():
        return _tell(story)
    return _answer(story, question.strip())


def _tell(story: Story) -> Explanation:
    run = story.run
    if run is None and not story.log.run_dropped:
        waiting = findings(story)
        return Explanation(waiting, ["The agent has not run yet."])
    # A run is told from the host's call before it; what matters is whether its start is there.
    first = 0 if run is None else run.before or run.start
    steps = [line for r in story.records if r.seq >= first for line in told(r)]
    return Explanation(findings(story), steps, _cut(story) if run is None else ())


def _answer(story: Story, text: str) -> Explanation:
    question = read_question(text, story)
    answers = list(dict.fromkeys(_answers(story, question)))
    lines = [line for record in story.records for line in told(record)]
    about = _about(question, lines)
    head = _cut(story)
    if answers:
        return Explanation(answers, about if question.tools or question.calls else (), head)
    if about:
        return Explanation((), about, head)
    nothing = (
        f"The log shows nothing of the kind that {text!r} asks for."
        if question.is_understood
        else f"Nothing in the log mentions any word of {text!r}."
    )
    asked = ["You can ask: " + " ".join(example for example, *_ in TOPICS.values())]
    return Explanation((), [nothing, *asked, *_tell(story).steps], head)


def _answers(story: Story, question: Question) -> list[Answer]:
    found: list[Answer] = []
    topics = question.topics
    for call_id in question.calls:
        found += [verdict(story, c) for c in story.calls if c.call.id == call_id]
    for name in question.tools:
        if "knows" in topics:
            found += knowledge_of(story, name)
        else:
            found += why_tool(story, name)
    for number in question.requests:
        found += request_answers(story, [number])
    if question.fields and not (question.tools or question.calls or question.requests):
        found += [writers_of(story, field) for field in question.fields]
    if question.records:
        found += _citing(story, question.records)
    specific = bool(found)
    for topic, rule in _RULES.items():
        if topic in topics and (not specific or topic in _ALWAYS):
            found += rule(story, question)
    if not found and question.unknown and topics & {"tool", "knows", "blocked", "failed"}:
        for name in question.unknown:
            found += knowledge_of(story, name)
    return found


def _calls(story: Story, question: Question) -> list[Answer]:
    if question.unknown:
        return [a for name in question.unknown for a in knowledge_of(story, name)]
    found = [verdict(story, call) for call in story.calls[-20:]]
    return [a for a in found if a.is_problem] or found[-3:]


def _blocked(story: Story) -> list[Answer]:
    found = [verdict(story, call) for call in story.calls]
    return [a for a in found if a.row == "HK-02"][-8:]


def _failed(story: Story) -> list[Answer]:
    found = [verdict(story, call) for call in story.calls]
    stopped = [a for a in why_stopped(story) if a.is_problem]
    return [*stopped, *[a for a in found if a.is_problem][-8:]]


def _knows(story: Story, question: Question) -> list[Answer]:
    if question.unknown:
        return [a for name in question.unknown for a in knowledge_of(story, name)]
    pending = [a for n in story.executable for a in knowledge_of(story, n)]
    return [*mismatches(story), *(a for a in pending if a.is_problem)] or pending


def _stopped(story: Story, question: Question) -> list[Answer]:
    if "on" in question.topics or "waiting" in question.topics:
        return []
    return why_waiting(story) if story.active and not story.run_ended else why_stopped(story)


def _busy(story: Story) -> list[Answer]:
    return [a for a in lost_messages(story) if a.row == "LP-16"]


#: Topics that add to the answers about a named subject.
_ALWAYS = frozenset({"twice", "ids", "waiting"})

_RULES: dict[str, Callable[[Story, Question], list[Answer]]] = {
    "waiting": lambda story, _: why_waiting(story),
    "ids": lambda story, _: duplicate_ids(story),
    "twice": lambda story, question: doubles(story, _quoting(question)),
    "blocked": lambda story, _: _blocked(story),
    "busy": lambda story, _: _busy(story),
    "knows": _knows,
    "retry": lambda story, _: retries(story),
    "overflow": lambda story, _: overflows(story),
    "on": lambda story, _: why_on(story),
    "stopped": _stopped,
    "failed": lambda story, _: _failed(story),
    "prompt": lambda story, question: [
        *why_prompt(story, _quoting(question)),
        *(a for a in why_message(story) if a.is_problem),
    ],
    "message": lambda story, question: (
        [] if "twice" in question.topics else why_message(story, _quoting(question))
    ),
    "request": lambda story, question: request_answers(story, question.requests),
    "tool": _calls,
}


def _quoting(question: Question) -> tuple[str, ...]:
    return tuple(word for word in question.words if len(word) > 2)


def _citing(story: Story, records: tuple[int, ...]) -> list[Answer]:
    """Return the answers that are about some records."""
    calls = [c for c in story.calls if {c.asked, c.start, c.end, c.result} & {*records}]
    requests = [r.number for r in story.requests if {r.seq, r.response_seq} & {*records}]
    others = [*findings(story), *why_stopped(story), *why_on(story)]
    return [
        *(verdict(story, call) for call in calls),
        *(request_answers(story, requests) if requests else ()),
        *(answer for answer in others if {*answer.events[:2]} & {*records}),
    ]


def _about(question: Question, lines: list[str]) -> list[str]:
    """Return the steps that have one of the question's words."""
    if question.tools or question.calls:
        names = "|".join(re.escape(n.lower()) for n in (*question.tools, *question.calls))
        return [line for line in lines if re.search(rf"(?<!\w)(?:{names})(?!\w)", line.lower())]
    numbers = tuple(f"#{number} " for number in question.records)
    if numbers:
        return [line for line in lines if line.startswith(numbers)]
    words = [word for word in question.words if len(word) > 2 or word[-1:].isdigit()]
    wanted = "|".join(map(re.escape, words))
    return [line for line in lines if wanted and re.search(wanted, line.lower())]


def _cut(story: Story) -> list[str]:
    records = story.records
    if not records or records[0].seq == 1:
        return []
    return [f"The earlier steps are no longer kept (max_log_events={story.log.max_events})."]
