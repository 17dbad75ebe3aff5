from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from conversation import conversation
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.request import Model
from provider import ask
from server import Reply

BODIES = Path(__file__).parent / "bodies"
AWS = {
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}
REFUSED = Reply(b'{"message": "seen"}', status=400, content_type="application/json")


@dataclass
class Target:
    """One provider and what of its own is in the transcript."""

    provider: str
    model: str
    system: str
    own_server: bool = True
    thinking: dict | None = field(default_factory=lambda: {"signature": "b3du"})
    redacted: dict = field(default_factory=dict)
    call_signature: str | None = None
    options: dict = field(default_factory=dict)
    key: str | None = "key"

    @property
    def api(self):
        return PROVIDERS[self.provider].api


TARGETS = {
    "anthropic": Target(
        provider="anthropic",
        model="claude-haiku-4-5",
        system="anthropic",
        redacted={"id": "redacted_thinking", "signature": "hidden"},
        options={"reasoning": "low", "max_tokens": 8000, "temperature": 0.5},
    ),
    "anthropic_in_place": Target(
        provider="anthropic",
        model="claude-opus-4-8",
        system="anthropic",
        redacted={"id": "redacted_thinking", "signature": "hidden"},
        options={"reasoning": "high", "metadata": {"user_id": "u-1"}},
    ),
    "openai_responses": Target(
        provider="openai",
        model="gpt-5-mini",
        system="openai",
        thinking={"id": "rs_1", "signature": "b3du"},
        options={"reasoning": "high", "session_id": "s-1"},
    ),
    "openai_chat": Target(
        provider="openai-chat",
        model="gpt-4o",
        system="openai",
        thinking=None,  # never shown there
        options={"temperature": 0.5, "session_id": "s-1", "max_tokens": 900},
    ),
    "compatible": Target(
        provider="openai-chat",
        model="test-1",
        system="openai-chat",
        own_server=False,
        thinking={"id": "reasoning_content"},
        options={"temperature": 0.5, "session_id": "s-1", "max_tokens": 900},
    ),
    "google": Target(
        provider="google",
        model="gemini-3-pro-preview",
        system="google",
        call_signature='{"pydantic_ai":1,"provider":"google","details":'
        '{"thought_signature":"b3du"}}',
        options={"reasoning": "low", "temperature": 0.5},
    ),
    "bedrock": Target(
        provider="bedrock",
        model="us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        system="bedrock",
        own_server=False,  # its address comes from the region
        redacted={"id": "redacted_content", "signature": "hidden"},
        options={"reasoning": "medium", "max_tokens": 6000},
        key=None,  # those of `env` sign the request
    ),
    "mistral": Target(
        provider="mistral",
        model="mistral-medium-latest",
        system="mistral",
        thinking={},
        options={"reasoning": "high", "temperature": 0.5},
    ),
    "groq": Target(
        provider="groq",
        model="openai/gpt-oss-120b",
        system="groq",
        thinking={"id": "reasoning"},
        options={"reasoning": "low", "temperature": 0.5},
    ),
}


async def body_of(target, server, monkeypatch):
    """Return what the server was sent for the conversation."""
    if target.own_server:
        here = msgspec.structs.replace(PROVIDERS[target.provider], base_url=server.url)
        monkeypatch.setitem(PROVIDERS, target.provider, here)
    model = Model(
        id=target.model,
        api=target.api,
        provider=target.provider,
        base_url=server.url,
        input=("text", "image"),
        reasoning="reasoning" in target.options,
    )
    messages = conversation(
        model,
        target.system,
        thinking=target.thinking,
        redacted=target.redacted,
        call_signature=target.call_signature,
    )
    server.play(REFUSED)
    answer = await ask(
        server.url, messages, model=model, api_key=target.key, env=AWS, **target.options
    )
    assert server.requests, answer.error_message
    (request,) = server.requests
    return request.payload


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", TARGETS)
async def test_the_body_is_what_the_provider_documents(name, server, monkeypatch, anyio_backend):
    """The conversation goes out as the file in `bodies` says, for every family."""
    body = await body_of(TARGETS[name], server, monkeypatch)

    assert body == json.loads((BODIES / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TARGETS)
def test_no_body_holds_what_must_stay_here(name):
    """Another model's thoughts and signatures, and replies that were aborted, are in no file."""
    body = (BODIES / f"{name}.json").read_text(encoding="utf-8")

    for secret in ("oreign", "It is", "call_4", "never asked", "\ud800"):
        assert secret not in body
    # The last reply was empty, the one before aborted: what the user said follows directly.
    assert body.index("What time is it?") < body.index("Go on.")
