from __future__ import annotations

import anyio
import msgspec
import pytest
from pi_agent_kernel import (
    AfterToolCallResult,
    AgentToolResult,
    BeforeToolCallResult,
    TextContent,
    ToolCall,
    Usage,
    faux_assistant_message,
)
from scripted import LIMIT, Scripted, call, make_tool, ok

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def params_of(seen):
    """A tool that notes its arguments."""

    async def execute(tool_call_id, params, signal, on_update):
        seen.append(params)
        return "ok"

    return make_tool(execute, parameters=NUMBER)


# ---------------------------------------------------------------------------- before


async def test_the_before_hook_sees_the_call():
    """The requesting message, the raw call, the validated arguments, the context (HK-01, HK-07)."""
    seen = []

    def before(context, signal):
        seen.append(context)
        assert s.state.messages[-1] is context.assistant_message

    s = Scripted(call(n="3"), "end", tools=[params_of([])], before_tool_call=before)
    await s.prompt()

    (context,) = seen
    assert context.tool_call.arguments == {"n": "3"}
    assert context.args == {"n": 3}
    assert context.context.messages[-1] == context.assistant_message == s.state.messages[2]
    assert [one.name for one in context.context.tools] == ["t"]


@pytest.mark.parametrize(
    "answer", [None, BeforeToolCallResult(), BeforeToolCallResult(block=False)]
)
async def test_a_before_hook_that_agrees(answer):
    """None or an empty result lets the call run (HK-02)."""
    s = Scripted(call(), "end", tools=[make_tool(ok)], before_tool_call=lambda *_: answer)
    await s.prompt()

    assert s.outcomes == [("ok", False)]


@pytest.mark.parametrize(
    ("answer", "text", "requests"),
    [
        (BeforeToolCallResult(block=True), "Tool execution was blocked", 2),
        (BeforeToolCallResult(block=True, reason="not today"), "not today", 2),
        (BeforeToolCallResult(block=True, reason="stop", terminate=True), "stop", 1),
        (BeforeToolCallResult(block=True, terminate=False), "Tool execution was blocked", 2),
    ],
)
async def test_blocking_a_call(answer, text, requests):
    """An error result with the reason; terminate takes part in the batch rule (HK-02)."""
    ran = []
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(lambda *_: ran.append(1))],
        before_tool_call=lambda *_: answer,
        after_tool_call=lambda *_: ran.append(2),
    )
    await s.prompt()

    assert s.outcomes == [(text, True)]
    assert (ran, len(s.requests)) == ([], requests)


async def test_arguments_changed_in_place():
    """They reach the tool unvalidated, but not the transcript (HK-03)."""
    seen = []

    def before(context, signal):
        context.args["n"] = "not a number"

    s = Scripted(call(n=1), "end", tools=[params_of(seen)], before_tool_call=before)
    await s.prompt()

    assert seen == [{"n": "not a number"}]
    assert s.state.messages[2].tool_calls[0].arguments == {"n": 1}
    assert s.of("tool_execution_start")[0].args == {"n": 1}


@pytest.mark.parametrize("form", ["result", "call"])
@pytest.mark.parametrize(("value", "expected"), [("7", [{"n": 7}]), ("x", [])])
async def test_replaced_arguments_are_validated_again(form, value, expected):
    """By BeforeToolCallResult or a changed call; the transcript keeps the raw ones (S4-08)."""
    seen = []

    def before(context, signal):
        if form == "result":
            return BeforeToolCallResult(arguments={"n": value})
        return msgspec.structs.replace(context.tool_call, arguments={"n": value})

    s = Scripted(call(n=1), "end", tools=[params_of(seen)], before_tool_call=before)
    await s.prompt()

    assert seen == expected
    assert s.results[0].is_error is (not expected)
    assert s.state.messages[2].tool_calls[0].arguments == {"n": 1}


async def test_the_same_call_returned_keeps_the_arguments():
    """A hook that returns the call unchanged has changed nothing (S4-08)."""
    seen = []

    def before(context, signal):
        context.args["n"] = 5
        return context.tool_call

    s = Scripted(call(n=1), "end", tools=[params_of(seen)], before_tool_call=before)
    await s.prompt()

    assert seen == [{"n": 5}]


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call"])
@pytest.mark.parametrize("answer", [True, "no", {"block": True}])
async def test_a_strange_answer_fails_the_call(hook, answer):
    """It names the hook and what it may return (HK-06)."""
    s = Scripted(call(), "end", tools=[make_tool(ok)], **{hook: lambda *_: answer})
    await s.prompt()

    text, is_error = s.outcomes[0]
    assert is_error
    assert f"{hook} returns None" in text
    assert s.last.text == "end"


async def test_a_strange_answer_of_after_tool_result_fails_the_call():
    """Anything but a tool result message or None is named (S4-09, S4-11)."""
    s = Scripted(call(), "end", tools=[make_tool(ok)], after_tool_result=lambda *_: "text")
    await s.prompt()

    text, is_error = s.outcomes[0]
    assert is_error
    assert "after_tool_result" in text


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call", "after_tool_result"])
@pytest.mark.parametrize("form", ["plain", "async"])
async def test_a_tool_hook_that_raises_fails_its_call_only(hook, form):
    """The batch and the run go on (HK-06, D9, S4-11)."""

    def broken(context, signal):
        if getattr(context, "tool_call_id", None) == "b" or (
            hook != "after_tool_result" and context.tool_call.id == "b"
        ):
            raise LookupError("hook broke")

    async def broken_async(context, signal):
        await anyio.lowlevel.checkpoint()
        broken(context, signal)

    s = Scripted(
        [call("t", x) for x in "abc"],
        "end",
        tools=[make_tool(ok)],
        **{hook: broken if form == "plain" else broken_async},
    )
    await s.prompt()

    assert s.outcomes == [("ok", False), ("hook broke", True), ("ok", False)]
    assert s.last.text == "end"
    s.check()


async def test_an_abort_in_the_before_hook():
    """That call does not run, and the hook is not asked again (AB-04, A03)."""
    asked, ran = [], []

    def before(context, signal):
        asked.append(context.tool_call.id)
        s.agent.abort()

    s = Scripted(
        [call("t", x) for x in "abc"],
        tools=[make_tool(lambda *_: ran.append(1))],
        before_tool_call=before,
    )
    await s.prompt()

    assert (asked, ran) == (["a"], [])
    assert s.outcomes == [("Operation aborted", True)] * 3
    s.check()


async def test_answers_are_matched_by_call():
    """Approvals that arrive in reverse order reach the right call (B36)."""
    answers = {"a": anyio.Event(), "b": anyio.Event()}

    async def before(context, signal):
        if context.tool_call.id == "a":
            answers["b"].set()
        await answers["b"].wait()
        return BeforeToolCallResult(block=True, reason=f"answer {context.tool_call.id}")

    s = Scripted([call("t", "a"), call("t", "b")], "end", tools=[make_tool(ok)])
    s.agent.before_tool_call = before
    await s.prompt()

    assert s.outcomes == [("answer a", True), ("answer b", True)]


# ----------------------------------------------------------------------------- after

BEFORE = AgentToolResult(
    content="old", details={"d": 1, "e": 1}, structured_content={"s": 1}, usage=Usage(input=1)
)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({}, ("old", {"d": 1, "e": 1}, {"s": 1}, 1)),
        ({"content": [TextContent(text="new")]}, ("new", {"d": 1, "e": 1}, None, 1)),
        ({"details": {"d": 2}}, ("old", {"d": 2}, {"s": 1}, 1)),
        ({"structured_content": {"n": 1}}, ("old", {"d": 1, "e": 1}, {"n": 1}, 1)),
        (
            {"content": [TextContent(text="new")], "structured_content": {"n": 1}},
            ("new", {"d": 1, "e": 1}, {"n": 1}, 1),
        ),
        ({"usage": Usage(input=9)}, ("old", {"d": 1, "e": 1}, {"s": 1}, 9)),
    ],
)
async def test_the_after_hook_replaces_parts(patch, expected):
    """Each part as a whole, no deep merge; structured content goes with content (HK-04)."""
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(lambda *_: BEFORE)],
        after_tool_call=lambda *_: AfterToolCallResult(**patch),
    )
    await s.prompt()

    result = s.of("tool_execution_end")[0].result
    assert (
        result.content[0].text,
        result.details,
        result.structured_content,
        result.usage.input,
    ) == expected
    assert (s.results[0].text, s.results[0].details) == expected[:2]


async def test_the_after_hook_sees_the_outcome():
    """Call, arguments, result and flag, also of a tool that raised (HK-05)."""
    seen = []

    def execute(tool_call_id, params, signal, on_update):
        if tool_call_id == "b":
            raise ValueError("failed")
        return "fine"

    s = Scripted(
        [call("t", "a"), call("t", "b"), call("nope", "c")],
        "end",
        tools=[make_tool(execute)],
        after_tool_call=lambda c, _: seen.append(
            (c.tool_call.id, c.args, c.result.content[0].text, c.is_error)
        ),
        tool_execution="sequential",
    )
    await s.prompt()

    assert seen == [("a", {}, "fine", False), ("b", {}, "failed", True)]


@pytest.mark.parametrize("stated", [None, False, True])
@pytest.mark.parametrize("wanted", [False, True])
async def test_the_error_flag_is_consistent(stated, wanted):
    """After the hook set it, event, result and message agree (DEVIATIONS 8)."""
    result = AgentToolResult(content="x", is_error=stated)
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(lambda *_: result)],
        after_tool_call=lambda *_: AfterToolCallResult(is_error=wanted),
    )
    await s.prompt()

    (end,) = s.of("tool_execution_end")
    assert end.is_error is wanted
    assert s.results[0].is_error is wanted
    assert end.result.is_error is (None if stated is None else wanted)


async def test_clearing_an_error():
    """A tool's exception may be turned into a good result (HK-05, B04)."""

    def fails(*_):
        raise ValueError("no")

    s = Scripted(
        call(),
        "end",
        tools=[make_tool(fails)],
        after_tool_call=lambda *_: AfterToolCallResult(is_error=False, details={"seen": True}),
    )
    await s.prompt()

    assert s.outcomes == [("no", False)]
    assert s.results[0].details == {"seen": True}


@pytest.mark.parametrize(("terminate", "requests"), [(True, 1), (None, 2)])
async def test_the_after_hook_may_end_the_run(terminate, requests):
    """Its terminate counts like the tool's (HK-04, TL-16)."""
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(ok)],
        after_tool_call=lambda *_: AfterToolCallResult(terminate=terminate),
    )
    await s.prompt()

    assert len(s.requests) == requests


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call", "after_tool_result"])
async def test_a_tool_hook_that_hangs_is_cut_off(hook):
    """After an abort it has the grace of a tool (DEVIATIONS 14)."""
    started = anyio.Event()

    async def hang(*_):
        started.set()
        await anyio.sleep_forever()

    s = Scripted(call(), tools=[make_tool(ok)], abort_grace=0.01, **{hook: hang})
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.prompt, "go")
            await started.wait()
            s.agent.abort()

    assert len(s.results) == 1
    s.check()


# ----------------------------------------------------------------------- after_tool_result


async def test_every_result_passes_after_tool_result():
    """Also those of calls that never ran; after after_tool_call, before the end event (S4-09)."""
    order = []
    s = Scripted(
        [call("t", "a"), call("nope", "b"), call("t", "c")],
        "end",
        tools=[make_tool(ok)],
        before_tool_call=lambda c, _: BeforeToolCallResult(block=c.tool_call.id == "c"),
        after_tool_call=lambda c, _: order.append(("after", c.tool_call.id)),
        after_tool_result=lambda m, _: order.append(("result", m.tool_call_id)),
        tool_execution="sequential",
    )
    s.agent.subscribe(
        lambda e, _: order.append(("end", e.tool_call_id)), events="tool_execution_end"
    )
    await s.prompt()

    assert order == [
        *(("after", "a"), ("result", "a"), ("end", "a")),
        *(("result", "b"), ("end", "b")),
        *(("result", "c"), ("end", "c")),
    ]


async def test_a_replaced_result_is_everywhere_the_same():
    """Event, result and message say what the hook made of it (S4-09)."""

    def replace(message, signal):
        return msgspec.structs.replace(
            message, content=(TextContent(text="censored"),), details={"c": 1}, is_error=True
        )

    s = Scripted(call(), "end", tools=[make_tool(ok)], after_tool_result=replace)
    await s.prompt()

    (end,) = s.of("tool_execution_end")
    assert (end.is_error, end.result.content[0].text, end.result.details) == (
        True,
        "censored",
        {"c": 1},
    )
    assert s.outcomes == [("censored", True)]
    assert s.results[0].details == {"c": 1}


@pytest.mark.parametrize("field", ["tool_call_id", "tool_name"])
async def test_the_answer_must_stay_with_its_call(field):
    """A result that changes the id or the name fails the call (S4-09)."""
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(ok)],
        after_tool_result=lambda m, _: msgspec.structs.replace(m, **{field: "other"}),
    )
    await s.prompt()

    text, is_error = s.outcomes[0]
    assert is_error
    assert "must keep the call id 'c1' and the tool name 't'" in text
    s.check()


async def test_results_of_a_truncated_batch_may_be_replaced():
    """after_tool_result sees the errors that ask for the call again (LP-03, S4-09)."""
    s = Scripted(
        faux_assistant_message([call()], stop_reason="length"),
        "end",
        tools=[make_tool(ok)],
        after_tool_result=lambda m, _: msgspec.structs.replace(
            m, content=(TextContent(text="again, please"),)
        ),
    )
    await s.prompt()

    assert s.outcomes == [("again, please", True)]


async def test_raw_calls_are_shown_to_hooks():
    """A call's raw arguments are frozen for them (HK-01, DEVIATIONS 11)."""
    refused = []

    def before(context, signal):
        with pytest.raises(TypeError):
            context.tool_call.arguments["n"] = 2
        refused.append(isinstance(context.tool_call, ToolCall))

    s = Scripted(call(n=1), "end", tools=[params_of([])], before_tool_call=before)
    await s.prompt()

    assert refused == [True]
