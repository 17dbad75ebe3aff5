"""What one delta of a real model costs: the SDK alone, pydantic-ai on it, and our adapter on both.

`python bench/adapter.py` prints CPU microseconds a delta for a tool call whose 40 KB argument
comes in 10,000 pieces. The bytes come from memory in pieces of 4 KB, so no network is in
the figures; each is the best of `--rounds` runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
from pi_agent_kernel.messages import UserMessage
from pi_agent_kernel.models import provider_http
from pi_agent_kernel.models.families import FAMILIES, Reach
from pi_agent_kernel.models.pydantic_ai import provider_stream_fn
from pi_agent_kernel.request import Model, StreamOptions, TranscriptContext

URL = "http://bench.invalid/v1"
DELTAS = 10_000
PIECE = "abcd"


def anthropic_bytes() -> bytes:
    """Return a call in Anthropic's format."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    call = {"type": "tool_use", "id": "t", "name": "write", "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": call},
    ]
    events += [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": piece},
        }
        for piece in ('{"text": "', *[PIECE] * DELTAS, '"}')
    ]
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def chat_bytes() -> bytes:
    """Return a call in the format of chat completions."""
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({**base, 'choices': [choice]})}\n\n".encode()

    def call(arguments: str, **more: Any) -> bytes:
        function = {"arguments": arguments, **({"name": "write"} if more else {})}
        return chunk({"tool_calls": [{"index": 0, "function": function, **more}]})

    pieces = [call('{"text": "', id="t", type="function"), *[call(PIECE)] * DELTAS, call('"}')]
    return b"".join([*pieces, chunk({}, "tool_calls"), b"data: [DONE]\n\n"])


class Memory(httpx2.AsyncBaseTransport):
    """Answer every request with the same bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        data = self._data

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(data), 4096):
                yield data[start : start + 4096]

        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, content=pieces(), request=request)


async def anthropic_sdk(client: httpx2.AsyncClient) -> None:
    """Read with Anthropic's SDK alone."""
    import anthropic

    sdk = anthropic.AsyncAnthropic(api_key="k", base_url=URL, http_client=client, max_retries=0)
    asked: list[Any] = [{"role": "user", "content": "go"}]
    stream = await sdk.beta.messages.create(model="m", max_tokens=10, messages=asked, stream=True)
    assert sum([1 async for _ in stream]) > DELTAS


async def chat_sdk(client: httpx2.AsyncClient) -> None:
    """Read with OpenAI's SDK alone."""
    import openai

    sdk = openai.AsyncOpenAI(api_key="k", base_url=URL, http_client=client, max_retries=0)
    asked: list[Any] = [{"role": "user", "content": "go"}]
    stream = await sdk.chat.completions.create(model="m", messages=asked, stream=True)
    assert sum([1 async for _ in stream]) > DELTAS


def layer(api: str, *, refined: bool) -> Callable[[httpx2.AsyncClient], Awaitable[None]]:
    """Return a reader with pydantic-ai, its own classes or ours derived from them."""

    async def read(client: httpx2.AsyncClient) -> None:
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.messages import ModelRequest

        model = FAMILIES[api].build(
            Reach(
                name="m",
                provider="openai-chat" if api == "openai-completions" else "anthropic",
                base_url=URL,
                own_url="",
                key="k",
                env={},
                client=client,
                idle_timeout=60,
            )
        )
        if not refined:
            model = type(model).__mro__[1](model.model_name, provider=model._provider)  # type: ignore[attr-defined,call-arg]  # noqa: SLF001
        async with model_request_stream(model, [ModelRequest.user_text_prompt("go")]) as stream:
            assert sum([1 async for _ in stream]) > DELTAS

    return read


def adapter(api: str) -> Callable[[httpx2.AsyncClient], Awaitable[None]]:
    """Return a reader with our adapter, from bytes to our events."""

    async def read(client: httpx2.AsyncClient) -> None:
        provider_http.loop_cache()["client", "httpx2", 60.0] = (client, None)
        provider = "openai-chat" if api == "openai-completions" else "anthropic"
        model = Model(id="m", api=api, provider=provider, base_url=URL)
        context = TranscriptContext(messages=[UserMessage(content="go")])
        stream: Any = provider_stream_fn(env={}, idle_timeout=60.0)
        events = [e async for e in stream(model, context, StreamOptions(api_key="k"))]
        assert events[-1].type == "done", events[-1]
        assert len(events) > DELTAS

    return read


def measure(
    data: bytes, read: Callable[[httpx2.AsyncClient], Awaitable[None]], rounds: int
) -> float:
    """Return the best CPU time of a delta, in microseconds."""

    async def run() -> float:
        best = float("inf")
        async with httpx2.AsyncClient(transport=Memory(data)) as client:
            for _ in range(rounds):
                start = time.process_time()
                await read(client)
                best = min(best, time.process_time() - start)
        return best / DELTAS * 1e6

    return asyncio.run(run())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print("us a delta           SDK  pydantic-ai  + ours derived  adapter")
    for api, data, sdk in (
        ("anthropic-messages", anthropic_bytes(), anthropic_sdk),
        ("openai-completions", chat_bytes(), chat_sdk),
    ):
        readers = (sdk, layer(api, refined=False), layer(api, refined=True), adapter(api))
        figures = [measure(data, read, rounds) for read in readers]
        print(f"{api:20} " + "  ".join(f"{figure:9.1f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
