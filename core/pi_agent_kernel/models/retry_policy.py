"""How often, and how soon, a failed request is made again; light, because every agent has one."""

from __future__ import annotations

import msgspec

__all__ = ["DEFAULT_MAX_RETRIES", "RetryPolicy"]

DEFAULT_MAX_RETRIES = 2


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Say how often, and how soon, a failed reply is asked for again.

    Args:
        max_retries: How many attempts may follow the first one; those that a stream function
            makes by itself count.
        base_delay_ms: Milliseconds before the second attempt; doubled for each further one.
        max_delay_ms: Longest such delay.

    Raises:
        ValueError: One is not a whole number of 0 or more.

    Source: MD-22.
    """

    max_retries: int = DEFAULT_MAX_RETRIES
    base_delay_ms: int = 2_000
    max_delay_ms: int = 60_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} of a RetryPolicy is a whole number, 0 or more: {value!r}")

    def delay_ms(self, attempt: int) -> int:
        """Return the delay after a failed attempt, which count from 1."""
        return min(self.base_delay_ms << min(attempt - 1, 32), self.max_delay_ms)
