"""Make a transcript fit to be sent: what a provider would refuse is left out or completed.

Pure functions of our own messages, the same for every provider. The stored transcript is never
touched.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from pi_agent_kernel.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.transcript import get_declared_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pi_agent_kernel.request import Model

__all__ = ["replayable"]

NO_RESULT = "No result provided"
NO_TEXT = "(empty message)"
NO_OUTPUT = "(no tool output)"
SEE_IMAGE = "(see attached image)"
USER_IMAGE_OMITTED = "(image omitted: model does not support images)"
TOOL_IMAGE_OMITTED = "(tool image omitted: model does not support images)"

_MAX_ID = 40  # characters of a tool call id, the smallest limit among providers
_KEPT = 28  # characters of an id that stay whatever number follows
_MAX_NAME = 64  # characters of a tool's name, likewise

_replace = msgspec.structs.replace


def replayable(
    messages: Sequence[Message], model: Model, *, id_length: int | None = None
) -> list[Message]:
    """Return the messages that may go into a request to `model`.

    Args:
        messages: The transcript.
        model: Who is asked.
        id_length: The only length of tool call ids that the provider takes, of letters and
            digits; any up to 40 characters by default.

    - Assistant messages that failed or were aborted are left out, with their tool calls, as are
      empty ones (TR-14, E09, E13).
    - Every tool call has exactly one result, right after its message: a missing one becomes an
      error result, one without its call is left out. A system message between them comes after
      (TR-14).
    - Ids of tool calls are unique in the request and without lone surrogates; those of another
      model are cut to `[A-Za-z0-9_-]` and 40 characters (TR-15, E08).
    - Thinking and signatures of another model are dropped (TR-15, E10).
    - Names of tools that nobody declared, made up by a model, are cut to `[A-Za-z0-9_-]` and 64
      characters, as every provider demands.
    - A blank user message gets a placeholder, as most providers refuse one; so does a blank tool
      result, and images one if the model takes none (TR-15, E11).
    """
    sent: list[Message] = []
    ids = _Ids(id_length)
    # Calls without a result yet, in order: (id in the request, name) by number.
    open_calls: dict[int, tuple[str, str]] = {}
    # The numbers of the open calls by id in the transcript, where two may be equal.
    numbers: dict[str, deque[int]] = {}
    held: list[Message] = []

    def close() -> None:
        for call_id, name in open_calls.values():
            missing = TextContent(text=NO_RESULT)
            sent.append(
                ToolResultMessage(
                    tool_call_id=call_id, tool_name=name, content=(missing,), is_error=True
                )
            )
        open_calls.clear()
        numbers.clear()
        sent.extend(held)
        held.clear()

    takes_images = "image" in model.input
    declared = {tool.name for tool in get_declared_tools(messages)}
    for message in messages:
        match message:
            case SystemMessage():
                (held if open_calls else sent).append(message)
            case UserMessage():
                close()
                sent.append(_said(message if takes_images else _without_images(message)))
            case AssistantMessage():
                close()
                if message.stop_reason in ("error", "aborted"):
                    continue
                own = (message.provider, message.api, message.model) == (
                    model.provider,
                    model.api,
                    model.id,
                )
                blocks: list[AssistantBlock] = []
                for block in message.content:
                    kept = block if own else _foreign(block)
                    if isinstance(block, ToolCall) and isinstance(kept, ToolCall):
                        name = kept.name if kept.name in declared else _tool_name(kept.name)
                        kept = _replace(kept, id=ids.unique(kept.id), name=name)
                        numbers.setdefault(block.id, deque()).append(len(open_calls))
                        open_calls[len(open_calls)] = (kept.id, kept.name)
                    if kept is not None and not _is_empty(kept):
                        blocks.append(kept)
                if blocks:
                    sent.append(_replace(message, content=tuple(blocks)))
            case _:
                waiting = numbers.get(message.tool_call_id)
                if not waiting:
                    continue
                call_id, name = open_calls.pop(waiting.popleft())
                answered = _replace(message, tool_call_id=call_id, tool_name=name)
                sent.append(_filled(answered, takes_images=takes_images))
                if not open_calls:
                    close()
    close()
    return sent


def _foreign(block: AssistantBlock) -> AssistantBlock | None:
    """Return what another model may see of a block."""
    match block:
        case ThinkingContent():
            return None
        case TextContent():
            return TextContent(text=block.text)
        case _:
            call_id = re.sub(r"[^A-Za-z0-9_-]", "_", block.id)[:_MAX_ID]
            return _replace(block, id=call_id, thought_signature=None)


def _tool_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_MAX_NAME] or "unnamed"


def _is_empty(block: AssistantBlock) -> bool:
    match block:
        case TextContent():
            return not block.text or not (block.text.strip() or block.text_signature)
        case ThinkingContent():
            # Signed and redacted thinking counts even without text: providers ask for it back.
            return not (block.redacted or block.thinking_signature or block.thinking.strip())
        case _:
            return False


class _Ids:
    """Give out the ids of calls, each once.

    Args:
        length: As `replayable`'s `id_length`.
    """

    def __init__(self, length: int | None) -> None:
        self._length = length
        self._used: set[str] = set()
        # The last number tried by beginning of an id: a request of equal ids stays linear.
        self._last: dict[str, int] = {}

    def unique(self, call_id: str) -> str:
        """Return the id, or one like it that was not used yet, and note it."""
        wanted = re.sub("[\ud800-\udfff]", "_", call_id) or "call"
        unique = _fitted(wanted, self._length)
        while unique in self._used:
            beginning = wanted[:_KEPT]
            number = self._last[beginning] = self._last.get(beginning, 1) + 1
            suffix = f"_{number}"
            unique = _fitted(wanted[: _MAX_ID - len(suffix)] + suffix, self._length)
        self._used.add(unique)
        return unique


def _fitted(call_id: str, length: int | None) -> str:
    """Return an id of exactly that length: itself or from its hash, the same every time."""
    if length is None or re.fullmatch(f"[A-Za-z0-9]{{{length}}}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:length]


def _said(message: UserMessage) -> UserMessage:
    """Return a message with something in it."""
    content = message.content
    if isinstance(content, str):
        blank = not content.strip()
    else:
        blank = not any(isinstance(b, ImageContent) or b.text.strip() for b in content)
    return _replace(message, content=NO_TEXT) if blank else message


def _without_images(message: UserMessage) -> UserMessage:
    if isinstance(message.content, str):
        return message
    return _replace(message, content=_placeholders(message.content, USER_IMAGE_OMITTED))


def _filled(message: ToolResultMessage, *, takes_images: bool) -> ToolResultMessage:
    """Return a result with text in it, and images only if the model takes them."""
    content: Sequence[TextContent | ImageContent] = message.content
    if not takes_images:
        content = _placeholders(content, TOOL_IMAGE_OMITTED)
    if not any(isinstance(block, TextContent) and block.text.strip() for block in content):
        images = [block for block in content if isinstance(block, ImageContent)]
        content = (TextContent(text=SEE_IMAGE if images else NO_OUTPUT), *images)
    return _replace(message, content=tuple(content))


def _placeholders(
    content: Sequence[TextContent | ImageContent], placeholder: str
) -> tuple[TextContent | ImageContent, ...]:
    """Put a text for each run of images."""
    kept: list[TextContent | ImageContent] = []
    for block in content:
        if isinstance(block, TextContent):
            kept.append(block)
        elif not kept or kept[-1] != TextContent(text=placeholder):
            kept.append(TextContent(text=placeholder))
    return tuple(kept)
