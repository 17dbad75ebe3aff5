from __future__ import annotations

import anyio
import msgspec
import pytest
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.events import StreamError
from pi_agent_kernel.models.families import Reach
from pi_agent_kernel.models.families.openai_chat import build_model, settings_for
from pi_agent_kernel.models.provider_http import shared_client
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.models.pydantic_ai import provider_stream_fn
from pi_agent_kernel.request import ModelCost, StreamOptions, TranscriptContext
from provider import GO, LIMIT, ask, in_pieces, model_at, play, types
from server import Reply, recorded

# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
)


@pytest.mark.parametrize("piece", [1, 7, 65536])
async def test_text_streams(server, piece):
    """Text arrives in its pieces however the bytes are cut, then usage and stop."""
    server.play(in_pieces("text", piece))

    events = await play(server.url)

    assert types(events) == ["start", "text_start", "text_delta", "text_end", "done"]
    assert [e.delta for e in events if e.type == "text_delta"] == ["He", "llo, ", "wörld 🌍."]
    message = events[-1].message
    assert (message.text, message.stop_reason) == ("Hello, wörld 🌍.", "stop")
    assert (message.usage.input, message.usage.output, message.usage.total_tokens) == (20, 7, 27)
    assert (message.api, message.provider, message.model) == (
        "openai-completions",
        "openai-chat",
        "test-1",
    )
    assert message.response_id == "chatcmpl-1"
    assert message.raw_stop_reason == "stop"


async def test_thinking_comes_before_text(server):
    """Reasoning in the same chunk as text comes first; cached tokens are no plain input."""
    server.play("thinking")

    events = await play(server.url)
    message = events[-1].message

    assert [block.type for block in message.content] == ["thinking", "text"]
    assert (message.content[0].thinking, message.text) == ("Let me see.", "Four.")
    assert types(events)[1:4] == ["thinking_start", "thinking_delta", "thinking_end"]
    usage = message.usage
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (20, 100, 9, 4)
    assert usage.total_tokens == 129


@pytest.mark.parametrize("piece", [1, 100])
async def test_a_tool_call_streams_its_arguments(server, piece):
    """The call grows from an empty object and ends complete."""
    server.play(in_pieces("tool", piece))

    events = await play(server.url)
    partial = [
        dict(event.partial.content[1].arguments)
        for event in events
        if event.type == "toolcall_delta"
    ]

    assert partial == [{"city": "P"}, {"city": "Paris"}]
    assert events[-1].reason == "toolUse"
    (call,) = events[-1].message.tool_calls
    assert (call.id, call.name, call.arguments) == ("call_1", "get_weather", {"city": "Paris"})
    assert call.arguments_error is None


async def test_calls_may_alternate(server):
    """Pieces go to the call of their index; no arguments are an empty object (E02, B13)."""
    server.play("parallel_tools")

    events = await play(server.url)
    calls = events[-1].message.tool_calls

    assert [(call.name, dict(call.arguments)) for call in calls] == [
        ("add", {"a": 1}),
        ("sub", {"b": 2}),
        ("now", {}),
    ]
    ends = [event.tool_call.id for event in events if event.type == "toolcall_end"]
    assert ends == ["call_1", "call_2", "call_3"]


async def test_a_missing_index_is_filled_in_or_refused(server):
    """One call needs no index; a piece that could belong to two ends as an error (E03)."""
    server.play("no_index", "ambiguous_tools")

    clear = await ask(server.url)
    ambiguous = await ask(server.url)

    assert [dict(call.arguments) for call in clear.tool_calls] == [{"a": 1}]
    assert ambiguous.stop_reason == "error"
    assert "which of 2 calls" in ambiguous.error_message


async def test_bad_arguments_are_an_error_of_the_call(server):
    """A call whose arguments are no object is kept with the reason and must not run (TL-06)."""
    server.play("bad_arguments")

    (call,) = (await ask(server.url)).tool_calls

    assert call.arguments == {}
    assert '{"a": nope' in call.arguments_error


async def test_the_providers_reason_wins_over_calls(server):
    """A reply cut by the limit stops for "length" although it holds a call (E20)."""
    server.play("length")

    message = await ask(server.url)

    assert message.stop_reason == "length"
    assert message.tool_calls[0].arguments_error is not None


async def test_empty_chunks_are_ignored(server):
    """Chunks without choices or delta change nothing (E19)."""
    server.play("null_chunk")

    assert (await ask(server.url)).text == "ok"


async def test_usage_without_a_reason_is_complete(server):
    """Some gateways send no finish reason; with usage the reply counts as complete."""
    server.play("no_finish")

    message = await ask(server.url)

    assert (message.text, message.stop_reason) == ("Done", "stop")


@pytest.mark.parametrize("silent", [True, False])
async def test_abort_closes_the_connection(server, silent):
    """Abort ends the stream as aborted and the server sees the client leave, also in silence."""
    server.play(Reply(recorded("cut"), ending="hang", silent=silent))
    controller = AbortController()
    events = []

    async def read():
        stream = provider_stream_fn(env={})(
            model_at(server.url),
            TranscriptContext(messages=GO),
            StreamOptions(signal=controller.signal),
        )
        async for event in stream:
            events.append(event)
            if event.type == "text_delta":
                arrived.set()

    arrived = anyio.Event()
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            if silent:
                assert await anyio.to_thread.run_sync(server.asked.wait, LIMIT)
            else:
                await arrived.wait()
            controller.abort()
        assert await anyio.to_thread.run_sync(server.client_left.wait, LIMIT)

    assert isinstance(events[-1], StreamError)
    assert events[-1].error.stop_reason == "aborted"
    assert events[-1].error.error_message == "Request was aborted"
    assert events[-1].error.text == ("" if silent else "Half an answer")


async def test_cancellation_closes_the_connection(server):
    """Cancelling the reader, as the loop does, closes the connection at once."""
    server.play(Reply(recorded("cut"), ending="hang"))
    with anyio.fail_after(LIMIT):
        with anyio.CancelScope() as scope:
            stream = provider_stream_fn(env={})(
                model_at(server.url), TranscriptContext(messages=GO), StreamOptions()
            )
            async for event in stream:
                if event.type == "text_delta":
                    scope.cancel()
        assert await anyio.to_thread.run_sync(server.client_left.wait, LIMIT)

    assert scope.cancelled_caught


async def test_leaving_early_closes_the_connection(server):
    """Closing the generator in the middle is clean (E27)."""
    server.play(Reply(recorded("text"), ending="hang"))
    stream = provider_stream_fn(env={})(
        model_at(server.url), TranscriptContext(messages=GO), StreamOptions()
    )
    with anyio.fail_after(LIMIT):
        async for event in stream:
            if event.type == "text_delta":
                break
        await stream.aclose()
        assert await anyio.to_thread.run_sync(server.client_left.wait, LIMIT)


async def test_connections_are_reused(server):
    """Requests on one event loop share a client and its connection."""
    server.play("text")

    for _ in range(3):
        await ask(server.url)

    assert (len(server.requests), server.connections) == (3, 1)


async def test_callbacks_see_payload_and_response(server):
    """`on_payload` may replace the body, `on_response` sees status and headers (CO-10)."""
    server.play("text")
    heard = []

    async def on_payload(payload, model):
        heard.append((payload["model"], model.id))
        return {**payload, "model": "replaced"}

    def on_response(response, model):
        heard.append((response["status"], response["headers"]["content-type"]))

    await ask(server.url, on_payload=on_payload, on_response=on_response)

    assert server.requests[0].payload["model"] == "replaced"
    assert heard == [("test-1", "test-1"), (200, "text/event-stream; charset=utf-8")]


async def test_the_key_comes_from_options_then_environment(server):
    """A key in the options wins; a server of one's own needs none."""
    server.play("text")

    await ask(server.url, api_key="from-options", env={"OPENAI_API_KEY": "from-env"})
    await ask(server.url, env={"OPENAI_API_KEY": "from-env"})
    await ask(server.url)
    await ask("", env={"OPENAI_BASE_URL": f"{server.url}/"})
    keys = [request.header("authorization") for request in server.requests]

    assert keys[:2] == ["Bearer from-options", "Bearer from-env"]
    assert len(keys) == 4


async def test_the_price_is_known_or_said_to_be_unknown(server):
    """A model's own rates count; without them and outside the price table cost is unknown."""
    server.play("thinking")

    unknown = (await ask(server.url)).usage.cost
    rates = ModelCost(input=1, output=2, cache_read=0.5)
    known = (await ask(server.url, model=model_at(server.url, cost=rates))).usage.cost

    assert (unknown.total, unknown.extra) == (0, {"costKnown": False})
    assert known.total == pytest.approx((20 * 1 + 9 * 2 + 100 * 0.5) / 1e6)
    assert known.cache_read == pytest.approx(50e-6)


async def test_a_payload_that_is_only_looked_at_is_sent_unchanged(server):
    """`on_payload` that returns nothing changes nothing."""
    server.play("text")

    await ask(server.url, on_payload=lambda payload, _model: payload.update(model="changed"))

    assert server.requests[0].payload["model"] == "test-1"


async def test_the_client_serves_requests_of_others(server):
    """A request outside a model request passes through unobserved."""
    server.play("text")
    client = await shared_client(LIMIT)

    response = await client.post(f"{server.url}/else", json={})

    assert response.status_code == 200


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_openai_itself_gets_its_own_settings(anyio_backend):
    """Only OpenAI's server is sent what others reject: store and the cache key."""
    own = PROVIDERS["openai-chat"].base_url
    reach = Reach(
        name="gpt-5-mini",
        provider="openai-chat",
        base_url=own,
        own_url=own,
        key="k",
        env={},
        client=await shared_client(LIMIT),
        idle_timeout=LIMIT,
    )
    other = msgspec.structs.replace(reach, base_url="http://127.0.0.1/v1")
    model, session = model_at(own), StreamOptions(session_id="s" * 99)

    assert build_model(reach).system == "openai"
    assert settings_for(model, session, reach) == {
        "openai_store": False,
        "openai_prompt_cache_key": "s" * 64,
    }
    assert settings_for(model, StreamOptions(), reach) == {"openai_store": False}
    assert settings_for(model, session, other) == {}
