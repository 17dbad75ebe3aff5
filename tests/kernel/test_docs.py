"""The tables and trees of the kernel's pages say what its own tables and classes say."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest
from pi_agent_kernel import (
    ALL_EVENTS,
    LIFECYCLE_EVENTS,
    Agent,
    AgentState,
    AgentTool,
    AssistantMessageEvent,
    RetryPolicy,
    faux_assistant_message,
    faux_provider,
    faux_tool_call,
    hooks,
    invocation,
)
from pi_agent_kernel.models.error_kinds import Kind
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.models.transient import TRANSIENT_KINDS
from pi_agent_kernel.state import FIELDS

CORE = Path(__file__).resolve().parents[2] / "core"
PAGE = (CORE / "README.md").read_text(encoding="utf-8")
MODELS = (CORE / "pi_agent_kernel" / "models" / "README.md").read_text(encoding="utf-8")
EVENTS = {kind.type: kind for kind in ALL_EVENTS}


def table(text, heading):
    """The rows of the table whose first column has this heading, cell by cell."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def names(cell):
    """The names in backticks of a cell, without their arguments."""
    return re.findall(r"`(\w+)[^`]*`", cell)


def event_tree():
    """The lines of the page's tree of events: names, whether starred, words beside them."""
    block = PAGE.split("```text\nagent_start\n")[1].split("```")[0]
    lines = []
    for line in ["agent_start", *block.splitlines()]:
        shown, _, beside = line.strip("│├└─ ").partition("   ")
        found = re.findall(r"[a-z]+(?:_[a-z]+)+", shown)
        lines.append((found, "*" in shown, re.findall(r"\w+", beside)))
    return lines


def hook_errors(text):
    """What an exception does, by hook."""
    return {name: row[-1] for row in table(text, "hook") for name in names(row[0])}


def test_state_table_has_every_field():
    """The state table has the rows of FIELDS, which are the public properties of the state."""
    rows = [(name, row) for row in table(PAGE, "field") for name in names(row[0])]
    properties = {
        name
        for name, value in vars(AgentState).items()
        if isinstance(value, property) and not name.startswith("_")
    }

    assert sorted(name for name, _row in rows) == sorted(field.name for field in FIELDS)
    assert {field.name for field in FIELDS} == properties


def test_state_table_names_the_writers():
    """Both tables agree on which fields the host may write, and the state refuses the others."""
    host = {name for row in table(PAGE, "field") if "you" in row[1] for name in names(row[0])}
    agent = Agent(stream_fn=faux_provider().stream_fn)

    assert host == {field.name for field in FIELDS if "host" in field.owner}
    for field in FIELDS:
        value = getattr(agent.state, field.name)
        if field.name in host:
            setattr(agent.state, field.name, value)
        else:
            with pytest.raises(AttributeError, match="read-only"):
                setattr(agent.state, field.name, value)


def test_hook_tables_agree():
    """The page and `hooks` name the same hooks, and the same effect of an exception in each."""
    assert hook_errors(PAGE) == hook_errors(hooks.__doc__)


def test_every_option_of_the_agent_is_documented():
    """The option table and the hook table together are the parameters of `Agent`, each once."""
    options = [name for row in table(PAGE, "option") for name in names(row[0])]
    documented = [*options, *hook_errors(PAGE)]

    assert sorted(documented) == sorted(inspect.signature(Agent).parameters)


def test_every_option_of_a_tool_is_documented():
    """The tool table has every option that `@tool` and `AgentTool` share."""
    rows = table(PAGE, "option of `@tool` and `AgentTool`")
    shared = inspect.signature(AgentTool).parameters.keys() - {"parameters", "execute"}

    assert sorted(name for row in rows for name in names(row[0])) == sorted(shared)


def test_tree_has_every_event():
    """The tree has all events, and stars exactly those of the lifecycle."""
    tree = event_tree()

    assert {name for found, _star, _beside in tree for name in found} == EVENTS.keys()
    assert {name for found, star, _beside in tree if star for name in found} == {
        kind.type for kind in LIFECYCLE_EVENTS
    }


def test_tree_names_every_field_of_an_event():
    """Beside the names of an event in the tree stand all fields that it has."""
    beside = {}
    for found, _star, words in event_tree():
        for name in found:
            beside.setdefault(name, set()).update(words)

    for name, kind in EVENTS.items():
        assert set(kind.__struct_fields__) <= beside[name], name


def test_tree_is_in_the_order_of_a_run():
    """Events of a run with a retry and a tool first come in the order of the tree."""

    def execute(_tool_call_id, _params, _signal, on_update):
        on_update("half")
        return "done"

    faux = faux_provider()
    faux.set_responses(
        [
            faux_assistant_message("We", stop_reason="error", error_message="overloaded"),
            faux_assistant_message(faux_tool_call("work", {})),
            faux_assistant_message("Done."),
        ]
    )
    agent = Agent(
        stream_fn=faux.stream_fn,
        model=faux.model(),
        tools=[AgentTool(name="work", execute=execute)],
        retry=RetryPolicy(base_delay_ms=0),
    )
    seen = []
    agent.subscribe(lambda event, _signal: seen.append(event.type), events=ALL_EVENTS)
    agent.prompt_sync("Work.")

    shown = [name for found, _star, _beside in event_tree() for name in found]

    assert list(dict.fromkeys(seen)) == list(dict.fromkeys(shown))


def test_stream_event_table_is_complete():
    """The table of stream events has every one, with the fields it carries."""
    carried = {}
    for row in table(PAGE, "stream event"):
        carried |= {name: set(names(row[1])) for name in names(row[0])}

    assert carried.keys() == {kind.type for kind in get_args(AssistantMessageEvent)}
    for kind in get_args(AssistantMessageEvent):
        own = {
            "message" if name == "error" else name
            for name in kind.__struct_fields__
            if name not in ("origin", "at")
        }
        assert own <= carried[kind.type], kind.type


def test_table_of_cut_off_functions_is_the_modules():
    """The page says the same as `invocation` of where a function runs and what cuts it off."""
    assert table(PAGE, "function") == table(invocation.__doc__, "function")


def test_provider_table_is_complete():
    """The table of providers has every one, in order, with its keys and its default model."""
    rows = [(re.findall(r"`([^`]+)`", row[0]), row) for row in table(MODELS, "provider")]

    assert [name for found, _row in rows for name in found] == list(PROVIDERS)
    for found, (_provider, keys, model) in rows:
        for known in (PROVIDERS[name] for name in found):
            assert re.findall(r"`([^`]+)`", keys) == (
                [] if known.keyless else list(known.key_variables)
            )
            assert re.findall(r"`([^`]+)`", model) == [known.default_model][: not known.keyless]


def test_kinds_of_failure_are_complete():
    """The table of failures has every kind once, and says which are tried again."""
    rows = [(name, row) for row in table(PAGE, "kind") for name in names(row[0])]

    assert sorted(name for name, _row in rows) == sorted(get_args(Kind))
    assert {name for name, row in rows if row[2] == "yes"} == TRANSIENT_KINDS
