from __future__ import annotations

import json
import ssl
import threading
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.models.pydantic_ai import provider_stream_fn
from pi_agent_kernel.request import StreamOptions, TranscriptContext
from protocol import check_protocol
from provider import FORMATS, GO, LIMIT, ask_format, failure, model_of, stream_of
from server import ProviderServer, Reply, unused_url

# On trio the SDKs leave their inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|groq|google|httpx|httpcore).*:ResourceWarning"
)
#: How each provider words that a request is too large.
OVERFLOW = {
    "anthropic-messages": "prompt is too long: 212000 tokens > 200000 maximum",
    "openai-responses": "Your input exceeds the context window of this model.",
    "openai-completions": "This model's maximum context length is 8192 tokens.",
    "google-generative-ai": "The input token count (12) exceeds the maximum number of tokens (8).",
    "bedrock-converse-stream": "Input is too long for requested model.",
    "mistral-conversations": "Prompt too large for model with 32768 maximum context length",
    "groq-completions": "Please reduce the length of the messages or completion.",
}


@pytest.fixture(params=FORMATS)
def api(request, anyio_backend_name):
    """Each format, where its SDK runs."""
    if anyio_backend_name == "trio" and not FORMATS[request.param].trio:
        pytest.skip("this format's SDK needs asyncio")
    return request.param


async def fails(server, api, reply, **options):
    """Play a reply, return how it failed, and see that the next request works."""
    server.play(reply)
    message = check_protocol(await ask_format(api, server.url, **options))
    assert message.stop_reason == "error"
    assert len(server.requests) == 1, "the SDK's own retries are off (trap 5)"
    server.play(stream_of(api, "text"))
    assert (await ask_format(api, server.url))[-1].type == "done"
    return message, message.diagnostics[0]["details"]


@pytest.mark.parametrize(
    ("status", "kind", "remedy"),
    [
        (400, "invalid_request", "Check the model name"),
        (401, "auth", "KEY"),
        (402, "quota", "Top it up"),
        (404, "not_found", "URL"),
        (413, "context_overflow", "send less"),
        (429, "rate_limit", "Try again in 7 s"),
        (500, "server", "status page"),
        (529, "overloaded", "Try again in"),
    ],
)
async def test_a_status_is_classed(server, api, status, kind, remedy):
    """Each status has its kind and remedy in every format, is sent once and shows no key."""
    reply = failure(status, "No luck with k-secret-1", **{"retry-after": "7"})

    message, details = await fails(server, api, reply)

    assert (details["kind"], details["status"]) == (kind, status)
    assert "No luck" in message.error_message
    assert "k-secret-1" not in message.error_message
    wanted = {
        "KEY": FORMATS[api].key_variable,
        "URL": FORMATS[api].url_variable,
    }.get(remedy, remedy)
    assert wanted in message.error_message
    if status == 429:
        assert details["retryAfterMs"] == 7000


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirection_is_not_followed(server, api, status):
    """A key is for one address: another that a server points to is told, not asked."""
    reply = Reply(
        b"<p>Moved", status=status, content_type="text/html", headers={"location": "/elsewhere"}
    )

    message, details = await fails(server, api, reply)

    assert details == {"kind": "unexpected", "status": status}
    assert f"HTTP {status}" in message.error_message
    assert FORMATS[api].url_variable in message.error_message


async def test_a_request_too_large_is_an_overflow(server, api):
    """Each provider's words for it are known (MD-24)."""
    words = OVERFLOW[api]
    code = "INVALID_ARGUMENT" if api == "google-generative-ai" else None
    body = {"error": {"message": words, "code": 400, "status": code}, "message": words}
    reply = Reply(json.dumps(body).encode(), status=400, content_type="application/json")

    message, details = await fails(server, api, reply)

    assert details == {"kind": "context_overflow", "status": 400}
    assert words.rstrip(".") in message.error_message


@pytest.mark.parametrize(
    ("kind_of_silence", "text"),
    [("hang", "Half an answer"), ("silent", ""), ("trickle", "")],
)
async def test_silence_ends_after_the_idle_limit(server, api, kind_of_silence, text):
    """No byte, no header, or headers that never end: each ends as a timeout."""
    reply = (
        stream_of(api, "cut", ending="hang")
        if kind_of_silence == "hang"
        else Reply(ending="trickle" if kind_of_silence == "trickle" else "hang", silent=True)
    )

    message, details = await fails(server, api, reply, idle_timeout=0.3)

    assert details["kind"] == "timeout"
    assert "sent nothing for 0.3 s" in message.error_message
    assert message.text == text


@pytest.mark.parametrize("ending", ["cut", "reset"])
async def test_a_connection_that_breaks(server, api, ending):
    """A connection that breaks off in the middle says so."""
    message, details = await fails(server, api, stream_of(api, "cut", ending=ending))

    assert details["kind"] == "connection"
    assert "broke off in the middle" in message.error_message


async def test_another_page_is_told(server, api):
    """A web page with status 200 is no reply, and the address is what to look at."""
    reply = Reply(b"<!doctype html><p>Hi", content_type="text/html")

    message, details = await fails(server, api, reply)

    assert details == {"kind": "unexpected", "status": 200}
    assert "text/html" in message.error_message
    assert FORMATS[api].url_variable in message.error_message


async def test_an_empty_reply_is_an_error(server, api):
    """A stream without an event ended too early."""
    reply = Reply(b"", content_type=FORMATS[api].content_type)

    message, details = await fails(server, api, reply)

    assert details["kind"] == "incomplete"
    assert "Try again" in message.error_message


async def test_json_in_place_of_a_stream(server, api):
    """A whole reply in place of a stream is refused; an error in it is told as one."""
    plain = Reply(b'{"choices": []}', content_type="application/json")
    error = b'{"error": {"message": "Slow down", "code": 429}}'

    _, details = await fails(server, api, plain)
    server.requests.clear()
    message, limited = await fails(server, api, Reply(error, content_type="application/json"))

    assert details["kind"] == "unexpected"
    assert limited["kind"] == "rate_limit"
    assert "Slow down" in message.error_message


async def test_what_cannot_be_read_is_told(server, api):
    """A stream of something else ends as an error, never as an exception."""
    reply = Reply(b"data: {nope\n\n", content_type=FORMATS[api].content_type)

    _, details = await fails(server, api, reply)

    assert details["kind"] in ("unexpected", "incomplete")


async def test_a_name_without_address(api):
    """A host that does not exist is told by its name."""
    message = check_protocol(await ask_format(api, "http://nowhere.invalid/v1"))

    assert message.diagnostics[0]["details"]["kind"] == "connection"
    assert "'nowhere.invalid'" in message.error_message
    assert FORMATS[api].url_variable in message.error_message


async def test_nobody_listens(api):
    """A refused connection asks whether the server is running."""
    with unused_url() as url:
        message = check_protocol(await ask_format(api, url))

    assert message.diagnostics[0]["details"]["kind"] == "connection"
    assert "Is the server running?" in message.error_message


async def test_a_server_without_encryption(server, api):
    """An https address of a plain server says to use http."""
    message = check_protocol(await ask_format(api, server.url.replace("http:", "https:")))

    assert message.diagnostics[0]["details"]["kind"] == "connection"
    assert "http://" in message.error_message


async def test_a_certificate_nobody_signed(api, tmp_path):
    """A certificate that cannot be trusted is told with the way to trust it."""
    with ProviderServer(self_signed(tmp_path)) as server:
        message = check_protocol(await ask_format(api, server.url))

    assert message.diagnostics[0]["details"]["kind"] == "connection"
    assert "certificate" in message.error_message
    assert "SSL_CERT_FILE" in message.error_message


def self_signed(folder):
    """Return a server's context with a certificate made for this test."""
    x509 = pytest.importorskip("cryptography.x509", reason="cryptography makes the certificate")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@pytest.mark.parametrize("silent", [True, False])
async def test_abort_closes_the_connection(server, api, silent):
    """Abort ends the stream while the server hangs, which sees the client leave (AB-03)."""
    server.play(stream_of(api, "text"))
    await ask_format(api, server.url)
    before = threading.active_count()
    server.asked.clear()
    server.play(
        Reply(ending="hang", silent=True) if silent else stream_of(api, "cut", ending="hang")
    )
    controller, arrived, events = AbortController(), anyio.Event(), []

    async def read():
        options = StreamOptions(signal=controller.signal, api_key="k")
        stream = provider_stream_fn(env={})
        context = TranscriptContext(messages=GO)
        async for event in stream(model_of(api, server.url), context, options):
            events.append(event)
            if event.type == "text_delta":
                arrived.set()

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            if silent:
                assert await anyio.to_thread.run_sync(server.asked.wait, LIMIT)
            else:
                await arrived.wait()
            controller.abort()
        assert await anyio.to_thread.run_sync(server.client_left.wait, LIMIT)

    message = check_protocol(events)
    assert message.stop_reason == "aborted"
    assert message.text in ("", "Half ", "Half an answer")
    # One of the server's for the hanging request, one of anyio's for the waits above.
    assert threading.active_count() <= before + 2
