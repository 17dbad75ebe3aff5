from __future__ import annotations

import sys

import pytest
from pi_agent_kernel import (
    ResponseBuilder,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolCallEnd,
    Usage,
)


@pytest.fixture
def builder():
    return ResponseBuilder(api="a", provider="p", model="m", timestamp=7)


def everything(builder):
    """Report one block of each kind, interleaved; returns the events."""
    events = [builder.start()]
    events.append(builder.thinking_start())
    events.append(builder.thinking_delta("hm", 0))
    events.append(builder.text_start())
    events.append(builder.text_delta("he", 1))
    events.append(builder.thinking_delta("m", 0))
    events.append(builder.text_delta("llo", 1))
    events.append(builder.toolcall_start("c1", "t"))
    events.append(builder.toolcall_delta('{"a": [1,', 2))
    events.append(builder.thinking_end(0, signature="sig"))
    events.append(builder.toolcall_delta(" 2]}", 2))
    events.append(builder.text_end(1, signature="s"))
    events.append(builder.toolcall_end(2))
    return events


def shown(message):
    """The blocks of a message, in short."""
    found = []
    for block in message.content:
        match block:
            case TextContent(text=text):
                found.append(text)
            case ThinkingContent(thinking=text):
                found.append(f"({text})")
            case ToolCall(arguments=arguments):
                found.append(dict(arguments))
    return found


EXPECTED = [
    [],
    ["()"],
    ["(hm)"],
    ["(hm)", ""],
    ["(hm)", "he"],
    ["(hmm)", "he"],
    ["(hmm)", "hello"],
    ["(hmm)", "hello", {}],
    ["(hmm)", "hello", {"a": [1]}],
    ["(hmm)", "hello", {"a": [1]}],
    ["(hmm)", "hello", {"a": [1, 2]}],
    ["(hmm)", "hello", {"a": [1, 2]}],
    ["(hmm)", "hello", {"a": [1, 2]}],
]


@pytest.mark.parametrize("order", ["forward", "backward", "mixed"])
def test_a_partial_is_what_was_there(builder, order):
    """Each event's partial is the message as it was then, in whatever order it is read (MD-05)."""
    events = everything(builder)
    at = {
        "forward": list(range(len(events))),
        "backward": list(reversed(range(len(events)))),
        "mixed": [5, 12, 0, 8, 8, 3, 12, 1],
    }[order]

    assert {i: shown(events[i].partial) for i in at} == {i: EXPECTED[i] for i in at}
    assert {event.partial.stop_reason for event in events} == {"pending"}


def test_events_can_be_made_again(builder):
    """`event_at` gives an event equal to the one that was sent (MD-05)."""
    events = everything(builder)

    assert [builder.event_at(event.at) for event in events] == events
    assert [event.type for event in events[:4]] == [
        *("start", "thinking_start", "thinking_delta", "text_start"),
    ]
    assert [event.content_index for event in events[1:6]] == [0, 0, 1, 1, 0]


def test_earlier_partials_never_change(builder):
    """A partial that was read is a value; its arguments are a new object each time (MD-06)."""
    builder.toolcall_start("c", "t")
    first = builder.toolcall_delta('{"a": "x', 0).partial
    second = builder.toolcall_delta('yz"', 0).partial
    builder.toolcall_delta(', "b": 1}', 0).partial.content[0]

    assert first.content[0].arguments == {"a": "x"}
    assert second.content[0].arguments == {"a": "xyz"}
    with pytest.raises(TypeError):
        first.content[0].arguments["a"] = 1


def test_the_end_of_a_block_is_authoritative(builder):
    """What the provider says at the end overrides its deltas (MD-05)."""
    builder.text_start()
    builder.text_delta("approximately", 0)
    text = builder.text_end(0, "exactly")
    builder.thinking_start()
    builder.thinking_delta("x", 1)
    thinking = builder.thinking_end(1, "y", redacted=True)

    assert (text.content, thinking.content) == ("exactly", "y")
    message = builder.done().message
    assert message.content == (
        TextContent(text="exactly"),
        ThinkingContent(thinking="y", redacted=True),
    )


def test_done(builder):
    """The final message has all that was reported (MD-02)."""
    everything(builder)
    builder.fields["usage"] = Usage(input=1)
    builder.fields["response_id"] = "r"
    done = builder.done()

    assert (done.reason, done.message.stop_reason) == ("toolUse", "toolUse")
    message = done.message
    assert (message.api, message.provider, message.model, message.timestamp) == ("a", "p", "m", 7)
    assert (message.usage.input, message.response_id) == (1, "r")
    assert message.content[0].thinking_signature == "sig"
    assert message.content[1].text_signature == "s"
    assert message.tool_calls == (ToolCall(id="c1", name="t", arguments={"a": [1, 2]}),)
    assert builder.message_at(2).content == (ThinkingContent(thinking="hm"),)


@pytest.mark.parametrize("reason", ["stop", "length", "toolUse", "deferred"])
def test_a_stop_reason_may_be_given(builder, reason):
    """It wins over what the blocks say (MD-04)."""
    assert builder.done(reason, usage=Usage(output=2)).message.stop_reason == reason


def test_without_calls_the_reason_is_stop(builder):
    """An empty or a text response stopped by itself (MD-02)."""
    assert builder.done().reason == "stop"
    assert builder.done().message.usage == Usage()


@pytest.mark.parametrize("aborted", [False, True])
def test_an_error_keeps_what_arrived(builder, aborted):
    """Partial blocks stay in the message (FL-01, AB-02)."""
    builder.text_start()
    builder.text_delta("half", 0)
    event = builder.error("lost", aborted=aborted, usage=Usage(output=1))

    reason = "aborted" if aborted else "error"
    assert (event.type, event.reason, event.message.stop_reason) == ("error", reason, reason)
    assert (event.message.text, event.message.error_message) == ("half", "lost")
    assert event.message.usage.output == 1


@pytest.mark.parametrize(
    ("text", "arguments", "error"),
    [
        ("", {}, False),
        ("  ", {}, False),
        ('{"n": 1}', {"n": 1}, False),
        ('{"n": 1', {}, True),
        ("[1]", {}, True),
        ('{"n": NaN}', {}, True),
    ],
)
def test_argument_text_is_parsed_at_the_end(builder, text, arguments, error):
    """Text that is no JSON object gives an error, never a partial execution (TL-06, B13)."""
    builder.toolcall_start("c", "t")
    builder.toolcall_delta(text, 0)
    event = builder.toolcall_end(0)

    assert isinstance(event, ToolCallEnd)
    assert event.tool_call.arguments == arguments
    assert (event.tool_call.arguments_error is not None) is error


@pytest.mark.parametrize(
    ("text", "arguments", "error"),
    [
        ('{"path": "/im', {}, "/im"),
        ('{"n": 1} {', {}, "Extra data"),
        ("[1]", {}, "object"),
        ("", {}, "not completed"),
        ('{"n": 1}', {"n": 1}, None),
    ],
)
def test_a_call_that_was_not_ended_never_runs_by_halves(builder, text, arguments, error):
    """Only a whole JSON object counts as its arguments at the end of a response (MD-08, TL-06)."""
    builder.toolcall_start("c", "t")
    builder.text_start()
    builder.toolcall_delta(text[:5], 0)
    builder.text_delta("x", 1)
    builder.toolcall_delta(text[5:], 0)
    message = builder.done("toolUse").message

    [call] = message.tool_calls
    assert (call.id, call.name, call.arguments, message.text) == ("c", "t", arguments, "x")
    assert call.arguments_error is error if error is None else error in call.arguments_error


def test_a_call_that_an_error_cut_shows_what_came(builder):
    """A message that failed keeps the partial arguments: none of its calls runs (MD-06, FL-01)."""
    builder.toolcall_start("c", "t")
    builder.toolcall_delta('{"path": "/im', 0)

    [call] = builder.error("lost").message.tool_calls
    assert (call.arguments, call.arguments_error) == ({"path": "/im"}, None)


def test_many_open_calls_end_in_linear_time(builder):
    """A thousand calls that nobody ended are read in one pass."""
    calls = [builder.toolcall_start(f"c{n}", "t").content_index for n in range(1000)]
    for index in calls:
        builder.toolcall_delta('{"n": 1}', index)

    steps = 0

    def trace(_frame, event, _argument):
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        message = builder.done().message
    finally:
        sys.settrace(before)

    assert all(call.arguments == {"n": 1} for call in message.tool_calls)
    assert steps < 500_000


def test_a_complete_call_may_be_given(builder):
    """A provider that sends the call as an object hands it over (B10)."""
    mine = ToolCall(id="c", name="t", arguments={"n": 1}, namespace="x")
    builder.toolcall_start("c", "t")

    assert builder.toolcall_end(0, mine).tool_call is mine
    assert builder.done().message.tool_calls == (mine,)


def test_ending_a_block_of_another_kind_as_a_call(builder):
    """It is an error that names the block."""
    builder.text_start()

    with pytest.raises((TypeError, ValueError), match="Block 0"):
        builder.toolcall_end(0)


def test_a_partial_of_a_growing_call_is_an_object(builder):
    """Arguments are never null; a text that is no object shows as empty (MD-06, MD-07)."""
    builder.toolcall_start("c", "t")
    seen = [
        builder.toolcall_delta(piece, 0).partial.content[0].arguments for piece in ("[", "1", "]")
    ]

    assert seen == [{}, {}, {}]


def test_reading_from_two_threads(builder):
    """Partials may be read from any thread while the response grows (api.md)."""
    import threading

    builder.text_start()
    events = [builder.text_delta("x", 0) for _ in range(200)]
    wrong = []

    def read(step):
        wrong.extend(
            event.at for event in events[::step] if len(event.partial.text) != event.at - 1
        )

    threads = [threading.Thread(target=read, args=[step]) for step in (1, -1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
