from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pi_agent_kernel.errors import ToolArgumentsError, ToolNotFoundError
from pi_agent_kernel.json_value import freeze
from pi_agent_kernel.schema import validate_tool_arguments, validate_tool_call

CASES = json.loads(
    (Path(__file__).parents[1] / "conformance" / "coercion-cases.json").read_text("utf-8")
)


def call(arguments, error=None, name="t"):
    return SimpleNamespace(name=name, arguments=arguments, arguments_error=error)


def validated(schema, arguments):
    return validate_tool_arguments(SimpleNamespace(name="t", parameters=schema), call(arguments))


def refused(schema, arguments):
    with pytest.raises(ToolArgumentsError) as caught:
        validated(schema, arguments)
    return caught.value


def one(schema, *, required=True):
    """Make the schema of an object whose x has the given schema."""
    return {
        "type": "object",
        "properties": {"x": schema},
        **({"required": ["x"]} if required else {}),
    }


def same(left, right):
    """Compare value and type: 4 is neither 4.0 nor True."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case["arguments"])[:60])
def test_coercion_table(case):
    """Every recorded case gives the reference's value or refusal, except DEVIATIONS 10."""
    wanted = case.get("ours", case["reference"])
    if wanted["ok"]:
        assert same(wanted["value"], validated(case["schema"], case["arguments"]))
        return
    paths = wanted.get("paths") or [
        error.partition(":")[0].strip("/").replace("/", ".") for error in wanted["errors"]
    ]
    assert set(paths) <= set(refused(case["schema"], case["arguments"]).paths)


def test_the_coercion_table_is_complete():
    """All 65 recorded cases are here."""
    assert len(CASES) == 65


@pytest.mark.parametrize(
    ("schema", "value", "wanted"),
    [
        ({"type": "number"}, ".5", 0.5),
        ({"type": "number"}, "0b11", 3),
        ({"type": "number"}, "TRUE", 1),
        ({"type": "integer"}, "-3.7", -3),
        ({"type": "integer"}, 4.0, 4),
        ({"type": "string"}, 1e21, "1e+21"),
        ({"type": "string"}, 0.00001, "0.00001"),
        ({"type": "string"}, 1e-7, "1e-7"),
        ({"type": "string"}, -1.5e-5, "-0.000015"),
        ({"type": "string"}, 5.0, "5"),
        ({"type": "null"}, "NULL", None),
        ({"type": "null"}, 0, None),
        ({"type": ["number", "null"]}, True, 1),
        ({"type": ["null", "integer"]}, False, None),
        ({"anyOf": [{"type": ["integer", "null"]}, {"type": "array"}]}, "5", ["5"]),
        ({"anyOf": [{"type": ["integer", "null"]}, {"type": "boolean"}]}, "5", 5),
        ({"type": ["integer", "null"]}, "4.0", 4),
        ({"type": ["integer", "boolean"]}, "true", True),
        ({"type": ["string", "integer"]}, True, "true"),
        ({"type": ["boolean", "null"]}, 1, True),
        ({"type": ["string", "integer"]}, 4.0, 4),
        ({"enum": ["5", 5]}, 5, 5),
        ({"enum": [True, False]}, "TRUE", True),
        ({"enum": [1, 2]}, True, 1),
        ({"const": "1"}, 1, "1"),
        ({"items": {"type": "integer"}}, "5", [5]),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "5", [[5]]),
        ({"properties": {"k": {"type": "integer"}}}, {"k": "5"}, {"k": 5}),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "5", 5),
        ({"type": "integer", "allOf": [{"minimum": 1}]}, "5", 5),
        ({"anyOf": [{"type": "boolean"}, {"type": "integer"}]}, "1", True),
        ({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "string"}]}, 3, "3"),
        (
            {"type": "object", "patternProperties": {"^n": {"type": "number"}}},
            {"n1": "2", "z": "2"},
            {"n1": 2, "z": "2"},
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "anyOf": [{"required": ["a"]}],
            },
            {"a": "5"},
            {"a": 5},
        ),
        ({"type": "array", "items": one({"type": "integer"}, required=False)}, {"x": None}, [{}]),
    ],
)
def test_values_are_converted_as_in_the_reference(schema, value, wanted):
    """Conversion follows const, enum, unions, allOf and type, in this order (TL-07, B11)."""
    assert same(wanted, validated(one(schema), {"x": value})["x"])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number"}, "1_000"),
        ({"type": "number"}, "٣"),
        ({"type": "number"}, "-0x10"),
        ({"type": "number"}, "1e400"),
        ({"type": "number"}, "Infinity"),
        ({"type": "number"}, " "),
        ({"type": "number"}, float("nan")),
        ({"type": "integer"}, "9" * 5000),
        ({"type": "boolean"}, "1.0"),
        ({"type": "null"}, 5),
        ({"type": ["integer", "null"]}, "3.5"),
        ({"type": ["boolean", "null"]}, "1"),
        ({"type": ["array", "null"]}, "a"),
        ({"enum": [0, 1]}, None),
        ({"enum": [0]}, ""),
        ({"enum": [None, "a"]}, "null"),
        ({"const": [1]}, ["1"]),
        ({"type": "array", "items": {"type": "integer"}}, [None]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "5"),
        ({"type": "string", "maxLength": 1}, "ab"),
        ({"type": "strin"}, 5),
        (False, 5),
    ],
)
def test_no_value_is_invented(schema, value):
    """What has no exact meaning in the wanted type is refused (DEVIATIONS 10, P6)."""
    assert refused(one(schema), {"x": value}).paths[0].startswith("x")


def test_null_fits_a_nullable_arm():
    """A value that is valid for one arm of a union is left alone (B12)."""
    schema = one({"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]})

    assert validated(schema, {"x": None}) == {"x": None}
    assert validated(schema, {"x": "5"}) == {"x": "5"}


def test_defaults_are_not_inserted():
    """A missing property stays missing whatever its default (TL-07)."""
    assert validated(one({"type": "integer", "default": 5}, required=False), {}) == {}


def test_missing_arguments_are_an_empty_object():
    """A call without arguments reaches a tool without parameters (B13)."""
    assert validated({"type": "object", "properties": {}}, None) == {}


def test_the_error_lists_paths_and_the_received_arguments():
    """The layout of the text is exact; arguments are shown as received (TL-05)."""
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "edits": {"type": "array", "items": one({"type": "integer"})},
        },
        "required": ["path"],
    }
    error = refused(schema, {"edits": [{"x": "1"}, {"x": "é"}]})

    assert set(error.paths) == {"path", "edits.1.x"}
    head, _, received = str(error).partition("\n\nReceived arguments:\n")
    assert head.splitlines() == [
        'Validation failed for tool "t":',
        "  - edits.1.x: expected integer, got string",
        "  - path: missing",
    ]
    shown = json.dumps({"edits": [{"x": "1"}, {"x": "é"}]}, indent=2, ensure_ascii=False)
    assert shown == received


@pytest.mark.parametrize(
    ("schema", "value", "line"),
    [
        ({"type": "integer", "maximum": 5}, 9, "x: expected <= 5"),
        ({"type": "string", "pattern": "^a"}, "b", "x: expected to match ^a"),
        (
            {"type": "string", "format": "date"},
            "2024-02-30",
            "x: expected format date, for example 2024-01-02",
        ),
        ({"enum": ["a", "b"]}, "c", 'x: expected one of ["a","b"]'),
        ({"type": "array", "uniqueItems": True}, [1, 1], "x: expected unique items"),
        (
            one({"type": "string"}) | {"additionalProperties": False},
            {"x": "a", "z": 1},
            "x.z: unknown field",
        ),
        (
            {"anyOf": [{"type": "null"}, one({"type": "integer"})]},
            {"x": "z"},
            "x.x: expected integer, got string",
        ),
        (
            {"anyOf": [one({"const": "a"}), one({"const": "b"})]},
            {"x": "c"},
            'x.x: expected one of ["a","b"]',
        ),
        (
            {"type": "object", "dependentRequired": {"a": ["b"]}},
            {"a": 1},
            "x.b: required when a is present",
        ),
        ({"not": {"type": "integer"}}, 5, "x: must not match the schema in not"),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}, "x.b: unknown field"),
    ],
)
def test_lines_say_what_was_expected(schema, value, line):
    """A line names the place and what belongs there, in words without Python types."""
    assert f"  - {line}" in str(refused(one(schema), {"x": value})).splitlines()


def test_problems_with_the_whole_value_are_at_root():
    """The path of the whole object is "root"."""
    assert refused({"type": "object", "minProperties": 1}, {}).paths == ("root",)
    assert refused({"type": "object"}, [1]).paths == ("root",)


def test_unreadable_arguments_always_fail():
    """A call that carries arguments_error fails with it, whatever its arguments (TL-06)."""
    tool = SimpleNamespace(name="t", parameters={"type": "object"})
    with pytest.raises(ToolArgumentsError) as caught:
        validate_tool_arguments(tool, call({}, "bad\n\nReceived arguments:\n{oops"))

    assert str(caught.value) == (
        'Invalid arguments for tool "t": bad\n\nReceived arguments:\n{oops'
    )


def test_a_call_is_validated_by_the_tool_it_names():
    """Unknown names have their own error; the first tool of a name is used."""
    tools = [
        SimpleNamespace(name="t", parameters=one({"type": "integer"})),
        SimpleNamespace(name="u", parameters={"type": "object"}),
    ]

    assert validate_tool_call(tools, call({"x": "1"})) == {"x": 1}
    with pytest.raises(ToolNotFoundError) as caught:
        validate_tool_call(tools, call({}, name="other"))
    assert str(caught.value) == 'Tool "other" not found'


@pytest.mark.parametrize("arguments", [{"x": [{"y": 1}]}, {"x": {"y": "1"}}])
def test_the_result_belongs_to_the_caller(arguments):
    """Arguments are copied deeply into plain containers, valid or coerced (TL-08)."""
    schema = one({"type": "array", "items": {"properties": {"y": {"type": "integer"}}}})
    frozen = freeze(arguments)
    before = json.dumps(frozen)
    result = validated(schema, frozen)

    assert type(result) is dict
    assert type(result["x"]) is list
    assert type(result["x"][0]) is dict
    result["x"][0]["y"] = 2
    result["x"].append(3)
    assert before == json.dumps(frozen)


@pytest.mark.parametrize("value", ["3", "z"])
def test_local_references_work_under_any_id(value):
    """`#/$defs` is looked up in the schema itself, also with a relative `$id` (B14)."""
    schema = one({"$ref": "#/$defs/n"}) | {
        "$id": "schemas/tool.json",
        "$defs": {"n": {"type": "integer"}},
    }
    if value == "3":
        assert validated(schema, {"x": value}) == {"x": 3}
    else:
        assert refused(schema, {"x": value}).paths == ("x",)


@pytest.mark.parametrize(
    "reference", ["#/nope", "#nope", "http://example.invalid/s.json", "s.json"]
)
def test_a_dangling_reference_rejects_only_its_place(monkeypatch, reference):
    """Nothing is fetched; other properties still work."""
    monkeypatch.setattr("socket.getaddrinfo", lambda *_a, **_k: pytest.fail("network"))
    schema = {"type": "object", "properties": {"x": {"$ref": reference}, "y": {"type": "integer"}}}

    assert validated(schema, {"y": "3"}) == {"y": 3}
    assert refused(schema, {"x": 1}).paths == ("x",)


@pytest.mark.parametrize(
    "definitions",
    [
        {"$ref": "#n", "$defs": {"n": {"$anchor": "n", "type": "integer"}}},
        {"$ref": "n.json", "$defs": {"n": {"$id": "n.json", "type": "integer"}}},
    ],
)
def test_references_by_name_are_followed(definitions):
    """Anchors and embedded ids name schemas too."""
    schema = one({"$ref": definitions["$ref"]}) | {"$defs": definitions["$defs"]}

    assert validated(schema, {"x": "3"}) == {"x": 3}
    assert refused(schema, {"x": "z"}).paths == ("x",)


def test_recursive_schemas_end():
    """A schema that contains itself converts and refuses without endless recursion."""
    tree = {"type": "object", "properties": {"c": {"$ref": "#"}, "n": {"type": "integer"}}}
    endless = one({"type": "array", "items": {"$ref": "#/properties/x"}})

    assert validated(tree, {"c": {"c": {"n": "3"}}}) == {"c": {"c": {"n": 3}}}
    assert refused(tree, {"c": {"c": {"n": "z"}}}).paths == ("c.c.n",)
    assert refused(endless, {"x": 5}).paths == ("x.0",)


@pytest.mark.parametrize(
    "schema",
    [{"type": 5}, {"enum": 5}, {"anyOf": 5}, {"minimum": "a"}, 5],
)
def test_a_malformed_schema_is_reported_not_raised(schema):
    """The model reads that the tool's schema is at fault."""
    assert "schema is not valid" in str(refused(one(schema), {"x": 1}))


def test_older_drafts_are_read_by_their_rules():
    """`$schema` decides: item tuples of draft 7, boolean exclusive bounds of draft 4."""
    seven = {"$schema": "http://json-schema.org/draft-07/schema#"}
    four = {"$schema": "http://json-schema.org/draft-04/schema#"}
    items = one({"type": "array", "items": [{"type": "integer"}], "additionalItems": False})
    above = one({"type": "integer", "minimum": 3, "exclusiveMinimum": True})

    assert validated(seven | items, {"x": ["1"]}) == {"x": [1]}
    assert refused(seven | items, {"x": [1, 2]}).paths == ("x.1",)
    assert validated(four | above, {"x": 4}) == {"x": 4}
    assert refused(four | above, {"x": 3}).paths == ("x",)


def test_deep_arguments_are_an_error():
    """Nesting beyond Python's recursion is the call's error, not the run's."""
    deep = value = {}
    for _ in range(5000):
        value["x"] = {}
        value = value["x"]

    with pytest.raises(ToolArgumentsError, match="nested too deeply"):
        validated({"type": "object"}, deep)


def test_strange_characters_reach_the_tool_and_the_error():
    """Lone surrogates and NUL neither fail validation nor its error."""
    value = "\ud800\x00"

    assert {"x": value} == validated(one({"type": "string"}), {"x": value})
    assert refused(one({"type": "integer"}), {"x": value}).paths == ("x",)


simple_schemas = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "boolean", "null"])})
    | st.builds(
        lambda members: {"enum": members},
        st.lists(st.sampled_from([1, "1", True, None]), min_size=1),
    ),
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
        | st.builds(
            lambda a, b: {"type": "object", "properties": {"a": a, "b": b}, "required": ["a"]},
            inner,
            inner,
        )
    ),
    max_leaves=5,
)
loose_values = st.recursive(
    st.sampled_from([None, True, 0, 1, 2.0, 2.5, "", "1", "x", "true", "null"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(simple_schemas, loose_values)
def test_what_is_accepted_is_valid_and_stays(schema, value):
    """Accepted arguments are valid by jsonschema itself, and a second pass changes nothing."""
    import jsonschema

    try:
        accepted = validated(one(schema), {"x": value})
    except ToolArgumentsError:
        return
    jsonschema.Draft202012Validator(one(schema)).validate(accepted)
    assert same(accepted, validated(one(schema), accepted))


def test_the_fast_path_needs_no_validator():
    """Neither valid nor coercible arguments import jsonschema or pydantic."""
    program = """
import sys
from types import SimpleNamespace as N
from pi_agent_kernel.schema import validate_tool_arguments
schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
tool = N(name="t", parameters=schema)
for value in (1, "1"):
    valid = validate_tool_arguments(tool, N(arguments={"x": value}, arguments_error=None))
    assert valid == {"x": 1}
print(*{"jsonschema", "pydantic", "referencing"} & set(sys.modules))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == ""


def test_more_schemas_than_the_cache_holds_are_checked_right():
    """An evicted or reused schema object never answers for another one."""
    for number in range(1200):
        schema = one({"const": number})
        assert {"x": number} == validated(schema, {"x": number})


def test_schemas_only_the_validator_understands_are_coerced_too():
    """Conversion and refusal work the same where the closures cannot decide."""
    schema = one({"properties": {"a": {"type": "integer"}}, "unevaluatedProperties": False})

    assert validated(schema, {"x": {"a": "1"}}) == {"x": {"a": 1}}
    assert validated(one({"anyOf": [schema, {"type": "integer"}]}), {"x": "5"}) == {"x": 5}
    assert refused(schema, {"x": {"a": "z"}}).paths == ("x.a",)


def test_null_at_a_dangling_reference_is_reported():
    """An optional null is dropped only where the schema is known to refuse it."""
    schema = one({"$ref": "#/nope"}, required=False)

    assert refused(schema, {"x": None}).paths == ("x",)
    found = one({"$ref": "#/$defs/n"}, required=False) | {"$defs": {"n": {"type": "integer"}}}
    assert validated(found, {"x": None}) == {}
    assert validated(one({"type": "integer"}, required=False), {"x": None}) == {}


def test_arguments_are_an_object_even_if_the_schema_is_not():
    """A schema that accepts a list does not make a list the arguments."""
    assert refused({}, [1]).paths == ("root",)
