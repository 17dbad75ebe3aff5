"""The hooks: raise, block, edit, wait, abort, queue, return rubbish."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec
from fuzz.plans import BLINK, EDITED, FOREVER, HookPlan
from pi_agent_kernel import (
    AfterToolCallResult,
    AgentBusyError,
    AgentContext,
    AgentRequestUpdate,
    AgentTurnUpdate,
    BeforeToolCallResult,
    Model,
    TurnDecision,
    UserMessage,
)

if TYPE_CHECKING:
    from fuzz.world import World


def make_hook(world: World, plan: HookPlan) -> Callable[..., Any]:
    calls = 0

    def due() -> bool:
        nonlocal calls
        calls += 1
        return calls - 1 == plan.nth

    def plain(*args: Any) -> Any:
        if not due():
            return list(args[0]) if plan.name == "convert_to_llm" else None
        return _answer(world, plan, args)

    async def awaited(*args: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if due():
            match plan.action:
                case "hang":
                    world.disturb()
                    await anyio.sleep(FOREVER)
                case "slow" | "abort_slow":
                    if plan.action != "slow":
                        world.disturb()
                    await anyio.sleep(2 * BLINK)
                case _:
                    return _answer(world, plan, args)
        return list(args[0]) if plan.name == "convert_to_llm" else None

    return awaited if plan.is_async else plain


def _answer(world: World, plan: HookPlan, args: tuple[Any, ...]) -> Any:
    first = args[0] if args else None
    match plan.name, plan.action:
        case _, "raise":
            raise RuntimeError(f"{plan.name} broke")
        case _, "raise_cancelled":
            raise world.cancellation()
        case _, "abort" | "abort_slow" | "hang":
            world.agent.abort()
        case _, "steer" | "follow_up":
            world.queue(plan.action)
        case _, "busy":
            reset_refused(world)
        case _, "rubbish":
            return 42
        case "prepare_request" | "prepare_next_turn", "model":
            update = {"prepare_request": AgentRequestUpdate}.get(plan.name, AgentTurnUpdate)
            return update(model=Model(id="other"), thinking_level="high")
        case "prepare_request", "fewer_tools":
            context = AgentContext(messages=first.context.messages, tools=first.context.tools[1:])
            return AgentRequestUpdate(context=context)
        case _, "fewer_tools":
            context = AgentContext(messages=first.context.messages, tools=first.context.tools[1:])
            return AgentTurnUpdate(context=context)
        case _, "messages":
            return AgentTurnUpdate(messages=[world.say("m")])
        case "transform_context" | "before_model_request", "edit":
            return [*first, UserMessage(content="hint")]
        case _, "key":
            return "secret"
        case "after_model_response", "edit":
            return msgspec.structs.replace(first, content=(EDITED, *first.content))
        case _, "block" | "block_terminate":
            end = plan.action == "block_terminate"
            return BeforeToolCallResult(block=True, reason="no", terminate=end)
        case "before_tool_call", "edit":
            return BeforeToolCallResult(arguments={"n": "3"})
        case _, "edit_bad":
            return BeforeToolCallResult(arguments={"n": "x"})
        case _, "in_place":
            first.args["n"] = object()
        case "after_tool_call", _:
            return {
                "terminate": AfterToolCallResult(terminate=True),
                "flip": AfterToolCallResult(is_error=not first.is_error),
                "content": AfterToolCallResult(content=[EDITED], details=[1]),
            }.get(plan.action)
        case "after_tool_result", "edit":
            return msgspec.structs.replace(first, content=(EDITED,), is_error=True)
        case _, "wrong_id":
            return msgspec.structs.replace(first, tool_call_id="other")
        case _, "end" | "continue":
            return TurnDecision(action=plan.action)
        case _, "yes":
            return True
        case _:
            pass
    return list(first) if plan.name == "convert_to_llm" else None


def reset_refused(world: World) -> None:
    """Try to reset the agent; during a run that must be refused (AB-06)."""
    try:
        world.agent.reset()
    except AgentBusyError:
        return
    assert not world.agent.state.is_streaming, "reset() is refused during a run (AB-06)"
