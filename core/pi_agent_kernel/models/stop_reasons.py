"""What a provider's reason for ending a reply means.

Only a reason that is known to be good makes a reply a success: a new or strange one is an error
that names it, because nobody knows whether the reply is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pi_agent_kernel.models.error_kinds import ReplyError, kind_of

__all__ = ["ending_of", "failure_of"]

Ending = Literal["stop", "length", "refused", "failed"]

_CHAT: Mapping[Ending, tuple[str, ...]] = {
    # Servers of open models have words of their own.
    "stop": (
        *("stop", "tool_calls", "function_call"),
        *("eos", "eos_token", "end", "end_turn", "stop_sequence", "tool_use"),
    ),
    "length": ("length", "max_tokens", "model_length", "model_context_window_exceeded"),
    "refused": ("content_filter", "sensitive", "safety", "refusal"),
    "failed": ("error", "network_error", "insufficient_system_resource", "abort"),
}
#: Every reason that is known, by format (`Model.api`).
_ENDINGS: Mapping[str, Mapping[Ending, tuple[str, ...]]] = {
    "anthropic-messages": {
        "stop": ("end_turn", "stop_sequence", "tool_use", "pause_turn", "compaction"),
        "length": ("max_tokens", "model_context_window_exceeded"),
        "refused": ("refusal", "sensitive"),
    },
    "openai-responses": {
        "stop": ("completed",),
        "length": ("max_output_tokens", "max_messages"),
        "refused": ("content_filter",),
        "failed": ("failed", "cancelled"),
    },
    "openai-completions": _CHAT,
    "groq-completions": _CHAT,
    "mistral-conversations": _CHAT,
    "google-generative-ai": {
        "stop": ("STOP",),
        "length": ("MAX_TOKENS", "CONTINUATION"),
        "refused": (
            *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"),
        ),
        "failed": ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "LANGUAGE", "NO_IMAGE"),
    },
    "bedrock-converse-stream": {
        "stop": ("end_turn", "stop_sequence", "tool_use"),
        "length": ("max_tokens", "model_context_window_exceeded"),
        "refused": ("guardrail_intervened", "content_filtered"),
        "failed": ("malformed_model_output", "malformed_tool_use"),
    },
}
#: Classes that pydantic-ai has put a reason into.
_CLASSED: Mapping[str, Ending] = {
    "stop": "stop",
    "tool_call": "stop",
    "length": "length",
    "content_filter": "refused",
    "error": "failed",
}
_LONGEST = 100  # characters of a reason that a text repeats


def ending_of(api: str, raw: str, classed: str | None) -> Ending | None:
    """Return what a reason means; None if nobody knows.

    Args:
        api: The format, as `Model.api`.
        raw: The provider's word.
        classed: pydantic-ai's class of it, if it has one. It goes first: a gateway's class is
            known where the word is that of a server behind it.

    Source: E05, E20.
    """
    if classed is not None and classed in _CLASSED:
        return _CLASSED[classed]
    word = raw.lower()
    for ending, words in _ENDINGS.get(api, _CHAT).items():
        if word in (each.lower() for each in words):
            return ending
    return None


def failure_of(raw: str, ending: Ending | None) -> ReplyError:
    """Return the error of a reply that ended for a bad or an unknown reason, which names it."""
    named = " ".join(raw.split())[:_LONGEST]
    if ending == "failed":
        return ReplyError(
            f"The provider ended the reply because of an error ({named}). Try again.",
            kind_of(raw, otherwise="server"),
        )
    return ReplyError(
        f"The provider ended the reply for a reason that is not known here ({named}), so what came "
        "may not be all of it. Ask again, or choose another model.",
        kind_of(raw, otherwise="server" if "error" in raw.lower() else "unexpected"),
    )
