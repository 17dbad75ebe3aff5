"""Take out of a cassette what must not be kept, and what only chance has chosen.

Secrets become `[redacted]`. Ids of tool calls that were made up on this side of the wire, because
the provider sent none, become numbers: they would differ from one recording to the next.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["REDACTED", "Redactor"]

REDACTED = "[redacted]"

#: Shorter values of secret variables are placeholders such as "none" or "ollama".
SHORTEST_SECRET = 8

_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD)(?:_|$)", re.IGNORECASE
)
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_START = r"(?<![A-Za-z0-9_-])"
_HEADER = (
    r"(?i:authorization|x-api-key|api-key)[\"']?\s*[:=]\s*[\"']?(?:(?i:bearer|basic|token)\s+)?"
)
# What a group named "keep…" matched stays in front of the placeholder.
_PATTERNS = (
    rf"{_START}sk-[A-Za-z0-9_-]{{16,}}",  # OpenAI, Anthropic, OpenRouter, DeepSeek
    rf"{_START}AIza[A-Za-z0-9_-]{{30,}}",  # Google
    rf"{_START}(?:AKIA|ASIA)[A-Z0-9]{{16}}(?![A-Za-z0-9])",  # AWS
    rf"{_START}gh[oprsu]_[A-Za-z0-9]{{20,}}",  # GitHub
    rf"{_START}github_pat_[A-Za-z0-9_]{{20,}}",
    rf"{_START}(?:gsk_|hf_|xai-|glpat-)[A-Za-z0-9_-]{{20,}}",  # Groq, Hugging Face, xAI, GitLab
    rf"{_START}xox[abeoprs]-[A-Za-z0-9-]{{10,}}",  # Slack
    rf"{_START}eyJ[A-Za-z0-9_-]{{8,}}\.eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]+",  # JSON web tokens
    # Up to the next five dashes and no farther, so that many beginnings are read once.
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-(?!----)[^-]*)*-----END [A-Z ]*PRIVATE KEY-----",
    rf"(?P<keep_header>{_HEADER})[^\s\"',;\\]{{8,}}",
    r"(?P<keep_bearer>\b(?i:bearer)\s+)[A-Za-z0-9._~+/=-]{20,}",
    r"(?P<keep_address>://[^/\s:@\"']+:)[^/\s@\"']+(?=@)",
)
_MADE_UP = r"(?P<made>pyd_ai_[0-9a-f]{32}|\btool:[0-9a-f]{12,}:\d+\b)"
# Of a pair of surrogates both at once, then they are one character.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r'|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
)
_SCHEMES = re.compile(r"(?i:bearer|basic|token)\s+")


class Redactor:
    """Redact text and JSON; secrets get known request by request."""

    def __init__(self) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._pattern = _compiled(self._secrets)
        self._numbers: dict[str, str] = {}

    def learn(self, model: Model, options: StreamOptions) -> bool:
        """Note the secrets of a request and of the environment; tells whether one is new."""
        found = {
            value
            for name, value in os.environ.items()
            if _SECRET_VARIABLE.search(name) and len(value) >= SHORTEST_SECRET
        }
        if options.api_key and len(options.api_key) >= SHORTEST_SECRET:
            found.add(options.api_key)
        for headers in (model.headers, options.headers):
            for name, value in (headers or {}).items():
                bare = _SCHEMES.sub("", value or "", count=1)
                if _SECRET_HEADER.search(name) and len(bare) >= SHORTEST_SECRET:
                    found.add(bare)
        if found <= self._secrets:
            return False
        self._secrets |= found
        self._pattern = _compiled(self._secrets)
        return True

    def text(self, text: str) -> str:
        """Return the text without secrets, those included that JSON has escaped in it."""
        return _replaced(text, self._found(text))

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return as many pieces without secrets; one may reach over several of them."""
        whole = "".join(pieces)
        found = self._found(whole)
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
        text = _replaced(whole, found)
        return [text[start:end] for start, end in pairwise(moved)]

    def json(self, value: Any) -> Any:
        """Return the JSON value with all its text redacted, names of fields included.

        The base64 text of an image stays: no secret stands in it as text, and it may be long.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            is_image = fields.get("type") == "image"
            return {
                self.text(name): item if is_image and name == "data" else self.json(item)
                for name, item in fields.items()
            }
        if isinstance(value, list | tuple):
            return [self.json(item) for item in cast("Sequence[Any]", value)]
        return value

    def _found(self, text: str) -> list[_Span]:
        """Return what is to be replaced, in order; also what shows only without its escapes."""
        found = [self._span(match) for match in self._pattern.finditer(text)]
        if "\\" not in text:
            return found
        inner, outer_place = _unescaped(text)
        if inner == text:
            return found
        for start, end, instead in self._found(inner):
            found.append(_Span(outer_place(start), outer_place(end), instead))
        return _merged(found)

    def _span(self, match: re.Match[str]) -> _Span:
        groups = match.groupdict()
        made = groups.pop("made")
        if made is not None:
            prefix = "tool:" if made.startswith("tool:") else "pyd_ai_"
            number = self._numbers.setdefault(made, f"{prefix}{len(self._numbers) + 1}")
            return _Span(match.start(), match.end(), number)
        kept = next((kept for kept in groups.values() if kept is not None), "")
        return _Span(match.start() + len(kept), match.end(), REDACTED)


class _Span(NamedTuple):
    """Be a part of a text, and what stands there instead."""

    start: int
    end: int
    instead: str


def _replaced(text: str, found: Iterable[_Span]) -> str:
    shown: list[str] = []
    done = 0
    for span in found:
        shown += (text[done : span.start], span.instead)
        done = span.end
    return "".join([*shown, text[done:]])


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    """Return spans in order of which none overlaps another."""
    merged: list[_Span] = []
    for span in sorted(spans):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = _Span(last.start, max(last.end, span.end), last.instead)
        else:
            merged.append(span)
    return merged


def _unescaped(text: str) -> tuple[str, Callable[[int], int]]:
    """Resolve JSON's escapes, and tell where a place of the result is in the text."""
    parts: list[str] = []
    inner, outer = [0], [0]  # the same places in both: the beginning, and after each escape
    size = 0
    for match in _ESCAPE.finditer(text):
        before, meant = text[outer[-1] : match.start()], json.loads(f'"{match[0]}"')
        parts += (before, meant)
        size += len(before) + len(meant)
        inner.append(size)
        outer.append(match.end())
    parts.append(text[outer[-1] :])

    def outer_place(place: int) -> int:
        nearest = bisect_right(inner, place) - 1
        return outer[nearest] + place - inner[nearest]

    return "".join(parts), outer_place


def _compiled(secrets: frozenset[str]) -> re.Pattern[str]:
    # The longest first: one secret may be the start of another.
    known = [re.escape(secret) for secret in sorted(secrets, key=lambda s: (-len(s), s))]
    return re.compile("|".join([*known, _MADE_UP, *_PATTERNS]))
