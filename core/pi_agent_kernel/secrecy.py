"""What must not be shown: keys, passwords in addresses, headers that say who asks.

`Secrets` hides texts that are known. `Redaction` takes out those and whatever looks like a key,
also behind the escapes of JSON: for recordings and for what is shown of a run.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import quote, unquote

__all__ = [
    "HIDDEN",
    "REDACTED",
    "Redaction",
    "Secrets",
    "Span",
    "environment_secrets",
    "is_credential",
    "replaced",
    "shown_address",
    "shown_headers",
]

#: What stands in the place of a secret.
HIDDEN = "…"
#: The same in a text that is kept, where a reader has to see that something is missing.
REDACTED = "[redacted]"
#: Shorter values of secret variables are placeholders such as "none" or "ollama".
SHORTEST_SECRET = 8

#: Shorter secrets would take ordinary words apart.
_SHORTEST = 4
#: Characters of a secret from which on a part of it at the end of a cut text is hidden.
_SHORTEST_PART = 6
#: The same where a text was cut in its middle.
_LEFT = 8
#: What stands at a cut, beside the text's own ends.
_CUTS = "…\n"
_CREDENTIAL = re.compile(
    r"auth|api.?key|token|secret|cookie|credential|password|signature|(?:^|[-_])key$", re.IGNORECASE
)
_USERINFO = re.compile(r"(//|^)([^/?#\s]*)@")


def shown_address(url: str) -> str:
    """Return an address as it may be shown: without a user name and password."""
    return _USERINFO.sub(r"\1", url, count=1)


def is_credential(name: str) -> bool:
    """Say whether a header of that name may tell who asks."""
    return _CREDENTIAL.search(name) is not None


def shown_headers(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return headers as they may be shown: without the values of credentials."""
    return {
        name: HIDDEN if value and is_credential(name) else value for name, value in headers.items()
    }


class Secrets:
    """Hide secrets in texts, also as `repr`, JSON and addresses write them.

    Args:
        values: Keys, tokens, header values; empty and very short ones are left out.
        addresses: Addresses whose passwords are secret.
    """

    def __init__(self, values: Iterable[str | None] = (), *, addresses: Iterable[str] = ()) -> None:
        known = [value for value in values if value]
        for address in addresses:
            found = _USERINFO.search(address)
            if found:
                userinfo = found[2]
                known += [userinfo, userinfo.partition(":")[2]]
        forms: set[str] = set()
        for value in known:
            for plain in (value, value.strip(), unquote(value)):
                forms |= _forms(plain)
        #: The longest first: one may be a part of another.
        self._forms = sorted((f for f in forms if len(f) >= _SHORTEST), key=len, reverse=True)

    def __repr__(self) -> str:
        return f"<{len(self._forms)} hidden texts>"

    def hide(self, text: str, *, cut: bool = False) -> str:
        """Return a text without the secrets.

        Args:
            text: Anything that is to be shown.
            cut: Whether the text is the beginning of a longer one: then a secret may have been
                cut, too, and its beginning at the end of the text is hidden.
        """
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        if not cut:
            return text
        for form in self._forms:
            for length in range(min(len(form), len(text)), _SHORTEST_PART - 1, -1):
                if text.endswith(form[:length]):
                    return text[:-length] + HIDDEN
        return text


def _forms(secret: str) -> set[str]:
    """Return how a secret may be written."""
    try:
        quoted = {quote(secret, safe=""), quote(secret)}
    except UnicodeEncodeError:
        quoted = set[str]()
    escaped = json.dumps(secret)[1:-1]
    return {
        secret,
        repr(secret)[1:-1],
        repr(secret.encode(errors="replace"))[2:-1],
        escaped,
        escaped.replace("/", "\\/"),
        *quoted,
    }


_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD)(?:_|$)", re.IGNORECASE
)
_START = r"(?<![A-Za-z0-9_-])"
_HEADER = (
    r"(?i:authorization|x-api-key|api-key)[\"']?\s*[:=]\s*[\"']?(?:(?i:bearer|basic|token)\s+)?"
)
_FILE = "[A-Z ]*PRIVATE KEY-----"
# Each with what stands in every text that it fits, in small letters: looking for that is quick.
# What a group named "keep…" matched stays in front of the placeholder.
_PATTERNS = (
    ("sk-", rf"{_START}sk-[A-Za-z0-9_-]{{16,}}"),  # OpenAI, Anthropic, OpenRouter, DeepSeek
    ("aiza", rf"{_START}AIza[A-Za-z0-9_-]{{30,}}"),  # Google
    ("akia", rf"{_START}AKIA[A-Z0-9]{{16}}(?![A-Za-z0-9])"),  # AWS
    ("asia", rf"{_START}ASIA[A-Z0-9]{{16}}(?![A-Za-z0-9])"),
    ("gh", rf"{_START}gh[oprsu]_[A-Za-z0-9]{{20,}}"),  # GitHub
    ("github_pat_", rf"{_START}github_pat_[A-Za-z0-9_]{{20,}}"),
    ("gsk_", rf"{_START}gsk_[A-Za-z0-9_-]{{20,}}"),  # Groq
    ("hf_", rf"{_START}hf_[A-Za-z0-9_-]{{20,}}"),  # Hugging Face
    ("xai-", rf"{_START}xai-[A-Za-z0-9_-]{{20,}}"),
    ("glpat-", rf"{_START}glpat-[A-Za-z0-9_-]{{20,}}"),  # GitLab
    ("xox", rf"{_START}xox[abeoprs]-[A-Za-z0-9-]{{10,}}"),  # Slack
    # JSON web tokens
    ("eyj", rf"{_START}eyJ[A-Za-z0-9_-]{{8,}}\.eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]+"),
    (
        "private key",  # up to the next five dashes and no farther: beginnings are read once
        rf"-----BEGIN {_FILE}[^-]*(?:-(?!----)[^-]*)*-----END {_FILE}",
    ),
    ("authorization", rf"(?P<keep>{_HEADER})[^\s\"',;\\]{{8,}}"),
    ("api-key", rf"(?P<keep>{_HEADER})[^\s\"',;\\]{{8,}}"),
    ("bearer", r"(?P<keep>\b(?i:bearer)\s+)[A-Za-z0-9._~+/=-]{20,}"),
    ("://", r"(?P<keep>://[^/\s:@\"']+:)[^/\s@\"']+(?=@)"),
)
_RULES = tuple((hint, re.compile(pattern)) for hint, pattern in _PATTERNS)
#: The beginnings of these at the end of a text that is still being written.
_BEGUN = re.compile(
    rf"{_START}(?:sk-|AIza|AKIA|ASIA|gh[oprsu]_|github_pat_|gsk_|hf_|xai-|glpat-|xox[abeoprs]-|eyJ)"
    r"[A-Za-z0-9_.-]*\Z"
    rf"|(?:{_HEADER}|\b(?i:bearer)\s+)[^\s\"',;]*\Z"
    r"|://[^/\s:@\"']+:[^/\s@\"']*\Z"
)
_KEY_FILE = re.compile(r"-----BEGIN [A-Z ]*(?:PRIVATE KEY|\Z)")
#: Characters at the end of a growing text in which a beginning is looked for, and that of a file.
_REACH = 2_048
_REACH_OF_FILE = 8_192
# Of a pair of surrogates both at once, then they are one character.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r'|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
)


def environment_secrets(variables: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the values of the environment variables whose names say that they are secret.

    Args:
        variables: The process's own by default.
    """
    found = os.environ if variables is None else variables
    return frozenset(
        value
        for name, value in found.items()
        if len(value) >= SHORTEST_SECRET and _SECRET_VARIABLE.search(name)
    )


class Span(NamedTuple):
    """Be a part of a text, and what stands there instead."""

    start: int
    end: int
    instead: str


class Redaction:
    """Take secrets out of text and JSON: those that are known, and what looks like a key.

    Args:
        secrets: The known ones.
        cut: Whether texts may have been cut: then a beginning of a known one right before a cut
            counts, too, and an end of one right after it.
    """

    #: What else is taken out, as `_PATTERNS`.
    also: tuple[tuple[str, re.Pattern[str]], ...] = ()

    def __init__(self, secrets: Iterable[str] = (), *, cut: bool = False) -> None:
        self._cut = cut
        self.know(secrets)

    def know(self, secrets: Iterable[str]) -> None:
        """Take these for the known secrets."""
        self.secrets: frozenset[str] = frozenset(secrets)
        # The longest first: one secret may be the start of another.
        self._forms = sorted(
            {form for secret in self.secrets for form in (*_forms(secret), *_forms(secret.strip()))}
            - {""},
            key=lambda form: (-len(form), form),
        )

    def text(self, text: str) -> str:
        """Return the text without secrets, those included that JSON has escaped in it."""
        return replaced(text, self.found(text))

    def beginning(self, text: str) -> str:
        """Return as much of a text that goes on, and is redacted, as can have no secret begin."""
        tail = text[-_REACH:]
        begun = _BEGUN.search(tail)
        cut = len(tail) if begun is None else begun.start()
        start = text.rfind("-----BEGIN ", max(0, len(text) - _REACH_OF_FILE))
        if start >= 0 and _KEY_FILE.match(text, start):
            return text[:start]
        for form in self._forms:
            for length in range(min(len(form) - 1, len(tail)), _SHORTEST - 1, -1):
                if tail.endswith(form[:length]):
                    cut = min(cut, len(tail) - length)
                    break
        return text[: len(text) - len(tail) + cut]

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

    def found(self, text: str) -> list[Span]:
        """Return what is to be replaced, in order; also what shows only without its escapes."""
        found: list[Span] = []
        for form in self._forms:
            place = text.find(form)
            while place >= 0:
                found.append(Span(place, place + len(form), REDACTED))
                place = text.find(form, place + len(form))
            if self._cut:
                found += _left_by_cuts(text, form)
        small = text.lower()
        for hint, pattern in (*self.also, *_RULES):
            if hint in small:
                found += [self.span(match) for match in pattern.finditer(text)]
        if "\\" in text:
            inner, outer_place = _unescaped(text)
            if inner != text:
                for start, end, instead in self.found(inner):
                    found.append(Span(outer_place(start), outer_place(end), instead))
        return _merged(found)

    def span(self, match: re.Match[str]) -> Span:
        """Return what of a match is replaced, and by what."""
        kept = match.groupdict().get("keep") or ""
        return Span(match.start() + len(kept), match.end(), REDACTED)


def _left_by_cuts(text: str, form: str) -> Iterator[Span]:
    """Find what cuts have left of a secret: a beginning before one, an end after one."""
    if len(form) <= _LEFT:
        return
    part, whole = form[:_LEFT], len(form)
    place = text.find(part)
    while place >= 0:
        size = _alike(text[place : place + whole], form)
        if text[place + size : place + size + 1] in _CUTS:
            yield Span(place, place + size, REDACTED)
        place = text.find(part, place + 1)
    part = form[-_LEFT:]
    place = text.find(part)
    while place >= 0:
        end = place + _LEFT
        size = _alike(text[max(0, end - whole) : end][::-1], form[::-1])
        if text[max(0, end - size - 1) : end - size] in _CUTS:
            yield Span(end - size, end, REDACTED)
        place = text.find(part, place + 1)


def _alike(text: str, form: str) -> int:
    """Count the characters that both begin with."""
    return next(
        (i for i, (one, other) in enumerate(zip(text, form, strict=False)) if one != other),
        min(len(text), len(form)),
    )


def replaced(text: str, found: Iterable[Span]) -> str:
    """Return a text with parts of it replaced; they are in order and do not overlap."""
    shown: list[str] = []
    done = 0
    for span in found:
        shown += (text[done : span.start], span.instead)
        done = span.end
    return "".join([*shown, text[done:]])


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order of which none overlaps another."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, span.end), last.instead)
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
