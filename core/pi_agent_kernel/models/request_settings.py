"""What goes with a request beside its messages: limits, thinking, headers, who asks.

Here is what every provider has in its own words; `families` adds what only one format knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.messages import Message
from pi_agent_kernel.models.families import Family, Reach
from pi_agent_kernel.models.headers import check_headers, merge_headers
from pi_agent_kernel.models.prompt_size import clamp_max_tokens_to_context
from pi_agent_kernel.models.pydantic_history import Places
from pi_agent_kernel.models.thinking import (
    ANSWER_TOKENS,
    THINKING_LEVELS,
    Thinking,
    clamp_thinking_level,
    thinking_budget_for_level,
)
from pi_agent_kernel.request import (
    DEFAULT_IDENTITY,
    ClientIdentity,
    Model,
    StreamOptions,
    merge_client_identity,
)

__all__ = ["RequestSettings", "places_of", "request_settings"]

#: Headers by which a provider finds the server that has a session in its cache.
_SESSION_HEADERS = {
    "fireworks": "x-session-affinity",
    "openrouter": "x-session-id",
    "xai": "x-grok-conv-id",
}
#: Providers of chat completions that do not take an effort.
_THINKS_ANOTHER_WAY = frozenset({"zai"})
#: pydantic-ai's names of the providers whose own servers take system messages anywhere.
_SYSTEM_ANYWHERE = frozenset({"anthropic", "groq", "openai"})


class RequestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the settings of one request."""

    #: For pydantic-ai, by its names.
    values: dict[str, Any]
    #: Headers that pydantic-ai does not send for this format: to be added on the way.
    headers: dict[str, str]
    #: The thinking level as the provider is told it; None if it is told nothing.
    thinking: str | None


def request_settings(
    family: Family,
    model: Model,
    options: StreamOptions,
    reach: Reach,
    *,
    messages: Sequence[Message],
    profile: Mapping[str, Any],
    unsupported: Collection[str] = (),
) -> RequestSettings:
    """Put the settings of one request together.

    Args:
        family: The model's wire format.
        model: The model.
        options: The caller's options.
        reach: Where the request goes.
        messages: The prompt, to fit the output limit to the window.
        profile: What pydantic-ai knows of the model.
        unsupported: Settings it has no place for in this format, and would warn about.

    Raises:
        ModelError: `options.reasoning` is no thinking level, or a header cannot be sent.

    Source: CO-08 to CO-14, MD-14, MD-21, MD-26.
    """
    limit = options.max_tokens or (model.max_tokens if family.needs_limit else 0)
    if limit:
        limit = clamp_max_tokens_to_context(model, messages, limit)
    guess = family.tells_unknown_models and reach.provider not in _THINKS_ANOTHER_WAY
    thinking = _thinking(model, options, profile, limit, guess=guess)
    fitted = msgspec.structs.replace(options, max_tokens=limit or None)
    values: dict[str, Any] = {
        # Retries belong to the agent, where the user sees them (trap 5).
        "max_retries": 0,
        "max_tokens": limit or None,
        "temperature": options.temperature,
        **family.settings(model, fitted, reach),
    }
    told: dict[str, Any] = {}
    if thinking is not None:
        told = family.thinking(thinking, profile)
        values.update(told)
    if not _takes_temperature(profile, thinking if told else None):
        values["temperature"] = None
    merged = merge_headers(_headers_of_ours(options, reach), model.headers, options.headers)
    headers = check_headers(item for item in merged.items() if item[1] is not None)
    values["extra_headers"] = headers or None
    return RequestSettings(
        values={
            name: value
            for name, value in values.items()
            if value is not None and name not in unsupported
        },
        headers=headers if "extra_headers" in unsupported else {},
        thinking=thinking.sent_as if thinking is not None and told else None,
    )


def places_of(family: Family, reach: Reach, system: str, profile: Mapping[str, Any]) -> Places:
    """Return what a model's format has a place for.

    Args:
        family: The format.
        reach: Where the request goes.
        system: The name pydantic-ai gives the provider.
        profile: What pydantic-ai knows of the model.
    """
    # Chat templates of other servers often refuse a system message that is not the first.
    trusted = reach.is_own_server and system in _SYSTEM_ANYWHERE
    return Places(
        system_anywhere=family.system_anywhere
        and trusted
        and bool(profile.get("supports_inline_system_prompts")),
        images_in_results=family.images_in_results
        and bool(profile.get("google_supported_mime_types_in_tool_returns", True)),
        thinking=family.thinking_goes_back,
    )


def _thinking(
    model: Model,
    options: StreamOptions,
    profile: Mapping[str, Any],
    limit: int,
    *,
    guess: bool,
) -> Thinking | None:
    """Return how hard to think; None where nothing is said and the provider decides."""
    asked = options.reasoning or "off"
    if asked not in THINKING_LEVELS:
        raise ModelError(
            f"{asked!r} is no thinking level; these are: {', '.join(THINKING_LEVELS)}."
        )
    can = bool(profile.get("supports_thinking") or profile.get("thinking_always_enabled"))
    if asked != "off" and can and not model.reasoning:
        # Nobody said whether it reasons, but the model is known for it.
        model = msgspec.structs.replace(model, reasoning=True)
    if not model.reasoning:
        return None
    level = clamp_thinking_level(model, asked)
    word = (model.thinking_level_map or {}).get(level)
    if word is None and not can and (level == "off" or not guess):
        return None
    return Thinking(
        level=level,
        word=word,
        budget=thinking_budget_for_level(level, options.thinking_budgets),
        room=limit - ANSWER_TOKENS if limit else None,
    )


def _takes_temperature(profile: Mapping[str, Any], thinking: Thinking | None) -> bool:
    """Say whether a temperature may be sent: most models refuse one beside thinking (trap 12)."""
    if profile.get("anthropic_disallows_sampling_settings"):
        return False
    if thinking is not None:
        thinks = thinking.level != "off" or bool(profile.get("thinking_always_enabled"))
    else:
        thinks = bool(
            profile.get("thinking_enabled_by_default") or profile.get("thinking_always_enabled")
        )
    if profile.get("openai_supports_reasoning"):
        efforts = profile.get("openai_reasoning_efforts")
        can_stop = (
            bool(profile.get("openai_supports_reasoning_effort_none"))
            if efforts is None
            else "none" in efforts
        )
        return can_stop and not thinks
    refuses = any(
        profile.get(name) is not None
        for name in ("anthropic_supports_adaptive_thinking", "bedrock_thinking_variant")
    )
    return not (refuses and thinks)


def _headers_of_ours(options: StreamOptions, reach: Reach) -> dict[str, str | None]:
    headers: dict[str, str | None] = {}
    identity = merge_client_identity(DEFAULT_IDENTITY, options.identity) or {}
    if identity.get("userAgent"):
        headers["User-Agent"] = str(identity["userAgent"])
    if reach.is_own_server:
        headers.update(_attribution(identity, reach.provider))
        session_header = _SESSION_HEADERS.get(reach.provider)
        if session_header and options.session_id:
            headers[session_header] = _as_header(options.session_id)
    return headers


def _attribution(identity: ClientIdentity, provider: str) -> dict[str, str | None]:
    """Return the headers by which OpenRouter lists the applications that ask it (CO-14)."""
    attribution = identity.get("attribution")
    if provider != "openrouter" or not isinstance(attribution, Mapping):
        return {}
    shown = cast("Mapping[str, Any]", attribution)
    categories = cast("Sequence[str]", shown.get("categories") or ())
    headers = {
        "HTTP-Referer": shown.get("url"),
        "X-OpenRouter-Title": shown.get("name"),
        "X-OpenRouter-Categories": ",".join(categories) or None,
    }
    return {name: str(value) for name, value in headers.items() if value}


def _as_header(text: str) -> str:
    """Return a text that a header can carry: itself if it can, else its hash."""
    if text.isascii() and text.isprintable() and len(text) <= 256:
        return text
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
