"""The language of scenarios, as far as it needs no agent: rules, templates, JSON texts.

A rule is `{"when": {fact: value}, "do": [steps]}`; a template is a string with `{{path}}` in it
(FORMAT.md, section 6).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeGuard

from pi_agent_kernel import thaw

__all__ = [
    "Json",
    "RuleSet",
    "ScenarioError",
    "ScriptedError",
    "chunks",
    "compact_json",
    "fill",
    "is_array",
    "is_object",
    "is_subset",
    "matches",
    "snake_case",
]

Json = dict[str, Any]

_TEMPLATE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


class ScenarioError(Exception):
    """Say why a scenario cannot be executed; it has failed."""


class ScriptedError(Exception):
    """Be the exception that a `throw` step raises; its text is the step's."""


def is_object(value: Any) -> TypeGuard[Json]:
    """Say whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Say whether a JSON value is a list."""
    return isinstance(value, list)


class RuleSet:
    """Match candidates against rules and count them.

    Args:
        rules: The rules, in order; they are not changed.

    Source: FORMAT.md, section 6.
    """

    def __init__(self, rules: Sequence[Json]) -> None:
        self._rules = rules
        self._counts = [0] * len(rules)

    def matching(self, facts: Mapping[str, Any]) -> list[Sequence[Json]]:
        """Match one candidate against every rule and count it.

        Args:
            facts: What is known of the candidate.

        Returns:
            The steps of each matching rule, in order.
        """
        return [
            rule.get("do", ())
            for index, rule in enumerate(self._rules)
            if self._counts_as_match(index, rule.get("when", {}), facts)
        ]

    def first(self, facts: Mapping[str, Any]) -> Sequence[Json] | None:
        """Return the steps of the first matching rule; every rule counts the candidate."""
        return next(iter(self.matching(facts)), None)

    def _counts_as_match(self, index: int, when: Json, facts: Mapping[str, Any]) -> bool:
        if not matches(when, facts):
            return False
        self._counts[index] += 1
        return "nth" not in when or when["nth"] == self._counts[index]


def matches(when: Json, facts: Mapping[str, Any]) -> bool:
    """Say whether a candidate meets all conditions but `nth`."""
    return all(
        value == "*" or is_subset(value, facts.get(fact))
        for fact, value in when.items()
        if fact != "nth"
    )


def is_subset(expected: Any, actual: Any) -> bool:
    """Say whether all that is expected is there: objects and lists may hold more."""
    if is_object(expected):
        return is_object(actual) and all(
            key in actual and is_subset(value, actual[key]) for key, value in expected.items()
        )
    if is_array(expected):
        return (
            is_array(actual)
            and len(expected) <= len(actual)
            and all(map(is_subset, expected, actual))
        )
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return bool(expected == actual)


def fill(value: Any, variables: Mapping[str, Any]) -> Any:
    """Fill the templates in every string of a JSON value.

    Args:
        value: The value; it is not changed.
        variables: What the paths lead into.

    Returns:
        The filled copy. A string that is one template becomes the value itself, null if missing;
        inside a longer string a value that is no string becomes compact JSON.
    """
    if isinstance(value, str):
        whole = _TEMPLATE.fullmatch(value)
        if whole:
            return thaw(_look_up(whole[1], variables))
        return _TEMPLATE.sub(lambda match: _as_text(_look_up(match[1], variables)), value)
    if is_object(value):
        return {key: fill(item, variables) for key, item in value.items()}
    if is_array(value):
        return [fill(item, variables) for item in value]
    return value


def _look_up(path: str, variables: Mapping[str, Any]) -> Any:
    value: Any = variables
    for name in path.split("."):
        if is_object(value):
            value = value.get(name)
        elif is_array(value) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else compact_json(value)


def compact_json(value: Any) -> str:
    """Write JSON as the reference does: no spaces, only the needed escapes, `1.0` as `1`."""
    if isinstance(value, float):
        return _number(value)
    if is_object(value):
        members = (f"{_string(key)}:{compact_json(item)}" for key, item in value.items())
        return "{" + ",".join(members) + "}"
    if is_array(value):
        return "[" + ",".join(map(compact_json, value)) + "]"
    return _string(value)


def _string(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if 1e-6 <= abs(value) < 1e21:
        return format(Decimal(repr(value)), "f")
    return re.sub(r"e([+-])0*", r"e\1", repr(value))


def chunks(text: str) -> Iterator[str]:
    """Cut a text into pieces of 16 UTF-16 code units; an empty text is one empty piece.

    A character beyond the basic plane may be cut in two, as in the reference; its halves are
    then lone surrogates.
    """
    units = text.encode("utf-16-le", "surrogatepass")
    for start in range(0, len(units) or 1, 32):
        yield units[start : start + 32].decode("utf-16-le", "surrogatepass")


def snake_case(name: str) -> str:
    """Turn a camelCase name of a scenario into the package's."""
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), name)
