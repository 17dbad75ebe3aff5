"""The hooks: when each runs, what it gets, what it may return, what an error in it does.

| hook | moment | may return | an exception |
| --- | --- | --- | --- |
| `prepare_request(request, signal)` | before every request, after pending input was appended | `AgentRequestUpdate` | fails the run |
| `transform_context(messages, signal)` | then | the messages to use, this request only | fails the run |
| `before_model_request(messages, signal)` | then | the messages to use, this request only | fails the run |
| `convert_to_llm(messages)` | then | what the model understands | fails the run |
| `get_api_key(provider)` | then | a key, or None for the static one | fails the run |
| `after_model_response(message, signal)` | before the assistant's message_end | a replacement | fails the run |
| `before_tool_call(context, signal)` | after validation, before execution | `BeforeToolCallResult`, a `ToolCall` with other arguments | fails the call |
| `after_tool_call(context, signal)` | after execution, also of a tool that raised; not of one cut off by an abort or its timeout | `AfterToolCallResult` | fails the call |
| `after_tool_result(message, signal)` | then; also for calls that never ran | a replacement | fails the call |
| `finish_turn(turn, signal)` | when message and results are final, before turn_end | `TurnDecision` | fails the run |
| `should_stop(state)` | then | true to stop | fails the run |
| `prepare_next_turn(signal)`, `prepare_next_turn_with_context(turn, signal)` | after turn_end, if another turn follows | `AgentTurnUpdate` | fails the run |

"Fails the run" means the synthetic error message of FL-02, "fails the call" an error result for
that one call. Every hook is plain or async. A hook sees the values captured at the start of the
run; reassigning one on the agent counts from the next run (CO-12).

Source: CO-07, CO-12, LP-05 to LP-10, HK-01 to HK-07, S4-06 to S4-11.
"""  # noqa: E501 - a table row is one line

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.agent_tool import AgentTool
from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    Usage,
)
from pi_agent_kernel.request import Model
from pi_agent_kernel.tool_results import AgentToolResult

__all__ = [
    "AfterToolCallContext",
    "AfterToolCallResult",
    "AgentContext",
    "AgentRequestUpdate",
    "AgentTurnUpdate",
    "BeforeToolCallContext",
    "BeforeToolCallResult",
    "PrepareRequestContext",
    "ToolExecutionMode",
    "TurnContext",
    "TurnDecision",
]

T = TypeVar("T")
MaybeAwaitable = T | Awaitable[T]

ToolExecutionMode = Literal["parallel", "sequential"]


class AgentContext(msgspec.Struct, kw_only=True):
    """Hold what a run works on: its messages and the tools it can execute."""

    messages: Sequence[AgentMessage] = ()
    tools: Sequence[AgentTool] = ()


class PrepareRequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """Be what `prepare_request` gets (LP-05)."""

    context: AgentContext
    model: Model
    thinking_level: ThinkingLevel


class AgentRequestUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Replace parts of this and later requests of the run; None keeps (LP-05, ST-09)."""

    context: AgentContext | None = None
    model: Model | None = None
    thinking_level: ThinkingLevel | None = None


class AgentTurnUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Replace parts of the rest of the run and append messages to the next turn (LP-09)."""

    context: AgentContext | None = None
    messages: Sequence[AgentMessage] = ()
    model: Model | None = None
    thinking_level: ThinkingLevel | None = None


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """Be what `finish_turn` gets: the finished turn and the run so far (LP-06)."""

    message: AssistantMessage
    tool_results: Sequence[ToolResultMessage]
    context: AgentContext
    new_messages: Sequence[AgentMessage]


class TurnDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Say how the run goes on.

    "end" stops right after turn_end, queues untouched (LP-07). "continue" guarantees one more
    request (LP-08). `origin` names who decided, and why, where it is not the hook itself: for the
    log.
    """

    action: Literal["continue", "end"]
    origin: str | None = None

    def __post_init__(self) -> None:
        if self.action not in ("continue", "end"):
            raise ValueError(f'TurnDecision has action "continue" or "end", not {self.action!r}.')


class BeforeToolCallContext(msgspec.Struct, frozen=True, kw_only=True):
    """Be what `before_tool_call` gets (HK-01).

    `args` are the validated arguments, a private dict: changing it in place reaches the tool and
    is not validated again (HK-03). `context.messages` ends with the requesting message.
    """

    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: dict[str, Any]
    context: AgentContext


class BeforeToolCallResult(msgspec.Struct, frozen=True, kw_only=True):
    """Block a call, or replace its arguments, which are validated again (HK-02, HK-03).

    `origin` names who decided where it is not the hook itself, such as a policy: for the log.
    """

    block: bool = False
    reason: str | None = None
    terminate: bool | None = None
    arguments: Mapping[str, Any] | None = None
    origin: str | None = None


class AfterToolCallContext(msgspec.Struct, frozen=True, kw_only=True):
    """Be what `after_tool_call` gets (HK-04)."""

    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: dict[str, Any]
    result: AgentToolResult
    is_error: bool
    context: AgentContext


class AfterToolCallResult(msgspec.Struct, frozen=True, kw_only=True):
    """Replace parts of a result, each as a whole; None keeps (HK-04).

    Structured content is dropped when content is given without it.
    """

    content: Sequence[TextContent | ImageContent] | None = None
    details: Any = None
    structured_content: Any = None
    is_error: bool | None = None
    usage: Usage | None = None
    terminate: bool | None = None


TransformContext = Callable[
    [Sequence[AgentMessage], AbortSignal | None], MaybeAwaitable[Sequence[AgentMessage] | None]
]
ConvertToLlm = Callable[[Sequence[AgentMessage]], MaybeAwaitable[Sequence[Message]]]
GetApiKey = Callable[[str], MaybeAwaitable[str | None]]
PrepareRequest = Callable[
    [PrepareRequestContext, AbortSignal | None], MaybeAwaitable[AgentRequestUpdate | None]
]
FinishTurn = Callable[[TurnContext, AbortSignal | None], MaybeAwaitable[TurnDecision | None]]
PrepareNextTurn = Callable[[AbortSignal | None], MaybeAwaitable[AgentTurnUpdate | None]]
PrepareNextTurnWithContext = Callable[
    [TurnContext, AbortSignal | None], MaybeAwaitable[AgentTurnUpdate | None]
]
BeforeToolCall = Callable[
    [BeforeToolCallContext, AbortSignal | None],
    MaybeAwaitable[BeforeToolCallResult | ToolCall | None],
]
AfterToolCall = Callable[
    [AfterToolCallContext, AbortSignal | None], MaybeAwaitable[AfterToolCallResult | None]
]
BeforeModelRequest = TransformContext
AfterModelResponse = Callable[
    [AssistantMessage, AbortSignal | None], MaybeAwaitable[AssistantMessage | None]
]
AfterToolResult = Callable[
    [ToolResultMessage, AbortSignal | None], MaybeAwaitable[ToolResultMessage | None]
]
GetQueuedMessages = Callable[[], MaybeAwaitable[Sequence[AgentMessage]]]
