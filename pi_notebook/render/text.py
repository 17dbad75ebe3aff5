"""The plain text of a run: what a terminal, a diff and a screen reader get.

It only grows while a run streams (parallel tools aside), so a program that follows it prints what
is new. It holds no time, id or count of tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pi_notebook.render.untrusted import (
    LONGEST_ANSWER,
    LONGEST_SIGNATURE,
    bound,
    clean,
    first_line,
    signature,
)
from pi_notebook.snapshot import Discarded, Note, Retry, Text, Thinking, ToolRun

if TYPE_CHECKING:
    from pi_notebook.snapshot import Output, Part, RunSnapshot

__all__ = ["ending", "plain_text", "plain_tool", "retry_line"]


def plain_text(run: RunSnapshot) -> str:
    """Write a run as plain text; its thinking is left out."""
    text = ""
    before: Part | None = None
    for part in run.parts:
        piece = _piece(part, before)
        if not piece:
            continue
        if before is not None:
            text += "\n" if isinstance(before, ToolRun) and isinstance(part, ToolRun) else "\n\n"
        text += piece
        before = part
    closing = "\n".join(filter(None, [ending(run), *(f"[{clean(r)}]" for r in run.remarks)]))
    if closing:
        text += f"\n\n{closing}" if text else closing
    return text


def ending(run: RunSnapshot) -> str:
    """Say how a run ended, unless it ended as it should."""
    match run.status, run.stop_reason:
        case "aborted", _:
            return "[aborted]"
        case "error", _:
            return f"[error] {bound(run.error or 'the run failed')}"
        case "ok", "length":
            return "[cut off: the model reached its length limit]"
        case _:
            return ""


def retry_line(retry: Retry, before: Part | None) -> str:
    """Say that a request is made again; the wait is left out, as it differs each time.

    Args:
        retry: The part.
        before: The one before it.
    """
    dropped = "the text above is dropped, " if isinstance(before, Discarded) else ""
    return f"{retry.reason}, {dropped}trying again ({retry.attempt} of {retry.max_attempts})"


def plain_tool(tool: ToolRun) -> str:
    """Write a tool call as one line, with its result behind or below it."""
    line = f"▸ {first_line(tool.name)}({signature(tool.arguments)})"
    if tool.state == "waiting":
        return f"{line} ? waits for approval {tool.approval}"
    output = _output_lines(tool.output)
    line += "".join(f"\n  │ {row}".rstrip() for row in output)
    if tool.state in ("announced", "running"):
        return line
    if output:
        line += "\n "
    mark = "✗" if tool.state == "error" else "→"
    result = bound(tool.result.strip("\n"))
    if tool.images:
        count = len(tool.images)
        result = f"{result}\n" if result else ""
        result += "[image]" if count == 1 else f"[{count} images]"
    if tool.output.value is not None:
        result = f"{result}\nwhole object: {tool.output.value.name}".lstrip("\n")
    if "\n" not in result and len(result) <= LONGEST_SIGNATURE:
        return f"{line} {mark} {result}" if result else f"{line} {mark}"
    return f"{line} {mark}\n" + "\n".join(f"  {row}".rstrip() for row in result.split("\n"))


def _output_lines(output: Output) -> list[str]:
    """Write what a tool printed and displayed, line by line."""
    printed = bound(output.printed.rstrip("\n"))
    lines = printed.split("\n") if printed else []
    for place, one in enumerate(output.displays):
        if output.left_out and 2 * place == len(output.displays):
            lines.append(f"… {output.left_out} displays left out …")
        lines += ["[image]"] if one.image is not None else bound(one.text).split("\n")
    return lines


def _piece(part: Part, before: Part | None) -> str:
    match part:
        case Text(text=text) | Discarded(text=text):
            return bound(text, LONGEST_ANSWER).strip("\n").rstrip()
        case ToolRun(state="announced"):
            return ""  # its arguments are still being written
        case ToolRun():
            return plain_tool(part)
        case Note(text=text):
            return f"» {clean(text.strip())}"
        case Retry():
            return f"[{retry_line(part, before)}]"
        case Thinking():
            return ""
