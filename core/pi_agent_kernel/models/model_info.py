"""What is known of a model without asking its provider: window, prices, abilities.

Windows and prices come from the table that genai-prices brings along, read from disk on first use
(0.15 s), never from the network. Abilities go by the name: providers do not tell them, and the
tables in pydantic-ai cost a second to load, too long for `%agent model`.
"""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.models.providers import Provider
from pi_agent_kernel.request import Model, ModelCost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from genai_prices.types import ModelInfo

__all__ = ["describe_model", "known_models", "nearest_name"]

#: Names of models that think before they answer.
_REASONS = re.compile(
    r"""
    (?<![a-z0-9]) (?:
      claude-(?: 3[-.]7 | [4-9] | (?:opus|sonnet|haiku|fable|mythos)-[4-9] )
    | gpt-(?: [5-9] | oss ) | o[1-9](?![a-z0-9])
    | gemini-(?: 2\.5 | [3-9] )
    | magistral | mistral-(?: medium-3-5 | medium-latest | small-2603 | small-latest | large-4 )
    | deepseek-(?: r\d | reasoner | flash | v[4-9] )
    | kimi-k(?: 2[.p]\d | 2-thinking | [3-9] )
    | glm-(?: 4[.p][5-9] | [5-9] )
    | grok-(?: 3-mini | [4-9] )
    | qwen-?3 | qwq
    )
    | (?<!non-)(?: thinking | reasoning )
    """,
    re.VERBOSE,
)
_ANSWERS_AT_ONCE = re.compile(
    r"non-reasoning|embed|-image|-tts|-live|realtime|transcribe|-audio|qwen-?3-coder|-chat-latest"
)
#: Names of models that take no images.
_TEXT_ONLY = re.compile(
    r"""
    (?<![a-z0-9]) (?:
      gpt-3 | gpt-4(?:-32k|-0|$) | gpt-oss | o1-mini | o3-mini
    | deepseek- (?!.*vision) | codestral | devstral | magistral | mixtral | mistral-(?: 7b | tiny )
    | kimi-k2 (?![.p][5-9]) | moonshot-v1-\d+k$ | glm-(?:4(?:[.p][5-7])?|5)(?![.p\dv]*v)
    | grok-(?: 2-1212 | 3 | code ) | llama-?(?: 2 | 3(?![.-]2) | v3 )
    | qwen-?3-coder | qwq | gemma-?2
    )
    """,
    re.VERBOSE,
)
#: The longest answer, where a provider says it for a whole generation of models.
_LONGEST_ANSWERS = (
    (re.compile(r"claude-(?:haiku|opus|sonnet)-4-5"), 64_000),
    (re.compile(r"claude-(?:(?:opus|sonnet)-4-[6-9]|[a-z]+-[5-9])"), 128_000),
)
#: What the table also lists and nobody can chat with.
_NO_CHAT = re.compile(
    r"embed|whisper|tts|transcribe|moderation|-image|image-|realtime|-live|-ocr|guard|orpheus"
    r"|voice|sonic|^(?:ada|babbage|curie|davinci|text-)|:batch$|^~|^ft:|\.ft-"
)


def describe_model(provider: Provider, name: str, base_url: str) -> Model:
    """Build a model with what is known of it.

    Args:
        provider: Who serves it.
        name: Its id there; need not be known.
        base_url: Where.

    Returns:
        The model. What is not known is 0; rates are those of a short prompt, now.
    """
    info = _find(provider, name)
    text = name.lower()
    return Model(
        id=name,
        name=(info and info.name) or name,
        api=provider.api,
        provider=provider.id,
        base_url=base_url,
        reasoning=bool(_REASONS.search(text)) and not _ANSWERS_AT_ONCE.search(text),
        input=("text",) if _TEXT_ONLY.search(text) else ("text", "image"),
        cost=ModelCost() if info is None else _rates(info),
        context_window=(info and info.context_window) or 0,
        max_tokens=next((limit for names, limit in _LONGEST_ANSWERS if names.search(text)), 0),
    )


def known_models(provider: Provider) -> list[str]:
    """Return the names that the price table lists for a provider, without those of no use here."""
    return list(_names(provider.prices)) if provider.prices else []


def nearest_name(provider: Provider, name: str) -> str:
    """Return the known name that was probably meant; nothing if the name is fine or far off."""
    folded = {each.lower(): each for each in known_models(provider)}
    same = folded.get(name.lower())
    if same is not None:  # where a provider writes lower case, capitals are another name
        return same if same != name and same == same.lower() else ""
    if not folded or _find(provider, name) is not None:
        return ""
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.8)
    # Other numbers are another version, perhaps of this week; other letters are a slip.
    if not close or _is_other_version(close[0], name.lower()):
        return ""
    return folded[close[0]]


def _is_other_version(known: str, name: str) -> bool:
    letters = [re.sub(r"[\d.]", "", each) for each in (known, name)]
    digits = [re.sub(r"\D", "", each) for each in (known, name)]
    return letters[0] == letters[1] and digits[0] != digits[1]


@cache
def _names(prices: str) -> tuple[str, ...]:
    return tuple(info.id for info in _table(prices) if not _NO_CHAT.search(info.id.lower()))


def _table(prices: str) -> Iterator[ModelInfo]:
    from genai_prices.data import providers

    for listed in providers:
        if listed.id == prices:
            yield from listed.models


def _find(provider: Provider, name: str) -> ModelInfo | None:
    if not provider.prices:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        found = get_snapshot().find_provider_model(name, None, provider.prices, None)
    except LookupError:
        return None
    return found[1]


def _rates(info: ModelInfo) -> ModelCost:
    """Return today's rates in dollars per million tokens."""
    prices = info.get_prices(datetime.now(UTC))

    def rate(kind: str) -> float:
        price: Any = getattr(prices, f"{kind}_mtok", None)
        return float(getattr(price, "base", price) or 0)

    return ModelCost(
        input=rate("input"),
        output=rate("output"),
        cache_read=rate("cache_read"),
        cache_write=rate("cache_write"),
    )
