"""One scripted fault per cause: `explain` names the cause, and the record that shows it."""

from __future__ import annotations

import anyio
import pytest
from faults import Faults, raises
from pi_agent_kernel import (
    AfterToolCallResult,
    AgentContext,
    AgentRequestUpdate,
    AgentToolResult,
    BeforeToolCallResult,
    SystemMessage,
    TextContent,
    Tool,
    ToolCall,
    faux_assistant_message,
)
from scripted import Scripted, call, make_tool, ok, user

NUMBER = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}

fault = Faults()


async def blows(*_):
    raise ValueError("kaboom")


def block(reason, **fields):
    return lambda *_: BeforeToolCallResult(block=True, reason=reason, **fields)


async def anyio_forever(*_):
    await anyio.sleep_forever()


# ------------------------------------------------------------------------------------- tools


@fault("why did serch not run?", "'search'", "TL-04", ("tool_execution_end", {}))
async def unknown_tool():
    s = Scripted(call("serch"), "end", tools=[make_tool(ok, "search")])
    await s.prompt()
    return s


@fault("why did old not run?", "not executable", "TR-10", ("tool_execution_end", {}))
async def declared_but_not_executable():
    declared = SystemMessage(tools_added=[Tool(name="old", description="", parameters={})])
    s = Scripted(
        call("old"), "end", messages=[user("a")], transform_context=lambda m, _: [*m, declared]
    )
    await s.prompt()
    return s


@fault(
    "why did ghost not run?", "transform_context declares it", "TR-10", ("tool_execution_end", {})
)
async def declared_by_a_hook():
    declared = SystemMessage(tools_added=[Tool(name="ghost", description="", parameters={})])
    s = Scripted(call("ghost"), "end", transform_context=lambda m, _: [*m, declared])
    await s.prompt("a")
    return s


@fault("why did serch not run?", "no tool has this name", "TL-04", ("tool_execution_end", {}))
async def unknown_tool_beside_a_new_context():
    def prepare(request, _):
        context = request.context
        same = AgentContext(messages=list(context.messages), tools=list(context.tools))
        return AgentRequestUpdate(context=same)

    s = Scripted(call("serch"), "end", tools=[make_tool(ok, "search")], prepare_request=prepare)
    await s.prompt()
    return s


@fault("who blocked t?", "approval timed out after 30 s", "HK-02", ("before_tool_call", {}))
async def blocked_for_a_reason_that_reads_like_a_timeout():
    hook = block("approval timed out after 30 s")
    s = Scripted(call(), "end", tools=[make_tool(ok)], before_tool_call=hook)
    await s.prompt()
    return s


@fault("why did t fail?", "raised ValueError at line", "TL-13", ("tool_execution_end", {}))
async def tool_raised_and_a_hook_added_details():
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(blows)],
        after_tool_call=lambda *_: AfterToolCallResult(details={"seen": True}),
    )
    await s.prompt()
    return s


@fault("why did t not run?", "ran for", "TL-03", ("tool_execution_end", {}))
async def an_id_used_again_after_a_reply_that_failed():
    one = [call("t", "call_0")]
    failed = faux_assistant_message(one, stop_reason="error", error_message="boom")
    s = Scripted(failed, faux_assistant_message(one), "end", tools=[make_tool(ok)])
    await s.prompt()
    await s.prompt()
    return s


@fault(
    "why did t not run?",
    "In the last run the model did not call t",
    "LP-02",
    ("model_response", {}),
)
async def called_before_and_not_in_the_last_run():
    s = Scripted(call(), "end", "I guess", tools=[make_tool(ok)])
    await s.prompt()
    await s.prompt()
    return s


@fault("why does the model not know t?", "the host removed it", "TR-10", ("state", {}))
async def removed_after_the_run():
    s = Scripted("I guess", tools=[make_tool(ok)])
    await s.prompt()
    s.state.tools = []
    return s


@fault("why did add not run?", "arguments are invalid", "TL-05", ("tool_execution_end", {}))
async def invalid_arguments():
    s = Scripted(call("add", n="x"), "end", tools=[make_tool(ok, "add", parameters=NUMBER)])
    await s.prompt()
    return s


@fault("add", "arguments are invalid", "TL-06", ("tool_execution_end", {}))
async def unreadable_arguments():
    broken = ToolCall(id="c1", name="add", arguments={}, arguments_error="no JSON: {")
    s = Scripted([broken], "end", tools=[make_tool(ok, "add", parameters=NUMBER)])
    await s.prompt()
    return s


@fault("who blocked t?", "my policy: not today", "HK-02", ("before_tool_call", {}))
async def blocked_by_a_policy():
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(ok)],
        before_tool_call=block("not today", origin="my policy"),
    )
    await s.prompt()
    return s


@fault("who blocked the call?", "hook before_tool_call", "HK-02", ("before_tool_call", {}))
async def blocked_by_a_hook():
    s = Scripted(call(), "end", tools=[make_tool(ok)], before_tool_call=block("no"))
    await s.prompt()
    return s


@fault("why did t not run?", "hook broke", "HK-06", ("before_tool_call", {}))
async def before_hook_raised():
    s = Scripted(call(), "end", tools=[make_tool(ok)], before_tool_call=raises)
    await s.prompt()
    return s


@fault("what about c1?", "put in are invalid", "HK-03", ("before_tool_call", {}))
async def before_hook_put_in_bad_arguments():
    s = Scripted(
        call("add", n=1),
        "end",
        tools=[make_tool(ok, "add", parameters=NUMBER)],
        before_tool_call=lambda *_: BeforeToolCallResult(arguments={"n": "x"}),
    )
    await s.prompt()
    return s


@fault("why did t fail?", "hook broke", "HK-06", ("after_tool_call", {}))
async def after_hook_raised():
    s = Scripted(call(), "end", tools=[make_tool(ok)], after_tool_call=raises)
    await s.prompt()
    return s


@fault("why did t fail?", "replaced is_error", "HK-04", ("after_tool_call", {}))
async def after_hook_made_it_fail():
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(ok)],
        after_tool_call=lambda *_: AfterToolCallResult(is_error=True),
    )
    await s.prompt()
    return s


@fault("why did the tool t fail", "raised ValueError at line", "TL-13", ("tool_execution_end", {}))
async def tool_raised():
    s = Scripted(call(), "end", tools=[make_tool(blows)])
    await s.prompt()
    return s


@fault("t", "returned an error: nope", "TL-14", ("tool_execution_end", {}))
async def tool_returned_an_error():
    async def flagged(*_):
        return AgentToolResult(content=(TextContent(text="nope"),), is_error=True)

    s = Scripted(call(), "end", tools=[make_tool(flagged)])
    await s.prompt()
    return s


@fault("t", "timed out after", "TL-13", ("tool_execution_end", {}))
async def tool_timed_out():
    async def slow(*_):
        await anyio.sleep_forever()

    s = Scripted(call(), "end", tools=[make_tool(slow, timeout=0.01)])
    await s.prompt()
    return s


@fault("why did t not run?", "truncated", "LP-03", ("tool_execution_end", {}))
async def truncated():
    cut = faux_assistant_message([call()], stop_reason="length")
    s = Scripted(cut, "end", tools=[make_tool(ok)])
    await s.prompt()
    return s


@fault("why did t not run?", "aborted", "AB-03", ("abort", {}))
async def aborted_while_it_ran():
    s = Scripted(call(), tools=[make_tool(anyio_forever)])
    s.agent.subscribe(lambda *_: s.agent.abort(), events="tool_execution_start")
    await s.prompt()
    return s


@fault("why did t not run?", "never executed", "LP-04", ("message_end", {"which": -1}))
async def call_of_a_failed_response():
    s = Scripted(
        faux_assistant_message([call()], stop_reason="error", error_message="x"),
        tools=[make_tool(ok)],
    )
    await s.prompt()
    return s


@fault(
    "why did t not run?",
    "listener of tool_execution_start",
    "FL-02",
    ("listener of tool_execution_start", {}),
)
async def a_listener_failed_the_run_meanwhile():
    s = Scripted(call(), tools=[make_tool(ok)])
    s.agent.subscribe(raises, events="tool_execution_start")
    await s.prompt()
    return s


@fault("why did t not run?", "never called t", "LP-02", ("model_request_start", {}))
async def never_called():
    s = Scripted("no need", tools=[make_tool(ok)])
    await s.prompt()
    return s


@fault("why did late not run?", "while the run was active", "CO-12", ("state", {}))
async def added_while_the_run_was_active():
    s = Scripted(call("t"), call("late", "c2"), "end", tools=[make_tool(ok)])

    def add(*_):
        if len(s.state.tools) == 1:
            s.state.tools.append(make_tool(ok, "late"))

    s.agent.subscribe(add, events="turn_end")
    await s.prompt()
    return s


@fault("why did t not run?", "removed", "TL-04", ("state", {}))
async def removed_before():
    s = Scripted("hi", call("t"), "end", tools=[make_tool(ok)])
    await s.prompt()
    s.state.tools = []
    await s.prompt()
    return s


@fault("why did t not run?", "prepare_request replaced", "TR-09", ("prepare_request", {"which": 0}))
async def a_hook_took_the_tools():
    def prepare(request, _):
        return AgentRequestUpdate(context=AgentContext(messages=request.context.messages))

    s = Scripted(call("t"), "end", tools=[make_tool(ok)], prepare_request=prepare)
    await s.prompt()
    return s


# ----------------------------------------------------------------------------- declarations


@fault("why does the model not know late?", "no request was made since", "TR-05", ("state", {}))
async def added_after_the_run():
    s = Scripted("hi", tools=[make_tool(ok)])
    await s.prompt()
    s.state.tools.append(make_tool(ok, "late"))
    return s


@fault("which request will announce late?", "Request 2", "TR-05", ("model_request_start", {}))
async def announcement_to_come():
    return await added_after_the_run()


@fault(
    "why does the model not know t",
    "transform_context dropped",
    "CX-18",
    ("model_request_start", {}),
)
async def declaration_dropped():
    s = Scripted("hi", tools=[make_tool(ok)], transform_context=lambda m, _: m[1:])
    await s.prompt()
    return s


@fault("why does the model not know t anymore", "was removed by the host", "TR-05", ("state", {}))
async def removed_and_told():
    s = Scripted("hi", "ho", tools=[make_tool(ok)])
    await s.prompt()
    s.state.tools = []
    await s.prompt()
    return s


@fault(
    "does the model know late",
    "is declared before the next one",
    "TR-09",
    ("model_request_start", {}),
)
async def run_scoped():
    def prepare(request, _):
        tools = [*request.context.tools, make_tool(ok, "late")]
        return AgentRequestUpdate(
            context=AgentContext(messages=request.context.messages, tools=tools)
        )

    s = Scripted("hi", tools=[make_tool(ok)], prepare_request=prepare)
    await s.prompt()
    return s


@fault("why does the model not know tool nothere", "was ever there", "TL-04", None)
async def no_such_tool():
    s = Scripted("hi", tools=[make_tool(ok)])
    await s.prompt()
    return s


@pytest.mark.parametrize("name", list(fault))
async def test_the_cause_and_its_record_are_named(name):
    """The answers name the cause, its rule, and first the record that shows it."""
    await fault.check(name)


def test_there_are_enough_faults():
    """Twenty-five causes at least, each of another kind."""
    assert len(fault) >= 25
