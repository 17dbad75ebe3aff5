"""Close a run that a hook, a listener or the stream function broke.

What was open is ended first, so that every start event has its end and every tool call its
result (DEVIATIONS 2, 3). Then come the four failure events of the reference: start and end of a
synthetic assistant message, turn_end, agent_end (FL-02, FL-03, FL-04).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from pi_agent_kernel.awaiting import is_awaitable
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
from pi_agent_kernel.messages import (
    AssistantMessage,
    StopReason,
    TextContent,
    ToolCall,
    ToolResultMessage,
)
from pi_agent_kernel.state import AgentState
from pi_agent_kernel.tools import AgentToolResult

__all__ = ["OpenParts", "close_failed_run"]


class OpenParts:
    """Follow which parts of a run have a start and no end yet."""

    __slots__ = ("batch", "calls", "ended", "in_request")

    def __init__(self) -> None:
        self.in_request = False
        #: The last response's calls that have no result message yet.
        self.calls: dict[str, ToolCall] = {}
        self.batch: ToolBatchStart | None = None
        #: The ends of the last batch's calls, by call id.
        self.ended: dict[str, ToolExecutionEnd] = {}

    def note(self, event: AgentEvent) -> None:
        """Take an event into account."""
        if type(event) not in _PARTS:
            return
        match event:
            case ToolExecutionEnd():
                self.ended[event.tool_call_id] = event
            case ModelRequestStart() | ModelResponse():
                self.in_request = isinstance(event, ModelRequestStart)
            case ToolBatchStart():
                self.batch = event
                self.ended = {}
            case ToolBatchEnd():
                self.batch = None
            case MessageEnd(message=AssistantMessage() as message):
                failed = message.stop_reason in ("error", "aborted")
                self.calls = {} if failed else {call.id: call for call in message.tool_calls}
            case MessageEnd(message=ToolResultMessage() as message):
                self.calls.pop(message.tool_call_id, None)
            case _:
                pass


_PARTS = frozenset(
    {
        MessageEnd,
        ModelRequestStart,
        ModelResponse,
        ToolBatchEnd,
        ToolBatchStart,
        ToolExecutionEnd,
    }
)


async def close_failed_run(
    state: AgentState, parts: OpenParts, emit: Emit, error: BaseException, *, aborted: bool
) -> BaseException | None:
    """Announce the end of everything that is open, then the failure.

    Args:
        state: The agent's state, as the failure left it.
        parts: What is open.
        emit: Applies and delivers an event.
        error: What was raised.
        aborted: Whether the run had been aborted.

    Returns:
        The first thing a listener raised meanwhile, or None; the sequence is finished all the
        same (FL-05).
    """
    reason: StopReason = "aborted" if aborted else "error"
    text = str(error) or type(error).__name__
    again: list[BaseException] = []

    async def send(event: AgentEvent) -> None:
        try:
            waiting = emit(event)
            if waiting is not None and is_awaitable(waiting):
                await waiting
        except BaseException as raised:  # noqa: BLE001 - every end must be announced
            again.append(_plain(raised))

    def response_of(message: AssistantMessage) -> ModelResponse:
        return ModelResponse(stop_reason=message.stop_reason, usage=message.usage, message=message)

    open_message = state.streaming_message
    if isinstance(open_message, AssistantMessage):
        if open_message.stop_reason == "pending":
            open_message = msgspec.structs.replace(
                open_message, stop_reason=reason, error_message=text
            )
        await send(MessageEnd(message=open_message))
        if parts.in_request:
            await send(response_of(open_message))
    elif open_message is not None:
        await send(MessageEnd(message=open_message))
    await _answer_open_calls(state, parts, send, "Operation aborted" if aborted else text)
    if parts.batch is not None:
        await send(ToolBatchEnd(count=parts.batch.count))

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
    if parts.in_request:
        await send(response_of(failure))
    await send(TurnEnd(message=failure, tool_results=()))
    await send(AgentEnd(messages=(failure,)))
    return again[0] if again else None


async def _answer_open_calls(
    state: AgentState,
    parts: OpenParts,
    send: Callable[[AgentEvent], Awaitable[None]],
    text: str,
) -> None:
    """Give every call of the last response its result: the one announced, else an error."""
    result = AgentToolResult(content=(TextContent(text=text),), details=EMPTY)
    for call in list(parts.calls.values()):
        if call.id not in parts.ended:
            if call.id not in state.pending_tool_calls:
                await send(
                    ToolExecutionStart(
                        tool_call_id=call.id, tool_name=call.name, args=call.arguments
                    )
                )
            await send(
                ToolExecutionEnd(
                    tool_call_id=call.id, tool_name=call.name, result=result, is_error=True
                )
            )
        end = parts.ended[call.id]
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


def _plain(error: BaseException) -> BaseException:
    # Whoever awaits the run was not cancelled, and must not look as if it had been.
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
