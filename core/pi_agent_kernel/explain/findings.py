"""What is odd about the last run, unasked."""

from __future__ import annotations

from pi_agent_kernel.explain.answer import Answer
from pi_agent_kernel.explain.calls import duplicate_ids, verdict
from pi_agent_kernel.explain.declarations import mismatches
from pi_agent_kernel.explain.doubles import doubles
from pi_agent_kernel.explain.endings import retries, why_stopped
from pi_agent_kernel.explain.prompts import lost_messages, why_prompt
from pi_agent_kernel.explain.story import Story
from pi_agent_kernel.explain.waiting import why_waiting

__all__ = ["findings"]


def findings(story: Story) -> list[Answer]:
    """Return the problems that the rules find in the last run, and what has waited since."""
    run = story.run
    if run is None:
        return lost_messages(story)
    calls = [verdict(story, call) for call in story.calls if call.run is run]
    found = [
        *(why_waiting(story) if story.active else ()),
        *calls,
        *(() if story.active else why_stopped(story)),
        *mismatches(story),
        *why_prompt(story),
        *lost_messages(story),
        *doubles(story),
        *duplicate_ids(story),
        *retries(story),
    ]
    start = run.before or run.start
    return [
        answer
        for answer in dict.fromkeys(found)
        if answer.is_problem and (not answer.events or max(answer.events) >= start)
    ]
