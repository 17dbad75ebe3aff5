"""Lists of messages that mostly repeat each other, kept without repeating them.

A log keeps what each request sent. Consecutive lists share their beginning; a chain holds each
message once, as long as a list is the last one and more. A list that parts from the last one
begins a new segment behind the part they share.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pi_agent_kernel.request import Prefix

__all__ = ["KeptMessages", "MessageChain"]


class _Segment:
    """Hold the messages that follow the first `begin` ones of another segment's lists."""

    __slots__ = ("begin", "items", "parent")

    def __init__(self, parent: _Segment | None, begin: int) -> None:
        self.parent: _Segment | None = parent
        self.begin: int = begin
        self.items: list[Any] = []

    def upto(self, length: int) -> list[Any]:
        parts: list[list[Any]] = []
        segment: _Segment | None = self
        while segment is not None:
            parts.append(segment.items[: max(0, length - segment.begin)])
            length = min(length, segment.begin)
            segment = segment.parent
        return [item for part in reversed(parts) for item in part]


class KeptMessages(Sequence[Any]):
    """Be one list of a chain; it is put together each time it is read as a whole."""

    __slots__ = ("_length", "segment")

    def __init__(self, segment: _Segment, length: int) -> None:
        self.segment: _Segment = segment
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.segment.upto(self._length))

    def __getitem__(self, index: Any) -> Any:
        return self.segment.upto(self._length)[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return list(self) == list(cast("Sequence[Any]", other))

    if not TYPE_CHECKING:
        __hash__ = None  # equal to lists, which have none

    def __repr__(self) -> str:
        return repr(list(self))


class MessageChain:
    """Keep lists of messages one after another, at the cost of what is new in each.

    A list that views the same growing list as the one before it (`Prefix`) is not compared.
    """

    __slots__ = ("_last", "_source")

    def __init__(self) -> None:
        self._last = KeptMessages(_Segment(None, 0), 0)
        self._source: Sequence[Any] | None = None

    def keep(self, messages: Sequence[Any]) -> KeptMessages:
        """Return a list that equals the given one now, whatever becomes of that."""
        segment, length = self._last.segment, len(self._last)
        source = self._source
        if isinstance(source, Prefix) and source.views_same_list(messages):
            length = min(length, len(messages))
        else:
            length = _shared(segment.upto(length), messages)
        while segment.parent is not None and length <= segment.begin:
            segment = segment.parent
        if length < segment.begin + len(segment.items) and length < len(messages):
            segment = _Segment(segment, length)
        segment.items.extend(islice(messages, length, None))
        self._source = messages if isinstance(messages, Prefix) else None
        self._last = KeptMessages(segment, len(messages))
        return self._last

    def keep_only(self, kept: Sequence[KeptMessages]) -> None:
        """Forget the messages that none of these lists, nor the last one, has."""
        needed: dict[_Segment, int] = {}
        for one in (*kept, self._last):
            segment, length = one.segment, len(one)
            while segment is not None and needed.get(segment, -1) < length:
                needed[segment] = length
                segment, length = segment.parent, min(length, segment.begin)
        for segment, length in needed.items():
            del segment.items[max(0, length - segment.begin) :]


def _shared(before: list[Any], messages: Sequence[Any]) -> int:
    """Count the messages that two lists begin with in common."""
    same = list(map(operator.is_, before, messages))
    length = same.index(False) if False in same else len(same)
    # What a hook made anew, and made the same, is kept once.
    for old, new in zip(islice(before, length, None), islice(messages, length, None), strict=False):
        if old is not new and not _equal(old, new):
            break
        length += 1
    return length


def _equal(old: Any, new: Any) -> bool:
    if type(old) is not type(new) or not isinstance(old, msgspec.Struct):
        return False
    try:
        return bool(old == new)
    except Exception:  # noqa: BLE001 - details of any kind, which may refuse to be compared
        return False
