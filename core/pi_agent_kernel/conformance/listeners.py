"""Scripted listeners, and the one that records the trace (FORMAT.md, section 9)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pi_agent_kernel import AbortSignal, AgentEvent
from pi_agent_kernel.conformance.script import Json, RuleSet
from pi_agent_kernel.conformance.stage import Callee, Stage
from pi_agent_kernel.conformance.steps import run_steps
from pi_agent_kernel.conformance.trace import event_facts

__all__ = ["ListenerFunction", "closer", "recorder", "scripted_listener"]

ListenerFunction = Callable[[AgentEvent, AbortSignal | None], Awaitable[Any]]


def recorder(stage: Stage) -> ListenerFunction:
    """Make the listener that writes each event into the log."""

    async def record(event: AgentEvent, _signal: AbortSignal | None) -> None:
        stage.log.add_event(event)
        stage.record(event)

    return record


def closer(stage: Stage) -> ListenerFunction:
    """Make the listener that opens the gate of each ended tool call."""

    async def close(event: AgentEvent, _signal: AbortSignal | None) -> None:
        stage.close(event)

    return close


def scripted_listener(stage: Stage, listener: Json) -> ListenerFunction:
    """Make a listener; keep the function, so that it stays one however often it subscribes.

    Args:
        stage: The running scenario.
        listener: Its `id` and `rules`, and the event types to `log`.
    """
    name: str = listener["id"]
    rules = RuleSet(listener.get("rules", ()))
    logged = frozenset(listener.get("log", ()))

    async def listen(event: AgentEvent, signal: AbortSignal | None) -> None:
        entry: Json = {"listener": name, "event": event.type}
        shown = event.type in logged or "*" in logged
        matching = rules.matching(event_facts(event))
        if shown:
            stage.log.add({**entry, "phase": "enter"})
        for steps in matching:
            await run_steps(stage, steps, Callee(where=name, signal=signal))
        if shown:
            stage.log.add({**entry, "phase": "exit"})

    return listen
