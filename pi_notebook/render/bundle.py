"""The mime bundles of a run: one for all front ends, and a light one for each live update.

The saved bundle is deterministic: the same events give the same bytes, so notebooks diff and
validate. Times, ids, durations and costs belong to the output's metadata.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.json_value import thaw

from pi_notebook.render.html import run_html
from pi_notebook.render.safe_markdown import fenced, safe_markdown
from pi_notebook.render.text import ending, plain_text, plain_tool, retry_line
from pi_notebook.render.untrusted import LONGEST_ANSWER, bound, clean
from pi_notebook.snapshot import Discarded, Note, Retry, Text, Thinking, ToolRun

if TYPE_CHECKING:
    from pi_notebook.render.html import Rendering
    from pi_notebook.snapshot import Part, RunSnapshot

__all__ = ["RUN_MIME", "MimeBundle", "final_bundle", "live_bundle", "run_json", "run_markdown"]

RUN_MIME = "application/vnd.pi.run+json"
#: Up to here a live update carries the whole plain text, which programs follow; then one line.
LONGEST_LIVE_TEXT = 4_096
LONGEST_LINE = 200
LONGEST_ARGUMENTS = 20_000

MimeBundle = dict[str, Any]


def final_bundle(run: RunSnapshot) -> MimeBundle:
    """Build what a saved notebook keeps of a run."""
    return {
        "text/plain": plain_text(run),
        "text/markdown": run_markdown(run),
        "text/html": run_html(run),
        RUN_MIME: run_json(run),
    }


def live_bundle(run: RunSnapshot, render: Rendering) -> MimeBundle:
    """Build one update of a run that goes on.

    Args:
        run: The run as it is now.
        render: How to render the Markdown of the part at a position.
    """
    text = plain_text(run)
    if len(text) > LONGEST_LIVE_TEXT:
        text = text.rstrip().rsplit("\n", 1)[-1][-LONGEST_LINE:]
    return {"text/plain": text, "text/html": run_html(run, render=render)}


def run_markdown(run: RunSnapshot) -> str:
    """Write a run as Markdown; its thinking is left out."""
    pieces: list[str] = []
    before: Part | None = None
    for part in run.parts:
        piece = _markdown_piece(part, before)
        if piece:
            pieces.append(piece)
            before = part
    closing = "\n".join(filter(None, [ending(run), *map(clean, run.remarks)]))
    if closing:
        pieces.append(fenced(closing))
    return "\n\n".join(pieces)


def run_json(run: RunSnapshot) -> dict[str, Any]:
    """Write a run as the versioned JSON that re-renders, exports and diffs.

    Its `toolCalls` are in the order the model made them; `usage` counts tokens only.
    """
    tokens = run.tokens
    data: dict[str, Any] = {
        "version": 1,
        "agent": clean(run.agent),
        "model": clean(run.model),
        "status": run.status,
        "turns": run.turns,
        "text": bound(run.text, LONGEST_ANSWER),
        "toolCalls": [_tool_json(tool) for tool in run.tool_runs],
        "usage": {
            "input": tokens.input,
            "output": tokens.output,
            "cacheRead": tokens.cache_read,
            "cacheWrite": tokens.cache_write,
            "totalTokens": tokens.total,
        },
        "stopReason": run.stop_reason,
    }
    retries = [part for part in run.parts if isinstance(part, Retry)]
    if retries:
        data["retries"] = [
            {"reason": one.reason, "attempt": one.attempt, "maxAttempts": one.max_attempts}
            for one in retries
        ]
    if run.remarks:
        data["remarks"] = [clean(remark) for remark in run.remarks]
    if run.error is not None:
        data["errorMessage"] = bound(run.error)
    return data


def _tool_json(tool: ToolRun) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": bound(tool.name, LONGEST_LINE),
        "arguments": _json_arguments(thaw(tool.arguments)),
        "status": tool.state,
        "result": bound(tool.result),
    }
    if tool.images:
        data["images"] = len(tool.images)
    output = tool.output
    if output.printed:
        data["printed"] = bound(output.printed)
    if output.displays:
        data["displays"] = [
            {"image": one.image.mime_type} if one.image is not None else {"text": bound(one.text)}
            for one in output.displays
        ]
    if output.value is not None:
        data["object"] = {"type": bound(output.value.kind, LONGEST_LINE), "at": output.value.name}
    return data


def _json_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Keep arguments that a notebook can hold; what is too long for it is cut to text."""
    try:
        # Halves of surrogate pairs have no UTF-8, NaN no JSON.
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        if len(text) <= LONGEST_ARGUMENTS and clean(text) == text:
            return arguments
    except (TypeError, ValueError):
        pass
    return {bound(name, LONGEST_LINE): bound(_as_text(value)) for name, value in arguments.items()}


def _as_text(value: object) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, default=lambda item: f"<{type(item).__name__}>")
    )


def _markdown_piece(part: Part, before: Part | None) -> str:
    match part:
        case Text(text=text):
            return safe_markdown(bound(text, LONGEST_ANSWER).strip("\n"))
        case ToolRun():
            return fenced(plain_tool(part))
        case Note(text=text):
            return fenced(f"» {bound(text).strip()}")
        case Discarded(text=text):
            return fenced(bound(text).strip("\n")) if text else ""
        case Retry():
            return fenced(f"[{retry_line(part, before)}]")
        case Thinking():
            return ""
