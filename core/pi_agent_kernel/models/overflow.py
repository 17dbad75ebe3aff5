"""Whether a request was too long for the model, from what the provider said or counted.

Few providers have a code for it, so their words count; a text that speaks of a rate of tokens is
about throttling, whatever else it says (D13).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from pi_agent_kernel.messages import AssistantMessage

__all__ = ["error_details", "is_context_overflow", "is_recoverable_length", "says_overflow"]

#: A reply of nothing that used at least this part of the window was cut by it.
_FULL = 0.99

_OVERFLOW = re.compile(
    r"prompt (?:is |was )?too long"
    r"|(?:input|prompt|request|context) (?:\S{1,60} ){0,3}(?:is|are|was) too (?:long|large) for"
    r"|exceed\w{0,5} (?:\S{1,60} ){0,4}(?:context|token limit|prompt length|max_model_len)"
    r"|context[\s_-]{0,3}(?:window|length|size|limit)\S{0,20} (?:\S{1,60} ){0,3}exceed"
    r"|context_(?:length|window|size)_exceeded|exceed_context_size|context_window_exceeded"
    r"|maximum (?:context|model|prompt) length|max(?:imum)? context window"
    r"|(?:larger|greater|longer) than (?:\S{1,60} ){0,3}(?:context|maximum model)"
    r" (?:length|size|window)"
    r"|token count\b.{0,60}\bexceeds"
    r"|input token(?:s| count)\b.{0,40}\bexceed"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)"
    r"|range of input length should be"
    r"|tokens? \+ `?max_(?:new_)?tokens`? must be"
    r"|(?:request entity|payload) too large"
    r"|request_too_large|prompt_too_long|string_above_max_length"
    r"|token limit exceeded|too many (?:input |prompt )?tokens",
    re.IGNORECASE,
)
_THROTTLING = re.compile(
    r"throttl|rate[\s_-]{0,3}limit|too many requests|try again later|please wait"
    r"|(?<![\w.-])429(?![\w-])"
    r"|(?:tokens?|requests?) (?:per|a|/) ?(?:min|minute|hour|day|second)|\b[tr]p[md]\b"
    r"|service[\s_-]{0,3}unavailable|overloaded",
    re.IGNORECASE,
)


def is_context_overflow(message: AssistantMessage, context_window: int | None = None) -> bool:
    """Say whether a request did not fit the model's context window.

    Args:
        message: The answer to it.
        context_window: Tokens; without them only an error can be told.

    Returns:
        True for an error that says so; for a normal end whose input was larger than the window,
        which some servers cut in silence; for an empty reply that a full window ended.

    Source: MD-24, D13.
    """
    if message.stop_reason == "error":
        kind = error_details(message).get("kind")
        if kind == "context_overflow":
            return True
        return kind not in _OTHER_KINDS and says_overflow(message.error_message or "")
    if not context_window:
        return False
    usage = message.usage
    read = usage.input + usage.cache_read
    if message.stop_reason == "stop":
        return read > context_window
    empty = message.stop_reason == "length" and usage.output == 0
    return empty and read >= _FULL * context_window


#: Kinds of errors that are known to be another thing, whatever their text.
_OTHER_KINDS = ("rate_limit", "quota", "auth", "overloaded", "connection", "timeout")


def is_recoverable_length(message: AssistantMessage, max_tokens: int) -> bool:
    """Say whether a reply was cut off before the limit it was meant to have.

    The window was full, not the reply too long: a shorter conversation gets the whole of it.

    Args:
        message: The reply.
        max_tokens: Tokens the reply might have had.

    Source: MD-24.
    """
    used = message.usage
    known = used.input + used.output + used.cache_read > 0
    return message.stop_reason == "length" and known and used.output < max_tokens


def says_overflow(text: str) -> bool:
    """Say whether an error text of a provider is about the length of the request."""
    text = text[:4000]  # patterns over a page of HTML would take their time
    return _OVERFLOW.search(text) is not None and _THROTTLING.search(text) is None


def error_details(message: AssistantMessage) -> Mapping[str, Any]:
    """Return what the adapter noted about a failed request; empty if it noted nothing."""
    for entry in message.diagnostics or ():
        if isinstance(entry, Mapping):
            fields = cast("Mapping[str, Any]", entry)
            details = fields.get("details")
            if fields.get("type") == "provider_error" and isinstance(details, Mapping):
                return cast("Mapping[str, Any]", details)
    return {}
