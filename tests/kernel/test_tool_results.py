from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import enum
import json
from collections import OrderedDict, UserDict
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pi_agent_kernel.messages import ImageContent, TextContent, Usage
from pi_agent_kernel.tools import (
    AgentToolResult,
    convert_tool_result,
)
from pydantic import BaseModel

PNG = b"\x89PNG\r\n\x1a\n..."


def text(value):
    """Return the one text a value is converted to."""
    (block,) = convert_tool_result(value).content
    assert isinstance(block, TextContent)
    return block.text


class Model(BaseModel):
    x: int
    title: str = "t"


@dataclasses.dataclass
class Record:
    x: int
    inner: object = None


class Struct(msgspec.Struct):
    x: int


class Level(enum.IntEnum):
    LOW = 1


class Colour(enum.Enum):
    RED = "red"


class Unprintable:
    def __repr__(self):
        raise RuntimeError


class Picture:
    def __init__(self, data):
        self.data = data

    def _repr_png_(self):
        if isinstance(self.data, Exception):
            raise self.data
        return self.data

    def __repr__(self):
        return "a picture"


class Figure:
    def savefig(self, target, format):
        assert format == "png"
        target.write(PNG)


class Scalar:
    dtype = "float64"

    def tolist(self):
        return 1.5


class Table:
    index = columns = ()

    def to_string(self, max_rows, max_cols):
        return f"table {max_rows} {max_cols}"


class Series:
    index = ()

    def to_string(self, max_rows):
        return f"series {max_rows}"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("", ""),
        ("as it is\n", "as it is\n"),
        (None, "(no output)"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        ([1, "é", None], '[1, "é", null]'),
        ((1, 2), "[1, 2]"),
        ({3, 1, 2}, "[1, 2, 3]"),
        ([float("inf"), float("nan")], '["Infinity", "NaN"]'),
        ([], "[]"),
        (b"abc", "(3 bytes of binary data)"),
        ([b"abc"], "(3 bytes of binary data)"),
        (Path("/a"), "/a"),
        (dt.date(2024, 1, 2), "2024-01-02"),
        (Decimal("1.10"), "1.10"),
        (Colour.RED, "red"),
        (Level.LOW, "1"),
        ([Colour.RED, Level.LOW, dt.date(2024, 1, 2)], '["red", 1, "2024-01-02"]'),
        (Scalar(), "1.5"),
        (Table(), "table 60 20"),
        (Series(), "series 60"),
        (Unprintable(), "<Unprintable object>"),
        ([Unprintable()], '["<Unprintable object>"]'),
        (Picture(RuntimeError("cannot draw")), "a picture"),
        (int, "<class 'int'>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_become_text(value, wanted):
    """Each kind of value has one documented text (DEVIATIONS 9)."""
    assert text(value) == wanted
    assert convert_tool_result(value).details == {}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"a": [1]}, {"a": [1]}),
        ({1: float("nan"), (2, 3): {Colour.RED}}, {"1": "NaN", "(2, 3)": ["red"]}),
        (OrderedDict(a=1), {"a": 1}),
        (UserDict(a=1), {"a": 1}),
        (Model(x=1), {"x": 1, "title": "t"}),
        (Record(1, Record(2)), {"x": 1, "inner": {"x": 2, "inner": None}}),
        (Struct(x=1), {"x": 1}),
        ({"content": "not blocks"}, {"content": "not blocks"}),
        ({"content": [{"type": "text"}]}, {"content": [{"type": "text"}]}),
        ({"content": [], "rows": 1}, {"content": [], "rows": 1}),
    ],
)
def test_objects_become_json_and_structured_content(value, wanted):
    """The text is JSON, and the same object is the structured content."""
    result = convert_tool_result(value)

    assert json.loads(text(value)) == wanted
    assert result.structured_content == wanted


def test_structured_content_is_detached():
    """What the tool changes later does not change its result."""
    value = {"a": [1]}
    result = convert_tool_result(value)
    value["a"].append(2)

    assert result.structured_content == {"a": [1]}


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF1234WEBP", "image/webp"),
    ],
)
def test_image_bytes_become_images(data, mime_type):
    """Bytes are images by their first bytes only."""
    wanted = ImageContent(data=base64.b64encode(data).decode(), mime_type=mime_type)

    assert convert_tool_result(data).content == (wanted,)
    assert convert_tool_result(bytearray(data)).content == (wanted,)


@pytest.mark.parametrize(
    "value",
    [
        Picture(PNG),
        Picture((PNG, {"width": 1})),
        Picture(base64.b64encode(PNG).decode()),
        Figure(),
    ],
)
def test_objects_that_can_draw_become_images(value):
    """PIL images and figures are drawn, without importing their libraries."""
    wanted = ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")

    assert convert_tool_result(value).content == (wanted,)


def test_a_list_with_a_block_is_a_list_of_parts():
    """Each part is converted by itself."""
    block = TextContent(text="b")
    image = ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")
    result = convert_tool_result(["a", block, PNG, {"n": 1}, None])

    assert result.content == (
        TextContent(text="a"),
        block,
        image,
        TextContent(text='{"n": 1}'),
        TextContent(text="(no output)"),
    )
    assert convert_tool_result(block).content == (block,)


def test_a_dict_of_result_fields_is_that_result():
    """Untyped results are understood in both spellings."""
    result = convert_tool_result(
        {
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "data": "eA==", "mimeType": "image/png"},
            ],
            "details": {"d": 1},
            "structuredContent": {"s": 1},
            "isError": True,
            "terminate": True,
            "usage": {"input": 3},
        }
    )

    assert result == AgentToolResult(
        content=(TextContent(text="a"), ImageContent(data="eA==", mime_type="image/png")),
        details={"d": 1},
        structured_content={"s": 1},
        is_error=True,
        terminate=True,
        usage=Usage(input=3),
    )
    assert convert_tool_result({"content": [], "is_error": True}).is_error is True
    assert convert_tool_result({"content": []}).details == {}


def test_a_dict_that_only_looks_like_a_result_is_text():
    """What cannot be the result it describes is shown, not refused."""
    blocks = [{"type": "image", "data": "eA==", "mime_type": "image/png"}]

    assert convert_tool_result({"content": blocks}).content == (
        ImageContent(data="eA==", mime_type="image/png"),
    )
    assert "bad usage" in text({"content": blocks, "usage": "bad usage"})
    assert text([1.5, {"a": 2.5, "b": {1}}]) == '[1.5, {"a": 2.5, "b": [1]}]'


def test_a_result_is_itself():
    """A result is returned unchanged; content that is missing stays missing (TL-15)."""
    result = AgentToolResult(details={"x": 1})

    assert convert_tool_result(result) is result
    assert result.content is None
    assert AgentToolResult().details == {}


def test_result_content_takes_text_and_lists():
    """Content is normalised to a tuple of blocks; anything else is a clear error."""
    block = TextContent(text="b")

    assert AgentToolResult(content="b").content == (block,)
    assert AgentToolResult(content=["b", block, {"type": "text", "text": "b"}]).content == (
        (block,) * 3
    )
    assert AgentToolResult(content=block).content == (block,)
    with pytest.raises(TypeError, match="not int"):
        AgentToolResult(content=5)
    with pytest.raises(TypeError, match="not int"):
        AgentToolResult(content=[5])


def test_long_and_endless_objects_are_bounded():
    """The text of an object is cut with a note; a cycle ends."""
    cyclic: dict[str, object] = {}
    cyclic["self"] = cyclic

    class Long:
        def __str__(self):
            return "x" * 100_000

    assert len(text(Long())) < 21_000
    assert text(Long()).endswith("(100000 characters)")
    assert "…" in text(cyclic)


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.sampled_from([None, 1, "a", float("nan"), b"x", PNG, Picture(3), Colour.RED, object]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["content", "a", 1, None]), inner, max_size=3)
            | inner.map(lambda value: Record(1, value))
        ),
        max_leaves=8,
    )
)
def test_conversion_never_raises(value):
    """Any value gives at least one block, and valid JSON where it gives structured content."""
    result = convert_tool_result(value)

    assert result.content or isinstance(value, dict)
    if result.structured_content is not None:
        json.dumps(result.structured_content, allow_nan=False)
