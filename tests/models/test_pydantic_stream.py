from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.messages import AssistantMessage, ThinkingContent, ToolCall
from pi_agent_kernel.models.pydantic_history import Places, signature_of, to_history
from pi_agent_kernel.models.pydantic_stream import ResponseReader
from pi_agent_kernel.request import Model
from pi_agent_kernel.response import ResponseBuilder
from pydantic_ai.messages import BinaryContent as Bytes
from pydantic_ai.messages import (
    FilePart,
    FinalResultEvent,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.usage import RequestUsage

MODEL = Model(id="gpt-5-mini", api="openai-completions", provider="openai-chat")


@dataclass
class Response:
    """Stand in for a StreamedResponse: some families send what the loopback server cannot."""

    reply: ModelResponse = field(default_factory=lambda: ModelResponse(parts=[]))

    def get(self):
        """Return the reply."""
        return self.reply


def read(events, *, always_says_why=True, **reply):
    """Return our events for theirs."""
    told = {"provider_details": {"finish_reason": "stop"}, "finish_reason": "stop", **reply}
    response = Response(ModelResponse(parts=told.pop("parts", []), **told))
    builder = ResponseBuilder(api="a", provider="p", model="m")
    reader = ResponseReader(response, builder, MODEL)
    ours = [our for event in events for our in reader.feed(event)]
    return [*ours, *reader.finish(always_says_why=always_says_why)]


def test_other_parts_are_left_out_and_blocks_renumbered():
    """A file between two texts is no block; the index of the second text is 1."""
    first, second = TextPart("a"), TextPart("b")
    picture = FilePart(content=Bytes(data=b"x", media_type="image/png"))
    events = read(
        [
            PartStartEvent(index=0, part=first),
            FinalResultEvent(tool_name=None, tool_call_id=None),
            PartEndEvent(index=0, part=first),
            PartStartEvent(index=1, part=picture),
            PartDeltaEvent(index=1, delta=TextPartDelta(content_delta="?")),
            PartEndEvent(index=1, part=picture),
            PartStartEvent(index=2, part=second),
            PartStartEvent(index=2, part=second),
        ],
        parts=[first, picture, second],
    )

    assert [event.content_index for event in events if event.type == "text_delta"] == [0, 1]
    assert events[-1].message.text == "a\nb"
    assert events[-1].reason == "stop"


def test_a_call_goes_on_after_another_began():
    """Pieces of a call may come after its part ended; it ends complete (trap 1)."""
    one = ToolCallPart("f", '{"a":1}', tool_call_id="1")
    two = ToolCallPart("g", {"b": 2}, tool_call_id="2")
    begun = ToolCallPart("f", '{"a":', tool_call_id="1")
    events = read(
        [
            PartStartEvent(index=1, part=begun),
            PartEndEvent(index=1, part=begun),
            PartStartEvent(index=2, part=two),
            PartDeltaEvent(index=1, delta=ToolCallPartDelta(args_delta="1}")),
        ],
        parts=[one, two],  # a part that never got a name had index 0
    )

    calls = events[-1].message.tool_calls
    assert [(c.name, dict(c.arguments)) for c in calls] == [("f", {"a": 1}), ("g", {"b": 2})]
    deltas = [event.delta for event in events if event.type == "toolcall_delta"]
    assert deltas == ['{"a":', '{"b":2}', "1}"]
    assert events[-1].reason == "toolUse"


def test_signatures_survive_a_round_trip():
    """What a provider wants back comes back with the next request (MS-06)."""
    thought = ThinkingPart("hm", id="r1", signature="sig", provider_name="p")
    hidden = ThinkingPart("", id="redacted_thinking", signature="enc", provider_name="p")
    call = ToolCallPart("f", {}, tool_call_id="c", provider_name="p", provider_details={"t": 1})
    text = TextPart("x", id="m1", provider_name="p")
    parts = [thought, hidden, text, call]
    starts = [PartStartEvent(index=i, part=part) for i, part in enumerate(parts)]
    starts.insert(1, PartDeltaEvent(index=0, delta=ThinkingPartDelta(signature_delta="sig")))

    message = read(starts, parts=parts)[-1].message
    (replayed,) = to_history([message], model="m", system="p", places=Places())

    assert [block.type for block in message.content] == ["thinking", "thinking", "text", "toolCall"]
    assert [block.redacted for block in message.content[:2]] == [None, True]
    assert list(replayed.parts) == parts


def test_signatures_of_other_writers_are_kept():
    """A plain signature, as the reference stores it, is a signature; odd details are dropped."""
    message = AssistantMessage(
        content=[
            ThinkingContent(thinking="x", thinking_signature="plain"),
            ToolCall(id="c", name="f", arguments={}),
        ]
    )
    (replayed,) = to_history([message], model="m", system="p", places=Places())

    assert replayed.parts[0].signature == "plain"
    assert replayed.parts[0].provider_name == "p"
    assert signature_of(TextPart("x", provider_name="p")) is None
    assert signature_of(TextPart("x", id="1", provider_details={"x": object()})) is None


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"finish_reason": "error"}, "because of an error"),
        (
            {"finish_reason": "content_filter", "provider_details": {"finish_reason": "x"}},
            "(content filter). Rephrase",
        ),
        (
            {
                "finish_reason": "content_filter",
                "provider_details": {"finish_reason": "x", "refusal": "No"},
            },
            "(content filter): No. Rephrase",
        ),
        ({"state": "incomplete"}, "without a stop reason"),
        ({"provider_details": None}, "without a stop reason"),
        (
            {"provider_details": None, "usage": RequestUsage(output_tokens=1)},
            "without a stop reason",
        ),
    ],
)
def test_a_reply_that_ended_badly_is_an_error(reply, said):
    """A family that always gives a reason must have given one; refusals are errors."""
    with pytest.raises(ModelError) as caught:
        read([], **reply)

    assert said in str(caught.value)


def test_the_price_comes_from_the_table():
    """A model of a known provider has its price, cached input at its own rate."""
    usage = RequestUsage(input_tokens=1000, output_tokens=100, cache_read_tokens=400)
    message = read(
        [],
        usage=usage,
        provider_url="https://api.openai.com/v1",
        model_name="gpt-5-mini-2025-08-07",
        provider_response_id="r",
    )[-1].message
    cost = message.usage.cost

    assert message.response_model == "gpt-5-mini-2025-08-07"
    assert cost.total == pytest.approx(cost.input + cost.output + cost.cache_read)
    assert cost.input / 600 > cost.cache_read / 400 > 0
    assert cost.extra is None
