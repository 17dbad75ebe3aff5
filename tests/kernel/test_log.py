from __future__ import annotations

import threading

import pytest
from pi_agent_kernel import HostCall, LogRecord, MessageUpdate
from pi_agent_kernel.log import EventLog
from scripted import Scripted, call, make_tool, ok, user


async def test_every_event_is_logged_in_order():
    """Numbered from 1, with rising times; the events are those the listeners got."""
    s = Scripted(call(), "end", tools=[make_tool(ok)])
    await s.prompt()
    records = list(s.agent.log)

    assert [r.seq for r in records] == list(range(1, len(records) + 1))
    assert [r.time for r in records] == sorted(r.time for r in records)
    assert [r.type for r in records if r.type != "host_call"] == s.types
    assert [r.event for r in records if r.type != "host_call"] == s.events
    assert isinstance(records[0], LogRecord)


def test_it_shows_itself_in_a_line():
    """A log is shown by its length."""
    assert repr(EventLog()) == "<EventLog: 0 records>"


async def test_updates_are_rebuilt_when_read():
    """A record of an update equals what was delivered, with what it changed."""
    s = Scripted("hello world, " * 5, faux_options={"token_size": 1})
    await s.prompt()
    updates = s.agent.log.of_type("message_update")

    assert [r.event for r in updates] == s.of("message_update")
    for record in updates:
        (change,) = record.changes
        assert change.field == "streaming_message"
        assert change.after == record.event.message
    texts = [r.changes[0].before.text for r in updates[1:]]
    assert texts == [r.event.message.text for r in updates[:-1]]


async def test_what_each_event_changed():
    """The state before any event can be told from the records (ST-01)."""
    s = Scripted(call(), "end", tools=[make_tool(ok)])
    await s.prompt()
    fields = {}
    for record in s.agent.log:
        for change in record.changes:
            if change.field in fields:
                assert change.before == fields[change.field], record
            fields[change.field] = change.after

    assert fields == {
        "is_streaming": False,
        "streaming_message": None,
        "messages": 5,
        "pending_tool_calls": frozenset(),
        "turn_index": 2,
        "total_turns": 2,
    }


async def test_host_calls_are_logged():
    """Each call of the host with a short detail."""
    s = Scripted("x", "y")
    s.agent.steer("a steering message")
    s.agent.follow_up("b" * 200)
    s.agent.clear_all_queues()
    s.state.thinking_level = "low"
    s.state.model = s.faux.model()
    s.state.tools = []
    s.state.messages = [user("m")]
    await s.resume()
    await s.prompt("p")
    s.agent.reset()
    calls = [(r.event.name, r.event.detail) for r in s.agent.log.of_type("host_call")]

    assert calls == [
        ("steer", "a steering message"),
        ("follow_up", "b" * 79 + "…"),
        ("clear_steering_queue", ""),
        ("clear_follow_up_queue", ""),
        ("state", "thinking_level"),
        ("state", "model"),
        ("state", "tools"),
        ("state", "messages"),
        ("continue_", ""),
        ("prompt", "p"),
        ("reset", ""),
        ("state", "messages"),
    ]
    assert HostCall.type == "host_call"


async def test_abort_is_logged():
    """The call stands between the events where it happened."""
    s = Scripted("x")
    s.agent.abort()
    s.agent.subscribe(lambda e, _: s.agent.abort(), events="turn_start")
    await s.prompt()
    kinds = [r.event.name if r.type == "host_call" else r.type for r in s.agent.log]

    assert kinds[:4] == ["prompt", "agent_start", "turn_start", "abort"]
    assert kinds.count("abort") == 1


async def test_reading_by_index_and_number():
    """Indexes as of a list; numbers stay with their record."""
    s = Scripted("x")
    await s.prompt()
    log = s.agent.log

    assert log[0] == log[-len(log)] == log.record(1)
    assert log[-1].type == "agent_idle"
    assert [r.seq for r in log.since(len(log) - 1)] == [len(log) - 1, len(log)]
    assert [r.type for r in log.of_type("agent_start", "agent_end")] == ["agent_start", "agent_end"]
    for index in (len(log), -len(log) - 1):
        with pytest.raises(IndexError):
            log[index]
    for seq in (0, len(log) + 1, -1):
        with pytest.raises(KeyError):
            log.record(seq)


async def test_the_tail_of_a_log():
    """From the last record of a type on, and some before it."""
    s = Scripted("x", "y")
    await s.prompt()
    await s.prompt()

    assert [r.type for r in s.agent.log.tail("agent_start", 1)][:2] == ["host_call", "agent_start"]
    assert s.agent.log.tail("agent_start")[0].seq > len(s.agent.log) // 2
    assert s.agent.log.tail("nope") == []


async def test_the_last_change_of_a_field():
    """Which record changed a field last, and how."""
    s = Scripted("x")
    await s.prompt()
    record, change = s.agent.log.last_change("messages")

    assert (record.type, change.before, change.after) == ("message_end", 1, 2)
    assert s.agent.log.last_change("nope") is None


# -------------------------------------------------------------------------------- limits


@pytest.mark.parametrize("value", [0, -5])
def test_a_limit_is_positive(value):
    """None keeps everything (max_log_events)."""
    with pytest.raises(ValueError, match="None"):
        EventLog(value)
    assert len(EventLog(None)) == 0


def test_old_records_are_dropped():
    """At least the limit is kept, at most twice as many; numbers go on."""
    log = EventLog(10)
    for n in range(1000):
        log.note("n", str(n))
        assert len(log) <= 20

    assert 10 <= len(log) <= 20
    assert [r.event.detail for r in log][-10:] == [str(n) for n in range(990, 1000)]
    assert log[-1].seq == 1000
    assert log.record(1000) == log[-1]
    assert log[0].seq == 1000 - len(log) + 1
    with pytest.raises(KeyError):
        log.record(1)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_a_log_that_was_trimmed_can_be_read(limit):
    """Also when it was trimmed while a response streamed, host calls between its updates."""
    s = Scripted("x" * 400, "y" * 100, faux_options={"token_size": 1}, max_log_events=limit)
    lengths = []

    def meddle(event, signal):
        if event.assistant_message_event.at % 7 == 0:
            s.agent.steer("more")
            s.agent.clear_steering_queue()
        records = list(s.agent.log)
        lengths.append(len(records))
        assert records[-1].event == event or isinstance(records[-1].event, HostCall)
        updates = [r for r in records if isinstance(r.event, MessageUpdate)]
        assert all(len(r.event.message.text) <= 400 for r in updates)

    s.agent.subscribe(meddle, events="message_update")
    await s.prompt()
    await s.prompt()
    records = list(s.agent.log)

    assert [r.seq for r in records] == list(range(records[0].seq, records[-1].seq + 1))
    assert records[-1].type == "agent_idle"
    assert s.last.text == "y" * 100
    s.check()


def test_writing_while_reading():
    """Reading is safe from any thread: what is read is consistent (api.md)."""
    log = EventLog(100)
    stop = threading.Event()
    wrong = []

    def read():
        while not stop.is_set():
            seqs = [record.seq for record in log]
            if seqs != list(range(seqs[0], seqs[0] + len(seqs))) if seqs else False:
                wrong.append(seqs)
            details = [int(record.event.detail) for record in log]
            if details != sorted(details):
                wrong.append(details)

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(5000):
        log.note("n", str(n))
    stop.set()
    thread.join()

    assert wrong == []
