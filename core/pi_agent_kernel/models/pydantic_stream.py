"""pydantic-ai's events in ours.

Blocks are renumbered: parts we have no block for (server-side tools, files) are left out. A tool
call ends only with the stream, because its pieces may still come after another part began
(trap 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pi_agent_kernel.events import AssistantMessageEvent, StreamDone
from pi_agent_kernel.json_stream import parse_tool_call_arguments
from pi_agent_kernel.messages import Cost, ToolCall, Usage
from pi_agent_kernel.models.error_kinds import ReplyError
from pi_agent_kernel.models.families.token_counts import whole_count
from pi_agent_kernel.models.pricing import calculate_cost
from pi_agent_kernel.models.prompt_size import compact_json
from pi_agent_kernel.models.pydantic_history import signature_of
from pi_agent_kernel.models.stop_reasons import ending_of, failure_of
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
        #: How to record a piece, by part index, of the parts that are blocks; with its block.
        self._pieces: dict[int, tuple[Callable[[str, int], AssistantMessageEvent], int]] = {}
        #: Parts that have begun and not ended, in order.
        self._open: dict[int, str] = {}
        #: Every part that has begun, by what kind it is, a block or not.
        self._begun: dict[int, str] = {}
        #: Parts whose block has not the content they end with, but the pieces that came.
        self._own_pieces: set[int] = set()

    def feed(self, event: ModelResponseStreamEvent) -> Sequence[AssistantMessageEvent]:
        """Return our events for one of theirs."""
        # The first branch runs for every delta: no generator, no more looking up than needed.
        if event.event_kind == "part_delta":
            return self._delta(event.index, event.delta)
        if event.event_kind == "part_start":
            return self._started(event.index, event.part)
        if event.event_kind == "part_end" and self._open.get(event.index) in ("text", "thinking"):
            return self._ended(event.index, event.part)
        return ()  # a call that may go on, or an Agent's concern

    def finish(self, *, always_says_why: bool) -> Iterator[AssistantMessageEvent]:
        """Yield the events that end a stream which has run to its end.

        Args:
            always_says_why: Whether usage without a finish reason is not enough.

        Raises:
            ReplyError: It did not end as a complete reply does (E05), or was refused.
        """
        reply = self._response.get()
        details = reply.provider_details or {}
        raw = details.get("finish_reason")
        # The reply leaves out parts that never got a name, so positions in it are no indexes.
        parts = dict(zip(sorted(self._begun), reply.parts, strict=False))
        for index in list(self._open):
            yield from self._ended(index, parts[index])
        self.note()
        if reply.finish_reason == "content_filter":  # said without a raw reason, or before the end
            raise _refusal(details)
        measured = reply.usage.has_values()
        if reply.state == "incomplete" or (not raw and (always_says_why or not measured)):
            raise ReplyError(
                "The stream ended without a stop reason: the reply is cut off. Try again.",
                "incomplete",
            )
        yield self._last(reply, str(raw or ""), details)

    def note(self) -> None:
        """Put what is known of the reply into its message, complete or not."""
        reply = self._response.get()
        fields = self._builder.fields
        fields["usage"] = _usage(reply.usage, self._model, reply)
        if reply.provider_response_id:
            fields["response_id"] = reply.provider_response_id
        if reply.model_name and reply.model_name != self._model.id:
            fields["response_model"] = reply.model_name
        raw = (reply.provider_details or {}).get("finish_reason")
        if raw:
            fields["raw_stop_reason"] = str(raw)

    def _started(self, index: int, part: Any) -> Sequence[AssistantMessageEvent]:
        builder = self._builder
        if index in self._begun:
            return ()  # replaces what the part's end will tell in full
        kind: str = part.part_kind
        self._begun[index] = kind
        match kind:
            case "text":
                begun, record = builder.text_start(), builder.text_delta
            case "thinking":
                begun, record = builder.thinking_start(), builder.thinking_delta
            case "tool-call":
                begun = builder.toolcall_start(part.tool_call_id, part.tool_name)
                record = builder.toolcall_delta
            case _:
                return ()
        self._pieces[index] = record, begun.content_index
        self._open[index] = kind
        # What the start brings is the first delta (E06).
        first = part.args if kind == "tool-call" else part.content
        if kind == "thinking" and not first:
            first = self._aside(index, part.provider_details)
        if not first:
            return (begun,)
        return begun, record(_text(first), begun.content_index)

    def _delta(self, index: int, delta: Any) -> Sequence[AssistantMessageEvent]:
        found = self._pieces.get(index)
        if found is None:
            return self._resumed(index, delta)
        if delta.part_delta_kind == "tool_call":
            added = delta.args_delta
        else:
            added = delta.content_delta
            if not added and delta.provider_details and self._open.get(index) == "thinking":
                added = self._aside(index, delta.provider_details)
        if not added:
            return ()
        record, block = found
        return (record(added if type(added) is str else _text(added), block),)

    def _resumed(self, index: int, delta: Any) -> Sequence[AssistantMessageEvent]:
        """Go on with a part that had ended: in a block of its own."""
        builder, kind = self._builder, self._begun.get(index)
        if kind not in ("text", "thinking") or not delta.content_delta:
            return ()
        if kind == "text":
            begun, record = builder.text_start(), builder.text_delta
        else:
            begun, record = builder.thinking_start(), builder.thinking_delta
        self._pieces[index] = record, begun.content_index
        self._open[index] = kind
        self._own_pieces.add(index)
        return begun, record(delta.content_delta, begun.content_index)

    def _aside(self, index: int, details: Any) -> str:
        """Return the raw thoughts that open models send beside the summary (trap 11)."""
        if callable(details):  # a change to the details so far; of none it leaves what is new
            details = details(None)
        added = "".join(cast("dict[str, list[str]]", details or {}).get("raw_content", ()))
        if added:
            self._own_pieces.add(index)
        return added

    def _ended(self, index: int, part: Any) -> Sequence[AssistantMessageEvent]:
        kind = self._open.pop(index)
        builder, (_, block) = self._builder, self._pieces.pop(index)
        content = None if index in self._own_pieces or kind == "tool-call" else part.content
        match kind:
            case "text":
                return (builder.text_end(block, content, signature=signature_of(part)),)
            case "thinking":
                end = builder.thinking_end(
                    block,
                    content,
                    signature=signature_of(part),
                    redacted=True if part.id in _REDACTED and not part.content else None,
                )
                return (end,)
            case _:
                return (builder.toolcall_end(block, _call(part)),)

    def _last(self, reply: ModelResponse, raw: str, details: dict[str, Any]) -> StreamDone:
        # The provider's reason wins over the presence of calls (E20).
        classed = reply.finish_reason
        ending = ending_of(self._model.api, raw, classed) if raw or classed else "stop"
        match ending:
            case "stop":
                return self._builder.done()
            case "length":
                return self._builder.done("length")
            case "refused":
                raise _refusal(details)
            case _:
                raise failure_of(raw, ending)


def _refusal(details: dict[str, Any]) -> ReplyError:
    """Return the error of a refusal, with what the provider said about it."""
    names = ("refusal", "block_reason", "block_reason_message")
    words = [str(details[name]).rstrip(".!? \n") for name in names if details.get(name)]
    said = f": {'. '.join(words)}" if words else ""
    return ReplyError(
        f"The provider refused to answer (content filter){said}. Rephrase the request.", "refused"
    )


def _text(added: Any) -> str:
    """Return a piece of arguments as text; one provider sends objects."""
    return added if isinstance(added, str) else compact_json(added)


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
    read, write = whole_count(usage.cache_read_tokens), whole_count(usage.cache_write_tokens)
    plain = max(0, whole_count(usage.input_tokens) - read - write)
    output = whole_count(usage.output_tokens)
    reported: object = (reply.provider_details or {}).get("cost")
    told = Cost()
    if isinstance(reported, (int, float)) and not isinstance(reported, bool):
        amount = float(reported)
        if math.isfinite(amount) and amount >= 0:
            told = Cost(total=amount, total_from_provider=True)
    counted = Usage(
        input=plain,
        output=output,
        cache_read=read,
        cache_write=write,
        cache_write_1h=whole_count(usage.cache_write_1h_tokens) or None,
        reasoning=whole_count(usage.output_reasoning_tokens) or None,
        total_tokens=plain + read + write + output,
        cost=told,
    )
    cost = calculate_cost(model, counted, response_model=reply.model_name)
    return msgspec.structs.replace(counted, cost=cost)
