"""Read complete JSON text: strictly, and with the faults of model-written strings repaired."""

from __future__ import annotations

import json
import re
from typing import NoReturn, TypeAlias

from pi_agent_kernel.json_value import MAX_DEPTH

__all__ = ["ESCAPES", "JsonValue", "parse_strict_json", "repair_json"]

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

#: Pattern of the escapes that JSON knows.
ESCAPES = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'


def _reject_constant(name: str) -> NoReturn:
    message = f"{name} is not a JSON value"
    raise ValueError(message)


def _finite_float(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        message = f"the number {text[:40]} is too large"
        raise ValueError(message)
    return number


_TOO_DEEP: JsonValue = []

_strict = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_finite_float)


def parse_strict_json(text: str) -> JsonValue:
    """Return the value of complete JSON text; NaN and infinite numbers are errors (P6).

    Raises:
        ValueError: The text is not JSON, or nested deeper than `MAX_DEPTH`.
    """
    try:
        value = _strict.decode(text)
    except RecursionError:
        value = _TOO_DEEP
    if value is _TOO_DEEP or _is_deeper(value, MAX_DEPTH):
        message = "the value is nested too deeply"
        raise ValueError(message)
    return value


def _is_deeper(value: JsonValue, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_WRONG_IN_STRING = re.compile(rf"{ESCAPES}|\\|[\x00-\x1f]")


def _repair_character(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) > 1:
        return found
    return "\\\\" if found == "\\" else f"\\u{ord(found):04x}"


def repair_json(text: str) -> str:
    r"""Return `text` with the two usual faults of model-written strings repaired.

    Inside string literals, raw control characters are escaped and a backslash that begins no
    valid escape (`\d`, `\usepackage`) is doubled. Everything else stays as it is.

    Source: MD-08, B08.
    """
    return _STRING.sub(lambda string: _WRONG_IN_STRING.sub(_repair_character, string[0]), text)
