"""The drawings and what the code says of its state are what runs do: nothing drifts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import diagrams
import pytest
from pi_agent_kernel import ALL_EVENTS, Agent, AgentEnd, MessageStart, UserMessage
from pi_agent_kernel.conformance.agent_host import AgentHost
from pi_agent_kernel.conformance.suite import run_suite, scenario_names
from pi_agent_kernel.state import FIELDS
from pi_agent_kernel.testing import scripted_model

SUITE = Path(__file__).resolve().parents[1] / "conformance"
EVENTS = {kind.type: kind for kind in ALL_EVENTS}


def documented():
    """Who writes each field, by the words of `FIELDS`: events, and "you" for the host."""
    writers = {}
    for field in FIELDS:
        found = {name for name in re.findall(r"\w+", field.written) if name in EVENTS}
        host = "host" in field.owner or "reset()" in field.written
        writers[field.name] = found | {"you"} if host else found
    return writers


def unexplained(agent):
    """Fields whose value before a change, or now, is not what the change before it left."""
    left = {}
    complaints = []
    for record in agent.log:
        for field, before, after in zip(*(record.flat[at::3] for at in range(3)), strict=True):
            if field in left and left[field] is not before and left[field] != before:
                complaints.append(f"#{record.seq} {record.type}: {field} was {before!r}")
            left[field] = after
    for field, value in left.items():
        now = getattr(agent.state, field)
        now = now.shown() if hasattr(now, "shown") else now
        if now != value:
            complaints.append(f"{field} is {now!r}")
    return complaints


@pytest.fixture(scope="module")
def agents():
    """The agents of all conformance scenarios, after their runs, by scenario."""
    made = []
    construct = AgentHost.construct

    def construct_and_keep(self, options):
        construct(self, options)
        made.append(self._agent)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AgentHost, "construct", construct_and_keep)
        list(run_suite(SUITE, scenario_names(SUITE)))
    assert len(made) > 100
    return made


@pytest.mark.parametrize("page", diagrams.PAGES, ids=lambda page: page.name)
def test_drawings_are_up_to_date(page):
    """Every drawing of a page is what runs do now; `python tests/diagrams.py` draws them anew."""
    text = page.read_text(encoding="utf-8")

    assert diagrams.redrawn(text, diagrams.drawings()) == text


def test_every_drawing_has_its_place():
    """Each drawing stands in a page, both event trees in the kernel's README."""
    places = {
        page.name: {found[2] for found in diagrams.PLACE.finditer(page.read_text("utf-8"))}
        for page in diagrams.PAGES
    }

    assert set.union(*places.values()) == diagrams.drawings().keys()
    assert places["README.md"] >= {"plain-answer", "answer-with-tools"}


def test_drift_is_found():
    """A drawing that says something else is replaced; one that nobody draws is an error."""
    page = "a\n<!-- diagram: one -->\nold\n<!-- end of diagram -->\nz\n"

    assert diagrams.redrawn(page, {"one": "new"}) == page.replace("old", "new")
    with pytest.raises(KeyError):
        diagrams.redrawn(page, {"two": "new"})


def test_code_of_the_page_runs():
    """The Python of `how-a-run-works.md` is a program that ends without an error."""
    text = diagrams.PAGES[1].read_text("utf-8")
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_fields_change_by_their_documented_writers_only(agents):
    """In the logs of all scenarios a field is changed by no event that `FIELDS` does not name."""
    allowed = documented()

    seen = diagrams.written(agent.log for agent in agents)

    assert {
        field: set(writers) - allowed[field]
        for field, writers in seen.items()
        if not set(writers) <= allowed[field]
    } == {}


def test_every_documented_writer_is_seen(agents):
    """Each event that `FIELDS` names changes the field in some scenario; agent_end is a net."""
    seen = diagrams.written(agent.log for agent in agents)
    unseen = {
        (field, writer)
        for field, writers in documented().items()
        for writer in writers - set(seen.get(field, ()))
    }

    # Runs close their messages before agent_end: only a state by itself shows this writer.
    assert unseen == {("streaming_message", "agent_end")}
    state = Agent(stream_fn=scripted_model()).state
    state.apply(MessageStart(message=UserMessage(content="Hi.")))
    assert state.apply(AgentEnd(messages=()))[0] == "streaming_message"
    assert state.streaming_message is None


def test_no_change_is_missing_in_a_log(agents):
    """Each change begins where the one before it ended, and the last one is the state now."""
    assert [complaint for agent in agents for complaint in unexplained(agent)] == []


async def test_unlogged_change_is_found():
    """A field that somebody writes behind the log's back is complained about."""
    agent = Agent(stream_fn=scripted_model("Hello.", "Again."))
    await agent.prompt("Hi.")
    agent.state._turn_index = 7
    assert unexplained(agent) == ["turn_index is 7"]

    await agent.prompt("Hi.")
    assert unexplained(agent) == ["#17 agent_start: turn_index was 7"]


@pytest.mark.parametrize("kind", ALL_EVENTS, ids=lambda kind: kind.type)
def test_events_say_what_they_write(kind):
    """The docstring of an event class names the fields that it writes, as `FIELDS` does."""
    said = re.search(r"Writes (.*)\.", kind.__doc__)

    assert set(re.findall(r"`(\w+)`", said[1] if said else "")) == {
        field for field, writers in documented().items() if kind.type in writers
    }
