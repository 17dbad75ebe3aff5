from __future__ import annotations

import asyncio
import sys
import threading

import anyio
import pytest
from pi_agent_kernel import (
    ALL_EVENTS,
    Agent,
    AgentTool,
    faux_assistant_message,
    faux_provider,
    faux_tool_call,
)
from pi_agent_kernel.testing import EventRecorder, check_events, check_transcript

ECHO = AgentTool(name="echo", execute=lambda _id, _args, _signal, _on_update: "ok", thread=False)


def make_agent(*responses, **options):
    """Return an agent that gives these responses, and its recorder."""
    faux = faux_provider()
    faux.set_responses(list(responses))
    agent = Agent(stream_fn=faux.stream_fn, model=faux.model(), **options)
    return agent, EventRecorder(agent)


def raise_at(agent, recorder, kind, nth):
    """Have a listener raise at the nth event of a kind, once."""

    def listener(event, _signal):
        if event.type == kind and recorder.types.count(kind) == nth:
            unsubscribe()
            raise ValueError("the listener broke")

    unsubscribe = agent.subscribe(listener, events=ALL_EVENTS)


async def test_listener_that_raises_at_agent_end_does_not_reopen_the_run():
    """Nothing but agent_idle follows agent_end, even when a listener of it raises."""
    agent, recorder = make_agent(faux_assistant_message("hi"))
    raise_at(agent, recorder, "agent_end", 1)

    with pytest.raises(ValueError, match="the listener broke"):
        await agent.prompt("go")

    check_events(recorder.events)
    assert agent.state.messages[-1].text == "hi"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_second_cancellation_at_agent_end_does_not_reopen_the_run(anyio_backend):
    """A caller cancelled again while agent_end is delivered gets no second failure sequence."""
    agent, recorder = make_agent(faux_assistant_message("hi"))
    at_end = anyio.Event()

    async def listener(event, _signal):
        if event.type == "turn_end":
            task.cancel()
        elif event.type == "agent_end" and not at_end.is_set():
            at_end.set()
            await anyio.sleep_forever()

    agent.subscribe(listener)
    task = asyncio.get_running_loop().create_task(agent.prompt("go"))
    await at_end.wait()
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    check_events(recorder.events)


@pytest.mark.parametrize("mode", ["one-at-a-time", "all"])
@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@pytest.mark.parametrize("cause", ["hook", "turn_start", "message_start"])
async def test_queued_message_survives_a_failure(cause, queue, mode):
    """A message taken from a queue is in the transcript or back in the queue (A02)."""
    agent, recorder = make_agent(
        faux_assistant_message(faux_tool_call("echo", {})),
        faux_assistant_message("done"),
        tools=[ECHO],
        steering_mode=mode,
        follow_up_mode=mode,
    )

    def put(event, _signal):
        if recorder.types.count("tool_execution_end") == 1:
            unsubscribe()
            for text in ("first", "second"):
                getattr(agent, queue)(text)

    def broken(_signal):
        if queue == "steer" or recorder.types.count("turn_end") == 2:
            raise ValueError("the hook broke")

    unsubscribe = agent.subscribe(put, events=["tool_execution_end"])
    if cause == "hook":
        agent.prepare_next_turn = broken
    elif cause == "turn_start":
        raise_at(agent, recorder, cause, 2 if queue == "steer" else 3)
    else:  # the first queued message's, after system, prompt, call, result (and answer)
        raise_at(agent, recorder, cause, 5 if queue == "steer" else 6)

    await agent.prompt("go")

    assert agent.state.error_message
    said = [message.text for message in agent.state.messages if message.role == "user"]
    waiting = [*agent._queues.steering._messages, *agent._queues.follow_up._messages]
    said += [message.text for message in waiting]
    assert said[1:] == ["first", "second"]


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(
    "kind", ["message_end", "tool_execution_start", "tool_execution_end", "message_start"]
)
async def test_calls_of_one_id_each_get_their_result_in_a_failed_run(kind, nth):
    """Two calls that share an id (E08) have two results, wherever the run breaks off."""
    calls = [faux_tool_call("echo", {}, "same"), faux_tool_call("unknown", {}, "same")]
    agent, recorder = make_agent(faux_assistant_message(calls), tools=[ECHO])
    before = {"message_end": 2, "message_start": 3}.get(kind, 0)  # system, user (and assistant)
    raise_at(agent, recorder, kind, before + nth)

    await agent.prompt("go")

    assert agent.state.error_message == "the listener broke"
    check_transcript(agent.state.messages)
    check_events(recorder.events)


async def test_host_can_cancel_while_agent_idle_is_delivered():
    """The run is over by then, so a listener of agent_idle may be cut off with its caller."""
    agent, recorder = make_agent(faux_assistant_message("hi"))
    scope = anyio.CancelScope()

    async def listener(_event, _signal):
        scope.cancel()
        await anyio.sleep(1)  # ends by itself, so that a failure of this test is no hang

    agent.subscribe(listener, events=["agent_idle"])
    with scope:
        await agent.prompt("go")

    assert scope.cancelled_caught
    check_events(recorder.events)


def test_trimmed_log_counts_records_of_all_threads():
    """A bounded log numbers every record once, however many threads add to it."""
    agent, _ = make_agent(max_log_events=50)
    each, count = 5000, 4

    def work():
        for _ in range(each):
            agent.steer("x")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    assert list(agent.log)[-1].seq == each * count
