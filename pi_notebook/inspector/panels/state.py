"""Each field of the state: what it holds, who may write it, and who did last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pi_agent_kernel.log import HostCall, LogRecord
from pi_agent_kernel.messages import SystemMessage, text_of
from pi_agent_kernel.state import FIELDS

from pi_notebook.inspector.panel import Layout, Listing, Note, Panel, Row, Table, Tag
from pi_notebook.inspector.panels.tools import difference, difference_notes
from pi_notebook.inspector.words import NOTHING

if TYPE_CHECKING:
    from pi_agent_kernel.state import Field

    from pi_notebook.inspector.panel import Block
    from pi_notebook.inspector.reading import Step
    from pi_notebook.inspector.scene import Scene

__all__ = ["state_details", "state_panel"]

LAYOUT = Layout(
    "state", (("field", "k"), ("value", "v"), ("may write", "s"), ("last written by", "n"))
)
#: Roles of the newest messages that the row of the transcript names.
ROLES = 6


def state_panel(scene: Scene) -> Panel:
    """Show every field with its value, its owner and its last writer."""
    found = difference(scene)
    rows: list[Row] = []
    for place, field in enumerate(FIELDS):
        tags: tuple[Tag, ...] = ()
        if field.name == "system_prompt":
            tags = (Tag("replayed, read only"),)
        elif field.name == "tools" and found:
            count = len(found.not_declared)
            gone = len(found.not_executable)
            tags = tuple(
                Tag(text, "warn")
                for text, wanted in (
                    (f"{count} not yet declared", count),
                    (f"{gone} declared only", gone),
                    (f"{len(found.redefined)} redefined", len(found.redefined)),
                )
                if wanted
            )
        rows.append(
            Row(
                (
                    field.name,
                    _value(scene, field.name),
                    field.owner,
                    scene.writer(_writer(scene, field.name)),
                ),
                tags=tags,
                tone="bad"
                if field.name == "error_message" and scene.agent.state.error_message
                else "",
                ref=place,
                more=_rule(field),
            )
        )
    notes = list(difference_notes(scene, found))
    if scene.agent.log.first_seq > 1:
        notes.append(
            Note(
                f"Events before #{scene.agent.log.first_seq}",
                "are no longer kept (max_log_events), so an earlier writer is not told.",
            )
        )
    return Panel("state", "State", blocks=(Table(LAYOUT, tuple(rows)), *notes))


def state_details(scene: Scene, ref: int) -> tuple[Block, ...]:
    """Show one field: all of its value, the rule, and what its last writer changed."""
    if not 0 <= ref < len(FIELDS):
        return ()
    field = FIELDS[ref]
    blocks: list[Block] = [Listing(field.name, _whole(scene, field.name))]
    blocks.append(Listing("rule", _rule(field)))
    step = _writer(scene, field.name)
    if step is not None:
        words = scene.words
        said = (scene.writer(step), words.event(step), words.changes(step, scene.reading))
        blocks.append(Listing("last written by", "\n".join(filter(None, said))))
    return tuple(blocks)


def _rule(field: Field) -> str:
    return f"{field.owner} writes it; {field.written} ({field.source})"


def _writer(scene: Scene, name: str) -> Step | None:
    if name == "system_prompt":
        return _prompt_writer(scene)
    return scene.reading.writers.get(name)


def _prompt_writer(scene: Scene) -> LogRecord | None:
    """Find which record gave the replayed prompt: a system message, or the host's own change."""
    messages = scene.agent.state.messages
    for record in reversed(scene.reading.prompt_writers):
        if not isinstance(record.event, HostCall):
            return record
        at = record.flat.index("messages")
        before, after = record.flat[at + 1], record.flat[at + 2]
        added = list(messages[before:after]) if after > before else []
        # A message that was only appended leaves the prompt as it is, unless it is a system one.
        if not added or any(isinstance(message, SystemMessage) for message in added):
            return record
    return None


def _value(scene: Scene, name: str) -> str:
    state = scene.agent.state
    match name:
        case "messages":
            roles = [str(getattr(message, "role", "")) for message in state.messages[-ROLES:]]
            if not roles:
                return "none"
            more = "… " if len(state.messages) > ROLES else ""
            return scene.words.line(f"{len(state.messages)} · {more}{' '.join(roles)}")
        case "tools":
            return scene.words.value([tool.name for tool in state.tools])
        case "streaming_message":
            streaming = state.streaming_message
            return NOTHING if streaming is None else scene.words.message(streaming)
        case "pending_tool_calls":
            calls = sorted(state.pending_tool_calls)
            return ", ".join(scene.words.called_id(one, scene.reading) for one in calls) or "∅"
        case _:
            return scene.words.value(getattr(state, name))


def _whole(scene: Scene, name: str) -> str:
    state = scene.agent.state
    match name:
        case "system_prompt" | "error_message":
            return scene.words.text(getattr(state, name) or NOTHING)
        case "messages":
            roles = [str(getattr(message, "role", "")) for message in state.messages]
            counts = {role: roles.count(role) for role in dict.fromkeys(roles)}
            return scene.words.text("\n".join(f"{count} {role}" for role, count in counts.items()))
        case "tools":
            return scene.words.text("\n".join(tool.name for tool in state.tools) or "none")
        case "streaming_message" if state.streaming_message is not None:
            message = state.streaming_message
            return scene.words.text(text_of(getattr(message, "content", None) or ()))
        case "model":
            return scene.words.text(repr(state.model))
        case _:
            return _value(scene, name)
