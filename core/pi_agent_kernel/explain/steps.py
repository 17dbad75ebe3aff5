"""Tell the steps of a run, one line each."""

from __future__ import annotations

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
from pi_agent_kernel.log import HostCall, LogRecord
from pi_agent_kernel.messages import AssistantMessage, SystemMessage, UserMessage, text_of

__all__ = ["told"]


def told(record: LogRecord) -> Iterator[str]:
    """Tell a record; nothing if it is no step of its own."""
    for line in _told(record):
        yield f"#{record.seq} {line}"


def _told(record: LogRecord) -> Iterator[str]:
    match record.event:
        case HostCall(name="state", detail=field):
            yield f"the host changed state.{field}"
        case HostCall() as call:
            yield _told_call(call)
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


#: Names of host calls that are methods of the agent; any other is a hook's or a listener's.
_METHODS = frozenset(
    {
        "abort", "clear_follow_up_queue", "clear_steering_queue", "continue_", "follow_up",
        "prompt", "reset", "steer",
    }
)  # fmt: skip


def _told_call(call: HostCall) -> str:
    detail = f": {call.detail}" if call.detail else ""
    if call.name in _METHODS:
        return f"the host called {call.name}{detail}"
    if call.name.endswith("_refused"):
        action = call.name.removesuffix("_refused")
        return f"{action} was refused, as a run was active{detail}"
    about = f" of call {call.call_id}" if call.call_id else ""
    by = f" ({call.by})" if call.by else ""
    return f"{call.name}{about} decided: {_begun(call.detail)}{by}"


def _begun(text: str) -> str:
    return text if len(text) <= 100 else text[:99] + "…"


def _told_end(end: ToolExecutionEnd) -> str:
    text = text_of(end.result.content or ())
    ran = "did not run" if end.duration_ms is None else f"ran for {end.duration_ms} ms"
    outcome = "failed" if end.is_error else "succeeded"
    where = f" [{end.raised}]" if end.raised else ""
    return (
        f"tool {end.tool_name} (call {end.tool_call_id}) {ran} and {outcome}: {_begun(text)}{where}"
    )


def _told_message(message: object) -> Iterator[str]:
    match message:
        case UserMessage():
            yield f"a user message entered the transcript: {_begun(text_of(message.content))}"
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
