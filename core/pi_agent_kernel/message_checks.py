"""What the fields of a message may hold, checked where a message comes in.

Constructors check nothing: a run builds thousands of messages of values it knows. What a host
hands in is checked once, when it is prompted, queued or put into the transcript. A wrong value
that got into the transcript would fail every later request, in words about none of this (MS-01).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from pi_agent_kernel.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolReference,
    ToolResultMessage,
    Usage,
    UserMessage,
)

__all__ = ["check_block", "check_message", "short"]

_Kinds = tuple[type[Any], ...]

# What the content of each message may hold, and whether it may be text.
_CONTENT: dict[type[Any], tuple[_Kinds, bool]] = {
    UserMessage: ((TextContent, ImageContent), True),
    AssistantMessage: ((TextContent, ThinkingContent, ToolCall), False),
    ToolResultMessage: ((TextContent, ImageContent), False),
    SystemMessage: ((TextContent,), True),
}
_NONE = type(None)
# Further fields that would fail a request, or the replay of the transcript.
_FIELDS: dict[type[Any], tuple[tuple[str, _Kinds, str], ...]] = {
    UserMessage: (),
    AssistantMessage: (("usage", (Usage,), "a Usage"),),
    ToolResultMessage: (
        ("tool_call_id", (str,), "text"),
        ("tool_name", (str,), "text"),
        ("usage", (Usage, _NONE), "a Usage or None"),
    ),
    SystemMessage: (("sections", (Mapping, _NONE), "a dict of texts or None"),),
    TextContent: (("text", (str,), "text"),),
    ThinkingContent: (("thinking", (str,), "text"),),
    ImageContent: (("data", (str,), "base64 text"), ("mime_type", (str,), "text")),
    ToolCall: (("id", (str,), "text"), ("name", (str,), "text")),
}


def check_message(message: Message) -> None:
    """Refuse a message with a field of a wrong type, in time linear in its blocks.

    Raises:
        TypeError: The message names the field, what was expected, what came, and the remedy.
    """
    kind = _kind_of(message, _CONTENT)
    content: Any = message.content
    blocks, may_be_text = _CONTENT[kind]
    if not (may_be_text and isinstance(content, str)):
        where = f"{kind.__name__}.content"
        if not _is_sequence(content):
            raise _wrong_content(where, content, blocks, may_be_text=may_be_text)
        for index, block in enumerate(cast("Sequence[object]", content)):
            if not isinstance(block, blocks):
                raise _wrong_block(f"{where}[{index}]", block, blocks)
            check_block(block, f"{where}[{index}]")
    _check_fields(message, kind, kind.__name__)
    if isinstance(message, SystemMessage):
        _check_items("SystemMessage.tools_added", message.tools_added, Tool)
        _check_items("SystemMessage.tools_removed", message.tools_removed, ToolReference)


def check_block(block: object, where: str) -> None:
    """Refuse a content block with a field of a wrong type.

    Args:
        block: One of the block classes.
        where: What the error calls its place.

    Raises:
        TypeError: As `check_message`.
    """
    kind = _kind_of(block, _FIELDS)
    _check_fields(block, kind, f"{where}: {kind.__name__}")


def _kind_of(value: object, table: Mapping[type[Any], object]) -> type[Any]:
    kind = type(value)
    # A subclass is what its base is.
    return kind if kind in table else next(base for base in kind.__mro__ if base in table)


def _check_fields(value: object, kind: type[Any], where: str) -> None:
    for name, expected, words in _FIELDS[kind]:
        given = getattr(value, name)
        if isinstance(given, expected):
            continue
        remedy = ""
        if isinstance(given, (bytes, bytearray, memoryview)):
            how = "base64.b64encode(data)" if kind is ImageContent and name == "data" else "it"
            remedy = f" Pass {how}.decode()." if how != "it" else " Decode it first."
        raise TypeError(f"{where}.{name} is {words}, not {_named(given)}.{remedy}")


def _check_items(where: str, items: object, kind: type[msgspec.Struct]) -> None:
    if items is None:
        return
    if not _is_sequence(items):
        raise TypeError(f"{where} is a list of {kind.__name__}s or None, not {_named(items)}.")
    for index, item in enumerate(cast("Sequence[object]", items)):
        if not isinstance(item, kind):
            raise TypeError(f"{where}[{index}] is a {kind.__name__}, not {_named(item)}.")


def _is_sequence(value: object) -> bool:
    kind = type(value)
    if kind is tuple or kind is list:
        return True
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _wrong_content(where: str, content: object, blocks: _Kinds, *, may_be_text: bool) -> TypeError:
    text = "text or " if may_be_text else ""
    remedy = ""
    if isinstance(content, blocks):
        remedy = " Put the block into a list."
    elif isinstance(content, str):
        remedy = f" Pass {where.partition('.')[0]}(content=[TextContent(text=...)])."
    return TypeError(
        f"{where} is {text}a list of {_names(blocks)} blocks, not {_named(content)}.{remedy}"
    )


def _wrong_block(where: str, block: object, blocks: _Kinds) -> TypeError:
    remedy = ""
    if isinstance(block, str):
        remedy = " Pass TextContent(text=...)."
    elif isinstance(block, Mapping):
        remedy = " Pass a block object, or the whole message as a dict."
    return TypeError(f"{where} is a {_names(blocks)}, not {_named(block)}.{remedy}")


def _names(kinds: _Kinds) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def _named(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__}: {short(value)}"


def short(value: Any, limit: int = 120) -> str:
    """Return a value's repr, cut to a length; a repr that fails gives the type's name."""
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - a failing repr must not hide the real error
        shown = f"<{type(value).__name__}>"
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
