"""Agents in a few words: messages, values, events and what each of them changed.

Everything here comes from a model, a tool or a user, so each text is freed of secrets, cleaned and
bounded before it is a word of the inspector. Without `exact` nothing is told that differs from one
execution to the next: no times, no costs, no ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pi_agent_kernel.events import (
    AgentEnd,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelRequestStart,
    ModelResponse,
    ModelRetry,
    ToolBatchEnd,
    ToolBatchStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
)
from pi_agent_kernel.log import HostCall, UpdateSpan
from pi_agent_kernel.messages import (
    AssistantMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    text_of,
)
from pi_agent_kernel.secrecy import Redaction, environment_secrets

from pi_notebook.inspector.panel import Listing
from pi_notebook.render.untrusted import LONGEST_DETAIL, bound, clean, json_text, signature

if TYPE_CHECKING:
    from pi_agent_kernel.log import LogRecord
    from pi_agent_kernel.messages import AgentMessage

    from pi_notebook.inspector.panel import Tone
    from pi_notebook.inspector.reading import Reading

__all__ = ["NOTHING", "Words", "number", "seconds", "tone_of"]

LONGEST_LINE = 200
#: Characters of a text that are looked at for one line of it.
LOOKED_AT = 1_000
#: More of a text than this is not searched for secrets, and not shown.
LONGEST_SEARCHED = 200_000
NOTHING = "–"  # noqa: RUF001 - nothing


class Words:
    """Say things about one agent.

    Args:
        exact: Say also what differs from one execution to the next.
        redacted: Take secrets out; only what nobody sees may do without.
    """

    def __init__(self, *, exact: bool, redacted: bool = True) -> None:
        self.exact = exact
        self._redaction = Redaction(environment_secrets(), cut=True) if redacted else None

    # --------------------------------------------------------------------------------- texts

    def line(self, text: str, limit: int = LONGEST_LINE) -> str:
        """Write a text on one line."""
        begun = clean(text[: limit + LOOKED_AT])
        if self._redaction is not None:
            if len(text) > limit + LOOKED_AT:
                begun = self._redaction.beginning(begun)
            begun = self._redaction.text(begun)
        joined = " ".join(begun.split())
        return joined if len(joined) <= limit else f"{joined[: limit - 1]}…"

    def text(self, text: str, limit: int = LONGEST_DETAIL) -> str:
        """Write a text with its lines; of a long one its two ends."""
        if len(text) > LONGEST_SEARCHED:
            left_out = len(text) - LONGEST_SEARCHED
            text = f"{text[:LONGEST_SEARCHED]}\n… {left_out} characters left out …"
        text = clean(text)
        return bound(text if self._redaction is None else self._redaction.text(text), limit)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a tool call the way code has it."""
        return self.line(f"{name}({signature(arguments)})")

    def value(self, value: object) -> str:
        """Write what a field of the state holds."""
        match value:
            case None:
                return NOTHING
            case str():
                return self.line(value) or "empty"
            case frozenset() | set():
                return ", ".join(sorted(self.line(str(item), 60) for item in value)) or "∅"
            case tuple() | list():
                return self.line(", ".join(str(item) for item in value)) or "none"
            case UpdateSpan() | MessageUpdate():
                return "assistant"
            case _ if hasattr(value, "role"):
                return self.line(str(getattr(value, "role", "")), 60)
            case _ if hasattr(value, "id"):
                return self.line(str(getattr(value, "id", "")), 80)
            case _:
                return self.line(str(value))

    # ------------------------------------------------------------------------------ messages

    def message(self, message: AgentMessage, limit: int = LONGEST_LINE) -> str:
        """Write a message on one line."""
        match message:
            case SystemMessage():
                return self.line(" · ".join(_patch(message)) or "empty", limit)
            case AssistantMessage():
                parts = [message.text[: limit + LOOKED_AT], *map(self._called, message.tool_calls)]
                if message.error_message:
                    parts.append(f"{message.stop_reason}: {message.error_message}")
                thought = any(isinstance(block, ThinkingContent) for block in message.content)
                said = " · ".join(part for part in parts if part.strip())
                return self.line(said or ("thinking" if thought else NOTHING), limit)
            case ToolResultMessage():
                shown = text_of(message.content)[: limit + LOOKED_AT]
                return self.line(
                    f"{message.tool_name} → {shown or _blocks(message.content)}", limit
                )
            case _:
                content: Any = getattr(message, "content", None) or ()
                shown = text_of(content)[: limit + LOOKED_AT]
                return self.line(shown or _blocks(content), limit)

    def message_parts(self, message: AgentMessage) -> tuple[Listing, ...]:
        """Write all of a message, one listing for each part."""
        parts: list[Listing] = []
        if isinstance(message, SystemMessage):
            if text_of(message.content):
                parts.append(Listing("prompt", self.text(text_of(message.content))))
            for name, value in (message.sections or {}).items():
                title = f"section {self.line(name, 60)}"
                parts.append(Listing(title, "removed" if value is None else self.text(value)))
            for title, tools in (
                ("tools_added", message.tools_added),
                ("tools_removed", message.tools_removed),
            ):
                if tools:
                    parts.append(Listing(title, self.text("\n".join(map(_declared, tools)))))
            return tuple(parts)
        content: Any = getattr(message, "content", None) or ()
        blocks = [TextContent(text=content)] if isinstance(content, str) else content
        parts.extend(self._part(block) for block in blocks)
        error = getattr(message, "error_message", None)
        if error:
            parts.append(Listing(str(getattr(message, "stop_reason", "error")), self.text(error)))
        if not parts or getattr(message, "role", "") not in ("user", "assistant", "toolResult"):
            parts.append(Listing("message", self.text(_json(message))))
        return tuple(parts)

    def _part(self, block: object) -> Listing:
        match block:
            case TextContent(text=text):
                return Listing("text", self.text(text))
            case ThinkingContent(thinking=text, redacted=hidden):
                return Listing("thinking", "kept by the provider" if hidden else self.text(text))
            case ToolCall():
                title = f"call of {self.line(block.name, 60)}"
                if self.exact:
                    title += f" · {self.line(block.id, 60)}"
                return Listing(title, self.text(json_text(dict(block.arguments))))
            case ImageContent(data=data, mime_type=kind):
                size = f"{len(data) * 3 // 4:,}".replace(",", "\u202f")
                return Listing("image", f"{self.line(kind, 60)}, {size} bytes")
            case _:
                return Listing("part", self.text(_json(block)))

    def _called(self, call: ToolCall) -> str:
        return f"{call.name}({signature(call.arguments)})"

    # -------------------------------------------------------------------------------- events

    def event(self, step: LogRecord | UpdateSpan) -> str:
        """Write an event on one line, without its type and without what it changed."""
        if isinstance(step, UpdateSpan):
            count = step.last - step.seq + 1
            return f"{count} deltas" if count > 1 else ""
        match step.event:
            case HostCall(name="state", detail=field):
                return f"assigns {self.line(field, 60)}"
            case HostCall(name=name, detail=detail):
                return f"{name} {self.line(detail, 100)}".strip()
            case MessageStart(message=message) | MessageEnd(message=message):
                role = self.line(str(getattr(message, "role", "")), 40)
                if isinstance(message, ToolResultMessage):
                    role = f"{role} {self.line(message.tool_name, 60)}"
                return role
            case MessageUpdate(assistant_message_event=update):
                return f"{update.type} {self.line(str(getattr(update, 'delta', '')), 80)}".strip()
            case ToolExecutionStart() as start:
                return self.call(start.tool_name, start.args)
            case ToolExecutionUpdate() as update:
                shown = text_of(getattr(update.partial_result, "content", None) or ())
                return f"{self.line(update.tool_name, 60)}: {self.line(shown, 100)}"
            case ToolExecutionEnd() as end:
                shown = self.line(text_of(end.result.content or ()), 100)
                how = "error" if end.is_error else "ok"
                ran = ", did not run" if end.duration_ms is None else ""
                return f"{self.line(end.tool_name, 60)}, {how}{ran}: {shown}"
            case ModelRequestStart() as request:
                again = f", attempt {request.attempt}" if request.attempt > 1 else ""
                return f"{self.line(request.model, 80)}, {request.message_count} messages{again}"
            case ModelResponse(stop_reason=reason, usage=usage):
                return f"{reason}, {number(usage.output)} tokens out"
            case ModelRetry() as retry:
                return (
                    f"{self.line(retry.kind, 40)}, attempt {retry.attempt} of "
                    f"{retry.max_attempts}: {self.line(retry.error_message, 100)}"
                )
            case ToolBatchStart(count=count) | ToolBatchEnd(count=count):
                return f"{count} calls" if count != 1 else "1 call"
            case TurnEnd(tool_results=results) if results:
                return f"{len(results)} results" if len(results) != 1 else "1 result"
            case AgentEnd(messages=messages):
                return f"{len(messages)} new messages"
            case _:
                return ""

    def changes(self, step: LogRecord | UpdateSpan, reading: Reading) -> str:
        """Write what a step changed in the state, on one line."""
        if isinstance(step, UpdateSpan):
            return "streaming_message grows"
        return "; ".join(
            self._change(step.flat[at], step.flat[at + 1], step.flat[at + 2], reading)
            for at in range(0, len(step.flat), 3)
        )

    def _change(self, field: str, before: Any, after: Any, reading: Reading) -> str:
        match field:
            case "streaming_message":
                if after is None:
                    return f"{field} cleared"
                if isinstance(after, MessageUpdate):
                    return f"{field} grows"
                return f"{field} = {self.value(after)}"
            case "pending_tool_calls":
                added = [self.called_id(one, reading) for one in sorted(after - before)]
                gone = [self.called_id(one, reading) for one in sorted(before - after)]
                sides = [f"+ {', '.join(added)}"] * bool(added)
                sides += [f"− {', '.join(gone)}"] * bool(gone)  # noqa: RUF001 - a minus sign
                return f"{field} {' '.join(sides)}"
            case "tools":
                known, now = set(before), set(after)
                sides = [f"+ {self.line(one, 60)}" for one in after if one not in known]
                sides += [f"− {self.line(one, 60)}" for one in before if one not in now]  # noqa: RUF001
                return f"{field} {', '.join(sides) or 'replaced'}"
            case "error_message":
                return f"{field} cleared" if after is None else f"{field} = {self.line(after, 80)}"
            case _:
                return f"{field} {self.value(before)} → {self.value(after)}"

    def called_id(self, call_id: str, reading: Reading) -> str:
        """Name a call: by its tool, and by its id where ids may be told."""
        name = self.line(reading.tool_names.get(call_id, "a call"), 60)
        return f"{name} ({self.line(call_id, 40)})" if self.exact else name


def number(count: int) -> str:
    """Write a count with thin spaces between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def seconds(span: float) -> str:
    """Write a duration for a reader."""
    if span < 10:
        return f"{span:.2f} s"
    return f"{span:.1f} s" if span < 100 else f"{span:.0f} s"


def tone_of(step: LogRecord | UpdateSpan) -> Tone:
    """Return the colour of an event: only how something ended has one."""
    match step.event if not isinstance(step, UpdateSpan) else None:
        case ToolExecutionEnd(is_error=failed):
            return "bad" if failed else "ok"
        case ModelResponse(stop_reason="error"):
            return "bad"
        case ModelResponse(stop_reason="aborted" | "length") | ModelRetry():
            return "warn"
        case _:
            return ""


def _patch(message: SystemMessage) -> list[str]:
    """Say what a system message changes."""
    parts = [text_of(message.content)[:LOOKED_AT]]
    for name, value in (message.sections or {}).items():
        parts.append(f"sections − {name}" if value is None else f"sections {name}: {_begun(value)}")  # noqa: RUF001
    if message.tools_added:
        parts.append(f"tools_added {', '.join(tool.name for tool in message.tools_added)}")
    if message.tools_removed:
        parts.append(f"tools_removed {', '.join(tool.name for tool in message.tools_removed)}")
    return [part for part in parts if part]


def _begun(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _declared(tool: Any) -> str:
    description = getattr(tool, "description", "")
    parameters = getattr(tool, "parameters", None)
    properties: Any = (parameters or {}).get("properties", {})
    names = ", ".join(map(str, properties)) if isinstance(properties, Mapping) else ""
    return f"{tool.name}({names})  {description}".rstrip()


def _blocks(content: Any) -> str:
    """Count the blocks of a message that has no text."""
    if not isinstance(content, Sequence) or isinstance(content, str):
        return ""
    images = sum(isinstance(block, ImageContent) for block in content)
    return f"{images} image{'' if images == 1 else 's'}" if images else ""


def _json(value: object) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(value)).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        return json.dumps(repr(value))
