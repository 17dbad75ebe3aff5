"""Convert loosely typed tool arguments to what their schema asks for.

Models write "3" for 3, one value for a list of one, null for "not given". Three passes, as in
the reference: drop null from optional properties that refuse it; convert by `$ref`, `const`,
`enum`, unions, `allOf` and `type`; then, for type lists, the more careful primitive rules. A
value no rule applies to stays as it is, for validation to report. Unlike the reference no value
is invented: null and blank text never become 0, False, "" or "null" (DEVIATIONS 10).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.schema_checks import equality_key, is_number
from pi_agent_kernel.schema_references import resolve_reference
from pi_agent_kernel.schema_text_rules import matches_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from pi_agent_kernel.schema_checks import Schema

__all__ = ["coerce", "number_text"]

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BASED = re.compile(r"0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_BLANK = " \t\n\r\v\f\u00a0\u2028\u2029\ufeff"
_EXACT = 2**53
_OBJECT_KEYWORDS = ("properties", "patternProperties")
_NULL_TEXTS = ("null", "undefined", "", "0")


def number_text(value: float) -> str:
    """Return a number as JSON and JavaScript write it: 5 for 5.0, 1e-7 for 1e-07."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    if "e" not in text:
        return text
    digits, _, exponent = text.partition("e")
    power = int(exponent)
    if -7 < power < 0:
        sign = "-" if digits.startswith("-") else ""
        return f"{sign}0.{'0' * (-power - 1)}{digits.lstrip('-').replace('.', '')}"
    return f"{digits}e{power:+d}"


def _parse_number(text: str) -> int | float | None:
    """Return the number a text spells, or None; blank text spells none."""
    text = text.strip(_BLANK)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        number: int | float = int(text) if _INTEGER.fullmatch(text) else float(text)
    except ValueError:  # more digits than Python converts
        return None
    if isinstance(number, float):
        if not is_number(number):
            return None
        if number.is_integer() and abs(number) < _EXACT:
            return int(number)
    return number


def _to_number(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        word = value.lower()
        if word in ("true", "false"):
            return int(word == "true")
        number = _parse_number(value)
        return value if number is None else number
    return value


def _to_integer(value: Any) -> Any:
    number = _to_number(value)
    return int(number) if is_number(number) else value


def _to_boolean(value: Any) -> Any:
    if isinstance(value, str):
        word = value.lower()
        if word in ("true", "1"):
            return True
        if word in ("false", "0"):
            return False
    elif is_number(value) and value in (0, 1):
        return bool(value)
    return value


def _to_string(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return number_text(value) if is_number(value) else value


def _to_null(value: Any) -> Any:
    if isinstance(value, str):
        return None if value.lower() in _NULL_TEXTS else value
    if value is False or (is_number(value) and value == 0):
        return None
    return value


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "number": _to_number,
    "integer": _to_integer,
    "boolean": _to_boolean,
    "string": _to_string,
    "null": _to_null,
}


def _is_integral(value: Any) -> bool:
    return is_number(value) and (isinstance(value, int) or value.is_integer())


def _primitive(wanted: str, value: Any) -> tuple[bool, Any]:
    """Try one type of a type list; return whether it applies, and the converted value."""
    converted: Any = value
    match wanted:
        case "number" | "integer":
            if isinstance(value, bool):
                return True, int(value)
            converted = _parse_number(value) if isinstance(value, str) else value
            whole = wanted == "integer"
            applies = _is_integral(converted) if whole else is_number(converted)
            return applies, int(converted) if applies and whole else converted
        case "boolean":
            if isinstance(value, str):
                return value in ("true", "false"), value == "true"
            return is_number(value) and value in (0, 1), bool(value)
        case "string":
            return isinstance(value, bool) or is_number(value), _to_string(value)
        case "null":
            return value == "" or value is False or (is_number(value) and value == 0), None
        case _:
            return False, converted


_HAS_TYPE: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _whole_numbers(value: Any) -> Any:
    """Return a copy with int for every whole float: as JSON, 4.0 and 4 are one number."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {name: _whole_numbers(item) for name, item in members}
    if isinstance(value, list):
        return [_whole_numbers(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return value


def coerce(value: Any, root: Schema, check: Callable[[Any, Any], bool]) -> Any:
    """Return `value` converted for the schema `root`; `value` itself is not changed.

    Args:
        value: A plain JSON value.
        root: The whole schema.
        check: Tells whether a value is valid for a schema that occurs in `root`.

    Source: pi-schema 1.6.0, "Coercion"; DEVIATIONS 10; TL-07.
    """
    coercion = _Coercion(root, check)
    value = _whole_numbers(value)
    for one_pass in (coercion.drop_nulls, coercion.convert, coercion.refine):
        value = one_pass(root, value)
    return value


class _Coercion:
    """Hold what the passes over one value share."""

    def __init__(self, root: Schema, check: Callable[[Any, Any], bool]) -> None:
        self._root = root
        self._check = check
        # Results by pass, schema and value. Kept with both, so that no id is used again. An
        # entry exists while its value is being worked out, which ends endless recursion.
        self._known: dict[tuple[str, int, int], tuple[Any, Any, Any]] = {}

    def _once(self, name: str, schema: Any, value: Any, work: Callable[[], Any]) -> Any:
        key = (name, id(schema), id(value))
        if key not in self._known:
            self._known[key] = (schema, value, value)
            self._known[key] = (schema, value, work())
        return self._known[key][2]

    def _target(self, schema: dict[str, Any]) -> Any:
        try:
            return resolve_reference(self._root, schema["$ref"])
        except (LookupError, AttributeError):
            return None

    def drop_nulls(self, schema: Any, value: Any) -> Any:
        """Drop null from optional properties that refuse it, in `value` and below."""
        if not isinstance(schema, dict) or not isinstance(value, (dict, list)):
            return value
        node = cast("dict[str, Any]", schema)

        def work() -> Any:
            if "$ref" in node:
                return self.drop_nulls(self._target(node), value)
            return self._descend(node, value, self.drop_nulls)

        return self._once("drop", schema, value, work)

    def convert(self, schema: Any, value: Any) -> Any:
        """Convert by the first keyword that applies."""
        if not isinstance(schema, dict):
            return value
        node = cast("dict[str, Any]", schema)
        return self._once("convert", schema, value, lambda: self._convert(node, value))

    def _convert(self, schema: dict[str, Any], value: Any) -> Any:
        if "$ref" in schema:
            return self.convert(self._target(schema), value)
        if "const" in schema:
            return _to_member([schema["const"]], value)
        if isinstance(schema.get("enum"), list):
            return _to_member(schema["enum"], value)
        branches = schema.get("anyOf") or schema.get("oneOf")
        if branches:
            return self._convert_union(schema, branches, value)
        if "allOf" in schema:
            for item in schema["allOf"]:
                value = self.convert(item, value)
        return self._convert_by_type(schema, value)

    def _convert_union(self, schema: dict[str, Any], branches: list[Any], value: Any) -> Any:
        if isinstance(value, (dict, list)):
            value = self._descend(schema, value, self.convert)
        if any(self._check(branch, value) for branch in branches):
            return value
        for branch in branches:
            candidate = self.convert(branch, value)
            if self._check(schema, candidate):
                return candidate
        return value

    def _convert_by_type(self, schema: dict[str, Any], value: Any) -> Any:
        wanted = schema.get("type")
        if isinstance(wanted, list):
            return value  # left to the last pass
        if wanted in _CONVERSIONS:
            return value if _HAS_TYPE[wanted](value) else _CONVERSIONS[wanted](value)
        items = schema.get("items")
        if wanted == "array" or (wanted is None and items is not None):
            is_tuple = "prefixItems" in schema or isinstance(items, list)
            if not isinstance(value, list) and value is not None and not is_tuple:
                value = [value]
        elif wanted is None and schema.keys().isdisjoint(
            (*_OBJECT_KEYWORDS, "additionalProperties")
        ):
            return value
        return self._descend(schema, value, self.convert)

    def refine(self, schema: Any, value: Any) -> Any:
        """Apply the primitive rules, which convert only what keeps its meaning exactly."""
        if not isinstance(schema, dict):
            return value
        node = cast("dict[str, Any]", schema)
        return self._once("refine", schema, value, lambda: self._refine(node, value))

    def _refine(self, schema: dict[str, Any], value: Any) -> Any:
        if "$ref" in schema:
            return self.refine(self._target(schema), value)
        for item in schema.get("allOf", ()):
            value = self.refine(item, value)
        branches = schema.get("anyOf") or schema.get("oneOf") or ()
        if branches and not any(self._check(branch, value) for branch in branches):
            for branch in branches:
                candidate = self.refine(branch, value)
                if self._check(schema, candidate):
                    return candidate
        wanted = schema.get("type")
        names = cast(
            "list[str]", wanted if isinstance(wanted, list) else [wanted] if wanted else []
        )
        if not any(name in _HAS_TYPE and _HAS_TYPE[name](value) for name in names):
            for name in names:
                applies, converted = _primitive(name, value)
                if applies:
                    return converted
        return self._descend(schema, value, self.refine)

    def _descend(self, schema: dict[str, Any], value: Any, visit: Callable[[Any, Any], Any]) -> Any:
        """Return a copy of a container with each member or item visited by its own schema."""
        if isinstance(value, list):
            return self._descend_items(schema, cast("list[Any]", value), visit)
        if not isinstance(value, dict):
            return value
        properties: dict[str, Any] = schema.get("properties") or {}
        patterns: dict[str, Any] = schema.get("patternProperties") or {}
        additional = schema.get("additionalProperties")
        required = schema.get("required") or ()
        result: dict[str, Any] = {}
        for name, item in cast("dict[str, Any]", value).items():
            known = properties.get(name)
            droppable = item is None and known is not None and name not in required
            if droppable and visit != self.refine and self._refuses_null(known):
                continue
            matching = [sub for pattern, sub in patterns.items() if matches_pattern(pattern, name)]
            if name in properties:
                matching.insert(0, known)
            changed = item
            for sub in matching or [additional]:
                changed = visit(sub, changed)
            result[name] = changed
        return result

    def _refuses_null(self, schema: Any) -> bool:
        if isinstance(schema, dict) and "$ref" in schema:
            node = cast("dict[str, Any]", schema)
            if self._target(node) is None:
                return False  # a dangling reference is reported, not hidden
        return not self._check(schema, None)

    def _descend_items(
        self, schema: dict[str, Any], value: list[Any], visit: Callable[[Any, Any], Any]
    ) -> list[Any]:
        items = schema.get("items")
        prefix: list[Any] = schema.get("prefixItems") or []
        if isinstance(items, list):
            prefix, items = cast("list[Any]", items), None
        return [
            visit(prefix[index] if index < len(prefix) else items, item)
            for index, item in enumerate(value)
        ]


def _to_member(members: list[Any], value: Any) -> Any:
    """Return the first member that `value` converts to, or `value`."""
    own_key = equality_key(value)
    if any(equality_key(member) == own_key for member in members):
        return value
    if isinstance(value, (dict, list)) or value is None:
        return cast("Any", value)
    for member in members:
        if isinstance(member, bool):
            converted = _to_boolean(value)
        elif is_number(member):
            converted = _to_number(value)
        elif isinstance(member, str):
            converted = _to_string(value)
        else:
            continue
        if equality_key(converted) == equality_key(member):
            return member
    return value
