"""What a response cost: the model's own rates, else the offline price table, else unknown.

The table belongs to `genai_prices` and is part of that package; nothing is fetched.
"""

from __future__ import annotations

from typing import Any

from pi_agent_kernel.json_value import FrozenDict
from pi_agent_kernel.messages import Cost, Usage
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.request import Model, ModelCost, ModelCostTier

__all__ = ["calculate_cost", "listed_rates"]

#: Ids of the price table where they differ from ours.
_TABLE_IDS = {"bedrock": "aws", "openai-chat": "openai", "xai": "x-ai"}


def calculate_cost(model: Model, usage: Usage, *, response_model: str | None = None) -> Cost:
    """Calculate what a response cost.

    Args:
        model: Its `cost` counts if it has any rate, else the offline price table.
        usage: The tokens. A total in `usage.cost` that the provider reported replaces the sum of
            the parts, and stays marked as reported.
        response_model: The model that answered, where it is another than was asked for; the
            table is searched for it first.

    Returns:
        US dollars by part. When nothing says the price, all are 0 and `extra["costKnown"]` is
        False.

    Source: MD-20.
    """
    reported = usage.cost.total if usage.cost.total_from_provider else None
    rates = model.cost if _has_rates(model.cost) else listed_rates(model, response_model)
    if rates is None:
        if reported is None:
            return Cost(extra=FrozenDict(costKnown=False))
        return Cost(total=reported, total_from_provider=True)
    base = _in_force(rates, usage.input + usage.cache_read + usage.cache_write)
    long_kept = min(usage.cache_write_1h or 0, usage.cache_write)
    parts = (
        usage.input * base.input / 1e6,
        usage.output * base.output / 1e6,
        usage.cache_read * base.cache_read / 1e6,
        (
            (usage.cache_write - long_kept) * base.cache_write
            # What is kept for an hour costs twice the plain input, whatever the short rate is.
            + long_kept * 2 * base.input
        )
        / 1e6,
    )
    plain, output, read, written = parts
    return Cost(
        input=plain,
        output=output,
        cache_read=read,
        cache_write=written,
        total=sum(parts) if reported is None else reported,
        total_from_provider=None if reported is None else True,
    )


def listed_rates(model: Model, response_model: str | None = None) -> ModelCost | None:
    """Return a model's rates by the offline price table; None if it is not listed.

    Args:
        model: Provider, address and id say where to look.
        response_model: Looked up first, if given.
    """
    if model.provider in PROVIDERS and PROVIDERS[model.provider].keyless:
        return None  # a server of one's own has no price, whatever its models are called
    for name in (response_model, model.id):
        found = _found(model, name) if name else None
        if found is not None:
            return _rates(found)
    return None


def _found(model: Model, name: str) -> Any:
    from genai_prices import Usage as Counted
    from genai_prices import calc_price

    provider = PROVIDERS.get(model.provider)
    own = provider.base_url if provider else ""
    address = model.base_url.rstrip("/") or own
    nothing = Counted(input_tokens=0)
    try:
        if address and address != own:
            return calc_price(nothing, name, provider_api_url=address).model_price
        known_as = _TABLE_IDS.get(model.provider, model.provider)
        return calc_price(nothing, name, provider_id=known_as).model_price
    except (LookupError, ValueError):
        return None


def _rates(price: Any) -> ModelCost:
    """Put the table's prices, each with steps of its own, into ours, with steps in common."""
    plain = price.input_mtok or 0
    # Without a price of their own, tokens of the cache are plain input.
    read = plain if price.cache_read_mtok is None else price.cache_read_mtok
    written = plain if price.cache_write_mtok is None else price.cache_write_mtok
    columns = (plain, price.output_mtok or 0, read, written)
    steps = {tier.start for column in columns for tier in getattr(column, "tiers", ())}

    def row(step: int) -> ModelCostTier:
        rates = [_price_above(column, step) for column in columns]
        return ModelCostTier(
            input_tokens_above=step,
            input=rates[0],
            output=rates[1],
            cache_read=rates[2],
            cache_write=rates[3],
        )

    base = row(-1)
    return ModelCost(
        input=base.input,
        output=base.output,
        cache_read=base.cache_read,
        cache_write=base.cache_write,
        tiers=[row(step) for step in sorted(steps)] or None,
    )


def _price_above(price: Any, step: int) -> float:
    if not hasattr(price, "tiers"):
        return float(price)
    reached = [tier.price for tier in price.tiers if tier.start <= step]
    return float(reached[-1] if reached else price.base)


def _in_force(rates: ModelCost, size: int) -> ModelCost | ModelCostTier:
    """Return the rates for an input of that many tokens: the highest step it exceeds."""
    exceeded = [tier for tier in rates.tiers or () if size > tier.input_tokens_above]
    return max(exceeded, key=lambda tier: tier.input_tokens_above, default=rates)


def _has_rates(rates: ModelCost) -> bool:
    return any((rates.input, rates.output, rates.cache_read, rates.cache_write, rates.tiers))
