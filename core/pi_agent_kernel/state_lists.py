"""The two lists of the state that the host may change in place: messages and tools."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex, cast

from pi_agent_kernel.log import EventLog
from pi_agent_kernel.messages import AgentMessage, SystemMessage
from pi_agent_kernel.tools import AgentTool
from pi_agent_kernel.wire import coerce_message

__all__ = ["MessageList", "ToolList"]


class _TrackedList(list[Any]):
    """Be a list that checks what comes in and counts its changes.

    `version` rises with every change, so that what is computed from the list can be kept.
    """

    __slots__ = ("_log", "appended", "version")

    field = ""
    version: int
    appended: int

    def __init__(self, items: Iterable[Any], log: EventLog) -> None:
        super().__init__(self._checked(list(items)))
        self._log = log
        self.version = 0
        #: How many changes since the last other one were appends by the run itself.
        self.appended = 0

    def shown(self) -> object:
        """Return what the log shows of the list: its length."""
        return len(self)

    @abstractmethod
    def _checked(self, items: list[Any]) -> list[Any]:
        """Return the items as the list takes them; raises for those it does not."""

    def _admit(self, edit: Callable[[list[Any]], object]) -> None:
        """Refuse an edit that adds what the list as a whole does not take."""

    def _edit(self, edit: Callable[[list[Any]], Any], added: Sequence[Any] | None = None) -> Any:
        before = self.shown()
        result = edit(self)
        self.version += 1
        self.appended = 0
        self._note(before, added)
        return result

    def _note(self, before: object, added: Sequence[Any] | None) -> None:
        """Tell the log of a change; `added` is what was put at the end, if it was just that."""
        del added
        self._log.note("state", self.field, (self.field, before, self.shown()))

    def _add(self, edit: Callable[[list[Any]], object], added: Sequence[Any] | None = None) -> None:
        self._admit(edit)
        self._edit(edit, added)

    def _count_appended(self) -> None:
        self.version += 1
        self.appended += 1

    # The methods of `list` itself, unbound: ours would come back here.

    def append(self, item: Any) -> None:
        [new] = self._checked([item])
        self._add(lambda items: list[Any].append(items, new), [new])

    def extend(self, iterable: Iterable[Any]) -> None:
        new = self._checked(list(iterable))
        self._add(lambda items: list[Any].extend(items, new), new)

    def insert(self, index: SupportsIndex, item: Any) -> None:
        [new] = self._checked([item])
        self._add(lambda items: list[Any].insert(items, index, new))

    def __setitem__(self, index: Any, item: Any) -> None:
        new = self._checked(list(item)) if isinstance(index, slice) else self._checked([item])[0]
        self._add(lambda items: list[Any].__setitem__(items, cast("Any", index), new))

    def __iadd__(self, iterable: Iterable[Any]) -> Any:
        self.extend(iterable)
        return self

    def __imul__(self, count: SupportsIndex) -> Any:
        self._add(lambda items: list[Any].__imul__(items, count))
        return self

    def pop(self, index: SupportsIndex = -1) -> Any:
        return self._edit(lambda items: list[Any].pop(items, index))

    def remove(self, value: Any) -> None:
        self._edit(lambda items: list[Any].remove(items, value))

    def clear(self) -> None:
        self._edit(list[Any].clear)

    def reverse(self) -> None:
        self._edit(list[Any].reverse)

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        self._edit(lambda items: list[Any].sort(items, key=key, reverse=reverse))

    def __delitem__(self, index: Any) -> None:
        self._edit(lambda items: list[Any].__delitem__(items, index))

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))


class MessageList(_TrackedList):
    """Be `state.messages`: the transcript, the host's to change between runs."""

    __slots__ = ()

    field = "messages"

    def _checked(self, items: list[Any]) -> list[Any]:
        return [coerce_message(item) for item in items]

    def _note(self, before: object, added: Sequence[Any] | None) -> None:
        if added is None:
            self._log.note_list(self.field, cast("int", before), self)
        else:
            change = (self.field, before, len(self))
            self._log.note("state", self.field, change, messages=tuple(added))

    def lead_with(self, head: SystemMessage) -> None:
        """Put the head of a new agent's transcript in front (CO-04)."""
        super(_TrackedList, self).insert(0, head)

    def append_by_run(self, message: AgentMessage) -> None:
        """Append what a run produced; the host does not call this (ST-06)."""
        super(_TrackedList, self).append(message)
        self._count_appended()


class ToolList(_TrackedList):
    """Be `state.tools`: what can be executed, each name once (DEVIATIONS 5)."""

    __slots__ = ()

    field = "tools"

    def shown(self) -> object:
        """Return what the log shows of the list: the names."""
        return tuple(tool.name for tool in self)

    def _checked(self, items: list[Any]) -> list[Any]:
        for item in items:
            if not isinstance(item, AgentTool):
                raise TypeError(
                    f"A tool is an AgentTool, not {type(item).__name__}: put @tool on a "
                    "function, or use AgentTool(...)."
                )
        _check_names(items)
        return items

    def _admit(self, edit: Callable[[list[Any]], object]) -> None:
        edited = list(self)
        edit(edited)
        _check_names(edited)


def _check_names(tools: list[AgentTool]) -> None:
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            raise ValueError(f"Two tools are named {tool.name!r}; a name may be used once.")
        names.add(tool.name)
