from __future__ import annotations

import threading

import anyio
import pytest
from pi_agent_kernel import (
    AgentTurnUpdate,
    CustomMessage,
    ImageContent,
    TextContent,
    TurnDecision,
    faux_assistant_message,
)
from pi_agent_kernel.queues import MessageQueue, Queues
from scripted import Scripted, call, make_tool, ok, user


def texts(messages):
    return [m.text for m in messages if m.role == "user"]


# ---------------------------------------------------------------------------- the queue


def test_a_queue_delivers_in_order():
    """One per drain, or all (QU-01, QU-02)."""
    queue = MessageQueue("one-at-a-time")
    for text in "abc":
        queue.put(user(text))

    assert [m.text for m in queue.peek()] == ["a"]
    assert [m.text for m in queue.drain()] == ["a"]
    queue.mode = "all"
    assert [m.text for m in queue.peek()] == ["b", "c"]
    assert [m.text for m in queue.drain()] == ["b", "c"]
    assert queue.drain() == []
    assert len(queue) == 0


def test_put_back_goes_to_the_front():
    """A batch that could not be used is the next one again (A02)."""
    queues = Queues("one-at-a-time", "all")
    for text in "ab":
        queues.steering.put(user(text))
        queues.follow_up.put(user(text * 2))
    queues.put_back(queues.drain_steering())
    assert texts(queues.steering.peek()) == ["a"]
    queues.put_back(queues.drain_follow_up())
    assert texts(queues.follow_up.peek()) == ["aa", "bb"]
    assert len(queues) == 4


@pytest.mark.parametrize("mode", ["some", None, 1])
def test_a_mode_is_one_of_two(mode):
    """Any other value is refused and names both (QU-02)."""
    with pytest.raises(ValueError, match=r"one-at-a-time.*all"):
        MessageQueue(mode)
    s = Scripted()
    with pytest.raises(ValueError, match=r"one-at-a-time.*all"):
        s.agent.steering_mode = mode
    with pytest.raises(ValueError, match=r"one-at-a-time.*all"):
        s.agent.follow_up_mode = mode
    assert (s.agent.steering_mode, s.agent.follow_up_mode) == ("one-at-a-time",) * 2


@pytest.mark.parametrize("message", [3, None, [user()], object(), TextContent(text="x")])
def test_only_messages_are_queued(message):
    """Anything else is refused at once, not in the run (QU-01)."""
    s = Scripted()
    for put in (s.agent.steer, s.agent.follow_up):
        with pytest.raises(TypeError, match="message"):
            put(message)

    assert not s.agent.has_queued_messages()


def test_peek_has_and_clear():
    """Steering comes first, reading consumes nothing, each queue clears alone (QU-05, QU-06)."""
    s = Scripted()
    agent = s.agent
    assert (agent.peek_queued_messages(), agent.has_queued_messages()) == ([], False)
    agent.follow_up("f")
    assert texts(agent.peek_queued_messages()) == ["f"]
    agent.steer(user("s"))
    agent.steer({"role": "user", "content": "s2"})
    assert texts(agent.peek_queued_messages()) == ["s"]
    agent.steering_mode = "all"
    assert texts(agent.peek_queued_messages()) == ["s", "s2"]
    agent.peek_queued_messages().clear()
    agent.clear_steering_queue()
    assert texts(agent.peek_queued_messages()) == ["f"]
    agent.clear_follow_up_queue()
    assert not agent.has_queued_messages()
    agent.steer("s")
    agent.follow_up("f")
    agent.clear_all_queues()
    assert not agent.has_queued_messages()


# -------------------------------------------------------------------------------- in runs


async def test_steering_enters_after_the_batch():
    """A message queued while tools run comes after all their results (QU-03, A10)."""

    async def steer(*_):
        s.agent.steer("turn left")
        return "ok"

    s = Scripted([call("t", "a"), call("t", "b")], "turned", "again", tools=[make_tool(steer)])
    await s.prompt()

    assert s.roles == [
        *("system", "user", "assistant", "toolResult", "toolResult"),
        *("user", "assistant", "user", "assistant"),
    ]


async def test_steering_is_polled_before_the_first_request():
    """What was queued while idle goes with the prompt (QU-03)."""
    s = Scripted("ok")
    s.agent.steer("early")
    await s.prompt("first")

    assert [m.role for m in s.requests[0]] == ["user", "user"]
    assert s.requests[0][1].text == "early"
    assert len(s.requests) == 1


async def test_steering_precedes_follow_up():
    """Two steers and a follow-up: each is answered before the next (QU-04)."""

    def queue(*_):
        s.agent.follow_up("f")
        s.agent.steer("s1")
        s.agent.steer("s2")

    s = Scripted(call(), "1", "2", "3", tools=[make_tool(queue)])
    await s.prompt()

    said = [m.text for m in s.state.messages[4:]]
    assert said == ["s1", "1", "s2", "2", "f", "3"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("one-at-a-time", [["go"], ["go", "a"], ["go", "a", "b"]]),
        ("all", [["go"], ["go", "a", "b"]]),
    ],
)
@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_modes(queue, mode, expected):
    """One message per turn, or all at once (QU-02)."""
    s = Scripted("1", "2", "3", steering_mode=mode, follow_up_mode=mode)

    def put(event, signal):
        off()
        for text in "ab":
            getattr(s.agent, queue)(text)

    off = s.agent.subscribe(put, events="model_response")
    await s.prompt(user("go"))

    assert [texts(request) for request in s.requests] == expected


async def test_follow_ups_wait_for_the_tools():
    """Follow-ups come only when there are neither calls nor steering (LP-12)."""
    s = Scripted(call(), call("t", "c2"), "end", "after", tools=[make_tool(ok)])
    s.agent.follow_up("later")
    await s.prompt()

    assert s.roles[-3:] == ["assistant", "user", "assistant"]
    assert len(s.results) == 2


@pytest.mark.parametrize("kind", ["agent_end", "agent_idle"])
async def test_messages_queued_at_the_end_stay(kind):
    """They do not revive the run that has ended (QU-07)."""
    s = Scripted("one", "two")
    off = s.agent.subscribe(lambda e, _: s.agent.follow_up("late"), events=kind)
    await s.prompt()
    off()

    assert s.count("agent_end") == 1
    assert texts(s.agent.peek_queued_messages()) == ["late"]
    await s.resume()
    assert s.last.text == "two"


async def test_continue_delivers_one_batch_as_the_prompt():
    """The start-of-run poll is skipped once, so that one-at-a-time holds (LP-15)."""
    s = Scripted("0", "1", "2")
    await s.prompt(user("go"))
    s.agent.steer("a")
    s.agent.steer("b")
    await s.resume()

    assert [texts(request) for request in s.requests[1:]] == [["go", "a"], ["go", "a", "b"]]


async def test_continue_prefers_steering():
    """With both queued the steering batch is the prompt (LP-14)."""
    s = Scripted("0", "1", "2")
    await s.prompt(user("go"))
    s.agent.follow_up("f")
    s.agent.steer("s")
    await s.resume()

    assert texts(s.state.messages) == ["go", "s", "f"]


@pytest.mark.parametrize("end", ["finish_turn", "error"])
async def test_an_ended_run_leaves_the_queues(end):
    """Neither a decision to end nor an error consumes what is queued (LP-04, LP-07)."""
    response = faux_assistant_message("x", error_message="no") if end == "error" else "x"
    s = Scripted(response, finish_turn=lambda *_: TurnDecision(action="end"))
    s.agent.subscribe(lambda e, _: s.agent.steer("s"), events="message_update")
    s.agent.follow_up("f")
    await s.prompt()

    assert len(s.requests) == 1
    assert s.agent.peek_queued_messages()[0].text == "s"


async def test_prepared_messages_come_before_steering():
    """prepare_next_turn's messages, then what was queued meanwhile (LP-10)."""

    def prepare(signal):
        s.agent.steer("steered")
        return AgentTurnUpdate(messages=[{"role": "user", "content": "prepared"}])

    s = Scripted(call(), "end", prepare_next_turn=prepare, tools=[make_tool(ok)])
    s.agent.subscribe(lambda e, _: s.agent.clear_all_queues(), events="agent_end")
    s.faux.append_responses([faux_assistant_message("x")] * 3)
    s.agent.finish_turn = lambda turn, _: TurnDecision(
        action="end" if len(s.requests) == 2 else "continue"
    )
    await s.prompt(user("go"))

    assert texts(s.requests[1]) == ["go", "prepared", "steered"]


async def test_queued_messages_keep_every_block():
    """Images and custom messages are queued as they are (A17)."""
    image = ImageContent(data="aGk=", mime_type="image/png")
    s = Scripted("1", "2")
    s.agent.steer(user([TextContent(text="see"), image]))
    s.agent.follow_up(CustomMessage(role="note", n=1))
    await s.prompt()

    assert s.requests[0][-1].content == (TextContent(text="see"), image)
    assert s.state.messages[-2].n == 1


async def test_queues_from_other_threads():
    """steer, follow_up and reads may come from any thread while a run is on (api.md)."""
    s = Scripted(call(), *["x"] * 45, tools=[make_tool(ok)])
    s.agent.steering_mode = s.agent.follow_up_mode = "all"
    started = threading.Event()

    def feed(put):
        started.wait(5)
        for n in range(20):
            put(f"m{n}")
            s.agent.peek_queued_messages()
            s.agent.has_queued_messages()

    async def go(event, signal):
        started.set()
        await anyio.to_thread.run_sync(lambda: [thread.join() for thread in threads])

    threads = [
        threading.Thread(target=feed, args=[put]) for put in (s.agent.steer, s.agent.follow_up)
    ]
    for thread in threads:
        thread.start()
    s.agent.subscribe(go, events="tool_execution_start")
    await s.prompt(user("go"))

    said = texts(s.state.messages)[1:]
    assert said == [f"m{n}" for n in range(20)] * 2
    s.check()
