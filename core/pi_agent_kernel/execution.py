"""Tool calls of one response: as a batch, parallel or one by one.

Parallel (the default): all calls are prepared one after another, then the allowed ones run at
the same time; end events come in order of completion, result messages in order of the calls.
Sequential: each call is wholly finished before the next starts. Whatever happens, every call
gets exactly one result.

Source: TL-09 to TL-12, TL-16, LP-03, AB-03, AB-04, S4-04, DEVIATIONS 2, 14.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.backend import Job, Jobs
from pi_agent_kernel.events import (
    AgentEvent,
    MessageEnd,
    MessageStart,
    ToolBatchEnd,
    ToolBatchStart,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from pi_agent_kernel.invocation import Emit, Progress
from pi_agent_kernel.messages import ToolCall, ToolResultMessage
from pi_agent_kernel.tool_call import (
    ABORTED_TEXT,
    PreparedCall,
    ToolCallOutcome,
    ToolSettings,
    failed_call,
    finish_call,
    perform_call,
    prepare_call,
)

__all__ = ["ToolBatch"]

_log = logging.getLogger(__name__)


#: Seconds beyond the grace after which a cancelled tool counts as deaf.
PATIENCE = 0.5


class _RunningCall:
    """Hold one call while its tool runs."""

    __slots__ = ("closed", "job", "outcome", "prepared", "progress")

    def __init__(self, prepared: PreparedCall) -> None:
        self.prepared = prepared
        self.job: Job | None = None
        self.progress: Progress | None = None
        self.outcome: ToolCallOutcome | None = None
        self.closed = False

    @property
    def is_deaf(self) -> bool:
        """Whether the tool still runs; listeners and hooks of its end may take their time."""
        return self.progress is not None and self.progress.is_open

    def close(self) -> None:
        """Take nothing more from the tool."""
        self.closed = True
        if self.progress is not None:
            self.progress.close()


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
        self.results: list[ToolResultMessage] = []
        #: Whether every result asked to end the run (TL-16).
        self.terminate = False

    async def run(self, calls: Sequence[ToolCall]) -> None:
        """Handle all calls; afterwards `results` has one message per call, in call order."""
        if self._lifecycle:
            await self._send(ToolBatchStart(count=len(calls)))
        truncated = self._settings.assistant_message.stop_reason == "length"
        if truncated:
            outcomes = await self._refuse_truncated(calls)
        elif self._sequential(calls):
            outcomes = [await self._run_one(call) for call in calls]
        else:
            outcomes = await self._run_parallel(calls)
            for outcome in outcomes:
                await self._record(outcome)
        # A truncated batch asks for the calls again, whatever a hook made of its results (LP-03).
        self.terminate: bool = not truncated and all(
            one.result.terminate is True for one in outcomes
        )
        if self._lifecycle:
            await self._send(ToolBatchEnd(count=len(calls)))

    def _sequential(self, calls: Sequence[ToolCall]) -> bool:
        tools = self._settings.tools
        return self._settings.mode == "sequential" or any(
            call.name in tools and tools[call.name].execution_mode == "sequential" for call in calls
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
            outcome = await finish_call(self._settings, failed_call(call, text))
            await self._end(outcome)
            await self._record(outcome)
            outcomes.append(outcome)
        return outcomes

    async def _run_one(self, call: ToolCall) -> ToolCallOutcome:
        await self._announce(call)
        prepared = await prepare_call(self._settings, call)
        if isinstance(prepared, ToolCallOutcome):
            await self._end(prepared)
            outcome = prepared
        else:
            [outcome] = await self._execute([prepared])
        await self._record(outcome)
        return outcome

    async def _run_parallel(self, calls: Sequence[ToolCall]) -> list[ToolCallOutcome]:
        steps: list[PreparedCall | ToolCallOutcome] = []
        for call in calls:
            await self._announce(call)
            prepared = await prepare_call(self._settings, call)
            if isinstance(prepared, ToolCallOutcome):
                await self._end(prepared)
            steps.append(prepared)
        allowed = [step for step in steps if isinstance(step, PreparedCall)]
        executed = iter(await self._execute(allowed) if allowed else ())
        return [next(executed) if isinstance(step, PreparedCall) else step for step in steps]

    async def _execute(self, allowed: Sequence[PreparedCall]) -> list[ToolCallOutcome]:
        """Run prepared calls at the same time; each announces its end when it comes."""
        settings = self._settings
        running = [_RunningCall(prepared) for prepared in allowed]
        async with settings.backend.open_jobs() as jobs:
            # A tool may swallow its cancellation; the batch does not wait for it for ever.
            patience = settings.watch.grace + PATIENCE
            key = settings.watch.add(partial(settings.backend.later, patience, jobs.wake))
            try:
                for one in running:
                    one.job = jobs.start(partial(self._carry_out, one, jobs))
                await jobs.join()
                await self._leave_behind([one for one in running if one.is_deaf], jobs)
                await jobs.join()
            finally:
                settings.watch.discard(key)
                if jobs.error is not None:
                    for one in running:
                        one.close()
            if jobs.error is not None:
                raise jobs.error
        return [one.outcome for one in running if one.outcome is not None]

    async def _carry_out(self, one: _RunningCall, jobs: Jobs) -> None:
        settings, prepared = self._settings, one.prepared
        task = settings.backend.task()
        settings.tasks.add(task)
        try:
            if settings.aborted:
                failed = failed_call(prepared.tool_call, ABORTED_TEXT)
                outcome = await finish_call(settings, failed)
            else:
                one.progress = Progress.of_call(
                    settings.backend, self._emit, prepared.tool_call, jobs, settings.tasks
                )
                outcome = await perform_call(settings, prepared, one.progress)
            if not one.closed and one.outcome is None:
                one.outcome = outcome
                await self._end(outcome)
        finally:
            settings.tasks.discard(task)

    async def _leave_behind(self, deaf: Sequence[_RunningCall], jobs: Jobs) -> None:
        """Answer calls whose tools did not end although they were cancelled (DEVIATIONS 14)."""
        if jobs.error is not None:
            return
        for one in deaf:
            _log.warning("Tool %r ignores its cancellation.", one.prepared.tool.name)
            one.close()
            if one.job is not None:
                jobs.leave(one.job)
            one.outcome = await finish_call(
                self._settings, failed_call(one.prepared.tool_call, ABORTED_TEXT)
            )
            await self._end(one.outcome)

    # -------------------------------------------------------------------------- events

    async def _send(self, event: AgentEvent) -> None:
        waiting = self._emit(event)
        if waiting is not None and is_awaitable(waiting):
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
                raised=outcome.raised,
            )
        )

    async def _record(self, outcome: ToolCallOutcome) -> None:
        message = outcome.message()
        await self._send(MessageStart(message=message))
        await self._send(MessageEnd(message=message))
        self.results.append(message)
