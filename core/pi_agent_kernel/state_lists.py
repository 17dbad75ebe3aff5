"""The two lists of the state that the host may change in place: messages and tools."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

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

    def _become(self, items: list[Any]) -> None:
        before = self.shown()
        super().__setitem__(slice(None), self._checked(items))
        self._note(before)

    def _note(self, before: object) -> None:
        self.version += 1
        self.appended = 0
        self._log.note("state", self.field, (self.field, before, self.shown()))

    def _count_appended(self) -> None:
        self.version += 1
        self.appended += 1

    def _edit(self, edit: Callable[[list[Any]], Any]) -> Any:
        items = list(self)
        result = edit(items)
        self._become(items)
        return result

    def append(self, item: Any) -> None:
        self._edit(lambda items: items.append(item))

    def extend(self, iterable: Iterable[Any]) -> None:
        self._edit(lambda items: items.extend(iterable))

    def insert(self, index: SupportsIndex, item: Any) -> None:
        self._edit(lambda items: items.insert(index, item))

    def pop(self, index: SupportsIndex = -1) -> Any:
        return self._edit(lambda items: items.pop(index))

    def remove(self, value: Any) -> None:
        self._edit(lambda items: items.remove(value))

    def clear(self) -> None:
        self._become([])

    def reverse(self) -> None:
        self._edit(lambda items: items.reverse())

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        self._edit(lambda items: items.sort(key=key, reverse=reverse))

    def __setitem__(self, index: Any, item: Any) -> None:
        self._edit(lambda items: items.__setitem__(index, item))

    def __delitem__(self, index: Any) -> None:
        self._edit(lambda items: items.__delitem__(index))

    def __iadd__(self, iterable: Iterable[Any]) -> Any:
        self.extend(iterable)
        return self

    def __imul__(self, count: SupportsIndex) -> Any:
        self._edit(lambda items: items.__imul__(count))
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))


class MessageList(_TrackedList):
    """Be `state.messages`: the transcript, the host's to change between runs."""

    __slots__ = ()

    field = "messages"

    def _checked(self, items: list[Any]) -> list[Any]:
        return [coerce_message(item) for item in items]

    def append(self, item: Any) -> None:
        """Append one message; a dict of the wire form is taken too."""
        super(_TrackedList, self).append(coerce_message(item))
        self._note(len(self) - 1)

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
        names: set[str] = set()
        for item in items:
            if not isinstance(item, AgentTool):
                raise TypeError(
                    f"A tool is an AgentTool, not {type(item).__name__}: put @tool on a "
                    "function, or use AgentTool(...)."
                )
            if item.name in names:
                raise ValueError(f"Two tools are named {item.name!r}; a name may be used once.")
            names.add(item.name)
        return items
