from __future__ import annotations

import msgspec
import pytest
from pi_agent_kernel import clamp_thinking_level, thinking_budget_for_level
from pi_agent_kernel.models.thinking import THINKING_LEVELS, Thinking
from pi_agent_kernel.request import Model
from provider import ask, model_at
from server import Reply

REASONING = Model(id="m", reasoning=True)
REFUSED = Reply(b'{"message": "seen"}', status=400, content_type="application/json")


def mapped(**levels):
    """Return a reasoning model with that level map."""
    return msgspec.structs.replace(REASONING, thinking_level_map=levels)


@pytest.mark.parametrize(
    ("model", "asked", "given"),
    [
        (REASONING, "off", "off"),
        (REASONING, "high", "high"),
        (REASONING, "xhigh", "high"),
        (REASONING, "max", "high"),
        (Model(id="m"), "high", "off"),
        (Model(id="m"), "off", "off"),
        (mapped(xhigh="x"), "xhigh", "xhigh"),
        (mapped(xhigh="x"), "max", "xhigh"),
        (mapped(max="m"), "xhigh", "max"),
        (mapped(xhigh=None), "xhigh", "high"),
        (mapped(minimal=None, low=None), "minimal", "medium"),
        (mapped(high=None), "high", "medium"),
        (mapped(high=None, xhigh="x"), "high", "xhigh"),
        (mapped(off=None), "off", "minimal"),
        (mapped(**dict.fromkeys(THINKING_LEVELS)), "low", "off"),
    ],
)
def test_a_level_is_fitted_upward_first(model, asked, given):
    """The nearest level a model takes is searched upward, then downward (MD-21)."""
    assert clamp_thinking_level(model, asked) == given


def test_budgets_leave_room_for_the_answer():
    """Levels stand for fixed budgets unless given; 1024 tokens stay for the answer (MD-21)."""
    defaults = {level: thinking_budget_for_level(level) for level in THINKING_LEVELS}

    assert list(defaults.values()) == [0, 1024, 2048, 8192, 16384, 16384, 16384]
    own = {"low": 512, "high": 30_000, "max": 60_000}
    assert thinking_budget_for_level("low", own) == 512
    assert thinking_budget_for_level("medium", own) == 8192
    assert thinking_budget_for_level("xhigh", own) == 30_000
    assert thinking_budget_for_level("max", own) == 60_000
    assert thinking_budget_for_level("high", max_tokens=4096) == 3072
    assert thinking_budget_for_level("high", max_tokens=100) == 0


@pytest.mark.parametrize(
    "call", [lambda level: clamp_thinking_level(REASONING, level), thinking_budget_for_level]
)
def test_an_unknown_level_is_refused(call):
    """A level that does not exist is an error that lists those that do."""
    with pytest.raises(ValueError, match="'hgih' is no thinking level; these are: off, minimal"):
        call("hgih")


def test_a_providers_least_counts():
    """A budget below a provider's least is raised to it, if there is room."""
    assert Thinking(level="low", budget=512).tokens(least=1024) == 1024
    assert Thinking(level="low", budget=512, room=2000).tokens(least=1024) == 1024
    assert Thinking(level="high", budget=9000, room=2000).tokens(least=1024) == 2000
    assert Thinking(level="high", budget=9000, room=1000).tokens(least=1024) == 0


ANTHROPIC = {"api": "anthropic-messages", "provider": "anthropic"}
RESPONSES = {"api": "openai-responses", "provider": "openai"}
GOOGLE = {"api": "google-generative-ai", "provider": "google"}
MISTRAL = {"api": "mistral-conversations", "provider": "mistral"}
GROQ = {"api": "groq-completions", "provider": "groq"}


def thinking_in(payload):
    """Return what a body says about thinking."""
    found = {
        name: payload[name]
        for name in ("thinking", "output_config", "reasoning", "reasoning_effort")
        if name in payload
    }
    config = payload.get("generationConfig", {}).get("thinkingConfig")
    return config or found


@pytest.mark.parametrize(
    ("fields", "options", "sent", "recorded"),
    [
        pytest.param(
            {**ANTHROPIC, "id": "claude-haiku-4-5"},
            {"reasoning": "high", "thinking_budgets": {"high": 3000}, "max_tokens": 9000},
            {"thinking": {"type": "enabled", "budget_tokens": 3000}},
            "high",
            id="a budget of one's own",
        ),
        pytest.param(
            {**ANTHROPIC, "id": "claude-haiku-4-5"},
            {"reasoning": "high", "max_tokens": 1500},
            {},
            None,
            id="no room to think",
        ),
        pytest.param(
            {**ANTHROPIC, "id": "claude-opus-4-8"},
            {"reasoning": "minimal"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            "minimal",
            id="an effort instead of a budget",
        ),
        pytest.param(
            {
                **ANTHROPIC,
                "id": "claude-opus-4-8",
                "reasoning": True,
                "thinking_level_map": {"max": "max"},
            },
            {"reasoning": "xhigh"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
            "max",
            id="the model's own word",
        ),
        pytest.param(
            {**ANTHROPIC, "id": "claude-opus-5", "reasoning": True},
            {},
            {"thinking": {"type": "disabled"}},
            "off",
            id="off where it is on by default",
        ),
        pytest.param(
            {**RESPONSES, "id": "gpt-5"},
            {"reasoning": "minimal"},
            {"reasoning": {"effort": "minimal", "summary": "auto"}},
            "minimal",
            id="effort with a summary",
        ),
        pytest.param(
            {**RESPONSES, "id": "gpt-4o"}, {"reasoning": "high"}, {}, None, id="cannot think"
        ),
        pytest.param(
            {"id": "gpt-5-mini", "reasoning": True, "thinking_level_map": {"off": "none"}},
            {},
            {"reasoning_effort": "none"},
            "none",
            id="off by its own word",
        ),
        pytest.param({"id": "test-1"}, {"reasoning": "high"}, {}, None, id="an unknown model"),
        pytest.param(
            {"id": "test-1", "reasoning": True},
            {"reasoning": "minimal"},
            {"reasoning_effort": "low"},
            "minimal",
            id="an unknown model that is said to reason",
        ),
        pytest.param({"id": "test-1", "reasoning": True}, {}, {}, None, id="an unknown model, off"),
        pytest.param(
            {"id": "glm-5.3", "provider": "zai", "reasoning": True},
            {"reasoning": "high"},
            {},
            None,
            id="a server without efforts",
        ),
        pytest.param(
            {"id": "test-1", "reasoning": True, "thinking_level_map": {"high": "deep"}},
            {"reasoning": "high"},
            {"reasoning_effort": "deep"},
            "deep",
            id="an unknown model with a map",
        ),
        pytest.param(
            {**GOOGLE, "id": "gemini-2.5-flash"},
            {"reasoning": "medium"},
            {"include_thoughts": True, "thinking_budget": 8192},
            "medium",
            id="Gemini by budget",
        ),
        pytest.param(
            {**GOOGLE, "id": "gemini-2.5-flash", "reasoning": True},
            {},
            {"thinking_budget": 0},
            "off",
            id="Gemini off",
        ),
        pytest.param(
            {
                **GOOGLE,
                "id": "gemini-3-pro-preview",
                "reasoning": True,
                "thinking_level_map": {"minimal": "low"},
            },
            {"reasoning": "minimal"},
            {"include_thoughts": True, "thinking_level": "LOW"},
            "low",
            id="Gemini by level",
        ),
        pytest.param(
            {**MISTRAL, "id": "mistral-medium-latest"},
            {"reasoning": "low"},
            {"reasoning_effort": "high"},
            "low",
            id="Mistral has one level",
        ),
        pytest.param(
            {
                **GROQ,
                "id": "openai/gpt-oss-120b",
                "reasoning": True,
                "thinking_level_map": {"max": "high"},
            },
            {"reasoning": "max"},
            {"reasoning_effort": "high"},
            "high",
            id="Groq by its own word",
        ),
    ],
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_thinking_goes_out_in_the_providers_words(
    fields, options, sent, recorded, server, *, anyio_backend
):
    """Each format gets the level as it documents it; the reply records what was sent."""
    server.play(REFUSED)
    model = model_at(server.url, **fields)

    reply = await ask(server.url, model=model, api_key="k", **options)
    (request,) = server.requests

    assert thinking_in(request.payload) == sent
    assert reply.provider_thinking_level == recorded


@pytest.mark.parametrize(
    ("fields", "reasoning", "kept"),
    [
        ({**ANTHROPIC, "id": "claude-haiku-4-5"}, None, True),
        ({**ANTHROPIC, "id": "claude-haiku-4-5"}, "low", False),
        ({**ANTHROPIC, "id": "claude-opus-4-8"}, None, False),
        ({**RESPONSES, "id": "gpt-5"}, None, False),
        ({**RESPONSES, "id": "gpt-5.1"}, None, True),
        ({**RESPONSES, "id": "gpt-5.1"}, "low", False),
        ({"id": "test-1"}, "low", True),
    ],
)
async def test_no_temperature_beside_thinking(fields, reasoning, kept, server):
    """A temperature is left out where the provider would refuse it, without a warning."""
    server.play(REFUSED)
    model = model_at(server.url, **fields)

    await ask(server.url, model=model, api_key="k", temperature=0.5, reasoning=reasoning)

    assert ("temperature" in server.requests[0].payload) is kept


async def test_a_misspelt_level_ends_as_an_error(server):
    """A level that does not exist is the error of the reply; nothing is sent."""
    server.play(REFUSED)

    reply = await ask(server.url, reasoning="hgih")

    assert "'hgih' is no thinking level" in reply.error_message
    assert server.requests == []
