"""Put right what a message from elsewhere says of itself, where others reckon with it.

Whoever sends a message may be wrong or lie: budgets, retries and files of sessions take its
numbers as they are. What is no possible number of its kind is not taken for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from pi_agent_kernel.json_value import FrozenDict
from pi_agent_kernel.messages import AssistantMessage, Cost, Usage

__all__ = ["sound_message", "sound_usage"]

#: The largest whole number that every reader of JSON has.
_LARGEST = 2**53 - 1
_COUNTS = ("input", "output", "cache_read", "cache_write", "total_tokens")
_OPTIONAL_COUNTS = ("cache_write_1h", "reasoning")
_PRICES = ("input", "output", "cache_read", "cache_write", "total")
_LONGEST_MS = 10**12  # as `retry_headers` has it: no server means thirty years

_replace = msgspec.structs.replace


def sound_message(message: AssistantMessage) -> AssistantMessage:
    """Return a message whose usage, diagnostics and timestamp can be reckoned with.

    Args:
        message: As it was read.

    Source: MD-19, MD-22, PX-06.
    """
    diagnostics = message.diagnostics
    return _replace(
        message,
        usage=sound_usage(message.usage),
        timestamp=_count(message.timestamp),
        diagnostics=None if diagnostics is None else [_diagnostic(each) for each in diagnostics],
    )


def sound_usage(usage: Usage) -> Usage:
    """Return a usage of whole numbers from zero up and finite prices.

    Args:
        usage: As it was read. A negative number of tokens becomes zero, a huge one the largest
            there is. A price that cannot be is not known: it counts as zero, and the cost says
            `costKnown: false`, so that no budget holds by it.

    Source: MD-19.
    """
    counts: dict[str, Any] = {name: _count(getattr(usage, name)) for name in _COUNTS}
    for name in _OPTIONAL_COUNTS:
        value = getattr(usage, name)
        counts[name] = None if value is None else _count(value)
    return _replace(usage, **counts, cost=_cost(usage.cost))


def _count(value: float) -> int:
    return min(max(0, value), _LARGEST) if isinstance(value, int) else 0


def _cost(cost: Cost) -> Cost:
    prices = {name: getattr(cost, name) for name in _PRICES}
    if all(_is_price(price) for price in prices.values()):
        return cost
    possible = {name: price if _is_price(price) else 0 for name, price in prices.items()}
    extra = FrozenDict({**(cost.extra or {}), "costKnown": False})
    return _replace(cost, **possible, extra=extra)


def _is_price(value: float) -> bool:
    return 0 <= value <= _LARGEST and math.isfinite(value)


def _diagnostic(entry: Any) -> Any:
    """Return an entry whose details a retry can read."""
    if not isinstance(entry, Mapping):
        return entry
    fields = dict(cast("Mapping[str, Any]", entry))
    details = fields.get("details")
    if fields.get("type") == "provider_error" and isinstance(details, Mapping):
        known = cast("Mapping[str, Any]", details)
        fields["details"] = {
            name: value for name, value in known.items() if _is_detail(name, value)
        }
    return fields


def _is_detail(name: str, value: Any) -> bool:
    match name:
        case "kind":
            return isinstance(value, str)
        case "shouldRetry":
            return isinstance(value, bool)
        case "status" | "retryAfterMs":
            return type(value) is int and 0 <= value <= _LONGEST_MS
        case _:
            return True
