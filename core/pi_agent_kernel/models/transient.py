"""Whether a failed reply may come out well if it is asked for again.

The adapter's class of error decides where there is one; otherwise the words do. Words about an
account that is empty win over everything else: waiting does not fill it.
"""

from __future__ import annotations

import re

from pi_agent_kernel.messages import AssistantMessage
from pi_agent_kernel.models.overflow import error_details, is_context_overflow

__all__ = ["TRANSIENT_KINDS", "is_retryable_assistant_error", "transient_kind", "wait_wanted_ms"]

#: Classes of errors that pass.
TRANSIENT_KINDS = frozenset(
    {"rate_limit", "overloaded", "server", "connection", "timeout", "incomplete"}
)
#: Classes that do not say enough: the text decides.
_VAGUE_KINDS = frozenset({None, "unknown", "unexpected"})

_ACCOUNT = re.compile(
    r"quota|billing|payment required|insufficient.{0,20}(?:credit|balance|funds)"
    r"|credit balance|out of credits?|credits? (?:are |is )?(?:exhausted|depleted)"
    r"|usage limit|spend(?:ing)? limit|budget",
    re.IGNORECASE,
)


def _status(numbers: str) -> str:
    # A whole number, and no count of something: digits inside ids are no statuses (E16).
    counted = r"\s{0,3}(?:tokens?|characters?|bytes?|[km]?b|ms)\b"
    return rf"(?<![\w.,$#/-])(?:{numbers})(?![\w/-]|[.,]\d|{counted})"


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


#: What a text says, by class; the first that fits names it.
_WORDS: dict[str, re.Pattern[str]] = {
    "rate_limit": _words(
        r"rate[\s_-]{0,3}limit|limiting the rate|too[\s_]many[\s_]requests|throttl", _status("429")
    ),
    "overloaded": _words(
        r"overload|over capacity|at capacity|(?:service|temporarily)[\s_]{0,3}unavailable",
        _status("503|529"),
    ),
    "timeout": _words(r"timed[\s-]?out|time-?out|deadline exceeded", _status("408|504|522|524")),
    "incomplete": _words(
        r"without (?:a |an |its )?(?:stop reason|final (?:event|message)|terminal event)",
        r"stream (?:was )?(?:ended|closed|cut|broke)|ended (?:too early|prematurely)",
        r"cut off|incomplete (?:chunked )?(?:read|response|stream)|\bterminated\b",
    ),
    "connection": _words(
        r"connection|network error|socket|econn(?:reset|refused|aborted)|broken pipe",
        r"fetch failed|getaddrinfo|name resolution|peer closed|unexpected eof",
    ),
    "server": _words(
        r"server[\s_]error|internal error|bad gateway",
        _status("500|502|507|520|521|523|525|527|530"),
    ),
}


def is_retryable_assistant_error(message: AssistantMessage) -> bool:
    """Say whether a reply failed for a reason that passes.

    Source: MD-22, D13, E05, E16.
    """
    return transient_kind(message) is not None


def transient_kind(message: AssistantMessage) -> str | None:
    """Return the class of a failure that passes, or None for any other message."""
    if message.stop_reason != "error" or is_context_overflow(message):
        return None
    details = error_details(message)
    if details.get("shouldRetry") is False:
        return None
    kind = details.get("kind")
    if not isinstance(kind, str):
        kind = None
    if kind in TRANSIENT_KINDS:
        return kind
    text = (message.error_message or "")[:4000]
    if kind not in _VAGUE_KINDS or _ACCOUNT.search(text):
        return None
    return next((kind for kind, pattern in _WORDS.items() if pattern.search(text)), None)


def wait_wanted_ms(message: AssistantMessage) -> int | None:
    """Return the milliseconds that the server wanted us to wait, if it said so."""
    wait = error_details(message).get("retryAfterMs")
    return wait if type(wait) is int and wait >= 0 else None
