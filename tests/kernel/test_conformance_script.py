"""The executor's own language: rules, templates, texts, and the comparison of traces."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from pi_agent_kernel.conformance.compare import differences
from pi_agent_kernel.conformance.script import RuleSet, chunks, compact_json, fill, is_subset
from pi_agent_kernel.conformance.trace import joined_surrogates
from pi_agent_kernel.conformance.virtual_time import run_in_virtual_time

VALIDATION = {
    "$validation": {
        "header": 'Validation failed for tool "t":',
        "paths": ["a.0"],
        "received": {"a": [1]},
        "reference": ["  - a.0: expected string, got number"],
    }
}
VALIDATION_TEXT = (
    'Validation failed for tool "t":\n  - b: missing\n  - a.0: no text\n\n'
    'Received arguments:\n{\n  "a": [\n    1\n  ]\n}'
)
ARGUMENTS = {"$argumentsError": {"header": 'Invalid arguments for tool "t":', "received": "{"}}
ENGINE = {"$engineText": True}


def test_every_rule_counts_for_itself():
    """`nth` counts the candidates that meet a rule's other conditions, used or not."""
    rules = RuleSet(
        [
            {"when": {"tool": "a", "nth": 2}, "do": [{"note": "second a"}]},
            {"when": {"tool": "*"}, "do": [{"note": "any"}]},
            {"do": [{"note": "always"}]},
        ]
    )

    seen = [[steps[0]["note"] for steps in rules.matching({"tool": tool})] for tool in "aba"]

    assert seen == [["any", "always"], ["any", "always"], ["second a", "any", "always"]]
    assert rules.first({"tool": "a"}) == [{"note": "any"}]
    assert RuleSet([]).first({}) is None


@pytest.mark.parametrize(
    ("expected", "actual", "holds"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 1.0, "c": 2}, "d": 3}, True),
        ({"a": None}, {}, False),
        ({"a": 1}, [1], False),
        ([{"a": 1}], [{"a": 1, "b": 2}, 3], True),
        ([1, 2], [1], False),
        ([1], "1", False),
        (1, True, False),
        (True, True, True),
        ("x", "x", True),
    ],
)
def test_subset(expected, actual, holds):
    """Objects and lists may hold more than expected; a number is no boolean."""
    assert is_subset(expected, actual) is holds


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{{args.n}}", 7),
        ("{{args.list.1}}", "b"),
        ("{{args.list.9}}", None),
        ("{{args.gone.deeper}}", None),
        ("{{gone}}", None),
        ("n={{args.n}}, {{args.list}} {{name}}", 'n=7, ["a","b"] t'),
        ("x {{gone}}", "x null"),
        (["{{name}}", {"k": "{{args}}"}], ["t", {"k": {"n": 7.0, "list": ["a", "b"]}}]),
        (3, 3),
        ("{{", "{{"),
    ],
)
def test_templates(template, filled):
    """A template becomes the value itself, inside a longer string its text or compact JSON."""
    assert fill(template, {"args": {"n": 7.0, "list": ["a", "b"]}, "name": "t"}) == filled


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.0, True, None], "é": "\n"}, '{"a":[1,2,true,null],"é":"\\n"}'),
        (1.5, "1.5"),
        (-0.0, "0"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (0.00001, "0.00001"),
        (1e-7, "1e-7"),
    ],
)
def test_compact_json(value, text):
    """JSON is written as JavaScript does, numbers included."""
    assert compact_json(value) == text


def test_chunks_count_utf16_units():
    """A chunk has 16 UTF-16 units, may cut a character, and an empty text is one chunk."""
    text = "123456789012345\N{GRINNING FACE}x"
    pieces = list(chunks(text))

    assert [len(piece) for piece in pieces] == [16, 2]
    assert joined_surrogates({"k": ["".join(pieces), 1]}) == {"k": [text, 1]}
    assert list(chunks("")) == [""]


@pytest.mark.parametrize(
    ("golden", "actual"),
    [
        ({"a": None}, {}),
        ({}, {"a": None}),
        ({"n": 1}, {"n": 1.0}),
        ({"durationMs": True}, {"durationMs": 5}),
        ({"throws": {"code": "c", "message": "a"}}, {"throws": {"code": "c", "message": "b"}}),
        ({"text": VALIDATION}, {"text": VALIDATION_TEXT}),
        ({"text": VALIDATION}, {"text": VALIDATION}),
        ({"text": ARGUMENTS}, {"text": ARGUMENTS}),
        (
            {"text": ARGUMENTS},
            {"text": 'Invalid arguments for tool "t": bad\n\nReceived arguments:\n{'},
        ),
        ({"text": ENGINE}, {"text": "anything"}),
        ({"text": ENGINE}, {"text": ENGINE}),
    ],
)
def test_equal_enough(golden, actual):
    """Section 12 of the format says what counts as equal."""
    assert differences(golden, actual) == []


@pytest.mark.parametrize(
    ("golden", "actual", "where"),
    [
        ({"args": {"a": None}}, {"args": {}}, ".args.a: missing"),
        ({"args": {}}, {"args": {"a": None}}, ".args.a: unexpected"),
        ({"args": {"durationMs": 1}}, {"args": {"durationMs": 2}}, ".args.durationMs: expected 1"),
        ({"a": 1}, {}, ".a: missing"),
        ({}, {"a": 1}, ".a: unexpected"),
        ({"n": 1}, {"n": True}, ".n: expected 1"),
        ({"n": False}, {"n": 0}, ".n: expected false"),
        ({"a": {}}, {"a": []}, ".a: expected {}"),
        ({"a": []}, {"a": {}}, ".a: expected []"),
        ({"a": [1, 2]}, {"a": [1]}, ".a[1]: missing"),
        ({"a": [1]}, {"a": [1, 2]}, ".a[1]: unexpected"),
        ({"a": "x" * 400}, {"a": 1}, "..."),
        ({"throws": {"code": "c"}}, {"throws": {"message": "c"}}, ".throws: expected code c"),
        ({"text": VALIDATION}, {"text": 3}, "validation error"),
        ({"text": VALIDATION}, {"text": "Validation failed"}, "validation error"),
        ({"text": VALIDATION}, {"text": VALIDATION_TEXT.replace("a.0", "a.1")}, "validation"),
        ({"text": VALIDATION}, {"text": VALIDATION_TEXT[:-1]}, "validation error"),
        ({"text": VALIDATION}, {"text": VALIDATION_TEXT.replace("    1", " 1")}, "validation"),
        ({"text": VALIDATION}, {"text": {"$validation": 1}}, "validation error"),
        ({"text": ARGUMENTS}, {"text": "Invalid"}, "invalid-arguments error"),
        ({"text": ENGINE}, {"text": ""}, "some error text"),
    ],
)  # fmt: skip
def test_difference_is_described(golden, actual, where):
    """A difference is told with its path, in one line."""
    (found,) = differences(golden, actual)

    assert where in found
    assert "\n" not in found


def test_first_different_entry_of_a_log_counts():
    """What follows the first different entry of a log is not listed."""
    golden = {"log": [{"a": 1}, {"a": 2}, {"a": 3}]}

    assert differences(golden, {"log": [{"a": 1}, {"a": 0}]}) == [".log[1].a: expected 2, got 0"]
    assert differences(golden, {"log": [{"a": 0, "b": 1}]}, limit=1) == [
        ".log[0].a: expected 1, got 0"
    ]


def test_dead_requests_do_not_count():
    """Requests after an abort are dropped on both sides, later ones are numbered anew."""
    abort, end = {"action": "abort"}, {"event": "agent_end"}
    golden = [{"request": 1}, abort, {"hook": "prepareRequest"}, {"callback": "onResponse"}]
    golden += [{"request": 2}, end, {"request": 3}]

    assert differences({"log": golden}, {"log": [{"request": 1}, abort, end, {"request": 2}]}) == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_waiting_takes_no_time(backend):
    """The clock jumps when everything waits, timers go off in order, and work takes time."""
    order: list[str] = []

    async def note(seconds: float, name: str) -> None:
        await anyio.sleep(seconds)
        order.append(name)

    async def work() -> float:
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note, 3600, "late")
            tasks.start_soon(note, 60, "early")
        while anyio.current_time() < began + 3600.05:
            await anyio.lowlevel.checkpoint()
        return anyio.current_time() - began

    assert 3600 < run_in_virtual_time(work, backend) < 3605
    assert order == ["early", "late"]
