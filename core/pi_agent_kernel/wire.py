"""The reference's camelCase JSON of messages, blocks, usage, tools, models and events.

`from_json` is strict: nothing is coerced, a wrong type or a missing field is an error with its
path, and an unknown key of a known object is kept in `extra` and written back, so a round trip
loses nothing (MS-07). The one thing it mends is `content: null`, which imported transcripts
hold and providers refuse (B17).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

import msgspec

from pi_agent_kernel.json_value import FrozenDict, freeze, thaw
from pi_agent_kernel.message_checks import check_message, short
from pi_agent_kernel.messages import (
    STANDARD_ROLES,
    AgentMessage,
    AssistantMessage,
    Cost,
    CustomMessage,
    CustomMessageLike,
    ImageContent,
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
from pi_agent_kernel.request import Model, ModelCost, ModelCostTier

__all__ = ["coerce_message", "from_json", "to_json"]

_ROLES: dict[str, type[msgspec.Struct]] = {
    "system": SystemMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "toolResult": ToolResultMessage,
}
_BLOCKS: dict[str, type[msgspec.Struct]] = {
    "text": TextContent,
    "thinking": ThinkingContent,
    "image": ImageContent,
    "toolCall": ToolCall,
}
# What the wire form must have, though our constructors have a default for it.
_REQUIRED: dict[type[msgspec.Struct], tuple[str, ...]] = {
    SystemMessage: ("content", "timestamp"),
    UserMessage: ("content", "timestamp"),
    AssistantMessage: (
        *("content", "api", "provider", "model", "usage", "stopReason", "timestamp"),
    ),
    ToolResultMessage: ("toolCallId", "toolName", "content", "isError", "timestamp"),
    TextContent: ("text",),
    ThinkingContent: ("thinking",),
    ImageContent: ("data", "mimeType"),
    ToolCall: ("id", "name", "arguments"),
    Tool: ("name", "description", "parameters"),
    ToolReference: ("name",),
    Usage: ("input", "output", "cacheRead", "cacheWrite", "totalTokens", "cost"),
    Cost: ("input", "output", "cacheRead", "cacheWrite", "total"),
    Model: ("id",),
    ModelCost: (),
    ModelCostTier: ("inputTokensAbove",),
}
_TEXT_AND_IMAGES = (TextContent, ImageContent)
_ASSISTANT_BLOCKS = (TextContent, ThinkingContent, ToolCall)
# Fields that hold further objects: the classes that may stand there.
_NESTED: dict[tuple[type[msgspec.Struct], str], tuple[type[msgspec.Struct], ...]] = {
    (SystemMessage, "content"): (TextContent,),
    (SystemMessage, "tools_added"): (Tool,),
    (SystemMessage, "tools_removed"): (ToolReference,),
    (UserMessage, "content"): _TEXT_AND_IMAGES,
    (AssistantMessage, "content"): _ASSISTANT_BLOCKS,
    (AssistantMessage, "usage"): (Usage,),
    (ToolResultMessage, "content"): _TEXT_AND_IMAGES,
    (ToolResultMessage, "usage"): (Usage,),
    (Usage, "cost"): (Cost,),
    (Model, "cost"): (ModelCost,),
    (ModelCost, "tiers"): (ModelCostTier,),
}
_MAY_BE_TEXT = {(SystemMessage, "content"), (UserMessage, "content")}


def to_json(value: Any) -> Any:
    """Return the wire form of a message, block, usage, tool, model, event, or a list of them.

    Args:
        value: The object. A custom message may be any dataclass or object with a `to_json`.

    Returns:
        Plain dicts and lists that `json.dumps` takes; absent fields are left out.

    Raises:
        TypeError: Something in it has no JSON form; the message names its path.
        ValueError: A number in it is not finite (P6), or it is nested too deeply.
    """
    try:
        return _write(value, "")
    except RecursionError:
        raise ValueError("The value is nested too deeply to be written.") from None


def from_json(data: Any, kind: type[Any] | None = None) -> Any:
    """Read the wire form back.

    Args:
        data: A dict with a `role` (message) or a `type` (block), or a list of such.
        kind: The class to read, where the data does not say it: `Usage`, `Tool`, `Model`.

    Returns:
        The object; a list for a list.

    Raises:
        ValueError: The data is not of that form; the message names the path, what was expected
            and what came.
    """
    try:
        if isinstance(data, (list, tuple)):
            items = cast("Sequence[Any]", data)
            return [_read(item, kind, f"[{index}]") for index, item in enumerate(items)]
        return _read(data, kind, "")
    except RecursionError:
        raise ValueError("The data is nested too deeply to be read.") from None


def coerce_message(value: Any) -> AgentMessage:
    """Take a message at the border: one of ours, a dict of the wire form, or your own object.

    A dict may leave out what a constructor has a default for, the timestamp above all.

    Raises:
        TypeError: It is none of them, or a field of it is of a wrong type.
        ValueError: A dict that is no message; the message names the path.
    """
    if isinstance(value, (UserMessage, AssistantMessage, ToolResultMessage, SystemMessage)):
        check_message(value)
        return value
    if isinstance(value, Mapping):
        data = cast("Mapping[str, Any]", value)
        if not isinstance(data.get("role"), str):
            raise ValueError(  # noqa: TRY004 - bad data, as every other finding of this reader
                f"A message needs a role; this is {short(value)}"
            )
        message = _read(data, None, "", strict=False)
        if not isinstance(message, CustomMessage):
            check_message(message)  # the reader takes blocks that are objects as they are
        return cast("AgentMessage", message)
    role = getattr(value, "role", None)
    if role in STANDARD_ROLES:
        raise TypeError(
            f"A message of role {role!r} is one of the message classes or a dict, not a "
            f"{type(value).__name__}: {short(value)}"
        )
    if isinstance(role, str) and hasattr(value, "timestamp"):
        return cast("CustomMessageLike", value)
    raise TypeError(
        "A message is a UserMessage (or another message class), a dict with a role, or an object "
        f"with role and timestamp, not {type(value).__name__}: {short(value)}"
    )


# ------------------------------------------------------------------------------- writing


def _write(value: Any, path: str) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path or 'value'}: JSON has no {value!r}.")
        return value
    if isinstance(value, msgspec.Struct):
        return _write_struct(value, path)
    if isinstance(value, CustomMessage):
        own_fields = _write_mapping(value.fields, path)
        return {"role": value.role, **own_fields, "timestamp": value.timestamp}
    if isinstance(value, Mapping):
        return _write_mapping(cast("Mapping[Any, Any]", value), path)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        items = cast("Sequence[Any]", value)
        return [_write(item, f"{path}[{index}]") for index, item in enumerate(items)]
    own = getattr(value, "to_json", None)
    if callable(own):
        return _write(own(), path)
    if is_dataclass(value) and not isinstance(value, type):
        shown = {field.name: getattr(value, field.name) for field in fields(value)}
        return _write(shown, path)
    raise TypeError(
        f"{path or 'value'}: {type(value).__name__} has no JSON form. Keep such objects outside "
        "the transcript, or give the class a to_json() method."
    )


def _write_mapping(mapping: Mapping[Any, Any], path: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in mapping.items():
        if not isinstance(key, str):
            raise TypeError(f"{path or 'value'}: a JSON key is text, not {key!r}.")
        out[key] = _write(item, _at(path, key))
    return out


def _write_struct(value: msgspec.Struct, path: str) -> dict[str, Any]:
    kind = type(value)
    out: dict[str, Any] = {}
    for tag in ("role", "type"):
        if tag in kind.__dict__:
            out[tag] = getattr(value, tag)
    for name, wire in _wire_names(kind).items():
        item = getattr(value, name)
        if item is not None:
            out[wire] = _write(item, _at(path, wire))
    extra: FrozenDict | None = getattr(value, "extra", None)
    if extra:
        # A null kept from elsewhere must not undo a field that was set since.
        out = {**_write_mapping(extra, path), **out}
    return out


@cache
def _wire_names(kind: type[msgspec.Struct]) -> dict[str, str]:
    names: dict[str, str] = {}
    for name, encoded in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        if name not in ("extra", "origin", "at"):
            names[name] = _camel(encoded) if encoded == name else encoded
    # What an event builds when it is read.
    if "origin" in kind.__struct_fields__:
        names["partial"] = "partial"
    if "assistant_message_event" in kind.__struct_fields__:
        names["message"] = "message"
    return names


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# ------------------------------------------------------------------------------- reading


def _read(data: Any, kind: type[Any] | None, path: str, *, strict: bool = True) -> Any:
    if not isinstance(data, Mapping):
        raise ValueError(  # noqa: TRY004 - bad data, as every other finding of this reader
            f"{path or 'value'}: expected an object, got {short(data)}"
        )
    known = cast("Mapping[str, Any]", data)
    if kind is None:
        role, block = known.get("role"), known.get("type")
        if isinstance(role, str):
            if role not in STANDARD_ROLES:
                return _read_custom(known, role, path, strict=strict)
            kind = _ROLES[role]
        elif block in _BLOCKS:
            kind = _BLOCKS[block]
        else:
            raise ValueError(
                f"{path or 'value'}: expected a message with a role or a block with one of the "
                f"types {', '.join(_BLOCKS)}, got {short(data)}"
            )
    return _read_struct(known, kind, path, strict=strict)


def _read_struct(
    data: Mapping[str, Any], kind: type[msgspec.Struct], path: str, *, strict: bool
) -> msgspec.Struct:
    if strict:
        for wire in _REQUIRED[kind]:
            if wire not in data:
                raise ValueError(f"{_at(path, wire)}: missing from {short(data)}")
    by_wire = {wire: name for name, wire in _wire_names(kind).items()}
    tag = next((name for name in ("role", "type") if name in kind.__dict__), None)
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, item in data.items():
        name = by_wire.get(key)
        if name is None:
            if key != tag:
                extra[key] = freeze(item)
        elif item is not None:
            values[name] = _read_field(item, kind, name, _at(path, key), strict=strict)
        elif name == "content":
            values[name] = ()
        elif not _optional(kind, name):
            raise ValueError(f"{_at(path, key)}: expected {_shown_type(kind, name)}, got null")
        else:
            extra[key] = None  # absent and null are the same to us, not to whoever wrote it
    if extra:
        values["extra"] = FrozenDict(extra)
    try:
        if kind is ToolCall:  # which takes what is nested too deeply for a fault of the model's
            values["arguments"] = freeze(values.get("arguments", {}))
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path or 'value'}: {error}") from None


def _read_field(
    item: Any, kind: type[msgspec.Struct], name: str, path: str, *, strict: bool
) -> Any:
    nested = _NESTED.get((kind, name))
    if nested is not None:
        if isinstance(item, nested) or (isinstance(item, str) and (kind, name) in _MAY_BE_TEXT):
            return item
        if isinstance(item, Mapping):
            return _read_nested(item, nested, path, strict=strict)
        if isinstance(item, str) or not isinstance(item, Sequence) or name in ("usage", "cost"):
            raise ValueError(f"{path}: expected {_shown_type(kind, name)}, got {short(item)}")
        items = cast("Sequence[Any]", item)
        return tuple(
            part
            if isinstance(part, nested)
            else _read_nested(part, nested, f"{path}[{index}]", strict=strict)
            for index, part in enumerate(items)
        )
    expected = _field_type(kind, name)
    if expected is Any:
        return item
    try:
        # Converting checks without coercing; the value itself is kept, numbers as they came.
        msgspec.convert(item, expected, strict=True)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"{path}: expected {_shown_type(kind, name)}, got {short(item)} ({error})"
        ) from None
    return item


def _read_nested(
    item: Any, kinds: tuple[type[msgspec.Struct], ...], path: str, *, strict: bool
) -> msgspec.Struct:
    if len(kinds) == 1 and kinds[0] is not TextContent:
        if not isinstance(item, Mapping):
            raise ValueError(f"{path}: expected an object, got {short(item)}")
        return _read_struct(cast("Mapping[str, Any]", item), kinds[0], path, strict=strict)
    allowed = {cast("Any", kind).type: kind for kind in kinds}
    tag = cast("Mapping[str, Any]", item).get("type") if isinstance(item, Mapping) else None
    if tag not in allowed:
        raise ValueError(
            f"{path}: expected a block of type {' or '.join(allowed)}, got {short(item)}"
        )
    return _read_struct(cast("Mapping[str, Any]", item), allowed[tag], path, strict=strict)


def _read_custom(data: Mapping[str, Any], role: str, path: str, *, strict: bool) -> CustomMessage:
    rest: dict[str, Any] = {
        key: thaw(item) for key, item in data.items() if key not in ("role", "timestamp")
    }
    timestamp = data.get("timestamp")
    if not isinstance(timestamp, int) and (strict or timestamp is not None):
        raise ValueError(
            f"{_at(path, 'timestamp')}: expected whole milliseconds, got {short(timestamp)}"
        )
    return CustomMessage(role=role, timestamp=timestamp, **rest)


@cache
def _types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _field_type(kind: type[msgspec.Struct], name: str) -> Any:
    return _types(kind)[name]


def _optional(kind: type[msgspec.Struct], name: str) -> bool:
    expected = _field_type(kind, name)
    return expected is Any or type(None) in getattr(expected, "__args__", ())


def _shown_type(kind: type[msgspec.Struct], name: str) -> str:
    nested = _NESTED.get((kind, name))
    if nested is not None:
        names = " or ".join(part.__name__ for part in nested)
        return f"{names} objects" if name not in ("usage", "cost") else f"a {names} object"
    expected = _field_type(kind, name)
    shown = getattr(expected, "__name__", None) if isinstance(expected, type) else None
    return (shown or str(expected)).replace("typing.", "").replace("collections.abc.", "")


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
