"""Take out of a cassette what must not be kept, and what only chance has chosen.

Secrets become `[redacted]`. Ids of tool calls that were made up on this side of the wire, because
the provider sent none, become numbers: they would differ from one recording to the next.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from pi_agent_kernel.secrecy import (
    REDACTED,
    SHORTEST_SECRET,
    Redaction,
    Span,
    environment_secrets,
    replaced,
)

if TYPE_CHECKING:
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["REDACTED", "Redactor"]

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_MADE_UP = (
    ("pyd_ai_", re.compile(r"(?P<made>pyd_ai_[0-9a-f]{32})")),
    ("tool:", re.compile(r"(?P<made>\btool:[0-9a-f]{12,}:\d+\b)")),
)
_SCHEMES = re.compile(r"(?i:bearer|basic|token)\s+")


class Redactor(Redaction):
    """Redact text and JSON; secrets get known request by request."""

    also: tuple[tuple[str, re.Pattern[str]], ...] = _MADE_UP

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[str, str] = {}

    def learn(self, model: Model, options: StreamOptions) -> bool:
        """Note the secrets of a request and of the environment; tells whether one is new."""
        found = set(environment_secrets())
        if options.api_key and len(options.api_key) >= SHORTEST_SECRET:
            found.add(options.api_key)
        for headers in (model.headers, options.headers):
            for name, value in (headers or {}).items():
                bare = _SCHEMES.sub("", value or "", count=1)
                if _SECRET_HEADER.search(name) and len(bare) >= SHORTEST_SECRET:
                    found.add(bare)
        if found <= self.secrets:
            return False
        self.know(self.secrets | found)
        return True

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return as many pieces without secrets; one may reach over several of them."""
        whole = "".join(pieces)
        found = self.found(whole)
        waiting = deque(found)
        shift = 0
        moved = [0]  # where the pieces end in the text without secrets
        for cut in accumulate(map(len, pieces)):
            while waiting and waiting[0].end <= cut:
                span = waiting.popleft()
                shift += len(span.instead) - (span.end - span.start)
            if waiting and waiting[0].start < cut:
                moved.append(waiting[0].start + shift + len(waiting[0].instead))
            else:
                moved.append(cut + shift)
        text = replaced(whole, found)
        return [text[start:end] for start, end in pairwise(moved)]

    def span(self, match: re.Match[str]) -> Span:
        """Return what of a match is replaced: an id by its number, a secret as elsewhere."""
        made = match.groupdict().get("made")
        if made is None:
            return super().span(match)
        prefix = "tool:" if made.startswith("tool:") else "pyd_ai_"
        number = self._numbers.setdefault(made, f"{prefix}{len(self._numbers) + 1}")
        return Span(match.start(), match.end(), number)
