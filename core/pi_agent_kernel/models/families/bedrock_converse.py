"""Amazon Bedrock's ConverseStream format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.models.bedrock import BedrockConverseModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]


def build_model(reach: Reach) -> BedrockConverseModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.models.bedrock import BedrockConverseModel
    from pydantic_ai.providers.bedrock import BedrockProvider

    env = reach.env
    provider = BedrockProvider(  # pyright: ignore[reportCallIssue] - one way or the other
        api_key=reach.key,
        aws_access_key_id=env.get("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=env.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=env.get("AWS_SESSION_TOKEN"),
        profile_name=env.get("AWS_PROFILE"),
        region_name=env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"),
        base_url=reach.base_url or None,
        aws_read_timeout=reach.idle_timeout,
    )
    return BedrockConverseModel(reach.name, provider=provider)


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only this format has: what to cache, where the model can."""
    del model, options, reach
    return {"cache": True}


def thinking_settings(thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return how hard to think; older Claude models take a budget."""
    if thinking.level == "off":
        return {"thinking": False}
    wants_budget = profile.get("bedrock_thinking_variant") == "anthropic" and not profile.get(
        "bedrock_supports_adaptive_thinking"
    )
    if not wants_budget:
        return {"thinking": thinking.level}
    budget = thinking.tokens(least=1024)
    field = {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return {"bedrock_additional_model_requests_fields": field} if budget else {}
