"""Play scenarios of the kinds `loop` and `toolCall`: the functions below the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pi_agent_kernel import (
    AbortController,
    AbortSignal,
    AgentContext,
    AgentEvent,
    AgentLoopConfig,
    AgentMessage,
    AgentTool,
    AgentToolResult,
    ToolCall,
    ToolCallOutcome,
    agent_loop,
    agent_loop_continue,
    run_agent_loop,
    run_agent_loop_continue,
    run_tool_call,
)
from pi_agent_kernel.conformance.agent_host import ABORT_GRACE, describe_error
from pi_agent_kernel.conformance.hooks import HookFunction, scripted_hooks
from pi_agent_kernel.conformance.inputs import (
    call_message,
    default_filter,
    messages_from,
    model_named,
    tool_call_from,
)
from pi_agent_kernel.conformance.listeners import closer, recorder, scripted_listener
from pi_agent_kernel.conformance.provider import scripted_stream_fn
from pi_agent_kernel.conformance.script import Json, ScenarioError, snake_case
from pi_agent_kernel.conformance.stage import NO_VALUE, Stage
from pi_agent_kernel.conformance.trace import (
    TraceLog,
    messages_trace,
    outcome_trace,
    result_trace,
    roles,
)

__all__ = ["play_loop", "play_tool_call"]

#: Fields of `config` whose value is passed on as it is.
_CONFIG = ("reasoning", "apiKey", "sessionId", "transport", "toolExecution")


class _LowLevelHost:
    """Do the few host actions that make sense without an agent."""

    def __init__(self, stage: Stage) -> None:
        scenario = stage.scenario
        context: Json = scenario.get("context", {})
        aliases = context.get("tools", ())
        self.messages: list[AgentMessage] = messages_from(context.get("messages", ()))
        self.context = AgentContext(messages=self.messages, tools=stage.tools_named(aliases))
        self.tools: list[AgentTool] = stage.tools_named(scenario.get("useTools", aliases))
        self._stage = stage
        self._controller = _controller(scenario.get("signal", "fresh"))

    @property
    def signal(self) -> AbortSignal | None:
        """The signal that is passed in."""
        return None if self._controller is None else self._controller.signal

    async def perform(self, action: Json) -> Any:
        """Do a host action; return its value or `NO_VALUE`."""
        match action["do"]:
            case "abort":
                if self._controller is not None:
                    self._controller.abort()
            case "addResponses":
                self._stage.responses.extend(action["responses"])
            case unknown:
                raise ScenarioError(f"unknown action {unknown!r} without an agent")
        return NO_VALUE

    def snapshot(self) -> None:
        """Return None: there is no agent state."""

    def partial_content(self) -> None:
        """Return None: nothing can be read while it streams."""

    def state_roles(self) -> None:
        """Return None: there is no agent state."""

    def describe_error(self, error: Exception) -> Json:
        """Return an exception as `throws` records it."""
        return describe_error(error, nothing="loop-no-messages")

    async def call_tool(self, call: ToolCall, signal: AbortSignal | None) -> ToolCallOutcome:
        """Run a tool call inside a tool."""
        hooks = _tool_hooks(scripted_hooks(self._stage))
        return await self.run_tool_call(call, signal, hooks, None)

    async def run_tool_call(
        self,
        call: ToolCall,
        signal: AbortSignal | None,
        hooks: Mapping[str, HookFunction],
        on_update: Callable[[AgentToolResult], object] | None,
    ) -> ToolCallOutcome:
        """Run one call with the scenario's tools and context."""
        return await run_tool_call(
            call,
            tools=self.tools,
            assistant_message=call_message(call),
            context=self.context,
            signal=signal,
            on_update=on_update,
            abort_grace=ABORT_GRACE,
            **hooks,
        )


def _controller(signal: str) -> AbortController | None:
    if signal == "none":
        return None
    controller = AbortController()
    if signal == "aborted":
        controller.abort()
    elif signal != "fresh":
        raise ScenarioError(f"unknown signal {signal!r}")
    return controller


def _tool_hooks(hooks: Mapping[str, HookFunction]) -> dict[str, HookFunction]:
    return {name: hook for name, hook in hooks.items() if name.endswith("_tool_call")}


# --------------------------------------------------------------------------- toolCall


async def play_tool_call(stage: Stage) -> Json:
    """Run each tool call of the scenario; rules count anew for each.

    Source: FORMAT.md, section 13.
    """
    host = _LowLevelHost(stage)
    stage.host = host
    observed = stage.scenario.get("observeUpdates", True)
    for data in stage.scenario.get("toolCalls", ()):
        call = tool_call_from(data)
        hooks = _tool_hooks(scripted_hooks(stage))
        observer = _update_observer(stage, call.id) if observed else None
        outcome = await host.run_tool_call(call, host.signal, hooks, observer)
        stage.log.add(outcome_trace(outcome))
    return {"log": stage.log.entries}


def _update_observer(stage: Stage, call_id: str) -> Callable[[AgentToolResult], None]:
    def observe(partial: AgentToolResult) -> None:
        stage.log.add({"update": call_id, "partialResult": result_trace(partial)})

    return observe


# ------------------------------------------------------------------------------- loop


async def play_loop(stage: Stage) -> Json:
    """Do the runs of the scenario, one after another, on one context.

    Source: FORMAT.md, section 13.
    """
    host = _LowLevelHost(stage)
    stage.host = host
    loop = _Loop(stage, host)
    for run in stage.scenario.get("runs", ()):
        entry, produced = await loop.run(run)
        if run.get("reportContext"):
            entry["contextAfter"] = roles(host.messages)
        stage.log.add(entry)
        if run.get("thenAppendResult"):
            host.messages.extend(produced)
        host.messages.extend(messages_from(run.get("thenAppend", ())))
    return {"log": stage.log.entries}


class _Loop:
    def __init__(self, stage: Stage, host: _LowLevelHost) -> None:
        self._stage = stage
        self._host = host
        self._stream_fn = scripted_stream_fn(stage)
        self._config = _config(stage)
        on: Json = {"id": "on", "rules": stage.scenario.get("on", ())}
        self._listeners = (recorder(stage), scripted_listener(stage, on), closer(stage))

    async def run(self, run: Json) -> tuple[Json, Sequence[AgentMessage]]:
        """Do one run; return its log entry and the new messages."""
        mode: str = run["mode"]
        entry: Json = {"loop": mode}
        produced: Sequence[AgentMessage] = ()
        observed = TraceLog()
        try:
            if mode in {"start", "continue"}:
                produced = await self._observe(run, observed)
            else:
                produced = await self._await_each(run)
            entry["result"] = messages_trace(produced)
        except ScenarioError:
            raise
        except Exception as error:  # noqa: BLE001 - a run that fails is an entry
            entry["throws"] = self._host.describe_error(error)
        if observed.entries:
            entry["events"] = observed.entries
        return entry, produced

    async def _observe(self, run: Json, observed: TraceLog) -> Sequence[AgentMessage]:
        host, config, stream_fn = self._host, self._config, self._stream_fn
        if run["mode"] == "start":
            prompts = messages_from(run.get("prompts", ()))
            stream = agent_loop(prompts, host.context, config, host.signal, stream_fn)
        else:
            stream = agent_loop_continue(host.context, config, host.signal, stream_fn)
        async for event in stream:
            observed.add_event(event)
            self._stage.record(event)
            self._stage.close(event)
        return await stream.result()

    async def _await_each(self, run: Json) -> Sequence[AgentMessage]:
        host, config, stream_fn = self._host, self._config, self._stream_fn
        match run["mode"]:
            case "runStart":
                prompts = messages_from(run.get("prompts", ()))
                return await run_agent_loop(
                    prompts, host.context, config, self._emit, host.signal, stream_fn
                )
            case "runContinue":
                return await run_agent_loop_continue(
                    host.context, config, self._emit, host.signal, stream_fn
                )
            case unknown:
                raise ScenarioError(f"unknown mode {unknown!r}")

    async def _emit(self, event: AgentEvent) -> None:
        for listener in self._listeners:
            await listener(event, None)


def _config(stage: Stage) -> AgentLoopConfig:
    given: Json = stage.scenario.get("config", {})
    options: dict[str, Any] = {snake_case(name): given[name] for name in _CONFIG if name in given}
    if "steering" in given:
        options["get_steering_messages"] = _poll(stage, "steering", given["steering"])
    if "followUps" in given:
        options["get_follow_up_messages"] = _poll(stage, "followUp", given["followUps"])
    options["convert_to_llm"] = default_filter
    options |= scripted_hooks(stage)
    return AgentLoopConfig(
        model=model_named(given.get("model", "faux-1")), abort_grace=ABORT_GRACE, **options
    )


def _poll(
    stage: Stage, name: str, batches: Sequence[Sequence[str | Json]]
) -> Callable[[], Awaitable[list[AgentMessage]]]:
    waiting = [messages_from(batch) for batch in batches]

    async def poll() -> list[AgentMessage]:
        messages = waiting.pop(0) if waiting else []
        stage.log.add({"poll": name, "returned": roles(messages)})
        return messages

    return poll
