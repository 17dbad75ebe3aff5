"""OpenAI's Responses format."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.models.families.openai_chat import own_settings
from pi_agent_kernel.models.families.openai_chat import thinking_settings as chat_thinking
from pi_agent_kernel.models.families.token_counts import whole_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesStreamedResponse

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]


def build_model(reach: Reach) -> OpenAIResponsesModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(
        api_key=reach.key or "none", base_url=reach.base_url, http_client=reach.client
    )
    return _model_class()(reach.name, provider=provider)


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only OpenAI's own server understands."""
    del model
    return own_settings(options, reach)


def thinking_settings(thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return how hard to think, and that what was thought is told in short."""
    settings = chat_thinking(thinking, profile)
    return settings if thinking.level == "off" else {**settings, "openai_reasoning_summary": "auto"}


#: Items that are read; others are calls of kinds of tools that we never offer.
_ITEMS = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "web_search_call",
        "file_search_call",
        "tool_search_call",
        "tool_search_output",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "compaction",
    }
)
#: Counts that every report of usage has.
_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_LEFT_OUT = (
    "response.custom_tool_call",
    "response.shell_call",
    "response.apply_patch_call",
    "response.audio",
    "response.compaction",
)


class _KnownEvents:
    """Leave out events that pydantic-ai would only warn of, and what is no event (E19)."""

    def __init__(self, events: Any) -> None:
        self._events = events

    @property
    def source(self) -> Any:
        """The SDK's stream, as the peekable one has it."""
        return self._events.source

    def __aiter__(self) -> _KnownEvents:
        return self

    async def __anext__(self) -> Any:
        while True:
            event = await anext(self._events)
            kind: str = getattr(event, "type", None) or ""
            if not kind:
                continue
            whole = getattr(event, "response", None)
            if whole is not None:
                whole.usage = whole_counts(whole.usage, always=_COUNTS)
            if kind.startswith("response.output_item."):
                if event.item.type in _ITEMS:
                    return event
            elif not kind.startswith(_LEFT_OUT):
                return event


@cache
def _model_class() -> type[OpenAIResponsesModel]:
    from pydantic_ai.models.openai import OpenAIResponsesModel

    class QuietModel(OpenAIResponsesModel):
        async def _process_streamed_response(
            self, *given: Any, **named: Any
        ) -> OpenAIResponsesStreamedResponse:
            response: Any = await super()._process_streamed_response(*given, **named)
            response._response = _KnownEvents(response._response)  # noqa: SLF001
            return response

    return QuietModel
