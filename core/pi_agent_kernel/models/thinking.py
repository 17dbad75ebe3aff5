"""How hard a model thinks: levels, what a model takes of them, and the tokens they stand for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pi_agent_kernel.request import Model

__all__ = [
    "ANSWER_TOKENS",
    "THINKING_LEVELS",
    "Thinking",
    "clamp_thinking_level",
    "thinking_budget_for_level",
]

#: From none to most.
THINKING_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")

#: Tokens a level may think for where a provider wants a number.
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
#: Tokens that must be left for the answer.
ANSWER_TOKENS = 1024
#: Models have these only if their map says so.
_ONLY_IF_MAPPED = ("xhigh", "max")


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """Say how hard to think in one request."""

    #: One of `THINKING_LEVELS`.
    level: str
    #: The provider's own word for the level, if the model's map has one.
    word: str | None = None
    #: Tokens to think for, where a provider wants a number.
    budget: int = 0
    #: The most there is room for beside the answer; None if there is no limit.
    room: int | None = None

    @property
    def sent_as(self) -> str:
        """What the provider is told."""
        return self.word or self.level

    def tokens(self, least: int) -> int:
        """Return the tokens to think for, 0 if there is no room for the provider's least."""
        wanted = max(self.budget, least)
        fitted = wanted if self.room is None else min(wanted, self.room)
        return fitted if fitted >= least else 0


def clamp_thinking_level(model: Model, level: str) -> str:
    """Return the level a model takes that is nearest to the one asked for.

    A model that does not reason takes only "off". One that does takes every level up to "high",
    those its `thinking_level_map` maps, and none that it maps to None.

    Args:
        model: The model.
        level: The level asked for: off, minimal, low, medium, high, xhigh or max.

    Returns:
        The level itself, else the next higher one, else the next lower one; "off" if there is
        none at all.

    Raises:
        ValueError: There is no such level.

    Source: MD-21.
    """
    _check(level)
    if not model.reasoning:
        return "off"
    mapped = model.thinking_level_map or {}
    wanted = THINKING_LEVELS.index(level)
    search = (*THINKING_LEVELS[wanted:], *reversed(THINKING_LEVELS[:wanted]))
    for each in search:
        if mapped.get(each, None if each in _ONLY_IF_MAPPED or each in mapped else each):
            return each
    return "off"


def thinking_budget_for_level(
    level: str, budgets: Mapping[str, int] | None = None, *, max_tokens: int | None = None
) -> int:
    """Return the tokens a level may think for.

    Args:
        level: The thinking level; "xhigh" and "max" think as long as "high" unless `budgets`
            says otherwise.
        budgets: Tokens by level, in place of 1024, 2048, 8192 and 16384 for minimal to high.
        max_tokens: The limit of thinking and answer together; 1024 of them stay for the answer.

    Returns:
        The number of tokens, 0 for "off" and when there is no room to think.

    Raises:
        ValueError: There is no such level.

    Source: MD-21.
    """
    _check(level)
    if level == "off":
        return 0
    known = {**_BUDGETS, **(budgets or {})}
    budget = known.get(level, known["high"])
    if max_tokens is not None:
        budget = min(budget, max_tokens - ANSWER_TOKENS)
    return max(0, budget)


def _check(level: str) -> None:
    if level not in THINKING_LEVELS:
        raise ValueError(
            f"{level!r} is no thinking level; these are: {', '.join(THINKING_LEVELS)}."
        )
