from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pi_agent_kernel.messages import (
    TextContent,
    ThinkingContent,
)
from protocol import check_protocol
from provider import FORMATS, model_of, play
from server import Reply

RECORDINGS = Path(
    os.environ.get("PI_RECORDINGS") or Path(__file__).resolve().parents[3] / "shared" / "recordings"
)
#: The wire format of a recording, by the first letter of its name.
BY_LETTER = {
    "a": "anthropic-messages",
    "r": "openai-responses",
    "c": "openai-completions",
    "g": "google-generative-ai",
    "b": "bedrock-converse-stream",
}
#: Recordings of a dialect that has a family of its own, beside the common one.
DIALECTS = [("c_groqfail", "groq-completions"), ("c_mistraltool", "mistral-conversations")]
#: Of those that end as an error: the kind it is told as.
KINDS = {
    "a_miderr": "overloaded",
    "a_eof": "incomplete",
    "a_tool": "incomplete",
    "a_length": "incomplete",
    "a_refusal": "refused",
    "b_err": "invalid_request",
    "c_eof": "incomplete",
    "c_eoftool": "incomplete",
    "c_groqfail": "invalid_request",
    "c_miderr": "server",
    "g_eof": "incomplete",
    "r_eof": "incomplete",
    "r_error": "quota",
}
# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
)


def recordings():
    """Return the recorded streams, each with the format to read it as."""
    if not (RECORDINGS / "index.json").exists():
        return []
    names = sorted(json.loads((RECORDINGS / "index.json").read_text()))
    return [(name, BY_LETTER[name[0]]) for name in names] + DIALECTS


NEEDED = pytest.mark.skipif(
    not recordings(), reason=f"the recorded provider streams are not at {RECORDINGS}"
)


@NEEDED
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("piece", [1, 7, 100, 65536])
@pytest.mark.parametrize(("name", "api"), recordings() or [("none", "none")])
async def test_recorded_streams_are_read_as_agreed(server, name, api, piece, anyio_backend):
    """What providers really sent gives the text, thinking, calls and usage readers agreed on."""
    await check(server, name, api, piece)


@NEEDED
@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize(("name", "api"), recordings() or [("none", "none")])
async def test_recorded_streams_are_read_on_trio(server, name, api, anyio_backend):
    """The same on the other event loop."""
    if not FORMATS[api].trio:
        pytest.skip(f"the SDK of {api} needs asyncio")
    await check(server, name, api, 100)


async def check(server, name, api, piece):
    """Play a recording in pieces, check the events and compare with the agreed reading."""
    wire = (RECORDINGS / f"{name}.wire").read_bytes()
    if piece < 100 and len(wire) > 100_000:
        piece *= 13  # every cut is tried on the shorter ones; these would take seconds
    about = json.loads((RECORDINGS / "index.json").read_text())[name]
    server.play(Reply(wire, status=about["status"], content_type=about["contentType"], piece=piece))

    events = await play(server.url, model=model_of(api, server.url), api_key="k")

    message = check_protocol(events)
    expected = json.loads((RECORDINGS / "expected.json").read_text()).get(name)
    if expected is not None:
        # A refusal is an error to us, although its stream ended well (models.md 1.3).
        compare(events, message, {**expected, "error": name in KINDS})
    if message.stop_reason == "error":
        assert message.diagnostics[0]["details"]["kind"] == KINDS[name]
    assert (message.stop_reason == "error") == (name in KINDS)


def compare(events, message, expected):
    """Compare a message with what independent readers agreed on."""
    thinking = "".join(b.thinking for b in message.content if isinstance(b, ThinkingContent))
    text = "".join(b.text for b in message.content if isinstance(b, TextContent))
    usage = message.usage
    calls = []
    for call in message.tool_calls:
        arguments = dict(call.arguments)
        if call.arguments_error is not None:
            index = list(message.content).index(call)
            pieces = [e for e in events if e.type == "toolcall_delta" and e.content_index == index]
            arguments = {"$partial": "".join(event.delta for event in pieces)}
        calls.append({"id": call.id, "name": call.name, "arguments": arguments})

    assert text == expected["text"]
    assert thinking.replace("\n", "") == expected["thinking"].replace("\n", "")
    assert calls == expected["calls"]
    assert expected["usage"] == {
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
    }
    assert (message.stop_reason == "error") == expected["error"]
