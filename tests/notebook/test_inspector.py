"""The inspector's panels, as data and as text: notebook.md 7."""

import re

import pytest
from pi_agent_kernel import (
    Agent,
    AssistantMessage,
    RetryPolicy,
    SystemMessage,
    TextContent,
    UserMessage,
    faux_assistant_message,
    tool,
)
from pi_agent_kernel.log import HostCall, LogRecord
from pi_agent_kernel.state import FIELDS
from scripted import Scripted, call, make_tool, ok

from pi_notebook.inspector.page import LONGEST_PAGE, page_of
from pi_notebook.inspector.panel import Chart, Listing, Note, Table
from pi_notebook.inspector.panels.events import EventQuery
from pi_notebook.inspector.plain import plain_inspector
from pi_notebook.inspector.scene import Scene
from pi_notebook.inspector.tabs import details_of, panel_of, tab_titles
from pi_notebook.inspector.wire import Picture


@tool
def sales(region: str) -> str:
    """Sum the revenue of a region."""
    return f"12 rows of {region}"


@tool
def forecast(horizon: int) -> str:
    """Look ahead."""
    raise RuntimeError("statsmodels is not installed")


@tool
def plot(column: str) -> str:
    """Draw."""
    return column


async def talk():
    s = Scripted(
        call("sales", "c1", region="EMEA"),
        call("forecast", "c2", horizon=3),
        "Revenue grew.",
        tools=[sales, forecast],
        system_prompt="You analyse sales.",
    )
    await s.prompt("How did EMEA do?")
    return s


def scene(s, *, exact=True):
    return Scene.of(s if isinstance(s, Agent) else s.agent, exact=exact)


def cells(panel, column=1):
    """Return the texts of a panel's own table or list, by their first cell."""
    rows = [row for block in panel.blocks if isinstance(block, Table) for row in block.rows]
    if panel.rows is not None:
        rows += panel.rows.read(0, panel.rows.total)
    return {row.cells[0]: row.cells[column] for row in rows}


def texts(blocks):
    return "\n".join(
        f"{block.title}: {block.text}" for block in blocks if isinstance(block, Listing)
    )


async def test_state_names_the_last_writer_of_each_field():
    """The number told is that of the last record that changed the field."""
    s = await talk()
    s.state.thinking_level = "low"
    panel = panel_of(scene(s), "state")
    writers = cells(panel, 3)
    for field in FIELDS:
        if field.name == "system_prompt":
            continue
        found = s.agent.log.last_change(field.name)
        named = re.match(r"#(\d+)", writers[field.name])
        assert (found is None) == (named is None), field.name
        if found is not None:
            assert int(named[1]) == found[0].seq, field.name
    assert writers["thinking_level"].endswith("host: assigned")
    assert cells(panel, 2) == {field.name: field.owner for field in FIELDS}


async def test_the_prompt_is_written_by_whatever_gave_a_system_message():
    """At the start, by the host's own edit, or by the message_end of a system message."""
    s = Scripted("one", "two", system_prompt="p")
    assert cells(panel_of(scene(s), "state"), 3)["system_prompt"] == "at the start"
    s.state.messages.append(UserMessage(content="only a user's"))
    assert cells(panel_of(scene(s), "state"), 3)["system_prompt"] == "at the start"
    s.state.messages.append(SystemMessage(sections={"style": "short"}))
    edit = s.agent.log.last_seq
    assert cells(panel_of(scene(s), "state"), 3)["system_prompt"] == f"#{edit} host: assigned"
    await s.prompt([SystemMessage(content="more"), UserMessage(content="go")])
    end = next(r.seq for r in s.agent.log.of_type("message_end"))
    told = cells(panel_of(scene(s), "state"), 3)["system_prompt"]
    assert told.startswith(f"#{end} message_end")


async def test_the_two_mismatches_are_named_and_what_will_be_announced():
    """What is told of the next request is what it then does."""
    s = await talk()
    s.state.tools = [sales, plot]
    shown = scene(s)
    notes = [b for b in panel_of(shown, "tools").blocks if isinstance(b, Note)]
    assert [(n.about, n.tone) for n in notes] == [("plot", "warn"), ("forecast", "warn")]
    assert "executable but not yet declared" in notes[0].text
    assert "tools_added" in notes[0].text
    assert "declared but not executable" in notes[1].text
    assert "tools_removed" in notes[1].text

    s.faux.set_responses([faux_assistant_message("fine")])
    await s.prompt("again")

    patch = next(m for m in s.state.messages[1:] if isinstance(m, SystemMessage))
    assert [t.name for t in patch.tools_added] == ["plot"]
    assert [t.name for t in patch.tools_removed] == ["forecast"]
    after = [b for b in panel_of(scene(s), "tools").blocks if isinstance(b, Note)]
    assert [n.about for n in after] == ["Nothing to announce"]
    place = list(s.state.messages).index(patch)
    row = panel_of(scene(s), "transcript").rows.read(place, place + 1)[0]
    assert row.cells[1:3] == ("system", "tools_added plot · tools_removed forecast")


async def test_a_changed_definition_is_announced_anew():
    """A tool of the same name with another description counts as different."""
    s = Scripted("x", tools=[make_tool(ok, "t", description="old")])
    s.state.tools = [make_tool(ok, "t", description="new")]
    [note] = [b for b in panel_of(scene(s), "tools").blocks if isinstance(b, Note)]
    assert note.about == "t"
    assert "declare it anew" in note.text


async def test_the_transcript_tells_which_event_added_each_message():
    """Every message of a run names its message_end; others the start or the host."""
    s = await talk()
    by = cells(panel_of(scene(s), "transcript"), 4)
    ends = [record.seq for record in s.agent.log.of_type("message_end")]
    assert list(by.values()) == ["start", *(f"#{seq}" for seq in ends)]
    prompt = panel_of(scene(s), "transcript").aside[0]
    assert prompt.text == s.state.system_prompt


async def test_events_fold_updates_and_tell_changes():
    """Each record is in exactly one row, in order; updates that follow each other in one."""
    s = await talk()
    panel = panel_of(scene(s), "events")
    covered = []
    for key in cells(panel):
        first, _, last = key.partition("–")  # noqa: RUF001 - from, to
        covered += range(int(first), int(last or first) + 1)
    assert covered == [record.seq for record in s.agent.log]
    rows = cells(panel)
    start = s.agent.log.of_type("tool_execution_start")[0].seq
    assert rows[str(start)].endswith("pending_tool_calls + sales (c1)")
    whole = panel_of(scene(s), "events", EventQuery(every_update=True))
    assert [row.ref for row in whole.rows.read(0, whole.rows.total)] == covered


async def test_a_filter_keeps_the_rows_that_have_all_words():
    """Also while the log grows, and with any case."""
    s = await talk()
    query = EventQuery(words="TOOL_execution forecast")
    shown = scene(s)
    panel = panel_of(shown, "events", query)
    assert panel.rows.total == 2
    s.agent.log.note("forecast", "tool_execution")
    shown.reading.update()
    assert panel_of(shown, "events", query).rows.total == 3


async def test_the_chart_has_each_turn_request_and_tool():
    """One bar each, within the run, tools in the colour of their end; ordered without times."""
    s = await talk()
    for exact in (True, False):
        [chart] = [
            b for b in panel_of(scene(s, exact=exact), "events").blocks if isinstance(b, Chart)
        ]
        names = [bar.title.split(":")[0] for bar in chart.bars]
        assert names.count("turn") == 3
        assert names.count("faux-1") == 3
        tones = {bar.title.split(":")[0]: bar.tone for bar in chart.bars}
        assert (tones["sales"], tones["forecast"]) == ("ok", "bad")
        assert all(0 <= bar.start <= bar.end <= 1 for bar in chart.bars)
        assert chart.lanes == ("request", "tools", "turn")
        assert any(" s" in t.label or " ms" in t.label for t in chart.ticks) == exact


async def test_a_request_shows_what_the_model_saw_and_what_was_new():
    """Messages as sent, tools, the difference to the request before."""
    s = await talk()
    blocks = details_of(scene(s), "requests", 2)
    [difference] = [b for b in blocks if isinstance(b, Listing) and b.is_difference]
    assert difference.text.split("\n") == [
        "@ 2 messages as before",
        '+ 2 assistant  sales(region="EMEA")',
        "+ 3 toolResult  sales → 12 rows of EMEA",
    ]
    [table] = [b for b in blocks if isinstance(b, Table)]
    assert [row.cells[1] for row in table.rows] == [m.role for m in s.requests[1]]
    assert panel_of(scene(s), "requests").rows.total == 3


async def test_a_request_made_again_and_one_without_an_answer_are_marked():
    """Attempts are told apart."""
    failed = faux_assistant_message("", stop_reason="error", error_message="overloaded")
    s = Scripted(failed, "x", retry=RetryPolicy(base_delay_ms=0))
    await s.prompt()
    rows = panel_of(scene(s), "requests").rows.read(0, 2)
    assert [tag.text for row in rows for tag in row.tags] == ["error", "attempt 2"]


async def test_queues_usage_and_tabs_of_a_plain_agent():
    """A plain agent has queues and usage, and neither approvals nor a tree."""
    s = await talk()
    s.agent.steer("be brief")
    s.agent.follow_up("thanks")
    titles = tab_titles(scene(s))
    assert list(titles) == [
        "state",
        "transcript",
        "tools",
        "events",
        "requests",
        "queues",
        "usage",
    ]
    assert titles["queues"] == ("Queues", 2)
    assert titles["events"][1] == len(s.agent.log)
    assert cells(panel_of(scene(s), "queues")) == {"steer 1": "be brief", "follow 1": "thanks"}
    assert panel_of(scene(s), "usage").rows.total == 3


async def test_without_exact_nothing_differs_between_two_executions():
    """Text and page hold no time, no id and no cost: two agents give the same bytes."""
    pages = set()
    for _ in range(2):
        s = await talk()
        s.state.tools = [sales, plot]
        shown = scene(s, exact=False)
        pages.add((plain_inspector(shown), page_of(shown)))
    assert len(pages) == 1
    [(text, page)] = pages
    assert "c1" not in text + page.partition("</style>")[2]
    assert "plot is executable but not yet declared" in text


async def test_hostile_text_stays_text_and_secrets_stay_hidden(monkeypatch):
    """Markup of a model is escaped, escapes of terminals vanish, keys of the environment, too."""
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value-1")
    evil = "<img src=x onerror=alert(1)>\x1b[31m\u202eend very-secret-value-1"
    s = Scripted(call(evil, "c1", **{"<b>": evil}), evil, system_prompt=evil)
    await s.prompt(evil)
    shown = scene(s)
    page = page_of(shown)
    body = page.partition("</style>")[2]
    assert "<img" not in body
    assert "\x1b" not in page + plain_inspector(shown)
    assert "\u202e" not in page
    data = repr(
        [Picture().update(panel_of(shown, name), (0, 100), "") for name in tab_titles(shown)]
    )
    details = repr(
        [details_of(shown, name, ref) for name in tab_titles(shown) for ref in range(40)]
    )
    for told in (page, plain_inspector(shown), data, details):
        assert "very-secret-value-1" not in told


async def test_a_page_is_bounded_and_names_what_it_leaves_out():
    """2,000 long messages and 50,000 events make a page of bounded size."""
    s = Scripted("end", messages=[UserMessage(content="word " * 2000) for _ in range(2000)])
    await s.prompt()
    for number in range(50_000):
        s.agent.log.note("state", f"field {number}")
    page = page_of(scene(s, exact=False))
    assert len(page) <= LONGEST_PAGE
    assert "earlier rows are left out" in page


async def test_a_log_that_drops_is_read_as_far_as_it_goes():
    """What is gone is said to be gone; rows, writers and the chart are of what is left."""
    s = Scripted("one", "two", max_log_events=20)
    shown = scene(s)
    await s.prompt()
    shown.reading.update()
    for number in range(200):
        s.agent.log.note("state", f"field {number}")
    await s.prompt()
    shown.reading.update()
    fresh = Scene.of(s.agent, exact=True)
    first = s.agent.log.first_seq
    assert first > 1
    assert [r.cells for r in panel_of(shown, "events").rows.read(0, 99)] == [
        r.cells for r in panel_of(fresh, "events").rows.read(0, 99)
    ]
    assert f"#1 to #{first - 1}" in [
        b.about for b in panel_of(shown, "events").blocks if isinstance(b, Note)
    ]
    assert details_of(shown, "events", 1)[0].about == "#1"


async def test_reading_from_a_number_equals_reading_all():
    """`since` and `folded` give the same records from any number on, within a response, too."""
    s = await talk()
    log = s.agent.log
    everything = list(log)
    for first in range(1, len(everything) + 2):
        tail = list(log.since(first))
        assert [(r.seq, r.time, r.type) for r in tail] == [
            (r.seq, r.time, r.type) for r in everything[first - 1 :]
        ]
        assert [r.changes for r in tail] == [r.changes for r in everything[first - 1 :]]
        folded = [
            seq
            for step in log.folded(first)
            for seq in (
                [step.seq] if isinstance(step, LogRecord) else range(step.seq, step.last + 1)
            )
        ]
        assert folded == [r.seq for r in tail]


async def test_only_what_changed_is_sent():
    """A second look sends nothing; a host's change sends that row, and no other."""
    s = await talk()
    shown, picture = scene(s), Picture()
    assert picture.update(panel_of(shown, "transcript"), (0, 100), "")
    assert not picture.update(panel_of(shown, "transcript"), (0, 100), "")
    s.state.messages[1] = UserMessage(content="another question")
    shown.reading.update()
    said = picture.update(panel_of(shown, "transcript"), (0, 100), "")
    changed = {place for place, _ in said["list"]["rows"]}
    assert 1 in changed
    assert len(changed) <= 2  # the head is now known to be the host's, too


@pytest.mark.parametrize("given", [None, "main", object()])
def test_only_agents_are_inspected(given):
    """Anything else is refused with a word on what is taken."""
    from pi_notebook.inspector import inspect

    with pytest.raises(TypeError, match="inspect takes an agent"):
        inspect(given)


async def test_outside_of_a_notebook_it_is_text(capsys):
    """In a plain script the inspector is printed; an event that is not there is an error."""
    from pi_notebook.inspector import inspect

    s = await talk()
    inspect(s.agent)
    assert "pending_tool_calls" in capsys.readouterr().out
    with pytest.raises(ValueError, match=f"holds #1 to #{s.agent.log.last_seq}"):
        inspect(s.agent, 9_999)


def test_an_agent_that_did_nothing_has_every_panel():
    """Each panel of a new agent says what is not there yet."""
    shown = scene(Scripted().agent)
    for name in tab_titles(shown):
        panel = panel_of(shown, name)
        assert panel.blocks or panel.rows
    assert HostCall.type not in plain_inspector(shown)


def test_custom_and_odd_messages_are_shown():
    """Images, calls without text, thinking and roles of the host's own have a row each."""
    messages = [
        {"role": "note", "text": "mine"},
        UserMessage(content=[TextContent(text="")]),
        AssistantMessage(content=[]),
    ]
    agent = Scripted(messages=messages).agent
    shown = scene(agent)
    assert panel_of(shown, "transcript").rows.total == 3
    assert all(details_of(shown, "transcript", place) for place in range(3))
