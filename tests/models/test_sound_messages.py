from __future__ import annotations

import json
import math

import pytest
from pi_agent_kernel import is_retryable_assistant_error
from pi_agent_kernel.messages import AssistantMessage, Cost, Usage
from pi_agent_kernel.models.proxy_reader import ProxyReader
from pi_agent_kernel.models.sound_messages import sound_message, sound_usage
from pi_agent_kernel.models.transient import transient_kind, wait_wanted_ms
from pi_agent_kernel.request import Model
from pi_agent_kernel.wire import to_json

LARGEST = 2**53 - 1
USAGE = to_json(Usage(input=1, output=2, total_tokens=3))
MESSAGE = to_json(AssistantMessage(timestamp=1))


def last(**fields):
    """Return the message that a proxy's last event makes."""
    reader = ProxyReader(Model(id="m", provider="p", api="a"))
    line = json.dumps({"type": "done", "reason": "stop", **fields})
    return reader.feed(f"data: {line}\n".encode())[-1].message


@pytest.mark.parametrize(("given", "counted"), [(-5, 0), (10**30, LARGEST), (7, 7)])
@pytest.mark.parametrize("whole", [False, True])
def test_tokens_are_whole_numbers_from_zero(given, counted, whole):
    """Tokens of a proxy are never negative or larger than any reader of JSON takes."""
    usage = {**USAGE, "input": given, "reasoning": given, "totalTokens": given}
    message = last(message={**MESSAGE, "usage": usage}) if whole else last(usage=usage)

    assert (message.usage.input, message.usage.total_tokens) == (counted, counted)
    assert (message.usage.output, message.usage.reasoning) == (2, counted)
    assert message.usage.cost == Cost()


@pytest.mark.parametrize("price", [-5, math.nan, math.inf, -0.01])
@pytest.mark.parametrize("part", ["input", "total"])
def test_an_impossible_price_is_not_known(price, part):
    """It counts as zero and the cost says so: no budget takes it for cheap."""
    cost = sound_usage(Usage(cost=Cost(**{"output": 1.5, part: price}))).cost

    assert (getattr(cost, part), cost.output) == (0, 1.5)
    assert cost.extra == {"costKnown": False}


def test_what_is_right_stays_as_it_is():
    """A sound message is returned equal, with details this version does not know."""
    details = {"kind": "server", "status": 503, "retryAfterMs": 20, "shouldRetry": True, "x": [1]}
    message = AssistantMessage(
        usage=Usage(input=1, cost=Cost(input=0.5, total=0.5)),
        diagnostics=["odd", {"type": "provider_error", "timestamp": 1, "details": details}],
    )

    assert sound_message(message) == message


@pytest.mark.parametrize(
    "details",
    [
        {"kind": ["x"]},
        {"kind": {"a": 1}},
        {"retryAfterMs": -10},
        {"retryAfterMs": True},
        {"retryAfterMs": 10**30},
        {"shouldRetry": "no"},
        {"status": "429"},
    ],
)
def test_details_that_are_none_are_left_out(details):
    """What a retry cannot read it does not get, and the text decides as without it."""
    diagnostics = [{"type": "provider_error", "timestamp": 1, "details": details}]
    fields = {"stopReason": "error", "errorMessage": "429 slowly", "diagnostics": diagnostics}
    message = last(type="error", reason="error", message={**MESSAGE, **fields})

    assert message.diagnostics[0]["details"] == {}
    assert transient_kind(message) == "rate_limit"
    assert wait_wanted_ms(message) is None


def test_a_message_of_anyone_can_be_asked_about():
    """A kind that is no text and a negative wait do not break a retry (MD-22)."""
    details = {"kind": ["x"], "retryAfterMs": -1}
    message = AssistantMessage(
        stop_reason="error",
        error_message="429 slowly",
        diagnostics=[{"type": "provider_error", "details": details}],
    )

    assert is_retryable_assistant_error(message)
    assert wait_wanted_ms(message) is None
