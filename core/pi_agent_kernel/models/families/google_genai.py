"""Google's Gemini format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.models.google import GoogleModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]


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


def thinking_settings(thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return how hard to think: a level from Gemini 3 on, a budget before."""
    if thinking.level == "off":
        return {"thinking": False}
    shown: dict[str, Any] = {"include_thoughts": True}
    if not profile.get("google_supports_thinking_level", True):
        budget = thinking.tokens(least=128)
        return {"google_thinking_config": {**shown, "thinking_budget": budget}} if budget else {}
    if thinking.word:
        word = thinking.word.upper()
        return {"google_thinking_config": {**shown, "thinking_level": word}}
    return {"thinking": thinking.level}
