"""What tools returned, kept as it is: `pi.agent.results`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pi_notebook.tool_view import Value, table_of

__all__ = ["Results"]

#: How many objects are kept; older ones make room.
KEPT = 100
TIMES = " \N{MULTIPLICATION SIGN} "
_PLAIN = (str, bytes, bool, int, float, list, tuple, dict, set, frozenset)


class Results(Mapping[str, Any]):
    """Hold the last objects that tools returned.

    Each has a short name, `c1` for the first call of the agent, `c2` for the second, which its
    card shows; the id of the call finds it, too.
    """

    def __init__(self, owner: str = "pi.agent") -> None:
        self._owner = owner
        self._values: dict[str, Any] = {}
        self._names: dict[str, str] = {}  # by call id
        self._calls = 0

    def __getitem__(self, key: str) -> Any:
        try:
            return self._values[self._names.get(key, key)]
        except KeyError:
            have = ", ".join(self) or "none yet"
            raise KeyError(f"no result is named {key!r} (there is: {have})") from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._values, key=lambda name: int(name[1:])))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        rows = (f"{name}: {type(self[name]).__name__}" for name in self)
        return f"<results: {', '.join(rows) or 'none yet'}>"

    @property
    def last(self) -> Any:
        """The newest object, or None."""
        return next(reversed(list(self._values.values())), None)

    def begin(self, call_id: str) -> str:
        """Name the next call; names go by the order in which calls begin."""
        self._calls += 1
        name = f"c{self._calls}"
        self._names.pop(call_id, None)
        self._names[call_id] = name
        while len(self._names) > 10 * KEPT:
            del self._names[next(iter(self._names))]
        return name

    def keep(self, name: str, value: Any) -> Value | None:
        """Keep what a call returned; return its picture if its card does not show all of it."""
        if value is None:
            return None
        self._values[name] = value
        while len(self._values) > KEPT:
            del self._values[next(iter(self._values))]
        if isinstance(value, _PLAIN) or hasattr(value, "structured_content"):
            return None
        try:
            table = table_of(value)
            kind = _kind(value)
        except Exception:  # noqa: BLE001 - it only looked like a table
            table, kind = None, type(value).__name__
        return Value(kind=kind, name=f'{self._owner}.results["{name}"]', table=table)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    size = (
        TIMES.join(map(str, shape))
        if isinstance(shape, tuple) and shape and not isinstance(value, type)
        else ""
    )
    return f"{type(value).__name__} {size}".strip()
