"""Hooks and listeners in cells of their own: notebook.md 2."""

import json

import pytest

from pi_notebook.cell_hooks import CellHooks
from pi_notebook.render.bundle import RUN_MIME

pytestmark = pytest.mark.kernel

SETUP = '''
register_model("asks", calls("sql"))
pi.agent.set_model("asks");
ran, heard = [], []

@pi.tool
def sql(query: str = "select 1") -> str:
    """Ask the database."""
    ran.append(query)
    return "rows"
'''


@pytest.fixture
def asked(kernel):
    """Run the agent once; give its tool call."""
    assert kernel.run(SETUP).error is None

    def ask():
        outcome = kernel.run("%%agent\ngo")
        assert outcome.error is None, outcome.reply
        return outcome.displays[-1]["data"][RUN_MIME]["toolCalls"][0]

    return ask


def test_a_listener_is_replaced_when_its_cell_runs_again(kernel, asked):
    """It hears each event once, however often its cell ran."""
    cell = '@pi.on("tool_execution_end")\ndef note(event):\n    heard.append(event.tool_name)'
    for _ in range(3):
        kernel.run(cell)
    asked()
    assert kernel.run("heard").value == "['sql']"
    kernel.run('del pi.hooks["note"]')
    asked()
    assert kernel.run("heard").value == "['sql']"


def test_a_listener_may_be_async_and_take_the_signal(kernel, asked):
    """Two arguments are event and signal."""
    kernel.run(
        '@pi.on("agent_end")\nasync def note(event, signal):\n    heard.append(signal.aborted)'
    )
    asked()
    assert kernel.run("heard").value == "[False]"


def test_a_text_blocks_the_call(kernel, asked):
    """The model reads it as the reason; the tool does not run."""
    kernel.run('@pi.before("sql")\ndef check(call):\n    return "read only, please"')
    call = asked()
    assert call["status"] == "error"
    assert "read only, please" in call["result"]
    assert kernel.run("ran").value == "[]"


def test_arguments_are_edited_and_seen_by_the_next_hook(kernel, asked):
    """Hooks are asked in the order they were made."""
    kernel.run('@pi.before("sql")\ndef first(call):\n    return {"query": "select 2"}')
    kernel.run('@pi.before()\ndef second(call):\n    heard.append(call.args["query"])')
    asked()
    assert kernel.run("ran, heard").value == "(['select 2'], ['select 2'])"


def test_a_result_is_replaced(kernel, asked):
    """Anything a tool may return takes the result's place."""
    kernel.run('@pi.after("sql")\ndef count(call):\n    return {"rows": 3}')
    assert json.loads(asked()["result"]) == {"rows": 3}


def test_a_hook_of_another_tool_is_not_asked(kernel, asked):
    """Names choose."""
    kernel.run('@pi.before("other")\ndef check(call):\n    return "no"')
    assert asked()["result"] == "rows"


def test_a_hook_that_raises_fails_its_call_alone(kernel, asked):
    """The run goes on, the result says what was raised."""
    kernel.run('@pi.before("sql")\ndef check(call):\n    raise RuntimeError("broken check")')
    call = asked()
    assert "broken check" in call["result"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda hooks: hooks.on("tool_end"), "There is no event 'tool_end'"),
        (lambda hooks: hooks.before(print), "takes names"),
        (lambda hooks: hooks.on()(3), "goes above a function"),
    ],
)
def test_misuse_is_refused_where_it_stands(wrong, said):
    """Not in the run that would have used it."""
    with pytest.raises((ValueError, TypeError), match=said):
        wrong(CellHooks())


def test_a_hook_that_is_not_there_cannot_be_taken_off():
    """The error lists those there are."""
    with pytest.raises(KeyError, match="no hook is named 'x'"):
        del CellHooks()["x"]
