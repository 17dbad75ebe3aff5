"""Walk the subschemas of a JSON Schema and follow its references, without leaving it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "SCHEMAS",
    "SCHEMA_MAPS",
    "is_legacy_draft",
    "resolve_pointer",
    "resolve_reference",
    "subschemas",
]

#: Keywords whose value holds schemas by name.
SCHEMA_MAPS = (
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
)
#: Keywords whose value is a schema or a list of schemas.
SCHEMAS = (
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema object in a schema; constants and defaults are not schemas."""
    if isinstance(schema, (list, tuple)):
        for item in cast("list[Any]", schema):
            yield from subschemas(item)
    elif isinstance(schema, dict):
        node = cast("dict[str, Any]", schema)
        yield node
        for keyword in SCHEMAS:
            yield from subschemas(node.get(keyword))
        for keyword in SCHEMA_MAPS:
            members = node.get(keyword)
            if isinstance(members, dict):
                yield from subschemas(list(cast("dict[str, Any]", members).values()))


_MODERN = ("2020-12", "2019-09")


def is_legacy_draft(root: Mapping[str, Any]) -> bool:
    """Return whether `$schema` names a draft before 2019-09, where `$ref` hides its siblings."""
    draft = root.get("$schema")
    return isinstance(draft, str) and not any(modern in draft for modern in _MODERN)


def resolve_pointer(root: Any, reference: str) -> Any:
    """Return what a local reference such as `#/$defs/x` names.

    Raises:
        LookupError: It names nothing, or is not local.
    """
    if reference in ("#", "#/"):
        return root
    if not reference.startswith("#/"):
        raise LookupError(reference)
    from urllib.parse import unquote

    found = root
    for part in unquote(reference[2:]).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            if not name.isdecimal() or int(name) >= len(cast("list[Any]", found)):
                raise LookupError(reference)
            found = cast("list[Any]", found)[int(name)]
        elif isinstance(found, dict) and name in found:
            found = cast("dict[str, Any]", found)[name]
        else:
            raise LookupError(reference)
    if not isinstance(found, (dict, bool)):
        raise LookupError(reference)  # noqa: TRY004 - there is no schema at that place
    return cast("Any", found)


def resolve_reference(root: Any, reference: str) -> Any:
    """Return what a reference names inside `root`: by pointer, by `$anchor` or by `$id`.

    Raises:
        LookupError: It names nothing in there.
    """
    if reference == "#" or reference.startswith("#/"):
        return resolve_pointer(root, reference)
    identity, _, fragment = reference.partition("#")
    for node in subschemas(root):
        if identity and node.get("$id") == identity:
            return resolve_reference(node, f"#{fragment}")
        if not identity and fragment in (node.get("$anchor"), node.get("$dynamicAnchor")):
            return node
    raise LookupError(reference)
