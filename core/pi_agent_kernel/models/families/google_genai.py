"""Google's Gemini format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_ai.models.google import GoogleModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for"]


def build_model(reach: Reach) -> GoogleModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(
        api_key=reach.key or "none", base_url=reach.base_url, http_client=reach.client
    )
    return GoogleModel(reach.name, provider=provider)


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only this format has."""
    del model, options, reach
    return {}
