"""What a panel is made from: an agent, its log as read so far, and the words for both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.log import UpdateSpan

from pi_notebook.inspector.reading import Reading
from pi_notebook.inspector.words import Words, seconds

if TYPE_CHECKING:
    from pi_agent_kernel.agent import Agent

    from pi_notebook.inspector.reading import Step

__all__ = ["Scene"]


@dataclass(frozen=True, slots=True)
class Scene:
    """Hold what the panels of one agent are made from.

    Args:
        agent: Any agent; one of a notebook also has approvals and branches.
        reading: Its log.
        words: How to say things.
    """

    agent: Agent
    reading: Reading
    words: Words

    @classmethod
    def of(cls, agent: Agent, *, exact: bool) -> Scene:
        """Read the log of an agent.

        Args:
            agent: The agent.
            exact: Tell also times, costs and ids.
        """
        return cls(agent, Reading(agent.log), Words(exact=exact))

    @property
    def exact(self) -> bool:
        """Whether times, costs and ids are told."""
        return self.words.exact

    def moment(self, step: Step) -> str:
        """Return when in its run a step was; empty where times are not told, or outside of runs."""
        if not self.exact:
            return ""
        run = self.reading.run_of(step.seq)
        if run is None or step.time < run.time:
            return ""
        last = step.last if isinstance(step, UpdateSpan) else step.seq
        if run.last is not None and last > run.last + 1:  # agent_idle comes right after
            return ""
        until = step.until if isinstance(step, UpdateSpan) else step.time
        return seconds(until - run.time)

    def writer(self, step: Step | None) -> str:
        """Name the event that wrote something, and its moment."""
        if step is None:
            return "at the start"
        host = getattr(step.event, "name", None) if not isinstance(step, UpdateSpan) else None
        if step.type == "host_call":
            named = f"host: {'assigned' if host == 'state' else self.words.line(str(host), 40)}"
        else:
            named = step.type
        number = step.last if isinstance(step, UpdateSpan) else step.seq
        moment = self.moment(step)
        return f"#{number} {named}" + (f" · {moment}" if moment else "")

    def in_notebook(self, name: str) -> Any:
        """Return what only an agent of a notebook has; None for any other."""
        return getattr(self.agent, name, None)
