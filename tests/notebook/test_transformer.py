"""Which cells become a top-level await, without a kernel."""

import ast
from types import SimpleNamespace

import pytest

from pi_notebook.transformer import AgentCells


class Events:
    def __init__(self):
        self.callbacks = {"pre_run_cell": [], "post_run_cell": []}

    def register(self, name, callback):
        self.callbacks[name].append(callback)

    def unregister(self, name, callback):
        self.callbacks[name].remove(callback)

    def trigger(self, name):
        for callback in self.callbacks[name]:
            callback(None)


@pytest.fixture
def shell():
    other = lambda lines: lines  # noqa: E731
    return SimpleNamespace(
        autoawait=True, input_transformers_cleanup=[other], events=Events(), others=[other]
    )


def lines(cell):
    return cell.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("cell", "arguments"),
    [
        ("%%agent\nhi\n", ("", "hi\n")),
        ("\n  \n%%agent --model x  \nhi {a}\n\n", ("--model x", "hi {a}\n\n")),
        ("%%agent", ("", "")),
        ("%%agent explain this", ("explain this", "")),
        ("%%agent\n'''\"\"\"\\ \U0001f600\n", ("", "'''\"\"\"\\ \U0001f600\n")),
    ],
)
def test_agent_cell_becomes_an_await_of_its_literal_text(shell, cell, arguments):
    """Line and body arrive as string literals, so nothing in them is ever interpreted."""
    (line,) = AgentCells(shell).transform(lines(cell))
    call = ast.parse(line).body[0].value.value
    assert tuple(ast.literal_eval(argument) for argument in call.args) == arguments


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "\n",
        "x = '%%agent'\n",
        "%%agentic\nhi\n",
        "%%agent?\n",
        "# c\n%%agent\nhi\n",
        "%agent\n",
    ],
)
def test_other_cells_are_left_alone(shell, cell):
    """Only a cell whose first word is the magic is rewritten."""
    given = lines(cell)
    assert AgentCells(shell).transform(given) is given


def test_cells_that_cannot_be_awaited_are_left_to_the_magic(shell):
    """Inside another cell's execution, and with autoawait off, nothing is rewritten."""
    cells = AgentCells(shell)
    cells.install()
    given = lines("%%agent\nhi\n")
    shell.events.trigger("pre_run_cell")
    assert cells.transform(given) is given
    shell.events.trigger("post_run_cell")
    assert cells.transform(given) is not given
    # The cell that loads the extension leaves without having entered.
    shell.events.trigger("post_run_cell")
    assert cells.transform(given) is not given
    shell.autoawait = False
    assert cells.transform(given) is given


def test_install_and_remove_leave_the_shell_as_it_was(shell):
    """The transformer stands first while it is there, and nothing stays behind."""
    cells = AgentCells(shell)
    cells.install()
    assert shell.input_transformers_cleanup == [cells.transform, *shell.others]
    cells.remove()
    assert shell.input_transformers_cleanup == shell.others
    assert shell.events.callbacks == {"pre_run_cell": [], "post_run_cell": []}


@pytest.mark.parametrize(
    ("cell", "made"),
    [
        (
            "%agent explain why did it stop?\n",
            "run_line_magic('agent', 'explain why did it stop?')",
        ),
        ("x = 1\nif x:\n    %agent steer is it?", "run_line_magic('agent', 'steer is it?')"),
        ("%agent explain don't you?", "run_line_magic('agent', \"explain don't you?\")"),
    ],
)
def test_a_question_to_a_verb_is_no_request_for_help(shell, cell, made):
    """The line becomes a call with its words as a literal, where it stands."""
    told = "".join(AgentCells(shell).transform(lines(cell)))
    assert f"get_ipython().{made}" in told
    ast.parse(told)


@pytest.mark.parametrize(
    "cell",
    [
        "%agent?\n",
        "%agent explain?\n",
        "%%time\n%agent explain why so?\n",
        'x = """\n%agent is it so?\n"""\n',
    ],
)
def test_help_and_text_are_left_alone(shell, cell):
    """What asks for help, and what stands in a text or another magic's cell, stays."""
    assert AgentCells(shell).transform(lines(cell)) == lines(cell)
