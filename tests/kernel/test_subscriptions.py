from __future__ import annotations

from functools import partial

import anyio
import pytest
from pi_agent_kernel import (
    ALL_EVENTS,
    AgentEnd,
    AgentStart,
    MessageEnd,
    RetryPolicy,
    TextDelta,
    ToolExecutionEnd,
    TurnStart,
    faux_assistant_message,
    faux_provider,
)
from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.agent import Agent
from pi_agent_kernel.events import AGENT_EVENTS, LIFECYCLE_EVENTS
from scripted import Scripted, call, make_tool, ok

PLAIN = [
    "agent_start",
    "turn_start",
    "message_start",
    "message_end",
    "message_start",
    "message_end",
    "turn_end",
    "agent_end",
]


@pytest.fixture
def agent():
    return Agent(stream_fn=faux_provider().stream_fn)


@pytest.mark.parametrize("listener", [None, 42, "print", make_tool(ok)])
def test_a_listener_is_a_function(agent, listener):
    """Anything that cannot be called is refused at once (EV-04)."""
    with pytest.raises(TypeError, match=rf"function.*{type(listener).__name__}"):
        agent.subscribe(listener)


@pytest.mark.parametrize("events", ["agent_strat", ["agent_start", "nope"], [int], [None], int])
def test_an_unknown_event_is_refused(agent, events):
    """The error lists the events there are (api.md)."""
    with pytest.raises(ValueError, match=r"There is no event.*agent_start"):
        agent.subscribe(print, events=events)


def test_stream_events_cannot_be_subscribed_to(agent):
    """They travel inside message_update (EV-09)."""
    with pytest.raises(ValueError, match="TextDelta"):
        agent.subscribe(print, events=[TextDelta])


async def test_the_default_is_the_ten_events_of_the_reference():
    """The lifecycle events reach only a listener that asks for them (EV-01, D8)."""
    s = Scripted(
        faux_assistant_message("", stop_reason="error", error_message="overloaded"),
        call(),
        "ok",
        tools=[make_tool(lambda i, p, g, update: update("half"))],
        retry=RetryPolicy(base_delay_ms=0),
    )
    seen = set()
    s.agent.subscribe(lambda e, _: seen.add(type(e)))
    await s.prompt()

    assert seen == AGENT_EVENTS
    assert {type(event) for event in s.events} == ALL_EVENTS
    assert LIFECYCLE_EVENTS | AGENT_EVENTS == ALL_EVENTS
    assert len(AGENT_EVENTS) == 10


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ("agent_start", ["agent_start"]),
        (AgentEnd, ["agent_end"]),
        ([AgentStart, "agent_idle"], ["agent_start", "agent_idle"]),
        ({"turn_start"}, ["turn_start"]),
        ([], []),
    ],
)
async def test_a_filter_takes_classes_and_names(events, expected):
    """A filter is one event or several, by class or wire name (api.md)."""
    s = Scripted("ok")
    seen = []
    s.agent.subscribe(lambda e, _: seen.append(e.type), events=events)
    await s.prompt()

    assert seen == expected


async def test_plain_prompt_order():
    """The order of a run without tools (EV-02)."""
    s = Scripted("ok")
    seen = []
    s.agent.subscribe(lambda e, _: seen.append(e.type))
    await s.prompt()

    assert [kind for kind in seen if kind != "message_update"] == PLAIN


async def test_listeners_are_awaited_in_order():
    """Each waits for the one before; the next event waits for all (EV-04)."""
    s = Scripted("ok")
    seen = []

    def listener(name):
        async def listen(event, signal):
            seen.append((event.type, name, "in"))
            await anyio.lowlevel.checkpoint()
            seen.append((event.type, name, "out"))

        return listen

    s.agent.subscribe(listener("a"), events=["agent_start", "turn_start"])
    s.agent.subscribe(lambda e, _: seen.append((e.type, "b", "plain")), events=["agent_start"])
    s.agent.subscribe(listener("c"), events=["agent_start", "turn_start"])
    await s.prompt()

    assert seen == [
        ("agent_start", "a", "in"),
        ("agent_start", "a", "out"),
        ("agent_start", "b", "plain"),
        ("agent_start", "c", "in"),
        ("agent_start", "c", "out"),
        ("turn_start", "a", "in"),
        ("turn_start", "a", "out"),
        ("turn_start", "c", "in"),
        ("turn_start", "c", "out"),
    ]


async def test_the_same_signal_for_the_whole_run():
    """Every listener gets the run's signal, and the next run has another (EV-05)."""
    s = Scripted("a", "b")
    signals = []
    s.agent.subscribe(lambda e, signal: signals.append(signal), events=ALL_EVENTS)
    s.agent.subscribe(lambda e, signal: signals.append(s.agent.signal), events="turn_start")
    await s.prompt()
    first = set(map(id, signals))
    signals.clear()
    await s.prompt()

    assert len(first) == 1
    assert len(set(map(id, signals))) == 1
    assert first != set(map(id, signals))
    assert isinstance(signals[0], AbortSignal)


async def test_prompt_returns_after_the_last_listener():
    """`prompt()` and `wait_for_idle()` wait for agent_end's listeners (EV-06)."""
    s = Scripted("ok")
    gate, waiting, done = anyio.Event(), anyio.Event(), []

    async def hold(event, signal):
        waiting.set()
        await gate.wait()
        done.append("listener")

    async def idle():
        await s.agent.wait_for_idle()
        done.append("idle")

    async def prompt():
        await s.agent.prompt("go")
        done.append("prompt")

    s.agent.subscribe(hold, events="agent_end")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(prompt)
            await waiting.wait()
            group.start_soon(idle)
            await anyio.lowlevel.checkpoint()
            assert done == []
            gate.set()

    assert done[0] == "listener"
    assert sorted(done[1:]) == ["idle", "prompt"]


async def test_the_same_listener_counts_once():
    """Registered again it keeps its place and takes the new filter (EV-07)."""
    s = Scripted("ok")
    seen = []

    def listener(event, signal):
        seen.append(event.type)

    s.agent.subscribe(listener)
    s.agent.subscribe(lambda e, _: seen.append("other"), events="agent_end")
    s.agent.subscribe(listener, events="agent_end")
    await s.prompt()

    assert seen == ["agent_end", "other"]


async def test_bound_methods_count_as_the_same():
    """A bound method is a new object at each access, but the same listener (EV-07)."""

    class Counter:
        seen = 0

        def listen(self, event, signal):
            self.seen += 1

    s = Scripted("ok")
    counter = Counter()
    s.agent.subscribe(counter.listen, events="agent_end")
    off = s.agent.subscribe(counter.listen, events="agent_end")
    await s.prompt()
    off()
    await s.prompt()

    assert counter.seen == 1


async def test_an_unhashable_listener_is_fine():
    """A listener may be any callable, a dataclass with its own equality too (EV-04)."""

    class Listener:
        __hash__ = None

        def __init__(self):
            self.seen = []

        def __call__(self, event, signal):
            self.seen.append(event.type)

    s = Scripted("ok")
    listener = Listener()
    s.agent.subscribe(listener, events="agent_end")
    await s.prompt()

    assert listener.seen == ["agent_end"]


async def test_unsubscribing_twice_is_harmless():
    """The function takes the listener off, once (EV-07)."""
    s = Scripted("ok")
    seen = []
    off = s.agent.subscribe(lambda e, _: seen.append(e.type))
    off()
    off()
    await s.prompt()

    assert seen == []


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_changes_during_delivery_count_from_the_next_event(kind):
    """A listener added or removed by another counts from the next one (DEVIATIONS 12)."""
    s = Scripted("ok")
    seen = []

    def late(event, signal):
        seen.append(("late", event.type))

    def change(event, signal):
        if event.type == "agent_start":
            off()
            s.agent.subscribe(late, events=["agent_start", "turn_start"])

    async def change_async(event, signal):
        change(event, signal)

    events = ["agent_start", "turn_start"]
    s.agent.subscribe(change if kind == "plain" else change_async, events=events)
    off = s.agent.subscribe(lambda e, _: seen.append(("old", e.type)), events=events)
    await s.prompt()

    assert seen == [("old", "agent_start"), ("late", "turn_start")]


async def test_any_awaitable_is_awaited():
    """A listener may return an awaitable that is no coroutine (EV-04)."""
    done = []

    class Later:
        def __await__(self):
            done.append("awaited")
            return iter(())

    s = Scripted("ok")
    s.agent.subscribe(lambda e, _: 5, events="agent_start")
    s.agent.subscribe(lambda e, _: Later(), events="agent_start")
    await s.prompt()

    assert done == ["awaited"]


# ------------------------------------------------------------------------------- snapshots


async def test_event_payloads_never_change_the_transcript():
    """Everything a listener can reach refuses changes, or is its own (DEVIATIONS 11, S4-12)."""
    s = Scripted(
        call("t", "c1", a={"b": [1]}),
        "ok",
        tools=[make_tool(lambda *_: {"x": {"y": [1]}})],
    )
    refused = []

    def attempt(change):
        try:
            change()
        except (TypeError, AttributeError):
            refused.append(True)

    def meddle(event, signal):
        attempt(lambda: setattr(event, "message", None))
        match event:
            case MessageEnd(message=message) if message.role == "assistant":
                attempt(lambda: setattr(message, "content", ()))
                for asked in message.tool_calls:
                    attempt(partial(asked.arguments["a"]["b"].append, 2))
            case ToolExecutionEnd(result=result):
                attempt(lambda: result.structured_content["x"]["y"].append(2))
            case _:
                pass

    s.agent.subscribe(meddle)
    await s.prompt()

    assert len(refused) >= 4
    assert s.state.messages[2].tool_calls[0].arguments == {"a": {"b": [1]}}
    assert s.of("tool_execution_end")[0].result.structured_content == {"x": {"y": [1]}}


async def test_a_result_with_structured_content_is_a_snapshot():
    """What a tool keeps of its result, it cannot change afterwards (DEVIATIONS 11)."""
    from collections import OrderedDict

    from pi_agent_kernel import AgentToolResult

    kept = {"x": [1]}
    details = OrderedDict(d=[1])

    def returns(*_):
        return AgentToolResult(content="t", structured_content=kept, details=details)

    s = Scripted(call(), "ok", tools=[make_tool(returns)])
    await s.prompt()
    kept["x"].append(2)
    details["d"].append(2)

    (end,) = s.of("tool_execution_end")
    assert end.result.structured_content == {"x": [1]}
    assert end.result.details == {"d": [1]}
    assert s.results[0].details == {"d": [1]}


async def test_agent_end_lists_a_snapshot():
    """A listener that empties agent_end's list empties nobody else's (DEVIATIONS 11, D7)."""
    s = Scripted("ok")
    seen = []

    def empty(event, signal):
        try:
            event.messages.clear()
        except (AttributeError, TypeError):
            seen.append("refused")

    s.agent.subscribe(empty, events="agent_end")
    s.agent.subscribe(lambda e, _: seen.append(len(e.messages)), events="agent_end")
    await s.prompt()

    assert seen[-1] == 2
    assert len(s.agent.log[-2].event.messages) == 2


async def test_an_event_outside_a_run_raises():
    """Delivering an event after the run is a RuntimeError (EV-10)."""
    s = Scripted("ok")
    emits = []
    s.agent.subscribe(lambda e, _: emits.append(s.agent._active.emit), events="agent_start")
    await s.prompt()
    before = len(s.events)

    with pytest.raises(RuntimeError, match="turn_start was emitted outside an active run"):
        emits[0](TurnStart())
    assert len(s.events) == before


async def test_lifecycle_events_only():
    """A listener may ask for nothing but the lifecycle events (S4)."""
    s = Scripted("ok")
    seen = []
    s.agent.subscribe(lambda e, _: seen.append(e.type), events=LIFECYCLE_EVENTS)
    await s.prompt()

    assert seen == ["model_request_start", "model_response", "agent_idle"]


async def test_matching_by_class():
    """Events match by class, with their fields (api.md)."""
    s = Scripted("ok")
    await s.prompt()

    match s.events[1]:
        case TurnStart():
            matched = True
        case _:
            matched = False
    assert matched
    assert TurnStart.type == s.events[1].type == "turn_start"
