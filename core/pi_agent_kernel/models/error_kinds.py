"""Classes of failure, and how providers' words tell them.

One vocabulary for all providers (`Kind`): what a retry, a compaction and a reader go by.
pydantic-ai knows the codes of each provider; the words here decide where there is no code, or one
that says too little.
"""

from __future__ import annotations

import re
from typing import Any, Literal, cast

from pi_agent_kernel.errors import ModelError

__all__ = ["Kind", "ReplyError", "kind_of", "told_by_server"]

Kind = Literal[
    "rate_limit",
    "quota",
    "overloaded",
    "context_overflow",
    "auth",
    "invalid_request",
    "not_found",
    "server",
    "connection",
    "timeout",
    "refused",
    "incomplete",
    "setup",
    "not_installed",
    "unexpected",
    "unknown",
]


class ReplyError(ModelError):
    """Say that a request or its reply failed, and of which kind that is.

    Args:
        message: What happened and what to do.
        kind: Class of failure.
        told: Whether `message` is only the provider's own words, to be put into a sentence.
        **fields: `status` and `retry_after` of `ModelError`.
    """

    def __init__(self, message: str, kind: Kind, *, told: bool = False, **fields: Any) -> None:
        self.kind: Kind = kind
        self.told = told
        super().__init__(message, **fields)


#: A throttled request may speak of tokens, too: this comes before the words of an overflow.
_THROTTLED = re.compile(
    r"throttl|rate.?limit|too many requests|too many tokens, please wait|tokens per (minute|day)"
    r"|resource.?exhausted",
    re.IGNORECASE,
)
_SAID: tuple[tuple[Kind, str], ...] = (
    # Codes of OpenAI's failed responses come first: their messages may use any words.
    (
        "refused",
        (
            r"\b(bio_policy|cyber_policy|\w+_policy_violation)\b"
            r"|flagged as potentially violating|(usage|safety) polic(y|ies)"
        ),
    ),
    ("timeout", r"\bvector_store_timeout\b"),
    (
        "invalid_request",
        (
            r"\b(invalid_prompt|data_residency_mismatch|invalid_(base64_)?image\w*|empty_image_file"
            r"|image_(file_)?(too_large|too_small|not_found)|image_parse_error"
            r"|unsupported_image_media_type|failed_to_download_image)\b"
        ),
    ),
    (
        "quota",
        (
            r"insufficient[_ ](quota|balance|credit|funds)|credit balance|out of credits|billing"
            r"|exceeded your current quota|payment.required|(spend|usage|budget)\w{0,5} limit"
            r"|service.?quota.?exceeded"
        ),
    ),
    (
        "context_overflow",
        (
            r"context[_ ](length|window|size)[_ ]?(was )?exceed"
            r"|exceed\w{0,5} (the )?(\w{1,20} )?context"
            r"|context window exceeds|(maximum|model.?s|max) context|context length"
            r"|prompt (is )?too (long|large)|input (is )?too long|request_too_large"
            r"|input token count|input tokens exceeded|too many (input )?tokens"
            r"|reduce the length of the (messages|prompt)|maximum prompt length"
            r"|exceeded model token limit|token limit exceeded|exceeds the limit of \d+"
            r"|larger than the context"
        ),
    ),
    ("refused", r"content.?filter|content.?policy|responsible.?ai|flagged_input"),
    (
        "overloaded",
        (
            r"overloaded|(over|at|exceeds) capacity|service.?unavailable|model.?not.?ready"
            r"|temporarily unavailable|no healthy upstream|insufficient_system_resource"
        ),
    ),
    (
        "auth",
        (
            r"(invalid|incorrect|missing|expired|bad|wrong|no)[ _]?(x-)?api.?key|authentication"
            r"|unauthori[sz]ed|access.?denied|permission.?(denied|error)|expired.?token"
            r"|unrecognized.?client|invalid.?signature|security token|api_key_invalid"
        ),
    ),
    (
        "not_found",
        (
            r"(model|resource|deployment|endpoint).?not.?found|not_found_error"
            r"|(model|deployment)\b.{0,80} (does not exist|is not found|not found)"
        ),
    ),
    (
        "server",
        (
            r"internal.?(server.?)?(error|failure)|server.?error|api_error|model.?stream.?error"
            r"|bad gateway|upstream|provider returned error|crashed"
            r"|network_error"
        ),
    ),
    ("timeout", r"timed?.?out|timeout|deadline exceeded"),
    (
        "invalid_request",
        (
            r"invalid.?request|validation|bad.?request|tool_use_failed|unprocessable"
            r"|invalid.?argument|unsupported|not support"
        ),
    ),
)
#: Characters of an answer that are looked at; no provider says it later.
_ENOUGH = 4000
_WORDS: list[tuple[Kind, re.Pattern[str]]] = [
    (kind, re.compile(words, re.IGNORECASE)) for kind, words in _SAID
]
_BY_STATUS: dict[int, Kind] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    408: "timeout",
    413: "context_overflow",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


def kind_of(words: str, status: int | None = None, otherwise: Kind = "unknown") -> Kind:
    """Class a failure by what the provider said.

    Args:
        words: Its code, type and message, in one text; of a long one the beginning counts.
        status: HTTP status, if there was one; only one that leaves it open is overruled by words.
        otherwise: The class if neither tells.
    """
    words = words[:_ENOUGH]
    throttled = status == 429 or (status is None and _THROTTLED.search(words) is not None)
    for kind, pattern in _WORDS:
        if pattern.search(words) and _may_be(kind, status, throttled=throttled):
            return kind
    if throttled:
        return "rate_limit"
    if status is None:
        return otherwise
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return "server"
    return "invalid_request" if status >= 400 else otherwise


def _may_be(kind: Kind, status: int | None, *, throttled: bool) -> bool:
    """Whether words may say this where the status says something already."""
    if throttled:
        return kind == "quota"
    if status is None:
        return True
    if status in (400, 409, 413, 422, 424, 500):
        return kind in ("quota", "context_overflow", "refused", "overloaded") or (
            kind in ("auth", "not_found") and status == 400
        )
    return kind == "overloaded" and status >= 500


def told_by_server(error: Any) -> ReplyError:
    """Return what a server reports in place of a piece of its reply.

    Args:
        error: An object or mapping with a message, perhaps a code and a type.
    """

    def known(name: str) -> Any:
        if isinstance(error, dict):
            return cast("dict[str, Any]", error).get(name)
        return getattr(error, name, None)

    message, code, kind = (known(name) for name in ("message", "code", "type"))
    digits = str(code)
    status = int(digits) if re.fullmatch("[45][0-9][0-9]", digits) else None
    words = " ".join(str(part)[:_ENOUGH] for part in (code, kind, message) if part)
    return ReplyError(
        str(message or "it ended the reply with an error"),
        kind_of(words, status, otherwise="server"),
        told=True,
        status=status,
    )
