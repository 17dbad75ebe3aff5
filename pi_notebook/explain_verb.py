"""`%agent explain` and `pi.explain`: why it went as it did, each answer with its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pi_notebook import frontend
from pi_notebook.registry import agents
from pi_notebook.render.status import table_bundle

if TYPE_CHECKING:
    from pi_agent_kernel.agent import Agent
    from pi_agent_kernel.explain import Answer, Explanation

    from pi_notebook.render.bundle import MimeBundle

__all__ = ["ShownExplanation", "explain", "show_explanation"]


class ShownExplanation:
    """Show an explanation as the last expression of a cell.

    Args:
        explanation: What `agent.explain` said.
    """

    def __init__(self, explanation: Explanation) -> None:
        self.explanation = explanation

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Each cause, with its records, its rule and a remedy."""
        return self.explanation.answers

    def __str__(self) -> str:
        return str(self.explanation)

    def __repr__(self) -> str:
        return self.bundle()["text/plain"]

    def bundle(self) -> MimeBundle:
        """Build what the cell shows: a row for each answer, then the steps."""
        told = self.explanation
        answers = [
            (_cited(answer), "\n".join(filter(None, (answer.text, answer.remedy))))
            for answer in told.answers
        ]
        return table_bundle([*map(_step, told.head), *answers, *map(_step, told.steps)])

    def _repr_mimebundle_(self, **_options: Any) -> MimeBundle:
        return self.bundle()


def explain(question: str | None = None, *, agent: Agent | None = None) -> ShownExplanation:
    """Say why an agent did what it did.

    Args:
        question: Such as "why did sql not run?"; the last run by default.
        agent: The agent; the current one by default.
    """
    return ShownExplanation((agent or agents.current).explain(question))


def show_explanation(text: str) -> None:
    """Be `%agent explain [QUESTION]`."""
    frontend.publish(explain(text or None).bundle())


def _step(line: str) -> tuple[str, str]:
    number, _, text = line.partition(" ")
    return (number, text) if number.startswith("#") else ("", line)


def _cited(answer: Answer) -> str:
    return " ".join(f"#{seq}" for seq in dict.fromkeys(answer.events[:3])) or answer.row
