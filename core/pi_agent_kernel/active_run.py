"""What belongs to one run of an agent, and what the agent hands to the loop for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.abort import AbortController, AbortSignal
from pi_agent_kernel.backend import Backend, current_backend
from pi_agent_kernel.hooks import TurnContext
from pi_agent_kernel.loop_config import AgentLoopConfig, default_convert_to_llm
from pi_agent_kernel.messages import AgentMessage
from pi_agent_kernel.queues import Queues

if TYPE_CHECKING:
    from pi_agent_kernel.agent import Agent

__all__ = ["ActiveRun", "config_of"]


class ActiveRun:
    """Hold what one run has from before its first event until it has settled."""

    __slots__ = ("backend", "controller", "tasks", "waiters")

    def __init__(self) -> None:
        self.controller = AbortController()
        self.backend: Backend = current_backend()
        #: The run's own tasks: whoever waits for idle in one of them would wait for itself.
        self.tasks: set[object] = set()
        #: Called when the run has settled; each wakes one `wait_for_idle`.
        self.waiters: list[Callable[[], None]] = []


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
        identity=agent.identity,
        on_payload=agent.on_payload,
        on_response=agent.on_response,
        on_provider_stream_event=agent.on_provider_stream_event,
        lifecycle_events=True,
        tasks=active.tasks,
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
