"""What a request contained, beside the one before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pi_agent_kernel.explain.answer import Answer
from pi_agent_kernel.explain.story import Story, short
from pi_agent_kernel.request_log import LoggedRequest

__all__ = ["contents_of", "request_answers"]


def request_answers(story: Story, numbers: Sequence[int]) -> list[Answer]:
    """Say what some requests contained; the last one if none is named."""
    if not story.requests:
        return [Answer(text="No request was made yet.", row="S4-02", is_problem=False)]
    by_number = {request.number: request for request in story.requests}
    found: list[Answer] = []
    for number in numbers or [story.requests[-1].number]:
        request = by_number.get(number)
        if request is not None:
            found.append(contents_of(request, by_number.get(number - 1)))
            continue
        first, last = story.requests[0].number, story.requests[-1].number
        found.append(
            Answer(
                text=f"There is no request {number} in the log: it has {first} to {last}.",
                events=(story.requests[-1].seq,),
                row="S4-02",
            )
        )
    return found


def contents_of(request: LoggedRequest, before: LoggedRequest | None) -> Answer:
    """Tell one request: counts, prompt, tools, and the difference to the one before."""
    messages = list(request.messages)
    roles = Counter(str(getattr(message, "role", type(message).__name__)) for message in messages)
    counts = ", ".join(f"{count} {role}" for role, count in roles.items())
    line = short(request.system_prompt.split("\n", 1)[0], 80)
    tools = ", ".join(tool.name for tool in request.tools) or "no tools"
    parts = [
        f"Request {request.number} to {request.model}"
        + (f" (attempt {request.attempt})" if request.attempt > 1 else "")
        + f" had {len(messages)} messages ({counts}), made from {request.transcript_length} of the "
        f"transcript; thinking {request.thinking_level}; prompt: {line or 'none'}; tools: {tools}",
        _difference(messages, request, before),
    ]
    usage = request.usage
    if usage is not None:
        parts.append(
            f"it cost {usage.input + usage.cache_read + usage.cache_write} tokens in "
            f"({usage.cache_read} cached) and {usage.output} out"
        )
    else:
        parts.append("it is still being answered")
    return Answer(
        text="; ".join(part for part in parts if part) + ".",
        events=(request.seq, *(() if request.response_seq is None else (request.response_seq,))),
        row="CO-07",
        is_problem=False,
    )


def _difference(
    messages: Sequence[Any], request: LoggedRequest, before: LoggedRequest | None
) -> str:
    if before is None:
        return ""
    old = list(before.messages)
    shared = 0
    for one, other in zip(old, messages, strict=False):
        if one is not other and one != other:
            break
        shared += 1
    told = f"beside request {before.number}: {shared} messages the same, "
    told += f"{len(messages) - shared} new"
    if shared < len(old):
        told += f", {len(old) - shared} of the former left out"
    names, former = {t.name for t in request.tools}, {t.name for t in before.tools}
    for word, changed in (("added", names - former), ("removed", former - names)):
        if changed:
            told += f", tools {word}: {', '.join(sorted(changed))}"
    if request.system_prompt != before.system_prompt:
        told += ", another prompt"
    return told
