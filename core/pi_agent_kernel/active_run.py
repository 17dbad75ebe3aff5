"""What belongs to one run of an agent, and what the agent hands to the loop for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from pi_agent_kernel.abort import AbortController, AbortSignal
from pi_agent_kernel.backend import Backend, Job, Jobs, current_backend, is_cancellation
from pi_agent_kernel.events import AgentEvent, AgentIdle, MessageUpdate
from pi_agent_kernel.failure import OpenParts, close_failed_run
from pi_agent_kernel.hooks import AgentContext, TurnContext
from pi_agent_kernel.log import EventLog
from pi_agent_kernel.loop import run_agent_loop, run_agent_loop_continue
from pi_agent_kernel.loop_config import AgentLoopConfig, default_convert_to_llm
from pi_agent_kernel.messages import AgentMessage
from pi_agent_kernel.queues import Queues
from pi_agent_kernel.state import AgentState
from pi_agent_kernel.subscriptions import Subscriptions
from pi_agent_kernel.tools import current_agent

if TYPE_CHECKING:
    from pi_agent_kernel.agent import Agent

__all__ = ["ActiveRun", "config_of"]


#: Seconds that listeners of agent_idle have when whoever awaits the run was cancelled.
IDLE_LIMIT = 1.0


class ActiveRun:
    """Be one run from before its first event until it has settled.

    The run has a task of its own on the loop that awaits it. Each event is applied to the state,
    then logged, then delivered.
    """

    __slots__ = (
        "_error",
        "_log",
        "_open",
        "_parts",
        "_state",
        "_subscriptions",
        "_waiters",
        "backend",
        "controller",
        "tasks",
    )

    def __init__(self, state: AgentState, log: EventLog, subscriptions: Subscriptions) -> None:
        self._state = state
        self._log = log
        self._subscriptions = subscriptions
        self._open = True
        self._error: BaseException | None = None
        self._parts = OpenParts()
        self._waiters: list[Callable[[], None]] = []
        self.controller: AbortController = AbortController()
        self.backend: Backend = current_backend()
        #: The run's own tasks: whoever waits for idle in one of them would wait for itself.
        self.tasks: set[object] = set()

    async def carry_out(
        self, prompts: Sequence[AgentMessage] | None, config: AgentLoopConfig, agent: Agent
    ) -> BaseException | None:
        """Run to the end; whoever awaits this may be cancelled, which aborts the run (AB-09).

        Returns:
            What a listener raised while a failure was announced (FL-05), or None.
        """
        async with self.backend.open_jobs() as jobs:
            job = jobs.start(partial(self._work, prompts, config, agent))
            try:
                await jobs.join()
            except anyio.get_cancelled_exc_class():
                agent.abort()
                await self._outlast(job, jobs)
                raise
        return self._error or jobs.error

    async def _outlast(self, job: Job, jobs: Jobs) -> None:
        """Wait for the end of a run whose caller was cancelled.

        Being cancelled again cuts off what the run awaits just then, a listener for example; it
        still closes itself.
        """
        while not job.done:
            try:
                with anyio.CancelScope(shield=True):
                    await jobs.join()
            except anyio.get_cancelled_exc_class():
                job.cancel()

    def emit(self, event: AgentEvent) -> Awaitable[None] | None:
        """Apply an event to the state, log it, deliver it (EV-04, EV-10)."""
        if not self._open:
            raise RuntimeError(f"{event.type} was emitted outside an active run.")
        if type(event) is MessageUpdate:
            self._log.append_update(event, self._state.streaming)
            self._state.streaming = event
        else:
            self._parts.note(event)
            self._log.append(event, self._state.apply(event))
        return self._subscriptions.deliver(event, self.controller.signal)

    def settle(self) -> None:
        """Take no more events and wake whoever waits for idle."""
        self._open = False
        for wake in self._waiters:
            wake()

    async def announce_idle(self, *, cancelled: bool) -> None:
        """Say that a new run may start (S4-05); quickly, if the caller was cancelled."""
        event = AgentIdle()
        self._log.append(event, self._state.apply(event))
        waiting = self._subscriptions.deliver(event, self.controller.signal)
        if waiting is not None:
            with anyio.move_on_after(IDLE_LIMIT if cancelled else None, shield=cancelled):
                await waiting

    def is_inside(self) -> bool:
        """Say whether the caller is one of the run's own tasks."""
        return current_backend().task() in self.tasks

    async def wait(self) -> None:
        """Wait until the run has settled; from any loop."""
        idle = anyio.Event()
        self._waiters.append(current_backend().soon(idle.set))
        # It may have settled on another thread's loop in between.
        if self._open:
            await idle.wait()

    async def _work(
        self, prompts: Sequence[AgentMessage] | None, config: AgentLoopConfig, agent: Agent
    ) -> None:
        self.tasks.add(self.backend.task())
        current_agent.set(agent)
        signal = self.controller.signal
        state = self._state
        context = AgentContext(messages=state.messages, tools=tuple(state.tools))
        where = (self.emit, signal, agent.stream_fn)
        try:
            if prompts is None:
                await run_agent_loop_continue(context, config, *where, backend=self.backend)
            else:
                await run_agent_loop(prompts, context, config, *where, backend=self.backend)
        except BaseException as error:  # noqa: BLE001 - FL-02: becomes a message
            if is_cancellation(error):
                self.controller.abort()
            self._error = await close_failed_run(
                state, self._parts, self.emit, error, aborted=signal.aborted
            )
            if isinstance(error, KeyboardInterrupt | SystemExit):
                # Not out of this task: that would stop the loop. The caller raises it.
                self._error = error


def config_of(
    agent: Agent, queues: Queues, active: ActiveRun, *, skip_first_poll: bool
) -> AgentLoopConfig:
    """Capture the agent's settings for one run; changing them counts from the next (CO-12).

    Args:
        agent: The agent.
        queues: Its queues.
        active: The run.
        skip_first_poll: Leave out the steering poll at the start: the prompt is a steering
            batch already (LP-15).
    """
    state = agent.state
    level = state.thinking_level
    should_stop = agent.should_stop
    prepare = agent.prepare_next_turn or agent.prepare_next_turn_with_context
    return AgentLoopConfig(
        model=state.model,
        reasoning=None if level == "off" else level,
        convert_to_llm=agent.convert_to_llm or default_convert_to_llm,
        transform_context=agent.transform_context,
        before_model_request=agent.before_model_request,
        after_model_response=agent.after_model_response,
        get_api_key=agent.get_api_key,
        prepare_request=agent.prepare_request,
        finish_turn=agent.finish_turn,
        should_stop=None if should_stop is None else partial(should_stop, state),
        prepare_next_turn=None if prepare is None else _prepare_next_turn(agent),
        before_tool_call=agent.before_tool_call,
        after_tool_call=agent.after_tool_call,
        after_tool_result=agent.after_tool_result,
        tool_execution=agent.tool_execution,
        abort_grace=agent.abort_grace,
        run_sync=agent.run_sync,
        get_steering_messages=_but_the_first(queues.drain_steering)
        if skip_first_poll
        else queues.drain_steering,
        get_follow_up_messages=queues.drain_follow_up,
        return_messages=queues.put_back,
        has_queued_messages=queues.__len__,
        session_id=agent.session_id,
        transport=agent.transport,
        thinking_budgets=agent.thinking_budgets,
        max_retry_delay_ms=agent.max_retry_delay_ms,
        retry=agent.retry,
        identity=agent.identity,
        on_payload=agent.on_payload,
        on_response=agent.on_response,
        on_provider_stream_event=agent.on_provider_stream_event,
        lifecycle_events=True,
        tasks=active.tasks,
        notes=agent.log.notes,
    )


def _but_the_first(
    drain: Callable[[], list[AgentMessage]],
) -> Callable[[], list[AgentMessage]]:
    first = True

    def poll() -> list[AgentMessage]:
        nonlocal first
        if first:
            first = False
            return []
        return drain()

    return poll


def _prepare_next_turn(agent: Agent) -> Callable[[TurnContext, AbortSignal | None], Any]:
    """Bind the hook with the finished turn if there is one, else the plain one (LP-09)."""
    with_turn, plain = agent.prepare_next_turn_with_context, agent.prepare_next_turn
    if with_turn is not None:
        return with_turn

    def prepare(_turn: TurnContext, signal: AbortSignal | None) -> Any:
        return None if plain is None else plain(signal)

    return prepare
