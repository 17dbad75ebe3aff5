"""What one run may spend: it stops at the edge of a turn, and can go on from there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pi_agent_kernel.hooks import TurnDecision

if TYPE_CHECKING:
    from pi_agent_kernel.abort import AbortSignal
    from pi_agent_kernel.hooks import TurnContext
    from pi_agent_kernel.messages import Cost

__all__ = ["Budget", "Spending", "cost_is_known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Hold the limits of a run; None is none.

    Args:
        turns: Model responses.
        cost: US dollars.
        seconds: Time since the run began.
    """

    turns: int | None = None
    cost: float | None = None
    seconds: float | None = None


class Spending:
    """Follow what a run spends, and end it after the turn that used a limit up.

    Args:
        budget: The limits.
        queued: Whether something is queued, so that an answer is not the end.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        budget: Budget,
        queued: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget = budget
        self._queued = queued
        self._clock = clock
        self._began = clock()
        self._turns = 0
        self._cost = 0.0
        #: Why the run was ended; empty if it was not.
        self.reason = ""

    def finish_turn(self, turn: TurnContext, signal: AbortSignal | None) -> TurnDecision | None:
        """Decide after a turn: a `finish_turn` hook."""
        del signal
        cost = turn.message.usage.cost
        self._turns += 1
        self._cost += cost.total
        if not turn.tool_results and not self._queued():
            return None  # it stops here anyway
        self.reason = self._used_up(known=cost_is_known(cost))
        if not self.reason:
            return None
        return TurnDecision(action="end", origin=f"the budget: {self.reason}")

    def _used_up(self, *, known: bool) -> str:
        budget = self._budget
        if budget.turns is not None and self._turns >= budget.turns:
            return f"{self._turns} turn{'' if self._turns == 1 else 's'} used (--max-turns)"
        if budget.seconds is not None and self._clock() - self._began >= budget.seconds:
            return f"{budget.seconds:g} s used (--max-seconds)"
        if budget.cost is not None and not known:
            return "the price of this model is not known, so --max-cost cannot hold"
        if budget.cost is not None and self._cost >= budget.cost:
            return f"${budget.cost:g} used (--max-cost)"
        return ""


def cost_is_known(cost: Cost) -> bool:
    """Tell whether a response's price could be worked out; a free one counts as known."""
    return (cost.extra or {}).get("costKnown", True) is not False
