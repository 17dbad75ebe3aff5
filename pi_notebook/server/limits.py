"""How much each user may ask for: requests a minute, tokens a day, streams at a time."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from pi_notebook.server.allowed import RefusedError

__all__ = ["Limits", "Visit"]

_MINUTE = 60.0  # seconds
_DAY = 86_400


class Visit:
    """One request that was let in; `tokens` is what it used, set before it ends."""

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens = 0


class _Account:
    """What one user has used."""

    __slots__ = ("requests", "streams", "tokens")

    def __init__(self) -> None:
        self.requests: deque[float] = deque()
        self.streams = 0
        self.tokens = 0


class Limits:
    """Count what each user uses, and refuse what is too much. 0 is no limit."""

    def __init__(
        self, *, requests_per_minute: int, tokens_per_day: int, concurrent_streams: int
    ) -> None:
        self._requests_per_minute = requests_per_minute
        self._tokens_per_day = tokens_per_day
        self._concurrent_streams = concurrent_streams
        self._accounts: dict[str, _Account] = {}
        self._day = 0

    def describe(self) -> dict[str, int]:
        """Return the limits by their names on the wire."""
        return {
            "requestsPerMinute": self._requests_per_minute,
            "tokensPerDay": self._tokens_per_day,
            "concurrentStreams": self._concurrent_streams,
        }

    @contextmanager
    def visit(self, user: str) -> Iterator[Visit]:
        """Let a request of a user in for as long as the block runs.

        Raises:
            RefusedError: With status 429, which limit it is and when to try again.
        """
        account = self._account(user)
        self._check(account)
        account.requests.append(time.monotonic())
        account.streams += 1
        visit = Visit()
        try:
            yield visit
        finally:
            account.streams -= 1
            account.tokens += visit.tokens

    def _account(self, user: str) -> _Account:
        day = int(time.time()) // _DAY
        if day != self._day:
            self._day = day
            last_minute = time.monotonic() - _MINUTE
            self._accounts = {
                name: each
                for name, each in self._accounts.items()
                if each.streams or (each.requests and each.requests[-1] > last_minute)
            }
            for account in self._accounts.values():
                account.tokens = 0
        return self._accounts.setdefault(user, _Account())

    def _check(self, account: _Account) -> None:
        now = time.monotonic()
        recent = account.requests
        while recent and recent[0] <= now - _MINUTE:
            recent.popleft()
        if 0 < self._tokens_per_day <= account.tokens:
            wait = _DAY - int(time.time()) % _DAY
            raise RefusedError(
                429,
                f"Your {self._tokens_per_day:,} tokens of today are used up; there are new ones "
                f"at midnight UTC, in {wait // 3600} h {wait % 3600 // 60} min.",
                wait,
            )
        if 0 < self._concurrent_streams <= account.streams:
            raise RefusedError(
                429,
                f"You have {account.streams} responses streaming, as many as this server allows "
                "at a time. Wait for one of them, or stop one.",
                1,
            )
        if 0 < self._requests_per_minute <= len(recent):
            wait = max(1, math.ceil(recent[0] + _MINUTE - now))
            raise RefusedError(
                429,
                f"This server allows {self._requests_per_minute} requests a minute. Try again in "
                f"{wait} s.",
                wait,
            )
