"""`%agent explain` and `pi.explain`, in a real kernel."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.kernel

SETUP = """
import pi_notebook as pi
from pi_agent_kernel import faux_assistant_message, faux_provider, faux_tool_call

def scripted(*answers):
    faux = faux_provider()
    faux.set_responses([faux_assistant_message(one) for one in answers])
    pi.agent.stream_fn = faux.stream_fn

@pi.tool
def sql(query: str) -> str:
    "Run a query."
    return "rows"
"""


@pytest.fixture
def scripted(kernel):
    """A kernel with a tool and a way to script the agent."""
    assert kernel.run(SETUP).error is None
    yield kernel
    assert kernel.run("pi.hooks.clear(); pi.agent.reset(); pi.agent.state.tools = []").error is None


def told(kernel, code):
    """What a line shows, as text."""
    (shown,) = kernel.run(code).displays
    assert "<th scope=" in shown["data"]["text/html"]
    return shown["data"]["text/plain"]


def test_who_blocked_a_call_is_named(scripted):
    """A cell's hook by its name, a policy as the policy, a person as a person."""
    assert scripted.run('@pi.before("sql")\ndef careful(call): return "not now"').error is None
    scripted.run('scripted(faux_tool_call("sql", {"query": "x"}), "end")')
    scripted.run("%%agent\ngo")
    assert "blocked by the cell hook @pi.before careful: not now" in told(
        scripted, "%agent explain who blocked sql?"
    )

    scripted.run('pi.hooks.clear()\nscripted(faux_tool_call("sql", {"query": "x"}), "end")')
    scripted.run("%%agent --approve sql=deny\ngo")
    assert "blocked by the approval policy" in told(scripted, "%agent explain who blocked sql?")


def test_a_budget_is_named(scripted):
    """Why a run stopped at its budget."""
    scripted.run('scripted(faux_tool_call("sql", {"query": "x"}), "end")')
    scripted.run("%%agent --max-turns 1\ngo")

    text = told(scripted, "%agent explain why did it stop?")
    assert "ended after this turn by the budget: 1 turn used (--max-turns)" in text
    assert text.lstrip().startswith("#")


def test_pi_explain_is_the_same(scripted):
    """A value with answers, shown as the last expression of a cell."""
    scripted.run('scripted("hello")')
    scripted.run("%%agent\ngo")
    result = scripted.run('pi.explain("why did it stop?")')

    assert result.error is None
    assert (
        scripted.run("assert pi.explain('why did it stop?').answers[0].row == 'LP-12'").error
        is None
    )
    assert scripted.run("assert 'the run ended' in str(pi.explain())").error is None
