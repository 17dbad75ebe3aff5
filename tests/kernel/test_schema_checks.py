from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pi_agent_kernel.coercion import coerce, number_text
from pi_agent_kernel.schema import is_valid
from pi_agent_kernel.schema_checks import (
    CheckCompiler,
    UndecidableSchemaError,
    equality_key,
    json_type,
)
from pi_agent_kernel.schema_errors import SchemaValidator
from pi_agent_kernel.schema_references import resolve_pointer, resolve_reference

SCHEMAS = [
    True,
    False,
    {},
    {"type": "integer"},
    {"type": ["integer", "null"]},
    {"type": "integer", "minimum": 2, "maximum": 4},
    {"exclusiveMinimum": 1, "exclusiveMaximum": 3},
    {"multipleOf": 2},
    {"multipleOf": 0.5},
    {"minLength": 1, "maxLength": 2},
    {"pattern": "^a"},
    {"const": 1},
    {"const": [1, {"a": True}]},
    {"enum": ["a", 1, None, [True]]},
    {"required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "integer"}}},
    {"type": "object", "properties": {"a": True}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"propertyNames": {"maxLength": 1}},
    {"minProperties": 1, "maxProperties": 1},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"type": "array", "items": {"type": "integer"}},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
    {"prefixItems": [{"type": "integer"}]},
    {"type": "array", "items": False},
    {"minItems": 1, "maxItems": 2},
    {"uniqueItems": True},
    {"contains": {"type": "integer"}},
    {"contains": {"type": "integer"}, "minContains": 2, "maxContains": 2},
    {"allOf": [{"type": "integer"}, {"minimum": 2}]},
    {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 2}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
    {"not": {"type": "string"}},
    {"if": {"type": "integer"}, "then": {"minimum": 2}, "else": {"type": "string"}},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}},
    {"properties": {"a": {"$ref": "#/allOf/0"}}, "allOf": [{"type": "object"}]},
    {"properties": {"a": {"$ref": "#"}}, "type": "object"},
]
VALUES = [
    None,
    True,
    False,
    0,
    1,
    2,
    2.5,
    5,
    "",
    "a",
    "abc",
    [],
    [1],
    [1, 1],
    [1, True],
    [1, "a"],
    ["a", 1],
    [1, {"a": True}],
    [1, {"a": 1}],
    [True],
    {},
    {"a": 1},
    {"a": "x"},
    {"a": {"a": {}}},
    {"a": 1, "b": 2},
    {"b": "x"},
    {"bc": 1},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_closures_agree_with_the_standard(schema):
    """Every covered keyword decides as jsonschema does; so does the validator with our words."""
    check = CheckCompiler(schema).compile(schema)
    standard = jsonschema.Draft202012Validator(schema)
    ours = SchemaValidator(schema)

    for value in VALUES:
        wanted = standard.is_valid(value)
        assert check(value) is wanted, value
        assert (not ours.errors(value)) is wanted, value
        assert ours.is_valid(value, schema) is wanted, value


def test_a_whole_float_is_left_to_coercion_which_makes_it_an_int():
    """4.0 is an integer to JSON Schema; coercion makes it 4 before a tool gets it."""
    schema = {"type": "integer"}

    assert CheckCompiler(schema).compile(schema)(4.0) is True
    assert CheckCompiler(schema).compile(schema)(4.5) is False
    assert is_valid(schema, 4.0)
    assert coerce({"x": 4.0}, True, lambda *_: True) == {"x": 4}


@pytest.mark.parametrize(
    "schema",
    [
        5,
        {"type": 5},
        {"$anchor": "a"},
        {"unevaluatedProperties": False},
        {"$ref": 5},
        {"$ref": "other.json"},
        {"minimum": "a"},
        {"multipleOf": 0},
        {"properties": []},
        {"items": {"type": "integer"}},
        {"properties": {"a": {"$id": "nested"}}},
        {"exclusiveMinimum": True},
    ],
    ids=str,
)
def test_what_closures_do_not_cover_is_left_to_the_validator(schema):
    """Compilation refuses instead of guessing."""
    with pytest.raises(UndecidableSchemaError):
        CheckCompiler(schema).compile(schema)


def test_a_reference_hides_its_siblings_in_old_drafts_only():
    """Draft 7 ignores keywords beside `$ref`; 2020-12 does not."""
    schema = {"$ref": "#/$defs/n", "maximum": 1, "$defs": {"n": {"type": "integer"}}}
    old = schema | {"$schema": "http://json-schema.org/draft-07/schema#"}

    assert CheckCompiler(old).compile(old)(5)
    assert not CheckCompiler(schema).compile(schema)(5)


def test_fractional_steps_are_exact():
    """A multiple is judged by the decimal text, not by binary rounding."""
    schema = {"multipleOf": 0.01}
    check = CheckCompiler(schema).compile(schema)

    assert check(1.13)
    assert not check(1.135)


def test_json_equality_tells_true_from_one():
    """1 equals 1.0 and not True, at any depth (P7)."""
    assert equality_key([1, {"a": 1}]) == equality_key([1.0, {"a": 1.0}])
    assert equality_key([1, {"a": 1}]) != equality_key([1, {"a": True}])


@pytest.mark.parametrize(
    ("value", "name"),
    [(None, "null"), (True, "boolean"), (1, "integer"), (1.5, "number"), ("", "string"),
     ([], "array"), ({}, "object"), (b"", "bytes")],
)  # fmt: skip
def test_types_have_their_json_names(value, name):
    """Messages speak JSON; what JSON lacks has its Python name."""
    assert json_type(value) == name


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_text_reads_back(number):
    """The text of a number is JSON that gives the same number."""
    shown = number_text(number)

    assert float(shown) == number
    assert not shown.endswith(".0")


def test_references_that_leave_or_miss_the_schema_are_errors():
    """A pointer to nothing, to a value that is no schema, or to elsewhere is not resolved."""
    root = {"$defs": {"a/b": {"$id": "x", "$defs": {"c": True}}, "n": 5, "list": [{}]}}

    assert resolve_pointer(root, "#/$defs/a~1b/$defs/c") is True
    assert resolve_reference(root, "x#/$defs/c") is True
    assert resolve_pointer(root, "#/$defs/list/0") == {}
    for missing in ("#/$defs/n", "#/$defs/list/1", "#/$defs/list/a", "#/nope", "other"):
        with pytest.raises(LookupError):
            resolve_pointer(root, missing)
    with pytest.raises(LookupError):
        resolve_reference(root, "#anchor")


@pytest.mark.parametrize(
    ("schema", "value", "path", "message"),
    [
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 2, "root", "more than one"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "ab", "invalid property name"),
        ({"prefixItems": [True], "items": False}, [1, 2], "1", "no value is allowed here"),
        ({"properties": {"a": False}}, {"a": 1}, "a", "no value is allowed here"),
        ({"items": [{"type": "integer"}]}, ["a"], "0", "expected integer, got string"),
        ({"type": "integer", "enum": [1]}, "a", "root", "expected integer, got string"),
        ({"additionalProperties": {"type": "integer"}}, {"a": "b"}, "a", "expected integer"),
        ({"patternProperties": {"^a": {"type": "integer"}}}, {"a": "b"}, "a", "expected integer"),
        (
            {
                "anyOf": [
                    {"properties": {"k": {"const": "a"}, "v": {"type": "integer"}}},
                    {"properties": {"k": {"const": "b"}, "v": {"type": "null"}}},
                ]
            },
            {"k": "b", "v": "x"},
            "v",
            "expected null, got string",
        ),
        ({"enum": ["x" * 1000]}, 1, "root", "…"),
    ],
    ids=str,
)
def test_errors_name_the_place_and_the_cause(schema, value, path, message):
    """One short line per problem; only the type is reported where it is wrong."""
    ((found, text),) = SchemaValidator(schema).errors(value)

    assert found == path
    assert message in text


def test_many_problems_are_bounded():
    """At most fifty problems are listed."""
    schema = {"type": "array", "items": {"type": "integer"}}

    assert len(SchemaValidator(schema).errors(["a"] * 1000)) == 50
