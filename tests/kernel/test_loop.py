from __future__ import annotations

import asyncio
import gc

import anyio
import pytest
from pi_agent_kernel import (
    AbortController,
    AgentContext,
    AgentLoopConfig,
    CustomMessage,
    ModelError,
    NothingToContinueError,
    SystemMessage,
    agent_loop,
    agent_loop_continue,
    faux_assistant_message,
    faux_provider,
    run_agent_loop,
    run_agent_loop_continue,
)
from scripted import LIMIT, answer, call, make_tool, ok, user

PLAIN = [
    *("agent_start", "turn_start", "message_start", "message_end"),
    *("message_start", "message_end", "turn_end", "agent_end"),
]


def scripted(*answers, **options):
    """A config and a stream function."""
    faux = faux_provider()
    faux.set_responses([answer(one) for one in answers])
    return AgentLoopConfig(model=faux.model(), **options), faux


def kinds(events):
    return [event.type for event in events if event.type != "message_update"]


def broken(*_):
    raise LookupError("it broke")


# -------------------------------------------------------------------------- callback form


@pytest.mark.parametrize("form", ["plain", "async"])
async def test_the_callback_form(form):
    """Every event is awaited; the new messages are returned, prompts first (LL-02, LP-11)."""
    config, faux = scripted("hello")
    events = []

    async def emit(event):
        await anyio.lowlevel.checkpoint()
        events.append(event)

    added = await run_agent_loop(
        [user("hi")], AgentContext(), config, events.append if form == "plain" else emit, None,
        faux.stream_fn,
    )  # fmt: skip

    assert kinds(events) == PLAIN
    assert [m.role for m in added] == ["user", "assistant"]
    assert list(events[-1].messages) == added


async def test_the_callback_form_of_continuing():
    """Only new messages are returned (LL-02, LP-11)."""
    config, faux = scripted("hello")
    events = []
    context = AgentContext(messages=[user("hi")])
    added = await run_agent_loop_continue(context, config, events.append, None, faux.stream_fn)

    assert kinds(events) == [*PLAIN[:2], *PLAIN[4:]]
    assert [m.role for m in added] == ["assistant"]


@pytest.mark.parametrize("kind", [list, tuple])
async def test_the_callers_lists_are_never_changed(kind):
    """Neither the context's nor the prompts (DEVIATIONS 7, LL-05)."""
    config, faux = scripted(call(), "end", call(), "end")
    messages, prompts, tools = kind([user("a")]), kind([user("b")]), kind([make_tool(ok)])
    context = AgentContext(messages=messages, tools=tools)

    await run_agent_loop(prompts, context, config, lambda _: None, None, faux.stream_fn)
    await run_agent_loop_continue(context, config, lambda _: None, None, faux.stream_fn)

    assert (len(messages), len(prompts), len(tools)) == (1, 1, 1)
    assert context.messages is messages


async def test_tools_are_declared_in_the_low_level_form():
    """A declaration is inserted, announced and returned like any message (TR-12)."""
    config, faux = scripted("x")
    context = AgentContext(messages=[user("a")], tools=[make_tool(ok)])
    added = await run_agent_loop([user("b")], context, config, lambda _: None, None, faux.stream_fn)

    assert [m.role for m in added] == ["system", "user", "assistant"]
    assert isinstance(added[0], SystemMessage)
    continued = scripted("x")
    added = await run_agent_loop_continue(
        context, continued[0], lambda _: None, None, continued[1].stream_fn
    )
    assert [m.role for m in added] == ["system", "assistant"]


@pytest.mark.parametrize("lifecycle", [False, True])
async def test_lifecycle_events_are_an_option(lifecycle):
    """The low-level form has the ten events unless it is asked for more (LL-07)."""
    config, faux = scripted(call(), "end", lifecycle_events=lifecycle)
    events = []
    await run_agent_loop(
        [user()], AgentContext(tools=[make_tool(ok)]), config, events.append, None, faux.stream_fn
    )

    found = {"model_request_start", "model_response", "tool_batch_start", "tool_batch_end"}
    assert (found <= set(kinds(events))) is lifecycle
    assert found.isdisjoint(kinds(events)) is not lifecycle


async def test_queues_are_functions():
    """Steering and follow-up come from callables, plain or async (LL-07)."""
    steering = iter([[], [user("s")]])
    follow = iter([[user("f")]])

    async def get_follow_up():
        return next(follow, [])

    config, faux = scripted(
        "1", "2", "3",
        get_steering_messages=lambda: next(steering, None),
        get_follow_up_messages=get_follow_up,
    )  # fmt: skip
    added = await run_agent_loop(
        [user("go")], AgentContext(), config, lambda _: None, None, faux.stream_fn
    )

    said = [m.content if m.role == "user" else m.text for m in added]
    assert said == ["go", "1", "s", "2", "f", "3"]


@pytest.mark.parametrize("queue", ["get_steering_messages", "get_follow_up_messages"])
async def test_an_aborted_run_polls_no_queue(queue):
    """Nothing is taken for a request that will not be made (DEVIATIONS 1)."""
    controller = AbortController()
    polled = []

    def get():
        polled.append(controller.signal.aborted)
        return []

    config, faux = scripted(call(), "never", **{queue: get})

    def emit(event):
        if event.type == "tool_execution_end":
            controller.abort()

    added = await run_agent_loop(
        [user()], AgentContext(tools=[make_tool(ok)]), config, emit, controller.signal,
        faux.stream_fn,
    )  # fmt: skip

    assert True not in polled
    assert added[-1].stop_reason == "aborted"


async def test_a_static_key_is_the_fallback():
    """`api_key` is used where get_api_key gives none (CO-08)."""
    seen = []
    config, faux = scripted("x", api_key="static", get_api_key=lambda provider: None)

    def stream_fn(model, context, options):
        seen.append(options.api_key)
        return faux.stream_fn(model, context, options)

    await run_agent_loop([user()], AgentContext(), config, lambda _: None, None, stream_fn)

    assert seen == ["static"]


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm", "finish_turn"])
async def test_the_callback_form_raises(hook):
    """What a hook raised reaches the caller (LL-02)."""
    config, faux = scripted("x", **{hook: broken})

    with pytest.raises(LookupError, match="it broke"):
        await run_agent_loop([user()], AgentContext(), config, lambda _: None, None, faux.stream_fn)


async def test_an_emit_that_raises_reaches_the_caller():
    """Nothing is swallowed on the way (LL-02)."""
    config, faux = scripted("x")

    with pytest.raises(LookupError):
        await run_agent_loop([user()], AgentContext(), config, broken, None, faux.stream_fn)


async def test_no_tool_outlives_a_callback_run():
    """A tool that runs when emit raises is cancelled and awaited (DEVIATIONS 2)."""
    ended = []

    async def forever(*_):
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    config, faux = scripted([call("forever", "a"), call("t", "b")])

    def emit(event):
        if event.type == "tool_execution_end":
            raise LookupError

    tools = [make_tool(forever, "forever"), make_tool(ok)]
    with anyio.fail_after(LIMIT), pytest.raises(LookupError):
        await run_agent_loop(
            [user()], AgentContext(tools=tools), config, emit, None, faux.stream_fn
        )

    assert ended == [1]


# -------------------------------------------------------------------------- iterator form


async def test_the_iterator_form():
    """Iterating yields the events; `result()` gives the new messages (LL-01)."""
    config, faux = scripted(call(), "end")
    context = AgentContext(tools=[make_tool(ok)])
    stream = agent_loop([user("hi")], context, config, None, faux.stream_fn)
    events = [event async for event in stream]

    assert kinds(events)[0] == "agent_start"
    assert kinds(events)[-1] == "agent_end"
    result = await stream.result()
    assert [m.role for m in result] == ["system", "user", "assistant", "toolResult", "assistant"]


async def test_the_result_without_iterating():
    """Nobody has to read the events (LL-01, LL-03)."""
    config, faux = scripted("a long answer " * 50)
    stream = agent_loop([user("hi")], AgentContext(), config, None, faux.stream_fn)
    with anyio.fail_after(LIMIT):
        result = await stream.result()

    assert [m.role for m in result] == ["user", "assistant"]
    assert kinds([event async for event in stream]) == PLAIN


async def test_the_loop_does_not_wait_for_its_reader():
    """The iterator only observes (LL-03)."""
    config, faux = scripted("hello")
    stream = agent_loop([user("hi")], AgentContext(), config, None, faux.stream_fn)
    with anyio.fail_after(LIMIT):
        async for event in stream:
            assert event.type == "agent_start"
            await stream.result()
            break

    assert stream.ended


async def test_continuing_as_an_iterator():
    """Continuation yields the events of the rest (LL-01)."""
    config, faux = scripted("x")
    context = AgentContext(messages=[user("hi")])
    stream = agent_loop_continue(context, config, None, faux.stream_fn)
    events = [event async for event in stream]

    assert [m.role for m in await stream.result()] == ["assistant"]
    assert events[0].type == "agent_start"


@pytest.mark.parametrize(
    ("messages", "role"),
    [([], None), ([user(), faux_assistant_message("x")], "assistant")],
)
async def test_continuing_is_refused_at_once(messages, role):
    """An empty context and an assistant tail raise before anything runs (LL-04)."""
    config, faux = scripted("x")
    context = AgentContext(messages=messages)
    for form in (
        lambda: agent_loop_continue(context, config, None, faux.stream_fn),
        lambda: run_agent_loop_continue(context, config, lambda _: None, None, faux.stream_fn),
    ):
        with pytest.raises(NothingToContinueError) as caught:
            await form()
        assert caught.value.role == role
        assert isinstance(caught.value, ValueError)

    assert faux.call_count == 0


async def test_continuing_from_a_custom_tail():
    """Any tail but an assistant message is accepted (000.69)."""
    config, faux = scripted("x")
    context = AgentContext(messages=[CustomMessage(role="note")])
    added = await run_agent_loop_continue(context, config, lambda _: None, None, faux.stream_fn)

    assert [m.role for m in added] == ["assistant"]


@pytest.mark.parametrize("hook", ["transform_context", "finish_turn", "get_api_key", "stream_fn"])
async def test_the_iterator_ends_by_raising(hook):
    """Iteration raises what the loop raised, and so does `result()` (LL-06, D12)."""
    config, faux = scripted("x", **({} if hook == "stream_fn" else {hook: broken}))
    stream_fn = broken if hook == "stream_fn" else faux.stream_fn
    stream = agent_loop([user()], AgentContext(), config, None, stream_fn)
    seen = []

    async def reader():
        async for event in stream:
            seen.append(event)  # noqa: PERF401 - the exception comes after some

    with anyio.fail_after(LIMIT):
        with pytest.raises(LookupError, match="it broke"):
            await reader()
        with pytest.raises(LookupError, match="it broke"):
            await stream.result()

    assert seen[0].type == "agent_start"


async def test_no_stream_function_fails_the_iterator():
    """The error of a missing stream function reaches the reader (CO-01)."""
    config, _ = scripted()
    stream = agent_loop([user()], AgentContext(), config)

    with anyio.fail_after(LIMIT), pytest.raises(ValueError, match="set_default_stream_fn"):
        await stream.result()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_leaving_early_is_clean(anyio_backend):
    """The run goes on to its end; no warning, no task is left (E27, LL-03)."""
    before = asyncio.all_tasks()
    config, faux = scripted(call(), "end")
    context = AgentContext(tools=[make_tool(ok)])
    stream = agent_loop([user("hi")], context, config, None, faux.stream_fn)
    count = 0
    async for _ in stream:
        count += 1
        if count == 3:
            break
    with anyio.fail_after(LIMIT):
        result = await stream.result()
    await asyncio.sleep(0)
    gc.collect()

    assert result[-1].text == "end"
    assert asyncio.all_tasks() == before


async def test_aborting_an_iterator_run():
    """The signal ends it with an aborted message (LL-01, AB-02)."""
    controller = AbortController()
    config, faux = scripted("hello world " * 20)
    stream = agent_loop([user("hi")], AgentContext(), config, controller.signal, faux.stream_fn)
    with anyio.fail_after(LIMIT):
        async for event in stream:
            if event.type == "message_update":
                controller.abort()
        result = await stream.result()

    assert result[-1].stop_reason == "aborted"
    assert stream.settled


def test_an_iterator_needs_a_loop():
    """Without a running event loop there is nothing it could run on."""
    config, faux = scripted("x")

    with pytest.raises(RuntimeError):
        agent_loop([user()], AgentContext(), config, None, faux.stream_fn)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_result_that_nobody_gave_raises(anyio_backend):
    """A run torn down with its loop still settles its stream (MD-09)."""
    config, _ = scripted()
    started = anyio.Event()

    async def hang(model, context, options):
        started.set()
        await anyio.sleep_forever()

    stream = agent_loop([user()], AgentContext(), config, None, hang)
    await started.wait()
    (task,) = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()
               and "work" in repr(t.get_coro())]  # fmt: skip
    task.cancel()
    with anyio.fail_after(LIMIT), pytest.raises((ModelError, asyncio.CancelledError)):
        await stream.result()
