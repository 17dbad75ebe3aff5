from __future__ import annotations

import threading

import anyio
import pytest
from pi_agent_kernel import (
    AgentTurnUpdate,
    TurnDecision,
    faux_assistant_message,
    tool,
)
from scripted import LIMIT, Scripted, call, make_tool, ok, user


async def run_until(s, event, then):
    """Prompt, and when `event` is set do `then`; returns when the run has ended."""
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await event.wait()
            then()


def closing(s):
    """Check the visible end of an aborted run (DEVIATIONS 1)."""
    last = s.last
    assert (last.content, last.stop_reason, last.error_message) == (
        (),
        "aborted",
        "Request was aborted",
    )
    assert (last.model, last.provider, last.api) == ("faux-1", "faux", "faux")
    assert last.usage.total_tokens == 0
    assert last.thinking_level == s.state.thinking_level
    assert s.state.error_message == "Request was aborted"
    s.check()


async def test_abort_when_idle_does_nothing():
    """No run, no abort; the next run is not aborted either (AB-01)."""
    s = Scripted("ok")
    s.agent.abort()
    await s.prompt()

    assert s.last.stop_reason == "stop"


async def test_abort_reaches_everything():
    """Stream function, hooks, tools and listeners see the same signal (AB-01)."""
    seen = {}

    def note(name, result=None):
        def hook(*arguments):
            signal = next((a for a in arguments if hasattr(a, "raise_if_aborted")), None)
            seen[name] = signal
            return result

        return hook

    s = Scripted(
        call(),
        "end",
        tools=[make_tool(note("tool", "x"))],
        **{
            name: note(name)
            for name in (
                *("transform_context", "before_model_request", "prepare_request"),
                *("finish_turn", "before_tool_call", "after_tool_call", "after_tool_result"),
                *("after_model_response", "prepare_next_turn_with_context"),
            )
        },
    )
    s.agent.subscribe(note("listener"))
    await s.prompt()

    assert s.last.text == "end"
    assert len(set(map(id, [*seen.values(), s.options[0].signal]))) == 1
    assert None not in seen.values()
    assert len(seen) == 11


@pytest.mark.parametrize("kind", ["agent_start", "turn_start", "message_start", "message_end"])
async def test_abort_before_the_first_request(kind):
    """No request is made, no request hook runs (DEVIATIONS 1)."""
    hooked = []
    s = Scripted("never", prepare_request=lambda *_: hooked.append(1))
    s.agent.subscribe(lambda e, _: s.agent.abort(), events=kind)
    await s.prompt()

    assert (s.requests, hooked, s.count("model_request_start")) == ([], [], 0)
    assert s.count("turn_start") == 1
    closing(s)


async def test_abort_at_model_request_start():
    """The request that was announced is not made, and its end is announced (DEVIATIONS 1)."""
    s = Scripted("never")
    s.agent.subscribe(lambda e, _: s.agent.abort(), events="model_request_start")
    await s.prompt()

    assert s.requests == []
    assert s.of("model_response")[0].stop_reason == "aborted"
    closing(s)


@pytest.mark.parametrize(
    "hook",
    [
        "prepare_request",
        "transform_context",
        "before_model_request",
        "convert_to_llm",
        "get_api_key",
    ],
)
@pytest.mark.parametrize("way", ["abort", "hang"])
async def test_abort_inside_a_request_hook(hook, way):
    """No further hook runs and no request is made; a hook that hangs is cut off (DEVIATIONS 1)."""
    order = [
        *("prepare_request", "transform_context", "before_model_request"),
        *("convert_to_llm", "get_api_key"),
    ]
    ran = []

    def make(name):
        async def run(*arguments):
            ran.append(name)
            if name == hook:
                s.agent.abort()
                if way == "hang":
                    await anyio.sleep_forever()
            return list(arguments[0]) if "context" in name or "llm" in name else None

        return run

    s = Scripted("never", abort_grace=0.01, **{name: make(name) for name in order})
    await s.prompt()

    assert ran == order[: order.index(hook) + 1]
    assert s.requests == []
    closing(s)


async def test_abort_while_streaming_keeps_the_partial():
    """What arrived stays, marked aborted; the turn ends normally (AB-02)."""
    s = Scripted("hello world", faux_options={"token_size": 1})

    def stop(event, signal):
        if event.message.text == "hell":
            s.agent.abort()

    s.agent.subscribe(stop, events="message_update")
    await s.prompt()

    assert (s.last.text, s.last.stop_reason) == ("hell", "aborted")
    assert s.state.error_message == "Request was aborted"
    assert s.count("turn_start") == s.count("turn_end") == 1
    s.check()


@pytest.mark.parametrize("form", ["generator", "iterable", "awaitable"])
async def test_a_stream_that_ignores_the_signal_is_cut_off(form):
    """Abort ends the wait, whatever the stream is made of (A15, AB-02)."""
    started = anyio.Event()

    async def generator(model, context, options):
        started.set()
        await anyio.sleep_forever()
        yield

    class Stream:
        def __aiter__(self):
            return self

        async def __anext__(self):
            started.set()
            await anyio.sleep_forever()

    async def awaitable(model, context, options):
        started.set()
        await anyio.sleep_forever()

    forms = {"generator": generator, "iterable": lambda *_: Stream(), "awaitable": awaitable}
    s = Scripted(stream_fn=forms[form], abort_grace=0.01)
    await run_until(s, started, s.agent.abort)

    assert (s.last.content, s.last.stop_reason) == ((), "aborted")
    s.check()


async def test_a_stream_may_end_itself_within_the_grace():
    """A stream that is no generator keeps its own last word (AB-02)."""
    from pi_agent_kernel import ResponseBuilder
    from pi_agent_kernel.streams import AssistantMessageEventStream

    def stream_fn(model, context, options):
        stream = AssistantMessageEventStream()
        builder = ResponseBuilder(api="a", provider="p", model="m")
        stream.push(builder.start())
        stream.push(builder.text_start())
        stream.push(builder.text_delta("so far", 0))
        options.signal.add_listener(lambda: stream.push(builder.error("mine", aborted=True)))
        return stream

    s = Scripted(stream_fn=stream_fn)
    s.agent.subscribe(
        lambda e, _: e.assistant_message_event.type == "text_delta" and s.agent.abort(),
        events="message_update",
    )
    await s.prompt()

    assert (s.last.text, s.last.error_message) == ("so far", "mine")
    s.check()


async def test_abort_in_a_tool_closes_the_run():
    """The tool's own result counts; then one empty aborted message, and the queues stay (AB-03)."""

    async def honours(tool_call_id, params, signal, on_update):
        s.agent.steer("queued")
        s.agent.abort()
        await signal.wait()
        return "own result"

    s = Scripted(call(), "never", tools=[make_tool(honours)])
    await s.prompt()

    assert s.outcomes == [("own result", False)]
    assert len(s.requests) == 1
    assert s.agent.peek_queued_messages()[0].text == "queued"
    assert s.count("turn_start") == 2
    closing(s)


async def test_abort_in_the_last_turn_needs_no_closing_message():
    """When no further request was due, the run just ends (DEVIATIONS 1)."""
    s = Scripted("the answer")
    s.agent.subscribe(lambda e, _: s.agent.abort(), events="turn_end")
    await s.prompt()

    assert s.last.text == "the answer"
    assert s.count("turn_start") == 1
    s.check()


@pytest.mark.parametrize("queued", ["steer", "follow_up"])
async def test_abort_with_something_queued_closes_visibly(queued):
    """A queued message would have caused a request; it stays queued (DEVIATIONS 1)."""
    s = Scripted("the answer")
    getattr(s.agent, queued)("waiting")
    if queued == "steer":
        s.agent.clear_all_queues()
        s.agent.subscribe(lambda e, _: s.agent.steer("waiting"), events="model_response")
    s.agent.subscribe(lambda e, _: s.agent.abort(), events="turn_end")
    await s.prompt()

    assert s.agent.peek_queued_messages()[0].text == "waiting"
    closing(s)


async def test_a_drained_message_goes_back():
    """A batch taken before the abort is the next one again (A02)."""

    def prepare(signal):
        s.agent.abort()

    s = Scripted("one", "never", prepare_next_turn=prepare)
    s.agent.follow_up("a")
    s.agent.follow_up("b")
    await s.prompt(user("go"))

    assert [m.text for m in s.agent.peek_queued_messages()] == ["a"]
    assert [m.text for m in s.state.messages if m.role == "user"] == ["go"]
    closing(s)
    s.faux.set_responses([faux_assistant_message("x")] * 2)
    s.agent.prepare_next_turn = None
    await s.resume()
    assert [m.text for m in s.state.messages if m.role == "user"] == ["go", "a", "b"]


async def test_finish_turn_runs_for_the_closing_message_and_is_ignored():
    """Its decision to continue does not make a dead request (DEVIATIONS 1)."""
    asked = []

    def finish(turn, signal):
        asked.append(turn.message.stop_reason)
        return TurnDecision(action="continue")

    async def stop(*_):
        s.agent.abort()

    s = Scripted(call(), "never", tools=[make_tool(stop)], finish_turn=finish)
    await s.prompt()

    assert asked == ["toolUse", "aborted"]
    assert len(s.requests) == 1
    closing(s)


@pytest.mark.parametrize("hook", ["finish_turn", "should_stop", "prepare_next_turn"])
async def test_a_turn_hook_that_hangs_is_cut_off(hook):
    """After an abort a hook has the same grace as a tool (DEVIATIONS 14)."""
    started = anyio.Event()

    async def hang(*_):
        started.set()
        await anyio.sleep_forever()

    s = Scripted(call(), "never", tools=[make_tool(ok)], abort_grace=0.01, **{hook: hang})
    if hook == "prepare_next_turn":
        await run_until(s, started, s.agent.abort)
    else:
        s.faux.set_responses([faux_assistant_message("answer")])
        await run_until(s, started, s.agent.abort)
    s.check()


async def test_a_hook_within_its_grace_keeps_its_answer():
    """A hook that answers in time is listened to (DEVIATIONS 14)."""

    async def after(message, signal):
        s.agent.abort()
        await anyio.lowlevel.checkpoint()
        return faux_assistant_message("replaced", timestamp=1)

    s = Scripted("original", after_model_response=after)
    await s.prompt()

    assert s.last.text == "replaced"


async def test_nothing_polls_the_queues_of_an_aborted_run():
    """prepare_next_turn is not asked and its messages do not come (DEVIATIONS 1)."""
    asked = []

    def prepare(signal):
        asked.append(1)
        return AgentTurnUpdate(messages=[user("prepared")])

    s = Scripted(call(), "never", tools=[make_tool(ok)], prepare_next_turn=prepare)
    s.agent.subscribe(lambda e, _: s.agent.abort(), events="tool_execution_end")
    await s.prompt()

    assert asked == []
    closing(s)


async def test_abort_from_another_thread():
    """A thread may abort; a sleeping run wakes up (api.md)."""
    started = threading.Event()

    @tool
    async def sleep() -> str:
        """Sleep."""
        started.set()
        await anyio.sleep_forever()

    s = Scripted(call("sleep"), tools=[sleep])

    def stop():
        started.wait(5)
        s.agent.abort()

    thread = threading.Thread(target=stop)
    thread.start()
    await s.prompt()
    thread.join()

    assert s.outcomes == [("Operation aborted", True)]
    closing(s)


@pytest.mark.parametrize("kind", ["tool_execution_update", "tool_execution_end"])
async def test_a_listener_is_never_cut_off(kind):
    """An abort waits for listeners, however slow; the tool's result counts (DEVIATIONS 14)."""
    finished = []

    async def slow(event, signal):
        await anyio.sleep(0.9)  # more than the grace and the patience with a deaf tool
        finished.append(event.type)

    async def honours(tool_call_id, params, signal, on_update):
        on_update("half")
        s.agent.abort()
        await signal.wait()
        return "own"

    s = Scripted(call(), tools=[make_tool(honours)], abort_grace=0.01)
    s.agent.subscribe(slow, events=kind)
    await s.prompt()

    assert finished == [kind]
    assert s.outcomes == [("own", False)]
    closing(s)


async def test_after_an_abort_the_agent_works():
    """The next run has a fresh signal and clears the error (FL-06)."""
    s = Scripted("never", "fine")
    off = s.agent.subscribe(lambda e, _: s.agent.abort(), events="message_start")
    await s.prompt()
    off()
    s.faux.set_responses([faux_assistant_message("fine")])
    await s.prompt()

    assert (s.last.text, s.state.error_message) == ("fine", None)


@pytest.mark.parametrize("form", ["generator", "queue"])
async def test_an_abort_while_a_listener_of_an_update_waits(form):
    """The listener finishes, then the stream is cut off (DEVIATIONS 14, AB-02)."""
    from pi_agent_kernel import ResponseBuilder
    from pi_agent_kernel.streams import AssistantMessageEventStream

    def queue(model, context, options):
        stream = AssistantMessageEventStream()
        builder = ResponseBuilder(api="a", provider="p", model="m")
        for event in (builder.start(), builder.text_start(), builder.text_delta("hell", 0)):
            stream.push(event)
        return stream

    finished = []

    async def slow(event, signal):
        if event.message.text == "hell":
            s.agent.abort()
            await anyio.sleep(0.05)  # longer than the grace
            finished.append(1)

    s = Scripted("hello world", faux_options={"token_size": 1}, abort_grace=0.01)
    if form == "queue":
        s.agent.stream_fn = queue
    s.agent.subscribe(slow, events="message_update")
    await s.prompt()

    assert finished == [1]
    assert (s.last.text, s.last.stop_reason) == ("hell", "aborted")
    s.check()


async def test_abort_when_a_queued_message_is_announced():
    """It is in the transcript, and no request is made for it (DEVIATIONS 1)."""
    s = Scripted("one", "never")
    s.agent.follow_up("more")

    def stop(event, signal):
        if event.message.text == "more":
            s.agent.abort()

    s.agent.subscribe(stop, events="message_start")
    await s.prompt()

    assert len(s.requests) == 1
    assert s.roles == ["user", "assistant", "user", "assistant"]
    closing(s)
