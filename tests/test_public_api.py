"""The public names: complete, sorted, documented, and those that others were promised."""

from __future__ import annotations

import inspect

import pi_agent_kernel
import pytest

import pi_notebook

# Names that benchmarks, conformance runs and outside checks rely on.
PROMISED = """
    AfterToolCallContext AfterToolCallResult Agent AgentBusyError AgentContext AgentEnd AgentIdle
    AgentLoopConfig AgentRequestUpdate AgentStart AgentStateError AgentTool AgentToolResult
    AgentTurnUpdate AbortController AbortSignal ALL_EVENTS AssistantMessage BeforeToolCallContext
    BeforeToolCallResult ContextOverflowError CustomMessage ImageContent MessageEnd MessageStart
    MessageUpdate Model ModelError ModelRequestStart ModelResponse NothingToContinueError
    PiAgentError SessionError SessionFormatError StreamOptions SystemMessage TextContent
    ThinkingContent ToolArgumentsError ToolBatchEnd ToolBatchStart ToolCall ToolCallOutcome
    ToolContext ToolError ToolExecutionEnd ToolExecutionStart ToolExecutionUpdate ToolNotFoundError
    ToolResultMessage TranscriptContext TurnDecision TurnEnd TurnStart Usage UserMessage agent_loop
    agent_loop_continue collapse_system_messages faux_assistant_message faux_provider faux_text
    faux_thinking faux_tool_call from_json get_current_system_message get_current_system_prompt
    get_current_tools get_tool_state_changes normalize_context resolve_transcript_tools
    run_agent_loop run_agent_loop_continue run_tool_call set_default_stream_fn to_json tool
    validate_tool_arguments
""".split()  # noqa: SIM905 - names read better as words


@pytest.mark.parametrize("package", [pi_agent_kernel, pi_notebook])
def test_all_is_sorted_and_resolves(package) -> None:
    """`__all__` has constants, classes, then functions, each sorted and once; all exist."""
    names = list(package.__all__)

    assert names == sorted(set(names), key=lambda name: (not name.isupper(), name.islower(), name))
    assert [name for name in names if not hasattr(package, name)] == []
    assert set(names) <= set(dir(package))


@pytest.mark.parametrize("package", [pi_agent_kernel, pi_notebook])
def test_public_objects_are_documented(package) -> None:
    """Every public class and function of both packages has a docstring of its own."""
    bare = [
        name
        for name in package.__all__
        if inspect.isclass(value := getattr(package, name)) or inspect.isroutine(value)
        if not (value.__doc__ or "").strip()
    ]

    assert bare == []


def test_promised_names_are_public() -> None:
    """The kernel exports each name that others rely on."""
    assert sorted(set(PROMISED) - set(pi_agent_kernel.__all__)) == []


def test_unknown_name_is_an_attribute_error() -> None:
    """A name that a package does not have is refused with its name, lazy loading or not."""
    for package in (pi_agent_kernel, pi_notebook):
        with pytest.raises(AttributeError, match="no_such_name"):
            _ = package.no_such_name


def test_notebook_names_are_public() -> None:
    """`pi.agent` and `pi.tool` are there, and IPython finds the extension's two functions."""
    assert {"agent", "tool"} <= set(pi_notebook.__all__)
    assert callable(pi_notebook.load_ipython_extension)
    assert callable(pi_notebook.unload_ipython_extension)
