"""Mistral's chat format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.models.error_kinds import told_by_server
from pi_agent_kernel.models.families import refined
from pi_agent_kernel.models.families.token_counts import whole_counts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from pydantic_ai.messages import ModelResponseStreamEvent
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.models.mistral import MistralModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]


def build_model(reach: Reach) -> MistralModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.providers.mistral import MistralProvider

    provider = MistralProvider(
        api_key=reach.key or "none", base_url=reach.base_url, http_client=reach.client
    )
    return _model_class()(reach.name, provider=provider)


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only this format has."""
    del model, options, reach
    return {}


def thinking_settings(thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether to think; there are no levels."""
    del profile
    return {"thinking": thinking.level != "off" and thinking.level}


@cache
def _model_class() -> type[MistralModel]:
    from pydantic_ai.exceptions import ModelAPIError
    from pydantic_ai.models.mistral import MistralModel, MistralStreamedResponse

    @dataclass
    class TellingStream(MistralStreamedResponse):
        def _map_chunk(self, chunk: Any) -> Iterator[ModelResponseStreamEvent]:
            if chunk.usage is not None:
                whole_counts(chunk.usage)
            return super()._map_chunk(chunk)

        async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
            try:
                async for event in super()._get_event_iterator():
                    yield event
            except ModelAPIError as error:
                told = _instead_of_a_piece(error)
                if told is None:
                    raise
                raise told_by_server(told) from error

    class TellingModel(MistralModel):
        async def _process_streamed_response(self, *given: Any, **named: Any) -> StreamedResponse:
            response = await super()._process_streamed_response(*given, **named)
            return refined(TellingStream, response)

    return TellingModel


def _instead_of_a_piece(error: BaseException) -> dict[str, Any] | None:
    """Return the error object that the SDK could not read as a piece of the reply."""
    from pydantic import ValidationError

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ValidationError):
        cause = cause.__cause__
    if cause is None:
        return None
    for problem in cause.errors():
        if isinstance(problem["input"], dict):
            found = cast("dict[str, Any]", problem["input"])
            if isinstance(found.get("error"), dict):
                return found["error"]
            if "message" in found:
                return found
    return None
