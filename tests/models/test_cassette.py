from __future__ import annotations

import json
import threading

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pi_agent_kernel import Agent, faux_assistant_message, faux_provider, faux_tool_call, tool
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.messages import (
    ImageContent,
    SystemMessage,
    TextContent,
    Tool,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.models.cassette import CassetteRecorder, record_stream_fn, replay_stream_fn
from pi_agent_kernel.models.pydantic_ai import provider_stream_fn
from pi_agent_kernel.request import StreamOptions, TranscriptContext
from pi_agent_kernel.response import ResponseBuilder
from pi_agent_kernel.streams import AssistantMessageEventStream
from pi_agent_kernel.wire import to_json
from provider import GO, LIMIT, failure, in_pieces, model_at
from server import Reply, recorded

MODEL = model_at("")
# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning",
    "ignore:Exception ignored in. <async_generator object:pytest.PytestUnraisableExceptionWarning",
)


def events_in(message):
    """What two runs of one stream may differ in is taken out."""
    if isinstance(message, dict):
        return {
            name: events_in(value)
            for name, value in message.items()
            if name not in ("timestamp", "durationMs", "partial", "origin", "retryAfterMs")
        }
    return [events_in(item) for item in message] if isinstance(message, list) else message


def shape(events):
    """Events as plain values: their type, their fields, the blocks of their partial message."""
    shown = []
    for event in events:
        fields = {"type": event.type, **events_in(to_json(event))}
        if hasattr(event, "partial"):
            fields["content"] = events_in(to_json(event.partial.content))
        shown.append(fields)
    return shown


async def ask(stream_fn, messages=GO, model=MODEL, **options):
    """Return the events of one request."""
    with anyio.fail_after(LIMIT):
        stream = stream_fn(model, TranscriptContext(messages=messages), StreamOptions(**options))
        if not hasattr(stream, "__aiter__"):
            stream = await stream
        return [event async for event in stream]


def lines_of(path):
    """The lines of a cassette."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def scripted(*events_of):
    """A stream function whose nth request gives what the nth function makes of a builder."""
    waiting = list(events_of)

    async def stream(model, context, options):
        builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
        for event in (waiting.pop(0) if len(waiting) > 1 else waiting[0])(builder):
            await anyio.lowlevel.checkpoint()
            yield event

    return stream


def says(*pieces):
    """A response of these pieces."""

    def play(builder):
        yield builder.start()
        opened = builder.text_start()
        yield opened
        for piece in pieces:
            yield builder.text_delta(piece, opened.content_index)
        yield builder.text_end(opened.content_index)
        yield builder.done()

    return play


# ------------------------------------------------------------------------- what comes back


@pytest.mark.parametrize("piece", [7, 65536])
@pytest.mark.parametrize(
    "name",
    [
        *("text", "thinking", "tool", "parallel_tools", "bad_arguments", "length"),
        *("cut", "error", "refusal", "no_finish"),
    ],
)
async def test_replay_gives_the_recorded_events(server, tmp_path, name, piece):
    """A provider's reply, good or bad, comes back event by event, without server and key."""
    server.play(in_pieces(name, piece))
    model = model_at(server.url)
    recording = record_stream_fn(provider_stream_fn(env={}), tmp_path / "c.jsonl")
    came = await ask(recording, model=model)
    asked = len(server.requests)

    again = await ask(replay_stream_fn(tmp_path / "c.jsonl"), model=model)

    assert shape(again) == shape(came)
    assert len(server.requests) == asked == 1


async def test_failed_and_repeated_requests_come_back_in_order(server, tmp_path):
    """Equal requests get their responses in the order they were asked, then the last again."""
    server.play(failure(429), failure(500), "text", "tool")
    model = model_at(server.url)
    recording = record_stream_fn(provider_stream_fn(env={}), tmp_path / "c.jsonl")
    came = [shape(await ask(recording, model=model, max_retries=0)) for _ in range(4)]
    player = replay_stream_fn(tmp_path / "c.jsonl")

    again = [shape(await ask(player, model=model)) for _ in range(5)]

    assert again == [*came, came[-1]]
    assert [last[-1]["type"] for last in came] == ["error", "error", "done", "done"]
    assert (player.played, player.responses) == (4, 4)


async def test_attempts_of_the_adapter_are_announced_again(server, tmp_path):
    """What was told of failed attempts is told in replay, without the wait."""
    server.play(failure(429, **{"retry-after": "0.01"}), failure(503), "text")
    model = model_at(server.url)
    stream_fn = provider_stream_fn(env={}, retry_delay=0.01)
    heard, again = [], []

    async def hear(retry):
        await anyio.lowlevel.checkpoint()
        again.append(retry)

    recording = record_stream_fn(stream_fn, tmp_path / "c.jsonl")
    came = await ask(recording, model=model, on_retry=heard.append)
    back = await ask(replay_stream_fn(tmp_path / "c.jsonl"), model=model, on_retry=hear)

    assert shape(back) == shape(came)
    assert [retry.kind for retry in heard] == ["rate_limit", "overloaded"]
    assert again == [msgspec.structs.replace(retry, delay_ms=0) for retry in heard]


async def test_replay_does_not_wait_for_the_provider(server, tmp_path):
    """What a provider asked to wait is nothing in replay, unless it was too long to be waited."""
    server.play(failure(429, **{"retry-after": "30"}), failure(429, **{"retry-after": "90"}))
    model = model_at(server.url)
    recording = record_stream_fn(provider_stream_fn(env={}), tmp_path / "c.jsonl")
    for _ in range(2):
        await ask(recording, model=model, max_retries=0)
    player = replay_stream_fn(tmp_path / "c.jsonl")

    waits = [
        (await ask(player, model=model))[-1].message.diagnostics[0]["details"]["retryAfterMs"]
        for _ in range(2)
    ]

    assert waits == [0, 90_000]


async def test_an_abort_in_the_middle_is_recorded_and_comes_back(server, tmp_path):
    """What had arrived before an abort is replayed, then the abort."""
    server.play(Reply(recorded("text")[:600], ending="hang"))
    model = model_at(server.url)
    abort = AbortController()
    recording = record_stream_fn(provider_stream_fn(env={}), tmp_path / "c.jsonl")
    came = []
    with anyio.fail_after(LIMIT):
        context, options = TranscriptContext(messages=GO), StreamOptions(signal=abort.signal)
        async for event in recording(model, context, options):
            came.append(event)
            if event.type == "text_delta":
                abort.abort()

    again = await ask(replay_stream_fn(tmp_path / "c.jsonl"), model=model)

    assert came[-1].reason == "aborted"
    assert shape(again) == shape(came)


async def test_a_stream_that_is_left_counts_as_aborted(tmp_path):
    """A generator that is closed in the middle leaves its pieces and an abort in the file."""
    recording = record_stream_fn(scripted(says("a", "b", "c")), tmp_path / "c.jsonl")
    stream = recording(MODEL, TranscriptContext(messages=GO), StreamOptions())
    kinds = []
    async for event in stream:
        kinds.append(event.type)
        if event.type == "text_delta":
            break
    await stream.aclose()

    *again, last = await ask(replay_stream_fn(tmp_path / "c.jsonl"))

    assert [event.type for event in again] == kinds
    assert (last.reason, last.message.text) == ("aborted", "a")


async def test_replay_can_be_aborted(tmp_path):
    """An abort during replay ends the stream as aborted, as a live one."""
    await ask(record_stream_fn(scripted(says("a", "b")), tmp_path / "c.jsonl"))
    abort = AbortController()
    abort.abort()

    (last,) = await ask(replay_stream_fn(tmp_path / "c.jsonl"), signal=abort.signal)

    assert (last.type, last.reason) == ("error", "aborted")


async def test_a_stream_without_a_last_event_comes_back_so(tmp_path):
    """A stream that just ends, or raises, is replayed up to there."""

    def ends(builder):
        yield builder.start()

    def breaks(builder):
        yield builder.start()
        raise OSError("gone")

    recording = record_stream_fn(scripted(ends, breaks), tmp_path / "c.jsonl")
    assert [event.type for event in await ask(recording)] == ["start"]
    with pytest.raises(OSError, match="gone"):
        await ask(recording)
    player = replay_stream_fn(tmp_path / "c.jsonl")

    assert [event.type for event in await ask(player)] == ["start"]
    start, last = await ask(player)
    assert (start.type, last.reason, last.message.error_message) == ("start", "error", "gone")


@pytest.mark.parametrize("how", ["stream", "awaited", "result"])
async def test_streams_that_are_no_generators_are_recorded(tmp_path, how):
    """A pushed stream, an awaited one, and one that ends with a result alone give their events."""

    def stream_fn(model, context, options):
        stream = AssistantMessageEventStream()
        events = list(says("a", "b")(ResponseBuilder(api="x", provider="openai-chat", model="t")))
        for event in events[: -1 if how == "result" else None]:
            stream.push(event)
        stream.end(events[-1].message)

        async def opened():
            await anyio.lowlevel.checkpoint()
            return stream

        return opened() if how == "awaited" else stream

    came = await ask(record_stream_fn(stream_fn, tmp_path / "c.jsonl"))
    again = await ask(replay_stream_fn(tmp_path / "c.jsonl"))

    assert shape(again) == shape(came)
    assert (came[-1].type, came[-1].message.text) == ("done", "ab")


@st.composite
def responses(draw):
    """Steps of a response: blocks that interleave, some of which never end."""
    kinds = draw(st.lists(st.sampled_from(["text", "thinking", "toolCall"]), max_size=4))
    text = st.text(st.characters(), max_size=5) | st.sampled_from(
        ["", " sk-" + "x" * 20, '{"a":1}']
    )
    steps = []
    for index, kind in enumerate(kinds):
        pieces = draw(st.lists(text, max_size=3))
        steps += [("start", kind, index)] + [("delta", kind, index, piece) for piece in pieces]
        steps += [("end", kind, index)] * draw(st.booleans())
    order = draw(st.permutations(range(len(steps))))
    # Blocks start in order; what follows a block's start may come anywhere behind it.
    starts = [step for step in steps if step[0] == "start"]
    rest = [steps[i] for i in order if steps[i][0] == "delta"]
    return starts + rest + [step for step in steps if step[0] == "end"]


@pytest.mark.property
@settings(max_examples=80, deadline=None)
@given(responses(), st.booleans())
def test_any_order_of_pieces_comes_back(tmp_path_factory, steps, fails):
    """Interleaved, empty, odd and unfinished blocks are replayed as they were, secrets aside."""

    def play(builder):
        yield builder.start()
        for action, kind, index, *piece in steps:
            name = kind.lower()
            if action == "start":
                arguments = (f"call_{index}", "f") if kind == "toolCall" else ()
                yield getattr(builder, f"{name}_start")(*arguments)
            elif action == "delta":
                yield getattr(builder, f"{name}_delta")(piece[0], index)
            else:
                yield getattr(builder, f"{name}_end")(index)
        yield builder.error("no luck") if fails else builder.done()

    path = tmp_path_factory.mktemp("any") / "c.jsonl"
    came = shape(anyio.run(ask, record_stream_fn(scripted(play), path)))
    again = shape(anyio.run(ask, replay_stream_fn(path)))

    assert [event["type"] for event in again] == [event["type"] for event in came]
    if "sk-xxx" not in str(came):
        assert again == came
    assert "sk-xxx" not in path.read_text("utf-8")


# ------------------------------------------------------------------------------- the file


def conversation(path, turns, prompt="Turn {}"):
    """Record an agent that calls a tool in every turn; every message has its own text."""

    @tool
    def look(at: int) -> str:
        """Look at something."""
        return f"{at} is {'long ' * 50}"

    faux = faux_provider(cooperative=False)
    faux.set_responses(
        [
            faux_assistant_message(answer)
            for turn in range(turns)
            for answer in (faux_tool_call("look", {"at": turn}), f"I saw {turn}. " * 10)
        ]
    )
    agent = Agent(stream_fn=record_stream_fn(faux.stream_fn, path), model=faux.model())
    agent.state.tools = [look]
    for turn in range(turns):
        agent.prompt_sync(prompt.format(turn))
    assert not agent.state.error_message
    return path.read_bytes()


def test_the_same_conversation_gives_the_same_file(tmp_path):
    """Two recordings are equal byte for byte, though times and ids made up here differ."""
    assert conversation(tmp_path / "a", 3) == conversation(tmp_path / "b", 3)


def test_a_file_grows_with_its_conversation(tmp_path):
    """Twice the turns make twice the file, and a further turn only adds to it."""
    short, long = conversation(tmp_path / "a", 20), conversation(tmp_path / "b", 40)

    assert long.startswith(short)
    assert len(long) < 2.1 * len(short)


def test_a_changed_prompt_changes_its_line(tmp_path):
    """Where the replies stay the same, one other prompt is one other line."""
    before = conversation(tmp_path / "a", 3).splitlines()
    after = conversation(tmp_path / "b", 3, prompt="Go {}").splitlines()
    changed = [line for line in after if line not in before and b'"usage"' not in line]

    assert len(before) == len(after)
    assert [json.loads(line)["content"] for line in changed] == ["Go 0", "Go 1", "Go 2"]


async def test_odd_text_stays_one_line(tmp_path):
    """Line separators, lone surrogates, quotes and right-to-left marks survive, one line each."""
    odd = "a\u2028b\u0085c\nd\r\ne\ud800f\u202eg\x00h\"i'\U0001f600 ä"
    messages = [UserMessage(content=odd)]
    came = await ask(record_stream_fn(scripted(says(odd)), tmp_path / "c.jsonl"), messages)
    text = (tmp_path / "c.jsonl").read_text("utf-8")

    again = await ask(replay_stream_fn(tmp_path / "c.jsonl"), messages)

    assert shape(again) == shape(came)
    assert text.splitlines() == text.removesuffix("\n").split("\n")
    assert "ä" in text


async def test_what_a_model_does_not_see_does_not_count(tmp_path):
    """Times, durations, details and failed replies make no other request."""
    path = tmp_path / "c.jsonl"
    tools = [Tool(name="f", parameters={"type": "object"})]

    def messages(number):
        return [
            SystemMessage(content="Be brief.", tools_added=tools, timestamp=number),
            UserMessage(
                content=[
                    TextContent(text="see"),
                    ImageContent(data="AAAA", mime_type="image/png"),
                ],
                timestamp=number,
            ),
            faux_assistant_message("no", error_message=f"failed {number}"),
            ToolResultMessage(tool_call_id="c", tool_name="f", details=number, duration_ms=number),
        ]

    await ask(record_stream_fn(scripted(says("x")), path), messages(1))

    assert (await ask(replay_stream_fn(path), messages(2)))[-1].type == "done"


async def test_a_request_can_keep_a_part_of_another(tmp_path):
    """A shortened or forked conversation refers to what it shares, and is found again."""
    path = tmp_path / "c.jsonl"
    recording = record_stream_fn(scripted(says("one"), says("two"), says("three")), path)
    a, b, c = (UserMessage(content=text) for text in "abc")
    requests = [[a, b], [a, c], [c]]
    came = [shape(await ask(recording, messages)) for messages in requests]
    player = replay_stream_fn(path)

    assert [shape(await ask(player, messages)) for messages in reversed(requests)] == came[::-1]
    fork = next(line for line in lines_of(path) if line.get("request") == 2)
    assert (fork["after"], fork["keep"]) == (1, 1)


async def test_agents_in_parallel_share_a_file(tmp_path):
    """Responses that end in another order than they began, in several threads, find their way."""
    path = tmp_path / "c.jsonl"
    recorder = CassetteRecorder(path)
    first = threading.Event()

    async def stream(model, context, options):
        builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
        text = context.messages[0].text
        yield builder.start()
        while text == "0" and not first.is_set():  # ends last
            await anyio.lowlevel.checkpoint()
        yield builder.done()

    def run(number):
        anyio.run(ask, recorder.wrap(stream), [UserMessage(content=str(number))])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join(LIMIT)
    first.set()
    threads[0].join(LIMIT)
    player = replay_stream_fn(path)

    for number in range(8):
        events = await ask(player, [UserMessage(content=str(number))])
        assert events[-1].type == "done"
    assert recorder.responses == player.played == 8
