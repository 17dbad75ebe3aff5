from __future__ import annotations

import json

import anyio
import anyio.lowlevel
import pytest
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.events import StreamDone, StreamError, ToolCallDelta
from pi_agent_kernel.messages import (
    AssistantMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolReference,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.models.faux import (
    faux_assistant_message,
    faux_provider,
    faux_text,
    faux_thinking,
    faux_tool_call,
)
from pi_agent_kernel.request import Model, Prefix, StreamOptions, TranscriptContext

GO = TranscriptContext(messages=[UserMessage(content="go")])


async def play(faux, context=GO, **options):
    """Return the events of one request."""
    stream = faux.stream_fn(faux.model(), context, StreamOptions(**options))
    return [event async for event in stream]


async def ask(faux, context=GO, **options):
    """Return the final message of one request."""
    return (await play(faux, context, **options))[-1].message


async def test_responses_are_taken_in_order_and_then_run_out():
    """Each request takes the next response; an empty queue is an error of a fixed text."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("first"), faux_assistant_message("second")])

    texts = [(await ask(faux)).text for _ in range(2)]
    (exhausted,) = await play(faux)

    assert texts == ["first", "second"]
    assert isinstance(exhausted, StreamError)
    assert exhausted.reason == exhausted.error.stop_reason == "error"
    assert exhausted.error.error_message == "No more faux responses queued"
    assert exhausted.error.content == ()
    assert exhausted.error.usage.input == 2
    assert (faux.pending, faux.call_count, faux.state.call_count) == (0, 3, 3)


async def test_set_replaces_and_append_adds():
    """`set_responses` forgets what was queued, `append_responses` keeps it."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("old")])
    faux.set_responses([faux_assistant_message("a")])
    faux.append_responses([faux_assistant_message("b"), faux_assistant_message("c")])

    assert faux.pending == 3
    assert [(await ask(faux)).text for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize("responses", [["text"], [None], faux_assistant_message("alone")])
def test_a_response_that_is_none_is_refused_at_once(responses):
    """What is neither a message nor a function is refused where it is queued."""
    with pytest.raises(TypeError, match="message"):
        faux_provider().set_responses(responses)


async def test_a_function_sees_the_request():
    """A response function gets context, options, state and model; plain or async."""
    faux = faux_provider(["one", "two"])
    seen = []

    def plain(context, options, state, model):
        seen.append((context, options.reasoning, state.call_count, model.id))
        return faux_assistant_message("plain")

    async def late(context, options, state, model):
        await anyio.lowlevel.checkpoint()
        return faux_assistant_message(f"call {state.call_count}")

    faux.set_responses([plain, late])

    assert (await ask(faux, reasoning="low")).text == "plain"
    assert (await ask(faux)).text == "call 2"
    assert seen == [(GO, "low", 1, "one")]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (lambda *_: 1 / 0, "division by zero"),
        (lambda *_: "text", "returned 'text'"),
        (lambda *_: (_ for _ in ()).throw(KeyError()), "KeyError"),
        (faux_assistant_message("x", stop_reason="pending"), "without a stop reason"),
    ],
)
async def test_a_failing_response_is_an_error_event(response, text):
    """A response function that raises or returns something else ends the stream as an error."""
    faux = faux_provider()
    faux.set_responses([response])

    (event,) = await play(faux)

    assert isinstance(event, StreamError)
    assert text in event.error.error_message
    assert event.error.content == ()


async def test_blocks_stream_one_after_the_other():
    """Every block has a start, deltas that join to it and an end; then the message is done."""
    faux = faux_provider(token_size=1)
    call = faux_tool_call("add", {"a": 1, "text": "Grüße 🌍"})
    reply = faux_assistant_message([faux_thinking("hmm, well"), faux_text("Hello"), call])
    faux.set_responses([reply])

    events = await play(faux)

    assert [event.type for event in events if not event.type.endswith("_delta")] == [
        "start",
        "thinking_start",
        "thinking_end",
        "text_start",
        "text_end",
        "toolcall_start",
        "toolcall_end",
        "done",
    ]
    joined = ["", "", ""]
    for event in events:
        if event.type.endswith("_delta"):
            joined[event.content_index] += event.delta
            assert 1 <= len(event.delta) <= 4
    assert joined == ["hmm, well", "Hello", '{"a":1,"text":"Grüße 🌍"}']
    done = events[-1]
    assert isinstance(done, StreamDone)
    assert done.reason == "toolUse"
    assert done.message.content == reply.content
    assert events[-2].tool_call == call
    assert events[-2].partial.content == done.message.content


async def test_the_partial_is_the_message_at_that_event():
    """An event's partial shows what had come by then, whenever it is read (MD-05)."""
    faux = faux_provider(token_size=1)
    reply = faux_assistant_message(
        [faux_text("Hello you"), faux_tool_call("f", {"name": "abcdef"}, "c1")], response_id="r1"
    )
    faux.set_responses([reply])

    events = await play(faux)
    arguments = [
        dict(event.partial.content[1].arguments)
        for event in events
        if isinstance(event, ToolCallDelta)
    ]
    texts = [event.partial.text for event in events if event.type == "text_delta"]
    start = events[0].partial

    assert texts == ["Hell", "Hello yo", "Hello you"]
    assert arguments == [{}, {}, {"name": "abc"}, {"name": "abcdef"}, {"name": "abcdef"}]
    assert (start.content, start.stop_reason, start.response_id) == ((), "pending", "r1")
    assert start.usage == events[-1].message.usage
    assert events[6].partial.content[1] == ToolCall(id="c1", name="f")


async def test_an_empty_text_has_one_empty_delta():
    """An empty block streams like any other."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("")])

    assert [getattr(event, "delta", None) for event in await play(faux)] == [
        None,
        None,
        "",
        None,
        None,
    ]


async def test_chunk_sizes_are_random_but_repeatable():
    """Sizes stay in their bounds, vary, and are the same for equal seeds."""

    async def sizes(**options):
        faux = faux_provider(**options)
        faux.set_responses([faux_assistant_message("x" * 4000)])
        return [len(event.delta) for event in await play(faux) if event.type == "text_delta"][:-1]

    first = await sizes()

    assert set(first) == {12, 16, 20}
    assert first == await sizes()
    assert first != await sizes(seed=1)
    assert set(await sizes(token_size=(1, 2))) == {4, 8}
    assert set(await sizes(token_size=7)) == {28}


@pytest.mark.parametrize("size", [0, -1, (0, 3), (4, 3)])
def test_a_token_size_must_be_positive(size):
    """A chunk of nothing would never end the stream."""
    with pytest.raises(ValueError, match="token_size"):
        faux_provider(token_size=size)


async def test_other_tasks_run_between_chunks():
    """Every chunk lets the scheduler run other tasks once, unless that is switched off."""

    async def turns(**options):
        faux = faux_provider(token_size=1, **options)
        faux.set_responses([faux_assistant_message("x" * 80)])
        count = 0

        async def other():
            nonlocal count
            while True:
                await anyio.lowlevel.checkpoint()
                count += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await anyio.lowlevel.checkpoint()
            count = 0
            await play(faux)
            tasks.cancel_scope.cancel()
        return count

    assert await turns() >= 15
    assert await turns(cooperative=False) <= 1


async def test_pace_follows_the_tokens(monkeypatch):
    """With tokens per second, each chunk waits for its tokens, four characters each."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    faux = faux_provider(token_size=2, tokens_per_second=10)
    faux.set_responses([faux_assistant_message("x" * 17)])
    await play(faux)

    assert waits == [0.2, 0.2, 0.1]


async def test_usage_is_estimated_as_in_the_reference():
    """Four characters a token; numbers taken from pi-ai 1.6.0 for the same messages (MD-18)."""
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    system = SystemMessage(
        content="Be brief.",
        sections={"style": "plain", "gone": None},
        tools_added=[Tool(name="add", description="Add.", parameters=parameters)],
        tools_removed=[ToolReference(name="old")],
    )
    user = UserMessage(content="Grüße, please add")
    answer = AssistantMessage(
        content=[
            ThinkingContent(thinking="hmm"),
            TextContent(text="ok"),
            ToolCall(id="1", name="add", arguments={"a": 1, "b": "é"}),
        ]
    )
    image = ImageContent(data="AAAA", mime_type="image/png")
    result = ToolResultMessage(
        tool_call_id="1", tool_name="add", content=[TextContent(text="3"), image]
    )
    second = ImageContent(data="AAAAAA", mime_type="image/gif")
    more = UserMessage(content=[TextContent(text="and now"), second])
    short, long = [system, user], [system, user, answer, result, more]
    other = [system, UserMessage(content="Grüße, other")]
    faux = faux_provider()

    async def usage(messages, session_id=None):
        blocks = [
            faux_thinking("th"), faux_text("done then"), faux_tool_call("add", {"a": 1}, "x")
        ]  # fmt: skip
        faux.set_responses([faux_assistant_message(blocks)])
        got = (await ask(faux, TranscriptContext(messages=messages), session_id=session_id)).usage
        assert got.output == 6
        assert got.cost.total == 0
        return got.input, got.cache_read, got.cache_write, got.total_tokens

    assert await usage(short) == (45, 0, 0, 51)
    assert await usage(long) == (73, 0, 0, 79)
    assert await usage(short, "s") == (0, 0, 45, 51)
    assert await usage(long, "s") == (0, 45, 28, 79)
    assert await usage(other, "s") == (0, 43, 1, 50)
    assert await usage([user], "t") == (0, 0, 6, 12)
    assert await usage([]) == (0, 0, 0, 6)
    # Views of one growing list, as the loop sends them, count the same.
    assert await usage(Prefix(long, 2), "v") == (0, 0, 45, 51)
    assert await usage(Prefix(long), "v") == (0, 45, 28, 79)
    assert await usage(Prefix(long, 2), "v") == (0, 45, 0, 51)


async def test_sampling_constraints_count():
    """All of a tool's declaration is part of the prompt."""
    faux = faux_provider()

    async def size(**constraint):
        faux.set_responses([faux_assistant_message("x")])
        system = SystemMessage(tools_added=[Tool(name="f", **constraint)])
        return (await ask(faux, TranscriptContext(messages=[system]))).usage.input

    assert await size(constrained_sampling={"grammar": "x" * 40}) > await size() + 10


async def test_a_changed_list_is_measured_again():
    """A caller's list that was edited in place is not taken for the one before."""
    faux = faux_provider()
    messages = [UserMessage(content="a" * 40), UserMessage(content="b")]
    faux.set_responses([faux_assistant_message("x")] * 2)

    before = await ask(faux, TranscriptContext(messages=messages))
    messages[0] = UserMessage(content="a" * 400)
    after = await ask(faux, TranscriptContext(messages=messages))

    assert after.usage.input == before.usage.input + 90


async def test_an_aborted_request_takes_no_response():
    """Abort is checked before the start; the response stays for the next request."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("kept")])
    controller = AbortController()
    controller.abort()

    (event,) = await play(faux, signal=controller.signal)

    assert isinstance(event, StreamError)
    assert event.reason == event.error.stop_reason == "aborted"
    assert event.error.error_message == "Request was aborted"
    assert faux.pending == 1


async def test_abort_between_chunks_keeps_what_came():
    """Abort while streaming ends the stream with the part sent so far."""
    faux = faux_provider(token_size=1)
    faux.set_responses([faux_assistant_message([faux_text("abcdefgh"), faux_text("more")])])
    controller = AbortController()
    events = []
    async for event in faux.stream_fn(faux.model(), GO, StreamOptions(signal=controller.signal)):
        events.append(event)
        if event.type == "text_delta":
            controller.abort()

    assert [event.type for event in events] == ["start", "text_start", "text_delta", "error"]
    assert events[-1].error.text == "abcd"
    assert events[-1].error.stop_reason == "aborted"
    assert events[-1].error.usage.output > 0


async def test_abort_between_blocks():
    """Abort after a block has ended is noticed before the next one starts."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message([faux_text("one"), faux_text("two")])])
    controller = AbortController()
    events = []
    async for event in faux.stream_fn(faux.model(), GO, StreamOptions(signal=controller.signal)):
        events.append(event)
        if event.type == "text_end":
            controller.abort()

    assert events[-1].error.content == (faux_text("one"),)


async def test_abort_while_the_response_is_made():
    """A response whose function ran into the abort is not streamed."""
    faux = faux_provider()
    controller = AbortController()

    def respond(*_):
        controller.abort()
        return faux_assistant_message("late")

    faux.set_responses([respond])

    (event,) = await play(faux, signal=controller.signal)

    assert event.reason == "aborted"
    assert event.error.content == ()


async def test_on_response_comes_first():
    """`on_response` hears of status 200 before anything else happens; it may be async."""
    faux = faux_provider()
    heard = []

    async def on_response(response, model):
        heard.append((response["status"], model.id))

    def respond(*_):
        heard.append("response")
        return faux_assistant_message("x")

    faux.set_responses([respond])
    await play(faux, on_response=on_response)

    assert heard == [(200, "faux-1"), "response"]


async def test_an_error_message_ends_as_an_error_with_its_content():
    """A scripted failure streams its content, then ends in an error event."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("half", error_message="overloaded")])

    events = await play(faux)

    assert isinstance(events[-1], StreamError)
    assert events[-1].error.text == "half"
    assert events[-1].error.error_message == "overloaded"


async def test_the_message_names_the_faux_and_the_requested_model():
    """Whatever the scripted message says, the final one names the provider and the request."""
    faux = faux_provider(api="api", provider="someone")
    faux.set_responses([faux_assistant_message("x", timestamp=5)])
    stream = faux.stream_fn(Model(id="other"), GO)
    message = [event async for event in stream][-1].message

    assert (message.api, message.provider, message.model) == ("api", "someone", "other")
    assert message.timestamp == 5


def test_models_are_found_by_id():
    """`model()` is the first model; an unknown id is an error that lists the known ones."""
    own = Model(id="own", context_window=5)
    faux = faux_provider(["a", own])

    assert faux.model().id == "a"
    assert faux.model().input == ("text", "image")
    assert faux.model("own") is own
    with pytest.raises(ModelError, match="a, own"):
        faux.model("b")
    with pytest.raises(ValueError, match="models"):
        faux_provider("faux-1")


def test_builders_fill_in_what_is_missing():
    """Content may be text, a block or blocks; stop reason and ids follow from it."""
    call = faux_tool_call("f", {"a": [1]})

    assert faux_assistant_message("x").content == (faux_text("x"),)
    assert faux_assistant_message(faux_text("x")).stop_reason == "stop"
    assert faux_assistant_message([faux_text("x"), call]).stop_reason == "toolUse"
    assert faux_assistant_message(call, stop_reason="length").stop_reason == "length"
    assert faux_assistant_message([]).content == ()
    assert call.id != faux_tool_call("f", {}).id
    assert faux_tool_call("f", {}, id="c").id == "c"
    assert json.loads(json.dumps(call.arguments)) == {"a": [1]}
