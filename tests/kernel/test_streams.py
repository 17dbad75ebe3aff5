from __future__ import annotations

import threading

import anyio
import msgspec
import pytest
from pi_agent_kernel import (
    AssistantMessage,
    ModelError,
    ResponseBuilder,
    StreamDone,
    StreamError,
    faux_assistant_message,
)
from pi_agent_kernel.messages import now_ms
from pi_agent_kernel.streams import AssistantMessageEventStream, EventStream
from scripted import LIMIT


def numbers():
    """A stream of numbers that ends with a negative one, whose absolute value is the result."""
    return EventStream(lambda n: n < 0, abs)


async def read(stream):
    with anyio.fail_after(LIMIT):
        return [event async for event in stream]


async def test_events_come_in_order():
    """What was pushed before and during reading is read once, in order (MD-09)."""
    stream = numbers()
    stream.push(1)
    seen = []

    async def reader():
        seen.extend(await read(stream))

    async with anyio.create_task_group() as group:
        group.start_soon(reader)
        for n in (2, 3, -4):
            await anyio.lowlevel.checkpoint()
            stream.push(n)

    assert seen == [1, 2, 3, -4]
    assert await stream.result() == 4
    assert (stream.ended, stream.settled) == (True, True)


async def test_nothing_after_the_last_event():
    """Later pushes are ignored (MD-03)."""
    stream = numbers()
    for n in (1, -2, 3, -4):
        stream.push(n)
    stream.fail(ValueError())
    stream.end(9)

    assert await read(stream) == [1, -2]
    assert await stream.result() == 2


async def test_the_result_waits_for_the_end():
    """Whether or not anybody reads the events (MD-09)."""
    stream = numbers()
    stream.push(1)
    results = []

    async def wait():
        results.append(await stream.result())

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(wait)
            for n in (2, 3, -4):
                await anyio.lowlevel.checkpoint()
                stream.push(n)

    assert results == [4, 4]


async def test_ending_without_a_result_raises():
    """`result()` never hangs (D11, MD-09)."""
    stream = numbers()
    stream.push(1)
    stream.end()

    assert await read(stream) == [1]
    assert (stream.ended, stream.settled) == (True, False)
    with anyio.fail_after(LIMIT), pytest.raises(ModelError, match="without a final event"):
        await stream.result()


async def test_ending_with_a_result():
    """The result counts unless the last event gave one (MD-09)."""
    stream = numbers()
    stream.end(7)

    assert await read(stream) == []
    assert await stream.result() == 7


async def test_failing():
    """What came before is read, then the reader and `result()` raise (LL-06)."""
    stream = numbers()
    stream.push(1)
    stream.fail(LookupError("no"))
    seen = []

    async def reader():
        async for n in stream:
            seen.append(n)  # noqa: PERF401 - the exception comes after some

    with pytest.raises(LookupError, match="no"):
        await reader()
    with pytest.raises(LookupError, match="no"):
        await stream.result()

    assert seen == [1]
    assert stream.settled


async def test_pushing_from_another_thread():
    """A reader that sleeps is woken, nothing is lost (MD-09)."""
    stream = numbers()

    def push():
        for n in range(1000):
            stream.push(n)
        stream.push(-1)

    thread = threading.Thread(target=push)
    seen = []

    async def reader():
        seen.extend(await read(stream))

    async with anyio.create_task_group() as group:
        group.start_soon(reader)
        await anyio.lowlevel.checkpoint()
        thread.start()
    thread.join()

    assert seen == [*range(1000), -1]


async def test_two_readers_share_the_events():
    """Each event is read once, and both readers end (MD-09)."""
    stream = numbers()
    seen = []

    async def reader():
        async for n in stream:
            seen.append(n)
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(reader)
            group.start_soon(reader)
            for n in (1, 2, 3, -4):
                await anyio.lowlevel.checkpoint()
                stream.push(n)

    assert sorted(seen) == [-4, 1, 2, 3]


async def test_a_cancelled_reader_leaves_nothing():
    """It can be read on by another (P11)."""
    stream = numbers()
    with anyio.move_on_after(0):
        await stream.result()
    with anyio.move_on_after(0):
        async for _ in stream:
            pass
    stream.push(-1)

    assert await read(stream) == [-1]


# ------------------------------------------------------------------------ of one response


def builder():
    return ResponseBuilder(api="a", provider="p", model="m")


async def test_a_response_ends_with_its_message():
    """Both done and error give the final message (MD-02)."""
    for last in (builder().done(), builder().error("no")):
        stream = AssistantMessageEventStream()
        stream.push(builder().start())
        stream.push(last)

        assert (await stream.result()).stop_reason == last.message.stop_reason
        assert [event.type for event in await read(stream)] == ["start", last.type]


async def test_the_final_message_gets_a_duration():
    """Measured from the creation of the stream, also of a result that `end` was given (MD-10)."""
    message = faux_assistant_message("x", timestamp=now_ms() + 10)
    endings = [
        lambda s: s.push(StreamDone(reason="stop", message=message)),
        lambda s: s.push(StreamError(reason="error", error=message)),
        lambda s: s.end(message),
    ]
    for end in endings:
        stream = AssistantMessageEventStream()
        end(stream)
        assert 0 <= (await stream.result()).duration_ms < 10_000


@pytest.mark.parametrize("message", [{"duration_ms": 5}, {"timestamp": 1}])
async def test_a_message_that_has_its_time_keeps_it(message):
    """One with a duration, or older than the stream, is not measured (MD-10)."""
    stream = AssistantMessageEventStream()
    given = AssistantMessage(**({"timestamp": now_ms() + 10} | message))
    stream.push(StreamDone(reason="stop", message=given))

    assert await stream.result() == given


async def test_ending_a_response_without_a_message():
    """It counts as failed (MD-09)."""
    stream = AssistantMessageEventStream()
    stream.end()

    with pytest.raises(ModelError):
        await stream.result()


def test_events_are_values():
    """Stream events are immutable and compare by what they say (MD-02)."""
    made = builder()
    event = made.start()

    assert event == msgspec.structs.replace(event)
    with pytest.raises(AttributeError):
        event.at = 5
