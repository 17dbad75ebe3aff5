"""The chat-completions wire format, as OpenAI and nearly every other server speak it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.models.error_kinds import told_by_server
from pi_agent_kernel.models.families.chat_chunks import CallFragments, Chunks
from pi_agent_kernel.models.provider_http import Exchange, current_exchange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import Choice
    from pydantic_ai.messages import FinishReason, ModelResponseStreamEvent
    from pydantic_ai.models.openai import OpenAIChatModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "own_settings", "settings_for", "thinking_settings"]


def build_model(reach: Reach) -> OpenAIChatModel:
    """Build pydantic-ai's model for a server; a server of one's own needs no key."""
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    if reach.is_own_server and reach.provider in ("openai", "openai-chat"):
        own = OpenAIProvider(base_url=reach.base_url, api_key=reach.key, http_client=reach.client)
        return _model_class()(reach.name, provider=own)
    other = OpenAICompatibleProvider(
        reach.provider,
        base_url=reach.base_url,
        api_key=reach.key,
        http_client=reach.client,
        profile=_known_profile(reach),
    )
    return _model_class()(reach.name, provider=other)


def _known_profile(reach: Reach) -> Any:
    """Return what is known of DeepSeek, which demands its reasoning field back; else None."""
    if not (reach.is_own_server and reach.provider == "deepseek"):
        return None
    from pydantic_ai.providers.deepseek import DeepSeekProvider

    # Its efforts begin at "low"; not to think is another field.
    no_thinking = {"thinking": {"type": "disabled"}}
    known: Any = DeepSeekProvider.model_profile(reach.name) or {}
    return {**known, "openai_chat_thinking_false_body": no_thinking}


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only OpenAI's own server understands."""
    del model
    return own_settings(options, reach)


def thinking_settings(thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return how hard to think; servers that are not known get an effort all of them know."""
    if thinking.word:
        return {"openai_reasoning_effort": thinking.word}
    if not (profile.get("supports_thinking") or profile.get("thinking_always_enabled")):
        efforts = {"off": None, "minimal": "low"}
        return {"openai_reasoning_effort": efforts.get(thinking.level, thinking.level)}
    return {"thinking": thinking.level != "off" and thinking.level}


def own_settings(options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return what OpenAI's own server is told and others would reject."""
    if not (reach.is_own_server and reach.provider in ("openai", "openai-chat")):
        return {}
    settings: dict[str, Any] = {"openai_store": False}
    if options.session_id:
        settings["openai_prompt_cache_key"] = options.session_id[:64]
    return settings


@cache
def _model_class() -> type[OpenAIChatModel]:
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
    from pydantic_ai.usage import RequestUsage

    nothing = RequestUsage()

    @dataclass
    class StrictStream(OpenAIStreamedResponse):
        _calls: CallFragments = field(default_factory=CallFragments, init=False)
        _exchange: Exchange | None = field(default_factory=current_exchange.get, init=False)
        _usage_stands_alone: bool = field(default=False, init=False)

        async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
            async for event in super()._get_event_iterator():
                yield event
            self._calls.check_end()

        def _map_tool_call_delta(self, choice: Choice) -> Iterable[ModelResponseStreamEvent]:
            fragments = choice.delta.tool_calls
            if not fragments:
                return ()
            choice.delta.tool_calls = self._calls.assigned(fragments)
            return super()._map_tool_call_delta(choice)

        def _map_usage(self, response: ChatCompletionChunk) -> RequestUsage:
            if response.usage is None:
                return nothing
            self._usage_stands_alone = not response.choices
            return super()._map_usage(response)

        def _add_usage(
            self, usage: RequestUsage, *, reported: bool, cumulative: bool = False
        ) -> None:
            # Servers that report with every chunk report the total so far.
            del cumulative
            if reported:
                super()._add_usage(usage, reported=True, cumulative=True)

        def _missing_finish_reason(self) -> FinishReason:
            # Some gateways never give a reason. Their replies end with the usage, which may come
            # with every chunk: then only the end mark tells the end from a cut (trap 2).
            ended = self._exchange is not None and b"[DONE]" in self._exchange.tail
            if not (self._usage_stands_alone or (ended and self._usage.has_values())):
                self.state = "incomplete"
            return "stop"

        def _map_chunk_provider_details(self, chunk: ChatCompletionChunk) -> dict[str, Any] | None:
            if cast("str", chunk.object) == "error":
                raise told_by_server(chunk)
            return super()._map_chunk_provider_details(chunk)

        def _map_provider_details(self, chunk: ChatCompletionChunk) -> dict[str, Any] | None:
            choice = chunk.choices[0]
            if cast("str | None", choice.finish_reason) == "error":
                raise told_by_server(getattr(choice, "error", None))
            return super()._map_provider_details(chunk)

    class StrictModel(OpenAIChatModel):
        @property
        def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
            return StrictStream

        async def _process_streamed_response(
            self, response: Any, *given: Any, **named: Any
        ) -> OpenAIStreamedResponse:
            chunks: Any = Chunks(response)
            return await super()._process_streamed_response(chunks, *given, **named)

    return StrictModel
