"""What a run costs grows with its length, not faster: calls and characters are counted."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc

import pytest
from pi_agent_kernel import ResponseBuilder, faux_assistant_message, to_json
from pi_agent_kernel import response as response_module
from pi_agent_kernel.streams import EventStream
from scripted import Scripted, call, make_tool, user

MOST = 4.4  # four times the work, and a little for what does not grow


def calls_of(function):
    """Count the calls, of Python and of C functions, that a function makes."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def copied_by(function, monkeypatch):
    """Count the characters of the text blocks that are built meanwhile."""
    copied = 0
    made = response_module.TextContent

    class Counting:
        def __new__(cls, **fields):
            nonlocal copied
            copied += len(fields["text"])
            return made(**fields)

        __match_args__ = ()

    def build(fold):
        nonlocal copied
        block = current(fold)
        if isinstance(block, made):
            copied += len(block.text)
        return block

    current = response_module._current
    monkeypatch.setattr(response_module, "_current", build)
    function()
    monkeypatch.undo()
    return copied


def plain_agent(*answers, listen=False, **options):
    options.setdefault("faux_options", {"token_size": 1, "cooperative": False})
    s = Scripted(*answers, **options)
    if not listen:
        s.agent._subscriptions._all = ()
    return s


def run(s):
    asyncio.run(s.agent.prompt("go"))
    assert s.state.error_message is None


def grows(make, small):
    """How much more a run of four times the size costs, in calls."""
    run(make(small))  # what happens once only
    return calls_of(lambda: run(make(4 * small))) / calls_of(lambda: run(make(small)))


def chars(n):
    return "abcd" * n


def test_deltas():
    """The cost of a delta does not depend on how many came before."""
    assert grows(lambda n: plain_agent(chars(n)), 500) < MOST


def test_deltas_of_arguments():
    """Nor does it for the arguments of a call."""

    def make(n):
        return plain_agent(
            call(text=chars(n)), "end", tools=[make_tool(lambda *_: "x", thread=False)]
        )

    assert grows(make, 500) < MOST


def test_deltas_with_a_listener_that_reads_each_partial():
    """Reading every partial in order costs no more calls per delta."""

    def make(n):
        s = plain_agent(chars(n))
        s.agent.subscribe(lambda e, _: len(e.message.content), events="message_update")
        return s

    assert grows(make, 500) < MOST


def test_turns():
    """The cost of a turn does not depend on how long the transcript is."""

    def make(n):
        t = make_tool(lambda *_: "x", thread=False)
        return plain_agent(*[call("t", f"c{i}") for i in range(n)], "end", tools=[t])

    assert grows(make, 50) < MOST


def test_old_messages():
    """A run on a long transcript costs as much as on a short one, beside one copy of it."""

    def make(n):
        t = make_tool(lambda *_: "x", thread=False)
        answers = [call("t", f"c{i}") for i in range(40)]
        return plain_agent(*answers, "end", tools=[t], messages=[user("m")] * n)

    run(make(10))
    short, long = make(10), make(4000)
    assert calls_of(lambda: run(long)) - calls_of(lambda: run(short)) < 10 * 3990


def test_calls_of_one_batch():
    """A batch of many calls costs the same per call."""

    def make(n):
        async def execute(*_):
            return "x"

        return plain_agent(
            [call("t", f"c{i}") for i in range(n)], "end", tools=[make_tool(execute)]
        )

    assert grows(make, 50) < MOST


def test_progress_reports():
    """Each report of a tool costs the same."""

    def make(n):
        async def execute(tool_call_id, params, signal, on_update):
            for _ in range(n):
                on_update("step")
            return "x"

        return plain_agent(call(), "end", tools=[make_tool(execute)])

    assert grows(make, 200) < MOST


def test_steering_messages():
    """A long queue is drained in linear time (E14)."""

    def make(n):
        s = plain_agent(*["x"] * (n + 1))
        for i in range(n):
            s.agent.steer(f"m{i}")
        return s

    assert grows(make, 50) < MOST


def test_an_event_stream():
    """Buffered events are read in linear time (E14, MD-09)."""

    def drain(n):
        async def main():
            stream = EventStream(lambda event: event < 0, abs)
            for i in range(n):
                stream.push(i)
            stream.push(-1)
            count = 0
            async for _ in stream:
                count += 1
            assert count == n + 1

        asyncio.run(main())

    drain(10)
    assert calls_of(lambda: drain(8000)) / calls_of(lambda: drain(2000)) < MOST


def test_reading_the_prompt():
    """The prompt of a growing transcript is not replayed from its beginning each time (ST-03)."""

    def make(n):
        t = make_tool(lambda *_: "x", thread=False)
        s = plain_agent(
            *[call("t", f"c{i}") for i in range(n)], "end", tools=[t], system_prompt="p"
        )
        s.agent.subscribe(lambda e, _: s.state.system_prompt, events="message_end")
        return s

    assert grows(make, 50) < MOST


def test_partials_read_at_the_end_only(monkeypatch):
    """What nobody reads is not built: a response is copied a few times, not per delta."""

    def copied(n):
        s = plain_agent(chars(n))
        return copied_by(lambda: run(s), monkeypatch)

    assert copied(400) <= 4 * 4 * 400
    assert copied(1600) <= 4.4 * max(copied(400), 1600)


def test_closing_a_failed_run(monkeypatch):
    """A listener that fails late in a long response makes nobody read every partial again."""

    def copied(n):
        s = plain_agent(chars(n))

        def late(event, signal):
            if event.assistant_message_event.at == n:
                raise ValueError("late")

        s.agent.subscribe(late, events="message_update")

        def prompt():
            asyncio.run(s.agent.prompt("go"))

        count = copied_by(prompt, monkeypatch)
        assert s.state.error_message == "late"
        return count

    assert copied(1600) < MOST * copied(400)


def test_explaining(monkeypatch):
    """Telling what happened does not build the partials either."""

    def copied(n):
        s = plain_agent(chars(n))
        run(s)
        return max(1, copied_by(s.agent.explain, monkeypatch))

    assert copied(1600) < MOST * max(copied(400), 1600)


def test_the_log_is_small():
    """A delta costs the log a few dozen bytes, whatever the length of the response."""

    def used(n):
        s = plain_agent(chars(n))
        run(plain_agent(chars(10)))
        tracemalloc.start()
        run(s)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    small, large = used(2000), used(8000)
    assert (large - small) / 6000 < 250


def test_a_trimmed_log_costs_no_more():
    """After a response longer than the log keeps, each event costs what it did before."""

    def make(n):
        t = make_tool(lambda *_: "x", thread=False)
        answers = [chars(n), *[call("t", f"c{i}") for i in range(n // 4)], "end"]
        s = plain_agent(*answers, tools=[t], max_log_events=n // 2)
        s.agent.follow_up("go on")
        return s

    assert grows(make, 200) < MOST


def test_writing_a_transcript():
    """to_json is linear in the messages."""

    def write(n):
        to_json([faux_assistant_message("x", timestamp=1)] * n)

    write(1)
    assert calls_of(lambda: write(2000)) / calls_of(lambda: write(500)) < MOST


@pytest.mark.parametrize("blocks", [1, 8])
def test_a_builder(blocks):
    """Recording and reading a response in order is linear, blocks interleaved or not."""

    def record(n):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        for _ in range(blocks):
            builder.text_start()
        for i in range(n):
            assert builder.text_delta("abcd", i % blocks).partial.content
        for i in range(blocks):
            builder.text_end(i)
        builder.done()

    record(1)
    assert calls_of(lambda: record(2000)) / calls_of(lambda: record(500)) < MOST
