"""A real model through the kernel: llama.cpp and SmolLM2-135M, structure and never wording."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from urllib.request import Request, urlopen

import anyio
import anyio.to_thread
import pytest
import small_model
from pi_agent_kernel import Agent, tool
from pi_agent_kernel.messages import ToolCall, UserMessage
from pi_agent_kernel.models.llama_process import Launch, running
from pi_agent_kernel.models.local_llama import local_model, local_stream_fn
from pi_agent_kernel.request import StreamOptions, TranscriptContext

# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = [
    pytest.mark.llm,
    pytest.mark.filterwarnings(
        "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
    ),
]

LIMIT = 60  # seconds for one question on a busy machine
SOON = 15  # seconds for an abort, which takes milliseconds


def launch(**settings):
    """Describe the server that `small_stream_fn` starts, to find it."""
    return Launch(
        path=str(small_model.gguf()),
        chat_template=small_model.TEMPLATE.read_text(),
        **{**small_model.SERVER, **settings},
    )


async def is_generating():
    """Ask the server."""
    server, address = await running(launch(), None)
    request = Request(f"{address}/slots", headers={"authorization": f"Bearer {server.key}"})
    reply = await anyio.to_thread.run_sync(partial(urlopen, request, timeout=SOON))
    with reply:
        (slot,) = json.load(reply)
    return slot["is_processing"]


def agent(stream_fn, **options):
    """Make an agent of the real model."""
    return Agent(
        stream_fn=stream_fn,
        model=local_model(small_model.gguf()),
        system_prompt=small_model.SYSTEM,
        **options,
    )


class Attempt:
    """Ask one question of an agent that can run Python."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.streamed: list[str] = []
        ran = self.ran

        @tool
        def run_python(code: str) -> str:
            """Run Python code and return its value."""
            ran.append(code)
            return str(eval(code))  # the model is given arithmetic only

        stream_fn = small_model.carefully(small_model.small_stream_fn())
        self.agent = agent(stream_fn, tools=[run_python], messages=small_model.examples())
        self.agent.subscribe(self._listen)

    def _listen(self, event, signal) -> None:
        if event.type == "message_update":
            self.streamed.append(event.assistant_message_event.type)

    async def succeeds(self, question) -> bool:
        """Tell whether every step of the way was taken."""
        before = len(self.agent.state.messages)
        with anyio.fail_after(LIMIT):
            await self.agent.prompt(question)
        new = self.agent.state.messages[before:]
        if [m.role for m in new] != ["user", "assistant", "toolResult", "assistant"]:
            return False
        _, asked, result, answered = new
        calls = [block for block in asked.content if isinstance(block, ToolCall)]
        return (
            len(calls) == 1
            and asked.stop_reason == "toolUse"
            and [calls[0].arguments] == [{"code": code} for code in self.ran]
            and not result.is_error
            and self.streamed.count("toolcall_delta") >= 1
            and bool(answered.text.strip())
            and answered.stop_reason == "stop"
            and all(m.usage.input + m.usage.cache_read > 0 for m in (asked, answered))
            and all(m.usage.output > 0 for m in (asked, answered))
        )


async def test_a_tool_is_called_and_its_result_answered():
    """One of three questions leads through a streamed, valid call and its result to an answer."""
    attempts = []
    for question in small_model.QUESTIONS:
        attempts.append(Attempt())
        if await attempts[-1].succeeds(question):
            return

    pytest.fail(f"none succeeded: {[list(a.agent.state.messages)[-4:] for a in attempts]}")


async def test_a_limit_of_tokens_is_the_stop_reason():
    """A reply cut at max_tokens has that many, and says "length"."""
    stream_fn = small_model.carefully(small_model.small_stream_fn(), temperature=0, max_tokens=5)
    asked = agent(stream_fn)

    with anyio.fail_after(LIMIT):
        await asked.prompt(small_model.STORY)

    reply = asked.state.messages[-1]
    assert (reply.stop_reason, reply.usage.output) == ("length", 5)
    assert reply.text


async def test_an_abort_stops_the_generation():
    """An abort in the middle ends the run, keeps what arrived, and the server stops as well."""
    asked = agent(
        small_model.small_stream_fn(),
        on_payload=lambda payload, model: {**payload, **small_model.ENDLESS},
    )
    was_generating = []

    async def listen(event, signal):
        if event.type == "message_update" and not was_generating:
            was_generating.append(await is_generating())
            asked.abort()

    asked.subscribe(listen)

    with anyio.fail_after(LIMIT):
        await asked.prompt(small_model.STORY)

    assert was_generating == [True]
    assert asked.state.messages[-1].stop_reason == "aborted"
    with anyio.fail_after(SOON):
        while await is_generating():
            await anyio.lowlevel.checkpoint()


async def last(stream_fn, path):
    """Return the final message of one request."""
    context = TranscriptContext(messages=[UserMessage(content="hi")])
    with anyio.fail_after(LIMIT):
        stream = stream_fn(local_model(path), context, StreamOptions(max_tokens=5))
        return [event async for event in stream][-1].message


@pytest.mark.parametrize("size", [5_000_000, 1000])
async def test_a_truncated_file_is_an_error_message(tmp_path, size):
    """A download that broke off is told as such, with what to do."""
    path = tmp_path / "cut.gguf"
    with small_model.gguf().open("rb") as whole:
        path.write_bytes(whole.read(size))

    reply = await last(local_stream_fn(path), path)

    assert reply.stop_reason == "error"
    assert f"llama.cpp cannot load {path}: " in reply.error_message
    assert "Is it a complete GGUF file?" in reply.error_message


async def test_a_file_of_another_kind_is_an_error_message(tmp_path):
    """A file that is no GGUF file is told as such."""
    path = tmp_path / "notes.gguf"
    path.write_text("hello")

    reply = await last(local_stream_fn(path), path)

    assert "'hell', expected 'GGUF'" in reply.error_message


async def test_a_wrong_template_is_an_error_message():
    """A chat template with a mistake is named as the cause."""
    path = small_model.gguf()

    reply = await last(local_stream_fn(path, chat_template="{% if", threads=1), path)

    assert reply.error_message.endswith("Check chat_template.")


async def test_a_server_killed_in_the_middle_is_started_again():
    """Killed while it generates, the server is named as the cause, and the next reply is whole."""
    stream_fn, path = small_model.small_stream_fn(), small_model.gguf()
    server, _ = await running(launch(), None)
    context = TranscriptContext(messages=[UserMessage(content=small_model.STORY)])
    endless = StreamOptions(on_payload=lambda payload, _: {**payload, **small_model.ENDLESS})

    with anyio.fail_after(LIMIT):
        async for event in stream_fn(local_model(path), context, endless):
            if event.type == "text_delta" and not server.ended.done():
                os.kill(server._process.pid, signal.SIGKILL)

    assert event.type == "error"
    assert "was ended by SIGKILL" in event.message.error_message
    assert event.message.text
    assert (await last(stream_fn, path)).stop_reason == "length"
