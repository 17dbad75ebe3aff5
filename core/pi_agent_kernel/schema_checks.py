"""Compile a JSON Schema into plain closures that answer one question: is this value valid?

The closures cost well under a microsecond each and need no validation library. They cover the
keywords tool schemas use. A schema with others (`unevaluatedProperties`, dynamic or non-local
references, ...) raises `UndecidableSchemaError` when compiled; then `schema_errors` decides.
Stricter than the standard in one point: 4.0 is no integer here, so that coercion turns it into
the int 4 (P7 and the note on "3.0" in section 23 of the specification).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from pi_agent_kernel.schema_references import is_legacy_draft, resolve_pointer
from pi_agent_kernel.schema_text_rules import has_format, matches_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Check",
    "CheckCompiler",
    "Schema",
    "UndecidableSchemaError",
    "equality_key",
    "is_number",
    "json_type",
]

Schema: TypeAlias = "dict[str, Any] | bool"
Check: TypeAlias = "Callable[[Any], bool]"

_INFINITY = float("inf")
_UNDECIDED = frozenset(
    {
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$recursiveRef",
        "$vocabulary",
        "dependencies",
        "disallow",
        "divisibleBy",
        "extends",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)


class UndecidableSchemaError(Exception):
    """Say that a schema uses keywords the closures do not cover."""


def is_number(value: object) -> bool:
    """Return whether `value` is a finite JSON number; True and False are not (P6, P7)."""
    kind = type(value)
    return kind is int or (kind is float and -_INFINITY < cast("float", value) < _INFINITY)


def json_type(value: object) -> str:
    """Return the JSON Schema type of a value, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return type(value).__name__


def equality_key(value: Any) -> object:
    """Return a hashable key, equal for values that are equal as JSON: 1 and 1.0, not 1 and True."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, (list, tuple)):
        return ("array", tuple(equality_key(item) for item in cast("list[Any]", value)))
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return ("object", frozenset((key, equality_key(item)) for key, item in members))
    return value


def _always(_value: Any) -> bool:
    return True


def _never(_value: Any) -> bool:
    return False


_TYPE_CHECKS: dict[str, Check] = {
    "string": lambda value: isinstance(value, str),
    # 3.0 is an integer to JSON Schema; validation sees to it that coercion makes it 3.
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": is_number,
    "boolean": lambda value: value is True or value is False,
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class CheckCompiler:
    """Compile the schemas that occur in one root schema; each is compiled once.

    Args:
        root: The whole schema; local references start there.
        python_formats: Whether dates and times are what pydantic takes (`has_format`).
    """

    def __init__(self, root: Schema, *, python_formats: bool = False) -> None:
        self._python_formats = python_formats
        self._root = root
        self._legacy = isinstance(root, dict) and is_legacy_draft(root)
        # Keeps the schema alive beside its check, so that an id is never that of another one.
        self._checks: dict[int, tuple[Any, list[Check]]] = {}

    def compile(self, schema: Any) -> Check:
        """Return the check of one schema.

        Raises:
            UndecidableSchemaError: It uses a keyword outside the covered ones.
        """
        if schema is True:
            return _always
        if schema is False:
            return _never
        if not isinstance(schema, dict):  # the validator says what is wrong with it
            raise UndecidableSchemaError
        known = self._checks.get(id(cast("Any", schema)))
        if known is not None:
            check = known[1]
            # Still being compiled: a recursive schema looks its check up when it is called.
            return check[0] if check else _later(check)
        slot: list[Check] = []
        self._checks[id(cast("Any", schema))] = (schema, slot)
        slot.append(self._combine(cast("dict[str, Any]", schema)))
        return slot[0]

    def _combine(self, schema: dict[str, Any]) -> Check:
        if not _UNDECIDED.isdisjoint(schema) or ("$id" in schema and schema is not self._root):
            raise UndecidableSchemaError
        checks: list[Check] = []
        if "$ref" in schema:
            checks.append(self._reference(schema["$ref"]))
            if self._legacy:
                return checks[0]
        if "type" in schema:
            checks.append(self._type(schema["type"]))
        if "const" in schema:
            checks.append(_one_of([schema["const"]]))
        if "enum" in schema:
            checks.append(_one_of(schema["enum"]))
        checks += _number_checks(schema)
        checks += _string_checks(schema, python_formats=self._python_formats)
        checks += self._object_checks(schema)
        checks += self._array_checks(schema)
        checks += self._combined_checks(schema)
        if not checks:
            return _always
        if len(checks) == 1:
            return checks[0]
        first, *others = checks

        def check_all(value: Any) -> bool:
            if not first(value):
                return False
            for check in others:  # noqa: SIM110 - a generator costs more than the checks
                if not check(value):
                    return False
            return True

        return check_all

    def _reference(self, reference: Any) -> Check:
        if not isinstance(reference, str) or (
            not reference.startswith("#/") and reference not in ("#", "#/")
        ):
            raise UndecidableSchemaError
        try:
            return self.compile(resolve_pointer(self._root, reference))
        except LookupError:
            return _never

    @staticmethod
    def _type(wanted: Any) -> Check:
        if isinstance(wanted, str):
            return _TYPE_CHECKS.get(wanted, _never)
        if not isinstance(wanted, (list, tuple)):
            raise UndecidableSchemaError
        names = cast("list[Any]", wanted)
        checks = [_TYPE_CHECKS[name] for name in names if name in _TYPE_CHECKS]
        return lambda value: any(check(value) for check in checks)

    def _compile_map(self, schemas: Any) -> dict[str, Check]:
        if not isinstance(schemas, dict):
            raise UndecidableSchemaError
        items = cast("dict[str, Any]", schemas).items()
        return {name: self.compile(schema) for name, schema in items}

    def _object_checks(self, schema: dict[str, Any]) -> list[Check]:
        checks: list[Check] = []
        required = schema.get("required")
        if isinstance(required, (list, tuple)) and required:
            names = frozenset(cast("list[str]", required))
            checks.append(lambda value: not isinstance(value, dict) or names <= value.keys())
        if not schema.keys().isdisjoint(
            ("properties", "patternProperties", "additionalProperties")
        ):
            properties = self._compile_map(schema.get("properties", {}))
            patterns = self._compile_map(schema.get("patternProperties", {}))
            additional = self.compile(schema.get("additionalProperties", True))
            checks.append(_members(properties, patterns, additional))
        if "propertyNames" in schema:
            name_check = self.compile(schema["propertyNames"])
            checks.append(
                lambda value: (
                    not isinstance(value, dict)
                    or all(map(name_check, cast("dict[str, Any]", value)))
                )
            )
        checks += _size_checks(schema, dict, "minProperties", "maxProperties")
        if "dependentRequired" in schema:
            needed = cast("dict[str, list[str]]", schema["dependentRequired"]).items()
            checks.append(
                lambda value: (
                    not isinstance(value, dict)
                    or all(
                        name not in value or value.keys() >= set(names) for name, names in needed
                    )
                )
            )
        if "dependentSchemas" in schema:
            dependent = self._compile_map(schema["dependentSchemas"]).items()
            checks.append(
                lambda value: (
                    not isinstance(value, dict)
                    or all(name not in value or check(value) for name, check in dependent)
                )
            )
        return checks

    def _array_checks(self, schema: dict[str, Any]) -> list[Check]:
        checks: list[Check] = []
        if "items" in schema and "type" not in schema:
            # Coercion wraps a single value here even though it would be valid as it is.
            raise UndecidableSchemaError
        prefix = schema.get("prefixItems", ())
        rest = schema.get("items", True)
        if isinstance(rest, (list, tuple)):  # a tuple, as drafts before 2020-12 wrote it
            prefix = cast("list[Any]", rest)
            rest = schema.get("additionalItems", True)
        starts = [self.compile(item) for item in cast("list[Any]", prefix)]
        item_check = self.compile(rest)
        if starts or item_check is not _always:
            count = len(starts)

            def check_items(value: Any) -> bool:
                if not isinstance(value, list):
                    return True
                items = cast("list[Any]", value)
                if count:
                    if not all(check(item) for check, item in zip(starts, items, strict=False)):
                        return False
                    items = items[count:]
                return all(map(item_check, items))

            checks.append(check_items)
        checks += _size_checks(schema, list, "minItems", "maxItems")
        if schema.get("uniqueItems") is True:
            checks.append(
                lambda value: (
                    not isinstance(value, list)
                    or len({equality_key(item) for item in cast("list[Any]", value)})
                    == len(cast("list[Any]", value))
                )
            )
        if "contains" in schema:
            wanted = self.compile(schema["contains"])
            least, most = schema.get("minContains", 1), schema.get("maxContains", _INFINITY)
            checks.append(
                lambda value: (
                    not isinstance(value, list)
                    or least <= sum(map(wanted, cast("list[Any]", value))) <= most
                )
            )
        return checks

    def _combined_checks(self, schema: dict[str, Any]) -> list[Check]:
        checks: list[Check] = []
        if "allOf" in schema:
            checks += [self.compile(item) for item in schema["allOf"]]
        if "anyOf" in schema:
            branches = [self.compile(item) for item in schema["anyOf"]]
            checks.append(lambda value: any(check(value) for check in branches))
        if "oneOf" in schema:
            alternatives = [self.compile(item) for item in schema["oneOf"]]
            checks.append(lambda value: sum(check(value) for check in alternatives) == 1)
        if "not" in schema:
            refused = self.compile(schema["not"])
            checks.append(lambda value: not refused(value))
        if "if" in schema:
            condition = self.compile(schema["if"])
            then = self.compile(schema.get("then", True))
            otherwise = self.compile(schema.get("else", True))
            checks.append(lambda value: then(value) if condition(value) else otherwise(value))
        return checks


def _later(slot: list[Check]) -> Check:
    """Return the check that will stand in `slot`."""

    def check(value: Any) -> bool:
        return slot[0](value)

    return check


def _one_of(members: Any) -> Check:
    keys = {equality_key(member) for member in members}
    return lambda value: equality_key(value) in keys


def _members(properties: dict[str, Check], patterns: dict[str, Check], additional: Check) -> Check:
    if not patterns and additional is _always:
        pairs = tuple(properties.items())

        def check_known(value: Any) -> bool:
            if isinstance(value, dict):
                members = cast("dict[str, Any]", value)
                for name, check in pairs:
                    if name in members and not check(members[name]):
                        return False
            return True

        return check_known

    def check_members(value: Any) -> bool:
        if not isinstance(value, dict):
            return True
        for name, item in cast("dict[str, Any]", value).items():
            matched = name in properties
            if matched and not properties[name](item):
                return False
            for pattern, check in patterns.items():
                if matches_pattern(pattern, name):
                    matched = True
                    if not check(item):
                        return False
            if not matched and not additional(item):
                return False
        return True

    return check_members


def _bound(schema: dict[str, Any], keyword: str) -> Any:
    bound = schema.get(keyword)
    if bound is not None and not is_number(bound):
        raise UndecidableSchemaError
    return bound


def _size_checks(schema: dict[str, Any], kind: type, least: str, most: str) -> list[Check]:
    low, high = _bound(schema, least), _bound(schema, most)
    checks: list[Check] = []
    if low is not None:
        checks.append(lambda value: not isinstance(value, kind) or len(cast("str", value)) >= low)
    if high is not None:
        checks.append(lambda value: not isinstance(value, kind) or len(cast("str", value)) <= high)
    return checks


def _number_checks(schema: dict[str, Any]) -> list[Check]:
    checks: list[Check] = []
    if (minimum := _bound(schema, "minimum")) is not None:
        checks.append(lambda value: not is_number(value) or value >= minimum)
    if (maximum := _bound(schema, "maximum")) is not None:
        checks.append(lambda value: not is_number(value) or value <= maximum)
    if (above := _bound(schema, "exclusiveMinimum")) is not None:
        checks.append(lambda value: not is_number(value) or value > above)
    if (below := _bound(schema, "exclusiveMaximum")) is not None:
        checks.append(lambda value: not is_number(value) or value < below)
    if (step := _bound(schema, "multipleOf")) is not None:
        if step <= 0:
            raise UndecidableSchemaError
        checks.append(lambda value: not is_number(value) or _is_multiple(value, step))
    return checks


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    from fractions import Fraction

    # By the decimal text, so that 1.13 is a multiple of 0.01 as its writer meant.
    return (Fraction(repr(value)) / Fraction(repr(step))).denominator == 1


def _string_checks(schema: dict[str, Any], *, python_formats: bool) -> list[Check]:
    checks = _size_checks(schema, str, "minLength", "maxLength")
    pattern, text_format = schema.get("pattern"), schema.get("format")
    if isinstance(pattern, str):
        checks.append(lambda value: not isinstance(value, str) or matches_pattern(pattern, value))
    if isinstance(text_format, str):
        checks.append(
            lambda value: (
                not isinstance(value, str) or has_format(text_format, value, python=python_formats)
            )
        )
    return checks
