"""Texts of models, tools and people as they may be shown: clean, and without secrets.

Secrets are taken out of whole texts, before anything cuts them. Where something has cut before, as
the kernel does in an explanation, what the cut left of a known key is taken out. The rule of what
is one is the kernel's (`pi_agent_kernel.secrecy`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from pi_agent_kernel.secrecy import Redaction, environment_secrets, replaced

__all__ = ["GrowingText", "clean", "without_secrets", "without_secrets_json"]

#: Characters at the end of a growing text that are read again each time.
REACH = 4_096
DEEPEST = 100

_SUSPICIOUS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"  # and "\r"
)
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # a title or a link of a terminal
    r"|[\x1b]\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]|\x1b[@-_]"
)
_NEWLINES = re.compile("\r\n?")
_OVERRIDES = re.compile("[\u202a-\u202e\u2066-\u2069]")

_growing = Redaction(environment_secrets())
_whole = Redaction(_growing.secrets, cut=True)


def clean(text: str) -> str:
    """Take out what a text must not do to a screen, an encoder or a reader.

    Terminal escapes and direction overrides vanish, other control characters and lone surrogates
    become U+FFFD, every line end becomes a newline. Tabs and right-to-left letters stay.
    """
    if _SUSPICIOUS.search(text) is None:
        return text
    text = _OVERRIDES.sub("", _NEWLINES.sub("\n", _ESCAPES.sub("", text)))
    return _SUSPICIOUS.sub("\ufffd", text)


def _rule(*, growing: bool) -> Redaction:
    """Return the rule with what is secret in the environment now."""
    global _growing, _whole
    secrets = environment_secrets()
    if secrets != _whole.secrets:
        _growing, _whole = Redaction(secrets), Redaction(secrets, cut=True)
    return _growing if growing else _whole


def without_secrets(text: str, *, growing: bool = False) -> str:
    """Clean a text and take the secrets out of it.

    Args:
        text: The text.
        growing: Whether it may be the beginning of a longer one: what may be the beginning of a
            secret at its end is left out then.
    """
    rule = _rule(growing=growing)
    safe = rule.text(clean(text))
    return rule.beginning(safe) if growing else safe


def without_secrets_json(value: Any, *, growing: bool = False) -> Any:
    """Take the secrets out of a JSON value.

    Args:
        value: The value; it is not changed.
        growing: Whether its texts may be beginnings of longer ones.
    """
    return _json(_rule(growing=growing), value, growing, DEEPEST)


def _json(rule: Redaction, value: Any, growing: bool, depth: int) -> Any:  # noqa: FBT001
    if isinstance(value, str):
        cleaned = clean(value)
        safe = rule.text(cleaned)
        if growing:
            safe = rule.beginning(safe)
        return value if safe == cleaned else safe
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {
            _json(rule, name, False, depth): _json(rule, item, growing, depth - 1)  # noqa: FBT003
            for name, item in members.items()
        }
    if isinstance(value, list | tuple):
        return [_json(rule, item, growing, depth - 1) for item in cast("list[Any]", value)]
    return value


class GrowingText:
    """Show one text again and again while it grows, in time proportional to what is new.

    What may be the beginning of a secret at its end waits until it is known not to be one.
    """

    def __init__(self) -> None:
        self._settled = ""  # how the text begins, which is not read again
        self._shown = ""  # the same as it is shown

    def shown(self, text: str) -> str:
        """Return what may be shown of the text so far.

        Args:
            text: What it was given last, and more; any other text starts over.
        """
        text = clean(text)
        if not text.startswith(self._settled):
            self._settled = self._shown = ""
        rule = _rule(growing=True)
        rest = text[len(self._settled) :]
        found = rule.found(rest)
        if len(rest) > 2 * REACH:
            cut = _between_words(rest, len(rest) - REACH)
            for span in found:
                if span.start < cut < span.end:
                    cut = span.start
            before = [span for span in found if span.end <= cut]
            self._settled += rest[:cut]
            self._shown += replaced(rest[:cut], before)
            found = [
                span._replace(start=span.start - cut, end=span.end - cut)
                for span in found[len(before) :]
            ]
            rest = rest[cut:]
        return self._shown + rule.beginning(replaced(rest, found))


def _between_words(text: str, limit: int) -> int:
    return max(text.rfind("\n", 0, limit), text.rfind(" ", 0, limit)) + 1 or limit
