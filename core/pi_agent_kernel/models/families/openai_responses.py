"""OpenAI's Responses format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pi_agent_kernel.models.families.openai_chat import own_settings

if TYPE_CHECKING:
    from pydantic_ai.models.openai import OpenAIResponsesModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for"]


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
