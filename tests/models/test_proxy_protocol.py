from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pi_agent_kernel.events import StreamDone, TextEnd
from pi_agent_kernel.messages import (
    AssistantMessage,
    Cost,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from pi_agent_kernel.models.proxy_protocol import (
    KEEP_ALIVE,
    decode_proxy_request,
    encode_proxy_event,
    encode_proxy_request,
)
from pi_agent_kernel.models.proxy_reader import CLOSED_EARLY, ProxyReader
from pi_agent_kernel.request import Model, ModelCost, StreamOptions, TranscriptContext
from pi_agent_kernel.response import ResponseBuilder
from pi_agent_kernel.wire import to_json

MODEL = Model(id="m-1", provider="p", api="a", cost=ModelCost(input=3), context_window=1000)
USAGE = Usage(input=3, output=4, total_tokens=7, cost=Cost(input=0.25, total=0.25))

# ------------------------------------------------------------------------------ round trip

# Any text, halves of surrogate pairs included: a provider may cut between them.
texts = st.text(st.characters() | st.sampled_from("\ud83d\udc4d\u2028\r\n"), max_size=8)
blocks = st.tuples(
    st.sampled_from(["text", "thinking", "toolcall"]),
    st.lists(texts, max_size=4),
    st.booleans(),  # whether its end comes
    st.none() | texts,  # what its end says instead of the pieces
    st.none() | texts,  # its signature
)


@st.composite
def responses(draw):
    """Make the events of a response whose blocks interleave, some of them without an end."""
    builder = ResponseBuilder(api="a", provider="p", model="m-1", timestamp=17)
    events = [builder.start()]
    waiting = draw(st.lists(blocks, max_size=4))
    active: list[list] = []
    while waiting or active:
        if waiting and (not active or draw(st.booleans())):
            kind, pieces, ends, content, signature = waiting.pop(0)
            if kind == "toolcall":
                opened = builder.toolcall_start(f"call-{len(events)}", "look")
            else:
                opened = getattr(builder, f"{kind}_start")()
            events.append(opened)
            index = opened.content_index
            active.append([kind, index, list(pieces), ends, content, signature])
            continue
        block = draw(st.sampled_from(active))
        kind, index, pieces, ends, content, signature = block
        if pieces:
            events.append(getattr(builder, f"{kind}_delta")(pieces.pop(0), index))
            continue
        active.remove(block)
        if not ends:
            continue
        if kind == "text":
            events.append(builder.text_end(index, content, signature=signature))
        elif kind == "thinking":
            redacted = True if signature else None
            events.append(
                builder.thinking_end(index, content, signature=signature, redacted=redacted)
            )
        elif content is None:
            events.append(builder.toolcall_end(index))
        else:
            call = ToolCall(id="x", name="look", arguments={"at": content}, thought_signature="s")
            events.append(builder.toolcall_end(index, call))
    builder.fields["response_id"] = "r-1"
    builder.fields["diagnostics"] = [{"type": "note"}]
    ending = draw(st.sampled_from(["done", "length", "error", "aborted"]))
    if ending == "done":
        events.append(builder.done(usage=USAGE))
    elif ending == "length":
        events.append(builder.done("length", usage=USAGE))
    else:
        events.append(builder.error("No luck", aborted=ending == "aborted", usage=USAGE))
    return events


def read(pieces, model=MODEL):
    """Feed pieces of bytes to a reader and end the connection."""
    reader = ProxyReader(model)
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.finish()


def shown(event):
    """Give what an event carries, without the record it points into."""
    names = [name for name in event.__struct_fields__ if name not in ("origin", "at")]
    return (event.type, *(getattr(event, name) for name in names))


def cut(body, size):
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.property
@settings(max_examples=300, deadline=None)
@given(responses(), st.integers(1, 200), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_any_response_survives_the_wire(events, size, newline, keep_alive):
    """Encoded, cut anywhere and read again, a response has the same events and final message."""
    lines = [encode_proxy_event(event) for event in events]
    body = (KEEP_ALIVE if keep_alive else b"").join(lines).replace(b"\n", newline)

    back = read(cut(body, size))

    assert [shown(event) for event in back] == [shown(event) for event in events]
    assert [e.partial.content for e in back[:-1]] == [e.partial.content for e in events[:-1]]


@pytest.mark.property
@settings(max_examples=200, deadline=None)
@given(responses(), st.data())
def test_a_response_that_breaks_off_keeps_what_came(events, data):
    """However many bytes arrive, there is one last event; whole lines before it are kept."""
    body = b"".join(map(encode_proxy_event, events[:-1]))
    arrived = data.draw(st.integers(0, len(body)))

    back = read([body[:arrived]])

    assert [shown(event) for event in back[:-1]] == [shown(e) for e in events[: len(back) - 1]]
    last = back[-1]
    assert (last.type, last.reason, last.message.error_message) == ("error", "error", CLOSED_EARLY)
    if back[1:]:
        assert last.message.content == back[-2].partial.content


@pytest.mark.property
@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.sampled_from([
    b"data: {}\n", b'data: {"type":"start"}\n', b"data: [1]\n", b"data:\n", b"data: [DONE]\n",
    b'data: {"type":"text_start","contentIndex":0}\n',
    b'data: {"type":"text_delta","contentIndex":0,"delta":1}\n',
    b'data: {"type":"done","reason":"stop","usage":{}}\n',
    b'data: {"type":"done","reason":"stop","message":{"role":"user"}}\n',
    b"data: " + b"[" * 5000 + b"\n", b"data: " + b"9" * 5000 + b"\n",
]), max_size=8))  # fmt: skip
def test_no_bytes_make_the_reader_raise(pieces):
    """Whatever a proxy sends, there is exactly one last event, and it is the last."""
    events = read(pieces)

    ends = [event for event in events if event.type in ("done", "error")]
    assert ends == events[-1:]


# ------------------------------------------------------------------------------ the reader


def lines(*events):
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


START = {"type": "start"}
TEXT = {"type": "text_start", "contentIndex": 0}
HI = {"type": "text_delta", "contentIndex": 0, "delta": "Hi"}
DONE = {"type": "done", "reason": "stop", "usage": {
    "input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 3,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
}}  # fmt: skip
CALL = {"type": "toolcall_start", "contentIndex": 0, "id": "c1", "toolName": "look"}


def test_the_references_events_are_enough():
    """Without message and content, as the reference's servers send, the pieces are the message."""
    end = {"type": "text_end", "contentIndex": 0, "contentSignature": "sig"}
    done = {**DONE, "providerThinkingLevel": "high"}

    *_, text_end, last = read([lines(START, TEXT, HI, end, done)])

    assert isinstance(text_end, TextEnd)
    assert isinstance(last, StreamDone)
    assert text_end.content == "Hi"
    assert last.message.content == (TextContent(text="Hi", text_signature="sig"),)
    assert (last.message.usage.total_tokens, last.message.stop_reason) == (3, "stop")
    assert last.message.provider_thinking_level == "high"
    assert (last.message.api, last.message.provider, last.message.model) == ("a", "p", "m-1")


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [('{"path": "/im', {}, "/im"), ("", {}, "not completed"), ('{"n": 1}', {"n": 1}, None)],
)
def test_a_call_without_its_end_never_runs_by_halves(text, arguments, told):
    """A `done` with a call still open leaves it to the strict parser (MD-08, PX-02)."""
    reader = ProxyReader(MODEL)
    for line in (
        {"type": "toolcall_start", "contentIndex": 0, "id": "c", "toolName": "t"},
        {"type": "toolcall_delta", "contentIndex": 0, "delta": text},
    ):
        reader.feed(f"data: {json.dumps(line)}\n".encode())
    [done] = reader.feed(b'data: {"type": "done", "reason": "toolUse"}\n')

    [call] = done.message.tool_calls
    assert call.arguments == arguments
    assert call.arguments_error is None if told is None else told in call.arguments_error


def test_a_tool_call_ends_with_the_call_that_its_end_carries():
    """The final call counts, not what the pieces spell; without one the pieces are parsed."""
    piece = {"type": "toolcall_delta", "contentIndex": 0, "delta": '{"at": 1}'}
    end = {"type": "toolcall_end", "contentIndex": 0}
    final = {"type": "toolCall", "id": "c1", "name": "look", "arguments": {"at": 2}}

    given_call = read([lines(CALL, piece, {**end, "toolCall": final}, DONE)])[-1].message
    parsed = read([lines(CALL, piece, end, DONE)])[-1].message

    assert given_call.tool_calls[0].arguments == {"at": 2}
    assert parsed.tool_calls == (ToolCall(id="c1", name="look", arguments={"at": 1}),)


@pytest.mark.parametrize(
    ("before", "event"),
    [
        (CALL, HI),
        (CALL, {"type": "thinking_delta", "contentIndex": 0, "delta": "x"}),
        (TEXT, {"type": "toolcall_delta", "contentIndex": 0, "delta": "x"}),
        (CALL, {"type": "text_end", "contentIndex": 0}),
        (TEXT, {"type": "thinking_end", "contentIndex": 0}),
        (TEXT, {**HI, "contentIndex": 1}),
    ],
)
def test_a_piece_of_another_kind_is_an_error(before, event):
    """A delta, or the end of text or thinking, for a block of another kind ends the response."""
    *_, last = read([lines(START, before, event, DONE)])

    assert (last.type, last.reason) == ("error", "error")
    assert event["type"] in last.message.error_message
    assert len(last.message.content) == 1


@pytest.mark.parametrize(
    "event",
    [
        {"type": "toolcall_end", "contentIndex": 0},
        {"type": "toolcall_end", "contentIndex": 7},
        {"type": "novelty", "contentIndex": "x"},
        {"type": "start"},
    ],
)
def test_what_does_not_matter_is_skipped(event):
    """A mismatched toolcall_end, an unknown type and a second start change nothing."""
    events = read([lines(START, TEXT, event, HI, DONE)])

    assert [e.type for e in events] == ["start", "text_start", "text_delta", "done"]
    assert events[-1].message.text == "Hi"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'data: {"type": \n', "not JSON"),
        (b"data: \xff\xfe\n", "not JSON"),
        (b"data: 3\n", "not an object"),
        (b'data: {"type":"text_delta","contentIndex":0}\n', "delta"),
        (b'data: {"type":"done","reason":"tired"}\n', "reason"),
        (b'data: {"type":"done","reason":"stop","usage":{"input":"x"}}\n', "usage"),
        (b'data: {"type":"error","reason":"error","message":{"role":"user"}}\n', "role"),
    ],
)
def test_a_line_that_cannot_be_read_is_an_error(line, told):
    """It says what is wrong with the line and keeps what came before it."""
    *_, last = read([lines(START, TEXT, HI) + line + lines(DONE)])

    assert (last.type, last.reason, last.message.text) == ("error", "error", "Hi")
    assert told in last.message.error_message


@pytest.mark.parametrize(
    ("tail", "kind"), [(b"", "done"), (b"\r", "done"), (b"\n\ndata: rubbish\n", "done")]
)
def test_the_last_line_needs_no_newline(tail, kind):
    """A body that ends right after its last event is complete, and what follows is not read."""
    body = lines(START, TEXT, HI, DONE).rstrip(b"\n") + tail

    assert read([body])[-1].type == kind


def test_errors_carry_their_reason_and_text():
    """An error of the proxy's keeps reason, text and usage; without text there is one."""
    failed = {"type": "error", "reason": "error", "errorMessage": "No", "usage": DONE["usage"]}
    *_, error = read([lines(START, TEXT, HI, failed)])
    [aborted] = read([lines({"type": "error", "reason": "aborted"})])

    assert (error.reason, error.message.error_message, error.message.text) == ("error", "No", "Hi")
    assert error.message.usage.total_tokens == 3
    assert (aborted.reason, aborted.message.stop_reason) == ("aborted", "aborted")
    assert aborted.message.error_message


def test_a_response_begins_with_its_start():
    """A proxy that forgets to say start has it said for it."""
    assert [e.type for e in read([lines(TEXT, DONE)])] == ["start", "text_start", "done"]


def test_a_huge_line_is_read_in_linear_time():
    """A line of 8 MB in pieces of 1 KB is one event."""
    size = 8_000_000
    body = lines(START, TEXT, {**HI, "delta": "x" * size}, DONE)

    assert len(read(cut(body, 1024))[2].delta) == size


# ----------------------------------------------------------------------------- the request

CONTEXT = TranscriptContext(
    messages=[
        SystemMessage(content="Be brief.", tools_added=[Tool(name="look", description="Looks")]),
        UserMessage(content="go 🌍"),
        AssistantMessage(
            content=[
                ThinkingContent(thinking="hm", thinking_signature="s"),
                ToolCall(id="c", name="look"),
            ],
        ),
        ToolResultMessage(tool_call_id="c", tool_name="look", content=[TextContent(text="seen")]),
    ]
)
OPTIONS = StreamOptions(
    api_key="secret",
    temperature=0.5,
    max_tokens=100,
    reasoning="high",
    session_id="s-1",
    headers={"x-a": "b", "x-c": None},
    metadata={"user_id": "u"},
    transport="sse",
    thinking_budgets={"high": 2048},
    max_retry_delay_ms=1000,
    on_payload=print,
)


def test_the_whitelisted_options_are_sent():
    """The body has model, context and every option but key, signal, identity and callbacks."""
    more = {"sampling_params": {"top_p": 0.9}, "cache_retention": "long"}

    body = json.loads(encode_proxy_request(MODEL, CONTEXT, OPTIONS, more))

    assert body["options"] == {
        "temperature": 0.5,
        "samplingParams": {"top_p": 0.9},
        "maxTokens": 100,
        "reasoning": "high",
        "cacheRetention": "long",
        "sessionId": "s-1",
        "headers": {"x-a": "b", "x-c": None},
        "metadata": {"user_id": "u"},
        "transport": "sse",
        "thinkingBudgets": {"high": 2048},
        "maxRetryDelayMs": 1000,
    }
    assert (body["model"]["id"], body["model"]["contextWindow"]) == ("m-1", 1000)
    assert [message["role"] for message in body["context"]["messages"]] == [
        *("system", "user", "assistant", "toolResult"),
    ]


def test_a_request_is_read_as_it_was_written():
    """Decoding gives the model, the messages and the options that were sent."""
    request = decode_proxy_request(encode_proxy_request(MODEL, CONTEXT, OPTIONS))

    assert to_json(request.model) == to_json(MODEL)
    assert list(request.context.messages) == list(CONTEXT.messages)
    assert request.options.api_key is None
    assert (request.options.temperature, request.options.reasoning) == (0.5, "high")
    assert request.options.thinking_budgets == {"high": 2048}


def body(**changes):
    good = {
        "model": {"id": "m", "provider": "p"},
        "context": {"messages": [{"role": "user", "content": "go", "timestamp": 1}]},
    }
    return json.dumps({**good, **changes}).encode()


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "a list"),
        (body(extra=1), "extra"),
        (body(model=None), "model: .* null"),
        (body(model={"name": "x"}), "model.id"),
        (body(model={"id": 3}), "model.id"),
        (body(context=[]), "context"),
        (body(context={"messages": [], "systemPrompt": "x"}), "context"),
        (body(context={"messages": [3]}), r"messages\[0\]"),
        (body(context={"messages": [{"role": "user", "content": 3}]}), r"messages\[0\]"),
        (body(context={"messages": [{"role": "note", "timestamp": 1}]}), "role"),
        (body(options={"maxTokens": "many"}), "maxTokens"),
        (body(options={"apiKey": "k"}), "apiKey"),
        (body(options={"reasoning": "off"}), "reasoning"),
        (body(options=[]), "options"),
    ],
)
def test_a_bad_request_is_refused_by_its_place(sent, told):
    """What is no request is refused with the place, what was expected and what came."""
    with pytest.raises(ValueError, match=told):
        decode_proxy_request(sent)


def test_options_may_be_absent():
    """A request without options has none set."""
    assert decode_proxy_request(body()).options == StreamOptions()
