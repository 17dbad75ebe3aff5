"""Policies and pending calls: notebook.md 6."""

import threading

import anyio
import pytest
from pi_agent_kernel import Agent, faux_assistant_message, faux_provider, faux_tool_call
from pi_agent_kernel.tools import tool

from pi_notebook.approvals import Approvals, Policy

LIMIT = 10  # seconds for what must end soon on any machine


@tool(effects="write")
def save(name: str) -> str:
    """Save a file."""
    return f"saved {name}"


@tool(effects=["read", "network"])
def fetch(url: str) -> str:
    """Fetch a page."""
    return url


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(effects="read")
def look() -> str:
    """Look."""
    return "seen"


def agent_with(approvals, call=None):
    """Return an agent whose model makes one call, then says it is done."""
    faux = faux_provider()
    call = call or faux_tool_call("save", {"name": "a.txt"})
    faux.set_responses([faux_assistant_message(call), faux_assistant_message("done")])
    return Agent(
        stream_fn=faux.stream_fn,
        model=faux.model(),
        tools=[save, fetch, add, look],
        before_tool_call=approvals.before_tool_call,
    )


def result_of(agent):
    """Return the tool result of a transcript."""
    return next(m for m in agent.state.messages if m.role == "toolResult")


def test_offering_a_function_is_the_consent():
    """Undeclared and read are allowed, the rest asks."""
    answers = [Policy().answer(each) for each in (add, look, save, fetch)]
    assert answers == ["allow", "allow", "ask", "ask"]


def test_the_strictest_effect_holds_and_a_tool_may_have_its_own_answer():
    """Rules replace answers, later ones win."""
    policy = Policy().with_rules("network=deny, write=allow")
    assert [policy.answer(each) for each in (save, fetch)] == ["allow", "deny"]
    assert policy.with_rules("fetch=allow").answer(fetch) == "allow"
    assert policy.with_rules("tool:read=deny").answer(look) == "allow"
    assert {policy.with_rules("ask").answer(each) for each in (add, look, save)} == {"ask"}


@pytest.mark.parametrize("rule", ["maybe", "write=maybe", "write:allow"])
def test_a_rule_that_is_none_is_an_error(rule):
    """The error names the rule and what there is."""
    with pytest.raises(ValueError, match=r"is no rule for approvals.*allow, ask or deny"):
        Policy().with_rules(rule)


async def test_an_approved_call_runs():
    """The answer may come from another thread while the run waits."""
    approvals = Approvals(lambda call: threading.Thread(target=call.approve).start())
    agent = agent_with(approvals)

    with anyio.fail_after(LIMIT):
        await agent.prompt("save")

    assert result_of(agent).text == "saved a.txt"
    assert len(approvals) == 0


async def test_a_denied_call_does_not_run_and_the_model_reads_why():
    """The reason is the tool result."""
    agent = agent_with(Approvals(lambda call: call.deny("not on Mondays") and None))

    await agent.prompt("save")

    assert result_of(agent).is_error
    assert "denied this call: not on Mondays" in result_of(agent).text


async def test_arguments_may_be_edited():
    """The tool gets the new ones."""
    agent = agent_with(Approvals(lambda call: call.approve({"name": "b.txt"}) and None))

    await agent.prompt("save")

    assert result_of(agent).text == "saved b.txt"


async def test_always_is_remembered():
    """The second call is not asked for."""
    asked = []

    def announce(call):
        asked.append(call.name)
        call.approve(always=True)

    approvals = Approvals(announce)
    for _ in range(2):
        agent = agent_with(approvals)
        await agent.prompt("save")

    assert asked == ["save"]
    assert approvals.policy.answer(save) == "allow"


async def test_always_holds_for_one_tool_whatever_its_name():
    """A name that reads like rules changes no other answer."""
    odd = tool(name="a, execute=allow", effects="write")(lambda: "done")
    faux = faux_provider()
    faux.set_responses(
        [faux_assistant_message(faux_tool_call(odd.name, {})), faux_assistant_message("done")]
    )
    approvals = Approvals(lambda call: call.approve(always=True) and None)
    agent = Agent(
        stream_fn=faux.stream_fn,
        model=faux.model(),
        tools=[odd],
        before_tool_call=approvals.before_tool_call,
    )

    await agent.prompt("go")

    assert not result_of(agent).is_error
    assert approvals.policy.answer(odd) == "allow"
    assert approvals.policy.effects["execute"] == "ask"


async def test_an_abort_ends_the_wait():
    """A call nobody answers keeps nothing alive."""
    waiting = anyio.Event()
    approvals = Approvals(lambda _call: waiting.set())
    agent = agent_with(approvals)

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(agent.prompt, "save")
            await waiting.wait()
            (call,) = approvals.values()
            assert (call.number, call.name, call.args) == (1, "save", {"name": "a.txt"})
            agent.abort()

    assert agent.state.messages[-1].stop_reason == "aborted"
    assert len(approvals) == 0


async def test_only_the_first_answer_counts():
    """A second answer is told that it came late."""
    answers = []

    def announce(call):
        answers.extend([call.deny("no"), call.approve()])

    agent = agent_with(Approvals(announce))
    await agent.prompt("save")

    assert answers == [True, False]
    assert result_of(agent).is_error


@pytest.mark.parametrize(("rules", "said"), [("", "nobody can give one"), ("deny", "not allowed")])
async def test_where_nobody_can_answer_it_is_denied_with_the_remedy(rules, said):
    """The message names the option that would allow it."""
    approvals = Approvals()
    approvals.unattended = True
    approvals.policy = approvals.policy.with_rules(rules)
    agent = agent_with(approvals)

    await agent.prompt("save")

    text = result_of(agent).text
    assert said in text
    assert "--approve save=allow" in text
    assert "PI_NOTEBOOK_APPROVE=save=allow" in text
