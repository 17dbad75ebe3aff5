from __future__ import annotations

import pytest
from pi_agent_kernel.messages import TextContent, ThinkingContent, ToolCall
from pi_agent_kernel.models.pydantic_history import Places, to_history
from protocol import check_protocol
from provider import FORMATS, ask, ask_format, model_of, stream_of

# On trio the SDKs leave their inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|groq|google|httpx|httpcore).*:ResourceWarning"
)
#: Every format that has streams of its own, and how it counts their tokens: input, output, cache
#: read and written, reasoning.
USAGE = {
    "anthropic-messages": (20, 12, 100, 5, None),
    "openai-responses": (20, 12, 100, 0, 4),
    "google-generative-ai": (20, 12, 100, 0, 4),
    "bedrock-converse-stream": (20, 12, 100, 5, None),
    "mistral-conversations": (20, 12, 0, 0, None),
    "groq-completions": (20, 12, 0, 0, None),
}
SIGNED = {"anthropic-messages", "openai-responses", "bedrock-converse-stream"}


@pytest.fixture(params=USAGE)
def api(request, anyio_backend_name):
    """Each format, where its SDK runs."""
    if anyio_backend_name == "trio" and not FORMATS[request.param].trio:
        pytest.skip("this format's SDK needs asyncio")
    return request.param


async def read(server, api, name, piece=100):
    """Return the checked message of a stream written by hand."""
    server.play(stream_of(api, name, piece=piece))
    return check_protocol(await ask_format(api, server.url))


def told(message):
    """Return what a message holds, in short."""
    short = []
    for block in message.content:
        match block:
            case TextContent():
                short.append(block.text)
            case ThinkingContent():
                short.append(("thinking", block.thinking))
            case ToolCall():
                short.append((block.name, dict(block.arguments)))
    return short


@pytest.mark.parametrize("piece", [1, 7, 65536])
async def test_text_streams(server, api, piece):
    """Text arrives whole however the bytes are cut, with its usage (MD-02)."""
    message = await read(server, api, "text", piece)

    assert told(message) == ["Hello, wörld 🌍."]
    assert message.stop_reason == "stop"
    usage = message.usage
    assert (
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write,
        usage.reasoning,
    ) == USAGE[api]
    assert message.api == api


async def test_thoughts_come_before_the_text_and_keep_their_signature(server, api):
    """Thinking is a block of its own; what the provider signed goes back to it (MS-06)."""
    message = await read(server, api, "thinking")

    assert told(message) == [("thinking", "Let me see."), "Four."]
    signature = message.content[0].thinking_signature
    if api in SIGNED:
        assert "c2ln" in signature
        (replayed,) = to_history(
            [message], model="test-1", system=FORMATS[api].provider, places=Places()
        )
        assert replayed.parts[0].signature == "c2ln"


async def test_a_text_and_a_call(server, api):
    """A call keeps its id and its arguments; its presence is the reason to stop."""
    message = await read(server, api, "tool", 7)

    assert told(message) == ["Looking.", ("get_weather", {"city": "Paris"})]
    assert message.stop_reason == "toolUse"
    assert message.tool_calls[0].arguments_error is None


async def test_parallel_calls(server, api):
    """Calls stay apart; one without arguments has an empty object (B13)."""
    message = await read(server, api, "parallel")

    assert told(message) == [("add", {"a": 1}), ("now", {})]
    assert len({call.id for call in message.tool_calls}) == 2


async def test_the_limit_is_a_reason_of_its_own(server, api):
    """A reply that the output limit cut stops for "length" (E20)."""
    message = await read(server, api, "length")

    assert message.stop_reason == "length"
    assert message.error_message is None


async def test_a_cut_is_an_error_that_keeps_what_came(server, api):
    """A clean end before the last event is an error, to be tried again (E05, trap 2)."""
    message = await read(server, api, "cut")

    assert told(message) == ["Half an answer"]
    assert message.stop_reason == "error"
    assert message.diagnostics[0]["details"] == {"kind": "incomplete"}
    assert "ended without a stop reason" in message.error_message


async def test_an_error_inside_the_stream_is_classed(server, api):
    """What the provider reports among the events has a kind, its words and a remedy."""
    message = await read(server, api, "error")

    assert told(message) == ["Well, "]
    kind, said = {
        "anthropic-messages": ("overloaded", "Overloaded"),
        "openai-responses": ("server", "The model crashed"),
        "google-generative-ai": ("overloaded", "The model is overloaded"),
        "bedrock-converse-stream": ("rate_limit", "Too many tokens, please wait"),
        "mistral-conversations": ("overloaded", "Service unavailable"),
        "groq-completions": ("rate_limit", "Rate limit reached"),
    }[api]
    assert message.diagnostics[0]["details"]["kind"] == kind
    assert said in message.error_message
    assert "HTTP" not in message.error_message, "the status was 200"
    assert "ry again" in message.error_message


@pytest.mark.parametrize(
    "api",
    ["anthropic-messages", "openai-responses", "google-generative-ai", "bedrock-converse-stream"],
)
async def test_a_refusal_is_an_error(server, api):
    """A reply that a filter stopped is an error that says so (models.md 1.3)."""
    message = await read(server, api, "refusal")

    assert told(message) == ["I"]
    assert message.diagnostics[0]["details"]["kind"] == "refused"
    assert "content filter" in message.error_message


@pytest.mark.parametrize(
    ("api", "blocks"),
    [("anthropic-messages", 2), ("openai-responses", 1), ("bedrock-converse-stream", 1)],
)
async def test_hidden_thoughts_are_blocks(server, api, blocks):
    """Thoughts of which only a cipher is told are kept, each in its block, for the next request."""
    message = await read(server, api, "redacted")

    hidden = message.content[:blocks]
    assert told(message) == [*[("thinking", "")] * blocks, "Four."]
    cipher = "hidden" if api == "bedrock-converse-stream" else "aGlkZGVu"  # there it is bytes
    assert all(cipher in block.thinking_signature for block in hidden)
    assert [block.redacted for block in hidden] == [
        None if api == "openai-responses" else True
    ] * blocks


async def test_a_reply_without_its_last_event_is_cut(server):
    """Anthropic's stop reason comes before the end: alone it does not make a reply complete."""
    message = await read(server, "anthropic-messages", "cut_late")

    assert told(message) == ["All of it"]
    assert message.diagnostics[0]["details"]["kind"] == "incomplete"
    assert message.usage.output == 12


async def test_tools_of_the_server_are_no_blocks(server):
    """A search that the provider does itself is left out; the text after it is not."""
    assert told(await read(server, "anthropic-messages", "server_tool")) == ["Found."]


async def test_raw_thoughts_stream(server):
    """Thoughts that open models send aside are thinking, piece by piece (trap 11)."""
    server.play(stream_of("openai-responses", "raw_thinking"))

    events = await ask_format("openai-responses", server.url)

    assert told(check_protocol(events)) == [("thinking", "Let me see."), "Four."]
    deltas = [event.delta for event in events if event.type == "thinking_delta"]
    assert deltas == ["Let me ", "see."]


async def test_calls_of_other_kinds_are_left_out(server):
    """A call of a kind of tool that was never offered neither shows nor warns."""
    assert told(await read(server, "openai-responses", "custom_tool")) == ["Done."]


async def test_an_error_event_of_responses(server):
    """An event "error" ends the reply as the failed response does."""
    message = await read(server, "openai-responses", "error_event")

    assert message.diagnostics[0]["details"] == {"kind": "rate_limit", "status": 429}


async def test_arguments_value_by_value(server):
    """Gemini's streamed arguments are put together by their paths (trap 15)."""
    message = await read(server, "google-generative-ai", "streamed_call")

    arguments = {"city": "Paris", "days": [None, {"hours": 2}], "so far": True}
    assert told(message) == [("plan", arguments)]


async def test_a_call_the_server_rejected_is_an_error(server):
    """Groq ends a reply because of its call; that call is not run (trap 14)."""
    message = await read(server, "groq-completions", "tool_failed")

    assert not message.tool_calls
    assert message.diagnostics[0]["details"] == {"kind": "invalid_request", "status": 400}
    assert "'add'" in message.error_message


@pytest.mark.parametrize(
    ("name", "details"),
    [
        ("gateway_error", {"kind": "server", "status": 502}),
        ("gateway_limit", {"kind": "rate_limit", "status": 429}),
        ("choice_error", {"kind": "overloaded", "status": 503}),
        ("error_object", {"kind": "context_overflow", "status": 400}),
        ("running_usage_cut", {"kind": "incomplete"}),
    ],
)
async def test_gateways_tell_failures_in_their_own_ways(server, name, details):
    """An error object in a stream of chunks is classed, wherever it stands."""
    message = await read(server, "openai-completions", name)

    assert message.stop_reason == "error"
    assert message.diagnostics[0]["details"] == details
    assert "HTTP" not in message.error_message, "no such status was sent"
    assert message.text in ("Well, ", "Half an answer")


@pytest.mark.parametrize(
    ("name", "text", "output"),
    [
        ("running_usage", "Done", 3),
        ("running_usage_no_finish", "Done", 3),
        ("no_finish", "Done", 7),
    ],
)
async def test_usage_so_far_is_not_added_up(server, name, text, output):
    """Of usage that comes with every chunk the last counts; the end mark may be the only end."""
    message = await read(server, "openai-completions", name)

    assert (message.text, message.usage.output, message.stop_reason) == (text, output, "stop")


async def test_a_name_told_again_is_one_name(server):
    """A server that repeats the name with every piece of a call means one call of that name."""
    assert told(await read(server, "openai-completions", "repeated_name")) == [("add", {"a": 1})]


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_format_that_needs_asyncio_says_so(server, anyio_backend):
    """On another loop the request ends as an error that says what to do."""
    message = await ask(server.url, model=model_of("mistral-conversations", server.url))

    assert "needs asyncio" in message.error_message
    assert message.diagnostics[0]["details"]["kind"] == "setup"
    assert not server.requests
