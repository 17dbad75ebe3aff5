"""JSON values that cannot be changed, so a message can be handed to anyone.

`FrozenDict` and `FrozenList` are a `dict` and a `list` whose every mutating method raises: they
compare, print, index and serialise like the plain ones, which keeps `json`, pattern matching
and equality with literals working. `freeze` copies once at the border, `thaw` gives a plain,
deep, private copy back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

__all__ = ["EMPTY", "MAX_DEPTH", "FrozenDict", "FrozenList", "freeze", "thaw"]

#: How deep a value may be nested: what every later step can walk without running out of stack.
MAX_DEPTH = 200


def _refuse(self: object, *_args: object, **_kwargs: object) -> NoReturn:
    kind = "dict" if isinstance(self, dict) else "list"
    raise TypeError(
        f"This {kind} belongs to a message or an event, which never change (DEVIATIONS 11): "
        "work on a copy, thaw(value)."
    )


class FrozenDict(dict[str, Any]):
    """Be a dict that refuses every change."""

    __slots__ = ()

    if not TYPE_CHECKING:  # for a type checker it is a dict; a FrozenDict is mostly read
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenDict, (dict(self),))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict:
        return self


class FrozenList(list[Any]):
    """Be a list that refuses every change."""

    __slots__ = ()

    if not TYPE_CHECKING:  # as above
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
        append = extend = insert = pop = remove = _refuse
        clear = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenList, (list(self),))

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenList:
        return self


#: The empty object, shared: most results have no details.
EMPTY = FrozenDict()


def freeze(value: Any, *, levels: int = MAX_DEPTH) -> Any:
    """Copy a JSON value into one that cannot change.

    Args:
        value: Any value; dicts, lists and tuples are copied, everything else is kept as it is.
        levels: How many containers may be nested in one another.

    Returns:
        The frozen value; a value that is already frozen is returned itself, in O(1).

    Raises:
        ValueError: The value is nested deeper, or contains itself.
    """
    if isinstance(value, (str, FrozenDict, FrozenList)):
        return cast("Any", value)
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        inner = _next_level(levels)
        frozen = {key: freeze(item, levels=inner) for key, item in items.items()}
        return FrozenDict(frozen) if items else EMPTY
    if isinstance(value, (list, tuple)) and not hasattr(cast("object", value), "_fields"):
        inner = _next_level(levels)
        return FrozenList([freeze(item, levels=inner) for item in cast("list[Any]", value)])
    return cast("Any", value)


def _next_level(levels: int) -> int:
    if levels <= 0:
        message = "the value is nested too deeply"
        raise ValueError(message)
    return levels - 1


def thaw(value: Any) -> Any:
    """Copy a JSON value into plain dicts and lists that the caller owns.

    Args:
        value: Any value; dicts, lists and tuples are copied deeply, everything else is kept.

    Returns:
        The copy.
    """
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in cast("list[Any]", value)]
    return value
