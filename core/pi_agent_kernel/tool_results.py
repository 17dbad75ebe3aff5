"""What a tool gives back, and how any Python value becomes it.

| value | content | structured content |
| --- | --- | --- |
| `AgentToolResult` | itself, unchanged | |
| text | one text block with exactly that text | |
| None | the text `(no output)`, so that the model has something to read | |
| bool, int, float | its JSON text; NaN and infinities as `NaN`, `Infinity` | |
| dict, dataclass, pydantic model, msgspec struct | JSON text | the same object |
| dict of result fields whose `content` is a list of blocks | the result it describes | |
| list, tuple, set of JSON values | JSON text | |
| content block | that block | |
| list or tuple with a block or image in it | its parts, each converted by itself | |
| PNG, JPEG, GIF or WebP bytes | an image block | |
| other bytes | a text that says how many, never the bytes | |
| object with `_repr_png_` or `savefig` (PIL, matplotlib) | a PNG image block | |
| object with `to_string` (pandas) | its text, 60 rows and 20 columns at most | |
| number or array of numpy | as `item()` or `tolist()`; long arrays as their text | |
| Enum, date and time, path, UUID, Decimal | its text | |
| anything else | its text, else its type, 20,000 characters at most | |

Inside JSON text, non-finite floats are strings, so that the text stays valid (P6), and values
that JSON lacks are converted by the same table. Nothing here raises for a strange object.
Source: DEVIATIONS 9; TL-02, TL-15.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from pi_agent_kernel.json_value import FrozenDict, freeze
from pi_agent_kernel.messages import ImageContent, TextContent, Usage

__all__ = ["NO_OUTPUT", "AgentToolResult", "ResultContent", "convert_tool_result", "json_text"]

ResultContent = TextContent | ImageContent

#: What the model reads when a tool returned None.
NO_OUTPUT = "(no output)"

_MAX_TEXT = 20_000
_MAX_ITEMS = 10_000
_MAX_DEPTH = 64
_EMPTY: FrozenDict = FrozenDict()
_set = msgspec.structs.force_setattr
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_RESULT_KEYS = frozenset(
    {
        "content",
        "details",
        "isError",
        "is_error",
        "structuredContent",
        "structured_content",
        "terminate",
        "usage",
    }
)


class AgentToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """Be what a tool returns, or reports while it runs.

    Args:
        content: Blocks for the model. Text and lists are converted; None means the tool gave
            none, which the transcript shows as an empty list (TL-15).
        details: Anything for people and programs, not shown to the model.
        structured_content: The content as a JSON value, for tools with an output schema.
        is_error: True marks a failure that keeps content and details (TL-14).
        usage: Tokens the tool itself spent.
        terminate: True asks the loop to make no further request, if every tool of the batch
            agrees (TL-16).

    Raises:
        TypeError: `content` holds something that is neither text nor a block.

    Source: TL-02.
    """

    content: tuple[ResultContent, ...] | None = None
    details: Any = _EMPTY
    structured_content: Any = None
    is_error: bool | None = None
    usage: Usage | None = None
    terminate: bool | None = None

    def __post_init__(self) -> None:
        if self.content is not None and type(self.content) is not tuple:
            _set(self, "content", _blocks(self.content))


def _block(value: object) -> ResultContent | None:
    """Return the block that a value is or describes as JSON, or None."""
    if isinstance(value, (TextContent, ImageContent)):
        return value
    if isinstance(value, dict):
        match cast("dict[str, Any]", value):
            case {"type": "text", "text": str(text)}:
                return TextContent(text=text)
            case {"type": "image", "data": str(data), "mimeType": str(mime_type)}:
                return ImageContent(data=data, mime_type=mime_type)
            case {"type": "image", "data": str(data), "mime_type": str(mime_type)}:
                return ImageContent(data=data, mime_type=mime_type)
            case _:
                return None
    return None


def _blocks(content: object) -> tuple[ResultContent, ...]:
    if isinstance(content, str):
        return (TextContent(text=content),)
    if isinstance(content, (TextContent, ImageContent)):
        return (content,)
    if not isinstance(content, (list, tuple)):
        raise TypeError(
            "The content of a tool result is text or a list of blocks, not "
            f"{type(content).__name__}."
        )
    blocks: list[ResultContent] = []
    for item in cast("Sequence[object]", content):
        block = TextContent(text=item) if isinstance(item, str) else _block(item)
        if block is None:
            raise TypeError(
                "The content of a tool result holds text, TextContent and ImageContent, not "
                f"{type(item).__name__}."
            )
        blocks.append(block)
    return tuple(blocks)


def _text_result(text: str) -> AgentToolResult:
    return AgentToolResult(content=(TextContent(text=text),))


def convert_tool_result(value: object) -> AgentToolResult:
    """Return the result that a tool's return value or progress report stands for.

    Args:
        value: Anything; the table at the top of this module has the rules.

    Returns:
        The result; an `AgentToolResult` is returned itself. `details` is empty unless given.

    Source: DEVIATIONS 9.
    """
    if type(value) is str:
        return AgentToolResult(content=(TextContent(text=value),))
    if isinstance(value, AgentToolResult):
        return value
    if value is None:
        return _text_result(NO_OUTPUT)
    try:
        return _convert(value)
    except Exception:  # noqa: BLE001 - a strange object must not turn success into failure
        return _text_result(_plain_text(value))


def _convert(value: object) -> AgentToolResult:
    if isinstance(value, dict):
        described = _described_result(cast("dict[str, Any]", value))
        if described is not None:
            return described
    parts = _parts(cast("object", value))
    if parts is not None:
        return AgentToolResult(content=parts)
    data = _without_wrapping(value)
    if isinstance(data, str):
        return _text_result(data)
    text = json_text(data)
    if isinstance(data, Mapping):
        try:
            structured = freeze(json.loads(text))
        except (ValueError, RecursionError):  # nested too deeply; the text tells it all the same
            structured = None
        return AgentToolResult(content=(TextContent(text=text),), structured_content=structured)
    return _text_result(text.strip('"') if isinstance(data, float) else text)


def _described_result(value: dict[str, Any]) -> AgentToolResult | None:
    """Return the result a dict describes, as untyped JavaScript tools do; None if it is data."""
    content = value.get("content")
    if not isinstance(content, (list, tuple)) or not value.keys() <= _RESULT_KEYS:
        return None
    entries = cast("Sequence[object]", content)
    blocks = [_block(item) for item in entries]
    if any(block is None for block in blocks):
        return None
    usage = value.get("usage")
    return AgentToolResult(
        content=cast("tuple[ResultContent, ...]", tuple(blocks)),
        details=value.get("details", _EMPTY),
        structured_content=value.get("structuredContent", value.get("structured_content")),
        is_error=value.get("isError", value.get("is_error")),
        usage=usage if isinstance(usage, Usage) or usage is None else msgspec.convert(usage, Usage),
        terminate=value.get("terminate"),
    )


def _parts(value: object) -> tuple[ResultContent, ...] | None:
    """Return the blocks of a value that is a block, an image, or a list with one in it."""
    single = _visible(value)
    if single is not None:
        return (single,)
    if not isinstance(value, (list, tuple)):
        return None
    items = cast("Sequence[object]", value)
    found = [_visible(item) for item in items[:_MAX_ITEMS]]
    if not any(found):
        return None
    blocks: list[ResultContent] = []
    for item, block in zip(items, found, strict=False):
        blocks += [block] if block is not None else convert_tool_result(item).content or ()
    return tuple(blocks)


def _visible(value: object) -> ResultContent | None:
    """Return the block of a value that is a block or a picture, or None."""
    if isinstance(value, (TextContent, ImageContent)):
        return value
    if value is None or isinstance(value, (str, int, float, dict, list, tuple, type)):
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _from_bytes(bytes(cast("bytes", value)))
    for picture in (_display_png, _figure_png):
        try:
            png = picture(value)
        except Exception:  # noqa: BLE001, S112 - it could not be drawn; its text will do
            continue
        if png is not None:
            return png
    return None


def _image(data: bytes, mime_type: str) -> ImageContent:
    from base64 import b64encode

    return ImageContent(data=b64encode(data).decode("ascii"), mime_type=mime_type)


def _from_bytes(data: bytes) -> ResultContent:
    for magic, mime_type in _IMAGES:
        if data.startswith(magic):
            return _image(data, mime_type)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _image(data, "image/webp")
    return TextContent(text=_size_note(data))


def _size_note(data: bytes) -> str:
    return f"({len(data)} bytes of binary data)"


def _display_png(value: Any) -> ImageContent | None:
    display = getattr(value, "_repr_png_", None)
    data: Any = display() if callable(display) else None
    if isinstance(data, tuple):  # with metadata, as IPython allows
        data = cast("tuple[Any, ...]", data)[0]
    if isinstance(data, str):
        return ImageContent(data=data.replace("\n", ""), mime_type="image/png")
    return _image(data, "image/png") if isinstance(data, bytes) else None


def _figure_png(value: Any) -> ImageContent | None:
    save = getattr(value, "savefig", None)
    if not callable(save):
        return None
    from io import BytesIO

    buffer = BytesIO()
    save(buffer, format="png")
    return _image(buffer.getvalue(), "image/png")


def json_text(value: object) -> str:
    """Return a value as JSON text that any parser accepts."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(_as_json(value, 0), ensure_ascii=False, allow_nan=False)


def _as_json(value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value - value == 0:
            return float(value)
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    if depth > _MAX_DEPTH:
        return "…"
    data = _without_wrapping(value)
    if isinstance(data, Mapping):
        members = cast("Mapping[Any, Any]", data)
        return {_key(name): _as_json(item, depth + 1) for name, item in members.items()}
    if isinstance(data, (list, tuple)):
        return [_as_json(item, depth + 1) for item in cast("Sequence[Any]", data)]
    if isinstance(data, (bytes, bytearray)):
        return _size_note(bytes(data))
    return _as_json(data, depth + 1)


def _key(name: object) -> str:
    data = _without_wrapping(name)
    return data if isinstance(data, str) else _plain_text(name)


def _without_wrapping(value: Any) -> Any:
    """Return a value by plain means: numbers, text, a mapping or a list of further values."""
    if value is None or isinstance(value, (bool, int, float, str)):
        enum_value = getattr(value, "_value_", value)  # an IntEnum or StrEnum member
        return enum_value if isinstance(enum_value, (bool, int, float, str)) else value
    if isinstance(value, (Mapping, list, tuple, bytes, bytearray)):
        return cast("Any", value)
    if isinstance(value, (set, frozenset)):
        return sorted(cast("set[Any]", value), key=repr)
    if hasattr(value, "_value_") and hasattr(cast("object", type(value)), "__members__"):
        return value._value_
    dumped = _fields(value)
    if dumped is not None:
        return dumped
    return _foreign(value)


def _fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a record: a dataclass, a pydantic model, a msgspec struct."""
    if isinstance(value, type):
        return None
    dataclass_fields = getattr(value, "__dataclass_fields__", None)
    if isinstance(dataclass_fields, dict):
        names = cast("dict[str, Any]", dataclass_fields)
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        dumped: object = dump()
        return cast("Mapping[str, Any]", dumped) if isinstance(dumped, Mapping) else None
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return None


def _foreign(value: Any) -> Any:
    """Convert what libraries and the standard library have beside JSON."""
    if hasattr(value, "dtype") and hasattr(value, "tolist") and not hasattr(value, "to_string"):
        small = getattr(value, "size", 0) <= _MAX_ITEMS
        return value.tolist() if small else _plain_text(value)
    if callable(getattr(value, "to_string", None)) and hasattr(value, "index"):
        return _table_text(value)
    isoformat = getattr(value, "isoformat", None)
    if callable(isoformat) and not isinstance(value, type):
        return isoformat()
    return _plain_text(value)


def _table_text(value: Any) -> str:
    try:
        text = value.to_string(max_rows=60, max_cols=20)
    except TypeError:  # a series has no columns
        text = value.to_string(max_rows=60)
    return _bounded(str(text))


def _bounded(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}… ({len(text)} characters)"


def _plain_text(value: object) -> str:
    try:
        return _bounded(str(value))
    except Exception:  # noqa: BLE001 - a __str__ or __repr__ that raises
        return f"<{type(value).__name__} object>"
