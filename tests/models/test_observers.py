from __future__ import annotations

import json

import pytest
from pi_agent_kernel.models.families import FAMILIES, warm_up
from pi_agent_kernel.models.server_events import ServerEvents
from protocol import check_protocol
from provider import FORMATS, ask_format, stream_of
from server import STREAMS, recorded

# On trio the SDKs leave their inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|groq|google|httpx|httpcore).*:ResourceWarning"
)


@pytest.fixture(params=FORMATS)
def api(request, anyio_backend_name):
    """Each format, where its SDK runs."""
    if anyio_backend_name == "trio" and not FORMATS[request.param].trio:
        pytest.skip("this format's SDK needs asyncio")
    return request.param


def sent(api, name):
    """Return the objects a stream written by hand consists of."""
    file = STREAMS / f"{FORMATS[api].prefix}{name}"
    if file.with_suffix(".jsonl").exists():
        return [json.loads(line) for line in file.with_suffix(".jsonl").read_text().splitlines()]
    lines = file.with_suffix(".sse").read_text().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(line) for line in data if line != "[DONE]"]


@pytest.mark.parametrize("piece", [1, 65536])
async def test_every_event_of_the_provider_is_shown(server, api, piece):
    """`on_provider_stream_event` gets each event as the provider sent it, parsed (CO-10)."""
    server.play(stream_of(api, "tool", piece=piece))
    seen = []

    async def look(event, model):
        seen.append((event, model.api))

    check_protocol(await ask_format(api, server.url, on_provider_stream_event=look))

    assert [event for event, _ in seen] == sent(api, "tool")
    assert {name for _, name in seen} == {api}


async def test_payload_and_response_are_shown(server, api):
    """`on_payload` may replace the body, `on_response` sees status and headers (CO-10)."""
    server.play(stream_of(api, "text"))
    seen = []

    events = await ask_format(
        api,
        server.url,
        on_payload=lambda payload, model: {**payload, "added": model.id},
        on_response=lambda response, _model: seen.append(response),
    )

    assert check_protocol(events).stop_reason == "stop"
    assert server.requests[0].payload["added"] == "test-1"
    assert [response["status"] for response in seen] == [200]
    assert seen[0]["headers"]["content-type"] == FORMATS[api].content_type


@pytest.mark.parametrize("name", ["on_payload", "on_response", "on_provider_stream_event"])
async def test_a_callback_that_raises_ends_the_request(server, api, name):
    """The error names the callback and what it raised; the next request works."""
    server.play(stream_of(api, "text"))

    events = await ask_format(api, server.url, **{name: lambda *_: 1 / 0})

    message = check_protocol(events)
    assert f"{name} raised ZeroDivisionError: division by zero" in message.error_message
    assert message.diagnostics[0]["details"]["kind"] == "setup"
    assert (await ask_format(api, server.url))[-1].type == "done"


def test_a_signed_request_is_signed_as_it_is_sent(server):
    """AWS credentials sign the payload that a callback put in place of the first."""
    import anyio

    async def ask():
        return await ask_format(
            "bedrock-converse-stream",
            server.url,
            api_key=None,
            env={
                "AWS_ACCESS_KEY_ID": "AKID",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "eu-central-1",
            },
            on_payload=lambda payload, _: {**payload, "added": 1},
        )

    server.play(stream_of("bedrock-converse-stream", "text"))

    message = check_protocol(anyio.run(ask))

    assert message.stop_reason == "stop"
    (request,) = server.requests
    authorization = request.header("authorization")
    assert "AKID" in authorization
    assert "/eu-central-1/bedrock/aws4_request" in authorization
    assert request.path == "/v1/model/test-1/converse-stream"
    assert request.payload["added"] == 1


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("piece", [1, 2, 3, 1000])
def test_server_events_in_any_pieces(end, piece):
    """Objects are found whatever ends a line and wherever the bytes are cut."""
    text = end.join([": hi", 'data: {"a":', "data:1}", "", "data: [DONE]", "", 'data: "é"'])
    data, events = text.encode(), ServerEvents()

    found = [
        event for i in range(0, len(data), piece) for event in events.feed(data[i : i + piece])
    ]

    assert [*found, *events.end()] == [{"a": 1}, "é"]


def test_warming_up_imports_what_requests_need():
    """Known formats are imported, unknown ones left out."""
    warm_up(["openai-completions", "carrier-pigeon"])

    import sys

    assert all(name in sys.modules for name in FAMILIES["openai-completions"].modules)
    assert recorded("text")
