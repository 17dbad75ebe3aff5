"""How replies end: good reasons, bad ones, unknown ones, and refusals in words."""

from __future__ import annotations

import pytest
from frames import frames
from pi_agent_kernel import Agent
from pi_agent_kernel.models.pydantic_ai import provider_stream_fn
from pi_agent_kernel.models.retry_policy import RetryPolicy
from pi_agent_kernel.models.transient import is_retryable_assistant_error
from protocol import check_protocol
from provider import FORMATS, ask_format, model_of, stream_of
from server import STREAMS, Reply, recorded

# On trio the SDKs leave their inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|groq|google|httpx|httpcore).*:ResourceWarning",
    "ignore:.* is not a valid FinishReason",
)
#: A stream of text in each format, and the reason it ends with.
ENDS = {
    "anthropic-messages": ("refusal", "refusal"),
    "openai-completions": ("refusal", "content_filter"),
    "google-generative-ai": ("length", "MAX_TOKENS"),
    "mistral-conversations": ("length", "length"),
    "groq-completions": ("length", "length"),
}
CHAT_STOPS = ["stop", "eos", "eos_token", "end", "end_turn", "stop_sequence"]
WORDS = ["openai-completions", "openai-responses", "google-generative-ai"]


def ending(api, reason):
    """Return a reply with some text that ends for a reason."""
    known = FORMATS[api]
    name, given = ENDS[api]
    body = recorded(known.prefix + name)
    changed = body.replace(f'"{given}"'.encode(), f'"{reason}"'.encode())
    assert changed != body
    return Reply(changed, content_type=known.content_type)


async def read(server, api, reason, backend):
    """Return the message of a reply that ended for a reason."""
    if backend == "trio" and not FORMATS[api].trio:
        pytest.skip("this format's SDK needs asyncio")
    server.play(ending(api, reason))
    return check_protocol(await ask_format(api, server.url))


@pytest.mark.parametrize("api", WORDS)
async def test_a_refusal_in_words_is_told(server, api):
    """Words of refusal end in an error that repeats them, asked for once and not to be retried."""
    server.play(stream_of(api, "refusal_words"))

    message = check_protocol(await ask_format(api, server.url, max_retries=2))

    assert len(server.requests) == 1
    assert message.diagnostics[0]["details"] == {"kind": "refused"}
    assert "I cannot help with that. Rephrase the request." in message.error_message
    assert not is_retryable_assistant_error(message)


@pytest.mark.parametrize("api", WORDS)
async def test_an_agent_asks_once_for_what_is_refused(server, api):
    """An agent that may retry pays for one refusal only."""
    server.play(stream_of(api, "refusal_words"))
    agent = Agent(
        stream_fn=provider_stream_fn(env={}),
        model=model_of(api, server.url),
        get_api_key=lambda _: "k-secret-1",
        retry=RetryPolicy(max_retries=2),
    )

    await agent.prompt("go")

    assert len(server.requests) == 1
    assert "I cannot help with that" in agent.state.error_message


@pytest.mark.parametrize(
    ("api", "reason"),
    [
        *[("openai-completions", reason) for reason in CHAT_STOPS],
        ("anthropic-messages", "pause_turn"),
        ("google-generative-ai", "STOP"),
    ],
)
async def test_good_reasons_are_known(server, api, reason, anyio_backend_name):
    """Every word by which servers say that a reply is whole is a success."""
    message = await read(server, api, reason, anyio_backend_name)

    assert (message.stop_reason, message.error_message) == ("stop", None)
    assert message.text


@pytest.mark.parametrize(
    ("api", "reason", "kind"),
    [
        ("openai-completions", "insufficient_system_resource", "overloaded"),
        ("openai-completions", "network_error", "server"),
        ("openai-completions", "abort", "server"),
        ("openai-completions", "sensitive", "refused"),
        ("openai-completions", "brand_new", "unexpected"),
        ("anthropic-messages", "brand_new", "unexpected"),
        ("google-generative-ai", "OTHER", "unexpected"),
        ("google-generative-ai", "BRAND_NEW", "unexpected"),
        ("google-generative-ai", "MALFORMED_FUNCTION_CALL", "server"),
        ("google-generative-ai", "MODEL_ARMOR", "refused"),
        ("mistral-conversations", "brand_new", "unexpected"),
        ("groq-completions", "brand_new", "unexpected"),
    ],
)
async def test_other_reasons_are_errors_that_name_them(
    server, api, reason, kind, anyio_backend_name
):
    """A bad or an unknown reason is no success: it is named, and what came is kept."""
    message = await read(server, api, reason, anyio_backend_name)

    assert message.stop_reason == "error"
    assert message.diagnostics[0]["details"] == {"kind": kind}
    assert kind == "refused" or f"({reason})" in message.error_message
    assert message.raw_stop_reason == reason
    assert message.text


async def test_an_unknown_reason_of_bedrock_is_an_error(server):
    """Bedrock's frames are judged as the others' events are."""
    known = FORMATS["bedrock-converse-stream"]
    lines = (STREAMS / "bedrock_length.jsonl").read_text(encoding="utf-8")
    body = frames(lines.replace("max_tokens", "brand_new"))
    server.play(Reply(body, content_type=known.content_type))

    message = check_protocol(await ask_format("bedrock-converse-stream", server.url))

    assert "(brand_new)" in message.error_message
    assert message.text


@pytest.mark.parametrize("reason", ["max_messages", "brand_new"])
async def test_reasons_of_incomplete_responses(server, reason):
    """A limit of the Responses format is a limit; what is no known reason is an error."""
    body = recorded("responses_length").replace(b'"max_output_tokens"', f'"{reason}"'.encode())
    server.play(Reply(body, content_type=FORMATS["openai-responses"].content_type))

    message = check_protocol(await ask_format("openai-responses", server.url))

    assert message.stop_reason == ("length" if reason == "max_messages" else "error")
    assert message.text


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", "server"),
        ("rate_limit_exceeded", "rate_limit"),
        ("invalid_prompt", "invalid_request"),
        ("data_residency_mismatch", "invalid_request"),
        ("bio_policy", "refused"),
        ("misalignment_policy_violation", "refused"),
        ("vector_store_timeout", "timeout"),
        ("invalid_image", "invalid_request"),
        ("invalid_image_format", "invalid_request"),
        ("invalid_base64_image", "invalid_request"),
        ("invalid_image_url", "invalid_request"),
        ("image_too_large", "invalid_request"),
        ("image_too_small", "invalid_request"),
        ("image_parse_error", "invalid_request"),
        ("image_content_policy_violation", "refused"),
        ("invalid_image_mode", "invalid_request"),
        ("image_file_too_large", "invalid_request"),
        ("unsupported_image_media_type", "invalid_request"),
        ("empty_image_file", "invalid_request"),
        ("failed_to_download_image", "invalid_request"),
        ("image_file_not_found", "invalid_request"),
    ],
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_code_of_a_failed_response_is_classed(server, code, kind, anyio_backend):
    """The documented codes of OpenAI's failed responses have a class, whatever the message says."""
    body = recorded("responses_error").replace(b'"server_error"', f'"{code}"'.encode())
    body = body.replace(b"The model crashed", b"Timeout, no such model found")
    server.play(Reply(body, content_type=FORMATS["openai-responses"].content_type))

    message = check_protocol(await ask_format("openai-responses", server.url))

    assert message.diagnostics[0]["details"]["kind"] == kind
    assert "no such model found" in message.error_message


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_flagged_prompt_is_refused(server, anyio_backend):
    """A prompt that OpenAI's policy flagged is refused, not merely invalid."""
    said = b"Invalid prompt: your prompt was flagged as potentially violating our usage policy."
    body = recorded("responses_error").replace(b"server_error", b"invalid_prompt")
    server.play(
        Reply(
            body.replace(b"The model crashed", said),
            content_type=FORMATS["openai-responses"].content_type,
        )
    )

    message = check_protocol(await ask_format("openai-responses", server.url))

    assert message.diagnostics[0]["details"]["kind"] == "refused"
