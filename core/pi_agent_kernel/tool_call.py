"""The steps of one tool call.

    lookup -> prepare_arguments -> validate -> before_tool_call      `prepare_call`
           -> execute -> after_tool_call                             `perform_call`
           -> after_tool_result                                      `finish_call`

Every step that fails ends in an outcome with `is_error`; none raises for the tool or its hooks.

Source: TL-03 to TL-08, TL-13 to TL-19, HK-01 to HK-06, S4-08, S4-09, DEVIATIONS 8.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.abort_watch import AbortWatch
from pi_agent_kernel.agent_tool import is_async_callable
from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.backend import Backend, current_backend, is_cancellation
from pi_agent_kernel.errors import ToolNotFoundError, error_text, raised_at
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
from pi_agent_kernel.invocation import Ending, Progress, RunSync, call_tool
from pi_agent_kernel.json_value import EMPTY, freeze, thaw
from pi_agent_kernel.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage
from pi_agent_kernel.notes import Notes
from pi_agent_kernel.schema import validate_tool_arguments
from pi_agent_kernel.tools import AgentTool, AgentToolResult

__all__ = [
    "ABORTED_TEXT",
    "PreparedCall",
    "ToolCallOutcome",
    "ToolSettings",
    "failed_call",
    "finish_call",
    "perform_call",
    "prepare_call",
    "run_tool_call",
]

#: What the model reads of a call that an abort kept from finishing (FORMAT 11).
ABORTED_TEXT = "Operation aborted"


class ToolCallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Be how one tool call ended; `duration_ms` is None when the tool did not run (TL-18).

    `raised` says what the tool or a hook raised and where, for a person; None if nothing was.
    """

    tool_call: ToolCall
    result: AgentToolResult
    is_error: bool
    duration_ms: int | None = None
    raised: str | None = None

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
    watch: AbortWatch
    backend: Backend
    before_tool_call: BeforeToolCall | None = None
    after_tool_call: AfterToolCall | None = None
    after_tool_result: AfterToolResult | None = None
    mode: ToolExecutionMode = "parallel"
    run_sync: RunSync | None = None
    #: Gets the task of each call while it runs.
    tasks: set[object] = msgspec.field(default_factory=set[object])
    notes: Notes = msgspec.field(default_factory=Notes)

    @property
    def aborted(self) -> bool:
        """Whether the run was aborted."""
        return self.watch.aborted


class PreparedCall(msgspec.Struct, kw_only=True):
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
    if on_update is not None and is_async_callable(on_update):
        raise TypeError("on_update is a plain function: a tool's report does not wait for it.")
    backend = current_backend()
    settings = ToolSettings(
        tools={tool.name: tool for tool in reversed(tools)},
        assistant_message=assistant_message
        or AssistantMessage(content=(tool_call,), stop_reason="toolUse"),
        context=context or AgentContext(),
        watch=AbortWatch(signal, backend, abort_grace),
        backend=backend,
        before_tool_call=before_tool_call,
        after_tool_call=after_tool_call,
        run_sync=run_sync,
    )
    try:
        prepared = await prepare_call(settings, tool_call)
        if isinstance(prepared, ToolCallOutcome):
            return prepared
        progress = Progress(backend, on_update or (lambda _partial: None))
        return await perform_call(settings, prepared, progress)
    finally:
        settings.watch.close()


async def prepare_call(settings: ToolSettings, call: ToolCall) -> PreparedCall | ToolCallOutcome:
    """Look up, prepare, validate and ask; an outcome means that the tool will not run."""
    if settings.aborted:
        return await finish_call(settings, failed_call(call, ABORTED_TEXT))
    tool = settings.tools.get(call.name)
    if tool is None:
        return await finish_call(settings, failed_call(call, str(ToolNotFoundError(call.name))))
    try:
        args = await _arguments(settings, tool, call)
        if args is None:
            return await finish_call(settings, failed_call(call, ABORTED_TEXT))
        if settings.before_tool_call is not None:
            decided = await _ask_before(settings, settings.before_tool_call, tool, call, args)
            if isinstance(decided, ToolCallOutcome):
                return await finish_call(settings, decided)
            args = decided
    except BaseException as error:  # HK-06: fails this call only
        if is_cancellation(error):
            raise
        return await finish_call(settings, _raised(call, error))
    return PreparedCall(tool_call=call, tool=tool, args=args)


async def _arguments(
    settings: ToolSettings, tool: AgentTool, call: ToolCall
) -> dict[str, Any] | None:
    """Prepare and validate the arguments; None if the run was aborted meanwhile."""
    if tool.prepare_arguments is None or call.arguments_error is not None:
        return validate_tool_arguments(tool, call)
    with settings.notes.waiting("hook", "prepare_arguments", tool.prepare_arguments, call.id):
        prepared = tool.prepare_arguments(thaw(call.arguments))
        if is_awaitable(prepared):
            prepared = await settings.watch.outlast(prepared)
            if settings.aborted:
                return None
    return validate_tool_arguments(tool, msgspec.structs.replace(call, arguments=prepared))


async def _ask_before(
    settings: ToolSettings,
    hook: BeforeToolCall,
    tool: AgentTool,
    call: ToolCall,
    args: dict[str, Any],
) -> dict[str, Any] | ToolCallOutcome:
    context = BeforeToolCallContext(
        assistant_message=settings.assistant_message,
        tool_call=call,
        args=args,
        context=settings.context,
    )
    with settings.notes.waiting("hook", "before_tool_call", hook, call.id):
        answer: Any = hook(context, settings.watch.signal)
        if is_awaitable(answer):
            answer = await settings.watch.outlast(answer)
        if not isinstance(answer, BeforeToolCallResult | ToolCall | None):
            raise TypeError(
                "before_tool_call returns None, a BeforeToolCallResult or a ToolCall, not "
                f"{type(answer).__name__}."
            )
    if settings.aborted:
        return failed_call(call, ABORTED_TEXT)
    replaced: Mapping[str, Any] | None = None
    match answer:
        case None:
            return args
        case BeforeToolCallResult(block=True):
            reason = answer.reason or "Tool execution was blocked"
            settings.notes.decided(
                "before_tool_call", f"blocked: {reason}", answer.origin or hook, call.id
            )
            outcome = failed_call(call, reason)
            if answer.terminate is not True:
                return outcome
            result = msgspec.structs.replace(outcome.result, terminate=True)
            return msgspec.structs.replace(outcome, result=result)
        case BeforeToolCallResult():
            replaced = answer.arguments
        case ToolCall():
            replaced = None if answer.arguments == call.arguments else answer.arguments
    if replaced is None:
        return args
    settings.notes.decided("before_tool_call", "replaced the arguments", hook, call.id)
    return validate_tool_arguments(tool, msgspec.structs.replace(call, arguments=replaced))


async def perform_call(
    settings: ToolSettings, prepared: PreparedCall, progress: Progress
) -> ToolCallOutcome:
    """Execute the tool, then give the hooks their say."""
    call, tool = prepared.tool_call, prepared.tool
    began = time.perf_counter()
    with settings.notes.waiting("tool", tool.name, tool.execute, call.id):
        ending = await call_tool(
            tool,
            call.id,
            prepared.args,
            watch=settings.watch,
            backend=settings.backend,
            progress=progress,
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
        return await finish_call(settings, failed_call(call, text, None))
    outcome = _outcome(call, ending, duration_ms)
    if settings.after_tool_call is not None:
        try:
            outcome = await _ask_after(settings, settings.after_tool_call, prepared, outcome)
        except BaseException as error:  # HK-06: fails this call only
            if is_cancellation(error):
                raise
            outcome = _raised(call, error, duration_ms)
    return await finish_call(settings, outcome)


def _outcome(call: ToolCall, ending: Ending, duration_ms: int) -> ToolCallOutcome:
    if ending.error is not None:
        return _raised(call, ending.error, duration_ms)
    try:
        result = _frozen(ending.result)
    except Exception as error:  # noqa: BLE001 - what a tool returned fails its own call only
        text = f"The result of tool {call.name} cannot be kept: {_error_text(error)}"
        return failed_call(call, text, duration_ms)
    return ToolCallOutcome(
        tool_call=call,
        result=result,
        is_error=result.is_error is True,
        duration_ms=duration_ms,
    )


async def _ask_after(
    settings: ToolSettings, hook: AfterToolCall, prepared: PreparedCall, outcome: ToolCallOutcome
) -> ToolCallOutcome:
    call = prepared.tool_call
    context = AfterToolCallContext(
        assistant_message=settings.assistant_message,
        tool_call=call,
        args=prepared.args,
        result=outcome.result,
        is_error=outcome.is_error,
        context=settings.context,
    )
    with settings.notes.waiting("hook", "after_tool_call", hook, call.id):
        answer: Any = hook(context, settings.watch.signal)
        if is_awaitable(answer):
            answer = await settings.watch.outlast(answer)
        if answer is None:
            return outcome
        if not isinstance(answer, AfterToolCallResult):
            raise TypeError(
                "after_tool_call returns None or an AfterToolCallResult, not "
                f"{type(answer).__name__}."
            )
    given = [name for name in answer.__struct_fields__ if getattr(answer, name) is not None]
    settings.notes.decided("after_tool_call", f"replaced {', '.join(given)}", hook, call.id)
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


async def finish_call(settings: ToolSettings, outcome: ToolCallOutcome) -> ToolCallOutcome:
    """Let `after_tool_result` replace what event, result and message will say (S4-09)."""
    hook = settings.after_tool_result
    if hook is None:
        return outcome
    call = outcome.tool_call
    message = outcome.message()
    try:
        with settings.notes.waiting("hook", "after_tool_result", hook, call.id):
            answer: Any = hook(message, settings.watch.signal)
            if is_awaitable(answer):
                answer = await settings.watch.outlast(answer)
            if answer is None or answer is message:
                return outcome
            if not isinstance(answer, ToolResultMessage):
                raise TypeError(
                    "after_tool_result returns None or a ToolResultMessage, not "
                    f"{type(answer).__name__}."
                )
            if (answer.tool_call_id, answer.tool_name) != (call.id, call.name):
                raise ValueError(
                    f"after_tool_result must keep the call id {call.id!r} and the tool name "
                    f"{call.name!r}; it returned {answer.tool_call_id!r}, {answer.tool_name!r}."
                )
        settings.notes.decided("after_tool_result", "replaced the result", hook, call.id)
    except BaseException as error:  # S4-11: fails this call only
        if is_cancellation(error):
            raise
        return _raised(call, error, outcome.duration_ms)
    result = msgspec.structs.replace(
        outcome.result,
        content=tuple(answer.content),
        details=answer.details,
        usage=answer.usage,
        is_error=outcome.result.is_error if outcome.result.is_error is None else answer.is_error,
    )
    return msgspec.structs.replace(outcome, result=result, is_error=answer.is_error)


def failed_call(call: ToolCall, text: str, duration_ms: int | None = None) -> ToolCallOutcome:
    """Make the outcome of a call that failed, with the text that the model reads."""
    result = AgentToolResult(content=(TextContent(text=text),), details=EMPTY)
    return ToolCallOutcome(tool_call=call, result=result, is_error=True, duration_ms=duration_ms)


def _raised(
    call: ToolCall, error: BaseException, duration_ms: int | None = None
) -> ToolCallOutcome:
    outcome = failed_call(call, _error_text(error), duration_ms)
    return msgspec.structs.replace(outcome, raised=raised_at(error))


def _frozen(result: AgentToolResult) -> AgentToolResult:
    """Detach a result from what the tool may still hold, before anyone sees it."""
    details, structured = freeze(result.details), freeze(result.structured_content)
    if details is result.details and structured is result.structured_content:
        return result
    return msgspec.structs.replace(result, details=details, structured_content=structured)


def _error_text(error: BaseException) -> str:
    name, text = type(error).__name__, error_text(error)
    # A KeyError says nothing but the key.
    return f"{name}: {text}" if isinstance(error, KeyError) and not text.startswith(name) else text
