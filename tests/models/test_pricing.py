from __future__ import annotations

import pytest
from pi_agent_kernel import calculate_cost, from_json, to_json
from pi_agent_kernel.messages import Cost, Usage
from pi_agent_kernel.models.pricing import listed_rates
from pi_agent_kernel.request import Model, ModelCost, ModelCostTier

RATES = ModelCost(input=1, output=2, cache_read=0.1, cache_write=1.25)
TIERED = ModelCost(
    input=1,
    output=2,
    cache_read=0.1,
    cache_write=1.25,
    tiers=[
        ModelCostTier(input_tokens_above=300, input=9, output=9, cache_read=9, cache_write=9),
        ModelCostTier(input_tokens_above=100, input=3, output=4, cache_read=0.3, cache_write=5),
    ],
)
UNKNOWN = Model(id="my-own-1", provider="mine", base_url="http://127.0.0.1:1/v1")


def priced(cost, **counts):
    """Return what that usage costs by those rates, in millionths of a dollar."""
    price = calculate_cost(Model(id="m", cost=cost), Usage(**counts))
    parts = (price.input, price.output, price.cache_read, price.cache_write, price.total)
    return tuple(round(part * 1e6, 6) for part in parts)


def test_rates_are_per_million_tokens():
    """Each part costs its rate times its tokens, and the total is their sum (MD-20)."""
    usage = {"input": 10, "output": 20, "cache_read": 30, "cache_write": 40}

    assert priced(RATES, **usage) == (10, 40, 3, 50, 103)
    assert priced(RATES) == (0, 0, 0, 0, 0)
    free = calculate_cost(Model(id="m", cost=RATES), Usage())
    assert free.extra is None


def test_writes_for_an_hour_cost_twice_the_input():
    """What the cache keeps for an hour is billed at twice the input rate (MD-20)."""
    assert priced(RATES, cache_write=40, cache_write_1h=30)[3] == 10 * 1.25 + 30 * 2
    assert priced(RATES, cache_write=10, cache_write_1h=30)[3] == 20


@pytest.mark.parametrize(
    ("counts", "rate"),
    [
        ({"input": 100}, 1),
        ({"input": 101}, 3),
        ({"input": 1, "cache_read": 60, "cache_write": 40}, 3),
        ({"input": 300}, 3),
        ({"input": 301}, 9),
        ({"input": 1, "output": 900}, 1),
    ],
)
def test_the_highest_step_exceeded_counts(counts, rate):
    """The whole input, cache included, decides the step, strictly above it (MD-20)."""
    assert priced(TIERED, **counts)[0] == counts["input"] * rate


def test_an_hours_write_follows_the_step():
    """Twice the input rate means that of the step in force."""
    assert priced(TIERED, cache_write=200, cache_write_1h=200)[3] == 200 * 2 * 3


def test_the_providers_own_total_wins():
    """A total the provider reported replaces the sum and stays marked (MD-20)."""
    told = Usage(input=10, cost=Cost(total=0.5, total_from_provider=True))

    known = calculate_cost(Model(id="m", cost=RATES), told)
    unknown = calculate_cost(UNKNOWN, told)

    assert (known.input, known.total, known.total_from_provider) == (10e-6, 0.5, True)
    assert (unknown.input, unknown.total, unknown.total_from_provider) == (0, 0.5, True)
    assert unknown.extra is None


@pytest.mark.parametrize(
    "model",
    [
        UNKNOWN,
        Model(id="gpt-4o", provider="ollama"),
        Model(id="gpt-4o", provider="openai-chat", base_url="http://127.0.0.1:1/v1"),
        Model(id="no-such-model", provider="openai"),
        Model(id="gpt-4o", provider="no-such-provider"),
    ],
)
def test_an_unknown_price_is_said_to_be_unknown(model):
    """Nothing is guessed for a model or server that is not listed."""
    cost = calculate_cost(model, Usage(input=1000))

    assert (cost.total, cost.extra) == (0, {"costKnown": False})


def test_the_table_knows_what_the_model_does_not():
    """Without rates of its own a model is priced by the table, steps included."""
    model = Model(id="claude-sonnet-4-5", provider="anthropic")

    rates = listed_rates(model)
    small = calculate_cost(model, Usage(input=1_000_000 // 10, output=1000, cache_read=10_000))
    large = calculate_cost(model, Usage(input=300_000))

    assert (rates.input, rates.output, rates.cache_read, rates.cache_write) == (3, 15, 0.3, 3.75)
    assert [(tier.input_tokens_above, tier.input) for tier in rates.tiers] == [(200_000, 6)]
    assert small.total == pytest.approx(0.3 + 0.015 + 0.003)
    assert large.total == pytest.approx(1.8)
    assert small.extra is None


def test_the_model_that_answered_is_priced():
    """An alias is priced as the model that answered."""
    alias = Model(id="my-alias", provider="openai")

    assert calculate_cost(alias, Usage(output=1_000_000)).extra == {"costKnown": False}
    cost = calculate_cost(alias, Usage(output=1_000_000), response_model="gpt-4o-2024-08-06")
    assert cost.total == pytest.approx(10)


def test_providers_have_their_names_in_the_table():
    """Providers that the table calls otherwise are found by our names."""
    bedrock = Model(id="us.anthropic.claude-sonnet-4-5-20250929-v1:0", provider="bedrock")
    chat = Model(id="gpt-4o", provider="openai-chat", base_url="https://api.openai.com/v1/")

    assert listed_rates(bedrock) is not None
    assert listed_rates(chat).input == 2.5
    assert listed_rates(Model(id="grok-4", provider="xai")) is not None


def test_the_cache_costs_plain_input_where_the_table_is_silent():
    """Cache reads and writes without a listed price cost what input costs."""
    rates = listed_rates(Model(id="gpt-4o", provider="openai"))

    assert (rates.cache_read, rates.cache_write) == (1.25, 2.5)


def test_steps_have_a_wire_form():
    """Steps are written and read as `tiers` of the reference's names."""
    model = Model(id="m", cost=TIERED)

    data = to_json(model)

    assert data["cost"]["tiers"][1]["inputTokensAbove"] == 100
    assert from_json(data, Model).cost.tiers[0] == TIERED.tiers[0]
