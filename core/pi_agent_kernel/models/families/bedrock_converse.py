"""Amazon Bedrock's ConverseStream format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_ai.models.bedrock import BedrockConverseModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for"]


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
    """Return the settings that only this format has."""
    del model, options, reach
    return {}
