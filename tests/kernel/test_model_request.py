from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import (
    ResponseBuilder,
    StreamDone,
    StreamStart,
    TextDelta,
    faux_assistant_message,
)
from pi_agent_kernel.streams import AssistantMessageEventStream
from scripted import Scripted, call, make_tool, ok


def played(*steps):
    """A stream function that plays what each step makes of a builder."""

    async def stream_fn(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        for step in steps:
            yield step(builder)

    return stream_fn


def start(b):
    return b.start()


def text(b):
    return b.text_start()


def delta(piece):
    return lambda b: b.text_delta(piece, 0)


def done(b):
    return b.done()


async def test_updates_forward_the_stream_events():
    """Each is one update, unchanged; start and done are not (EV-09)."""
    s = Scripted(
        stream_fn=played(start, text, delta("a"), delta("b"), lambda b: b.text_end(0), done)
    )
    await s.prompt()

    updates = [event.assistant_message_event for event in s.of("message_update")]
    assert [step.type for step in updates] == ["text_start", "text_delta", "text_delta", "text_end"]
    assert [event.message.text for event in s.of("message_update")] == ["", "a", "ab", "ab"]
    assert s.last.text == "ab"
    s.check()


async def test_nothing_before_the_start():
    """Events that come before `start` produce no update, a second start is ignored (EV-09)."""
    s = Scripted(stream_fn=played(text, delta("a"), start, start, delta("b"), done))
    await s.prompt()

    assert [e.assistant_message_event.type for e in s.of("message_update")] == ["text_delta"]
    assert s.count("message_start") == 2
    assert s.last.text == "ab"
    s.check()


async def test_nothing_after_the_end():
    """What a stream sends after its last event is not read (MD-03)."""
    s = Scripted(stream_fn=played(start, done, text, start, lambda b: b.error("late")))
    await s.prompt()

    assert s.last.stop_reason == "stop"
    assert s.count("message_update") == 0
    s.check()


@pytest.mark.parametrize("reason", ["error", "aborted"])
async def test_an_error_alone(reason):
    """An error may come without a start; the message still has both events (MD-03, EV-08)."""
    s = Scripted(stream_fn=played(lambda b: b.error("no", aborted=reason == "aborted")))
    await s.prompt()

    assert (s.last.stop_reason, s.last.error_message) == (reason, "no")
    assert s.count("message_start") == s.count("message_end") == 2
    s.check()


async def test_done_alone():
    """A stream that only ends is a response, too (MD-03)."""
    s = Scripted(stream_fn=played(done))
    await s.prompt()

    assert s.last.stop_reason == "stop"
    s.check()


@pytest.mark.parametrize("steps", [(), (start,), (start, text, delta("half"))])
async def test_a_stream_that_just_ends_is_an_error(steps):
    """What arrived is kept (DEVIATIONS 4, D11)."""
    s = Scripted(stream_fn=played(*steps))
    await s.prompt()

    assert s.last.stop_reason == "error"
    assert "ended without a final event" in s.last.error_message
    assert s.last.text == ("half" if len(steps) == 3 else "")
    s.check()


async def test_a_stream_that_raises():
    """The partial is closed, then the failure is told (DEVIATIONS 3, FL-02)."""

    async def stream_fn(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        yield builder.start()
        yield builder.text_start()
        yield builder.text_delta("half", 0)
        raise ConnectionError("lost")

    s = Scripted(stream_fn=stream_fn)
    await s.prompt()

    assert [(m.text, m.stop_reason) for m in s.state.messages[1:]] == [
        ("half", "error"),
        ("", "error"),
    ]
    assert s.last.error_message == "lost"
    s.check()


@pytest.mark.parametrize("wrong", [None, 42, "text", [1], b"x"])
async def test_a_stream_function_must_return_a_stream(wrong):
    """Anything but an async iterable fails the run, with words (CO-02)."""
    s = Scripted(stream_fn=lambda *_: wrong)
    await s.prompt()

    assert "async iterable" in s.last.error_message
    s.check()


@pytest.mark.parametrize("event", [{"type": "start"}, "text", None])
async def test_a_stream_must_yield_stream_events(event):
    """Something else in the stream fails the run and says what came (MD-02)."""

    async def stream_fn(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        yield builder.start()
        yield event
        yield builder.done()

    s = Scripted(stream_fn=stream_fn)
    await s.prompt()

    assert s.last.stop_reason == "error"
    assert "event" in s.last.error_message
    assert type(event).__name__ in s.last.error_message
    s.check()


@pytest.mark.parametrize("form", ["generator", "awaitable", "event stream", "ended stream"])
async def test_every_form_of_a_stream(form):
    """A generator, an awaitable of one, a queue; also one that ends with `end(message)` (CO-02)."""

    def queue(model, context, options):
        stream = AssistantMessageEventStream()
        builder = ResponseBuilder(api="a", provider="p", model="m")
        stream.push(builder.start())
        if form == "ended stream":
            stream.end(faux_assistant_message("whole"))
        else:
            stream.push(StreamDone(reason="stop", message=faux_assistant_message("whole")))
        return stream

    async def awaitable(*arguments):
        await anyio.lowlevel.checkpoint()
        return s.stream(*arguments)

    forms = {"awaitable": awaitable, "event stream": queue, "ended stream": queue}
    s = Scripted("whole", **({"stream_fn": forms[form]} if form in forms else {}))
    await s.prompt()

    assert (s.last.text, s.last.stop_reason) == ("whole", "stop")
    s.check()


async def test_events_without_a_builder():
    """A stream function may carry whole messages as origins (MD-05)."""
    partial = faux_assistant_message("so far", stop_reason="stop")

    async def stream_fn(model, context, options):
        yield StreamStart(origin=partial)
        yield TextDelta(origin=partial, content_index=0, delta="so far")
        yield StreamDone(reason="stop", message=faux_assistant_message("so far, so good"))

    s = Scripted(stream_fn=stream_fn)
    await s.prompt()

    assert s.of("message_update")[0].message is partial
    assert s.last.text == "so far, so good"
    assert [r.event.message.text for r in s.agent.log.of_type("message_update")] == ["so far"]


async def test_the_generator_is_closed():
    """The stream is closed when the response is over, also when it was left early (P11)."""
    closed = []

    async def stream_fn(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        try:
            yield builder.start()
            yield builder.done()
            yield builder.start()
        finally:
            await anyio.lowlevel.checkpoint()
            closed.append(True)

    s = Scripted(stream_fn=stream_fn)
    await s.prompt()

    assert closed == [True]


async def test_the_generator_is_closed_after_an_abort():
    """Its cleanup runs and may await (P11)."""
    closed = []

    async def stream_fn(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        try:
            yield builder.start()
            yield builder.text_start()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            closed.append(True)

    s = Scripted(stream_fn=stream_fn)
    s.agent.subscribe(lambda e, _: s.agent.abort(), events="message_update")
    await s.prompt()

    assert closed == [True]
    assert s.last.stop_reason == "aborted"
    s.check()


async def test_a_pending_message_is_no_final_one():
    """A stream that ends with a partial still gives a message with a real stop reason (MS-04)."""
    partial = faux_assistant_message("x", stop_reason="pending")

    async def stream_fn(model, context, options):
        yield StreamDone(reason="stop", message=partial)

    s = Scripted(stream_fn=stream_fn)
    await s.prompt()

    assert s.last.stop_reason != "pending"


async def test_calls_of_a_partial_are_not_executed():
    """A response that was cut off runs nothing, however complete its calls look (LP-04)."""
    ran = []

    async def stream_fn(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        yield builder.start()
        yield builder.toolcall_start("c", "t")
        yield builder.toolcall_delta("{}", 0)
        yield builder.toolcall_end(0)

    s = Scripted(stream_fn=stream_fn, tools=[make_tool(lambda *_: ran.append(1))])
    await s.prompt()

    assert ran == []
    assert s.last.stop_reason == "error"
    assert s.results == []


async def test_the_context_holds_messages_only():
    """Prompt and tools are in its system messages; it cannot be changed by a provider (CO-02)."""
    s = Scripted(call(), "end", system_prompt="p", tools=[make_tool(ok)])
    seen = []

    def stream_fn(model, context, options):
        seen.append(context)
        assert context.__struct_fields__ == ("messages",)
        return s.stream(model, context, options)

    s.agent.stream_fn = stream_fn
    await s.prompt()

    assert [len(context.messages) for context in seen] == [2, 4]
    assert seen[0].messages[0].content == "p"
    assert seen[0].messages[0].tools_added[0].name == "t"
    assert not hasattr(seen[0].messages, "append")
