"""Take out of a cassette what must not be kept, and what only chance has chosen.

Secrets become `[redacted]`. Ids of tool calls that were made up on this side of the wire, because
the provider sent none, become numbers: they would differ from one recording to the next.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

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
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]+?-----END [A-Z ]*PRIVATE KEY-----",
    rf"(?P<keep_header>{_HEADER})[^\s\"',;\\]{{8,}}",
    r"(?P<keep_bearer>\b(?i:bearer)\s+)[A-Za-z0-9._~+/=-]{20,}",
    r"(?P<keep_address>://[^/\s:@\"']+:)[^/\s@\"']+(?=@)",
)
_MADE_UP = r"(?P<made>pyd_ai_[0-9a-f]{32}|\btool:[0-9a-f]{12,}:\d+\b)"
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
        """Return the text without secrets."""
        return self._pattern.sub(self._replacement, text)

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return as many pieces without secrets; one may reach over several of them."""
        whole = "".join(pieces)
        cuts: list[int] = []
        end = 0
        for piece in pieces:
            end += len(piece)
            cuts.append(end)
        shown: list[str] = []
        done, at = 0, 0  # characters of the text so far, and of the one without secrets
        moved: list[int] = []
        waiting = iter(cuts)
        cut = next(waiting, None)
        for match in self._pattern.finditer(whole):
            while cut is not None and cut <= match.start():
                moved.append(at + cut - done)
                cut = next(waiting, None)
            instead = self._replacement(match)
            shown += (whole[done : match.start()], instead)
            at += match.start() - done + len(instead)
            done = match.end()
            while cut is not None and cut < done:
                moved.append(at)
                cut = next(waiting, None)
        while cut is not None:
            moved.append(at + cut - done)
            cut = next(waiting, None)
        text = "".join([*shown, whole[done:]])
        return [text[a:b] for a, b in zip([0, *moved], moved, strict=False)]

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

    def _replacement(self, match: re.Match[str]) -> str:
        groups = match.groupdict()
        made = groups.pop("made")
        if made is not None:
            prefix = "tool:" if made.startswith("tool:") else "pyd_ai_"
            return self._numbers.setdefault(made, f"{prefix}{len(self._numbers) + 1}")
        return next((kept for kept in groups.values() if kept is not None), "") + REDACTED


def _compiled(secrets: frozenset[str]) -> re.Pattern[str]:
    # The longest first: one secret may be the start of another.
    known = [re.escape(secret) for secret in sorted(secrets, key=lambda s: (-len(s), s))]
    return re.compile("|".join([*known, _MADE_UP, *_PATTERNS]))
