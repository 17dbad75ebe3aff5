"""Close a run that a hook, a listener or the stream function broke.

What was open is ended first, so that every start event has its end and every tool call its
result (DEVIATIONS 2, 3). Then come the four failure events of the reference: start and end of a
synthetic assistant message, turn_end, agent_end (FL-02, FL-03, FL-04).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.errors import error_text
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


class _OpenCall:
    """Be a call of the last response that has no result message yet."""

    __slots__ = ("call", "end", "position", "started")

    def __init__(self, call: ToolCall, position: int) -> None:
        self.call = call
        self.position = position
        self.started = False
        self.end: ToolExecutionEnd | None = None


class OpenParts:
    """Follow which parts of a run have a start and no end yet.

    Ids of calls need not be unique (E08): of several, the first that fits is meant.
    """

    __slots__ = ("_calls", "batch", "in_request", "over")

    def __init__(self) -> None:
        #: Whether agent_end was announced; nothing follows it.
        self.over = False
        self.in_request = False
        self.batch: ToolBatchStart | None = None
        self._calls: dict[tuple[str, str], list[_OpenCall]] = {}

    def open_calls(self) -> list[_OpenCall]:
        """Return the last response's calls without a result message, in their order."""
        calls = [one for calls in self._calls.values() for one in calls]
        return sorted(calls, key=lambda one: one.position)

    def note(self, event: AgentEvent) -> None:
        """Take an event into account."""
        if type(event) not in _PARTS:
            return
        match event:
            case ToolExecutionStart():
                for one in self._of(event.tool_call_id, event.tool_name):
                    if not one.started:
                        one.started = True
                        break
            case ToolExecutionEnd():
                for one in self._of(event.tool_call_id, event.tool_name):
                    if one.started and one.end is None:
                        one.end = event
                        break
            case ModelRequestStart() | ModelResponse():
                self.in_request: bool = isinstance(event, ModelRequestStart)
            case AgentEnd():
                self.over: bool = True
            case ToolBatchStart():
                self.batch = event
            case ToolBatchEnd():
                self.batch = None
            case MessageEnd(message=AssistantMessage() as message):
                failed = message.stop_reason in ("error", "aborted")
                self._calls = {}
                for position, call in enumerate(() if failed else message.tool_calls):
                    same = self._calls.setdefault((call.id, call.name), [])
                    same.append(_OpenCall(call, position))
            case MessageEnd(message=ToolResultMessage() as message):
                calls = self._of(message.tool_call_id, message.tool_name)
                if calls:
                    del calls[0]
            case _:
                pass

    def _of(self, call_id: str, name: str) -> list[_OpenCall]:
        return self._calls.get((call_id, name), [])


_PARTS = frozenset(
    {
        AgentEnd,
        MessageEnd,
        ModelRequestStart,
        ModelResponse,
        ToolBatchEnd,
        ToolBatchStart,
        ToolExecutionEnd,
        ToolExecutionStart,
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
        same (FL-05). After agent_end nothing more is announced: then it is the error itself.
    """
    if parts.over:
        return _plain(error)
    reason: StopReason = "aborted" if aborted else "error"
    text = error_text(error)
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
    await _answer_open_calls(parts, send, "Operation aborted" if aborted else text)
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
    parts: OpenParts, send: Callable[[AgentEvent], Awaitable[None]], text: str
) -> None:
    """Give every call of the last response its result: the one announced, else an error."""
    result = AgentToolResult(content=(TextContent(text=text),), details=EMPTY)
    for one in parts.open_calls():
        call = one.call
        if not one.started:
            await send(
                ToolExecutionStart(tool_call_id=call.id, tool_name=call.name, args=call.arguments)
            )
        end = one.end
        if end is None:
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


def _plain(error: BaseException) -> BaseException:
    # Whoever awaits the run was not cancelled, and must not look as if it had been.
    if isinstance(error, Exception):
        return error
    plain = RuntimeError(f"A listener raised {type(error).__name__}.")
    plain.__cause__ = error
    return plain
