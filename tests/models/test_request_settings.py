from __future__ import annotations

import msgspec
import pytest
from pi_agent_kernel.messages import AssistantMessage, ThinkingContent, ToolCall
from pi_agent_kernel.models.families import FAMILIES
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.models.request_settings import merge_headers
from provider import GO, ask, model_at
from server import Reply

REFUSED = Reply(b'{"message": "seen"}', status=400, content_type="application/json")
OPENROUTER = ("http-referer", "x-openrouter-title", "x-openrouter-categories")
#: One model a format.
MODELS = {
    "anthropic": "claude-haiku-4-5",
    "openai": "gpt-4o",
    "openai-chat": "gpt-4o",
    "google": "gemini-2.5-flash",
    "mistral": "mistral-small-latest",
    "groq": "llama-3.3-70b-versatile",
    "bedrock": "us.amazon.nova-pro-v1:0",
}
AWS = {
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}


@pytest.fixture
def asked(server, monkeypatch):
    """Ask a provider, as whose own server the loopback server passes; return what it was sent."""

    async def ask_provider(provider, *, own=True, messages=GO, model=None, **options):
        row = PROVIDERS[provider]
        if own:
            monkeypatch.setitem(
                PROVIDERS, provider, msgspec.structs.replace(row, base_url=server.url)
            )
        server.play(REFUSED)
        fields = {
            "id": MODELS.get(provider, "test-1"),
            "api": row.api,
            "provider": provider,
            **(model or {}),
        }
        reply = await ask(
            server.url,
            messages,
            model=model_at(server.url, **fields),
            api_key=None if provider == "bedrock" else "k",
            env=AWS,
            **options,
        )
        assert server.requests, reply.error_message
        return server.requests[-1]

    return ask_provider


def test_headers_merge_whatever_their_case():
    """A later header wins over an earlier one, None takes it out (MD-14)."""
    provider = {"X-A": "1", "X-B": "1", "X-C": "1"}
    model = {"x-a": "2", "X-D": "2"}
    request = {"X-b": None, "x-d": "3", "X-E": None}

    assert merge_headers(provider, model, None, request) == {"x-a": "2", "X-C": "1", "x-d": "3"}
    assert merge_headers({"X-A": "1"}, {"x-a": None}, {"X-a": "3"}) == {"X-a": "3"}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("provider", MODELS)
async def test_headers_reach_every_provider(provider, asked, anyio_backend):
    """Headers of the model and of the request are sent in every format."""
    own = provider != "bedrock"
    request = await asked(
        provider,
        own=own,
        model={"headers": {"X-One": "model", "X-Two": "model"}},
        headers={"x-one": "request", "X-Two": None},
    )

    assert request.header("x-one") == "request"
    assert request.header("x-two") is None


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("provider", MODELS)
async def test_every_format_sends_without_a_warning(provider, asked, recwarn, anyio_backend):
    """A setting that a format has no place for is left out, not warned about."""
    await asked(
        provider,
        own=provider != "bedrock",
        temperature=0.5,
        max_tokens=99,
        session_id="s",
        reasoning="high",
        headers={"X-A": "1"},
        metadata={"user_id": "u"},
    )

    assert [str(warning.message) for warning in recwarn] == []


async def test_each_format_has_a_model_here():
    """The formats these tests go through are all there are."""
    assert {PROVIDERS[provider].api for provider in MODELS} == set(FAMILIES)


@pytest.mark.parametrize(
    ("provider", "header"),
    [
        ("xai", "x-grok-conv-id"),
        ("fireworks", "x-session-affinity"),
        ("openrouter", "x-session-id"),
    ],
)
async def test_a_session_is_named_where_its_cache_is(provider, header, asked):
    """A provider that finds its cache by a header gets the session, others' servers do not."""
    at_home = await asked(provider, session_id="s-1")
    odd = await asked(provider, session_id="sitzung ü\n")
    without = await asked(provider)

    assert at_home.header(header) == "s-1"
    assert len(odd.header(header)) == 64
    assert without.header(header) is None


async def test_another_server_gets_no_session(asked):
    """The session header is for the provider's own server only."""
    request = await asked("xai", own=False, session_id="s-1")

    assert request.header("x-grok-conv-id") is None
    assert "prompt_cache_key" not in request.payload


@pytest.mark.parametrize(
    ("identity", "headers"),
    [
        (None, ("https://pi.dev", "pi", "cli-agent")),
        ({"version": "1"}, ("https://pi.dev", "pi", "cli-agent")),
        (
            {"attribution": {"name": "Mine", "url": "https://m.example", "categories": ["a", "b"]}},
            ("https://m.example", "Mine", "a,b"),
        ),
        ({"attribution": {"name": "Mine"}}, (None, "Mine", None)),
        ({"attribution": None}, (None, None, None)),
    ],
)
async def test_openrouter_is_told_who_asks(identity, headers, asked):
    """The default attribution is sent unless the caller's replaces it or is None (CO-14)."""
    request = await asked("openrouter", identity=identity)

    assert tuple(map(request.header, OPENROUTER)) == headers


async def test_others_are_not_told_who_asks(asked):
    """Attribution goes only to the provider that documents it, and a user agent if given."""
    own = await asked("openai")
    elsewhere = await asked("openrouter", own=False, identity={"userAgent": "mine/1"})

    assert tuple(map(own.header, OPENROUTER)) == (None, None, None)
    assert tuple(map(elsewhere.header, OPENROUTER)) == (None, None, None)
    assert elsewhere.header("user-agent") == "mine/1"


async def test_a_header_of_the_caller_wins_over_ours(asked):
    """Headers the provider's row would add can be replaced and taken out (MD-14)."""
    request = await asked(
        "openrouter", headers={"http-referer": "https://m.example", "X-OpenRouter-Title": None}
    )

    assert tuple(map(request.header, OPENROUTER)) == ("https://m.example", None, "cli-agent")


async def test_the_user_is_named_to_anthropic(asked):
    """`metadata["user_id"]` is Anthropic's; anything else in it stays here."""
    named = await asked("anthropic", metadata={"user_id": "u-1", "team": "x"})
    wrong = await asked("anthropic", metadata={"user_id": 7})

    assert named.payload["metadata"] == {"user_id": "u-1"}
    assert "metadata" not in wrong.payload


async def test_a_format_that_needs_a_limit_gets_the_models(asked):
    """Anthropic wants a limit: the model's own, fitted to its window, unless one is given."""
    known = {"max_tokens": 5000}
    own = await asked("anthropic", model=known)
    fitted = await asked("anthropic", model={**known, "context_window": 6000})
    given = await asked("anthropic", model=known, max_tokens=99)
    other = await asked("openai-chat", model=known)

    assert own.payload["max_tokens"] == 5000
    assert fitted.payload["max_tokens"] < 2000
    assert given.payload["max_tokens"] == 99
    assert not {"max_tokens", "max_completion_tokens"} & other.payload.keys()


async def test_reasoning_has_a_field_where_it_must(asked):
    """DeepSeek refuses a call of another model without the field it thinks in."""
    call = ToolCall(id="c1", name="f")
    messages = [*GO, AssistantMessage(content=[ThinkingContent(thinking="Foreign."), call])]

    request = await asked(
        "deepseek",
        messages=messages,
        model={"id": "deepseek-v4-pro", "reasoning": True},
        reasoning="high",
    )

    assert request.payload["messages"][1]["reasoning_content"] == ""
    assert request.payload["reasoning_effort"] == "high"


async def test_deepseek_stops_thinking_by_its_own_field(asked):
    """Its efforts begin at "low"; off is a field of its own there."""
    request = await asked("deepseek", model={"id": "deepseek-v4-pro", "reasoning": True})

    assert request.payload["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in request.payload
