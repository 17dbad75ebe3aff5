"""The tree of a conversation: notebook.md 4."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pi_agent_kernel.messages import (
    AssistantMessage,
    SystemMessage,
    TextContent,
    UserMessage,
)

from pi_notebook.branches import Branches

CELLS = ["a", "b", "c"]


def turn(text):
    """Return the messages of one turn."""
    return [
        UserMessage(content=text),
        AssistantMessage(content=[TextContent(text=text.upper())]),
    ]


def told(messages):
    """Return what the user said in a transcript."""
    return [message.content for message in messages if message.role == "user"]


def conversation(*cells):
    """Return a tree and its transcript after these cells ran, each saying its own name."""
    branches, transcript = Branches(), []
    for cell in cells:
        transcript += turn(cell)
        branches.follow(transcript, cell)
    return branches, transcript


def test_running_a_cell_again_goes_back_to_before_its_turn():
    """What came from it and after it is set aside, and comes back by its name."""
    branches, _ = conversation("a", "b", "c")

    aside = branches.rewind_to("b")
    transcript = branches.messages() + turn("b2")
    branches.follow(transcript, "b")

    assert (aside.branch, aside.turns, told(aside.messages)) == ("aside-1", 2, ["b", "c"])
    assert told(branches.messages()) == ["a", "b2"]
    assert told(branches.switch("aside-1")) == ["a", "b", "c"]
    assert branches.active == "aside-1"


def test_a_cell_without_a_turn_does_not_go_back():
    """A new or copied cell appends."""
    branches, _ = conversation("a")
    assert branches.rewind_to("b") is None
    assert not branches.has_turn_of("b")
    assert branches.has_turn_of("a")


def test_messages_that_came_from_elsewhere_are_a_turn_of_nobody():
    """What Python code appended is kept, and undone as one turn."""
    branches, transcript = conversation("a")

    assert branches.follow(transcript + turn("python")) == 2

    assert told(branches.undo().messages) == ["python"]
    assert told(branches.messages()) == ["a"]


def test_a_transcript_that_was_cut_or_replaced_keeps_its_past():
    """A reset or a deleted message sets the former branch aside."""
    branches, transcript = conversation("a", "b")

    branches.follow(transcript[:1])
    branches.follow([])

    assert branches.messages() == []
    assert told(branches.messages("aside-1")) == ["a", "b"]


def test_fork_and_switch():
    """A fork begins where the active branch ends; both go on by themselves."""
    branches, transcript = conversation("a")
    branches.fork("idea")
    branches.follow(transcript + turn("x"), "x")

    assert told(branches.switch("main")) == ["a"]
    branches.follow(transcript + turn("y"), "y")

    assert told(branches.messages("idea")) == ["a", "x"]
    assert told(branches.messages("main")) == ["a", "y"]
    rows = {row.name: (row.is_active, row.turns, row.messages, row.shared) for row in branches}
    assert rows == {"main": (True, 2, 4, 4), "idea": (False, 2, 4, 2)}


def test_what_a_named_branch_still_holds_is_not_named_again():
    """Undoing on a fork what another branch has makes no second name for it."""
    branches, _ = conversation("a", "b")
    branches.fork("idea")

    assert branches.undo().branch == "main"
    assert len(branches) == 2


def test_the_leading_system_message_is_no_turn_and_no_cells():
    """What every turn stands on is not undone, and survives the cell that first needed it."""
    branches = Branches()
    head = SystemMessage(content="Be brief.", timestamp=1)
    branches.follow([head, *turn("a")], "a")
    branches.follow([head, *turn("b")], "b")

    assert branches.rewind_to("a") is None
    assert branches.undo().turns == 1
    assert branches.messages() == [head]
    with pytest.raises(ValueError, match="there are 0 turns"):
        branches.undo()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda tree: tree.undo(0), "1 or more, not 0"),
        (lambda tree: tree.undo(2), "there are 1 turns to undo, not 2"),
        (lambda tree: tree.switch("x"), r"no branch 'x' \(there is: main\)"),
        (lambda tree: tree.fork("main"), "there is a branch 'main' already"),
        (lambda tree: tree.fork("aside-9"), "no name for a branch"),
        (lambda tree: tree.fork("a b"), "no name for a branch"),
    ],
)
def test_bad_input_is_an_error_that_says_what_there_is(wrong, said):
    """Nothing changes."""
    branches, transcript = conversation("a")
    with pytest.raises(ValueError, match=said):
        wrong(branches)
    assert branches.messages() == transcript


class Notebook(RuleBasedStateMachine):
    """Run, re-run, edit, undo, fork and switch in any order, as a notebook does."""

    def __init__(self):
        super().__init__()
        self.branches = Branches()
        self.transcript = []
        self.ever = []
        self.count = 0

    @rule(cell=st.sampled_from(CELLS), append=st.booleans())
    def run(self, cell, append):
        """Run a cell, or run it again."""
        self.branches.follow(self.transcript)
        if not append and self.branches.rewind_to(cell) is not None:
            self.transcript = self.branches.messages()
        self.count += 1
        new = turn(f"{cell}{self.count}")
        self.ever += new
        self.transcript = self.transcript + new
        self.branches.follow(self.transcript, cell)

    @rule(data=st.data())
    @precondition(lambda self: self.transcript)
    def edit(self, data):
        """Delete a tail of the transcript, as Python code may."""
        keep = data.draw(st.integers(0, len(self.transcript) - 1))
        self.transcript = self.transcript[:keep]
        self.branches.follow(self.transcript)

    @rule()
    @precondition(lambda self: self.transcript)
    def undo(self):
        """Take the last turn back."""
        self.branches.undo()
        self.transcript = self.branches.messages()

    @rule()
    def fork(self):
        """Begin a branch."""
        self.count += 1
        self.branches.fork(f"fork{self.count}")

    @rule(data=st.data())
    def switch(self, data):
        """Go to any branch."""
        name = data.draw(st.sampled_from([row.name for row in self.branches]))
        self.transcript = self.branches.switch(name)

    @invariant()
    def the_transcript_is_the_active_branch(self):
        """What the agent has is what the tree says."""
        assert self.transcript == self.branches.messages()

    @invariant()
    def nothing_is_lost(self):
        """Every message that ever was is on some branch."""
        reachable = {id(m) for row in self.branches for m in self.branches.messages(row.name)}
        assert {id(message) for message in self.ever} <= reachable


TestNotebook = Notebook.TestCase
TestNotebook.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestNotebook = pytest.mark.property(TestNotebook)
