"""Anthropic's Messages format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_ai.models.anthropic import AnthropicModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for"]


def build_model(reach: Reach) -> AnthropicModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(
        api_key=reach.key, base_url=reach.base_url, http_client=reach.client
    )
    return AnthropicModel(reach.name, provider=provider)


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only this format has."""
    del model, options, reach
    return {}
