"""What `explain` answers: sentences that cite the log, and the steps they are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec

__all__ = ["Answer", "Explanation"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Be one cause, in words.

    Args:
        text: One sentence: what happened, and why.
        events: Numbers of the records of the log that show it, the telling one first.
        row: Id of the rule that it follows from.
        remedy: What to do; empty if there is nothing to do.
        is_problem: Whether it is something that a reader would want to be told unasked.
    """

    text: str
    events: tuple[int, ...] = ()
    row: str = ""
    remedy: str = ""
    is_problem: bool = True

    def __str__(self) -> str:
        shown = list(dict.fromkeys(self.events))
        cited = [f"#{seq}" for seq in shown[:8]] + ["…"] * (len(shown) > 8)
        place = "; ".join(part for part in (", ".join(cited), self.row) if part)
        sentence = f"{self.text} [{place}]" if place else self.text
        return f"{sentence} {self.remedy}".rstrip()


class Explanation(str):
    """Be what `explain` says: a text, which keeps its answers apart from the steps it tells.

    Args:
        answers: The causes.
        steps: Lines of the form "#12 ...".
        head: Lines that go before both.
    """

    __slots__ = ("answers", "head", "steps")

    answers: tuple[Answer, ...]
    steps: tuple[str, ...]
    head: tuple[str, ...]

    def __new__(
        cls, answers: Sequence[Answer] = (), steps: Sequence[str] = (), head: Sequence[str] = ()
    ) -> Self:
        """Write the head, the answers, then the steps."""
        made = super().__new__(cls, "\n".join([*head, *map(str, answers), *steps]))
        made.answers, made.steps, made.head = tuple(answers), tuple(steps), tuple(head)
        return made

    def __getnewargs__(self) -> Any:
        return (self.answers, self.steps, self.head)

    def __repr__(self) -> str:
        return str(self)
