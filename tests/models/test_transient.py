from __future__ import annotations

import msgspec
import pytest
from pi_agent_kernel import (
    Usage,
    faux_assistant_message,
    is_context_overflow,
    is_recoverable_length,
    is_retryable_assistant_error,
)

replace = msgspec.structs.replace

# What providers say, by what it is.
OVERFLOWS = [
    "prompt is too long: 213462 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000",
    "Your input exceeds the context window of this model.",
    "This model's maximum context length is 128000 tokens. However, you requested 200000.",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "the request exceeds the available context size, try increasing it",
    "prompt token count of 130000 exceeds the limit of 128000",
    "invalid params, context window exceeds limit",
    "Your request exceeded model token limit: 131072 (requested: 140000)",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "Input is too long for requested model.",
    "prompt too long; exceeded max context length by 100 tokens",
    "The decoder prompt (length 9) is longer than the maximum model length of 8",
    "Range of input length should be [1, 30720]",
    "`inputs` tokens + `max_new_tokens` must be <= 4097",
    "Error code: 400 - {'code': 'context_length_exceeded'}",
    "413 Request Entity Too Large",
    "too many tokens in the prompt",
]
PASSING = [
    "Overloaded",
    "rate limit exceeded",
    "429 Too Many Requests",
    "HTTP 429",
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "429: too many tokens",
    "Rate limit reached: too many tokens per minute (TPM)",
    "Error code: 503 - {'message': 'x'}",
    '{"error":{"code":500}}',
    "status 529.",
    "(HTTP 502): bad",
    "Request timed out.",
    "Connection error.",
    "read ECONNRESET",
    "The stream ended without a stop reason: the reply is cut off. Try again.",
    "The model's stream ended without a final event.",
    "Internal server error",
]
STAYING = [
    "",
    "request 7f429ab failed",
    "request req_429 failed",
    "trace 12-500-7 refused",
    "invalid value 1429",
    "max_tokens must be at most 500 tokens",
    "version 5.03 or 1.500 is needed",
    "$500 more",
    "Invalid API key",
    "You exceeded your current quota, please check your plan and billing details (429)",
    "402 Payment Required, 503",
    "Your credit balance is too low, rate limit",
    "The provider refused to answer (content filter). Rephrase the request.",
]


def failed(text, **details):
    diagnostics = [{"type": "provider_error", "details": details}] if details else None
    message = faux_assistant_message("", stop_reason="error", error_message=text)
    return replace(message, diagnostics=diagnostics)


def ended(reason, window=0, /, **usage):
    message = replace(faux_assistant_message("x"), stop_reason=reason, usage=Usage(**usage))
    return is_context_overflow(message, window or None)


@pytest.mark.parametrize("text", OVERFLOWS)
def test_an_overflow_is_told_by_its_words(text):
    """Whatever a provider says of a full window is an overflow and not tried again (MD-24)."""
    assert is_context_overflow(failed(text))
    assert not is_retryable_assistant_error(failed(text))


@pytest.mark.parametrize("text", PASSING)
def test_what_passes_is_told_by_its_words(text):
    """Throttling, overload, broken connections and cut replies may be tried again (D13, E05)."""
    assert is_retryable_assistant_error(failed(text))
    assert not is_context_overflow(failed(text))


@pytest.mark.parametrize("text", STAYING)
def test_what_stays_is_told_by_its_words(text):
    """Accounts, keys and digits inside ids are nothing that passes (MD-22, E16)."""
    assert not is_retryable_assistant_error(failed(text))
    assert not is_context_overflow(failed(text))


@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "server", "connection", "timeout"])
def test_the_class_wins_over_the_words(kind):
    """A class that the adapter knows decides; the server's own refusal wins over it."""
    assert is_retryable_assistant_error(failed("quota and billing", kind=kind))
    assert not is_retryable_assistant_error(failed("x", kind=kind, shouldRetry=False))


@pytest.mark.parametrize(
    "kind", ["quota", "auth", "invalid_request", "not_found", "context_overflow"]
)
def test_a_class_that_stays_wins_over_the_words(kind):
    """Such an error is not tried again, although its text says overloaded."""
    assert not is_retryable_assistant_error(failed("429 overloaded", kind=kind))
    assert is_context_overflow(failed("429", kind=kind)) == (kind == "context_overflow")


@pytest.mark.parametrize("reason", ["stop", "toolUse", "aborted", "length"])
def test_only_an_error_is_tried_again(reason):
    """A reply that did not fail stands, whatever it says."""
    message = faux_assistant_message("overloaded", stop_reason=reason, error_message="overloaded")

    assert not is_retryable_assistant_error(message)


def test_foreign_diagnostics_say_nothing():
    """What another program noted in a message does not confuse the check."""
    message = replace(failed("overloaded"), diagnostics=["x", {"type": "y"}, {"details": 1}])

    assert is_retryable_assistant_error(message)


def test_a_silent_overflow():
    """More input than the window on a normal end is one; cached tokens count (MD-24)."""
    assert ended("stop", 100, input=60, cache_read=41)
    assert not ended("stop", 100, input=60, cache_read=40)
    assert not ended("toolUse", 100, input=101)
    assert not ended("stop", input=10**9)


def test_a_window_that_left_no_room():
    """A length stop without output at 99 percent of the window is one (MD-24)."""
    assert ended("length", 1000, input=990)
    assert not ended("length", 1000, input=989)
    assert not ended("length", 1000, input=990, output=1)


def test_a_length_stop_before_the_limit_is_recoverable():
    """A reply shorter than its limit was cut by the window (MD-24)."""

    def recoverable(reason="length", **usage):
        message = replace(faux_assistant_message("x"), stop_reason=reason, usage=Usage(**usage))
        return is_recoverable_length(message, 100)

    assert recoverable(input=900, output=99)
    assert not recoverable(input=900, output=100)
    assert not recoverable("stop", input=900, output=99)
    assert not recoverable()  # nothing was counted


def test_a_page_of_text_is_searched_in_no_time():
    """A huge error text costs no more than its beginning."""
    text = "context window " * 200_000

    assert not is_retryable_assistant_error(failed(text))
