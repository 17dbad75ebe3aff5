"""Tool calls: prepare, execute, finalize, alone or as a batch.

    lookup -> prepare_arguments -> validate -> before_tool_call -> execute
           -> after_tool_call -> after_tool_result -> tool_execution_end -> result message

Parallel (the default): all calls are prepared one after another, then the allowed ones run at
the same time; end events come in order of completion, result messages in order of the calls.
Sequential: each call is wholly finished before the next starts. Whatever happens, every call
gets exactly one result.

Source: TL-03 to TL-21, HK-01 to HK-07, AB-03, AB-04, DEVIATIONS 2, 8, 14.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any

import msgspec

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.backend import Backend, Jobs, current_backend
from pi_agent_kernel.errors import ToolNotFoundError
from pi_agent_kernel.events import (
    AgentEvent,
    MessageEnd,
    MessageStart,
    ToolBatchEnd,
    ToolBatchStart,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from pi_agent_kernel.hooks import (
    AfterToolCall,
    AfterToolCallContext,
    AfterToolCallResult,
    AfterToolResult,
    AgentContext,
    BeforeToolCall,
    BeforeToolCallContext,
    BeforeToolCallResult,
    ToolExecutionMode,
)
from pi_agent_kernel.json_value import freeze, thaw
from pi_agent_kernel.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage
from pi_agent_kernel.schema import validate_tool_arguments
from pi_agent_kernel.invocation import Progress, RunSync, call_tool
from pi_agent_kernel.tools import AgentTool, AgentToolResult

__all__ = ["ABORTED_TEXT", "ToolBatch", "ToolCallOutcome", "ToolSettings", "run_tool_call"]

#: What the model reads of a call that an abort kept from finishing (FORMAT 11).
ABORTED_TEXT = "Operation aborted"

Emit = Callable[[AgentEvent], Awaitable[None] | None]

_log = logging.getLogger(__name__)


class ToolCallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Be how one tool call ended; `duration_ms` is None when the tool did not run (TL-18)."""

    tool_call: ToolCall
    result: AgentToolResult
    is_error: bool
    duration_ms: int | None = None

    def message(self) -> ToolResultMessage:
        """Make the message that answers the call (TL-15, TL-16)."""
        result = self.result
        return ToolResultMessage(
            tool_call_id=self.tool_call.id,
            tool_name=self.tool_call.name,
            content=result.content or (),
            details=result.details,
            usage=result.usage,
            is_error=self.is_error,
            duration_ms=self.duration_ms,
        )


class ToolSettings(msgspec.Struct, kw_only=True):
    """Hold what the calls of one response have in common."""

    tools: Mapping[str, AgentTool]
    assistant_message: AssistantMessage
    context: AgentContext
    signal: AbortSignal | None
    backend: Backend
    before_tool_call: BeforeToolCall | None = None
    after_tool_call: AfterToolCall | None = None
    after_tool_result: AfterToolResult | None = None
    mode: ToolExecutionMode = "parallel"
    abort_grace: float = 0.25
    run_sync: RunSync | None = None
    tasks: set[object] | None = None

    @property
    def aborted(self) -> bool:
        """Whether the run was aborted."""
        return self.signal is not None and self.signal.aborted


class _Prepared(msgspec.Struct, kw_only=True):
    """Be a call that may run: its tool and its validated arguments."""

    tool_call: ToolCall
    tool: AgentTool
    args: dict[str, Any]


async def run_tool_call(
    tool_call: ToolCall,
    *,
    tools: Sequence[AgentTool],
    assistant_message: AssistantMessage | None = None,
    context: AgentContext | None = None,
    signal: AbortSignal | None = None,
    before_tool_call: BeforeToolCall | None = None,
    after_tool_call: AfterToolCall | None = None,
    on_update: Callable[[AgentToolResult], object] | None = None,
    abort_grace: float = 0.25,
    run_sync: RunSync | None = None,
) -> ToolCallOutcome:
    """Run one call through the same steps as a model's, without events or messages.

    For tools that call other tools: the hooks apply to those calls too.

    Args:
        tool_call: The call.
        tools: What may be called.
        assistant_message: What the hooks see as the requesting message; by default one with
            just this call.
        context: What the hooks see as the context; empty by default.
        signal: Looked at first; None means the call cannot be aborted.
        before_tool_call: As on the agent.
        after_tool_call: As on the agent.
        on_update: Gets each progress report.
        abort_grace: Seconds a tool that takes the signal has to end by itself.
        run_sync: How plain functions run; worker threads by default.

    Returns:
        The outcome. A tool's failure is an outcome with `is_error`, never an exception.

    Source: TL-19.
    """
    settings = ToolSettings(
        tools={tool.name: tool for tool in reversed(tools)},
        assistant_message=assistant_message
        or AssistantMessage(content=(tool_call,), stop_reason="toolUse"),
        context=context or AgentContext(),
        signal=signal,
        backend=current_backend(),
        before_tool_call=before_tool_call,
        after_tool_call=after_tool_call,
        abort_grace=abort_grace,
        run_sync=run_sync,
    )
    prepared = await _prepare(settings, tool_call)
    if isinstance(prepared, ToolCallOutcome):
        return prepared
    progress = Progress(settings.backend, on_update or (lambda _partial: None))
    return await _perform(settings, prepared, progress)


class ToolBatch:
    """Run the tool calls of one response and announce each step.

    Args:
        settings: What the calls have in common.
        emit: Takes each event; what it returns, if anything, is awaited.
        lifecycle: Whether to announce the batch itself (S4-04).
    """

    def __init__(self, settings: ToolSettings, emit: Emit, *, lifecycle: bool) -> None:
        self._settings = settings
        self._emit = emit
        self._lifecycle = lifecycle
        self._closed = False
        self.results: list[ToolResultMessage] = []
        #: Whether every result asked to end the run (TL-16).
        self.terminate = False

    async def run(self, calls: Sequence[ToolCall]) -> None:
        """Handle all calls; afterwards `results` has one message per call, in call order."""
        if self._lifecycle:
            await self._send(ToolBatchStart(count=len(calls)))
        if self._settings.assistant_message.stop_reason == "length":
            outcomes = await self._refuse_truncated(calls)
        elif self._sequential(calls):
            outcomes = [await self._run_one(call) for call in calls]
        else:
            outcomes = await self._run_parallel(calls)
            for outcome in outcomes:
                await self._record(outcome)
        self.terminate = all(outcome.result.terminate is True for outcome in outcomes)
        if self._lifecycle:
            await self._send(ToolBatchEnd(count=len(calls)))

    def _sequential(self, calls: Sequence[ToolCall]) -> bool:
        tools = self._settings.tools
        return self._settings.mode == "sequential" or any(
            call.name in tools and tools[call.name].execution_mode == "sequential"
            for call in calls
        )

    async def _refuse_truncated(self, calls: Sequence[ToolCall]) -> list[ToolCallOutcome]:
        outcomes: list[ToolCallOutcome] = []
        for call in calls:
            await self._announce(call)
            text = (
                f'Tool call "{call.name}" was not executed: the response hit the output token '
                "limit, so its arguments may be truncated. Re-issue the tool call with complete "
                "arguments."
            )
            outcome = await _finish(self._settings, _failure(call, text))
            await self._end(outcome)
            await self._record(outcome)
            outcomes.append(outcome)
        # A truncated batch never ends the run, whatever a hook made of its results (LP-03).
        outcomes[0] = msgspec.structs.replace(
            outcomes[0], result=msgspec.structs.replace(outcomes[0].result, terminate=None)
        )
        return outcomes

    async def _run_one(self, call: ToolCall) -> ToolCallOutcome:
        await self._announce(call)
        prepared = await _prepare(self._settings, call)
        if isinstance(prepared, ToolCallOutcome):
            await self._end(prepared)
            outcome = prepared
        else:
            slots: list[ToolCallOutcome | None] = [None]
            await self._execute([(0, prepared)], slots)
            outcome = slots[0] or _failure(call, ABORTED_TEXT)
        await self._record(outcome)
        return outcome

    async def _run_parallel(self, calls: Sequence[ToolCall]) -> list[ToolCallOutcome]:
        slots: list[ToolCallOutcome | None] = [None] * len(calls)
        allowed: list[tuple[int, _Prepared]] = []
        for index, call in enumerate(calls):
            await self._announce(call)
            prepared = await _prepare(self._settings, call)
            if isinstance(prepared, ToolCallOutcome):
                await self._end(prepared)
                slots[index] = prepared
            else:
                allowed.append((index, prepared))
        if allowed:
            await self._execute(allowed, slots)
        return [
            slot or _failure(call, ABORTED_TEXT)
            for slot, call in zip(slots, calls, strict=True)
        ]

    async def _execute(
        self, allowed: list[tuple[int, _Prepared]], slots: list[ToolCallOutcome | None]
    ) -> None:
        settings = self._settings
        remove: Callable[[], None] | None = None
        async with settings.backend.open_jobs() as jobs:
            if settings.signal is not None:
                # A tool may swallow its cancellation; the batch does not wait for it for ever.
                patience = settings.abort_grace + 0.5
                remove = settings.signal.add_listener(
                    settings.backend.soon(partial(settings.backend.later, patience, jobs.wake))
                )
            try:
                for index, prepared in allowed:
                    jobs.start(partial(self._finish_call, index, prepared, slots, jobs))
                await jobs.join()
            finally:
                if remove is not None:
                    remove()
                self._closed = jobs.error is not None
            if jobs.error is not None:
                raise jobs.error
            for index, prepared in allowed:
                if slots[index] is None:
                    _log.warning("Tool %r ignores its cancellation.", prepared.tool.name)
                    outcome = await _finish(settings, _failure(prepared.tool_call, ABORTED_TEXT))
                    slots[index] = outcome
                    await self._end(outcome)

    async def _finish_call(
        self,
        index: int,
        prepared: _Prepared,
        slots: list[ToolCallOutcome | None],
        jobs: Jobs,
    ) -> None:
        settings = self._settings
        if settings.tasks is not None:
            settings.tasks.add(settings.backend.task())
        if settings.aborted:
            outcome = await _finish(settings, _failure(prepared.tool_call, ABORTED_TEXT))
        else:
            progress = Progress.of_call(settings.backend, self._emit, prepared.tool_call, jobs)
            outcome = await _perform(settings, prepared, progress)
        if slots[index] is None and not self._closed:
            slots[index] = outcome
            await self._end(outcome)

    # -------------------------------------------------------------------------- events

    async def _send(self, event: AgentEvent) -> None:
        waiting = self._emit(event)
        if waiting is not None and isawaitable(waiting):
            await waiting

    async def _announce(self, call: ToolCall) -> None:
        await self._send(
            ToolExecutionStart(tool_call_id=call.id, tool_name=call.name, args=call.arguments)
        )

    async def _end(self, outcome: ToolCallOutcome) -> None:
        await self._send(
            ToolExecutionEnd(
                tool_call_id=outcome.tool_call.id,
                tool_name=outcome.tool_call.name,
                result=outcome.result,
                is_error=outcome.is_error,
                duration_ms=outcome.duration_ms,
            )
        )

    async def _record(self, outcome: ToolCallOutcome) -> None:
        message = outcome.message()
        await self._send(MessageStart(message=message))
        await self._send(MessageEnd(message=message))
        self.results.append(message)


# ----------------------------------------------------------------------- the steps of a call


async def _prepare(settings: ToolSettings, call: ToolCall) -> _Prepared | ToolCallOutcome:
    """Look up, prepare, validate and ask; an outcome means that the tool will not run."""
    if settings.aborted:
        return await _finish(settings, _failure(call, ABORTED_TEXT))
    tool = settings.tools.get(call.name)
    if tool is None:
        return await _finish(settings, _failure(call, str(ToolNotFoundError(call.name))))
    try:
        args = await _arguments(tool, call)
        if settings.before_tool_call is not None:
            decided = await _ask_before(settings, settings.before_tool_call, tool, call, args)
            if isinstance(decided, ToolCallOutcome):
                return await _finish(settings, decided)
            args = decided
    except Exception as error:  # noqa: BLE001 - HK-06: fails this call only
        return await _finish(settings, _failure(call, _error_text(error)))
    return _Prepared(tool_call=call, tool=tool, args=args)


async def _arguments(tool: AgentTool, call: ToolCall) -> dict[str, Any]:
    if tool.prepare_arguments is None or call.arguments_error is not None:
        return validate_tool_arguments(tool, call)
    prepared = tool.prepare_arguments(thaw(call.arguments))
    if isawaitable(prepared):
        prepared = await prepared
    return validate_tool_arguments(tool, msgspec.structs.replace(call, arguments=prepared))


async def _ask_before(
    settings: ToolSettings,
    hook: BeforeToolCall,
    tool: AgentTool,
    call: ToolCall,
    args: dict[str, Any],
) -> dict[str, Any] | ToolCallOutcome:
    answer = hook(
        BeforeToolCallContext(
            assistant_message=settings.assistant_message,
            tool_call=call,
            args=args,
            context=settings.context,
        ),
        settings.signal,
    )
    if isawaitable(answer):
        answer = await _wait(settings, answer)
    if settings.aborted:
        return _failure(call, ABORTED_TEXT)
    replaced: Mapping[str, Any] | None = None
    match answer:
        case None:
            return args
        case BeforeToolCallResult(block=True):
            outcome = _failure(call, answer.reason or "Tool execution was blocked")
            if answer.terminate is not True:
                return outcome
            result = msgspec.structs.replace(outcome.result, terminate=True)
            return msgspec.structs.replace(outcome, result=result)
        case BeforeToolCallResult():
            replaced = answer.arguments
        case ToolCall():
            replaced = None if answer.arguments == call.arguments else answer.arguments
        case _:
            raise TypeError(
                "before_tool_call returns None, a BeforeToolCallResult or a ToolCall, not "
                f"{type(answer).__name__}."
            )
    if replaced is None:
        return args
    return validate_tool_arguments(tool, msgspec.structs.replace(call, arguments=replaced))


async def _perform(
    settings: ToolSettings, prepared: _Prepared, progress: Progress
) -> ToolCallOutcome:
    """Execute the tool, then give the hooks their say."""
    call, tool = prepared.tool_call, prepared.tool
    began = time.perf_counter()
    ending = await call_tool(
        tool,
        call.id,
        prepared.args,
        signal=settings.signal,
        backend=settings.backend,
        progress=progress,
        abort_grace=settings.abort_grace,
        run_sync=settings.run_sync,
    )
    duration_ms = round((time.perf_counter() - began) * 1000)
    await progress.settle()
    if ending.expired:
        text = (
            ABORTED_TEXT
            if settings.aborted
            else f"Tool {tool.name} timed out after {tool.timeout:g} s"
        )
        return await _finish(settings, _failure(call, text, None))
    if ending.error is not None:
        outcome = _failure(call, _error_text(ending.error), duration_ms)
    else:
        result = _frozen(ending.result)
        outcome = ToolCallOutcome(
            tool_call=call,
            result=result,
            is_error=result.is_error is True,
            duration_ms=duration_ms,
        )
    if settings.after_tool_call is not None:
        try:
            outcome = await _ask_after(settings, settings.after_tool_call, prepared, outcome)
        except Exception as error:  # noqa: BLE001 - HK-06: fails this call only
            outcome = _failure(call, _error_text(error), duration_ms)
    return await _finish(settings, outcome)


async def _ask_after(
    settings: ToolSettings, hook: AfterToolCall, prepared: _Prepared, outcome: ToolCallOutcome
) -> ToolCallOutcome:
    answer = hook(
        AfterToolCallContext(
            assistant_message=settings.assistant_message,
            tool_call=prepared.tool_call,
            args=prepared.args,
            result=outcome.result,
            is_error=outcome.is_error,
            context=settings.context,
        ),
        settings.signal,
    )
    if isawaitable(answer):
        answer = await _wait(settings, answer)
    if answer is None:
        return outcome
    if not isinstance(answer, AfterToolCallResult):
        raise TypeError(
            "after_tool_call returns None or an AfterToolCallResult, not "
            f"{type(answer).__name__}."
        )
    before = outcome.result
    structured = answer.structured_content
    if structured is None and answer.content is None:
        structured = before.structured_content
    is_error = outcome.is_error if answer.is_error is None else answer.is_error
    result = msgspec.structs.replace(
        before,
        content=before.content if answer.content is None else tuple(answer.content),
        details=before.details if answer.details is None else answer.details,
        structured_content=structured,
        usage=before.usage if answer.usage is None else answer.usage,
        terminate=before.terminate if answer.terminate is None else answer.terminate,
        # Event, result and message say the same of a flag that was stated (DEVIATIONS 8).
        is_error=before.is_error if before.is_error is None else is_error,
    )
    return msgspec.structs.replace(outcome, result=_frozen(result), is_error=is_error)


async def _finish(settings: ToolSettings, outcome: ToolCallOutcome) -> ToolCallOutcome:
    """Let `after_tool_result` replace what event, result and message will say (S4-09)."""
    hook = settings.after_tool_result
    if hook is None:
        return outcome
    call = outcome.tool_call
    message = outcome.message()
    try:
        answer = hook(message, settings.signal)
        if isawaitable(answer):
            answer = await _wait(settings, answer)
        if answer is None or answer is message:
            return outcome
        if (answer.tool_call_id, answer.tool_name) != (call.id, call.name):
            raise ValueError(
                f"after_tool_result must keep the call id {call.id!r} and the tool name "
                f"{call.name!r}; it returned {answer.tool_call_id!r}, {answer.tool_name!r}."
            )
    except Exception as error:  # noqa: BLE001 - S4-11: fails this call only
        return _failure(call, _error_text(error), outcome.duration_ms)
    result = msgspec.structs.replace(
        outcome.result,
        content=tuple(answer.content),
        details=answer.details,
        usage=answer.usage,
        is_error=outcome.result.is_error if outcome.result.is_error is None else answer.is_error,
    )
    return msgspec.structs.replace(outcome, result=result, is_error=answer.is_error)


async def _wait(settings: ToolSettings, answer: Awaitable[Any]) -> Any:
    """Await a hook; once the run is aborted it has the same grace as a tool."""
    signal = settings.signal
    if signal is None:
        return await answer
    with settings.backend.expiry() as expiry:
        soon = settings.backend.soon(partial(expiry.expire_in, settings.abort_grace))
        remove = signal.add_listener(soon)
        try:
            return await answer
        finally:
            remove()
    return None


def _failure(call: ToolCall, text: str, duration_ms: int | None = None) -> ToolCallOutcome:
    result = AgentToolResult(content=(TextContent(text=text),), details=freeze({}))
    return ToolCallOutcome(
        tool_call=call, result=result, is_error=True, duration_ms=duration_ms
    )


def _frozen(result: AgentToolResult) -> AgentToolResult:
    """Detach a result from what the tool may still hold, before anyone sees it."""
    if type(result.details) in (dict, list) or type(result.content) is list:
        content = result.content
        return msgspec.structs.replace(
            result,
            details=freeze(result.details),
            content=None if content is None else tuple(content),
        )
    return result


def _error_text(error: BaseException) -> str:
    text = str(error)
    if not text or isinstance(error, KeyError):
        return f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text
