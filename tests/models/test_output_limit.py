from __future__ import annotations

import msgspec
import pytest
from pi_agent_kernel import clamp_max_tokens_to_context
from pi_agent_kernel.messages import (
    AssistantMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    Tool,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.models.prompt_size import estimate_prompt_tokens
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.request import Model
from provider import ask, model_at

# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
)

PLENTY = 10**9


def words(tokens):
    """Return a prompt of that many estimated tokens."""
    prefix = len("user:")
    return [UserMessage(content="x" * (tokens * 4 - prefix))]


@pytest.mark.parametrize(
    ("window", "prompt", "limit"),
    [
        # 4096 is more than 15 percent.
        (200_000, 1000, 200_000 - 1000 - 4096),
        # 15 percent is more than 4096.
        (200_000, 100_000, 200_000 - 100_000 - 15_000),
        (200_000, 27_307, 200_000 - 27_307 - 4097),
        # Less than 32768 left: only 4096 is kept free, and 32768 is the most.
        (200_000, 150_000, 32_768),
        (200_000, 180_000, 200_000 - 180_000 - 4096),
        (8000, 1000, 8000 - 1000 - 4096),
        # Never below 1.
        (8000, 4000, 1),
        (8000, 9000, 1),
    ],
)
def test_the_limit_is_fitted_to_the_window(window, prompt, limit):
    """The prompt and a margin are taken from the window (MD-26)."""
    model = Model(id="m", context_window=window)

    assert estimate_prompt_tokens(words(prompt)) == prompt
    assert clamp_max_tokens_to_context(model, words(prompt), PLENTY) == limit
    assert clamp_max_tokens_to_context(model, words(prompt), 1) == 1


def test_an_unknown_window_fits_everything():
    """Without a known window the limit stays, but is never below 1."""
    assert clamp_max_tokens_to_context(Model(id="m"), words(10**6), 500) == 500
    assert clamp_max_tokens_to_context(Model(id="m"), [], 0) == 1


def test_everything_in_a_prompt_counts():
    """Texts, declarations of tools and results count; an image has one size."""
    small, large = (
        [UserMessage(content=[ImageContent(data="A" * size, mime_type="image/png")])]
        for size in (100, 10**6)
    )
    tool = Tool(name="f", description="x" * 4000)

    assert estimate_prompt_tokens(small) == estimate_prompt_tokens(large) > 1000
    assert estimate_prompt_tokens([SystemMessage(tools_added=[tool])]) > 1000
    assert estimate_prompt_tokens([AssistantMessage(content=[TextContent(text="x" * 400)])]) >= 100
    result = ToolResultMessage(
        tool_call_id="c", tool_name="f", content=[TextContent(text="x" * 400)]
    )
    assert estimate_prompt_tokens([result]) >= 100


async def test_requests_carry_the_fitted_limit(server):
    """A limit that does not fit the window is sent smaller; no limit stays none."""
    server.play("text")
    model = model_at(server.url, context_window=8192)

    await ask(server.url, words(1000), model=model, max_tokens=8000)
    await ask(server.url, words(1000), model=model)
    await ask(server.url, words(1000), max_tokens=8000)
    limits = [
        request.payload.get("max_tokens", request.payload.get("max_completion_tokens"))
        for request in server.requests
    ]

    assert limits == [8192 - 1000 - 4096, None, 8000]


@pytest.mark.parametrize(
    ("provider", "own", "name"),
    [
        ("openai-chat", True, "max_completion_tokens"),
        ("openai-chat", False, "max_tokens"),
        ("ollama", True, "max_tokens"),
        ("lmstudio", True, "max_tokens"),
        ("deepseek", True, "max_tokens"),
        ("openrouter", True, "max_tokens"),
        ("vercel", True, "max_tokens"),
        ("cerebras", True, "max_completion_tokens"),
        ("xai", True, "max_completion_tokens"),
        ("xai", False, "max_tokens"),
    ],
)
async def test_the_limit_has_the_name_the_server_knows(provider, own, name, server, monkeypatch):
    """OpenAI's new name goes to the servers that document it, `max_tokens` to all others."""
    if own:
        here = msgspec.structs.replace(PROVIDERS[provider], base_url=server.url)
        monkeypatch.setitem(PROVIDERS, provider, here)
    server.play("text")
    model = model_at(server.url, provider=provider, id="openai/test-1")

    await ask(server.url, model=model, api_key="k", max_tokens=50)
    (request,) = server.requests

    assert {key: value for key, value in request.payload.items() if "max" in key} == {name: 50}
