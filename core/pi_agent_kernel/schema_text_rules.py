r"""Decide whether a text has a JSON Schema `format` or matches its `pattern`.

Patterns are written for ECMAScript and come from outside (MCP servers, users). They are
translated to Python where the two differ; one that cannot be compiled is treated as absent. A
pattern that could take exponential or high polynomial time is tried on short text only, or with
a time limit by the `regex` package where that is installed (it also knows `\p{L}`); text it
could not decide about is accepted.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["format_example", "has_format", "matches_pattern"]

_TIME_LIMIT = 0.05
# Longest text to try by degree of the polynomial: about 20 million steps in the worst case.
_LONGEST = {2: 4000, 3: 250, 4: 60}
_LONGEST_EXPONENTIAL = 16
_TOKEN = re.compile(
    r"\\.|\[\^?\]?|\]|\$|\(\?<(?![=!])|\(|\)|\||[*+]|\{\d+,\d*\}|\{\d+\}|.", re.DOTALL
)


def _read_pattern(pattern: str) -> tuple[str, int, bool]:
    """Return the pattern for Python, its polynomial degree, and whether it may be exponential."""
    parts: list[str] = []
    repeats = 0
    exponential = False
    in_class = False
    groups: list[bool] = []  # per open group: does it hold a repeat or an alternative?
    closed: bool | None = None  # the same of the group that has just ended
    for match in _TOKEN.finditer(pattern):
        token = match[0]
        just_closed, closed = closed, None
        if in_class:
            in_class = token != "]"
        elif token.startswith("["):
            in_class = True
        elif token.startswith("("):
            groups.append(False)
            token = "(?P<" if token == "(?<" else token
        elif token == ")":
            closed = groups.pop() if groups else False
        elif token in ("*", "+") or (token[0] == "{" and not token.endswith(("{", "{0}", "{1}"))):
            repeats += token.endswith(("*", "+", ",}")) or "," in token
            exponential = exponential or bool(just_closed)
            groups[:] = [True] * len(groups)
        elif token == "|":
            groups[:] = [True] * len(groups)
        elif token == "$":
            token = r"\Z"
        parts.append(token)
    degree = repeats + (repeats > 0 and not pattern.startswith("^"))
    return "".join(parts), degree, exponential


@lru_cache(maxsize=512)
def _matcher(pattern: str) -> Callable[[str], bool]:
    python, degree, exponential = _read_pattern(pattern)
    longest = _LONGEST_EXPONENTIAL if exponential else _LONGEST.get(degree, 1 << 40)
    if degree > max(_LONGEST):
        longest = _LONGEST_EXPONENTIAL
    try:
        quick = re.compile(python, re.ASCII)
    except (re.error, OverflowError, RecursionError):
        return _limited_matcher(pattern)
    slow: list[Callable[[str], bool]] = []

    def matches(text: str) -> bool:
        if len(text) <= longest:
            return quick.search(text) is not None
        if not slow:
            slow.append(_limited_matcher(python))
        return slow[0](text)

    return matches


def _limited_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a matcher with a time limit; one that accepts everything where there is none."""
    try:
        import regex  # pyright: ignore[reportMissingModuleSource]

        limited = regex.compile(pattern)
    except Exception:  # noqa: BLE001 - absent, or a pattern it cannot read either
        return lambda _text: True

    def matches(text: str) -> bool:
        try:
            return limited.search(text, timeout=_TIME_LIMIT) is not None
        except TimeoutError:
            return True

    return matches


def matches_pattern(pattern: str, text: str) -> bool:
    """Return whether `pattern` is found in `text`, as JSON Schema's `pattern` asks."""
    return _matcher(pattern)(text)


_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(
    r"(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_UNIT = r"(?=.)(?:\d+Y)?(?:\d+M)?(?:\d+D)?"
_CLOCK = r"(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PERCENT = r"(?:%[0-9A-Fa-f]{2}|[^\s<>\"{}|\\^`%])*"
_EXPRESSIONS = {
    "duration": rf"P(?:\d+W|{_UNIT}{_CLOCK})",
    "email": rf"(?:[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~-]+)*"
    rf"|\"[^\"\\\r\n]*\")@(?:{_LABEL}(?:\.{_LABEL})*|\[[^\]\s]+\])",
    "hostname": rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*",
    "idn-email": r"[^@\s]+@[^@\s]+",
    "idn-hostname": r"(?=.{1,253}\Z)[^\s.@/]+(?:\.[^\s.@/]+)*",
    "json-pointer": r"(?:/(?:[^~/]|~[01])*)*",
    "json-pointer-uri-fragment": r"#(?:/(?:[^~/]|~[01])*)*",
    "relative-json-pointer": r"(?:0|[1-9]\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)",
    "uri": rf"(?=[ -~]*\Z)[A-Za-z][A-Za-z0-9+.-]*:{_PERCENT}",
    "uri-reference": rf"(?=[ -~]*\Z){_PERCENT}",
    "iri": rf"[A-Za-z][A-Za-z0-9+.-]*:{_PERCENT}",
    "iri-reference": _PERCENT,
    "uri-template": r"(?:[^\s{}<>\"\\^`|]|\{[^{}\s]+\})*",
    "url": rf"(?:https?|ftp)://[^\s/?#]+(?:[/?#]{_PERCENT})?",
    "uuid": r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
}


def _is_date(text: str) -> bool:
    from datetime import date

    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def _is_ip_address(text: str, version: int) -> bool:
    import ipaddress

    if "%" in text:
        return False
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


@lru_cache(maxsize=64)
def _expression(name: str) -> re.Pattern[str] | None:
    expression = _EXPRESSIONS.get(name)
    return None if expression is None else re.compile(expression, re.ASCII)


# What people and models write; the offset that JSON Schema demands is left out for Python.
_EXAMPLES = {
    "date": "2024-01-02",
    "time": "09:00:00Z",
    "date-time": "2024-01-02T09:00:00Z",
    "duration": "PT1H30M",
}
_PYTHON_TYPES = {
    "date": "date",
    "time": "time",
    "date-time": "datetime",
    "duration": "timedelta",
}


def format_example(name: str, *, python: bool = False) -> str | None:
    """Return a text of the named format of dates and times, None for another format."""
    example = _EXAMPLES.get(name)
    return example.rstrip("Z") if python and example is not None else example


_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")


@lru_cache(maxsize=8)
def _pydantic_adapter(kind: str) -> Any:
    import datetime as dt

    from pydantic import TypeAdapter

    return TypeAdapter(getattr(dt, kind))


def _is_read_by_pydantic(kind: str, text: str) -> bool:
    from pydantic import ValidationError

    if _NUMBER.fullmatch(text):
        return False  # pydantic would count seconds since 1970: "20240102" is no day of that year
    try:
        _pydantic_adapter(kind).validate_python(text)
    except ValidationError:
        return False
    return True


def has_format(name: str, text: str, *, python: bool = False) -> bool:
    """Return whether `text` has the named format; True for a format not known here.

    Known are the formats of draft 2020-12 and `url`. Source: pi-schema 1.6.0, `formats`.

    Args:
        name: The format.
        text: The text.
        python: Whether a date, time or duration is what pydantic reads as one: without an
            offset, without seconds, with a space. Pydantic wrote the schema of a Python
            signature and converts its values, so there these are right.
    """
    if python and name in _PYTHON_TYPES:
        return _is_read_by_pydantic(_PYTHON_TYPES[name], text)
    match name:
        case "date":
            return _is_date(text)
        case "time":
            return _TIME.fullmatch(text) is not None
        case "date-time":
            return (
                text[10:11] in ("T", "t")
                and _is_date(text[:10])
                and _TIME.fullmatch(text[11:]) is not None
            )
        case "ipv4":
            return _is_ip_address(text, 4)
        case "ipv6":
            return _is_ip_address(text, 6)
        case "regex":
            try:
                re.compile(_read_pattern(text)[0])
            except re.error:
                return False
            return True
        case _:
            expression = _expression(name)
            return expression is None or expression.fullmatch(text) is not None
