"""What a run may spend: notebook.md 2, `--max-turns`, `--max-cost`, `--max-seconds`."""

import msgspec
import pytest
from pi_agent_kernel import Agent, faux_assistant_message, faux_provider, faux_tool_call
from pi_agent_kernel.json_value import FrozenDict
from pi_agent_kernel.messages import Cost, Usage
from pi_agent_kernel.tools import tool

from pi_notebook.budget import Budget, Spending


@tool
def look() -> str:
    """Look."""
    return "seen"


def agent_with(*costs):
    """Return an agent whose model calls its tool once for each cost, then says it is done."""
    faux = faux_provider()
    calls = [faux_assistant_message(faux_tool_call("look", {})) for _ in costs]
    faux.set_responses([*calls, faux_assistant_message("done")])
    left = list(costs)

    def priced(message, _signal):
        if not left:
            return None
        return msgspec.structs.replace(message, usage=Usage(cost=left.pop(0)))

    return Agent(
        stream_fn=faux.stream_fn, model=faux.model(), tools=[look], after_model_response=priced
    )


async def spent(budget, costs, clock=lambda: 0.0, *, follow=False):
    """Run under a budget; return why it ended and the roles that came of it."""
    agent = agent_with(*costs)
    spending = Spending(budget, agent.has_queued_messages, clock)
    agent.finish_turn = spending.finish_turn
    if follow:
        agent.follow_up("and then?")
    await agent.prompt("go")
    return spending.reason, [message.role for message in agent.state.messages][2:], agent


FREE = Cost()


async def test_turns_are_counted_and_the_run_stops_at_an_edge():
    """The results of the last turn are in the transcript, so the run can go on from there."""
    reason, roles, agent = await spent(Budget(turns=2), [FREE] * 5)

    assert reason == "2 turns used (--max-turns)"
    assert roles == ["assistant", "toolResult"] * 2
    agent.finish_turn = None
    await agent.continue_()
    assert agent.state.messages[-1].text == "done"


async def test_a_run_that_ends_by_itself_has_no_reason():
    """The limit was not what ended it."""
    reason, roles, _ = await spent(Budget(turns=2), [FREE])
    assert (reason, roles[-1]) == ("", "assistant")


async def test_an_answer_that_is_not_the_end_counts():
    """With something queued the run would go on."""
    reason, _, agent = await spent(Budget(turns=1), [], follow=True)
    assert reason == "1 turn used (--max-turns)"
    assert agent.has_queued_messages()


async def test_cost_adds_up():
    """The turn that reaches the limit is the last one."""
    reason, roles, _ = await spent(Budget(cost=0.05), [Cost(total=0.03)] * 5)
    assert reason == "$0.05 used (--max-cost)"
    assert roles.count("assistant") == 2


async def test_an_unknown_price_cannot_be_held():
    """It stops at once rather than spend without end."""
    unknown = Cost(extra=FrozenDict(costKnown=False))
    reason, roles, _ = await spent(Budget(cost=1), [unknown] * 3)
    assert "price of this model is not known" in reason
    assert roles.count("assistant") == 1


@pytest.mark.parametrize(("seconds", "turns"), [(25, 3), (5, 1)])
async def test_time_is_looked_at_after_each_turn(seconds, turns):
    """No turn is cut off."""
    now = iter(range(0, 1000, 10))
    reason, roles, _ = await spent(Budget(seconds=seconds), [FREE] * 5, lambda: next(now))
    assert reason == f"{seconds} s used (--max-seconds)"
    assert roles.count("assistant") == turns
