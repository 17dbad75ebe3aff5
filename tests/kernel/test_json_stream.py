from __future__ import annotations

import copy
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pi_agent_kernel.json_stream import (
    UNDEFINED,
    StreamingJsonParser,
    ToolCallArgumentsStream,
    parse_streaming_json,
    parse_strict_json,
    parse_tool_call_arguments,
    repair_json,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
junk = st.lists(
    st.sampled_from(
        [
            *'{}[],:"\\ \n1-.eEtfn/',
            "tr",
            "null",
            '"a":',
            "\\u00e9",
            "\\ud83d",
            "\\ude00",
            "\\u12",
            "é",
        ]
    ),
    max_size=25,
).map("".join)


def shown(*pieces: str):
    parser = StreamingJsonParser()
    for piece in pieces:
        parser.append(piece)
    return parser.snapshot()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", UNDEFINED),
        (" ", UNDEFINED),
        ("nonsense", UNDEFINED),
        ("{", {}),
        ('{"a', {}),
        ('{"a":', {}),
        ('{"a":"', {"a": ""}),
        ('{"a":"b  ', {"a": "b  "}),
        ('{"a":"b","c":[1,2', {"a": "b", "c": [1, 2]}),
        ('{"a":{"b":tru', {"a": {"b": True}}),
        ("n", None),
        ('{"n":12', {"n": 12}),
        ('{"n":-', {}),
        ('{"n":12.', {}),
        ('{"n":12e', {"n": 12}),
        ('{"n":12e+', {"n": 12}),
        ('{"n":12e1', {"n": 120}),
        ("[01", []),
        ("[1e1e", []),
        ('{"a":1,"a":', {"a": 1}),
        ('{"a":1,"a":2', {"a": 2}),
    ],
)
def test_incomplete_text_shows_what_is_certain(text, value):
    """Open strings, unfinished literals and numbers show; keys without a value do not (MD-07)."""
    assert value == shown(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a" 1 "b":2', {"a": 1, "b": 2}),
        ('{"a"::1', {"a": 1}),
        ("[1 2,,3]", [1, 2, 3]),
        ('{"a":[1},"b":2', {"a": [1], "b": 2}),
        ('{"a":x,"b":1', {"b": 1}),
        ('{"a"x"b":1', {"b": 1}),
        ('{"a":,"b":1', {"b": 1}),
        ('{{"a":1},[2],"b":3', {"b": 3}),
        ("{1:2,a:3}", {}),
        ("]}1 2", 1),
        ('```json\n{"a":1}', {"a": 1}),
        ('{"a":1} and more {"b":2}', {"a": 1}),
        ("[1\u00a02]", []),
        ('{"a":NaN,"b":Infinity}', {}),
    ],
)
def test_malformed_text_is_read_leniently(text, value):
    """Misplaced punctuation is tolerated, unknown words and values are dropped (MD-07)."""
    assert value == shown(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"ab\\', "ab"),
        ('"ab\\u00', "ab"),
        ('"ab\\u00e9', "abé"),
        ('"a\\d\\usepackage{x}', "a\\d\\usepackage{x}"),
        ('"\\u12"', "\\u12"),
        ('"a\nb\tc\x00', "a\nb\tc\x00"),
        ('"\\ud83d\\ude00"', "😀"),
        ('"\\ud83d', "\ud83d"),
    ],
)
def test_escapes_are_held_back_until_complete_and_kept_when_unknown(text, value):
    """An unfinished escape is not shown; an unknown one and a raw control character are text."""
    assert value == shown(text)


def test_surrogate_halves_in_two_pieces_become_one_character():
    """Halves of a pair join, however the text was cut (P5)."""
    assert shown('"\ud83d', '\ude00"') == "😀"


def test_a_number_too_large_for_a_float_shows_as_null():
    """No infinite number comes out of the parser (P6)."""
    assert shown(f"[1e999,-1e999,{'9' * 5000}]") == [None, None, None]


def test_root_of_another_type_is_shown_as_it_is():
    """The parser shows any JSON value, not only objects."""
    assert shown(' [ 1 , "two" , false ] ') == [1, "two", False]


@settings(max_examples=150, deadline=None)
@given(json_values, st.booleans(), st.data())
def test_complete_text_is_read_exactly(value, ascii_only, data):
    """Whatever the cuts, valid JSON gives the value that a strict parser gives."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=data.draw(st.sampled_from([None, 1])))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    parser = StreamingJsonParser()
    for piece in pieces:
        parser.append(piece)
        parser.snapshot()
    parser.append(" ")  # ends a number at the root

    assert parse_strict_json(text) == parser.snapshot()


@settings(max_examples=200, deadline=None)
@given(junk)
def test_cuts_and_reads_make_no_difference(text):
    """One parser fed character by character equals a fresh parser for every prefix."""
    parser = StreamingJsonParser()
    for length in range(len(text) + 1):
        assert shown(text[:length]) == parser.snapshot()
        parser.append(text[length : length + 1])


@settings(max_examples=100, deadline=None)
@given(json_values)
def test_a_snapshot_never_changes(value):
    """A snapshot keeps its value while more text arrives (MD-06)."""
    parser = StreamingJsonParser()
    taken = []
    for character in json.dumps(value):
        parser.append(character)
        snapshot = parser.snapshot()
        taken.append((snapshot, copy.deepcopy(snapshot)))

    assert all(then == now for now, then in taken)


def test_an_unchanged_value_is_the_same_object():
    """Text that changes nothing gives the previous snapshot; a change gives a new one (MD-06)."""
    parser = StreamingJsonParser()
    parser.append('{"a":[1],')
    first = parser.snapshot()
    parser.append('  "b')

    assert first == parser.snapshot()
    parser.append('":2')
    assert parser.snapshot() == {"a": [1], "b": 2}
    assert first == {"a": [1]}


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * 20_000,
        "{" + ",".join(f'"k{i}":{i}' for i in range(8_000)),
        '{"content":"' + "x" * 60_000,
        "[" + "[1],{}," * 6_000,
    ],
)
def test_copying_grows_no_faster_than_the_text(text):
    """The work of snapshots after every piece is linear in the number of pieces."""

    def copied(length: int) -> int:
        parser = StreamingJsonParser()
        for start in range(0, length, 4):
            parser.append(text[start : min(start + 4, length)])
            parser.snapshot()
        return parser.copied

    pieces = len(text) // 4
    assert copied(len(text)) <= pieces * (1024 + 16 * 4)
    assert copied(len(text)) >= copied(len(text) // 2)


def test_a_large_open_container_lags_but_arrives():
    """A preview may be late while a container is open, and is complete when it has closed."""
    parser = StreamingJsonParser()
    parser.append("[" + "1," * 50_000)
    assert len(parser.snapshot()) == 50_000
    lagged = False
    for count in range(50_001, 50_200):
        parser.append("1,")
        lagged |= len(parser.snapshot()) < count
    parser.append("1]")

    assert lagged
    assert len(parser.snapshot()) == 50_200


def test_deep_nesting_does_not_exhaust_the_stack():
    """The incremental parser is not recursive."""
    value = shown("[" * 20_000)
    depth = 0
    while isinstance(value, list) and value:
        value = value[0]
        depth += 1

    assert depth == 19_999


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, {}),
        ("  ", {}),
        ("nonsense", {}),
        ("n", {}),
        ("-", {}),
        ("[1, 2", [1, 2]),
        ('{"a":"b  ', {"a": "b"}),
        ('{"a":"b\\', {"a": "b"}),
        ('{"a":{"b":tru', {"a": {"b": True}}),
        ('{"a":[1},"b":2', {"a": [1]}),
        ('{"a":1 "b":2', {}),
        ('{"a":"x\ny"}', {"a": "x\ny"}),
        ('{"a":"\\d"}', {"a": "\\d"}),
        ("[12e,1", [12, 1]),
        ('[{"a":1},{"b', [{"a": 1}, {}]),
        ('{"a":NaN', {"a": None}),
        ("[" * 100_000, {}),
    ],
)
def test_one_incomplete_text_is_read_up_to_its_first_fault(text, value):
    """`parse_streaming_json` gives the containers read so far, else an empty object."""
    assert value == parse_streaming_json(text)


@settings(max_examples=200, deadline=None)
@given(junk)
def test_partial_parsing_never_raises(text):
    """Any text gives some JSON value, which contains no infinite number (B09)."""
    json.dumps(parse_streaming_json(text), allow_nan=False)
    value = shown(text)
    json.dumps(None if value is UNDEFINED else value, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (None, {}),
        ("", {}),
        (" \n", {}),
        ('{"a":1}', {"a": 1}),
        ('{"a":"line\nbreak"}', {"a": "line\nbreak"}),
        ('{"p":"C:\\dir"}', {"p": "C:\\dir"}),
        ('{\n"a":"\\usepackage{x}",\n"b":"y"}', {"a": "\\usepackage{x}", "b": "y"}),
        ('{"u":"\\u00e9\\n"}', {"u": "é\n"}),
        ('{"u":"\\ud800\\u0000"}', {"u": "\ud800\x00"}),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_final_arguments_are_strict_but_for_string_repairs(text, arguments):
    """Control characters and unknown escapes in strings are repaired (MD-08, B08, B10, B13)."""
    assert (arguments, None) == parse_tool_call_arguments(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":',
        "[1,2]",
        '"text"',
        "null",
        "{oops",
        '{"a":1} x',
        '{"a":1,}',
        '{"a":1 "b":2}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":1e999}',
        '```json\n{"a":1}\n```',
        '{"a":' + "[" * 100_000,
        '{"a":' + "9" * 5000 + "}",
    ],
)
def test_final_arguments_that_are_no_object_are_an_error_with_the_text(text):
    """A prefix is never accepted; the error ends with what the model sent (TL-06, P6)."""
    arguments, error = parse_tool_call_arguments(text)

    assert arguments == {}
    assert error is not None
    description, _, received = error.partition("\n\nReceived arguments:\n")
    assert description
    assert text == received


@settings(max_examples=100, deadline=None)
@given(json_values)
def test_repair_keeps_valid_text(value):
    """Valid JSON is not changed by the repair."""
    text = json.dumps(value, indent=1)

    assert text == repair_json(text)


def test_argument_stream_shows_an_object_whatever_the_root():
    """Partial arguments are always an object (MD-06)."""
    stream = ToolCallArgumentsStream()

    assert stream.append("") == {}
    assert stream.append("[1") == {}
    assert stream.finish().arguments_error is not None


def test_argument_stream_takes_the_complete_text_instead_of_pieces():
    """`replace` gives the missing piece when the text goes on, and starts over otherwise."""
    stream = ToolCallArgumentsStream()
    stream.append('{"a"')

    assert stream.replace('{"a":1') == (":1", {"a": 1})
    assert stream.replace('{"a":1') == ("", {"a": 1})
    assert stream.replace('{"b":2}') == (None, {"b": 2})
    assert stream.text == '{"b":2}'
    assert stream.finish() == ({"b": 2}, None)


def test_argument_stream_can_be_fed_without_being_shown():
    """`feed` defers all work to the next look at the arguments."""
    stream = ToolCallArgumentsStream()
    for character in '{"n": 1.5}':
        stream.feed(character)

    assert stream.arguments == {"n": 1.5}
    assert math.isclose(stream.finish().arguments["n"], 1.5)
