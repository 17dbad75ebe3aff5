"""The conversation of one agent as a tree, of which the transcript is the active branch.

    main          system ── user ── assistant ── user ── assistant
                                        └─ user ── assistant          aside-1

An entry is one message, and knows the one before it. A branch is a name and its last entry. What
one run adds is a turn, and a turn belongs to the cell that ran it: running that cell again goes
back to before its turn. Nothing is ever taken out of the tree: what a branch leaves behind is kept
under a name, `aside-1`, `aside-2` …

The transcript itself stays the agent's: `follow` takes in whatever has become of it, and the other
operations return the messages that it is to have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pi_agent_kernel.messages import SystemMessage

if TYPE_CHECKING:
    from pi_agent_kernel.messages import AgentMessage

__all__ = ["Branch", "Branches", "SetAside"]

#: Of the message that holds the system prompt.
_NO_TURN = 0

MAIN = "main"
ASIDE = "aside-"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    message: AgentMessage
    parent: _Entry | None
    #: Number of the turn that added it; numbers rise.
    turn: int
    #: Id of the cell that ran that turn, if a cell did.
    cell: str | None


@dataclass(frozen=True, slots=True)
class SetAside:
    """Say what a branch left behind, and under which name it is kept."""

    branch: str
    turns: int
    messages: tuple[AgentMessage, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """Describe one branch."""

    name: str
    is_active: bool
    turns: int
    messages: int
    #: How many of its messages the active branch has too.
    shared: int


class Branches:
    """Keep every branch of one agent's conversation, in memory."""

    def __init__(self) -> None:
        self._tips: dict[str, _Entry | None] = {MAIN: None}
        self._active = MAIN
        self._turns = 0
        self._asides = 0

    @property
    def active(self) -> str:
        """The name of the branch that the transcript is."""
        return self._active

    def messages(self, name: str | None = None) -> list[AgentMessage]:
        """Return the messages of a branch, by default the active one.

        Raises:
            ValueError: There is no such branch.
        """
        return [entry.message for entry in self._path(self._tip(name or self._active))]

    def follow(self, transcript: Sequence[AgentMessage], cell: str | None = None) -> int:
        """Take in what has become of the transcript.

        Args:
            transcript: All of its messages.
            cell: Id of the cell whose run added the new ones, if one did.

        Returns:
            How many messages were new. What the transcript no longer has is set aside.
        """
        path = self._path(self._tips[self._active])
        same = 0
        for entry, message in zip(path, transcript, strict=False):
            if entry.message is not message and entry.message != message:
                break
            same += 1
        if same < len(path):
            self._set_aside(path[same:])
        tip = path[same - 1] if same else None
        if same < len(transcript):
            self._turns += 1
            for message in transcript[same:]:
                if tip is None and isinstance(message, SystemMessage):
                    tip = _Entry(message, None, _NO_TURN, None)  # what every turn stands on
                else:
                    tip = _Entry(message, tip, self._turns, cell)
        self._tips[self._active] = tip
        return len(transcript) - same

    def has_turn_of(self, cell: str) -> bool:
        """Tell whether the active branch has a turn of a cell."""
        return any(entry.cell == cell for entry in self._path(self._tips[self._active]))

    def rewind_to(self, cell: str) -> SetAside | None:
        """Go back to before the turn of a cell; its turn and those after it are set aside.

        Returns:
            What was set aside; None if the active branch has no turn of that cell.
        """
        path = self._path(self._tips[self._active])
        first = next((place for place, entry in enumerate(path) if entry.cell == cell), None)
        return None if first is None else self._cut(path, first)

    def undo(self, turns: int = 1) -> SetAside:
        """Go back by some turns; they are set aside.

        Raises:
            ValueError: The number is not positive, or there are not so many.
        """
        path = self._path(self._tips[self._active])
        starts = _starts(path)
        if turns < 1:
            raise ValueError(f"undo takes a number of turns, 1 or more, not {turns}")
        if turns > len(starts):
            raise ValueError(f"there are {len(starts)} turns to undo, not {turns}")
        return self._cut(path, starts[-turns])

    def fork(self, name: str) -> None:
        """Begin a branch where the active one ends, and make it the active one.

        Raises:
            ValueError: The name is taken, or is none.
        """
        if not _NAME.fullmatch(name) or name.startswith(ASIDE):
            raise ValueError(
                f"{name!r} is no name for a branch: use letters, digits, - _ and ., 40 at most, "
                f"and not {ASIDE}…"
            )
        if name in self._tips:
            raise ValueError(f"there is a branch {name!r} already: %agent switch {name}")
        self._tips[name] = self._tips[self._active]
        self._active = name

    def switch(self, name: str) -> list[AgentMessage]:
        """Make another branch the active one.

        Returns:
            The messages the transcript is to have.

        Raises:
            ValueError: There is no such branch.
        """
        self._tip(name)
        self._active = name
        return self.messages()

    def __iter__(self) -> Iterator[Branch]:
        active = self._path(self._tips[self._active])
        on_active = {id(entry) for entry in active}
        for name, tip in self._tips.items():
            path = self._path(tip)
            yield Branch(
                name=name,
                is_active=name == self._active,
                turns=len(_starts(path)),
                messages=len(path),
                shared=sum(id(entry) in on_active for entry in path),
            )

    def __len__(self) -> int:
        return len(self._tips)

    def _tip(self, name: str) -> _Entry | None:
        if name not in self._tips:
            raise ValueError(f"there is no branch {name!r} (there is: {', '.join(self._tips)})")
        return self._tips[name]

    @staticmethod
    def _path(tip: _Entry | None) -> list[_Entry]:
        path: list[_Entry] = []
        while tip is not None:
            path.append(tip)
            tip = tip.parent
        path.reverse()
        return path

    def _cut(self, path: list[_Entry], first: int) -> SetAside:
        self._tips[self._active] = path[first - 1] if first else None
        return self._set_aside(path[first:])

    def _set_aside(self, left: list[_Entry]) -> SetAside:
        """Keep what the active branch leaves behind reachable."""
        held = next((name for name, tip in self._tips.items() if self._holds(name, left[-1])), None)
        if held is None:
            self._asides += 1
            held = f"{ASIDE}{self._asides}"
            self._tips[held] = left[-1]
        return SetAside(held, len(_starts(left)), tuple(entry.message for entry in left))

    def _holds(self, name: str, entry: _Entry) -> bool:
        """Tell whether a branch other than the active one has an entry."""
        return name != self._active and any(each is entry for each in self._path(self._tips[name]))


def _starts(path: Sequence[_Entry]) -> list[int]:
    """Return where each turn of a path begins."""
    return [
        place
        for place, entry in enumerate(path)
        if entry.turn != _NO_TURN and (not place or entry.turn != path[place - 1].turn)
    ]
