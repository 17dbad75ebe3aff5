"""Scripted tools (FORMAT.md, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pi_agent_kernel import AbortSignal, AgentTool, AgentToolResult
from pi_agent_kernel.conformance.inputs import tool_result_from
from pi_agent_kernel.conformance.script import Json, RuleSet, ScriptedError, snake_case
from pi_agent_kernel.conformance.stage import NO_VALUE, Callee, Stage
from pi_agent_kernel.conformance.steps import run_steps
from pi_agent_kernel.conformance.trace import aborted_state, plain

__all__ = ["scripted_tools"]

_NO_PARAMETERS: Json = {"type": "object", "properties": {}}
_PASSED_THROUGH = ("executionMode", "constrainedSampling", "outputSchema")


def scripted_tools(stage: Stage) -> dict[str, AgentTool]:
    """Make one tool per alias of the scenario's table."""
    specs: dict[str, Json] = stage.scenario.get("tools", {})
    return {alias: _ScriptedTool(stage, alias, spec).tool() for alias, spec in specs.items()}


class _ScriptedTool:
    def __init__(self, stage: Stage, alias: str, spec: Json) -> None:
        self._stage = stage
        self._alias = alias
        self._spec = spec
        self._name: str = spec.get("name", alias)
        self._rules = RuleSet(spec.get("calls", ()))
        self._executions = 0

    def tool(self) -> AgentTool:
        spec, name = self._spec, self._name
        options = {snake_case(key): spec[key] for key in _PASSED_THROUGH if key in spec}
        if "prepareArguments" in spec:
            options["prepare_arguments"] = self._prepare_arguments
        return AgentTool(
            name=name,
            label=spec.get("label", name),
            description=spec.get("description", f"{name} tool"),
            parameters=spec.get("parameters", _NO_PARAMETERS),
            execute=self._execute,
            **options,
        )

    def _prepare_arguments(self, raw: Mapping[str, Any]) -> Json:
        how: Json = self._spec["prepareArguments"]
        self._stage.log.add({"prepareArguments": self._name, "args": plain(raw)})
        if "throw" in how:
            raise ScriptedError(how["throw"])
        args: Json = plain(raw)
        for old, new in how.get("rename", {}).items():
            if old in args:
                args[new] = args.pop(old)
        return {**how.get("default", {}), **args}

    async def _execute(
        self,
        tool_call_id: str,
        params: Json,
        signal: AbortSignal | None,
        on_update: Callable[[Any], object] | None,
    ) -> AgentToolResult | None:
        self._executions += 1
        entry: Json = {
            "tool": self._name,
            "id": tool_call_id,
            "args": plain(params),
            "aborted": aborted_state(signal),
        }
        if self._alias != self._name:
            entry["alias"] = self._alias
        self._stage.log.add(entry)
        variables: Json = {
            "args": plain(params),
            "id": tool_call_id,
            "name": self._name,
            "n": self._executions,
        }
        callee = Callee(
            where=f"tool:{tool_call_id}",
            signal=signal,
            variables=variables,
            args=params,
            report=on_update or (lambda _result: None),
        )
        await self._stage.tick()
        await self._stage.wait_turn(tool_call_id)
        steps = self._rules.first({"id": tool_call_id, "args": variables["args"]})
        value = await run_steps(self._stage, steps or (), callee)
        return tool_result_from(self._usual_result() if value is NO_VALUE else value)

    def _usual_result(self) -> Json:
        return {"content": [{"type": "text", "text": f"{self._name} ok"}], "details": {}}
