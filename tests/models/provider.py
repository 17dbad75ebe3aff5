"""What the tests of real models share: one request to the server on loopback."""

from __future__ import annotations

import json
from dataclasses import dataclass

import anyio
from pi_agent_kernel.messages import (
    UserMessage,
)
from pi_agent_kernel.models.pydantic_ai import provider_stream_fn
from pi_agent_kernel.request import Model, StreamOptions, TranscriptContext
from server import Reply, recorded

LIMIT = 15  # seconds for what must end soon on any machine; importing the provider included
GO = [UserMessage(content="go")]


def model_at(url, **fields):
    """Describe a model behind the server."""
    known = {"id": "test-1", "api": "openai-completions", "provider": "openai-chat"}
    return Model(**{**known, "base_url": url, "input": ("text", "image"), **fields})


@dataclass(frozen=True)
class Format:
    """What a test needs to know of a wire format."""

    provider: str
    #: What the names of its streams begin with; chat completions came first and have none.
    prefix: str
    #: Of the environment variables that error texts name.
    key_variable: str
    url_variable: str
    content_type: str = "text/event-stream; charset=utf-8"
    #: Whether its SDK runs on trio.
    trio: bool = True


FORMATS = {
    "anthropic-messages": Format(
        "anthropic", "anthropic_", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
    ),
    "openai-responses": Format("openai", "responses_", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "openai-completions": Format("openai-chat", "", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "google-generative-ai": Format("google", "google_", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    "bedrock-converse-stream": Format(
        "bedrock",
        "bedrock_",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        "application/vnd.amazon.eventstream",
    ),
    "mistral-conversations": Format(
        "mistral", "mistral_", "MISTRAL_API_KEY", "MISTRAL_BASE_URL", trio=False
    ),
    "groq-completions": Format("groq", "groq_", "GROQ_API_KEY", "GROQ_BASE_URL"),
}


def model_of(api, url):
    """Describe a model of a wire format behind the server."""
    return model_at(url, api=api, provider=FORMATS[api].provider)


def stream_of(api, name, **how):
    """Return a stream written by hand in a wire format."""
    known = FORMATS[api]
    return Reply(recorded(known.prefix + name), content_type=known.content_type, **how)


async def ask_format(api, url, messages=GO, **options):
    """Return the events of one request in a wire format."""
    options = {"api_key": "k-secret-1", **options}
    return await play(url, messages, model=model_of(api, url), **options)


async def play(url, messages=GO, *, env=None, idle_timeout=LIMIT, model=None, **options):
    """Return the events of one request; it is made once, unless `max_retries` says otherwise."""
    options.setdefault("max_retries", 0)
    stream = provider_stream_fn(env=env or {}, idle_timeout=idle_timeout)(
        model or model_at(url), TranscriptContext(messages=messages), StreamOptions(**options)
    )
    with anyio.fail_after(LIMIT):
        return [event async for event in stream]


async def ask(url, messages=GO, **options):
    """Return the final message of one request."""
    return (await play(url, messages, **options))[-1].message


def types(events):
    """Return the kinds of events, runs of deltas as one."""
    kinds = [event.type for event in events]
    return [kind for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1]]


def in_pieces(name, piece):
    """Return a stream written by hand, to be sent in small pieces."""
    return Reply(recorded(name), piece=piece)


def failure(status, message="No luck", **headers):
    """Return an error reply as OpenAI words it."""
    body = json.dumps({"error": {"message": message, "type": "x", "code": None}}).encode()
    return Reply(body, status=status, content_type="application/json", headers=headers)
