"""Say in words what an agent did, from its log alone, citing record numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pi_agent_kernel.events import (
    AgentEnd,
    AgentStart,
    MessageEnd,
    ModelRequestStart,
    ModelResponse,
    ModelRetry,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from pi_agent_kernel.log import EventLog, HostCall, LogRecord
from pi_agent_kernel.messages import AssistantMessage, SystemMessage, UserMessage, text_of

__all__ = ["explain"]


def explain(log: EventLog, question: str | None = None) -> str:
    """Tell what happened, one line per step.

    Args:
        log: The agent's log.
        question: Words to look for, such as a tool's name or a call id; only lines with one of
            them are told, from the whole log. By default the last run is told.

    Returns:
        Lines of the form "#12 ...", or a sentence that says why there are none. A line before them
        says so when the log no longer holds all that was asked for.
    """
    kept = list(log)
    records = kept if question else _last_run(log, kept)
    # A run is told from the host's call before it; what matters is whether its start is there.
    whole = any(record.type == "agent_start" for record in records) and not question
    cut = bool(records) and records[0].seq > 1 and not whole
    head = [f"The earlier steps are no longer kept (max_log_events={log.max_events})."]
    lines = [f"#{record.seq} {line}" for record in records for line in _told(record)]
    if question:
        words = [word.strip("?.,!\"'") for word in question.lower().split()]
        # Short words would find everything, but short ids have a digit.
        telling = [word for word in words if len(word) > 2 or word[-1:].isdigit()]
        # With nothing but short words, such as a tool's name, they count where they stand alone.
        wanted = "|".join(
            map(re.escape, telling) if telling else (rf"\b{re.escape(w)}\b" for w in words if w)
        )
        found = [line for line in lines if wanted and re.search(wanted, line.lower())]
        lines = found or [f"Nothing in the log mentions any word of {question!r}."]
    return "\n".join(head * cut + lines) or "The agent has not run yet."


def _last_run(log: EventLog, kept: list[LogRecord]) -> list[LogRecord]:
    """Return the records of the last run, or what is left of them."""
    starts = [index for index, record in enumerate(kept) if record.type == "agent_start"]
    if starts:
        return kept[max(0, starts[-1] - 1) :]
    return kept if log.run_dropped else []


def _told(record: LogRecord) -> Iterator[str]:
    match record.event:
        case HostCall(name="state", detail=field):
            yield f"the host changed state.{field}"
        case HostCall(name=name, detail=detail):
            yield f"the host called {name}" + (f": {detail}" if detail else "")
        case AgentStart():
            yield "the run started"
        case ModelRequestStart(model=model, message_count=count, attempt=attempt):
            again = f" (attempt {attempt})" if attempt > 1 else ""
            yield f"{model} was asked, with {count} messages{again}"
        case ModelRetry() as retry:
            yield (
                f"the request failed and is made again in {retry.delay_ms} ms "
                f"(attempt {retry.attempt} of {retry.max_attempts}): {retry.error_message}"
            )
        case ModelResponse(stop_reason=reason, message=message):
            calls = ", ".join(call.name for call in message.tool_calls)
            yield (
                f"it answered with stop reason {reason!r}"
                + (f" and called {calls}" if calls else "")
                + (f": {message.error_message}" if message.error_message else "")
            )
        case ToolExecutionStart(tool_name=name, tool_call_id=call_id):
            yield f"tool {name} (call {call_id}) was taken up"
        case ToolExecutionEnd() as end:
            yield _told_end(end)
        case MessageEnd(message=message):
            yield from _told_message(message)
        case AgentEnd():
            yield "the run ended"
        case _:
            return


def _told_end(end: ToolExecutionEnd) -> str:
    text = text_of(end.result.content or ())
    shown = text if len(text) <= 100 else text[:99] + "…"
    ran = "did not run" if end.duration_ms is None else f"ran for {end.duration_ms} ms"
    outcome = "failed" if end.is_error else "succeeded"
    where = f" [{end.raised}]" if end.raised else ""
    return f"tool {end.tool_name} (call {end.tool_call_id}) {ran} and {outcome}: {shown}{where}"


def _told_message(message: object) -> Iterator[str]:
    match message:
        case UserMessage():
            yield f"a user message entered the transcript: {text_of(message.content)[:100]}"
        case SystemMessage():
            added = ", ".join(tool.name for tool in message.tools_added or ())
            removed = ", ".join(tool.name for tool in message.tools_removed or ())
            yield "a system message told the model of " + (
                "; ".join(
                    part
                    for part in (
                        f"new tools {added}" if added else "",
                        f"removed tools {removed}" if removed else "",
                    )
                    if part
                )
                or "a changed prompt"
            )
        case AssistantMessage(stop_reason="error" | "aborted", error_message=error):
            yield f"the assistant's message failed: {error}"
        case _:
            return
