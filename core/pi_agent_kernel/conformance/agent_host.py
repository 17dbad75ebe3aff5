"""The host of an agent scenario: what its actions do to the agent (FORMAT.md, section 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pi_agent_kernel import (
    AbortSignal,
    Agent,
    AgentBusyError,
    AgentContext,
    AgentMessage,
    NothingToContinueError,
    ToolCall,
    ToolCallOutcome,
    run_tool_call,
)
from pi_agent_kernel.conformance.hooks import scripted_hook
from pi_agent_kernel.conformance.inputs import (
    call_message,
    content_blocks,
    message_from,
    messages_from,
    model_named,
)
from pi_agent_kernel.conformance.listeners import ListenerFunction
from pi_agent_kernel.conformance.script import Json, ScenarioError, snake_case
from pi_agent_kernel.conformance.stage import NO_VALUE, Stage
from pi_agent_kernel.conformance.trace import messages_trace, plain, roles

__all__ = ["ABORT_GRACE", "AgentHost", "describe_error"]

#: Long enough for tools and providers that honour the signal to end by themselves, as in the
#: traces; it costs no time, as the clock skips it.
ABORT_GRACE = 5.0


class AgentHost:
    """Build an agent and do host actions on it.

    Args:
        stage: The running scenario.
    """

    _agent: Agent

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: The listener functions by id, and what subscribing them returned.
        self.listeners: dict[str, ListenerFunction] = {}
        self._unsubscribe: dict[str, Callable[[], object]] = {}

    def construct(self, options: Mapping[str, Any]) -> None:
        """Build the agent; raises what the constructor raises."""
        self._agent = Agent(abort_grace=ABORT_GRACE, **options)

    def observe(self, listener: ListenerFunction) -> None:
        """Subscribe a listener that has no id."""
        self._agent.subscribe(listener)

    # ------------------------------------------------------------------------- reading

    def snapshot(self) -> Json:
        """Return the agent's state as traces record it."""
        state = self._agent.state
        signal = self._agent.signal
        partial = state.streaming_message
        return {
            "messages": roles(state.messages),
            "streaming": state.is_streaming,
            "partial": None if partial is None else partial.role,
            "pending": sorted(state.pending_tool_calls),
            "error": state.error_message,
            "prompt": state.system_prompt,
            "tools": [tool.name for tool in state.tools],
            "model": state.model.id,
            "thinking": state.thinking_level,
            "queued": self._agent.has_queued_messages(),
            "signal": None if signal is None else "aborted" if signal.aborted else "active",
        }

    def final(self) -> Json:
        """Return what a trace ends with."""
        return {
            "state": self.snapshot(),
            "messages": messages_trace(self._agent.state.messages),
        }

    def partial_content(self) -> Any:
        """Return the content of the message that streams, or None."""
        partial = self._agent.state.streaming_message
        return None if partial is None else messages_trace([partial])[0].get("content")

    def state_roles(self) -> list[str] | None:
        """Return the roles of the agent's messages."""
        return roles(self._agent.state.messages)

    def current_context(self) -> AgentContext:
        """Return copies of the agent's messages and tools."""
        state = self._agent.state
        return AgentContext(messages=list(state.messages), tools=list(state.tools))

    def describe_error(self, error: Exception) -> Json:
        """Return an exception as `throws` records it."""
        return describe_error(error, nothing="nothing-to-continue")

    # -------------------------------------------------------------------------- acting

    def subscribe(self, listener_id: str) -> None:
        """Subscribe the listener of this id."""
        if listener_id not in self.listeners:
            raise ScenarioError(f"unknown listener {listener_id!r}")
        listener = self.listeners[listener_id]
        self._unsubscribe[listener_id] = self._agent.subscribe(listener)

    async def call_tool(self, call: ToolCall, signal: AbortSignal | None) -> ToolCallOutcome:
        """Run a tool call inside a tool, with the agent's present hooks and tools."""
        return await run_tool_call(
            call,
            tools=list(self._agent.state.tools),
            assistant_message=call_message(call),
            context=self.current_context(),
            signal=signal,
            before_tool_call=self._agent.before_tool_call,
            after_tool_call=self._agent.after_tool_call,
            abort_grace=ABORT_GRACE,
        )

    async def perform(self, action: Json) -> Any:
        """Do a host action.

        Returns:
            Its value, or `NO_VALUE`.

        Raises:
            ScenarioError: There is no such action.
            Exception: What the agent raised.
        """
        agent = self._agent
        match action["do"]:
            case "prompt":
                await self._prompt(action)
            case "continue":
                await agent.continue_()
            case "waitForIdle":
                await agent.wait_for_idle()
            case "join":
                return await self._stage.join()
            case "steer":
                agent.steer(_queued(action))
            case "followUp":
                agent.follow_up(_queued(action))
            case "abort":
                agent.abort()
            case "reset":
                agent.reset()
            case "clearSteeringQueue":
                agent.clear_steering_queue()
            case "clearFollowUpQueue":
                agent.clear_follow_up_queue()
            case "clearAllQueues":
                agent.clear_all_queues()
            case "peekQueuedMessages":
                return messages_trace(agent.peek_queued_messages())
            case "hasQueuedMessages":
                return agent.has_queued_messages()
            case "addResponses":
                self._stage.responses.extend(action["responses"])
            case "subscribe":
                self.subscribe(action["listener"])
            case "unsubscribe":
                self._unsubscribe_listener(action["listener"])
            case _:
                return self._assign(action)
        return NO_VALUE

    async def _prompt(self, action: Json) -> None:
        if "messages" in action:
            await self._agent.prompt(messages_from(action["messages"]))
        elif "message" in action:
            await self._agent.prompt(message_from(action["message"]))
        elif action.get("images"):
            images: Any = content_blocks(action["images"])
            await self._agent.prompt(action["text"], images=images)
        else:
            await self._agent.prompt(action["text"])

    def _unsubscribe_listener(self, listener_id: str) -> None:
        if listener_id not in self._unsubscribe:
            raise ScenarioError(f"unknown listener {listener_id!r}")
        self._unsubscribe[listener_id]()

    def _assign(self, action: Json) -> Any:
        """Do one of the actions that write the agent's state and options."""
        agent, state, stage = self._agent, self._agent.state, self._stage
        match action["do"]:
            case "setTools":
                tools = stage.tools_named(action["tools"])
                state.tools = tools
                tools.extend(stage.tools_named(action.get("thenPushToSource", ())))
            case "setMessages":
                messages = messages_from(action["messages"])
                state.messages = messages
                messages.extend(messages_from(action.get("thenPushToSource", ())))
            case "pushTool":
                state.tools.extend(stage.tools_named([action["tool"]]))
            case "pushMessage":
                state.messages.append(message_from(action["message"]))
            case "popMessage":
                state.messages.pop()
            case "setModel":
                state.model = model_named(action["model"])
            case "setThinkingLevel":
                state.thinking_level = action["level"]
            case "setSystemPrompt":
                _assign_read_only(state, "system_prompt", action["value"])
            case "setSteeringMode":
                agent.steering_mode = action["mode"]
                return agent.steering_mode
            case "setFollowUpMode":
                agent.follow_up_mode = action["mode"]
                return agent.follow_up_mode
            case "setOption":
                setattr(agent, snake_case(action["name"]), action["value"])
            case "getOption":
                return plain(getattr(agent, snake_case(action["name"])))
            case "setHook":
                name, rules = action["hook"], action["rules"]
                hook = (
                    None
                    if rules is None
                    else scripted_hook(stage, name, rules, self.current_context)
                )
                setattr(agent, snake_case(name), hook)
            case unknown:
                raise ScenarioError(f"unknown action {unknown!r}")
        return NO_VALUE


def _queued(action: Json) -> AgentMessage:
    return message_from(action["message"] if "message" in action else action["text"])


def _assign_read_only(target: object, name: str, value: Any) -> None:
    try:
        setattr(target, name, value)
    except AttributeError as error:
        raise _ReadOnlyError(str(error)) from error


class _ReadOnlyError(Exception):
    """Say that a read-only property refused an assignment."""


def describe_error(error: Exception, *, nothing: str) -> Json:
    """Return an exception as `throws` records it (FORMAT.md, section 11).

    Args:
        error: What was raised.
        nothing: The code of a transcript with nothing to continue from.
    """
    message = str(error)
    match error:
        case AgentBusyError():
            return {"code": f"busy-{error.action}", "message": message}
        case NothingToContinueError(role="assistant"):
            return {"code": "continue-from-assistant", "message": message}
        case NothingToContinueError():
            return {"code": nothing, "message": message}
        case _ReadOnlyError():
            return {"code": "read-only", "message": message}
        case _:
            return {"message": message}
