from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Union

import pytest
from pi_agent_kernel.errors import ToolArgumentsError
from pi_agent_kernel.schema import validate_tool_arguments
from pi_agent_kernel.tools import ToolContext, tool
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    import pi_agent_kernel.tools as kernel
    from somewhere import Unknown


NOT_JSON = object()


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    title: str = "p"


class Note(BaseModel):
    """A note."""

    text: str
    when: dt.datetime | None = None


def properties(made):
    return made.parameters["properties"]


def execute(made, arguments):
    """Validate and execute as the loop does."""
    params = validate_tool_arguments(
        made, SimpleNamespace(arguments=arguments, arguments_error=None)
    )
    return made.execute("id", params, None, lambda _partial: None)


def test_simple_annotations_become_json_schema():
    """Plain types, lists, dicts, unions and literals have their schema."""

    def function(  # noqa: PLR0917
        a: str,
        b: int,
        c: float,
        d: bool,
        e: list[int],
        f: dict[str, float],
        g: Optional[int],  # noqa: UP045
        h: int | str,
        i: Literal["x", "y"],
        j: Any,
        k: object,
        l: list,  # noqa: E741
        m: dict,
        n: Union[list[str], None],  # noqa: UP007
        o: Literal[1, "a"],
        p: dict[str, Any],
    ): ...

    assert properties(tool(function)) == {
        "a": {"type": "string"},
        "b": {"type": "integer"},
        "c": {"type": "number"},
        "d": {"type": "boolean"},
        "e": {"type": "array", "items": {"type": "integer"}},
        "f": {"type": "object", "additionalProperties": {"type": "number"}},
        "g": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "h": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "i": {"enum": ["x", "y"], "type": "string"},
        "j": {},
        "k": {},
        "l": {"type": "array", "items": {}},
        "m": {"type": "object"},
        "n": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "o": {"enum": [1, "a"]},
        "p": {"type": "object"},
    }


def test_parameters_without_default_are_required_and_unknown_ones_refused():
    """Defaults show in the schema, are not inserted, and apply by the call."""
    seen = []

    @tool
    def function(a: int, b: str = "x", c: tuple[int, ...] = (1,), d: Any = NOT_JSON) -> None:
        seen.append((a, b, c))

    assert function.parameters["required"] == ["a"]
    assert function.parameters["additionalProperties"] is False
    assert properties(function)["b"]["default"] == "x"
    assert properties(function)["c"]["default"] == [1]
    assert "default" not in properties(function)["d"]
    execute(function, {"a": "1"})
    assert seen == [(1, "x", (1,))]
    with pytest.raises(ToolArgumentsError, match="z: unknown field"):
        execute(function, {"a": 1, "z": 2})


def test_rich_types_reach_the_function_as_objects():
    """Enum, dataclass, model, path and time are made from plain JSON by pydantic."""
    seen = {}

    @tool
    def function(  # noqa: PLR0917
        colour: Colour, point: Point, note: Note, path: Path, day: dt.date, notes: list[Note]
    ) -> None:
        seen.update(locals())

    execute(
        function,
        {
            "colour": "red",
            "point": {"x": "1"},
            "note": {"text": "t", "when": "2024-01-01T00:00:00Z"},
            "path": "/a",
            "day": "2024-01-02",
            "notes": {"text": 5},
        },
    )

    assert seen["colour"] is Colour.RED
    assert seen["point"] == Point(1)
    assert seen["note"].when == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert seen["path"] == Path("/a")
    assert seen["day"] == dt.date(2024, 1, 2)
    assert seen["notes"] == [Note(text="5")]


def test_definitions_are_shared_and_titles_left_out():
    """A class used twice is defined once; a property named title survives (B15)."""

    @tool
    def function(a: Point, b: list[Point]) -> None: ...

    assert properties(function)["a"] == {"$ref": "#/$defs/Point"}
    assert function.parameters["$defs"]["Point"] == {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "title": {"type": "string", "default": "p"}},
        "required": ["x"],
    }


def test_what_only_the_type_can_refuse_has_the_same_error():
    """An error of the second step has the layout of a validation error."""

    def positive(value: int) -> int:
        if value <= 0:
            raise ValueError("must be positive")
        return value

    from pydantic import AfterValidator

    @tool
    def function(a: Annotated[int, AfterValidator(positive)]) -> None: ...

    with pytest.raises(ToolArgumentsError) as caught:
        execute(function, {"a": -1})
    assert caught.value.paths == ("a",)
    assert str(caught.value).startswith('Validation failed for tool "function":\n  - a: ')
    assert str(caught.value).endswith('\n\nReceived arguments:\n{\n  "a": -1\n}')


GOOGLE = """Find things.

    More about it,
    in two lines.

    Args:
        query: Text to look for,
            in any case.
        limit: Ignored.

    Returns:
        Nothing.

    Raises:
        ValueError: Never.
"""
NUMPY = """Find things.

    More about it,
    in two lines.

    Parameters
    ----------
    query : str
        Text to look for,
        in any case.
    limit : int
        Ignored.

    Returns
    -------
    str
        Nothing.
"""
REST = """Find things.

    More about it,
    in two lines.

    :param query: Text to look for,
        in any case.
    :param limit: Ignored.
    :returns: Nothing.
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST])
def test_docstrings_describe_tool_and_parameters(docstring):
    """Three styles are read; sections stay out of the description, Field wins."""

    def function(
        query: str, limit: Annotated[int, Field(description="At most.")], *, ctx: ToolContext
    ) -> None: ...

    function.__doc__ = docstring
    made = tool(function)

    assert made.description == "Find things.\n\nMore about it,\nin two lines."
    assert properties(made)["query"]["description"] == "Text to look for,\nin any case."
    assert properties(made)["limit"]["description"] == "At most."
    assert list(properties(made)) == ["query", "limit"]


def test_a_function_without_docstring_has_no_description():
    """Nothing is made up."""

    @tool
    def function(a: int) -> None: ...

    assert function.description == ""
    assert tool(functools.partial(function.__wrapped__, 1), name="p").description == ""


def test_open_and_positional_parameters():
    """`**kwargs` allow further properties; positional-only parameters are bound in order."""
    seen = []

    @tool
    def function(a: int, b: int = 2, c: int = 3, /, **rest: int) -> None:
        seen.append((a, b, c, rest))

    @tool
    def untyped(**rest) -> None:
        seen.append(rest)

    assert function.parameters["additionalProperties"] == {"type": "integer"}
    execute(function, {"a": 1, "c": 5, "z": "7"})
    execute(untyped, {"z": [1]})
    assert seen == [(1, 2, 5, {"z": 7}), {"z": [1]}]


def test_types_local_to_a_function_are_found():
    """Annotations written as text see the names around the function."""

    class Local(BaseModel):
        n: int

    @tool
    def function(a: Local, b: kernel.ToolContext | None = None) -> int:
        return a.n

    assert "$ref" in properties(function)["a"]
    assert list(properties(function)) == ["a"]
    assert execute(function, {"a": {"n": "4"}}) == 4


def test_bound_methods_partials_and_objects():
    """Whatever is called like a function can be a tool."""

    class Shop:
        def sell(self, item: str, count: int = 1) -> str:
            """Sell something."""
            return f"{count} {item}"

        def __call__(self, a: int) -> int:
            return a

    assert execute(tool(Shop().sell), {"item": "x"}) == "1 x"
    assert tool(Shop().sell).description == "Sell something."
    partial = tool(functools.partial(Shop().sell, count=3), name="many")
    assert execute(partial, {"item": "x"}) == "3 x"
    assert properties(tool(Shop(), name="shop")) == {"a": {"type": "integer"}}
    assert properties(tool(lambda: 1, name="none")) == {}


def test_odd_defaults_and_docstrings_are_harmless():
    """A default without JSON form is left out; a docstring of no style is the description."""

    @tool
    def function(  # noqa: PLR0917
        a: Path = Path("/a"),
        b: list[Path] = [Path("/b")],  # noqa: B006
        c: float = float("inf"),
        d: Annotated[Any, object] = NOT_JSON,
        e: Literal[Colour.RED] = Colour.RED,
        f: dict[str, Path] | None = None,
    ) -> None: ...

    function.__wrapped__.__doc__ = "First line\ngoes on."
    function = tool(function.__wrapped__)
    assert function.description == "First line\ngoes on."
    shown = {name: schema.get("default") for name, schema in properties(function).items()}
    assert shown == {"a": "/a", "b": ["/b"], "c": None, "d": None, "e": "red", "f": None}
    assert "default" not in properties(function)["c"]


def method(self, a: int): ...
def variadic(*args: int): ...
def generator(a: int):
    yield a


async def async_generator(a: int):
    yield a


def unresolved(a: Unknown): ...
def without_schema(a: SimpleNamespace): ...
def context_first(ctx: ToolContext, /): ...


nameless = lambda: 1  # noqa: E731


@pytest.mark.parametrize(
    ("function", "remedy"),
    [
        (method, r"use tool\(obj.method\)"),
        (variadic, "list parameter"),
        (generator, "ctx.update"),
        (async_generator, "ctx.update"),
        (unresolved, "'Unknown' of 'a'"),
        (without_schema, "has no JSON form"),
        (context_first, "positional only"),
        (nameless, "name="),
        (Point, "from a function"),
        (5, "from a function"),
        (dict.get, "."),
        (tool(nameless, name="p"), "already"),
    ],
    ids=str,
)
def test_what_cannot_be_a_tool_says_why(function, remedy):
    """The error names the function and what to change."""
    with pytest.raises(TypeError, match=remedy):
        tool(function)


def test_simple_functions_do_not_import_pydantic():
    """Neither making nor calling a tool of plain types loads pydantic or docstring_parser."""
    program = """
import sys
from pi_agent_kernel.tools import tool
@tool
def search(query: str, tags: list[str] | None = None, limit: int = 10) -> str:
    "Find."
    return query
assert search.execute("id", {"query": "x"}, None, print) == "x"
print(*{"pydantic", "jsonschema", "docstring_parser", "asyncio"} & set(sys.modules))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == ""
