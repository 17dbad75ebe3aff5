"""Groq's dialect of chat completions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.models.error_kinds import ReplyError
from pi_agent_kernel.models.families import refined
from pi_agent_kernel.models.families.chat_chunks import CallFragments, Chunks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from pydantic_ai.messages import ModelResponseStreamEvent
    from pydantic_ai.models.groq import GroqModel, GroqStreamedResponse

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]


def build_model(reach: Reach) -> GroqModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.providers.groq import GroqProvider

    provider = GroqProvider(
        api_key=reach.key or "none",
        base_url=reach.base_url,
        http_client=cast("Any", reach.client),  # this SDK takes the forerunner's class
    )
    return _model_class()(reach.name, provider=provider)


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


@cache
def _model_class() -> type[GroqModel]:
    from pydantic_ai.models.groq import GroqModel, GroqStreamedResponse

    @dataclass
    class StrictStream(GroqStreamedResponse):
        fragments: CallFragments = field(default_factory=CallFragments, init=False)

        async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
            async for event in super()._get_event_iterator():
                yield event
            self.fragments.check_end()

        def _map_chunk(self, chunk: Any) -> Iterator[ModelResponseStreamEvent]:
            for choice in chunk.choices or ():
                if choice.delta is not None and choice.delta.tool_calls:
                    choice.delta.tool_calls = self.fragments.assigned(choice.delta.tool_calls)
            return super()._map_chunk(chunk)

        def _map_tool_use_failed(
            self, failed_generation: Any
        ) -> Iterator[ModelResponseStreamEvent]:
            # The server ended the reply because of its call: it is an error, not a call to run.
            name = getattr(failed_generation, "name", None)
            wrong = f"the call of {name!r}" if name else "a tool call"
            raise ReplyError(
                f"The server rejected {wrong} that {self._model_name} made, because its arguments "
                "do not fit the tool's schema (tool_use_failed). Try again, or simplify the "
                "tool's parameters.",
                "invalid_request",
                status=400,
            )

    class StrictModel(GroqModel):
        async def _process_streamed_response(
            self, response: Any, *given: Any, **named: Any
        ) -> GroqStreamedResponse:
            chunks: Any = Chunks(response)
            streamed = await super()._process_streamed_response(chunks, *given, **named)
            strict = refined(StrictStream, streamed)
            strict.fragments = CallFragments()
            return strict

    return StrictModel
