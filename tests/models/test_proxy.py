from __future__ import annotations

import gzip
import json
import tracemalloc
from functools import partial

import anyio
import pytest
from pi_agent_kernel import Agent, AgentTool, proxy_stream_fn, stream_proxy
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.messages import UserMessage
from pi_agent_kernel.models.proxy import proxied_model
from pi_agent_kernel.models.proxy_protocol import KEEP_ALIVE, encode_proxy_event
from pi_agent_kernel.request import Model, StreamOptions, TranscriptContext
from pi_agent_kernel.response import ResponseBuilder
from server import Reply, unused_url

# On trio the HTTP client leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")

LIMIT = 15  # seconds for what must end soon on any machine
MODEL = Model(id="m-1", provider="anthropic", api="anthropic-messages")
GO = TranscriptContext(messages=[UserMessage(content="go")])
TOKEN = "a-secret-token"


def answer(text=None, call=None):
    """Encode a response of text in two pieces, or of a tool call."""
    builder = ResponseBuilder(api=MODEL.api, provider=MODEL.provider, model=MODEL.id)
    events = [builder.start()]
    if call is None:
        events += [builder.text_start(), builder.text_delta(text[:2], 0)]
        events += [builder.text_delta(text[2:], 0), builder.text_end(0)]
    else:
        events += [builder.toolcall_start("c1", call), builder.toolcall_delta('{"at":', 0)]
        events += [builder.toolcall_delta(" 3}", 0), builder.toolcall_end(0)]
    events.append(builder.done())
    return b"".join(map(encode_proxy_event, events))


def broken_off():
    """Encode the beginning of a response."""
    return answer("Hello")[: answer("Hello").index(b'data: {"type":"text_end"')]


async def play(url, options=None, *, idle_timeout=LIMIT, **opts):
    """Return the events of one request."""
    stream = stream_proxy(
        MODEL, GO, options, auth_token=TOKEN, proxy_url=url, idle_timeout=idle_timeout, **opts
    )
    with anyio.fail_after(LIMIT):
        return [event async for event in stream]


def failed(event):
    """Check that an event is the error of a failed request; give its text."""
    assert (event.type, event.reason, event.message.stop_reason) == ("error", "error", "error")
    assert TOKEN not in event.message.error_message
    return event.message.error_message


@pytest.mark.parametrize("piece", [1, 7, 65536])
async def test_a_response_streams(server, piece):
    """The events arrive as the proxy sent them however the bytes are cut."""
    server.play(Reply(KEEP_ALIVE + answer("Hëllo 🌍"), piece=piece))

    events = await play(server.url)

    assert [event.type for event in events] == [
        *("start", "text_start", "text_delta", "text_delta", "text_end", "done"),
    ]
    assert events[2].partial.text == "Hë"
    assert events[-1].message.text == "Hëllo 🌍"


async def test_the_request_is_the_protocols(server):
    """It is a POST to /api/stream with the bearer token and model, context and options."""
    server.play(Reply(answer("Hello")))
    bound = partial(stream_proxy, auth_token=TOKEN, proxy_url=server.url + "/", cache_retention="x")

    options = StreamOptions(temperature=0.5, api_key="never", on_payload=print)
    async for _ in bound(MODEL, GO, options):
        pass

    [request] = server.requests
    assert request.path == "/v1/api/stream"
    assert request.header("authorization") == f"Bearer {TOKEN}"
    assert request.header("content-type") == "application/json"
    assert request.payload.keys() == {"model", "context", "options"}
    assert request.payload["options"] == {"temperature": 0.5, "cacheRetention": "x"}
    assert request.payload["context"]["messages"][0]["content"] == "go"
    assert "never" not in json.dumps(request.payload)


async def test_single_options_win(server):
    """Options given by name count before those of the options object."""
    server.play(Reply(answer("Hello")))

    await play(server.url, StreamOptions(temperature=0.5, max_tokens=7), temperature=1.0)

    assert server.requests[0].payload["options"] == {"temperature": 1.0, "maxTokens": 7}


def test_an_unknown_option_is_refused():
    """A misspelt option is an error at once that names those there are."""
    with pytest.raises(TypeError, match=r"'tempo'.*temperature"):
        stream_proxy(MODEL, GO, auth_token=TOKEN, proxy_url="http://127.0.0.1:1", tempo=1)


async def test_an_agent_runs_through_a_proxy(server):
    """A tool call that came through a proxy runs, and its result goes back through it."""
    server.play(Reply(answer(call="look")), Reply(answer("Seen.")))
    agent = Agent(
        stream_fn=proxy_stream_fn(auth_token=TOKEN, proxy_url=server.url),
        model=MODEL,
        tools=[AgentTool(name="look", execute=lambda _id, params, *_: f"at {params['at']}")],
    )

    with anyio.fail_after(LIMIT):
        await agent.prompt("go")

    assert agent.state.messages[-1].text == "Seen."
    sent = server.requests[1].payload["context"]["messages"]
    assert [message["role"] for message in sent[-2:]] == ["assistant", "toolResult"]
    assert sent[-1]["content"][0]["text"] == "at 3"


@pytest.mark.parametrize(
    ("status", "body", "told", "kind"),
    [
        (403, b'{"error": "Not allowed here."}', "HTTP 403): Not allowed here.", "auth"),
        (429, b'{"error": {"message": "Slowly"}}', "Slowly", "rate_limit"),
        (502, b"<html>", "502 Bad Gateway", "server"),
        (503, b"", "503 Service Unavailable", "overloaded"),
        (413, b'{"error": 3}', "413", "invalid_request"),
        (302, b"", "302 Found", "invalid_request"),
        (500, b"x" * 200_000, "500", "server"),
        (400, b'{"error": "' + TOKEN.encode() + b'"}', "…", "invalid_request"),
    ],
)
async def test_a_refusal_says_why(server, status, body, told, kind):
    """The JSON field `error` is the reason, else status and phrase; the kind is for a retry."""
    server.play(Reply(body, status=status, headers={"retry-after": "7"}))

    [event] = await play(server.url)

    assert told in failed(event)
    details = event.message.diagnostics[0]["details"]
    assert (details["kind"], details["status"], details["retryAfterMs"]) == (kind, status, 7000)


@pytest.mark.parametrize(
    ("wait", "milliseconds"),
    [("nan", None), ("inf", None), ("1e400", None), ("-5", None), ("soon", None), ("0.5", 500)],
)
async def test_a_wait_that_is_none_is_left_out(server, wait, milliseconds):
    """Retry-After counts only if it is a possible number of seconds (MD-23, PX-06)."""
    server.play(Reply(b'{"error": "Slowly"}', status=429, headers={"retry-after": wait}))

    [event] = await play(server.url)

    assert "Slowly" in failed(event)
    assert event.message.diagnostics[0]["details"].get("retryAfterMs") == milliseconds


async def test_a_token_is_taken_out_before_a_text_is_cut(server):
    """Not even the beginning of the token remains where a long refusal ends."""
    text = "x" * 990 + TOKEN
    server.play(Reply(json.dumps({"error": text}).encode(), status=403))

    [event] = await play(server.url)

    assert TOKEN[:5] not in failed(event)
    assert "x…" in failed(event)


@pytest.mark.parametrize("token", ["a-secret-token\n", "a-secret\r\nx-evil: 1", "a-secrét-token"])
async def test_a_token_no_header_can_carry_is_refused(server, token):
    """Nothing is sent, and the error names the variable, not the token."""
    server.play(Reply(answer("Hello")))

    stream = stream_proxy(MODEL, GO, auth_token=token, proxy_url=server.url)
    [event] = [event async for event in stream]

    assert "PI_NOTEBOOK_PROXY_TOKEN" in failed(event)
    assert "secr" not in event.message.error_message
    assert server.requests == []


async def test_a_packed_refusal_is_unpacked_as_far_as_needed(server):
    """A small body that unpacks to a lot is read as far as a refusal goes, and no further."""
    packed = {"content-encoding": "gzip"}
    server.play(
        Reply(gzip.compress(b'{"error": "Not today."}'), status=403, headers=packed),
        Reply(gzip.compress(bytes(200_000_000), 1), status=500, headers=packed),
        Reply(b"not packed", status=500, headers=packed),
    )

    said = [failed((await play(server.url))[0])]
    tracemalloc.start()
    said += [failed((await play(server.url))[0]) for _ in range(2)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert "Not today." in said[0]
    assert "500" in said[1]
    assert "500" in said[2]
    assert peak < 50_000_000


@pytest.mark.parametrize("ending", ["reset", "hang"])
async def test_a_refusal_that_never_ends_still_has_its_status(server, ending, monkeypatch):
    """What came within a time is what is shown; the status is known whatever follows."""
    monkeypatch.setattr("pi_agent_kernel.models.proxy._REFUSAL_SECONDS", 0.2)
    server.play(Reply(b'{"error', status=503, ending=ending))

    [event] = await play(server.url)

    assert "503" in failed(event)
    assert event.message.diagnostics[0]["details"]["kind"] == "overloaded"


async def test_a_password_in_the_address_is_not_shown():
    """An address is named without the password in it."""
    with unused_url() as url:
        [event] = await play(url.replace("://", "://me:pass-word@"))

    assert url in failed(event)
    assert "pass-word" not in event.message.error_message


async def test_a_page_is_no_stream(server):
    """A 200 with an HTML page says what came and that the address is to be checked."""
    server.play(Reply(b"<html>Log in</html>", content_type="text/html"))

    [event] = await play(server.url)

    assert "text/html" in failed(event)


@pytest.mark.parametrize("ending", ["end", "cut", "reset"])
async def test_an_early_end_keeps_what_came(server, ending):
    """A response that stops before its last event is an error with the text so far."""
    server.play(Reply(broken_off(), ending=ending))

    events = await play(server.url)

    assert "closed early" in failed(events[-1])
    assert events[-1].message.text in ("Hello", "He", "")
    if ending == "end":
        assert events[-1].message.text == "Hello"


@pytest.mark.parametrize("ending", ["end", "cut"])
async def test_the_last_line_needs_no_newline(server, ending):
    """A body that ends right after its last event is complete, even if the connection breaks."""
    server.play(Reply(answer("Hello").rstrip(b"\n"), ending=ending))

    events = await play(server.url)

    assert (events[-1].type, events[-1].message.text) == ("done", "Hello")


async def test_the_end_is_the_last_event(server):
    """After the last event nothing is awaited, though the proxy keeps the connection open."""
    server.play(Reply(answer("Hello"), ending="hang"))

    events = await play(server.url)

    assert events[-1].type == "done"
    assert await anyio.to_thread.run_sync(server.client_left.wait, LIMIT)


async def test_silence_ends_in_an_error(server):
    """A proxy that says nothing for the idle timeout fails the request."""
    server.play(Reply(broken_off(), ending="hang"))

    events = await play(server.url, idle_timeout=0.2)

    assert "0.2 s" in failed(events[-1])
    assert events[-1].message.text == "Hello"


async def test_nobody_there_is_an_error():
    """An address where nothing listens is named, with the remedy."""
    with unused_url() as url:
        [event] = await play(url)

    assert url in failed(event)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "http://", "http://[", "http://a b", "http://\0", "http://127.0.0.1:99999"],
)
async def test_a_bad_address_is_an_error(url):
    """An address that is none is an error of the stream that says what to correct."""
    [event] = await play(url)

    assert "PI_NOTEBOOK_PROXY_URL" in failed(event)
    assert event.message.diagnostics[0]["details"]["kind"] == "setup"


async def test_what_has_no_json_form_is_an_error(server):
    """A request that cannot be written is an error that says so; nothing is sent."""
    [event] = await play(server.url, StreamOptions(metadata={"x": object()}))

    assert "object" in failed(event)
    assert server.requests == []


async def interrupted(server, interrupt, options=None):
    """Interrupt a request once its first words are there; give its events."""
    events = []

    async def read(tasks):
        stream = stream_proxy(MODEL, GO, options, auth_token=TOKEN, proxy_url=server.url)
        async for event in stream:
            events.append(event)
            if event.type == "text_delta" and event.delta == "llo":
                interrupt(tasks)

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, tasks)
        assert await anyio.to_thread.run_sync(server.client_left.wait, LIMIT)
    return events


async def test_abort_closes_the_connection(server):
    """An abort ends a stalled response as aborted, keeps what came, and the proxy sees it."""
    server.play(Reply(broken_off(), ending="hang"))
    controller = AbortController()

    options = StreamOptions(signal=controller.signal)
    events = await interrupted(server, lambda _: controller.abort(), options)

    assert (events[-1].type, events[-1].reason) == ("error", "aborted")
    assert events[-1].message.text == "Hello"


async def test_abort_before_the_response_closes_the_connection(server):
    """An abort while the proxy has not answered yet ends the request as aborted."""
    server.play(Reply(ending="hang", silent=True))
    controller = AbortController()
    events = []

    async def read():
        events.extend(await play(server.url, StreamOptions(signal=controller.signal)))

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.to_thread.run_sync(server.asked.wait, LIMIT)
            controller.abort()
        assert await anyio.to_thread.run_sync(server.client_left.wait, LIMIT)

    assert [event.reason for event in events] == ["aborted"]


async def test_cancelling_closes_the_connection(server):
    """A cancelled request closes its connection, too."""
    server.play(Reply(broken_off(), ending="hang"))

    events = await interrupted(server, lambda tasks: tasks.cancel_scope.cancel())

    assert events[-1].type == "text_delta"


async def test_an_aborted_signal_asks_nobody(server):
    """A request whose signal is set already ends as aborted without a connection."""
    controller = AbortController()
    controller.abort()

    [event] = await play(server.url, StreamOptions(signal=controller.signal))

    assert (event.reason, server.connections) == ("aborted", 0)


async def test_requests_do_not_mix(server):
    """Requests at the same time have their own responses."""
    server.play(Reply(answer("Hello"), piece=3))
    seen = []

    async def one():
        seen.append((await play(server.url))[-1].message.text)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(one)

    assert seen == ["Hello"] * 8


# --------------------------------------------------------------------- from the environment


async def test_the_environment_names_the_proxy(server):
    """`proxied_model` asks the proxy of the environment, for the provider's wire format."""
    server.play(Reply(answer("Hello")))
    env = {"PI_NOTEBOOK_PROXY_URL": server.url, "PI_NOTEBOOK_PROXY_TOKEN": TOKEN}
    model, stream_fn = proxied_model("anthropic:claude-x", env)

    events = [event async for event in stream_fn(model, GO, StreamOptions())]

    assert events[-1].message.text == "Hello"
    assert (model.id, model.provider, model.api) == ("claude-x", "anthropic", "anthropic-messages")
    assert server.requests[0].header("authorization") == f"Bearer {TOKEN}"


def test_a_known_model_loses_its_address():
    """What is known of a model stays, but its address and headers are the proxy's business."""
    known = Model(id="m", provider="p", base_url="http://x", headers={"a": "b"}, max_tokens=5)
    env = {"PI_NOTEBOOK_PROXY_URL": "http://y", "PI_NOTEBOOK_PROXY_TOKEN": TOKEN}

    model, _ = proxied_model("p:m", env, known)

    assert (model.base_url, model.headers, model.max_tokens) == ("", None, 5)


@pytest.mark.parametrize(
    ("spec", "env", "told"),
    [
        ("anthropic:x", {}, "PI_NOTEBOOK_PROXY_URL"),
        ("anthropic:x", {"PI_NOTEBOOK_PROXY_URL": "http://x"}, "PI_NOTEBOOK_PROXY_TOKEN"),
        ("x", {"PI_NOTEBOOK_PROXY_URL": "http://x", "PI_NOTEBOOK_PROXY_TOKEN": "t"}, "provider:"),
    ],
)
def test_no_proxy_or_no_name_is_refused(spec, env, told):
    """Without a proxy, or a provider in the name, the error says what is missing."""
    with pytest.raises(ModelError, match=told):
        proxied_model(spec, env)
