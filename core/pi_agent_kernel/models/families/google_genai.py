"""Google's Gemini format."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.models.families import refined
from pi_agent_kernel.models.families.token_counts import whole_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.genai.types import GenerateContentResponse, Part
    from pydantic_ai.messages import ModelResponseStreamEvent
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.models.google import GoogleModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]


def build_model(reach: Reach) -> GoogleModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(
        api_key=reach.key or "none", base_url=reach.base_url, http_client=reach.client
    )
    return _model_class()(reach.name, provider=provider)


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


_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")


class _CallInPieces:
    """Put together a call whose arguments come value by value (trap 15)."""

    def __init__(self) -> None:
        self._first: Any = None
        self._arguments: dict[str, Any] = {}
        self._growing: str | None = None

    def add(self, part: Part) -> Part | None:
        """Take a piece; return the whole call once it is the last one."""
        call: Any = part.function_call
        if self._first is None:
            self._first = part
            self._arguments.update(call.args or {})
        for value in call.partial_args or ():
            self._put(value)
        if call.will_continue:
            return None
        whole = self._first.function_call.model_copy(
            update={"args": self._arguments, "partial_args": None, "will_continue": None}
        )
        return self._first.model_copy(update={"function_call": whole})

    def _put(self, value: Any) -> None:
        path: str = value.json_path or "$"
        steps = [
            int(index) if index else name or quoted or double
            for name, index, quoted, double in _STEP.findall(path)
        ]
        found: Any = None
        for known in (value.string_value, value.number_value, value.bool_value):
            found = known if found is None else found
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if steps:
            _set(self._arguments, steps, found, grows=self._growing == path)
        self._growing = path if value.will_continue else None


def _set(place: Any, steps: list[Any], value: Any, *, grows: bool) -> None:
    """Set what a path leads to, making what it leads through."""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(step, int) and isinstance(place, list):
            rows = cast("list[Any]", place)
            rows.extend([None] * (step + 1 - len(rows)))
            here: Any = rows[step]
        else:
            here = place.get(step)
        if following is None:
            place[step] = here + value if grows and isinstance(here, str) else value
        elif here is None:
            here = place[step] = cast("Any", [] if isinstance(following, int) else {})
        place = here


@cache
def _model_class() -> type[GoogleModel]:
    from pydantic_ai.models.google import GeminiStreamedResponse, GoogleModel

    @dataclass
    class WholeCalls(GeminiStreamedResponse):
        _call: _CallInPieces | None = field(default=None, init=False)

        def _add_chunk_usage(self, chunk: GenerateContentResponse) -> None:
            if chunk.usage_metadata is not None:
                whole_counts(chunk.usage_metadata)
            super()._add_chunk_usage(chunk)

        def _map_part(self, part: Part) -> Iterator[ModelResponseStreamEvent]:
            call = part.function_call
            if call is not None and (self._call or call.will_continue or call.partial_args):
                self._call = self._call or _CallInPieces()
                whole = self._call.add(part)
                if whole is None:
                    return
                self._call, part = None, whole
            yield from super()._map_part(part)

    class WholeCallsModel(GoogleModel):
        async def _process_streamed_response(self, *given: Any, **named: Any) -> StreamedResponse:
            response = await super()._process_streamed_response(*given, **named)
            return refined(WholeCalls, response)

    return WholeCallsModel
