"""Run the steps of a rule, a response or the host's script (FORMAT.md, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, NoReturn

import anyio

from pi_agent_kernel.conformance.inputs import tool_call_from, tool_result_from
from pi_agent_kernel.conformance.script import Json, ScenarioError, ScriptedError, fill
from pi_agent_kernel.conformance.stage import NO_VALUE, Callee, Stage
from pi_agent_kernel.conformance.trace import aborted_state, outcome_trace

__all__ = ["run_steps"]

#: Steps whose strings are filled from the callee's variables.
_FILLED = frozenset({"return", "update", "lateUpdate", "note", "callTool"})


async def run_steps(stage: Stage, steps: Sequence[Json], callee: Callee) -> Any:
    """Run steps one after another.

    Args:
        stage: The running scenario.
        steps: The steps.
        callee: For whom they run.

    Returns:
        The value of the `return` step that ended them, otherwise `NO_VALUE`.

    Raises:
        ScriptedError: A `throw` step said so.
        ScenarioError: A step is unknown, or makes no sense for this callee.

    Cancellation: Ends the step that waits.
    """
    with stage.noting_problems():
        for step in steps:
            if "return" in step:
                return _filled(step["return"], callee)
            await _run_step(stage, step, callee)
    return NO_VALUE


def _filled(value: Any, callee: Callee) -> Any:
    return value if callee.variables is None else fill(value, callee.variables)


async def _run_step(stage: Stage, step: Json, callee: Callee) -> None:
    if "do" in step:
        await _run_action(stage, step, callee)
        return
    if not step:
        raise ScenarioError("a step is empty")
    kind = next((name for name in step if name != "afterMs"), "afterMs")
    value: Any = _filled(step[kind], callee) if kind in _FILLED else step[kind]
    signal = callee.signal
    match kind:
        case "delay":
            await anyio.sleep(value / 1000)
        case "open":
            stage.open_gate(value)
        case "wait":
            await stage.wait_gate(value)
        case "waitEnd":
            await stage.wait_gate(f"end:{value}")
        case "waitEvent":
            await stage.wait_event(value)
        case "waitAbort":
            if signal is not None:
                await signal.wait()
        case "note":
            stage.log.add({"note": value})
        case "noteAborted":
            stage.log.add({"note": value, "aborted": aborted_state(signal)})
        case "throw":
            raise ScriptedError(value)
        case "throwIfAborted":
            if signal is not None and signal.aborted:
                raise ScriptedError(value)
        case _:
            await _run_callee_step(stage, kind, step, value, callee)


async def _run_callee_step(stage: Stage, kind: str, step: Json, value: Any, callee: Callee) -> None:
    """Run a step that only some callees understand."""
    if kind == "update" and callee.report is not None:
        await _report(callee, value)
        await stage.tick()
    elif kind == "lateUpdate" and callee.report is not None:
        stage.tasks.start_soon(_report_late, callee, value, step.get("afterMs", 0))
    elif kind == "mutateArgs" and callee.args is not None:
        callee.args.update(value)
    elif kind == "callTool" and callee.report is not None:
        outcome = await stage.host.call_tool(tool_call_from(value), callee.signal)
        stage.log.add(outcome_trace(outcome))
    elif kind == "push" and callee.push is not None:
        callee.push(value)
    elif kind == "end" and callee.end is not None:
        callee.end(value)
    else:
        place = "" if callee.where is None else f" in {callee.where}"
        raise ScenarioError(f"unknown step {kind!r}{place}")


async def _report(callee: Callee, result: Json) -> None:
    if callee.report is not None:
        answer = callee.report(tool_result_from(result))
        if isawaitable(answer):
            await answer


async def _report_late(callee: Callee, result: Json, after_ms: float) -> None:
    await anyio.sleep(after_ms / 1000)
    await _report(callee, result)


class _Action(Json):
    def __missing__(self, field: str) -> NoReturn:
        raise ScenarioError(f"action {self['do']!r} lacks {field!r}")


async def _run_action(stage: Stage, step: Json, callee: Callee) -> None:
    """Do a host action and log it; its failure is recorded, never fatal (FORMAT.md, section 7)."""
    action: Json = _Action(_filled(step, callee))
    name: str = action["do"]
    source: Json = {} if callee.where is None else {"from": callee.where}
    if name == "read":
        stage.log.add({"read": action.get("label"), **source, "state": stage.host.snapshot()})
        return
    if name == "readPartial":
        content = stage.host.partial_content()
        stage.log.add({"read": action.get("label"), **source, "partial": content})
        return
    if action.get("background") and callee.where is None:
        stage.log.add({"action": name, "background": True})
        stage.start_in_background(action)
        return
    entry: Json = {"action": name, **source}
    try:
        value = await stage.host.perform(action)
        if value is not NO_VALUE:
            entry["value"] = value
    except ScenarioError:
        raise
    except Exception as error:  # noqa: BLE001 - a failed action is an entry
        entry["throws"] = stage.host.describe_error(error)
    state = stage.host.snapshot() if callee.where is None else None
    if state is not None:
        entry["state"] = state
    stage.log.add(entry)
