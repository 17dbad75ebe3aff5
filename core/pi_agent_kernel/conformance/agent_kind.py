"""Play a scenario of the kind `agent`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from pi_agent_kernel import set_default_stream_fn
from pi_agent_kernel.conformance.agent_host import AgentHost
from pi_agent_kernel.conformance.hooks import scripted_hooks
from pi_agent_kernel.conformance.inputs import messages_from, model_named
from pi_agent_kernel.conformance.listeners import closer, recorder, scripted_listener
from pi_agent_kernel.conformance.provider import scripted_stream_fn
from pi_agent_kernel.conformance.script import Json, ScenarioError, snake_case
from pi_agent_kernel.conformance.stage import Callee, Stage
from pi_agent_kernel.conformance.steps import run_steps

__all__ = ["play_agent"]

#: Constructor options whose value is passed on as it is.
_OPTIONS = (
    "systemPrompt",
    "thinkingLevel",
    "toolExecution",
    "steeringMode",
    "followUpMode",
    "sessionId",
    "thinkingBudgets",
    "transport",
    "maxRetryDelayMs",
    "identity",
)
_CALLBACKS = ("onPayload", "onResponse", "onProviderStreamEvent")


async def play_agent(stage: Stage) -> Json:
    """Build the agent, subscribe the listeners, run the host's script.

    Args:
        stage: The running scenario.

    Returns:
        The log and, unless the construction failed, the final state and messages.

    Source: FORMAT.md, section 2.
    """
    host = AgentHost(stage)
    stage.host = host
    options = _constructor_options(stage, host)
    try:
        host.construct(options)
    except Exception as error:  # noqa: BLE001 - a construction that fails is an entry
        stage.log.add({"action": "construct", "throws": _construction_error(stage, error)})
        return {"log": stage.log.entries}
    stage.log.add({"action": "construct", "state": host.snapshot()})
    _push_to_source(stage, host, options)
    _subscribe(stage, host)
    await run_steps(stage, stage.scenario.get("actions", ()), Callee())
    await anyio.sleep(stage.scenario.get("lingerMs", 0) / 1000)
    return {"log": stage.log.entries, "final": host.final()}


def _constructor_options(stage: Stage, host: AgentHost) -> dict[str, Any]:
    given: Json = stage.scenario.get("options", {})
    options: dict[str, Any] = {snake_case(name): given[name] for name in _OPTIONS if name in given}
    model_id: str | None = given.get("model", "faux-1")
    if model_id is not None:
        options["model"] = model_named(model_id)
    if "tools" in given:
        options["tools"] = stage.tools_named(given["tools"])
    if "messages" in given:
        options["messages"] = messages_from(given["messages"])
    for name in given.get("callbacks", ()):
        options[snake_case(name)] = _callback(stage, name)
    options |= scripted_hooks(stage, host.current_context)
    stream_fn = scripted_stream_fn(stage)
    match given.get("streamFn"):
        case None:
            options["stream_fn"] = stream_fn
        case "default":
            set_default_stream_fn(stream_fn)
        case "missing":
            set_default_stream_fn(None)
        case other:
            raise ScenarioError(f"unknown streamFn {other!r}")
    return options


def _callback(stage: Stage, name: str) -> Callable[..., Awaitable[None]]:
    if name not in _CALLBACKS:
        raise ScenarioError(f"unknown callback {name!r}")

    async def callback(argument: Any, *_more: Any) -> None:
        status: Json = {"status": argument["status"]} if name == "onResponse" else {}
        stage.log.add({"callback": name, **status})

    return callback


def _construction_error(stage: Stage, error: Exception) -> Json:
    if (
        isinstance(error, ValueError)
        and stage.scenario.get("options", {}).get("streamFn") == "missing"
    ):
        return {"code": "no-stream-function", "message": str(error)}
    return {"message": str(error)}


def _push_to_source(stage: Stage, host: AgentHost, options: dict[str, Any]) -> None:
    """Change the lists that the constructor got; it must have copied them."""
    pushed: Json | None = stage.scenario.get("options", {}).get("thenPushToSource")
    if pushed is None:
        return
    options.get("tools", []).extend(stage.tools_named(pushed.get("tools", ())))
    options.get("messages", []).extend(messages_from(pushed.get("messages", ())))
    stage.log.add({"read": "after-source-push", "state": host.snapshot()})


def _subscribe(stage: Stage, host: AgentHost) -> None:
    listeners: list[Json] = list(stage.scenario.get("listeners", ()))
    if "on" in stage.scenario:
        listeners.insert(0, {"id": "on", "rules": stage.scenario["on"]})
    host.observe(recorder(stage))
    for listener in listeners:
        host.listeners[listener["id"]] = scripted_listener(stage, listener)
        if not listener.get("manual"):
            host.subscribe(listener["id"])
    host.observe(closer(stage))
