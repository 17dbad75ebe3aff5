"""What a run needs beside its context: model, hooks, queues, options (LL-07)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pi_agent_kernel.hooks import (
    AfterModelResponse,
    AfterToolCall,
    AfterToolResult,
    BeforeModelRequest,
    BeforeToolCall,
    ConvertToLlm,
    FinishTurn,
    GetApiKey,
    GetQueuedMessages,
    PrepareNextTurnWithContext,
    PrepareRequest,
    ToolExecutionMode,
    TransformContext,
)
from pi_agent_kernel.invocation import RunSync
from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.models.retry_policy import RetryPolicy
from pi_agent_kernel.notes import Notes
from pi_agent_kernel.request import ClientIdentity, Model, Transport

__all__ = ["STANDARD_MESSAGES", "AgentLoopConfig", "default_convert_to_llm"]

#: The classes of the four standard roles.
STANDARD_MESSAGES = (UserMessage, AssistantMessage, ToolResultMessage, SystemMessage)


def default_convert_to_llm(messages: Sequence[AgentMessage]) -> Sequence[Message]:
    """Keep the four standard roles, in order; drop every other (CO-06)."""
    return [message for message in messages if isinstance(message, STANDARD_MESSAGES)]


class AgentLoopConfig(msgspec.Struct, kw_only=True):
    """Hold what a run needs beside its context; only `model` is required (LL-07).

    The hooks are described in `hooks`. `get_steering_messages` and `get_follow_up_messages`
    return the next batch of queued messages, `return_messages` takes a batch back that could
    not be used, and `has_queued_messages` says whether anything waits. `lifecycle_events` adds
    the events of group S4; `retry` asks again for replies that failed;
    `prompts_are_queued` says that the prompts go back to
    `return_messages` if the run breaks before it announces them; `tasks` gets the tasks of the
    run's tools while they run; `notes` is told what a log holds beside events.
    """

    model: Model
    convert_to_llm: ConvertToLlm = default_convert_to_llm
    transform_context: TransformContext | None = None
    before_model_request: BeforeModelRequest | None = None
    after_model_response: AfterModelResponse | None = None
    get_api_key: GetApiKey | None = None
    api_key: str | None = None
    prepare_request: PrepareRequest | None = None
    finish_turn: FinishTurn | None = None
    should_stop: Callable[[], Any] | None = None
    prepare_next_turn: PrepareNextTurnWithContext | None = None
    before_tool_call: BeforeToolCall | None = None
    after_tool_call: AfterToolCall | None = None
    after_tool_result: AfterToolResult | None = None
    tool_execution: ToolExecutionMode = "parallel"
    abort_grace: float = 0.25
    run_sync: RunSync | None = None
    get_steering_messages: GetQueuedMessages | None = None
    get_follow_up_messages: GetQueuedMessages | None = None
    return_messages: Callable[[Sequence[AgentMessage]], object] | None = None
    has_queued_messages: Callable[[], int] | None = None
    reasoning: str | None = None
    session_id: str | None = None
    transport: Transport | None = None
    thinking_budgets: Any = None
    max_retry_delay_ms: int | None = None
    retry: RetryPolicy | None = None
    identity: ClientIdentity | None = None
    on_payload: Callable[..., Any] | None = None
    on_response: Callable[..., Any] | None = None
    on_provider_stream_event: Callable[..., Any] | None = None
    lifecycle_events: bool = False
    prompts_are_queued: bool = False
    tasks: set[object] = msgspec.field(default_factory=set[object])
    notes: Notes = msgspec.field(default_factory=Notes)
