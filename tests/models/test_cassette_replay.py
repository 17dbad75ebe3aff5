from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import Agent
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.events import ModelRetry
from pi_agent_kernel.models.cassette import record_stream_fn, replay_stream_fn
from pi_agent_kernel.models.retry_policy import RetryPolicy
from pi_agent_kernel.request import StreamOptions, TranscriptContext
from provider import GO, LIMIT
from test_cassette import MODEL, ask, says, scripted


async def test_an_abort_ends_a_pause_of_replay(tmp_path):
    """A slow pace does not hold up an abort, and what was shown until then stays."""
    await ask(record_stream_fn(scripted(says("a", "b")), tmp_path / "c.jsonl"))
    abort = AbortController()
    player = replay_stream_fn(tmp_path / "c.jsonl", chunks_per_second=100)
    came = []
    with anyio.fail_after(LIMIT):
        context = TranscriptContext(messages=GO)
        async for event in player(MODEL, context, StreamOptions(signal=abort.signal)):
            came.append(event)
            if event.type == "text_delta":
                abort.abort()
    slow = replay_stream_fn(tmp_path / "c.jsonl", chunks_per_second=1 / (10 * LIMIT))
    abort = AbortController()
    asked = []

    async def reply():
        asked.extend(await ask(slow, signal=abort.signal))

    async with anyio.create_task_group() as group:
        group.start_soon(reply)
        await anyio.wait_all_tasks_blocked()
        abort.abort()

    assert [came[-1].reason, came[-1].message.text] == ["aborted", "a"]
    assert [event.reason for event in asked] == ["aborted"]


async def test_an_on_retry_that_raises_ends_replay_in_an_error(tmp_path):
    """A listener's fault is an event, as it is with a provider."""

    async def stream(model, context, options):
        failed = {"error_message": "no luck", "kind": "server"}
        options.on_retry(ModelRetry(attempt=2, max_attempts=3, delay_ms=1, **failed))
        async for event in scripted(says("a"))(model, context, options):
            yield event

    await ask(record_stream_fn(stream, tmp_path / "c.jsonl"), on_retry=lambda _: None)

    def faulty(retry):
        raise RuntimeError("a listener's fault")

    (last,) = await ask(replay_stream_fn(tmp_path / "c.jsonl"), on_retry=faulty)

    assert (last.type, last.message.error_message) == ("error", "a listener's fault")


@pytest.mark.parametrize("details", [True, False])
async def test_replay_does_not_wait_before_it_asks_again(tmp_path, details):
    """An agent that asks again after a recorded failure does so at once."""

    def fails(builder):
        if details:
            noted = {"type": "provider_error", "details": {"kind": "server", "status": 503}}
            builder.fields["diagnostics"] = [noted]
        yield builder.error("503 service unavailable")

    policy = RetryPolicy(base_delay_ms=1)
    recording = record_stream_fn(scripted(fails, fails, says("ok")), tmp_path / "c.jsonl")
    agent = Agent(stream_fn=recording, model=MODEL, retry=policy)
    await agent.prompt("go")
    player = replay_stream_fn(tmp_path / "c.jsonl")
    slow = RetryPolicy(base_delay_ms=LIMIT * 10_000, max_delay_ms=LIMIT * 10_000)
    agent = Agent(stream_fn=player, model=MODEL, retry=slow)
    with anyio.fail_after(LIMIT):
        await agent.prompt("go")

    assert agent.state.messages[-1].text == "ok"
    assert player.played == 3
