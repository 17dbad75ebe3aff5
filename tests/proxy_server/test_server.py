from __future__ import annotations

import json

import anyio
import httpx2
import pytest
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.messages import UserMessage
from pi_agent_kernel.models.proxy import stream_proxy
from pi_agent_kernel.request import Model, StreamOptions, TranscriptContext
from server import Reply, recorded

pytestmark = [
    pytest.mark.kernel,  # a server takes as long to start as a kernel
    pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning"),
]

LIMIT = 30  # seconds for what must end soon on any machine
KEY = "sk-key-of-the-server"
PROMPT = "the-words-of-the-prompt"
STREAM = "pi/api/stream"


@pytest.fixture(scope="module")
def jupyter(start_server):
    return start_server(
        'c.PiServer.models = ["openai-chat:test-*", "anthropic:claude-*", "demo"]',
        "c.PiServer.max_body_bytes = 100_000",
        "c.PiServer.requests_per_minute = 0",
    )


def asked(model="test-1", provider="openai-chat", options=None, **fields):
    """Make the body of a request."""
    message = {"role": "user", "content": PROMPT, "timestamp": 1}
    return {
        "model": {"id": model, "provider": provider, **fields},
        "context": {"messages": [message]},
        "options": options or {},
    }


def events_of(response):
    lines = response.text.split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def refused(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()["error"]


async def play(jupyter, *, model="test-1", token="token-of-ada", **options):
    stream = stream_proxy(
        Model(id=model, provider="openai-chat", api="openai-completions"),
        TranscriptContext(messages=[UserMessage(content=PROMPT)]),
        auth_token=token,
        proxy_url=jupyter.proxy_url,
        **options,
    )
    with anyio.fail_after(LIMIT):
        return [event async for event in stream]


async def test_an_allowed_model_streams(jupyter, upstream):
    """The client gets the provider's response; the provider got the server's key."""
    upstream.play(Reply(recorded("text"), piece=7))

    events = await play(jupyter)

    message = events[-1].message
    assert [e.delta for e in events if e.type == "text_delta"] == ["He", "llo, ", "wörld 🌍."]
    assert (message.text, message.stop_reason) == ("Hello, wörld 🌍.", "stop")
    assert (message.usage.total_tokens, message.response_id) == (27, "chatcmpl-1")
    assert (message.provider, message.model) == ("openai-chat", "test-1")
    assert upstream.requests[0].header("authorization") == f"Bearer {KEY}"


async def test_pieces_arrive_while_the_response_goes_on(jupyter, upstream):
    """Words arrive before the response has ended; an abort closes the provider's connection."""
    upstream.play(Reply(recorded("text").partition(b"rld")[0] + b"\n", ending="hang"))
    controller = AbortController()
    seen = []
    stream = stream_proxy(
        Model(id="test-1", provider="openai-chat"),
        TranscriptContext(messages=[UserMessage(content=PROMPT)]),
        StreamOptions(signal=controller.signal),
        auth_token="token-of-ada",
        proxy_url=jupyter.proxy_url,
    )

    with anyio.fail_after(LIMIT):
        async for event in stream:
            seen.append(event)
            if event.type == "text_delta":
                controller.abort()
        assert await anyio.to_thread.run_sync(upstream.client_left.wait, LIMIT)

    assert (seen[-1].reason, seen[-1].message.text[:2]) == ("aborted", "He")
    assert "stop=aborted" in jupyter.wait_for_log("stop=aborted")


def test_a_client_that_leaves_before_the_first_word_ends_the_request(jupyter, upstream):
    """The provider's connection is closed when the client's is, though nothing was sent yet."""
    upstream.play(Reply(silent=True, ending="hang"))

    with jupyter.client() as client, client.stream("POST", STREAM, json=asked()) as response:
        assert response.status_code == 200
        assert upstream.asked.wait(LIMIT)

    assert upstream.client_left.wait(LIMIT)


def test_the_client_chooses_neither_address_nor_headers_nor_key(jupyter, upstream):
    """Of the client's model only provider and name count, of its options only the harmless."""
    upstream.play("text")
    headers = {"x-mine": "1", "authorization": "Bearer mine"}
    body = asked(
        baseUrl="http://127.0.0.1:1/v1",
        headers=headers,
        api="anthropic-messages",
        options={"headers": headers, "maxTokens": 77, "metadata": {"user": "x"}},
    )

    with jupyter.client() as client:
        response = client.post(STREAM, json=body)

    assert events_of(response)[-1]["type"] == "done"
    [request] = upstream.requests
    assert request.header("authorization") == f"Bearer {KEY}"
    assert request.header("x-mine") is None
    sent = request.payload
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert "metadata" not in sent


@pytest.mark.parametrize(
    ("model", "of"),
    [
        ("other-1", "openai-chat"),
        ("test-1", "openai"),
        ("test-1", "OPENAI-CHAT"),
        ("gpt-5", "unknown"),
        ("", "openai-chat"),
        ("demo", "openai-chat"),
        ("test-1\n[I] forged", "openai-chat"),
        ("test-" + "1" * 300, "openai-chat"),
    ],
)
def test_another_model_is_refused(jupyter, upstream, model, of):
    """What the list does not allow is a 403 that lists what it does; nothing is asked."""
    with jupyter.client() as client:
        error = refused(client.post(STREAM, json=asked(model, of)), 403)

    assert "openai-chat:test-*" in error
    assert upstream.requests == []


def test_a_model_without_a_key_says_who_sets_it(jupyter):
    """A missing key is the administrator's business, and the answer says what to set."""
    with jupyter.client() as client:
        error = refused(client.post(STREAM, json=asked("claude-x", "anthropic")), 503)

    assert "ANTHROPIC_API_KEY" in error


def test_the_demo_model_needs_no_key(jupyter):
    """The demo model can be allowed, for a first try."""
    with jupyter.client() as client:
        response = client.post(STREAM, json=asked("demo", "demo"))

    assert events_of(response)[-1]["type"] == "done"


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("token", [None, "x", "pi.b3duZXI=.AAAA", "pi..", "pi.====.x"])
def test_who_is_unknown_is_refused(jupyter, upstream, method, token):
    """Without a token, or with one that is not the server's, nothing is served."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with jupyter.client(None) as client:
        address = STREAM if method == "POST" else "pi/api/models"
        body = asked() if method == "POST" else None
        response = client.request(method, address, json=body, headers=headers)

    assert "Bearer" in refused(response, 403)
    assert upstream.requests == []


def test_the_list_says_what_may_be_used(jupyter):
    """The list has each allowed pattern, whether there is a key for it, and the limits."""
    with jupyter.client() as client:
        listing = client.get("pi/api/models").json()

    assert listing["models"] == [
        {"spec": "openai-chat:test-*", "ready": True},
        {"spec": "anthropic:claude-*", "ready": False},
        {"spec": "demo", "ready": True},
    ]
    assert listing["limits"]["requestsPerMinute"] == 0


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "JSON"),
        (b"{}", "model"),
        (json.dumps({**asked(), "apiKey": "k"}).encode(), "apiKey"),
        (json.dumps(asked(options={"apiKey": "k"})).encode(), "apiKey"),
    ],
)
def test_a_bad_request_says_where(jupyter, body, told):
    """A body that is no request is a 400 that names the place."""
    with jupyter.client() as client:
        assert told in refused(client.post(STREAM, content=body), 400)


@pytest.mark.parametrize("known", [True, False])
def test_a_large_request_is_refused(jupyter, upstream, known):
    """A body over the limit is a 413, whether it says how long it is or not."""
    body = b"x" * 200_000

    with jupyter.client() as client:
        response = client.post(STREAM, content=body if known else iter([body[:99_999], body]))

    assert "100,000" in refused(response, 413)
    assert upstream.requests == []


def test_an_endless_request_is_cut_off(jupyter, upstream):
    """A body far over the limit is not read to its end."""
    with jupyter.client() as client:
        try:
            status = client.post(STREAM, content=iter([b"x" * 50_000] * 100)).status_code
        except httpx2.TransportError:
            status = None

    assert status in (None, 400)
    assert upstream.requests == []


def test_no_other_origin_is_let_in(jupyter, upstream):
    """Neither a preflight nor an answer allows another origin."""
    upstream.play("text")
    origin = {"Origin": "http://evil.example"}
    preflight = {**origin, "Access-Control-Request-Method": "POST"}

    with jupyter.client() as client:
        answers = [
            client.options(STREAM, headers=preflight),
            client.post(STREAM, json=asked(), headers=origin),
            client.get("pi/api/models", headers=origin),
        ]

    assert answers[0].status_code in (403, 405)
    for answer in answers:
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_the_providers_failure_is_an_event(jupyter, upstream):
    """An error of the provider arrives with kind and wait for a retry, but without the key."""
    said = json.dumps({"error": {"message": f"Bad key {KEY}", "type": "x", "code": None}}).encode()
    upstream.play(
        Reply(said, status=429, content_type="application/json", headers={"retry-after": "3"})
    )

    [event] = await play(jupyter)

    message = event.message
    assert (event.type, message.stop_reason) == ("error", "error")
    assert KEY not in message.error_message
    assert message.diagnostics[0]["details"]["status"] == 429
    assert message.diagnostics[0]["details"]["retryAfterMs"] == 3000


async def test_the_log_has_usage_and_no_content(jupyter, upstream):
    """A response is one line with user, model, tokens, cost, end and time, and no word of it."""
    upstream.play("text")
    await play(jupyter)
    with jupyter.client() as client:
        client.post(STREAM, json={**asked(), "context": {"messages": [PROMPT]}})
    said = json.dumps({"error": {"message": PROMPT}}).encode()
    upstream.play(Reply(said, status=400, content_type="application/json"))
    await play(jupyter)

    line = jupyter.wait_for_log("tokens=27")
    jupyter.wait_for_log("stop=error")
    for part in ("user='ada'", "model=openai-chat:test-1", "cost=", "stop=stop", "seconds="):
        assert part in line
    log = jupyter.log
    for secret in (PROMPT, "wörld", KEY, "token-of-ada"):
        assert secret not in log


async def test_many_at_once_do_not_mix(jupyter, upstream):
    """Requests of two people at the same time each get a whole response."""
    upstream.play(Reply(recorded("text"), piece=5))
    ends = []

    async def one(token):
        ends.append((await play(jupyter, token=token))[-1].message.text)

    async with anyio.create_task_group() as tasks:
        for token in ("token-of-ada", "token-of-bob"):
            for _ in range(2):
                tasks.start_soon(one, token)

    assert ends == ["Hello, wörld 🌍."] * 4
