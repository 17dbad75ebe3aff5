"""OpenRouter: chat completions with reasoning of every provider behind it, and a price."""

from __future__ import annotations

import pytest
from pi_agent_kernel.messages import TextContent, ToolResultMessage, UserMessage
from protocol import check_protocol
from provider import GO, model_at, play
from server import Reply, recorded

# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
)
FORMAT = "openai-responses-v1"


async def ask_route(server, body, messages=GO):
    """Return the checked message of one request to a model behind OpenRouter."""
    server.play(Reply(body))
    model = model_at(server.url, provider="openrouter", id="openai/gpt-5", reasoning=True)
    events = await play(server.url, messages, model=model, api_key="k", reasoning="high")
    return check_protocol(events)


async def test_encrypted_reasoning_goes_back_as_it_came(server):
    """The cipher of a thought returns with the next request, in its place (trap 14)."""
    body = recorded("openrouter")
    reply = await ask_route(server, body)
    results = [
        ToolResultMessage(
            tool_call_id=call.id, tool_name=call.name, content=[TextContent(text="1")]
        )
        for call in reply.tool_calls
    ]

    await ask_route(server, body, [UserMessage(content="q"), reply, *results])
    first, second = (request.payload for request in server.requests)

    assert [block.type for block in reply.content] == ["thinking", "thinking", *["toolCall"] * 2]
    sent_back = second["messages"][1]["reasoning_details"]
    assert [{k: v for k, v in detail.items() if v is not None} for detail in sent_back] == [
        {"type": "reasoning.summary", "summary": "Let me see.", "format": FORMAT, "index": 0},
        {
            "type": "reasoning.encrypted",
            "data": "aGlkZGVu",
            "id": "rs_1",
            "format": FORMAT,
            "index": 0,
        },
    ]
    assert first["reasoning"] == {"effort": "high", "enabled": True}


async def test_calls_without_indexes_stay_apart(server):
    """The repair of chat completions holds for OpenRouter, too."""
    reply = await ask_route(server, recorded("openrouter"))

    assert [(call.name, dict(call.arguments)) for call in reply.tool_calls] == [
        ("add", {"a": 1}),
        ("now", {}),
    ]
    assert (reply.stop_reason, reply.raw_stop_reason) == ("toolUse", "completed")


@pytest.mark.parametrize("cost", [0.00125, 0])
async def test_the_price_it_reports_counts(server, cost):
    """What OpenRouter says a reply cost is its cost, also when it was free."""
    body = recorded("openrouter").replace(b'"cost":0.00125', f'"cost":{cost}'.encode())

    usage = (await ask_route(server, body)).usage

    assert (usage.cost.total, usage.cost.total_from_provider) == (cost, True)
    assert (usage.input, usage.cache_read, usage.reasoning) == (20, 100, 4)


async def test_a_cut_is_an_error(server):
    """A clean end before a reason or the usage is no complete reply (trap 2)."""
    whole = recorded("openrouter")

    reply = await ask_route(server, whole[: whole.index(b'data: {"id":"gen-1"', 900)])

    assert reply.diagnostics[0]["details"]["kind"] == "incomplete"


async def test_an_error_of_a_choice_is_classed(server):
    """What the provider behind it reports ends the reply as an error of its kind."""
    error = (
        b'"finish_reason":"error","error":{"code":503,"message":"Overloaded"},'
        b'"native_finish_reason":"completed"'
    )
    body = recorded("openrouter").replace(
        b'"finish_reason":"tool_calls","native_finish_reason":"completed"', error
    )

    reply = await ask_route(server, body)

    assert reply.diagnostics[0]["details"]["kind"] == "overloaded"
    assert "Overloaded" in reply.error_message
