"""What the format has beyond the scenarios at hand: every step, action, kind and function."""

from __future__ import annotations

from typing import Any

import pytest
from pi_agent_kernel import get_default_stream_fn, set_default_stream_fn
from pi_agent_kernel.conformance import ScenarioError, execute, executor

TEXT = [{"type": "text", "text": "t"}]
SYSTEM = {"role": "system", "content": "S", "timestamp": 1}
TOOL = {"name": "a", "description": "d", "parameters": {"type": "object"}}


def play(**fields) -> dict[str, Any]:
    """Play a scenario on both event loops; the traces must be equal."""
    scenario = {"format": 1, "name": "x", **fields}
    trace = execute(scenario)

    assert execute(scenario, backend="trio") == trace
    return trace


def log_of(*keys: str, **fields) -> list[dict[str, Any]]:
    """Return the log entries that begin with one of these keys, without the states."""
    log = play(**fields)["log"]
    chosen = [entry for entry in log if next(iter(entry)) in keys]
    return [{key: entry[key] for key in entry if key != "state"} for entry in chosen]


def calls(*ids: str, name: str = "t") -> dict[str, Any]:
    return {"content": [{"type": "toolCall", "id": i, "name": name, "arguments": {}} for i in ids]}


def value_of(fn: str, *args: Any) -> Any:
    (result,) = play(kind="functions", cases=[{"fn": fn, "args": list(args)}])["results"]
    assert result.pop("fn") == fn
    return result.get("value", result)


@pytest.mark.parametrize(
    ("fn", "args", "value"),
    [
        (
            "resolveTranscriptTools",
            [[SYSTEM | {"toolsAdded": [TOOL]}], "additions"],
            {"requestTools": [TOOL], "foldedSystemMessages": 1},
        ),
        ("hasNonAdditiveToolChanges", [[SYSTEM]], False),
        ("mergeClientIdentity", [None, {"version": "1"}, {"attribution": None}], None),
        ("mergeClientIdentity", [None], {"$undefined": True}),
        ("streamingJsonSnapshots", [['{"a":"h', 'i"', ',"b":']], [{"a": "h"}, *[{"a": "hi"}] * 2]),
        ("streamingJsonPrefixes", ["[\N{GRINNING FACE}"], None),
        (
            "toolCallArgumentsStream",
            [[{"append": '{"a":"x'}, {"replace": '{"a":"xy"}'}, {"replace": '{"b":1}'}]],
            [{"a": "x"}, {"delta": 'y"}', "arguments": {"a": "xy"}}, {"arguments": {"b": 1}}],
        ),
        (
            "toolCallArgumentsStream",
            [[{"append": "{"}, {"finish": True}]],
            [{}, {"arguments": {}, "argumentsError": {"received": "{"}}],
        ),
        ("parseStreamingJson", ["null"], None),
        ("contentText", [TEXT], "t"),
        (
            "withoutInitialSystemMessage",
            [[SYSTEM, {"role": "assistant", "content": TEXT}]],
            [{"role": "assistant", "content": TEXT}],
        ),
        (
            "eventStream",
            [[{"push": {"type": "x"}}], "interleaved"],
            {"seen": [{"type": "x"}], "finished": False, "result": {"pending": True}},
        ),
    ],
)
def test_function(fn, args, value):
    """Functions get plain JSON and give plain JSON; undefined has a mark."""
    if fn == "mergeClientIdentity" and len(args) > 1:
        value = {"version": "1", "attribution": None}
    if fn == "streamingJsonPrefixes":
        value = [[], [], []]

    assert value_of(fn, *args) == value


def test_stream_that_ends_without_a_result_raises():
    """Where the reference's result stays pending for ever, ours raises (DEVIATIONS 4)."""
    value = value_of("eventStream", [{"end": None}], "before")

    assert value["finished"] is True
    assert "without" in value["result"]["throws"]["message"]


def test_unknown_stream_operation():
    """An operation that is not described fails the scenario."""
    cases = [{"fn": "toolCallArgumentsStream", "args": [[{"dance": 1}]]}]

    with pytest.raises(ScenarioError, match="unknown operation 'dance'"):
        execute({"format": 1, "kind": "functions", "cases": cases})


def test_loop_polls_and_signal():
    """A loop's polls are logged with what they return; `abort` aborts the signal passed in."""
    log = log_of(
        "poll",
        "note",
        "action",
        "hook",
        kind="loop",
        tools={"t": {"calls": [{"do": [{"do": "abort"}, {"noteAborted": "now"}]}]}},
        context={"messages": [], "tools": ["t"]},
        config={"steering": [["s"]], "followUps": [[], ["f"]], "apiKey": "key"},
        hooks={"prepareNextTurn": [{"do": [{"return": {"model": "faux-2"}}]}]},
        responses=[{"text": "one"}, calls("c")],
        runs=[{"mode": "runStart", "prompts": ["p"]}, {"mode": "runStart", "prompts": ["q"]}],
    )

    assert [entry for entry in log if "poll" in entry] == [
        {"poll": "steering", "returned": ["user"]},
        {"poll": "steering", "returned": []},
        {"poll": "followUp", "returned": []},
        {"poll": "steering", "returned": []},
    ]
    assert {"action": "abort", "from": "tool:c"} in log
    assert {"note": "now", "aborted": True} in log


@pytest.mark.parametrize(("signal", "aborted"), [("none", None), ("fresh", False)])
def test_tool_call_signal(signal, aborted):
    """A tool call runs with the signal that the scenario names, or without one."""
    log = log_of(
        "tool",
        "note",
        "outcome",
        "action",
        "update",
        kind="toolCall",
        signal=signal,
        tools={
            "outer": {
                "calls": [
                    {
                        "do": [
                            {"callTool": {"id": "n", "name": "t", "arguments": {}}},
                            {"update": {"details": {"from": "{{id}}"}}},
                            {"noteAborted": "here"},
                            {"do": "addResponses", "responses": []},
                            {"return": {"terminate": True}},
                        ]
                    }
                ]
            },
            "t": {"calls": [{"do": [{"waitAbort": True}]}] if signal == "none" else []},
        },
        useTools=["outer", "t"],
        toolCalls=[{"id": "c", "name": "outer", "arguments": {}}],
    )

    assert [entry.get("aborted") for entry in log if "tool" in entry] == [aborted, aborted]
    assert {"note": "here", "aborted": aborted} in log
    assert {"update": "c", "partialResult": {"details": {"from": "c"}}} in log
    assert {"action": "addResponses", "from": "tool:c"} in log
    assert log[-1]["result"] == {"terminate": True}


def test_aborted_tool_call():
    """A call whose signal is aborted beforehand does not run."""
    (outcome,) = log_of(
        "outcome",
        "tool",
        kind="toolCall",
        signal="aborted",
        observeUpdates=False,
        tools={"t": {}},
        useTools=["t"],
        toolCalls=[{"id": "c", "name": "t"}],
    )

    assert outcome["result"]["content"][0]["text"] == "Operation aborted"


def test_low_level_host_knows_no_agent_actions():
    """Actions of an agent make no sense in a loop and fail the scenario."""
    with pytest.raises(ScenarioError, match="unknown action 'steer' without an agent"):
        execute(
            {
                "format": 1,
                "kind": "toolCall",
                "tools": {"t": {"calls": [{"do": [{"do": "steer", "text": "x"}]}]}},
                "useTools": ["t"],
                "toolCalls": [{"id": "c", "name": "t"}],
            }
        )


def test_steps_around_a_run():
    """Gates, events, background actions and late updates order what they say they order."""
    log = log_of(
        "note",
        "action",
        "tool",
        options={"tools": ["t"]},
        tools={
            "t": {
                "calls": [
                    {
                        "when": {"id": "c1"},
                        "do": [
                            {"lateUpdate": {"details": {}}, "afterMs": 1},
                            {"waitEnd": "c2"},
                            {"note": "{{id}} after c2"},
                        ],
                    }
                ]
            }
        },
        order=[["c2", "c1"]],
        responses=[calls("c1", "c2"), {"text": "end"}],
        actions=[
            {"do": "prompt", "text": "go", "background": True},
            {"do": "prompt", "text": "busy", "background": True},
            {"waitEvent": {"type": "message_update", "update": "text_delta", "delta": "end"}},
            {"note": "end seen"},
            {"do": "join"},
        ],
    )

    assert [entry["id"] for entry in log if "tool" in entry] == ["c1", "c2"]
    assert [entry["note"] for entry in log if "note" in entry] == ["c1 after c2", "end seen"]
    ok, busy = log[-1]["value"]
    assert ok == {"ok": True}
    assert busy["throws"]["code"] == "busy-prompt"


def test_hooks_and_options_can_change():
    """`setHook`, `setOption`, `getOption` and `setModel` reach the agent."""
    keep = [{"when": {}, "do": [{"return": [{"keepFirst": 1}]}]}]
    log = log_of(
        "hook",
        "action",
        "request",
        actions=[
            {"do": "setHook", "hook": "transformContext", "rules": keep},
            {"do": "setOption", "name": "toolExecution", "value": "sequential"},
            {"do": "getOption", "name": "toolExecution"},
            {"do": "prompt", "messages": ["one", "two"]},
            {"do": "setHook", "hook": "transformContext", "rules": None},
            {"do": "prompt", "message": "three"},
        ],
        responses=[{"echoLastUser": "> "}, {"text": "b"}],
    )

    assert {"action": "getOption", "value": "sequential"} in log
    assert [len(entry["messages"]) for entry in log if "request" in entry] == [1, 4]
    assert len([entry for entry in log if "hook" in entry]) == 1


@pytest.mark.parametrize(
    ("operation", "roles"),
    [
        ({"keepLast": 1}, ["user"]),
        ({"keepLast": 0}, []),
        ({"dropRoles": ["notification"]}, ["user", "user"]),
        ({"keepRoles": ["notification"]}, ["notification"]),
        ({"append": ["x"]}, ["user", "notification", "user", "user"]),
        ({"toUser": {"role": "notification", "field": "text"}}, ["user", "user", "user"]),
    ],
)
def test_message_operations(operation, roles):
    """Message operations change what the model sees."""
    (request,) = log_of(
        "request",
        hooks={"convertToLlm": [{"do": [{"return": [operation, {"keepRoles": roles}]}]}]},
        options={"messages": ["first", {"role": "notification", "text": "news"}]},
        responses=[{"text": "ok"}],
        actions=[{"do": "prompt", "text": "go"}],
    )

    assert [message["role"] for message in request["messages"]] == roles


def test_tool_without_order():
    """With `free` nothing waits; results may be nothing, and arguments preparation may fail."""
    log = log_of(
        "event",
        free=True,
        options={"tools": ["t", "u"]},
        tools={
            "t": {"calls": [{"when": {"id": "c1"}, "do": [{"delay": 100}]}]},
            "u": {"prepareArguments": {"throw": "no"}},
        },
        responses=[calls("c1", "c2"), calls("c3", name="u"), {"text": "end"}],
        actions=[{"do": "prompt", "text": "go"}],
    )

    ends = [entry for entry in log if entry["event"] == "tool_execution_end"]
    assert [entry["toolCallId"] for entry in ends] == ["c2", "c1", "c3"]
    assert ends[-1]["result"]["content"] == [{"type": "text", "text": "no"}]


@pytest.mark.parametrize("kind", ["throw", "reject"])
def test_stream_function_that_raises(kind):
    """A stream function that raises, at once or later, fails the run."""
    trace = play(
        responses=[{"streamFn": {kind: "broken"}}], actions=[{"do": "prompt", "text": "go"}]
    )

    assert trace["final"]["messages"][-1]["errorMessage"] == "broken"
    assert trace["final"]["messages"][-1]["usage"] == "zero"


def test_construction_that_fails():
    """What the constructor refuses is recorded, and the trace ends there."""
    trace = play(options={"thinkingLevel": "immense"})

    assert list(trace) == ["scenario", "log"]
    assert list(trace["log"][0]) == ["action", "throws"]


def test_abort_at_the_first_block():
    """A provider that sees the abort before a chunk ends with the partial content so far."""
    trace = play(
        on=[{"when": {"update": "text_start"}, "do": [{"do": "abort"}]}],
        responses=[{"text": "never seen", "tokensPerSecond": 100}],
        actions=[{"do": "prompt", "text": "go"}],
    )

    last = trace["final"]["messages"][-1]
    assert last["content"] == [{"type": "text", "text": ""}]
    assert (last["stopReason"], last["usage"]) == ("aborted", "nonzero")


def test_abort_before_anything_is_streamed():
    """Steps before a response run after the response callback; an abort in them is answered."""
    log = log_of(
        "callback",
        "action",
        "event",
        options={"callbacks": ["onResponse"]},
        responses=[{"text": "never seen", "before": [{"do": "abort"}]}],
        actions=[{"do": "prompt", "text": "go"}],
    )

    at = log.index({"callback": "onResponse", "status": 200})
    assert log[at + 1] == {"action": "abort", "from": "response"}
    assert log[at + 2]["message"]["stopReason"] == "aborted"
    assert log[at + 2]["message"]["content"] == []


def test_scripted_stream():
    """A script pushes events by hand, tool calls included; its steps run in between."""
    call = calls("c")["content"][0]
    push = {"type": "toolcall_end", "contentIndex": 0, "toolCall": call}
    done = {"type": "done", "message": {"content": [call]}}
    log = log_of(
        "note",
        "event",
        options={"tools": ["t"]},
        tools={"t": {}},
        responses=[
            {
                "script": [
                    {"push": {"type": "start"}},
                    {"push": push},
                    {"note": "n"},
                    {"push": done},
                ]
            },
            {"script": [{"throw": "broken"}]},
        ],
        actions=[{"do": "prompt", "text": "go"}],
    )

    assert {"note": "n"} in log
    update = {"type": "toolcall_end", "contentIndex": 0, "toolCall": call}
    assert {"event": "message_update", "role": "assistant", "update": update} in log
    assert log[-1]["messages"][-1]["errorMessage"] == "broken"


def test_failed_actions_are_recorded():
    """An action that fails is recorded with its text, and the script goes on."""
    log = log_of(
        "action",
        actions=[{"do": "popMessage"}, {"do": "setSteeringMode", "mode": "none"}, {"do": "abort"}],
    )

    assert ["throws" in entry for entry in log] == [False, True, True, False]


def test_default_stream_function_is_restored():
    """A scenario leaves the process's default stream function as it was."""
    before = lambda *_: None  # noqa: E731 - any function
    set_default_stream_fn(before)
    try:
        play(options={"streamFn": "missing"})
        assert get_default_stream_fn() is before
    finally:
        set_default_stream_fn(None)


def test_stuck_scenario_is_left_behind(monkeypatch):
    """Even code that never yields to its event loop cannot hang the executor."""
    import threading

    release = threading.Event()

    async def stuck(_stage):
        release.wait()
        return {}

    monkeypatch.setitem(executor._KINDS, "stuck", stuck)
    monkeypatch.setattr(executor, "_STUCK_AFTER", 0.05)
    try:
        with pytest.raises(ScenarioError, match="without yielding"):
            execute({"format": 1, "kind": "stuck"})
    finally:
        release.set()
