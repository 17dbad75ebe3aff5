"""Bugs of other agents, of how they ran tools, that ours must not have (part B)."""

from __future__ import annotations

import asyncio

import anyio
import msgspec
import pytest
from pi_agent_kernel import (
    AfterToolCallResult,
    AgentToolResult,
    BeforeToolCallResult,
    ResponseBuilder,
    Tool,
    ToolCall,
    from_json,
    parse_streaming_json,
    tool,
)
from scripted import LIMIT, Scripted, call, make_tool, ok

ABC = [call("t", x) for x in "abc"]


def object_of(**properties):
    return {"type": "object", "properties": properties}


async def params_for(schema, /, **arguments):
    """What a tool of this schema gets; the text of the error otherwise."""
    seen = []

    async def execute(tool_call_id, params, signal, on_update):
        seen.append(params)

    s = Scripted(call("t", "c", **arguments), "end", tools=[make_tool(execute, parameters=schema)])
    await s.prompt()
    return seen[0] if seen else s.results[0].text


async def test_b01_an_after_hook_that_raises_spoils_one_call():
    """Results ok, error, ok; the loop continues (B01)."""

    def after(context, signal):
        if context.tool_call.id == "b":
            raise ValueError("after")

    s = Scripted(ABC, "end", tools=[make_tool(ok)], after_tool_call=after)
    await s.prompt()

    assert s.outcomes == [("ok", False), ("after", True), ("ok", False)]
    assert s.last.text == "end"


async def test_b02_the_end_is_told_at_completion():
    """End order 2, 3, 1; message order 1, 2, 3 (B02)."""
    gates = {x: anyio.Event() for x in "abc"}
    gates["b"].set()
    following = {"b": "c", "c": "a"}

    async def execute(tool_call_id, params, signal, on_update):
        await gates[tool_call_id].wait()
        return tool_call_id

    def open_next(event, signal):
        if event.tool_call_id in following:
            gates[following[event.tool_call_id]].set()

    s = Scripted(ABC, "end", tools=[make_tool(execute)])
    s.agent.subscribe(open_next, events="tool_execution_end")
    await s.prompt()

    assert [e.tool_call_id for e in s.of("tool_execution_end")] == ["b", "c", "a"]
    assert [r.tool_call_id for r in s.results] == ["a", "b", "c"]


async def test_b03_late_progress_is_ignored():
    """A report after the tool returned makes no event (B03)."""
    kept = []

    async def execute(tool_call_id, params, signal, on_update):
        kept.append(on_update)

    s = Scripted(call(), "end", tools=[make_tool(execute)])
    s.agent.subscribe(lambda e, _: kept[0]("late"), events=["tool_execution_end", "turn_end"])
    await s.prompt()

    assert s.count("tool_execution_update") == 0


async def test_b04_overrides_apply_to_failures():
    """The after hook clears the flag and sets details of a tool that raised (B04)."""

    def fails(*_):
        raise ValueError("no")

    s = Scripted(
        call(), "end", tools=[make_tool(fails)],
        after_tool_call=lambda *_: AfterToolCallResult(is_error=False, details={"a": 1}),
    )  # fmt: skip
    await s.prompt()

    assert (s.results[0].is_error, s.results[0].details) == (False, {"a": 1})


async def test_b05_patches_chain():
    """after_tool_call sets details, after_tool_result the content: both are there (B05)."""
    from pi_agent_kernel import TextContent

    s = Scripted(
        call(), "end", tools=[make_tool(ok)],
        after_tool_call=lambda *_: AfterToolCallResult(details={"a": 1}),
        after_tool_result=lambda m, _: msgspec.structs.replace(
            m, content=(TextContent(text="new"),)
        ),
    )  # fmt: skip
    await s.prompt()

    assert (s.results[0].text, s.results[0].details) == ("new", {"a": 1})


async def test_b06_a_returned_flag_marks_a_failure():
    """End event and message are errors, details kept (B06)."""
    result = AgentToolResult(content="x", details={"a": 1}, is_error=True)
    s = Scripted(call(), "end", tools=[make_tool(lambda *_: result)])
    await s.prompt()

    assert s.of("tool_execution_end")[0].is_error
    assert (s.results[0].is_error, s.results[0].details) == (True, {"a": 1})


def test_b08_an_invalid_escape_is_literal():
    """A LaTeX command loses no field (B08)."""
    builder = ResponseBuilder(api="a", provider="p", model="m")
    builder.toolcall_start("c", "t")
    builder.toolcall_delta(r'{"a":"\usepackage{x}","b":"y"}', 0)
    finished = builder.toolcall_end(0).tool_call

    assert finished.arguments == {"a": r"\usepackage{x}", "b": "y"}


def test_b09_a_malformed_tail_never_raises():
    """A partial is an object at every length (B09)."""
    text = '{"a": [1, {"b": "\\u00e4\\n"}], "c": fals}garbage]"\\'
    for tail in ("", "\x00", "}{", '"', "\\", "\ud800"):
        for at in range(len(text) + 1):
            builder = ResponseBuilder(api="a", provider="p", model="m")
            builder.toolcall_start("c", "t")
            event = builder.toolcall_delta(text[:at] + tail, 0)
            assert isinstance(event.partial.content[0].arguments, dict)
            assert parse_streaming_json(text[:at] + tail) is not None


async def test_b10_arguments_as_an_object():
    """A call that comes whole is validated and executed (B10)."""

    async def stream_fn(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        yield builder.start()
        if len(context.messages) > 2:
            yield builder.done()
            return
        yield builder.toolcall_start("c", "t")
        yield builder.toolcall_end(0, ToolCall(id="c", name="t", arguments={"n": "3"}))
        yield builder.done()

    seen = []
    t = make_tool(lambda i, p, *_: seen.append(p), parameters=object_of(n={"type": "integer"}))
    s = Scripted(stream_fn=stream_fn, tools=[t])
    await s.prompt()

    assert seen == [{"n": 3}]


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [("integer", "3", 3), ("integer", True, 1), ("number", "2.5", 2.5), ("boolean", "true", True)],
)
async def test_b11_primitives_are_coerced(kind, given, expected):
    """A numeric string becomes a number, true the int 1 and never the bool (B11)."""
    params = await params_for(object_of(n={"type": kind}), n=given)

    assert params == {"n": expected}
    assert type(params["n"]) is type(expected)


async def test_b11_what_is_no_number_is_an_error():
    """The text "abc" is refused with words (B11)."""
    assert "n: " in await params_for(object_of(n={"type": "integer"}), n="abc")


@pytest.mark.parametrize(
    ("arms", "value"),
    [(("string", "null"), None), (("number", "string"), "5"), (("string", "number"), 5)],
)
async def test_b12_a_valid_arm_is_left_alone(arms, value):
    """A null stays null, "5" stays text (B12)."""
    schema = object_of(n={"anyOf": [{"type": arm} for arm in arms]}) | {"required": ["n"]}

    assert await params_for(schema, n=value) == {"n": value}


async def test_b13_no_arguments_are_an_empty_object():
    """A call without argument deltas executes with {} (B13)."""

    async def stream_fn(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        yield builder.start()
        if len(context.messages) == 2:
            yield builder.toolcall_start("c", "t")
            yield builder.toolcall_end(0)
        yield builder.done()

    seen = []
    s = Scripted(stream_fn=stream_fn, tools=[make_tool(lambda i, p, *_: seen.append(p))])
    await s.prompt()

    assert seen == [{}]


async def test_b14_local_references_with_a_relative_id():
    """`#/$defs` works whatever `$id` says, without network (B14)."""
    schema = {
        "$id": "schemas/tool.json",
        "$defs": {"x": {"type": "integer"}},
        **object_of(n={"$ref": "#/$defs/x"}),
    }

    assert await params_for(schema, n="4") == {"n": 4}
    assert "n: " in await params_for(schema, n="x")


def test_b15_a_declaration_keeps_its_definitions():
    """The system message has the whole schema (B15)."""
    schema = {"$defs": {"x": {"type": "integer"}}, **object_of(n={"$ref": "#/$defs/x"})}
    s = Scripted(tools=[make_tool(ok, parameters=schema)])

    assert s.state.messages[0].tools_added == (Tool(name="t", parameters=schema),)


async def test_b17_null_content_is_normalized():
    """From a tool and from an imported transcript it becomes empty (B17)."""
    s = Scripted(call(), "end", tools=[make_tool(lambda *_: AgentToolResult(content=None))])
    await s.prompt()
    imported = from_json({"role": "user", "content": None, "timestamp": 1})

    assert s.results[0].content == ()
    assert imported.content == ()


async def test_b31_a_failing_tool_costs_no_sibling_its_result():
    """The middle one raises at once, the others end later (B31)."""
    failed = anyio.Event()

    async def execute(tool_call_id, params, signal, on_update):
        if tool_call_id == "b":
            failed.set()
            raise ValueError("b failed")
        await failed.wait()
        return tool_call_id

    s = Scripted(ABC, "end", tools=[make_tool(execute)])
    await s.prompt()

    assert s.outcomes == [("a", False), ("b failed", True), ("c", False)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_b32_abort_reaches_every_tool(anyio_backend):
    """Both see it before the agent is idle; no task is left (B32)."""
    before = asyncio.all_tasks()
    seen, running = [], anyio.Event()

    async def execute(tool_call_id, params, signal, on_update):
        if tool_call_id == "b":
            running.set()
        await signal.wait()
        seen.append(tool_call_id)
        return "stopped"

    s = Scripted([call("t", "a"), call("t", "b")], tools=[make_tool(execute)])
    with anyio.fail_after(LIMIT):
        task = asyncio.create_task(s.agent.prompt("go"))
        await running.wait()
        s.agent.abort()
        await s.agent.wait_for_idle()
        assert seen == ["a", "b"]
        await task

    assert asyncio.all_tasks() == before
    s.check()


async def test_b33_an_unknown_name_does_not_end_the_run():
    """The model may correct itself (B33)."""
    s = Scripted(call("nope"), call("t", "c2"), "end", tools=[make_tool(ok)])
    await s.prompt()

    assert s.outcomes == [("Tool nope not found", True), ("ok", False)]
    assert s.last.text == "end"


async def test_b35_any_exception_is_a_result():
    """Its text is in the result (B35)."""

    class Mine(Exception):
        pass

    def fails(*_):
        raise Mine("my own words")

    s = Scripted(call(), "end", tools=[make_tool(fails)])
    await s.prompt()

    assert s.outcomes == [("my own words", True)]


async def test_b36_approvals_reach_their_call():
    """Two agents' worth of answers arrive in reverse order, keyed by id (B36)."""
    asked, answers = [], {}

    async def before(context, signal):
        asked.append(context.tool_call.id)
        answers[context.tool_call.id] = f"answer {context.tool_call.id}"
        await anyio.lowlevel.checkpoint()
        return BeforeToolCallResult(block=True, reason=answers[context.tool_call.id])

    s = Scripted(ABC, "end", tools=[make_tool(ok)], before_tool_call=before)
    await s.prompt()

    assert [text for text, _ in s.outcomes] == [f"answer {one}" for one in asked]


async def test_b37_no_sibling_outlives_the_run():
    """When prompt() returns it has ended, also if the run failed (B37)."""
    state = []

    async def execute(tool_call_id, params, signal, on_update):
        if tool_call_id == "a":
            return "quick"
        try:
            await anyio.sleep_forever()
        finally:
            state.append("ended")

    def broken(event, signal):
        if event.tool_call_id == "a":
            raise ValueError("listener")

    s = Scripted([call("t", "a"), call("t", "b")], tools=[make_tool(execute)])
    s.agent.subscribe(broken, events="tool_execution_end")
    await s.prompt()

    assert state == ["ended"]
    s.check()


async def test_b39_equal_calls_keep_their_results():
    """Equal names, other ids: results in source order (B39)."""
    second = anyio.Event()

    async def execute(tool_call_id, params, signal, on_update):
        if tool_call_id == "a":
            await second.wait()
        else:
            second.set()
        return f"for {tool_call_id}"

    s = Scripted([call("t", "a", x=1), call("t", "b", x=1)], "end", tools=[make_tool(execute)])
    await s.prompt()

    assert [(r.tool_call_id, r.text) for r in s.results] == [("a", "for a"), ("b", "for b")]


async def test_b40_a_final_tool_does_not_lose_the_others():
    """Both results are stored and the next request is made (B40)."""
    final = make_tool(lambda *_: AgentToolResult(content="final", terminate=True), "final")
    s = Scripted([call("final", "a"), call("t", "b")], "end", tools=[final, make_tool(ok)])
    await s.prompt()

    assert s.outcomes == [("final", False), ("ok", False)]
    assert len(s.requests) == 2


async def test_b41_errors_are_local():
    """A blocked, an unknown, an invalid and a failing call leave the good one alone (B41)."""

    def execute(tool_call_id, params, signal, on_update):
        if tool_call_id == "fails":
            raise ValueError("failed")
        return "good"

    s = Scripted(
        [call("t", "blocked"), call("nope", "u"), call("t", "i", n="x"), call("t", "fails"),
         call("t", "good")],
        "end",
        tools=[make_tool(execute, parameters=object_of(n={"type": "integer"}))],
        before_tool_call=lambda c, _: BeforeToolCallResult(block=c.tool_call.id == "blocked"),
    )  # fmt: skip
    await s.prompt()

    assert [flag for _, flag in s.outcomes] == [True] * 4 + [False]
    assert s.outcomes[-1] == ("good", False)


async def test_b42_each_failure_has_its_id():
    """Two parallel failures: each result has its own id and text (B42)."""

    def fails(tool_call_id, *_):
        raise ValueError(f"failed {tool_call_id}")

    s = Scripted([call("t", "a"), call("t", "b")], "end", tools=[make_tool(fails)])
    await s.prompt()

    assert [(r.tool_call_id, r.text) for r in s.results] == [("a", "failed a"), ("b", "failed b")]


async def test_b43_an_agent_as_a_tool_keeps_its_memory():
    """Its transcript has both calls; the parent's list is another object (B43)."""
    child = Scripted("one", "two")

    @tool
    async def ask(question: str) -> str:
        """Ask."""
        await child.agent.prompt(question)
        return child.last.text

    s = Scripted(call("ask", "a", question="q1"), call("ask", "b", question="q2"), "end")
    s.state.tools = [ask]
    await s.prompt()

    assert [text for text, _ in s.outcomes] == ["one", "two"]
    assert [len(child.state.messages), len(child.requests[1])] == [4, 3]
    assert child.state.messages is not s.state.messages


async def test_b44_every_stored_message_was_announced():
    """The message_end messages of a run are the growth of the transcript (B44)."""
    s = Scripted(ABC, "one", "two", tools=[make_tool(ok)])
    s.agent.follow_up("more")
    before = len(s.state.messages)
    await s.prompt()

    announced = [event.message for event in s.of("message_end")]
    assert announced == list(s.state.messages[before:])
    assert announced == list(s.of("agent_end")[0].messages)
