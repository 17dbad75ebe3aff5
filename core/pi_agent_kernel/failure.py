"""Close a run that a hook, a listener or the stream function broke.

What was open is ended first, so that every start event has its end and every tool call its
result (DEVIATIONS 2, 3). Then come the four failure events of the reference: start and end of a
synthetic assistant message, turn_end, agent_end (FL-02, FL-03, FL-04).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable

import msgspec

from pi_agent_kernel.events import (
    AgentEnd,
    AgentEvent,
    MessageEnd,
    MessageStart,
    ModelRequestStart,
    ModelResponse,
    ToolBatchEnd,
    ToolBatchStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
)
from pi_agent_kernel.invocation import Emit
from pi_agent_kernel.json_value import EMPTY
from pi_agent_kernel.log import EventLog
from pi_agent_kernel.messages import (
    AssistantMessage,
    StopReason,
    TextContent,
    ToolCall,
    ToolResultMessage,
)
from pi_agent_kernel.state import AgentState
from pi_agent_kernel.tools import AgentToolResult

__all__ = ["close_failed_run"]


async def close_failed_run(
    state: AgentState, log: EventLog, emit: Emit, error: Exception, *, aborted: bool
) -> None:
    """Announce the end of everything that is open, then the failure.

    Args:
        state: The agent's state, as the failure left it.
        log: The agent's log; says what is open.
        emit: Applies and delivers an event.
        error: What was raised.
        aborted: Whether the run had been aborted.

    Raises:
        Exception: The first thing a listener raised meanwhile; the sequence is finished all the
            same (FL-05).
    """
    reason: StopReason = "aborted" if aborted else "error"
    text = str(error) or type(error).__name__
    again: list[Exception] = []

    async def send(event: AgentEvent) -> None:
        try:
            waiting = emit(event)
            if waiting is not None and isawaitable(waiting):
                await waiting
        except Exception as raised:  # noqa: BLE001 - every end must be announced
            again.append(raised)

    def response_of(message: AssistantMessage) -> ModelResponse:
        return ModelResponse(stop_reason=message.stop_reason, usage=message.usage, message=message)

    in_request, batch = _open_in(log)
    open_message = state.streaming_message
    if isinstance(open_message, AssistantMessage):
        if open_message.stop_reason == "pending":
            open_message = msgspec.structs.replace(
                open_message, stop_reason=reason, error_message=text
            )
        await send(MessageEnd(message=open_message))
        if in_request:
            in_request = False
            await send(response_of(open_message))
    elif open_message is not None:
        await send(MessageEnd(message=open_message))
    await _answer_open_calls(state, log, send, "Operation aborted" if aborted else text)
    if batch is not None:
        await send(ToolBatchEnd(count=batch.count))

    failure = AssistantMessage(
        content=(TextContent(text=""),),
        api=state.model.api,
        provider=state.model.provider,
        model=state.model.id,
        stop_reason=reason,
        error_message=text,
    )
    await send(MessageStart(message=failure))
    await send(MessageEnd(message=failure))
    if in_request:
        await send(response_of(failure))
    await send(TurnEnd(message=failure, tool_results=()))
    await send(AgentEnd(messages=[failure]))
    if again:
        raise again[0]


def _open_in(log: EventLog) -> tuple[bool, ToolBatchStart | None]:
    """Say whether a request, and which tool batch, has no end yet."""
    in_request = False
    batch: ToolBatchStart | None = None
    for record in log.tail("agent_start"):
        match record.event:
            case ModelRequestStart():
                in_request = True
            case ModelResponse():
                in_request = False
            case ToolBatchStart() as started:
                batch = started
            case ToolBatchEnd():
                batch = None
            case _:
                pass
    return in_request, batch


async def _answer_open_calls(
    state: AgentState,
    log: EventLog,
    send: Callable[[AgentEvent], Awaitable[None]],
    text: str,
) -> None:
    """Give every call of the last response its result: the one announced, else an error."""
    calls, answered = _last_calls(state)
    if not calls:
        return
    ended = {
        record.event.tool_call_id: record.event
        for record in log.tail("agent_start")
        if isinstance(record.event, ToolExecutionEnd)
    }
    result = AgentToolResult(content=(TextContent(text=text),), details=EMPTY)
    for call in calls:
        if call.id in answered:
            continue
        end = ended.get(call.id)
        if end is None or call.id in state.pending_tool_calls:
            if call.id not in state.pending_tool_calls:
                await send(
                    ToolExecutionStart(
                        tool_call_id=call.id, tool_name=call.name, args=call.arguments
                    )
                )
            end = ToolExecutionEnd(
                tool_call_id=call.id, tool_name=call.name, result=result, is_error=True
            )
            await send(end)
        message = ToolResultMessage(
            tool_call_id=call.id,
            tool_name=call.name,
            content=end.result.content or (),
            details=end.result.details,
            usage=end.result.usage,
            is_error=end.is_error,
            duration_ms=end.duration_ms,
        )
        await send(MessageStart(message=message))
        await send(MessageEnd(message=message))


def _last_calls(state: AgentState) -> tuple[tuple[ToolCall, ...], set[str]]:
    """Return the calls of the last assistant message and the ids already answered."""
    answered: set[str] = set()
    for message in reversed(state.messages):
        if isinstance(message, ToolResultMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            if message.stop_reason in ("error", "aborted"):
                return (), answered
            return message.tool_calls, answered
    return (), answered
