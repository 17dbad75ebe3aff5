from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import (
    AbortController,
    AgentContext,
    AssistantMessage,
    TextContent,
    ToolCall,
    run_tool_call,
    tool,
)
from scripted import LIMIT, call, make_tool


@tool
async def double(n: int) -> int:
    """Double."""
    return 2 * n


async def test_one_call_by_itself():
    """The same pipeline, without events or messages (TL-19)."""
    outcome = await run_tool_call(call("double", "x", n="4"), tools=[double])

    assert (outcome.tool_call.id, outcome.is_error) == ("x", False)
    assert outcome.result.content == (TextContent(text="8"),)
    assert type(outcome.duration_ms) is int
    assert outcome.message().tool_name == "double"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (call("nope"), "Tool nope not found"),
        (call("double", n="x"), "Validation failed"),
        (ToolCall(id="1", name="double", arguments_error="bad"), "bad"),
        (call("fails"), "broken"),
    ],
)
async def test_one_call_never_raises(given, words):
    """A failure is an outcome (TL-19)."""

    def fails(*_):
        raise ValueError("broken")

    outcome = await run_tool_call(given, tools=[double, make_tool(fails, "fails")])

    assert outcome.is_error
    assert words in outcome.result.content[0].text


async def test_one_call_after_an_abort():
    """The signal is looked at first (TL-19)."""
    controller = AbortController()
    controller.abort()
    outcome = await run_tool_call(
        call("nope"), tools=[], signal=controller.signal, before_tool_call=lambda *_: 1 / 0
    )

    assert outcome.result.content[0].text == "Operation aborted"
    assert outcome.duration_ms is None


async def test_one_call_is_aborted_while_it_runs():
    """A tool that takes no signal is cancelled at once (TL-19, DEVIATIONS 14)."""
    controller = AbortController()

    @tool
    async def hang() -> str:
        """Hang."""
        controller.abort()
        await anyio.sleep_forever()

    with anyio.fail_after(LIMIT):
        outcome = await run_tool_call(call("hang"), tools=[hang], signal=controller.signal)

    assert outcome.result.content[0].text == "Operation aborted"


async def test_one_call_asks_the_hooks():
    """The hooks see the message and context they are given (TL-19)."""
    seen = []
    message = AssistantMessage(content=(call("double", n=1),))
    context = AgentContext(messages=[message])
    await run_tool_call(
        call("double", n=1),
        tools=[double],
        assistant_message=message,
        context=context,
        before_tool_call=lambda c, s: seen.append((c.assistant_message, c.context, s)),
        after_tool_call=lambda c, s: seen.append((c.assistant_message, c.context, s)),
    )
    await run_tool_call(
        call("double", n=1), tools=[double], before_tool_call=lambda c, s: seen.append(c)
    )

    assert seen[:2] == [(message, context, None)] * 2
    assert seen[2].assistant_message.tool_calls == (call("double", n=1),)


async def test_one_call_reports_progress():
    """`on_update` gets each report; an async one is refused with words (TL-19)."""
    seen = []

    def execute(tool_call_id, params, signal, on_update):
        on_update("half")
        return "all"

    t = make_tool(execute, thread=False)
    await run_tool_call(call(), tools=[t], on_update=seen.append)
    assert [partial.content[0].text for partial in seen] == ["half"]
    assert not (await run_tool_call(call(), tools=[t])).is_error


async def test_an_async_on_update_is_refused():
    """Reports of a single call are not events: nobody could await them (TL-19)."""

    async def on_update(partial):
        raise AssertionError

    def execute(tool_call_id, params, signal, on_update):
        on_update("half")
        return "all"

    with pytest.raises(TypeError, match="plain function"):
        await run_tool_call(call(), tools=[make_tool(execute, thread=False)], on_update=on_update)


async def test_tools_that_call_tools():
    """A tool may run another one through the same pipeline (TL-19)."""

    async def outer(tool_call_id, params, signal, on_update):
        inner = await run_tool_call(call("double", n=3), tools=[double], signal=signal)
        return f"inner said {inner.result.content[0].text}"

    outcome = await run_tool_call(call("outer"), tools=[make_tool(outer, "outer"), double])

    assert outcome.result.content[0].text == "inner said 6"
