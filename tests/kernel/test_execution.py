from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import (
    AgentToolResult,
    ImageContent,
    TextContent,
    ToolCall,
    Usage,
    faux_assistant_message,
)
from scripted import Scripted, call, make_tool, ok

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


# --------------------------------------------------------------------------- the pipeline


async def test_the_order_of_the_steps():
    """prepare_arguments, validation, before hook, execute, after hooks (TL-03)."""
    seen = []

    async def execute(tool_call_id, params, signal, on_update):
        seen.append(("execute", params))
        return "x"

    def prepare(arguments):
        seen.append(("prepare", arguments))
        return {"n": arguments["m"]}

    s = Scripted(
        call(m="3"),
        "end",
        tools=[make_tool(execute, parameters=NUMBER, prepare_arguments=prepare)],
        before_tool_call=lambda context, _: seen.append(("before", dict(context.args))),
        after_tool_call=lambda context, _: seen.append(("after", context.args)),
        after_tool_result=lambda message, _: seen.append(("result", message.text)),
    )
    await s.prompt()

    assert seen == [
        ("prepare", {"m": "3"}),
        ("before", {"n": 3}),
        ("execute", {"n": 3}),
        ("after", {"n": 3}),
        ("result", "x"),
    ]
    assert s.of("tool_execution_start")[0].args == {"m": "3"}


async def test_an_async_prepare_arguments():
    """`prepare_arguments` may be async; an exception in it fails the call (TL-03, TL-13)."""

    async def prepare(arguments):
        if arguments.get("bad"):
            raise ValueError("cannot prepare")
        return {"n": 1}

    t = make_tool(ok, parameters=NUMBER, prepare_arguments=prepare)
    s = Scripted([call("t", "a"), call("t", "b", bad=True)], "end", tools=[t])
    await s.prompt()

    assert s.outcomes == [("ok", False), ("cannot prepare", True)]


async def test_a_prepare_arguments_that_hangs_is_cut_off():
    """An abort does not wait for it (DEVIATIONS 14)."""
    started = anyio.Event()

    async def hang(arguments):
        started.set()
        await anyio.sleep_forever()

    s = Scripted(call(), tools=[make_tool(ok, prepare_arguments=hang)], abort_grace=0.01)
    with anyio.fail_after(2):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await started.wait()
            s.agent.abort()

    assert s.outcomes == [("Operation aborted", True)]
    s.check()


async def test_prepare_arguments_gets_a_copy():
    """What it changes in place does not reach the transcript (TL-08)."""

    def prepare(arguments):
        arguments["l"].append(2)
        return arguments

    seen = []
    s = Scripted(
        call(l=[1]),
        "end",
        tools=[make_tool(lambda i, p, g, u: seen.append(p), prepare_arguments=prepare)],
    )
    await s.prompt()

    assert seen == [{"l": [1, 2]}]
    assert s.state.messages[2].tool_calls[0].arguments == {"l": [1]}


async def test_an_unknown_tool():
    """It is an error result; no hook is asked (TL-04)."""
    asked = []
    s = Scripted(call("nope"), "end", before_tool_call=lambda *_: asked.append(1))
    await s.prompt()

    assert s.outcomes == [("Tool nope not found", True)]
    assert asked == []
    assert s.results[0].duration_ms is None


async def test_invalid_arguments():
    """The result lists what is wrong and what was received; no hook runs (TL-05)."""
    asked = []
    s = Scripted(
        call(n="abc"),
        "end",
        tools=[make_tool(ok, parameters=NUMBER)],
        before_tool_call=lambda *_: asked.append(1),
        after_tool_call=lambda *_: asked.append(2),
    )
    await s.prompt()

    text, is_error = s.outcomes[0]
    assert is_error
    assert text.startswith('Validation failed for tool "t":\n  - n: ')
    assert text.endswith('Received arguments:\n{\n  "n": "abc"\n}')
    assert asked == []


async def test_arguments_that_were_no_json():
    """A call with `arguments_error` is never executed (TL-06)."""
    broken = ToolCall(id="c1", name="t", arguments_error='not JSON: {"n": 1')
    prepared = []
    t = make_tool(ok, prepare_arguments=prepared.append)
    s = Scripted(faux_assistant_message(broken), "end", tools=[t])
    await s.prompt()

    assert s.outcomes == [('Invalid arguments for tool "t": not JSON: {"n": 1', True)]
    assert prepared == []


async def test_the_tool_owns_its_arguments():
    """Changing them in place does not reach events or transcript (TL-08, TL-20)."""

    def execute(tool_call_id, params, signal, on_update):
        params["l"].append("mine")
        params["new"] = 1
        return "x"

    s = Scripted(call(l=["a"]), "end", tools=[make_tool(execute)])
    await s.prompt()

    assert s.state.messages[2].tool_calls[0].arguments == {"l": ["a"]}
    assert s.of("tool_execution_start")[0].args == {"l": ["a"]}


# -------------------------------------------------------------------------------- batches


def ordered(*names):
    """A tool whose calls end in this order."""
    gates = {name: anyio.Event() for name in names}
    started = []

    async def execute(tool_call_id, params, signal, on_update):
        started.append(tool_call_id)
        if len(started) == len(names):
            gates[names[0]].set()
        await gates[tool_call_id].wait()
        at = names.index(tool_call_id) + 1
        if at < len(names):
            gates[names[at]].set()
        return tool_call_id

    return make_tool(execute), started


async def test_parallel_calls_run_at_the_same_time():
    """Ends come in order of completion, messages in order of the calls (TL-09, TL-10)."""
    t, started = ordered("c", "a", "b")
    s = Scripted([call("t", x) for x in "abc"], "end", tools=[t])
    await s.prompt()

    assert sorted(started) == ["a", "b", "c"]
    assert [e.tool_call_id for e in s.of("tool_execution_end")] == ["c", "a", "b"]
    assert [r.tool_call_id for r in s.results] == ["a", "b", "c"]
    assert [r.tool_call_id for r in s.of("turn_end")[0].tool_results] == ["a", "b", "c"]


async def test_parallel_calls_are_all_prepared_first():
    """Start events and before hooks of the batch come before any execution (TL-09)."""
    seen = []
    s = Scripted(
        [call("t", "a"), call("t", "b")],
        "end",
        tools=[make_tool(lambda i, *_: seen.append(("run", i)))],
        before_tool_call=lambda context, _: seen.append(("before", context.tool_call.id)),
    )
    s.agent.subscribe(
        lambda e, _: seen.append(("start", e.tool_call_id)), events="tool_execution_start"
    )
    await s.prompt()

    assert seen[:4] == [("start", "a"), ("before", "a"), ("start", "b"), ("before", "b")]
    assert sorted(seen[4:]) == [("run", "a"), ("run", "b")]


@pytest.mark.parametrize("by", ["agent", "tool"])
async def test_sequential_calls(by):
    """Each call is wholly finished, message included, before the next (TL-11, TL-12)."""
    mode = {"execution_mode": "sequential"} if by == "tool" else {}
    options = {"tool_execution": "sequential"} if by == "agent" else {}
    s = Scripted(
        [call("u", "a"), call("t", "b")],
        "end",
        tools=[make_tool(ok, **mode), make_tool(ok, "u")],
        **options,
    )
    await s.prompt()

    batch = s.core[s.core.index("tool_batch_start") + 1 : s.core.index("tool_batch_end")]
    each = ["tool_execution_start", "tool_execution_end", "message_start", "message_end"]
    assert batch == each * 2


async def test_a_parallel_tool_in_a_sequential_agent():
    """The agent's mode decides; a tool cannot make it parallel (TL-12)."""
    t = make_tool(ok, execution_mode="parallel")
    s = Scripted([call("t", "a"), call("t", "b")], "end", tools=[t], tool_execution="sequential")
    await s.prompt()

    first_end = s.core.index("tool_execution_end")
    assert s.core[:first_end].count("tool_execution_start") == 1


async def test_a_truncated_response_executes_nothing():
    """Each call gets an error that asks to send it again; the loop goes on (LP-03)."""
    ran = []
    s = Scripted(
        faux_assistant_message([call("t", "a"), call("t", "b")], stop_reason="length"),
        "end",
        tools=[make_tool(lambda *_: ran.append(1))],
        before_tool_call=lambda *_: ran.append(2),
    )
    await s.prompt()

    assert ran == []
    assert [flag for _, flag in s.outcomes] == [True, True]
    assert "Re-issue the tool call" in s.outcomes[0][0]
    assert s.last.text == "end"
    s.check()


async def test_a_truncated_batch_never_ends_the_run():
    """Not even if a hook makes its results ask for it (LP-03)."""
    s = Scripted(
        faux_assistant_message([call()], stop_reason="length"),
        "end",
        tools=[make_tool(ok)],
        after_tool_result=lambda message, _: message,
    )
    await s.prompt()

    assert s.last.text == "end"


async def test_calls_run_whatever_the_stop_reason_says():
    """A "stop" response with a call runs it (LP-02)."""
    s = Scripted(faux_assistant_message([call()], stop_reason="stop"), "end", tools=[make_tool(ok)])
    await s.prompt()

    assert s.outcomes == [("ok", False)]


@pytest.mark.parametrize("reason", ["error", "aborted"])
async def test_a_failed_response_runs_nothing(reason):
    """Calls in a failed response are neither executed nor answered (LP-04)."""
    message = faux_assistant_message([call()], stop_reason=reason, error_message="no")
    s = Scripted(message, "never", tools=[make_tool(ok)])
    await s.prompt()

    assert s.results == []
    assert len(s.requests) == 1


# ------------------------------------------------------------------------------- results


async def test_an_exception_is_an_error_result():
    """Its text, empty details, and the siblings are not disturbed (TL-13)."""

    def execute(tool_call_id, params, signal, on_update):
        if tool_call_id == "b":
            raise LookupError("missing")
        return tool_call_id

    s = Scripted([call("t", x) for x in "abc"], "end", tools=[make_tool(execute)])
    await s.prompt()

    assert s.outcomes == [("a", False), ("missing", True), ("c", False)]
    assert s.results[1].details == {}
    assert isinstance(s.results[1].duration_ms, int)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("name"), "KeyError: 'name'"),
        (ValueError(), "ValueError"),
        (KeyError(), "KeyError"),
        (RuntimeError("two\nlines"), "two\nlines"),
    ],
)
async def test_an_error_text_says_what_happened(error, text):
    """A KeyError shows more than the key, and no error is without a text (TL-13)."""

    def execute(*_):
        raise error

    s = Scripted(call(), "end", tools=[make_tool(execute)])
    await s.prompt()

    assert s.outcomes == [(text, True)]


async def test_a_returned_error_keeps_its_details():
    """`is_error` marks a failure without losing what the tool said (TL-14)."""
    result = AgentToolResult(
        content="failed", details={"code": 3}, structured_content={"a": 1}, is_error=True
    )
    s = Scripted(call(), "end", tools=[make_tool(lambda *_: result)])
    await s.prompt()

    (end,) = s.of("tool_execution_end")
    assert (end.is_error, end.result.is_error, end.result.structured_content) == (
        True,
        True,
        {"a": 1},
    )
    assert (s.results[0].is_error, s.results[0].details) == (True, {"code": 3})


async def test_missing_content_becomes_an_empty_list():
    """In the message it is empty, in the event's result absent (TL-15)."""
    s = Scripted(call(), "end", tools=[make_tool(lambda *_: AgentToolResult())])
    await s.prompt()

    assert s.results[0].content == ()
    assert s.of("tool_execution_end")[0].result.content is None


async def test_a_rich_result():
    """Images, details and usage reach the message (TL-02, MS-03)."""
    image = ImageContent(data="aGk=", mime_type="image/png")
    usage = Usage(input=3, total_tokens=3)
    result = AgentToolResult(content=["text", image], details={"d": [1]}, usage=usage)
    s = Scripted(call(), "end", tools=[make_tool(lambda *_: result)])
    await s.prompt()

    (message,) = s.results
    assert message.content == (TextContent(text="text"), image)
    assert (message.details, message.usage) == ({"d": [1]}, usage)
    assert s.last.usage != usage


@pytest.mark.parametrize(
    ("flags", "requests"), [((True, True), 1), ((True, False), 2), ((None, True), 2), ((1, 1), 2)]
)
async def test_terminate_needs_every_result(flags, requests):
    """The run ends without another request only if all of a batch ask for it (TL-16)."""
    by_id = dict(zip("ab", flags, strict=True))
    t = make_tool(lambda i, *_: AgentToolResult(content="x", terminate=by_id[i]))
    s = Scripted([call("t", "a"), call("t", "b")], "end", tools=[t])
    await s.prompt()

    assert len(s.requests) == requests
    assert not hasattr(s.results[0], "terminate")


async def test_follow_ups_are_polled_after_terminate():
    """The run goes on with them (TL-16)."""
    t = make_tool(lambda *_: AgentToolResult(content="x", terminate=True))
    s = Scripted(call(), "after", tools=[t])
    s.agent.follow_up("more")
    await s.prompt()

    assert s.last.text == "after"


# ------------------------------------------------------------------------------- progress


async def test_progress_is_announced():
    """Each report during execution is an event with the raw arguments (TL-17, TL-20)."""

    def execute(tool_call_id, params, signal, on_update):
        on_update("half")
        on_update({"content": [{"type": "text", "text": "most"}], "details": {"p": 80}})
        return "all"

    s = Scripted(call(n="3"), "end", tools=[make_tool(execute, parameters=NUMBER)])
    await s.prompt()

    first, second = s.of("tool_execution_update")
    assert (first.tool_call_id, first.tool_name, first.args) == ("c1", "t", {"n": "3"})
    assert first.partial_result.content == (TextContent(text="half"),)
    assert second.partial_result.details == {"p": 80}
    kinds = s.core
    assert kinds.index("tool_execution_end") > kinds.index("tool_execution_update")


async def test_updates_are_delivered_before_the_end():
    """The end event waits for slow listeners of an update (TL-17)."""
    order = []

    async def slow(event, signal):
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        order.append(event.type)

    async def execute(tool_call_id, params, signal, on_update):
        on_update("half")
        return "all"

    s = Scripted(call(), "end", tools=[make_tool(execute)])
    s.agent.subscribe(slow, events=["tool_execution_update", "tool_execution_end"])
    await s.prompt()

    assert order == ["tool_execution_update", "tool_execution_end"]


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_an_update_listener_that_raises_fails_the_run(kind):
    """It is the listener's fault, not the tool's (FL-05)."""

    def broken(event, signal):
        raise ValueError("listener")

    async def broken_async(event, signal):
        raise ValueError("listener")

    async def execute(tool_call_id, params, signal, on_update):
        on_update("half")
        return "all"

    s = Scripted(call(), "end", tools=[make_tool(execute)])
    s.agent.subscribe(broken if kind == "plain" else broken_async, events="tool_execution_update")
    await s.prompt()

    assert s.last.error_message == "listener"
    assert s.outcomes == [("listener", True)]
    s.check()


@pytest.mark.parametrize("bad", [object(), {1: object()}, float("nan")])
async def test_a_strange_report_does_not_hurt(bad):
    """Progress takes anything; what a tool reports cannot fail it (DEVIATIONS 9)."""

    def execute(tool_call_id, params, signal, on_update):
        on_update(bad)
        return "done"

    s = Scripted(call(), "end", tools=[make_tool(execute)])
    await s.prompt()

    assert s.outcomes == [("done", False)]
    assert s.count("tool_execution_update") == 1


async def test_durations():
    """Whole milliseconds for tools that ran, absent for those that did not (TL-18)."""
    from pi_agent_kernel import BeforeToolCallResult

    s = Scripted(
        [call("t", "a"), call("nope", "b"), call("t", "c"), call("n", "d")],
        "end",
        tools=[make_tool(ok), make_tool(ok, "n", parameters=NUMBER)],
        before_tool_call=lambda c, _: BeforeToolCallResult(block=c.tool_call.id == "c"),
    )
    await s.prompt()

    durations = {e.tool_call_id: e.duration_ms for e in s.of("tool_execution_end")}
    assert type(durations.pop("a")) is int
    assert durations == {"b": None, "c": None, "d": None}
    assert [r.duration_ms is None for r in s.results] == [False, True, True, True]
