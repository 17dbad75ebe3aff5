"""Anthropic's Messages format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.models.families import refined
from pi_agent_kernel.models.families.token_counts import whole_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from anthropic.types.beta import (
        BetaRawMessageDeltaEvent,
        BetaRawMessageStartEvent,
        BetaRawMessageStreamEvent,
    )
    from pydantic_ai.messages import ModelResponseStreamEvent
    from pydantic_ai.models.anthropic import AnthropicModel, AnthropicStreamedResponse

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]


def build_model(reach: Reach) -> AnthropicModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(
        api_key=reach.key, base_url=reach.base_url, http_client=reach.client
    )
    return _model_class()(reach.name, provider=provider)


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only this format has: what to cache, who the user is.

    The end of the tools, of the prompt and of the conversation are marked, so that the next
    request reads all of this one from the cache.
    """
    del model, reach
    settings: dict[str, Any] = {
        "anthropic_cache_tool_definitions": True,
        "anthropic_cache_instructions": True,
        "anthropic_cache_messages": True,
    }
    user = (options.metadata or {}).get("user_id")
    if isinstance(user, str) and user:
        settings["anthropic_metadata"] = {"user_id": user}
    return settings


def thinking_settings(thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return how hard to think: an effort where the model takes one, else a budget (trap 12)."""
    if thinking.level == "off":
        return {"thinking": False}
    if profile.get("anthropic_supports_adaptive_thinking"):
        if thinking.word:
            return {"anthropic_thinking": {"type": "adaptive"}, "anthropic_effort": thinking.word}
        return {"thinking": thinking.level}
    budget = thinking.tokens(least=1024)
    return {"anthropic_thinking": {"type": "enabled", "budget_tokens": budget}} if budget else {}


@cache
def _model_class() -> type[AnthropicModel]:
    from pydantic_ai.models.anthropic import AnthropicModel, AnthropicStreamedResponse

    @dataclass
    class WholeStream(AnthropicStreamedResponse):
        """Count a reply as complete only once its last event has come, not its stop reason."""

        def _map_message_start(self, event: BetaRawMessageStartEvent) -> None:
            message: Any = event.message
            if message is not None:
                message.usage = whole_counts(message.usage) or _no_usage()
            super()._map_message_start(event)

        def _map_message_delta(self, event: BetaRawMessageDeltaEvent) -> None:
            event.usage = whole_counts(event.usage) or _no_usage()
            super()._map_message_delta(event)
            self._state_at_the_end = self.state
            self.state = "incomplete"

        def _map_event(
            self, event: BetaRawMessageStreamEvent
        ) -> Iterator[ModelResponseStreamEvent]:
            if event.type == "message_stop":
                self.state = getattr(self, "_state_at_the_end", self.state)
            return super()._map_event(event)

    class WholeModel(AnthropicModel):
        async def _process_streamed_response(
            self, *given: Any, **named: Any
        ) -> AnthropicStreamedResponse:
            response = await super()._process_streamed_response(*given, **named)
            return refined(WholeStream, response)

    return WholeModel


def _no_usage() -> Any:
    """Return a report that counts nothing."""
    from anthropic.types.beta import BetaUsage

    return BetaUsage(input_tokens=0, output_tokens=0)
