"""Decide about any JSON Schema with `jsonschema`, and say what is wrong in a model's words.

Imported only when the closures of `schema_checks` say "invalid" or cannot tell. The schema is
first made safe: references that name nothing become `false`, so that only their place rejects
values, and nothing is ever fetched (the registry is empty). Messages are short and name no
Python type; a missing or unknown property is reported at its own path.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import jsonschema
import referencing
from jsonschema import validators
from jsonschema.exceptions import ValidationError

from pi_agent_kernel.schema_checks import (
    equality_key,
    is_number,
    json_type,
)
from pi_agent_kernel.schema_references import (
    SCHEMA_MAPS,
    SCHEMAS,
    is_legacy_draft,
    resolve_pointer,
    subschemas,
)
from pi_agent_kernel.schema_text_rules import format_example, has_format, matches_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pi_agent_kernel.schema_checks import Schema

__all__ = ["SchemaValidator"]

_MAX_ERRORS = 50
# Keywords that say more about a `false` than that no value is allowed.
_REFUSALS = ("additionalProperties", "unevaluatedItems", "unevaluatedProperties")
_MAX_MESSAGE = 300


class _References:
    """Tell which references of a schema can be followed without leaving it."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        nodes = list(subschemas(root))
        self.has_nested_ids = any("$id" in node for node in nodes if node is not root)
        self._names = {
            f"#{node[keyword]}"
            for node in nodes
            for keyword in ("$anchor", "$dynamicAnchor")
            if isinstance(node.get(keyword), str)
        }
        self.all_local = all(
            str(node[keyword]).startswith("#")
            for node in nodes
            for keyword in ("$ref", "$dynamicRef")
            if keyword in node
        )

    def dangles(self, reference: Any) -> bool:
        if not isinstance(reference, str):
            return True
        if reference in self._names or self.has_nested_ids:
            return False
        if reference.startswith("#"):
            try:
                resolve_pointer(self._root, reference)
            except LookupError:
                return True
            return False
        identity = str(self._root.get("$id", ""))
        return reference.partition("#")[0] != identity.partition("#")[0]


def _safe_copy(root: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a schema that `jsonschema` can use without surprises."""
    references = _References(root)
    legacy = is_legacy_draft(root)

    def copy(schema: Any) -> Any:
        if isinstance(schema, (list, tuple)):
            return [copy(item) for item in cast("list[Any]", schema)]
        if schema is False:
            return {_NEVER: True}
        if not isinstance(schema, dict):
            return schema
        node: dict[str, Any] = dict(cast("dict[str, Any]", schema))
        if "$ref" in node and references.dangles(node["$ref"]):
            return {_UNRESOLVED: str(node["$ref"])}
        for keyword in SCHEMAS:
            if keyword in node and not (node[keyword] is False and keyword in _REFUSALS):
                node[keyword] = copy(node[keyword])
        for keyword in SCHEMA_MAPS:
            members = node.get(keyword)
            if isinstance(members, dict):
                items = cast("dict[str, Any]", members).items()
                node[keyword] = {name: copy(item) for name, item in items}
        if isinstance(node.get("items"), list) and not legacy:
            node["prefixItems"] = node["items"]
            node["items"] = node.pop("additionalItems", True)
        return node

    safe = copy(root)
    if references.all_local and not references.has_nested_ids:
        # A relative root id must not decide where "#/$defs/x" is looked up (B14).
        safe.pop("$id", None)
    return safe


#: Stand for a reference that names nothing, and for `false`, whose errors lack their path.
_UNRESOLVED = "x-unresolved-reference"
_NEVER = "x-never"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "…"


# A keyword function gets (validator, keyword's value, instance, schema), as in jsonschema.
_Errors = "Iterator[ValidationError]"


def _type(_v: Any, wanted: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    names: list[str] = [wanted] if isinstance(wanted, str) else list(wanted)
    actual = json_type(value)
    fits = (
        actual in names
        or (actual == "integer" and "number" in names)
        or (isinstance(value, float) and value.is_integer() and "integer" in names)
    )
    if isinstance(value, float) and not is_number(value):
        fits, actual = False, "a number that is not finite"
    if not fits:
        yield ValidationError(f"expected {' or '.join(names)}, got {actual}")


def _format_check(*, python: bool) -> Any:
    def check(_v: Any, name: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
        if not isinstance(value, str) or not isinstance(name, str):
            return
        if not has_format(name, value, python=python):
            example = format_example(name, python=python)
            shown = "" if example is None else f", for example {example}"
            yield ValidationError(f"expected format {name}{shown}")

    return check


def _pattern(_v: Any, pattern: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not matches_pattern(pattern, value):
        yield ValidationError(f"expected to match {pattern}")


def _required(_v: Any, names: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, dict) and isinstance(names, (list, tuple)):
        for name in cast("list[str]", names):
            if name not in value:
                yield ValidationError("missing", path=[name])


def _dependent_required(
    _v: Any, needed: Any, value: Any, _schema: Any
) -> Iterator[ValidationError]:
    if isinstance(value, dict):
        for name, names in cast("dict[str, list[str]]", needed).items():
            for other in names:
                if name in value and other not in value:
                    yield ValidationError(f"required when {name} is present", path=[other])


def _additional(v: Any, extra: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for name, item in cast("dict[str, Any]", value).items():
        if name in known or any(matches_pattern(pattern, name) for pattern in patterns):
            continue
        if extra is False:
            yield ValidationError("unknown field", path=[name])
        else:
            yield from v.descend(item, extra, path=name)


def _pattern_properties(
    v: Any, patterns: Any, value: Any, _schema: Any
) -> Iterator[ValidationError]:
    if isinstance(value, dict):
        for pattern, schema in cast("dict[str, Any]", patterns).items():
            for name, item in cast("dict[str, Any]", value).items():
                if matches_pattern(pattern, name):
                    yield from v.descend(item, schema, path=name, schema_path=pattern)


def _unevaluated(v: Any, extra: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    standard = jsonschema.Draft202012Validator.VALIDATORS["unevaluatedProperties"]
    if any(True for _ in standard(v, extra, value, schema)):
        known = schema.get("properties", {})
        unknown = [name for name in cast("dict[str, Any]", value) if name not in known]
        for name in unknown or [""]:
            yield ValidationError("unknown field", path=[name] if name else [])


def _property_names(v: Any, schema: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, dict):
        for name in cast("dict[str, Any]", value):
            if any(True for _ in v.descend(name, schema)):
                yield ValidationError("invalid property name", path=[name])


def _tag_error(branches: list[Any], value: Any) -> ValidationError | int | None:
    """Return the branch a tag selects, an error at the tag, or None where there is no tag."""
    if not isinstance(value, dict) or not all(isinstance(branch, dict) for branch in branches):
        return None
    maps: list[dict[str, Any]] = [branch.get("properties") or {} for branch in branches]
    for name in maps[0]:
        tags = [members.get(name) for members in maps]
        if all(isinstance(tag, dict) and "const" in tag for tag in tags):
            names = [tag["const"] for tag in cast("list[dict[str, Any]]", tags)]
            keys = [equality_key(tag) for tag in names]
            own_key = equality_key(cast("dict[str, Any]", value).get(name))
            if own_key in keys:
                return keys.index(own_key)
            return ValidationError(f"expected one of {_short(names)}", path=[name])
    return None


def _union(v: Any, branches: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """Report the errors of the branch that was most likely meant."""
    found: list[list[ValidationError]] = []
    for index, branch in enumerate(branches):
        errors = list(v.descend(value, branch, schema_path=index))
        if not errors:
            return
        found.append(errors)
    tag = _tag_error(branches, value)
    if isinstance(tag, ValidationError):
        yield tag
        return
    own = [errors for errors in found if not any(_is_about_itself(error) for error in errors)]
    yield from found[tag] if tag is not None else (own or found)[0]


def _is_about_itself(error: ValidationError) -> bool:
    return error.validator in ("type", "enum", "const") and not error.relative_path


def _one_of(v: Any, branches: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    valid = sum(v.evolve(schema=branch).is_valid(value) for branch in branches)
    if valid > 1:
        yield ValidationError("matches more than one alternative")
    elif not valid:
        yield from _union(v, branches, value, schema)


def _unresolved(_v: Any, reference: Any, _value: Any, _schema: Any) -> Iterator[ValidationError]:
    yield ValidationError(f"unresolved reference {reference}")


def _never(_v: Any, _true: Any, _value: Any, _schema: Any) -> Iterator[ValidationError]:
    yield ValidationError("no value is allowed here")


def _plain(keyword: str, message: Callable[[Any], str]) -> Any:
    """Return the draft's own check of a keyword with another message."""
    standard = jsonschema.Draft202012Validator.VALIDATORS[keyword]

    def check(v: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        for _ in standard(v, wanted, value, schema) or ():
            yield ValidationError(message(wanted))
            return

    return check


_KEYWORDS: dict[str, Any] = {
    _NEVER: _never,
    _UNRESOLVED: _unresolved,
    "additionalProperties": _additional,
    "anyOf": _union,
    "const": _plain("const", lambda wanted: f"expected {_short(wanted)}"),
    "contains": _plain("contains", lambda _wanted: "too few or too many matching items"),
    "dependentRequired": _dependent_required,
    "enum": _plain("enum", lambda wanted: f"expected one of {_short(wanted)}"),
    "format": _format_check(python=False),
    "maxItems": _plain("maxItems", lambda wanted: f"expected at most {wanted} items"),
    "maxLength": _plain("maxLength", lambda wanted: f"expected at most {wanted} characters"),
    "maxProperties": _plain("maxProperties", lambda wanted: f"expected at most {wanted} fields"),
    "minItems": _plain("minItems", lambda wanted: f"expected at least {wanted} items"),
    "minLength": _plain("minLength", lambda wanted: f"expected at least {wanted} characters"),
    "minProperties": _plain("minProperties", lambda wanted: f"expected at least {wanted} fields"),
    "multipleOf": _plain("multipleOf", lambda wanted: f"expected a multiple of {wanted}"),
    "not": _plain("not", lambda _wanted: "must not match the schema in not"),
    "oneOf": _one_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "propertyNames": _property_names,
    "required": _required,
    "type": _type,
    "unevaluatedProperties": _unevaluated,
    "uniqueItems": _plain("uniqueItems", lambda _wanted: "expected unique items"),
}
# Draft 4 gives the exclusive bounds another meaning, so there these stay the draft's own.
_BOUNDS: dict[str, Any] = {
    "exclusiveMaximum": _plain("exclusiveMaximum", lambda wanted: f"expected < {wanted}"),
    "exclusiveMinimum": _plain("exclusiveMinimum", lambda wanted: f"expected > {wanted}"),
    "maximum": _plain("maximum", lambda wanted: f"expected <= {wanted}"),
    "minimum": _plain("minimum", lambda wanted: f"expected >= {wanted}"),
}


_extend = cast("Any", validators).extend


class SchemaValidator:
    """Validate values against one schema of any draft since 3.

    Args:
        root: The schema; it is copied.
        python_formats: Whether dates and times are what pydantic takes (`has_format`).
    """

    def __init__(self, root: Schema, *, python_formats: bool = False) -> None:
        schema: Any = _safe_copy(root) if isinstance(root, dict) else root
        draft = cast(
            "Any", validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        )
        keywords = dict(_KEYWORDS)
        keywords["format"] = _format_check(python=python_formats)
        if "const" in draft.VALIDATORS:
            keywords.update(_BOUNDS)
        known = {
            name: keywords[name]
            for name in keywords
            if name in draft.VALIDATORS or name in (_NEVER, _UNRESOLVED)
        }
        self._validator = _extend(draft, known)(
            schema, registry=cast("Any", referencing).Registry()
        )

    def is_valid(self, value: Any, schema: Any) -> bool:
        """Return whether `value` is valid for a schema that occurs in the root."""
        safe: Any = (
            _safe_copy(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else schema
        )
        try:
            return bool(self._validator.evolve(schema=safe).is_valid(value))
        except Exception:  # noqa: BLE001 - whatever a malformed schema makes the library raise
            return False

    def errors(self, value: Any) -> list[tuple[str, str]]:
        """Return what is wrong with `value`: pairs of a dotted path and a message.

        At most 50 pairs. Where the type is wrong, nothing else is said about that place.
        """
        try:
            found = list(self._validator.iter_errors(value))
        except Exception as error:  # noqa: BLE001 - whatever a malformed schema makes it raise
            return [("root", f"cannot be checked, the tool's schema is not valid: {error}"[:500])]
        mistyped = {tuple(error.absolute_path) for error in found if error.validator == "type"}
        lines: dict[tuple[str, str], None] = {}
        for error in found:
            path = tuple(error.absolute_path)
            if path in mistyped and error.validator != "type":
                continue
            lines[".".join(map(str, path)) or "root", error.message[: 2 * _MAX_MESSAGE]] = None
        return list(lines)[:_MAX_ERRORS]
