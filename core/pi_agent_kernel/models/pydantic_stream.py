"""pydantic-ai's events in ours.

Blocks are renumbered: parts we have no block for (server-side tools, files) are left out. A tool
call ends only with the stream, because its pieces may still come after another part began
(trap 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.events import AssistantMessageEvent, StreamDone
from pi_agent_kernel.json_stream import parse_tool_call_arguments
from pi_agent_kernel.messages import Cost, ToolCall, Usage
from pi_agent_kernel.models.pricing import calculate_cost
from pi_agent_kernel.models.prompt_size import compact_json
from pi_agent_kernel.models.pydantic_history import signature_of
from pi_agent_kernel.request import Model
from pi_agent_kernel.response import ResponseBuilder

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent, ToolCallPart
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.usage import RequestUsage

__all__ = ["ResponseReader"]

_REDACTED = ("redacted_thinking", "redacted_content")


class ResponseReader:
    """Turn the events of one response into ours.

    Source: MD-02 to MD-06.
    """

    def __init__(self, response: StreamedResponse, builder: ResponseBuilder, model: Model) -> None:
        self._response = response
        self._builder = builder
        self._model = model
        #: Part index to block index and kind, of the parts that are blocks.
        self._blocks: dict[int, int] = {}
        self._kinds: dict[int, Literal["text", "thinking", "call"]] = {}
        #: Parts that have begun and not ended, in order.
        self._open: list[int] = []
        #: Every part that has begun, a block or not.
        self._begun: set[int] = set()

    def feed(self, event: ModelResponseStreamEvent) -> Iterator[AssistantMessageEvent]:
        """Yield our events for one of theirs."""
        match event.event_kind:
            case "part_start":
                yield from self._started(event.index, event.part)
            case "part_delta":
                yield from self._delta(event.index, event.delta)
            case "part_end" if self._kinds.get(event.index) != "call":
                yield from self._ended(event.index, event.part)
            case _:
                return  # a call that may go on, or an Agent's concern

    def finish(self, *, always_says_why: bool) -> Iterator[AssistantMessageEvent]:
        """Yield the events that end a stream which has run to its end.

        Args:
            always_says_why: Whether usage without a finish reason is not enough.

        Raises:
            ModelError: It did not end as a complete reply does (E05), or was refused.
        """
        reply = self._response.get()
        details = reply.provider_details or {}
        raw = details.get("finish_reason")
        self._note(reply, raw)
        # The reply leaves out parts that never got a name, so positions in it are no indexes.
        parts = dict(zip(sorted(self._begun), reply.parts, strict=False))
        for index in list(self._open):
            yield from self._ended(index, parts[index])
        measured = reply.usage.has_values()
        if reply.state == "incomplete" or (not raw and (always_says_why or not measured)):
            raise ModelError(
                "The stream ended without a stop reason: the reply is cut off. Try again."
            )
        yield self._last(reply, details)

    def _started(self, index: int, part: Any) -> Iterator[AssistantMessageEvent]:
        builder = self._builder
        if index in self._begun:
            return  # replaces what the part's end will tell in full
        self._begun.add(index)
        match part.part_kind:
            case "text":
                begun = builder.text_start()
                self._kinds[index] = "text"
            case "thinking":
                begun = builder.thinking_start()
                self._kinds[index] = "thinking"
            case "tool-call":
                begun = builder.toolcall_start(part.tool_call_id, part.tool_name)
                self._kinds[index] = "call"
            case _:
                return
        self._blocks[index] = begun.content_index
        self._open.append(index)
        yield begun
        # What the start brings is the first delta (E06).
        first = part.args if part.part_kind == "tool-call" else part.content
        if first:
            yield self._piece(index, first)

    def _delta(self, index: int, delta: Any) -> Iterator[AssistantMessageEvent]:
        if index not in self._blocks:
            return
        added = delta.args_delta if delta.part_delta_kind == "tool_call" else delta.content_delta
        if added:
            yield self._piece(index, added)

    def _piece(self, index: int, added: Any) -> AssistantMessageEvent:
        builder, block = self._builder, self._blocks[index]
        match self._kinds[index]:
            case "text":
                return builder.text_delta(added, block)
            case "thinking":
                return builder.thinking_delta(added, block)
            case _:
                text = added if isinstance(added, str) else compact_json(added)
                return builder.toolcall_delta(text, block)

    def _ended(self, index: int, part: Any) -> Iterator[AssistantMessageEvent]:
        if index not in self._open:
            return
        self._open.remove(index)
        builder, block = self._builder, self._blocks[index]
        match self._kinds[index]:
            case "text":
                yield builder.text_end(block, part.content, signature=signature_of(part))
            case "thinking":
                yield builder.thinking_end(
                    block,
                    part.content,
                    signature=signature_of(part),
                    redacted=True if part.id in _REDACTED and not part.content else None,
                )
            case _:
                yield builder.toolcall_end(block, _call(part))

    def _note(self, reply: ModelResponse, raw: object) -> None:
        """Put what is known of the reply into its message, complete or not."""
        fields = self._builder.fields
        fields["usage"] = _usage(reply.usage, self._model, reply)
        if reply.provider_response_id:
            fields["response_id"] = reply.provider_response_id
        if reply.model_name and reply.model_name != self._model.id:
            fields["response_model"] = reply.model_name
        if raw:
            fields["raw_stop_reason"] = str(raw)

    def _last(self, reply: ModelResponse, details: dict[str, Any]) -> StreamDone:
        # The provider's reason wins over the presence of calls (E20).
        match reply.finish_reason:
            case "length":
                return self._builder.done("length")
            case "content_filter":
                said = details.get("refusal")
                raise ModelError(
                    "The provider refused to answer (content filter)"
                    + (f": {said}" if said else "")
                    + ". Rephrase the request."
                )
            case "error":
                raise ModelError("The provider ended the reply because of an error. Try again.")
            case _:
                return self._builder.done()


def _call(part: ToolCallPart) -> ToolCall:
    arguments, problem = parse_tool_call_arguments(part.args)
    return ToolCall(
        id=part.tool_call_id,
        name=part.tool_name,
        arguments=arguments,
        arguments_error=problem,
        thought_signature=signature_of(part),
    )


def _usage(usage: RequestUsage, model: Model, reply: ModelResponse) -> Usage:
    # Their input counts what the cache served and stored; ours does not (MD-19).
    read, write = usage.cache_read_tokens, usage.cache_write_tokens
    plain = max(0, usage.input_tokens - read - write)
    reported: object = (reply.provider_details or {}).get("cost")
    told = Cost()
    if isinstance(reported, (int, float)) and not isinstance(reported, bool):
        told = Cost(total=float(reported), total_from_provider=True)
    counted = Usage(
        input=plain,
        output=usage.output_tokens,
        cache_read=read,
        cache_write=write,
        cache_write_1h=usage.cache_write_1h_tokens or None,
        reasoning=usage.output_reasoning_tokens or None,
        total_tokens=plain + read + write + usage.output_tokens,
        cost=told,
    )
    cost = calculate_cost(model, counted, response_model=reply.model_name)
    return msgspec.structs.replace(counted, cost=cost)
