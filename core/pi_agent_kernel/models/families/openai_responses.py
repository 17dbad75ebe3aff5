"""OpenAI's Responses format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pi_agent_kernel.models.families.openai_chat import own_settings
from pi_agent_kernel.models.families.openai_chat import thinking_settings as chat_thinking

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.models.openai import OpenAIResponsesModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]


def build_model(reach: Reach) -> OpenAIResponsesModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(
        api_key=reach.key or "none", base_url=reach.base_url, http_client=reach.client
    )
    return OpenAIResponsesModel(reach.name, provider=provider)


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only OpenAI's own server understands."""
    del model
    return own_settings(options, reach)


def thinking_settings(thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return how hard to think, and that what was thought is told in short."""
    settings = chat_thinking(thinking, profile)
    return settings if thinking.level == "off" else {**settings, "openai_reasoning_summary": "auto"}
