"""Which tools can run, and which the model knows of: the two may differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.tools import to_tool_declaration
from pi_agent_kernel.transcript import get_tool_state_changes

from pi_notebook.inspector.panel import Layout, Listing, Note, Panel, Row, Table, Tag
from pi_notebook.render.untrusted import json_text

if TYPE_CHECKING:
    from pi_agent_kernel.messages import Tool
    from pi_agent_kernel.tools import AgentTool

    from pi_notebook.inspector.panel import Block
    from pi_notebook.inspector.scene import Scene

__all__ = ["ToolDifference", "difference", "difference_notes", "tool_details", "tools_panel"]

LAYOUT = Layout("tools", (("tool", "k"), ("what it is for", "v"), ("runs", "s"), ("declared", "s")))
NOT_DECLARED = "executable but not yet declared"
NOT_EXECUTABLE = "declared but not executable"
REDEFINED = "declared in an older form"


@dataclass(frozen=True, slots=True)
class ToolDifference:
    """Hold in what the tools that can run differ from those the model knows."""

    #: Every name, executable ones first, with what there is of each.
    all: tuple[tuple[str, AgentTool | None, Tool | None], ...]
    not_declared: tuple[str, ...]
    not_executable: tuple[str, ...]
    redefined: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.not_declared or self.not_executable or self.redefined)


def difference(scene: Scene) -> ToolDifference:
    """Compare `state.tools` with the tools that the transcript declares."""
    executable = {tool.name: tool for tool in list(scene.agent.state.tools)}
    declared = dict(scene.agent.state.replay().tools)
    changes = get_tool_state_changes(
        list(declared.values()), [to_tool_declaration(tool) for tool in executable.values()]
    )
    added = {tool.name for tool in changes.tools_added}
    return ToolDifference(
        all=tuple(
            (name, executable.get(name), declared.get(name))
            for name in dict.fromkeys([*executable, *declared])
        ),
        not_declared=tuple(name for name in executable if name not in declared),
        not_executable=tuple(name for name in declared if name not in executable),
        redefined=tuple(name for name in declared if name in executable and name in added),
    )


def difference_notes(scene: Scene, found: ToolDifference) -> tuple[Note, ...]:
    """Say what differs, and what the next request will announce."""

    def names(tools: tuple[str, ...]) -> str:
        return ", ".join(scene.words.line(name, 60) for name in tools)

    when = "next run" if scene.agent.state.is_streaming else "next request"
    notes: list[Note] = []
    for tools, text in (
        (
            found.not_declared,
            (
                f"{NOT_DECLARED}: the model does not know {{it}}. The {when} will announce {{it}} "
                "(tools_added) before your message."
            ),
        ),
        (
            found.not_executable,
            (
                f"{NOT_EXECUTABLE}: the model may call {{it}}, and the call fails. The {when} will "
                "take {it} back (tools_removed)."
            ),
        ),
        (
            found.redefined,
            (
                f"{REDEFINED}, and has changed since. The {when} will declare {{it}} anew "
                "(tools_removed, tools_added)."
            ),
        ),
    ):
        if tools:
            be, it = ("is", "it") if len(tools) == 1 else ("are", "them")
            notes.append(Note(names(tools), f"{be} {text.format(it=it)}", "warn"))
    return tuple(notes)


def tools_panel(scene: Scene) -> Panel:
    """Show the tools that can run beside those the transcript declares."""
    found = difference(scene)
    rows: list[Row] = []
    for place, (name, tool, declared) in enumerate(found.all):
        tags: list[Tag] = []
        if name in found.not_declared:
            tags.append(Tag(NOT_DECLARED, "warn"))
        if name in found.not_executable:
            tags.append(Tag(NOT_EXECUTABLE, "warn"))
        if name in found.redefined:
            tags.append(Tag(REDEFINED, "warn"))
        known: Any = tool if tool is not None else declared
        rows.append(
            Row(
                (
                    scene.words.line(name, 60),
                    scene.words.line(known.description.partition("\n")[0], 160),
                    "yes" if tool is not None else "no",
                    "yes" if declared is not None else "no",
                ),
                tags=tuple(tags),
                tone="warn" if tags else "",
                ref=place,
                more=scene.words.text(json_text(_parameters(known)), 1_500),
            )
        )
    notes = difference_notes(scene, found)
    if not rows:
        notes = (Note("No tools", "are offered: put @pi.tool on a function.", ""),)
    elif not notes:
        notes = (Note("Nothing to announce", "the model knows exactly what can run.", "ok"),)
    table = (Table(LAYOUT, tuple(rows)),) if rows else ()
    return Panel("tools", "Tools", blocks=(*table, *notes))


def tool_details(scene: Scene, ref: int) -> tuple[Block, ...]:
    """Show one tool: what it says of itself, and what the model was told."""
    found = difference(scene)
    if not 0 <= ref < len(found.all):
        return ()
    name, tool, declared = found.all[ref]
    blocks: list[Block] = []
    if tool is not None:
        told = [
            tool.description,
            f"effects: {', '.join(sorted(tool.effects or ())) or 'none declared'}",
            f"runs {tool.execution_mode or 'in parallel with others'}",
        ]
        blocks.append(Listing(f"{scene.words.line(name, 60)}, as it can run", _said(scene, told)))
        blocks.append(Listing("parameters", scene.words.text(json_text(_parameters(tool)))))
    if declared is not None and (tool is None or name in found.redefined):
        blocks.append(
            Listing(
                f"{scene.words.line(name, 60)}, as the model knows it",
                _said(scene, [declared.description, json_text(_parameters(declared))]),
            )
        )
    return tuple(blocks)


def _said(scene: Scene, lines: list[str]) -> str:
    return scene.words.text("\n".join(line for line in lines if line))


def _parameters(tool: Any) -> Any:
    from pi_agent_kernel.json_value import thaw

    return thaw(tool.parameters)
