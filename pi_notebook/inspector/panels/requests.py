"""What the model saw at each request, and what had changed since the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pi_notebook.inspector.panel import Layout, Listing, Note, Panel, Row, Rows, Table, Tag
from pi_notebook.inspector.panels.transcript import message_row
from pi_notebook.inspector.words import number
from pi_notebook.render.untrusted import json_text

if TYPE_CHECKING:
    from pi_agent_kernel.messages import Usage
    from pi_agent_kernel.request_log import LoggedRequest

    from pi_notebook.inspector.panel import Block, Tone
    from pi_notebook.inspector.scene import Scene

__all__ = ["cached_share", "request_details", "requests_panel"]

LAYOUT = Layout(
    "requests",
    (
        ("request", "k"),
        ("what the model saw", "v"),
        ("tokens in", "n"),
        ("cached", "n"),
        ("event", "n"),
    ),
)
MESSAGES = Layout("sent", (("at", "k"), ("role", "s"), ("message", "v"), ("tokens", "n")))
#: Messages of a request that are told one by one, and characters of each; fewer where the page is
#: saved.
MOST_MESSAGES, LONGEST_MESSAGE = 60, 4_000
MOST_SAVED, LONGEST_SAVED = 20, 800


def requests_panel(scene: Scene) -> Panel:
    """List the requests; the newest one stands beside them."""
    requests = scene.agent.log.requests()

    def read(start: int, stop: int) -> Sequence[Row]:
        return [
            _row(scene, requests[place], requests[place - 1] if place else None)
            for place in range(start, min(stop, len(requests)))
        ]

    if not requests:
        none = Note("No requests", "yet: nothing has been sent to a model.")
        return Panel("requests", "Requests", blocks=(none,))
    aside = request_details(scene, requests[-1].number, requests)
    rows = Rows(LAYOUT, len(requests), read)
    return Panel("requests", "Requests", rows=rows, aside=aside)


def request_details(
    scene: Scene, ref: int, requests: Sequence[LoggedRequest] | None = None
) -> tuple[Block, ...]:
    """Show one request: its settings, the difference to the one before, its messages.

    Args:
        scene: The scene.
        ref: The request's number.
        requests: All of them, if they have been read.
    """
    requests = scene.agent.log.requests() if requests is None else requests
    place = next((at for at, one in enumerate(requests) if one.number == ref), None)
    if place is None:
        return (Note(f"Request {ref}", "is not in the log, or is no longer kept."),)
    request = requests[place]
    before = requests[place - 1] if place else None
    messages: list[Any] = list(request.messages)
    words = scene.words
    said = [
        f"{words.line(request.model, 80)} of {words.line(request.provider, 60)}",
        f"{len(messages)} messages",
        f"thinking {request.thinking_level}",
    ]
    if request.attempt > 1:
        said.append(f"attempt {request.attempt}")
    said.append(
        f"#{request.seq}" + (f" to #{request.response_seq}" if request.response_seq else "")
    )
    blocks: list[Block] = [Note(f"Request {request.number}", " · ".join(said))]
    if request.stages:
        counts = [f"transcript: {request.transcript_length} messages"]
        counts += [f"{name}: {len(made)} messages" for name, made in request.stages]
        counts.append(f"sent: {len(messages)} messages")
        blocks.append(Listing("made by", "\n".join(counts)))
    if before is not None:
        difference = _difference(scene, list(before.messages), messages)
        title = f"changed since request {before.number}"
        blocks.append(Listing(title, difference, is_difference=True))
    most = MOST_MESSAGES if scene.exact else MOST_SAVED
    first = max(0, len(messages) - most)
    if first:
        blocks.append(Note(f"{first} messages", "before these are as in the transcript."))
    exact_words = [_sent(scene, at, message) for at, message in enumerate(messages[first:], first)]
    blocks.append(Table(MESSAGES, tuple(exact_words)))
    declared = ", ".join(words.line(tool.name, 60) for tool in request.tools) or "none"
    able = ", ".join(words.line(name, 60) for name in request.executable) or "none"
    blocks.append(Listing("tools", f"declared: {declared}\nexecutable: {able}"))
    blocks.append(Listing("prompt", words.text(request.system_prompt) or "empty"))
    options = {
        name: value
        for name, value in request.options.items()
        if scene.exact or name != "session_id"
    }
    if options:
        blocks.append(Listing("settings", words.text(json_text(options))))
    return tuple(blocks)


def cached_share(usage: Usage | None) -> str:
    """Say which part of the input came from the provider's cache."""
    if usage is None:
        return "–"  # noqa: RUF001 - nothing
    read = usage.input + usage.cache_read + usage.cache_write
    return f"{usage.cache_read / read:.0%}" if read else "–"  # noqa: RUF001


def _row(scene: Scene, request: LoggedRequest, before: LoggedRequest | None) -> Row:
    usage = request.usage
    read = None if usage is None else usage.input + usage.cache_read + usage.cache_write
    count = len(request.messages)
    grown = "" if before is None else f" ({count - len(before.messages):+d})"
    tools = len(request.tools)
    said = f"{scene.words.line(request.model, 80)} · {count} messages{grown} · {tools} tools"
    tone: Tone = ""
    tags: list[Tag] = []
    if request.attempt > 1:
        tags.append(Tag(f"attempt {request.attempt}", "warn"))
    if request.response is None:
        # Without an answer at the end of a run it will not get one.
        tone = "live" if scene.agent.state.is_streaming else "warn"
        tags.append(Tag("no answer yet" if tone == "live" else "no answer", tone))
    elif request.response.stop_reason in ("error", "aborted"):
        tone = "bad" if request.response.stop_reason == "error" else "warn"
        tags.append(Tag(request.response.stop_reason, tone))
    return Row(
        (
            str(request.number),
            said,
            "–" if read is None else number(read),  # noqa: RUF001
            cached_share(usage),
            f"#{request.seq}",
        ),
        tags=tuple(tags),
        tone=tone,
        ref=request.number,
    )


def _sent(scene: Scene, place: int, message: Any) -> Row:
    row = message_row(scene, place, message, added_by="")
    parts = scene.words.message_parts(message)
    more = "\n".join(part.text for part in parts)
    return Row(
        row.cells[:-1],
        tags=row.tags,
        tone=row.tone,
        more=more[: LONGEST_MESSAGE if scene.exact else LONGEST_SAVED],
    )


def _difference(scene: Scene, before: list[Any], after: list[Any]) -> str:
    """Compare two requests, line by line for a reader."""
    most = min(len(before), len(after))
    start = next((at for at in range(most) if not _same(before[at], after[at])), most)
    end = 0
    while end < most - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    lines: list[str] = []
    if start:
        lines.append(f"@ {start} messages as before")
    for sign, messages in (("-", before), ("+", after)):
        changed = messages[start : len(messages) - end]
        left_out = max(0, len(changed) - MOST_MESSAGES)
        if left_out:
            lines.append(f"@ {left_out} more of these left out")
        for at, message in enumerate(changed[left_out:], start + left_out):
            role = scene.words.line(str(getattr(message, "role", "")), 40)
            lines.append(f"{sign} {at} {role}  {scene.words.message(message)}")
    if end:
        lines.append(f"@ {end} messages as before")
    return "\n".join(lines)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - details of any kind, which may refuse to be compared
        return False
