"""Every message of the transcript, and the prompt that its system messages add up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.json_value import thaw
from pi_agent_kernel.log import HostCall
from pi_agent_kernel.messages import AssistantMessage, SystemMessage, text_of

from pi_notebook.inspector.panel import Layout, Listing, Note, Panel, Row, Rows, Tag
from pi_notebook.inspector.words import number
from pi_notebook.render.untrusted import json_text

if TYPE_CHECKING:
    from pi_agent_kernel.messages import AgentMessage

    from pi_notebook.inspector.panel import Block, Tone
    from pi_notebook.inspector.scene import Scene

__all__ = ["message_details", "message_row", "message_tokens", "transcript_panel"]

LAYOUT = Layout(
    "transcript",
    (("at", "k"), ("role", "s"), ("message", "v"), ("tokens", "n"), ("added by", "n")),
)
#: Characters of a message that a page without a kernel folds away below its row.
LONGEST_MORE = 1_200


def transcript_panel(scene: Scene) -> Panel:
    """List the messages; the replayed prompt and tools stand beside them."""
    messages = list(scene.agent.state.messages)

    def read(start: int, stop: int) -> Sequence[Row]:
        return [
            message_row(scene, place, message, added_by=_added_by(scene, message))
            for place, message in enumerate(messages[start:stop], start)
        ]

    replay = scene.agent.state.replay()
    prompt = scene.words.text(replay.prompt) or "empty"
    declared = "\n".join(scene.words.line(name, 60) for name in replay.tools) or "none"
    blocks = () if messages else (Note("No messages", "yet: a prompt makes the first one."),)
    return Panel(
        "transcript",
        "Transcript",
        blocks=blocks,
        rows=Rows(LAYOUT, len(messages), read),
        aside=(Listing("replayed prompt", prompt), Listing("declared tools", declared)),
    )


def message_row(
    scene: Scene, place: int, message: AgentMessage, *, added_by: str, ref: int | None = None
) -> Row:
    """Write one message as a row."""
    tags: tuple[Tag, ...] = ()
    tone: Tone = ""
    if isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted"):
        tone = "bad" if message.stop_reason == "error" else "warn"
        tags = (Tag(message.stop_reason, tone),)
    elif getattr(message, "is_error", False):
        tone, tags = "bad", (Tag("error", "bad"),)
    elif isinstance(message, SystemMessage) and place > 0:
        tags = (Tag("patch"),)
    parts = scene.words.message_parts(message) if not scene.exact else ()
    more = "\n".join(part.text for part in parts)
    return Row(
        (
            str(place),
            scene.words.line(str(getattr(message, "role", "")), 40),
            scene.words.message(message),
            message_tokens(message),
            added_by,
        ),
        tags=tags,
        tone=tone,
        ref=place if ref is None else ref,
        more=more if len(more) <= LONGEST_MORE else f"{more[:LONGEST_MORE]}…",
    )


def message_tokens(message: AgentMessage) -> str:
    """Count the tokens of a message: a model's answer knows, others are estimated ("≈")."""
    if isinstance(message, AssistantMessage) and message.usage.output:
        return number(message.usage.output)
    characters = _characters(message)
    return f"≈ {number(max(1, characters // 4))}" if characters else "0"


def message_details(scene: Scene, ref: int) -> tuple[Block, ...]:
    """Show all of one message."""
    messages = scene.agent.state.messages
    if not 0 <= ref < len(messages):
        return ()
    message = messages[ref]
    role = scene.words.line(str(getattr(message, "role", "")), 40)
    added = _added_by(scene, message)
    by = {"host": "put there by the host", "start": "there from the start"}
    return (
        Note(f"{ref} {role}", by.get(added, f"appended by {added}")),
        *scene.words.message_parts(message),
    )


def _added_by(scene: Scene, message: AgentMessage) -> str:
    seq = scene.reading.appended_by(message)
    if seq is not None:
        return f"#{seq}"
    host_wrote = any(isinstance(one.event, HostCall) for one in scene.reading.prompt_writers)
    return "host" if host_wrote else "start"


def _characters(message: AgentMessage) -> int:
    if isinstance(message, SystemMessage):
        count = len(text_of(message.content))
        count += sum(len(value or "") for value in (message.sections or {}).values())
        for tool in message.tools_added or ():
            count += len(tool.description) + len(json_text(thaw(tool.parameters)))
        return count
    content: Any = getattr(message, "content", None) or ()
    count = len(text_of(content))
    if isinstance(message, AssistantMessage):
        count += sum(len(str(dict(call.arguments))) for call in message.tool_calls)
    return count
