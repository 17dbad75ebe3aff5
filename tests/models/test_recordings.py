from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pi_agent_kernel.events import StreamDone, StreamError
from pi_agent_kernel.messages import (
    TextContent,
    ThinkingContent,
)
from provider import play
from server import Reply

RECORDINGS = Path(
    os.environ.get("PI_RECORDINGS") or Path(__file__).resolve().parents[3] / "shared" / "recordings"
)
# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning"
)


def recordings():
    """Return the recorded chat-completions streams that have an agreed reading."""
    if not (RECORDINGS / "expected.json").exists():
        return []
    expected = json.loads((RECORDINGS / "expected.json").read_text())
    return sorted(name for name in expected if name.startswith("c_"))


NEEDED = pytest.mark.skipif(
    not recordings(), reason=f"the recorded provider streams are not at {RECORDINGS}"
)


@NEEDED
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("piece", [1, 7, 100, 65536])
@pytest.mark.parametrize("name", recordings() or ["none"])
async def test_recorded_streams_are_read_as_agreed(server, name, piece, anyio_backend):
    """What providers really sent gives the text, thinking, calls and usage readers agreed on."""
    await check(server, name, piece)


@NEEDED
@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("name", recordings() or ["none"])
async def test_recorded_streams_are_read_on_trio(server, name, anyio_backend):
    """The same on the other event loop."""
    await check(server, name, 100)


async def check(server, name, piece):
    """Play a recording in pieces and compare with the agreed reading."""
    wire = (RECORDINGS / f"{name}.wire").read_bytes()
    if piece < 100 and len(wire) > 100_000:
        piece *= 13  # every cut is tried on the shorter ones; these would take seconds
    expected = json.loads((RECORDINGS / "expected.json").read_text())[name]
    about = json.loads((RECORDINGS / "index.json").read_text())[name]
    server.play(Reply(wire, status=about["status"], content_type=about["contentType"], piece=piece))

    events = await play(server.url)
    message = events[-1].message
    thinking = "".join(b.thinking for b in message.content if isinstance(b, ThinkingContent))
    calls = [
        {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}
        for call in message.tool_calls
    ]
    usage = message.usage

    assert (
        "".join(b.text for b in message.content if isinstance(b, TextContent)) == expected["text"]
    )
    assert thinking.replace("\n", "") == expected["thinking"].replace("\n", "")
    assert calls == expected["calls"]
    assert expected["usage"] == {
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
    }
    assert isinstance(events[-1], StreamError if expected["error"] else StreamDone)
