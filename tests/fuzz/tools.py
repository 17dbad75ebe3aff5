"""The tools: every way to end, to hang, and to misbehave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from fuzz.plans import BLINK, EDITED, FOREVER, ToolPlan
from pi_agent_kernel import AgentBusyError, AgentStateError, AgentTool, AgentToolResult, tool

if TYPE_CHECKING:
    from fuzz.world import World

EXECUTOR = ThreadPoolExecutor(2)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
RAISED: dict[str, Callable[[], BaseException]] = {
    "raise": lambda: ValueError("bad luck"),
    "raise_silent": ValueError,
    "raise_cancelled": asyncio.CancelledError,
    "raise_interrupt": KeyboardInterrupt,
    "raise_exit": lambda: SystemExit(3),
    "raise_stop": StopIteration,
    "raise_stop_async": StopAsyncIteration,
    "raise_generator_exit": GeneratorExit,
    "raise_group": lambda: BaseExceptionGroup("many", [ValueError("a"), KeyboardInterrupt()]),
}


def make_tool(world: World, name: str, plan: ToolPlan) -> AgentTool:
    options: dict[str, Any] = {
        "name": name,
        "execution_mode": "sequential" if plan.sequential else None,
        "timeout": 0.003 if plan.timeout else None,
    }

    async def deaf(n: int = 0) -> Any:
        return await _act(world, plan, None, _nothing)

    async def listening(_id: str, _args: Any, signal: Any, on_update: Any) -> Any:
        return await _act(world, plan, signal, on_update)

    def plain(_id: str, _args: Any, signal: Any, on_update: Any) -> Any:
        return _act_plainly(world, plan, signal, on_update)

    if plan.place == "async_deaf":
        return tool(deaf, **options)
    if plan.place == "async":
        return AgentTool(execute=listening, parameters=SCHEMA, **options)
    if plan.place == "inline":
        options["thread"] = False
    if plan.place == "executor":
        options["executor"] = EXECUTOR
    return AgentTool(execute=plain, parameters=SCHEMA, **options)


async def _act(world: World, plan: ToolPlan, signal: Any, on_update: Any) -> Any:
    match plan.action:
        case "slow" | "timeout":
            await anyio.sleep(2 * BLINK if plan.action == "slow" else 6 * BLINK)
        case "abort_slow":
            world.disturb()
            await anyio.sleep(2 * BLINK)
        case "hang":
            world.disturb()
            await anyio.sleep(FOREVER)
        case "wait_signal":
            world.disturb()
            await (anyio.sleep(FOREVER) if signal is None else signal.wait())
        case "swallow":
            world.disturb()
            try:
                await anyio.sleep(FOREVER)
            except anyio.get_cancelled_exc_class():
                await anyio.sleep(BLINK)
        case "raise_on_cancel":
            world.disturb()
            try:
                await anyio.sleep(FOREVER)
            except anyio.get_cancelled_exc_class():
                raise ValueError("too late") from None
        case "update":
            on_update("half")
            await anyio.lowlevel.checkpoint()
            on_update({"n": 2})
        case "nested_prompt":
            try:
                await world.agent.prompt("no")
            except AgentBusyError:
                return "busy"
        case "wait_idle":
            try:
                await world.agent.wait_for_idle()
            except AgentStateError:
                return "refused"
        case _:
            return _act_anyhow(world, plan, on_update)
    return "done"


def _act_plainly(world: World, plan: ToolPlan, signal: Any, on_update: Any) -> Any:
    match plan.action:
        case "slow" | "timeout":
            time.sleep(2 * BLINK if plan.action == "slow" else 6 * BLINK)
        case "abort_slow" | "hang" | "swallow" | "raise_on_cancel" | "wait_signal":
            world.disturb()
            time.sleep(5 * BLINK)
            if plan.action == "wait_signal":
                signal.raise_if_aborted()
        case "update":
            on_update("half")
            on_update({"n": 2})
        case "nested_prompt" | "wait_idle":
            return "a plain function cannot await"
        case _:
            return _act_anyhow(world, plan, on_update)
    return "done"


def _act_anyhow(world: World, plan: ToolPlan, on_update: Any) -> Any:
    match plan.action:
        case "none":
            return None
        case "dict":
            return {"a": [1, float("nan"), {"b": None}]}
        case "rubbish":
            return object()
        case "no_content":
            return AgentToolResult(content=None)
        case "flagged":
            return AgentToolResult(content=[EDITED], details={"k": [1]}, is_error=True)
        case "cyclic":
            cycle: list[Any] = []
            cycle.append(cycle)
            return cycle
        case "image":
            return [b"\x89PNG\r\n\x1a\n0", "and text"]
        case "terminate":
            return AgentToolResult(content=[EDITED], terminate=True)
        case "abort":
            world.agent.abort()
        case "steer" | "follow_up":
            world.queue(plan.action)
        case "late_update":
            world.start_thread(partial(_later, on_update))
        case action if action in RAISED:
            error = RAISED[action]()
            raise error
        case _:
            pass
    return "fine"


def _later(on_update: Callable[[Any], object]) -> None:
    time.sleep(BLINK)
    on_update("late")


def _nothing(_partial: object) -> None:
    """Take no progress."""
