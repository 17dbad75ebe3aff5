"""Scripted hooks: log the call, run the first matching rule, turn its value into a result.

Source: FORMAT.md, section 8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pi_agent_kernel import (
    AbortSignal,
    AfterToolCallContext,
    AfterToolCallResult,
    AgentContext,
    AgentMessage,
    AgentRequestUpdate,
    AgentTurnUpdate,
    BeforeToolCallContext,
    BeforeToolCallResult,
    PrepareRequestContext,
    TurnContext,
    TurnDecision,
)
from pi_agent_kernel.conformance.inputs import (
    apply_operations,
    default_filter,
    messages_from,
    model_named,
    tool_result_fields,
)
from pi_agent_kernel.conformance.script import Json, RuleSet, ScenarioError, snake_case
from pi_agent_kernel.conformance.stage import NO_VALUE, Callee, Stage
from pi_agent_kernel.conformance.steps import run_steps
from pi_agent_kernel.conformance.trace import aborted_state, plain, result_trace, roles

__all__ = ["HookFunction", "scripted_hook", "scripted_hooks"]

HookFunction = Callable[..., Awaitable[Any]]
#: Gives the context that an update of `prepareNextTurn` starts from.
CurrentContext = Callable[[], AgentContext]


def scripted_hooks(
    stage: Stage, current_context: CurrentContext | None = None
) -> dict[str, HookFunction]:
    """Make the hooks of a scenario's table, by their names in this package."""
    hooks: dict[str, Sequence[Json]] = stage.scenario.get("hooks", {})
    return {
        snake_case(name): scripted_hook(stage, name, rules, current_context)
        for name, rules in hooks.items()
    }


def scripted_hook(
    stage: Stage,
    name: str,
    rules: Sequence[Json],
    current_context: CurrentContext | None = None,
) -> HookFunction:
    """Make one hook.

    Args:
        stage: The running scenario.
        name: The hook's name in scenarios.
        rules: Its rules.
        current_context: What an agent's `prepareNextTurn` starts from; without it that hook
            gets the finished turn, as in the low-level loop.

    Raises:
        ScenarioError: There is no such hook.
    """
    script = _HookScript(stage, name, rules, current_context)
    functions: dict[str, HookFunction] = {
        "beforeToolCall": script.before_tool_call,
        "afterToolCall": script.after_tool_call,
        "finishTurn": script.finish_turn,
        "prepareNextTurn": (
            script.prepare_next_turn if current_context else script.prepare_next_loop_turn
        ),
        "prepareNextTurnWithContext": script.prepare_next_turn_with_context,
        "prepareRequest": script.prepare_request,
        "transformContext": script.transform_context,
        "convertToLlm": script.convert_to_llm,
        "getApiKey": script.get_api_key,
    }
    if name not in functions:
        raise ScenarioError(f"unknown hook {name!r}")
    return functions[name]


class _HookScript:
    def __init__(
        self,
        stage: Stage,
        name: str,
        rules: Sequence[Json],
        current_context: CurrentContext | None,
    ) -> None:
        self._stage = stage
        self._name = name
        self._rules = RuleSet(rules)
        self._current_context = current_context

    # -------------------------------------------------------------------------- hooks

    async def before_tool_call(
        self, context: BeforeToolCallContext, signal: AbortSignal | None
    ) -> BeforeToolCallResult | None:
        value = await self._run_for_tool(context, signal, {})
        if not value:
            return None
        return BeforeToolCallResult(
            block=bool(value.get("block")),
            reason=value.get("reason"),
            terminate=value.get("terminate"),
        )

    async def after_tool_call(
        self, context: AfterToolCallContext, signal: AbortSignal | None
    ) -> AfterToolCallResult | None:
        logged = {"result": result_trace(context.result), "isError": context.is_error}
        value = await self._run_for_tool(context, signal, logged)
        return AfterToolCallResult(**tool_result_fields(value)) if value else None

    async def finish_turn(
        self, turn: TurnContext, signal: AbortSignal | None
    ) -> TurnDecision | None:
        value = await self._run_for_turn(turn, signal)
        return TurnDecision(action=value["action"]) if value and "action" in value else None

    async def prepare_next_turn(self, signal: AbortSignal | None) -> AgentTurnUpdate | None:
        value = await self._run({**self._state(), "aborted": aborted_state(signal)}, {}, signal)
        base = self._current_context() if self._current_context else AgentContext()
        return self._turn_update(value, base)

    async def prepare_next_loop_turn(
        self, turn: TurnContext, _signal: AbortSignal | None = None
    ) -> AgentTurnUpdate | None:
        # The reference's loop passes no signal to this hook.
        return self._turn_update(await self._run_for_turn(turn, None), turn.context)

    async def prepare_next_turn_with_context(
        self, turn: TurnContext, signal: AbortSignal | None
    ) -> AgentTurnUpdate | None:
        return self._turn_update(await self._run_for_turn(turn, signal), turn.context)

    async def prepare_request(
        self, request: PrepareRequestContext, signal: AbortSignal | None
    ) -> AgentRequestUpdate | None:
        logged: Json = {
            **_context_facts(request.context),
            "model": request.model.id,
            "thinkingLevel": request.thinking_level,
            **self._state(),
            "aborted": aborted_state(signal),
        }
        value = await self._run(logged, {}, signal)
        return AgentRequestUpdate(**self._update(value, request.context)) if value else None

    async def transform_context(
        self, messages: Sequence[AgentMessage], signal: AbortSignal | None
    ) -> Sequence[AgentMessage]:
        logged: Json = {"messages": roles(messages), "aborted": aborted_state(signal)}
        operations = await self._run(logged, {}, signal)
        return self._operate(messages, operations) if operations else messages

    async def convert_to_llm(self, messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        operations = await self._run({"messages": roles(messages)}, {}, None)
        if operations is None:
            return default_filter(messages)
        return self._operate(messages, operations)

    async def get_api_key(self, provider: str) -> str | None:
        return await self._run({"provider": provider}, {}, None)

    # -------------------------------------------------------------------- running rules

    async def _run(
        self,
        logged: Json,
        facts: Json,
        signal: AbortSignal | None,
        args: Json | None = None,
    ) -> Any:
        """Log the call and run its rule; None when it returns nothing."""
        self._stage.log.add({"hook": self._name, **logged})
        steps = self._rules.first(facts)
        variables = None if args is None else {"args": plain(args), "id": facts["id"]}
        callee = Callee(where=f"hook:{self._name}", signal=signal, variables=variables, args=args)
        value = await run_steps(self._stage, steps or (), callee)
        return None if value is NO_VALUE else value

    async def _run_for_tool(
        self,
        context: BeforeToolCallContext | AfterToolCallContext,
        signal: AbortSignal | None,
        logged: Json,
    ) -> Any:
        call, args = context.tool_call, context.args
        facts: Json = {"tool": call.name, "id": call.id, "args": plain(args)}
        logged = {
            "call": call.id,
            "name": call.name,
            "raw": plain(call.arguments),
            "args": facts["args"],
            "assistant": {
                "stopReason": context.assistant_message.stop_reason,
                "calls": [call.id for call in context.assistant_message.tool_calls],
            },
            **_context_facts(context.context),
            **self._state(),
            "aborted": aborted_state(signal),
            **logged,
        }
        return await self._run(logged, facts, signal, args)

    async def _run_for_turn(self, turn: TurnContext, signal: AbortSignal | None) -> Any:
        message = turn.message
        logged: Json = {
            "message": {"stopReason": message.stop_reason, "content": plain(message.content)},
            "toolResults": [result.tool_call_id for result in turn.tool_results],
            "newMessages": roles(turn.new_messages),
            **_context_facts(turn.context),
            **self._state(),
            "aborted": aborted_state(signal),
        }
        facts: Json = {"stopReason": message.stop_reason, "tools": len(turn.tool_results)}
        return await self._run(logged, facts, signal)

    def _state(self) -> Json:
        state = self._stage.host.state_roles()
        return {} if state is None else {"state": state}

    # ------------------------------------------------------------------------- results

    def _turn_update(self, value: Json | None, base: AgentContext) -> AgentTurnUpdate | None:
        if not value:
            return None
        fields = self._update(value, base)
        return AgentTurnUpdate(messages=messages_from(value.get("messages", ())), **fields)

    def _update(self, value: Json, base: AgentContext) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if "context" in value:
            fields["context"] = self._context(value["context"], base)
        if "model" in value:
            fields["model"] = model_named(value["model"])
        if "thinkingLevel" in value:
            fields["thinking_level"] = value["thinkingLevel"]
        return fields

    def _context(self, change: Json, base: AgentContext) -> AgentContext:
        with self._stage.noting_problems():
            tools = self._stage.tools_named(change["tools"]) if "tools" in change else base.tools
        return AgentContext(
            messages=self._operate(base.messages, change.get("messages", ())), tools=tools
        )

    def _operate(
        self, messages: Sequence[AgentMessage], operations: Sequence[Json]
    ) -> list[AgentMessage]:
        with self._stage.noting_problems():
            return apply_operations(messages, operations)


def _context_facts(context: AgentContext) -> Json:
    return {
        "context": roles(context.messages),
        "contextTools": [tool.name for tool in context.tools],
    }
