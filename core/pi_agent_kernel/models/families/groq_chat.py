"""Groq's dialect of chat completions; its failed tool calls are read only here (trap 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.models.groq import GroqModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]


def build_model(reach: Reach) -> GroqModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.models.groq import GroqModel
    from pydantic_ai.providers.groq import GroqProvider

    provider = GroqProvider(api_key=reach.key or "none", base_url=reach.base_url)
    return GroqModel(reach.name, provider=provider)


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only this format has."""
    del model, options, reach
    return {}


def thinking_settings(thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return how hard to think."""
    del profile
    if thinking.word:
        return {"groq_reasoning_effort": thinking.word, "groq_reasoning_format": "parsed"}
    return {"thinking": thinking.level != "off" and thinking.level}
