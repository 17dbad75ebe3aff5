"""The listeners: raise, wait, leave, queue, abort, cancel, prompt again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from fuzz.hooks import reset_refused
from fuzz.plans import BLINK, ListenerPlan
from pi_agent_kernel import ALL_EVENTS, AgentIdle

if TYPE_CHECKING:
    from fuzz.world import World


class ListenerError(Exception):
    """Be what a planned listener raises."""


def subscribe(world: World, plan: ListenerPlan) -> None:
    seen = 0
    left = plan.times

    def due(event: Any) -> bool:
        nonlocal seen, left
        seen += 1
        if plan.action == "prompt_on_idle":
            ready = isinstance(event, AgentIdle) and left == plan.times
        else:
            ready = seen > plan.nth and left > 0
        left -= ready
        return ready and not world.quiet

    def plain(event: Any, _signal: Any) -> None:
        if due(event):
            _react(world, plan, unsubscribe, event)

    async def awaited(event: Any, _signal: Any) -> None:
        if due(event):
            await (anyio.sleep(BLINK) if plan.action == "slow" else anyio.lowlevel.checkpoint())
            if plan.action == "prompt_on_idle" and not world.cancelled:
                await world.agent.prompt([world.say("i")])
            _react(world, plan, unsubscribe, event)

    listener = awaited if plan.is_async else plain
    unsubscribe = world.agent.subscribe(listener, events=ALL_EVENTS)


def _react(world: World, plan: ListenerPlan, unsubscribe: Callable[[], None], event: Any) -> None:
    match plan.action:
        case "raise":
            raise ListenerError(f"a listener broke at {event.type}")
        case "raise_cancelled":
            raise world.cancellation()  # reaches the host as a plain error
        case "unsubscribe":
            unsubscribe()
        case "subscribe":
            world.agent.subscribe(lambda _event, _signal: None)
        case "abort":
            world.agent.abort()
        case "steer" | "follow_up":
            if plan.nth + 3 > len(world.said):
                world.queue(plan.action)
        case "thread_steer" | "thread_follow_up":
            if plan.nth + 3 > len(world.said):
                message = world.say("t")
                kind = plan.action.removeprefix("thread_")
                world.start_thread(partial(getattr(world.agent, kind), message))
        case "thread_abort":
            world.start_thread(world.agent.abort)
        case "cancel":
            world.disturb("cancel")
        case "busy":
            if world.agent.state.is_streaming:
                reset_refused(world)
        case _:
            pass
