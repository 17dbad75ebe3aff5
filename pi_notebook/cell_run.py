"""From what a cell asks for to what its agent is set to while the cell runs.

Everything that can be refused is refused before the first change, so that a cell with a mistake
in it leaves the conversation as it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingLevel,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.models.catalog import choose_model
from pi_agent_kernel.tool_results import convert_tool_result
from pi_agent_kernel.tools import to_tool_declaration
from pi_agent_kernel.wire import to_json

from pi_notebook import frontend
from pi_notebook.budget import Budget, Spending
from pi_notebook.references import References, expand_references
from pi_notebook.typed_output import find_output

if TYPE_CHECKING:
    from pi_agent_kernel.models.catalog import ChosenModel
    from pi_agent_kernel.tools import AgentTool

    from pi_notebook.approvals import Policy
    from pi_notebook.branches import SetAside
    from pi_notebook.cells import CellRequest
    from pi_notebook.notebook_agent import NotebookAgent
    from pi_notebook.snapshot import RunSnapshot
    from pi_notebook.typed_output import TypedOutput

__all__ = ["CellPlan", "set_for_cell"]

#: The section of the system prompt that `%%agent --system` writes.
SYSTEM_SECTION = "notebook"
#: What the model is told with the first prompt after an interrupt.
STOPPED = (
    "(The user stopped the request before this one. Do not carry it out unless this one asks for "
    "it.)"
)
#: What a tool may declare to have done beyond the transcript.
_LASTING = frozenset({"write", "execute", "network"})


@dataclass(frozen=True, slots=True)
class CellPlan:
    """Hold what prompts the agent, and what the cell's output says beside the run."""

    messages: list[AgentMessage]
    remarks: tuple[str, ...] = ()
    #: The picture of the run that need not be repeated.
    kept: RunSnapshot | None = None
    #: What led to the answer, as a hash; empty without a cell of its own.
    digest: str = ""
    #: What the answer has to be.
    typed: TypedOutput | None = None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Hold a request with everything in it found and checked; None leaves the agent's own."""

    messages: list[AgentMessage]
    chosen: ChosenModel | None
    tools: list[AgentTool] | None
    rules: Policy | None
    typed: TypedOutput | None


@contextlib.contextmanager
def set_for_cell(agent: NotebookAgent, request: CellRequest) -> Iterator[CellPlan]:
    """Set what holds for one cell, and take it back after it.

    Args:
        agent: The agent.
        request: What the cell asks for.

    Raises:
        ValueError: A reference, a tool or an image is none.
        ModelError: There is no such model.
    """
    shell = frontend.shell()
    names: dict[str, Any] = {} if shell is None else shell.user_ns
    wanted = _read(agent, request, names)
    cell = frontend.cell_id()
    digest = "" if cell is None else _digest(agent, request, wanted)
    if cell is not None and request.once:
        agent.branches.follow(agent.state.messages)
        kept = agent.kept_runs.get(cell)
        if kept is not None and kept[0] == digest and agent.branches.has_turn_of(cell):
            yield CellPlan([], kept=kept[1])
            _deliver(agent, request, wanted, names, kept[2])
            return
    remarks = _rewound(agent, None if request.append else cell)
    with _applied(agent, request, wanted):
        try:
            yield CellPlan(wanted.messages, remarks, digest=digest, typed=wanted.typed)
        finally:
            agent.branches.follow(agent.state.messages, cell)
    _deliver(agent, request, wanted, names, agent.answer)


def _deliver(
    agent: NotebookAgent,
    request: CellRequest,
    wanted: _Wanted,
    names: dict[str, Any],
    answer: str,
) -> None:
    """Put the answer where the cell wants it."""
    value: Any = answer
    if wanted.typed is not None:
        value = agent.output = wanted.typed.value(answer)
    if request.to is not None:
        names[request.to] = value


def _read(agent: NotebookAgent, request: CellRequest, names: dict[str, Any]) -> _Wanted:
    """Find what a request names, before anything is changed."""
    found = (
        References((TextContent(text=request.prompt),))
        if request.raw
        else expand_references(request.prompt, names)
    )
    content = [*found.content, *(_image(expression, names) for expression in request.images)]
    if _was_stopped(agent):
        content.append(TextContent(text=STOPPED))
    typed = None if request.output is None else find_output(request.output, names)
    if typed is not None:
        content.append(TextContent(text=typed.instruction))
    messages: list[AgentMessage] = [UserMessage(content=content)]
    if request.system is not None:
        section = {SYSTEM_SECTION: request.system or None}
        messages.insert(0, SystemMessage(sections=section))
    chosen = None if request.model is None else choose_model(request.model)
    tools = _tools(agent.state.tools, request.tools, found.tools)
    return _Wanted(messages, chosen, tools, _rules(agent, request.approve, tools), typed)


def _rules(
    agent: NotebookAgent, text: str | None, tools: Sequence[AgentTool] | None
) -> Policy | None:
    """Read the rules of a cell; a name that means nothing here is a slip."""
    if text is None:
        return None
    rules = agent.approvals.policy.with_rules(text)
    known = {tool.name for tool in (*agent.state.tools, *(tools or ()))}
    unknown = [name for name in rules.tools if name not in known | {*agent.approvals.policy.tools}]
    if unknown:
        have = ", ".join([*rules.effects, *sorted(known)])
        raise ValueError(f"--approve: no effect or tool is {unknown[0]!r} (there is: {have})")
    return rules


@contextlib.contextmanager
def _applied(agent: NotebookAgent, request: CellRequest, wanted: _Wanted) -> Iterator[None]:
    """Set an agent to what a request wants, and back."""
    state = agent.state
    chosen_before, tools_before = agent.chosen_model, list(state.tools)
    level_before = state.thinking_level
    if wanted.chosen is not None:
        agent.use_model(wanted.chosen)
    if wanted.tools is not None:
        state.tools = wanted.tools
    if request.thinking is not None:
        state.thinking_level = cast("ThinkingLevel", request.thinking)
    agent.approvals.for_run = wanted.rules
    if request.budget != Budget():
        agent.spending = Spending(request.budget, agent.has_queued_messages)
    try:
        yield
    finally:
        agent.approvals.for_run = None
        agent.spending = None
        if wanted.chosen is not None and agent.chosen_model is wanted.chosen:
            agent.use_model(chosen_before)
        if wanted.tools is not None:
            state.tools = tools_before
        if request.thinking is not None:
            state.thinking_level = level_before


def _was_stopped(agent: NotebookAgent) -> bool:
    """Tell whether the last request was stopped; models see its prompt, and no answer to it."""
    last = agent.state.messages[-1] if agent.state.messages else None
    return isinstance(last, AssistantMessage) and last.stop_reason == "aborted"


def _digest(agent: NotebookAgent, request: CellRequest, wanted: _Wanted) -> str:
    """Hash what leads to an answer: prompt, values, model, thinking level and tools."""
    model = agent.state.model if wanted.chosen is None else wanted.chosen.model
    said = [to_json(message) for message in wanted.messages]
    for each in said:
        each.pop("timestamp", None)
    offered = agent.state.tools if wanted.tools is None else wanted.tools
    parts = [
        said,
        [model.provider, model.id, request.thinking or agent.state.thinking_level],
        [to_json(to_tool_declaration(tool)) for tool in offered],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _rewound(agent: NotebookAgent, cell: str | None) -> tuple[str, ...]:
    """Go back to before the cell's former turn, if it has one; say what that set aside."""
    agent.branches.follow(agent.state.messages)
    aside = None if cell is None else agent.branches.rewind_to(cell)
    if aside is None:
        return ()
    agent.state.messages = agent.branches.messages()
    count = "1 turn" if aside.turns == 1 else f"{aside.turns} turns"
    remark = f"{count} set aside: %agent switch {aside.branch} brings back"
    lasting = sorted(_lasting(agent, aside))
    if lasting:
        remark += f"; what {', '.join(lasting)} did is not undone"
    return (remark,)


def _lasting(agent: NotebookAgent, aside: SetAside) -> set[str]:
    """Return the tools in a set-aside branch whose effects stay."""
    ran = {
        message.tool_name
        for message in aside.messages
        if isinstance(message, ToolResultMessage) and not message.is_error
    }
    return {
        tool.name
        for tool in agent.state.tools
        if tool.name in ran and _LASTING & (tool.effects or frozenset())
    }


def _tools(
    have: Sequence[AgentTool], names: Sequence[str] | None, offered: Sequence[AgentTool]
) -> list[AgentTool] | None:
    """Return the tools of the cell; None if they are the agent's own."""
    if names is None and not offered:
        return None
    known = {tool.name: tool for tool in have}
    missing = [name for name in names or () if name not in known]
    if missing:
        there = ", ".join(known) or "none; put @pi.tool on a function"
        raise ValueError(f"no tool is named {missing[0]!r} (there is: {there})")
    wanted = known if names is None else {name: known[name] for name in names}
    return list({**wanted, **{tool.name: tool for tool in offered}}.values())


def _image(expression: str, names: dict[str, Any]) -> ImageContent:
    """Return the picture that an expression is worth."""
    try:
        value = eval(compile(expression, "--image", "eval"), dict(names))  # noqa: S307
    except Exception as error:  # noqa: BLE001 - whatever the user's expression raises
        raise ValueError(f"--image {expression}: {type(error).__name__}: {error}") from None
    blocks = convert_tool_result(value).content or ()
    pictures = [block for block in blocks if isinstance(block, ImageContent)]
    if len(pictures) != 1:
        raise ValueError(
            f"--image {expression} is {type(value).__name__}, not a picture: give a figure, a PIL "
            "image or the bytes of a PNG, JPEG, GIF or WebP"
        )
    return pictures[0]
