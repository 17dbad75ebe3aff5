from __future__ import annotations

import pytest
from pi_agent_kernel.messages import Tool
from pi_agent_kernel.models.demo_arguments import find_arguments, steps_of, words_of


def find(step, schema, *, required=True, before=None, **root):
    """Find the one argument x of a tool called use_it."""
    parameters = {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"] if required else [],
        **root,
    }
    arguments, missing = find_arguments(
        step, Tool(name="use_it", description="Use it.", parameters=parameters), before
    )
    return arguments.get("x", missing)


STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}
BOOLEAN, LIST, OBJECT = {"type": "boolean"}, {"type": "array"}, {"type": "object"}


@pytest.mark.parametrize(
    ("step", "schema", "value"),
    [
        ("use_it x=hello.", STRING, "hello"),
        ("use_it x: 'a b'", STRING, "a b"),
        ("use_it x=3", {}, 3),
        ("use_it x=abc", {}, "abc"),
        ("use_it 3", {}, "3"),
        ("take 3", {}, 3),
        ("use_it x=3.", INTEGER, 3),
        ("use_it x=2.5", NUMBER, 2.5),
        ("use_it x=many, or 4", INTEGER, 4),
        ("use_it x=True", BOOLEAN, True),
        ("use_it x=perhaps", BOOLEAN, True),
        ("use_it false", BOOLEAN, False),
        ("use_it", BOOLEAN, ["x"]),
        ("use_it x=[1, 2]", LIST, [1, 2]),
        ("use_it 'a' and 'b'", LIST, ["a", "b"]),
        ("use_it on Ada and Grace", LIST, ["Ada", "Grace"]),
        ("use_it 1 and 2", LIST, [1, 2]),
        ("use_it", LIST, ["x"]),
        ('use_it {"a": [1]}', OBJECT, {"a": [1]}),
        ('use_it x={"a": 1}', OBJECT, {"a": 1}),
        ("use_it {a", OBJECT, ["x"]),
        ("use_it it", OBJECT, ["x"]),
        ("use_it with RED paint", {"enum": ["blue", "red"]}, "red"),
        ("use_it with paint", {"enum": ["blue", "red"]}, ["x"]),
        ("use_it", {"const": 7}, 7),
        ("use_it three times", INTEGER, 3),
        ("use_it 1.5 or 2", INTEGER, 2),
        ("use_it 1.5", INTEGER, ["x"]),
        ("use_it 4", {"type": ["null", "integer"]}, 4),
        ("use_it 4", {"type": ["null"]}, "4"),
        ("use_it 4", {"anyOf": [{"type": "null"}, INTEGER]}, 4),
        ("use_it 4", {"oneOf": [{"type": "null"}]}, "4"),
        ("use_it 4", {"$ref": "#/$defs/Whole"}, 4),
        ("use_it 4", {"$ref": "#/$defs/Nothing/here"}, "4"),
        ("use_it 4", {"$ref": "#/properties/x"}, "4"),
        ("use_it 4", True, "4"),
        ("What is it about Ada?", STRING, "Ada"),
        ("Berlin", STRING, "Berlin"),
        ("", STRING, ["x"]),
    ],
)
def test_a_value_is_found_by_its_type(step, schema, value):
    """Each row of the module's table, with references, unions and odd schemas."""
    assert find(step, schema, **{"$defs": {"Whole": INTEGER}}) == value


def test_optional_parameters_are_left_to_their_defaults():
    """An optional text is filled only by quoted or capitalised words."""
    assert find("use_it for something", STRING, required=False) == []
    assert find("use_it for 'something'", STRING, required=False) == "something"


def test_the_result_before_fills_a_gap():
    """A number or a text that the step lacks is the result of the step before."""
    assert find("use_it", NUMBER, before="The sum is 42") == 42
    assert find("use_it", STRING, before="abc") == "abc"
    assert find("use_it", NUMBER, before="no number") == ["x"]
    assert find("use_it 5", NUMBER, before="7") == 5


def test_a_prompt_has_steps():
    """The word "then" and ";" separate steps, but not inside quotes."""
    assert steps_of("a 1, then b; c and then d") == ["a 1", "b", "c", "d"]
    assert steps_of('count "first; then second" then stop') == [
        'count "first; then second"',
        "stop",
    ]
    assert steps_of(" ") == []


def test_words_are_compared_without_endings():
    """Common words do not count, endings and case do not matter."""
    assert words_of("Multiplies the Columns") == words_of("multiplied column".replace("ed", "es"))
    assert words_of("wordCount") == {"word", "count"}


def test_a_huge_prompt_is_read_quickly():
    """Prompts of any size and shape take a time that does not matter."""
    for text in ("(" * 100_000, "1 " * 50_000, "“" * 100_000, "A " * 50_000, "x=" * 50_000):
        for step in steps_of(text):
            find_arguments(step, Tool(name="f", parameters={"properties": {"x": NUMBER}}))
