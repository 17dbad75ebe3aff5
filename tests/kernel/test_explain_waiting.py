"""While a run is stuck, `explain` says for what it waits: asked from another task or thread."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest
from pi_agent_kernel import RetryPolicy, faux_assistant_message
from scripted import LIMIT, Scripted, call, make_tool, ok


async def while_stuck(s, reached, question="why is it stuck?"):
    """Start a run, ask once the point is reached, abort; return the answers."""
    async with anyio.create_task_group() as group:
        group.start_soon(s.prompt)
        with anyio.fail_after(LIMIT):
            await reached.wait()
        answers = s.agent.explain(question).answers
        told = s.agent.explain()
        s.agent.abort()
        reached.go_on.set()
    assert str(answers[0]) in told or question != "why is it stuck?"
    return answers


class Reached:
    """Say when a point was reached, and hold whoever came there."""

    def __init__(self):
        self._reached = anyio.Event()
        self.go_on = anyio.Event()

    def set(self):
        self._reached.set()

    async def wait(self):
        await self._reached.wait()


def stopping_at(reached):
    async def stop(*_):
        reached.set()
        await reached.go_on.wait()

    return stop


def seq(s, kind):
    return s.agent.log.of_type(kind)[-1].seq


async def test_a_tool_that_does_not_return():
    """Its call, since its start."""
    reached = Reached()
    s = Scripted(call(), tools=[make_tool(stopping_at(reached))])
    answers = await while_stuck(s, reached)

    assert answers[0].text.startswith("Tool t (call c1) has been running for ")
    assert answers[0].events[0] == seq(s, "tool_execution_start")


async def test_a_call_that_runs_is_said_to_run():
    """Asked about the tool, not about the run."""
    reached = Reached()
    s = Scripted(call(), tools=[make_tool(stopping_at(reached))])
    answers = await while_stuck(s, reached, "why does t not run?")

    assert "is still running" in answers[0].text


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call", "after_tool_result"])
async def test_a_hook_about_a_call(hook):
    """The hook, its function, and the call it is about (HK-01)."""
    reached = Reached()
    s = Scripted(call(), tools=[make_tool(ok)], **{hook: stopping_at(reached)})
    answers = await while_stuck(s, reached)

    assert f"waits for the hook {hook} (" in answers[0].text
    assert "stopping_at.stop" in answers[0].text
    assert "about call c1 of t" in answers[0].text
    assert answers[0].events[0] == seq(s, "tool_execution_start")


@pytest.mark.parametrize(
    "hook",
    ["transform_context", "prepare_request", "before_model_request", "convert_to_llm"],
)
async def test_a_hook_before_a_request(hook):
    """Since the record after which it was asked (CO-07)."""
    reached = Reached()
    s = Scripted("x", **{hook: stopping_at(reached)})
    answers = await while_stuck(s, reached)

    assert f"waits for the hook {hook} (" in answers[0].text
    messages = s.agent.log.of_type("message_end")
    assert answers[0].events == (messages[0].seq,)


@pytest.mark.parametrize("hook", ["finish_turn", "should_stop", "after_model_response"])
async def test_a_hook_after_a_response(hook):
    """These, too."""
    reached = Reached()
    s = Scripted("x", **{hook: stopping_at(reached)})
    answers = await while_stuck(s, reached)

    assert f"waits for the hook {hook} (" in answers[0].text


@pytest.mark.parametrize("kind", ["turn_start", "message_update", "agent_end"])
async def test_a_listener(kind):
    """Its event, by the number of that event's record (EV-04, ST-04)."""
    reached = Reached()
    s = Scripted("x y z")
    s.agent.subscribe(stopping_at(reached), events=kind)
    answers = await while_stuck(s, reached)

    assert answers[0].text.startswith(f"The run waits for a listener of {kind} (")
    if kind != "message_update":
        assert answers[0].events == (s.agent.log.of_type(kind)[0].seq,)


async def test_the_model():
    """A request without an answer, since it was made (S4-02)."""
    reached = Reached()

    async def silent(*_):
        reached.set()
        await anyio.sleep_forever()
        yield

    s = Scripted(stream_fn=silent)
    answers = await while_stuck(s, reached)

    assert "waits for the model: request 1" in answers[0].text
    assert "nothing yet" in answers[0].text
    assert answers[0].events == (seq(s, "model_request_start"),)


async def test_the_wait_before_a_retry():
    """The announcement of the retry, and how much is left (MD-22)."""
    failed = faux_assistant_message("", stop_reason="error", error_message="overloaded")
    s = Scripted(failed, "x", retry=RetryPolicy(base_delay_ms=60_000))
    async with anyio.create_task_group() as group:
        group.start_soon(s.prompt)
        with anyio.fail_after(LIMIT):
            while not s.agent.log.of_type("model_retry") or s.agent.log.awaited():
                await anyio.lowlevel.checkpoint()
        answers = s.agent.explain("why is nothing happening?").answers
        s.agent.abort()

    assert "waits before it makes the request again (overloaded)" in answers[0].text
    assert answers[0].events == (seq(s, "model_retry"),)


@pytest.mark.parametrize("where", ["listener", "hook"])
def test_a_plain_function_that_blocks_the_loop(where):
    """Asked from another thread, it is named as well."""
    reached, go_on = threading.Event(), threading.Event()

    def block(*_):
        reached.set()
        go_on.wait(LIMIT)

    s = Scripted("x", transform_context=block if where == "hook" else None)
    if where == "listener":
        s.agent.subscribe(block, events="turn_start")
    thread = threading.Thread(target=lambda: asyncio.run(s.prompt()))
    thread.start()
    assert reached.wait(LIMIT)
    answers = s.agent.explain("why does it hang?").answers
    go_on.set()
    thread.join(LIMIT)

    named = "a listener of turn_start" if where == "listener" else "the hook transform_context"
    assert named in answers[0].text
    assert "block" in answers[0].text
    if where == "listener":
        assert answers[0].events == (s.agent.log.of_type("turn_start")[0].seq,)


async def test_nothing_is_awaited():
    """After a run, and before any."""
    s = Scripted("x")
    assert "none has been" in s.agent.explain("is it stuck?").answers[0].text
    await s.prompt()
    (answer,) = s.agent.explain("is it stuck?").answers

    assert "the last one has settled" in answer.text
    assert answer.events == (seq(s, "agent_idle"),)
    assert s.agent.log.awaited() == []
