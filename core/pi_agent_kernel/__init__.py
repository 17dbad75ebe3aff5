"""An agent core: transcript, loop, tools, hooks, queues, abort; every step an event.

    from pi_agent_kernel import Agent, faux_provider, tool

Importing the package is light; what is heavy is loaded on first use. The names below are the
public ones; `pi_agent_kernel.hooks` has the table of hooks, `pi_agent_kernel.state.FIELDS` the
table of state fields, `pi_agent_kernel.events` every event.
"""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pi_agent_kernel.abort import AbortController as AbortController
    from pi_agent_kernel.abort import AbortSignal as AbortSignal
    from pi_agent_kernel.abort import OperationAborted as OperationAborted
    from pi_agent_kernel.agent import Agent as Agent
    from pi_agent_kernel.errors import AgentBusyError as AgentBusyError
    from pi_agent_kernel.errors import AgentStateError as AgentStateError
    from pi_agent_kernel.errors import ContextOverflowError as ContextOverflowError
    from pi_agent_kernel.errors import ModelError as ModelError
    from pi_agent_kernel.errors import NothingToContinueError as NothingToContinueError
    from pi_agent_kernel.errors import PiAgentError as PiAgentError
    from pi_agent_kernel.errors import SessionError as SessionError
    from pi_agent_kernel.errors import SessionFormatError as SessionFormatError
    from pi_agent_kernel.errors import ToolArgumentsError as ToolArgumentsError
    from pi_agent_kernel.errors import ToolError as ToolError
    from pi_agent_kernel.errors import ToolNotFoundError as ToolNotFoundError
    from pi_agent_kernel.events import AGENT_EVENTS as AGENT_EVENTS
    from pi_agent_kernel.events import ALL_EVENTS as ALL_EVENTS
    from pi_agent_kernel.events import LIFECYCLE_EVENTS as LIFECYCLE_EVENTS
    from pi_agent_kernel.events import AgentEnd as AgentEnd
    from pi_agent_kernel.events import AgentEvent as AgentEvent
    from pi_agent_kernel.events import AgentIdle as AgentIdle
    from pi_agent_kernel.events import AgentStart as AgentStart
    from pi_agent_kernel.events import AssistantMessageEvent as AssistantMessageEvent
    from pi_agent_kernel.events import MessageEnd as MessageEnd
    from pi_agent_kernel.events import MessageStart as MessageStart
    from pi_agent_kernel.events import MessageUpdate as MessageUpdate
    from pi_agent_kernel.events import ModelRequestStart as ModelRequestStart
    from pi_agent_kernel.events import ModelResponse as ModelResponse
    from pi_agent_kernel.events import ModelRetry as ModelRetry
    from pi_agent_kernel.events import StreamDone as StreamDone
    from pi_agent_kernel.events import StreamError as StreamError
    from pi_agent_kernel.events import StreamStart as StreamStart
    from pi_agent_kernel.events import TextDelta as TextDelta
    from pi_agent_kernel.events import TextEnd as TextEnd
    from pi_agent_kernel.events import TextStart as TextStart
    from pi_agent_kernel.events import ThinkingDelta as ThinkingDelta
    from pi_agent_kernel.events import ThinkingEnd as ThinkingEnd
    from pi_agent_kernel.events import ThinkingStart as ThinkingStart
    from pi_agent_kernel.events import ToolBatchEnd as ToolBatchEnd
    from pi_agent_kernel.events import ToolBatchStart as ToolBatchStart
    from pi_agent_kernel.events import ToolCallDelta as ToolCallDelta
    from pi_agent_kernel.events import ToolCallEnd as ToolCallEnd
    from pi_agent_kernel.events import ToolCallStart as ToolCallStart
    from pi_agent_kernel.events import ToolExecutionEnd as ToolExecutionEnd
    from pi_agent_kernel.events import ToolExecutionStart as ToolExecutionStart
    from pi_agent_kernel.events import ToolExecutionUpdate as ToolExecutionUpdate
    from pi_agent_kernel.events import TurnEnd as TurnEnd
    from pi_agent_kernel.events import TurnStart as TurnStart
    from pi_agent_kernel.explain import Answer as Answer
    from pi_agent_kernel.explain import Explanation as Explanation
    from pi_agent_kernel.hooks import AfterToolCallContext as AfterToolCallContext
    from pi_agent_kernel.hooks import AfterToolCallResult as AfterToolCallResult
    from pi_agent_kernel.hooks import AgentContext as AgentContext
    from pi_agent_kernel.hooks import AgentRequestUpdate as AgentRequestUpdate
    from pi_agent_kernel.hooks import AgentTurnUpdate as AgentTurnUpdate
    from pi_agent_kernel.hooks import BeforeToolCallContext as BeforeToolCallContext
    from pi_agent_kernel.hooks import BeforeToolCallResult as BeforeToolCallResult
    from pi_agent_kernel.hooks import PrepareRequestContext as PrepareRequestContext
    from pi_agent_kernel.hooks import TurnContext as TurnContext
    from pi_agent_kernel.hooks import TurnDecision as TurnDecision
    from pi_agent_kernel.json_stream import StreamingJsonParser as StreamingJsonParser
    from pi_agent_kernel.json_stream import ToolCallArgumentsStream as ToolCallArgumentsStream
    from pi_agent_kernel.json_stream import parse_streaming_json as parse_streaming_json
    from pi_agent_kernel.json_stream import parse_tool_call_arguments as parse_tool_call_arguments
    from pi_agent_kernel.json_value import thaw as thaw
    from pi_agent_kernel.log import EventLog as EventLog
    from pi_agent_kernel.log import FieldChange as FieldChange
    from pi_agent_kernel.log import HostCall as HostCall
    from pi_agent_kernel.log import LogRecord as LogRecord
    from pi_agent_kernel.loop import agent_loop as agent_loop
    from pi_agent_kernel.loop import agent_loop_continue as agent_loop_continue
    from pi_agent_kernel.loop import run_agent_loop as run_agent_loop
    from pi_agent_kernel.loop import run_agent_loop_continue as run_agent_loop_continue
    from pi_agent_kernel.loop_config import AgentLoopConfig as AgentLoopConfig
    from pi_agent_kernel.messages import AgentMessage as AgentMessage
    from pi_agent_kernel.messages import AssistantMessage as AssistantMessage
    from pi_agent_kernel.messages import Cost as Cost
    from pi_agent_kernel.messages import CustomMessage as CustomMessage
    from pi_agent_kernel.messages import ImageContent as ImageContent
    from pi_agent_kernel.messages import Message as Message
    from pi_agent_kernel.messages import SystemMessage as SystemMessage
    from pi_agent_kernel.messages import TextContent as TextContent
    from pi_agent_kernel.messages import ThinkingContent as ThinkingContent
    from pi_agent_kernel.messages import Tool as Tool
    from pi_agent_kernel.messages import ToolCall as ToolCall
    from pi_agent_kernel.messages import ToolReference as ToolReference
    from pi_agent_kernel.messages import ToolResultMessage as ToolResultMessage
    from pi_agent_kernel.messages import Usage as Usage
    from pi_agent_kernel.messages import UserMessage as UserMessage
    from pi_agent_kernel.models.collection import ModelProvider as ModelProvider
    from pi_agent_kernel.models.collection import Models as Models
    from pi_agent_kernel.models.collection import create_models as create_models
    from pi_agent_kernel.models.collection import create_provider as create_provider
    from pi_agent_kernel.models.credentials import CredentialStore as CredentialStore
    from pi_agent_kernel.models.credentials import MemoryCredentials as MemoryCredentials
    from pi_agent_kernel.models.credentials import ProviderAuth as ProviderAuth
    from pi_agent_kernel.models.faux import FauxProvider as FauxProvider
    from pi_agent_kernel.models.faux import faux_assistant_message as faux_assistant_message
    from pi_agent_kernel.models.faux import faux_provider as faux_provider
    from pi_agent_kernel.models.faux import faux_text as faux_text
    from pi_agent_kernel.models.faux import faux_thinking as faux_thinking
    from pi_agent_kernel.models.faux import faux_tool_call as faux_tool_call
    from pi_agent_kernel.models.lazy_stream import lazy_stream as lazy_stream
    from pi_agent_kernel.models.overflow import is_context_overflow as is_context_overflow
    from pi_agent_kernel.models.overflow import is_recoverable_length as is_recoverable_length
    from pi_agent_kernel.models.pricing import calculate_cost as calculate_cost
    from pi_agent_kernel.models.prompt_size import (
        clamp_max_tokens_to_context as clamp_max_tokens_to_context,
    )
    from pi_agent_kernel.models.proxy import proxy_stream_fn as proxy_stream_fn
    from pi_agent_kernel.models.proxy import stream_proxy as stream_proxy
    from pi_agent_kernel.models.retry import retry_assistant_call as retry_assistant_call
    from pi_agent_kernel.models.retry import retry_provider_request as retry_provider_request
    from pi_agent_kernel.models.retry_policy import RetryPolicy as RetryPolicy
    from pi_agent_kernel.models.thinking import clamp_thinking_level as clamp_thinking_level
    from pi_agent_kernel.models.thinking import (
        thinking_budget_for_level as thinking_budget_for_level,
    )
    from pi_agent_kernel.models.transient import (
        is_retryable_assistant_error as is_retryable_assistant_error,
    )
    from pi_agent_kernel.request import Model as Model
    from pi_agent_kernel.request import ModelCost as ModelCost
    from pi_agent_kernel.request import ModelCostTier as ModelCostTier
    from pi_agent_kernel.request import StreamFn as StreamFn
    from pi_agent_kernel.request import StreamOptions as StreamOptions
    from pi_agent_kernel.request import TranscriptContext as TranscriptContext
    from pi_agent_kernel.request import get_default_stream_fn as get_default_stream_fn
    from pi_agent_kernel.request import merge_client_identity as merge_client_identity
    from pi_agent_kernel.request import set_default_stream_fn as set_default_stream_fn
    from pi_agent_kernel.request_log import LoggedRequest as LoggedRequest
    from pi_agent_kernel.response import ResponseBuilder as ResponseBuilder
    from pi_agent_kernel.schema import validate_tool_arguments as validate_tool_arguments
    from pi_agent_kernel.schema import validate_tool_call as validate_tool_call
    from pi_agent_kernel.state import AgentState as AgentState
    from pi_agent_kernel.streams import AssistantMessageEventStream as AssistantMessageEventStream
    from pi_agent_kernel.streams import EventStream as EventStream
    from pi_agent_kernel.tool_call import ToolCallOutcome as ToolCallOutcome
    from pi_agent_kernel.tool_call import run_tool_call as run_tool_call
    from pi_agent_kernel.tools import AgentTool as AgentTool
    from pi_agent_kernel.tools import AgentToolResult as AgentToolResult
    from pi_agent_kernel.tools import ToolContext as ToolContext
    from pi_agent_kernel.tools import convert_tool_result as convert_tool_result
    from pi_agent_kernel.tools import to_tool_declaration as to_tool_declaration
    from pi_agent_kernel.tools import tool as tool
    from pi_agent_kernel.transcript import collapse_system_messages as collapse_system_messages
    from pi_agent_kernel.transcript import (
        create_initial_system_message as create_initial_system_message,
    )
    from pi_agent_kernel.transcript import (
        get_current_system_message as get_current_system_message,
    )
    from pi_agent_kernel.transcript import get_current_system_prompt as get_current_system_prompt
    from pi_agent_kernel.transcript import get_current_tools as get_current_tools
    from pi_agent_kernel.transcript import get_tool_state_changes as get_tool_state_changes
    from pi_agent_kernel.transcript import normalize_context as normalize_context
    from pi_agent_kernel.transcript import resolve_transcript_tools as resolve_transcript_tools
    from pi_agent_kernel.wire import from_json as from_json
    from pi_agent_kernel.wire import to_json as to_json


__all__ = [
    "AGENT_EVENTS",
    "ALL_EVENTS",
    "LIFECYCLE_EVENTS",
    "AbortController",
    "AbortSignal",
    "AfterToolCallContext",
    "AfterToolCallResult",
    "Agent",
    "AgentBusyError",
    "AgentContext",
    "AgentEnd",
    "AgentEvent",
    "AgentIdle",
    "AgentLoopConfig",
    "AgentMessage",
    "AgentRequestUpdate",
    "AgentStart",
    "AgentState",
    "AgentStateError",
    "AgentTool",
    "AgentToolResult",
    "AgentTurnUpdate",
    "Answer",
    "AssistantMessage",
    "AssistantMessageEvent",
    "AssistantMessageEventStream",
    "BeforeToolCallContext",
    "BeforeToolCallResult",
    "ContextOverflowError",
    "Cost",
    "CredentialStore",
    "CustomMessage",
    "EventLog",
    "EventStream",
    "Explanation",
    "FauxProvider",
    "FieldChange",
    "HostCall",
    "ImageContent",
    "LogRecord",
    "LoggedRequest",
    "MemoryCredentials",
    "Message",
    "MessageEnd",
    "MessageStart",
    "MessageUpdate",
    "Model",
    "ModelCost",
    "ModelCostTier",
    "ModelError",
    "ModelProvider",
    "ModelRequestStart",
    "ModelResponse",
    "ModelRetry",
    "Models",
    "NothingToContinueError",
    "OperationAborted",
    "PiAgentError",
    "PrepareRequestContext",
    "ProviderAuth",
    "ResponseBuilder",
    "RetryPolicy",
    "SessionError",
    "SessionFormatError",
    "StreamDone",
    "StreamError",
    "StreamFn",
    "StreamOptions",
    "StreamStart",
    "StreamingJsonParser",
    "SystemMessage",
    "TextContent",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ThinkingContent",
    "ThinkingDelta",
    "ThinkingEnd",
    "ThinkingStart",
    "Tool",
    "ToolArgumentsError",
    "ToolBatchEnd",
    "ToolBatchStart",
    "ToolCall",
    "ToolCallArgumentsStream",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallOutcome",
    "ToolCallStart",
    "ToolContext",
    "ToolError",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "ToolNotFoundError",
    "ToolReference",
    "ToolResultMessage",
    "TranscriptContext",
    "TurnContext",
    "TurnDecision",
    "TurnEnd",
    "TurnStart",
    "Usage",
    "UserMessage",
    "agent_loop",
    "agent_loop_continue",
    "calculate_cost",
    "clamp_max_tokens_to_context",
    "clamp_thinking_level",
    "collapse_system_messages",
    "convert_tool_result",
    "create_initial_system_message",
    "create_models",
    "create_provider",
    "faux_assistant_message",
    "faux_provider",
    "faux_text",
    "faux_thinking",
    "faux_tool_call",
    "from_json",
    "get_current_system_message",
    "get_current_system_prompt",
    "get_current_tools",
    "get_default_stream_fn",
    "get_tool_state_changes",
    "is_context_overflow",
    "is_recoverable_length",
    "is_retryable_assistant_error",
    "lazy_stream",
    "merge_client_identity",
    "normalize_context",
    "parse_streaming_json",
    "parse_tool_call_arguments",
    "proxy_stream_fn",
    "resolve_transcript_tools",
    "retry_assistant_call",
    "retry_provider_request",
    "run_agent_loop",
    "run_agent_loop_continue",
    "run_tool_call",
    "set_default_stream_fn",
    "stream_proxy",
    "thaw",
    "thinking_budget_for_level",
    "to_json",
    "to_tool_declaration",
    "tool",
    "validate_tool_arguments",
    "validate_tool_call",
]

_modules: dict[str, str] = {}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used; the import block above says from where."""
    if not _modules:
        _modules.update(_read_modules())
    if name not in _modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_modules[name]), name)
    globals()[name] = value
    return value


def _read_modules() -> dict[str, str]:
    with open(__file__, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms to import
        block = file.read().split("if TYPE_CHECKING:", 2)[1].split("__all__", 1)[0]
    modules: dict[str, str] = {}
    words = block.split()
    module = ""
    for word, following in pairwise(words):
        if word == "from":
            module = following
        elif word == "as":
            modules[following.rstrip(",")] = module
    return modules


def __dir__() -> list[str]:
    return sorted(__all__)
