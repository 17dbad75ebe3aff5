from __future__ import annotations

import copy
import pickle
import threading
from contextlib import suppress

import pytest
from pi_agent_kernel import (
    CustomMessage,
    Model,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
    faux_assistant_message,
    faux_provider,
)
from pi_agent_kernel import state as state_module
from pi_agent_kernel.agent import Agent
from pi_agent_kernel.state import FIELDS
from scripted import Scripted, call, make_tool, ok, user

READ_ONLY = (
    "system_prompt",
    "is_streaming",
    "streaming_message",
    "pending_tool_calls",
    "error_message",
    "turn_index",
    "total_turns",
)


@pytest.fixture
def state():
    return Agent(stream_fn=faux_provider().stream_fn, system_prompt="p").state


def test_it_shows_itself_in_a_line(state):
    """A state is shown by what it is doing, its model and its counts."""
    assert repr(state) == "<AgentState: idle, model unknown, 1 messages, 0 tools>"


# ----------------------------------------------------------------------------- who writes


@pytest.mark.parametrize("name", READ_ONLY)
def test_runtime_fields_are_read_only(state, name):
    """Assigning a field of the runtime raises, and says what to do instead (ST-01)."""
    before = getattr(state, name)

    with pytest.raises(AttributeError, match=rf"state\.{name} is read-only: .+\."):
        setattr(state, name, "x")

    assert getattr(state, name) == before


def test_the_table_of_fields_is_complete(state):
    """`FIELDS` names every public field once, with its owner (ST-01)."""
    public = {name for name in dir(type(state)) if not name.startswith("_")}
    fields = {name for name in public if isinstance(getattr(type(state), name), property)}

    assert {field.name for field in FIELDS} == fields
    assert len(FIELDS) == len(fields)
    assert {field.name for field in FIELDS if field.owner == "runtime"} == set(READ_ONLY)


def test_unknown_fields_are_refused(state):
    """A typo in a field's name is an error (ST-01)."""
    with pytest.raises(AttributeError):
        state.models = Model(id="x")


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("model", "gpt-4", TypeError, "Model.*str"),
        ("model", None, TypeError, "Model"),
        ("thinking_level", "huge", ValueError, "xhigh.*'huge'"),
        ("thinking_level", None, ValueError, "None"),
        ("tools", [len], TypeError, "AgentTool"),
        ("tools", [make_tool(ok), make_tool(ok)], ValueError, "'t'"),
        ("messages", ["hi"], TypeError, "str: 'hi'"),
        ("messages", [{"role": "user", "content": 5}], ValueError, "content"),
    ],
)
def test_wrong_values_are_refused(state, name, value, error, words):
    """A wrong value is an error that says what was expected, and nothing changes (ST-01)."""
    before = getattr(state, name)

    with pytest.raises(error, match=words):
        setattr(state, name, value)

    assert getattr(state, name) == before


# ----------------------------------------------------------------------------------- lists


def test_assigning_copies_the_list(state):
    """The caller's list is not the state's; the list read back is (ST-02)."""
    mine = [user("a")]
    state.messages = mine
    mine.append(user("b"))
    state.messages.append(user("c"))

    assert [m.content for m in state.messages] == ["a", "c"]
    tools = [make_tool(ok, "a")]
    state.tools = tools
    tools.append(make_tool(ok, "b"))
    state.tools.append(make_tool(ok, "c"))
    assert [one.name for one in state.tools] == ["a", "c"]


EDITS = {
    "append": (lambda x: x.append(user("n")), "abcn"),
    "extend": (lambda x: x.extend([user("n"), {"role": "user", "content": "m"}]), "abcnm"),
    "insert": (lambda x: x.insert(1, user("n")), "anbc"),
    "pop": (lambda x: x.pop(), "ab"),
    "pop first": (lambda x: x.pop(0), "bc"),
    "remove": (lambda x: x.remove(x[1]), "ac"),
    "clear": (lambda x: x.clear(), ""),
    "reverse": (lambda x: x.reverse(), "cba"),
    "sort": (lambda x: x.sort(key=lambda m: m.content, reverse=True), "cba"),
    "set": (lambda x: x.__setitem__(0, user("n")), "nbc"),
    "set slice": (lambda x: x.__setitem__(slice(1, None), [user("n")]), "an"),
    "delete": (lambda x: x.__delitem__(slice(0, 2)), "c"),
    "iadd": (lambda x: x.__iadd__([user("n")]), "abcn"),
    "imul": (lambda x: x.__imul__(2), "abcabc"),
}


@pytest.mark.parametrize("name", EDITS)
def test_the_message_list_is_a_list(name):
    """Every way to change a list works, counts in the transcript and is logged (ST-02)."""
    agent = Agent(stream_fn=faux_provider().stream_fn, messages=[user(x) for x in "abc"])
    edit, after = EDITS[name]
    noted = len(agent.log)

    edit(agent.state.messages)

    assert "".join(m.content for m in agent.state.messages) == after
    assert len(agent.log) == noted + 1
    assert agent.log[-1].event.detail == "messages"


def test_pop_returns_what_it_took(state):
    """The list behaves like a list in what it returns, too (ST-02)."""
    state.messages = [user("a"), user("b")]

    assert state.messages.pop().content == "b"
    assert state.messages[0:1] == [state.messages[0]]
    assert isinstance(copy.deepcopy(state.messages), list)
    assert type(pickle.loads(pickle.dumps(state.messages))) is list


@pytest.mark.parametrize("edit", ["append", "extend", "insert", "set", "iadd"])
def test_nothing_but_messages_enters_the_list(state, edit):
    """What is no message is refused by every way in, and the list stays as it was (CO-13)."""
    state.messages = [user("a")]
    ways = {
        "append": lambda x: x.append(5),
        "extend": lambda x: x.extend([user("b"), 5]),
        "insert": lambda x: x.insert(0, 5),
        "set": lambda x: x.__setitem__(0, 5),
        "iadd": lambda x: x.__iadd__([5]),
    }

    with pytest.raises(TypeError, match="5"):
        ways[edit](state.messages)

    assert [m.content for m in state.messages] == ["a"]


def test_the_tool_list_keeps_names_unique(state):
    """Also in place a name can be used once (DEVIATIONS 5)."""
    state.tools = [make_tool(ok, "a"), make_tool(ok, "b")]
    for edit in (
        lambda: state.tools.append(make_tool(ok, "a")),
        lambda: state.tools.insert(0, make_tool(ok, "b")),
        lambda: state.tools.__setitem__(0, make_tool(ok, "b")),
        lambda: state.tools.extend([make_tool(ok, "c"), make_tool(ok, "c")]),
    ):
        with pytest.raises(ValueError, match="used once"):
            edit()

    assert [one.name for one in state.tools] == ["a", "b"]
    state.tools[0] = make_tool(ok, "a")
    state.tools.sort(key=lambda one: one.name, reverse=True)
    assert [one.name for one in state.tools] == ["b", "a"]


def test_messages_are_dicts_or_objects(state):
    """The wire form, our classes and objects with role and timestamp are taken (CO-13)."""

    class Note:
        role = "note"
        timestamp = 3

    mine = Note()
    state.messages = [{"role": "user", "content": "a"}, mine, {"role": "memo", "text": "m"}]

    assert isinstance(state.messages[0], UserMessage)
    assert state.messages[1] is mine
    assert (state.messages[2].role, state.messages[2].text) == ("memo", "m")


# ------------------------------------------------------------------------------- the prompt


def test_the_prompt_is_replayed_from_the_transcript(state):
    """Contents of all system messages, then the sections left, in order (ST-03)."""
    state.messages.append(SystemMessage(content="more", sections={"a": "A", "b": "B"}))
    state.messages.append(user("x"))
    state.messages.append(SystemMessage(sections={"a": None, "c": "C"}))

    assert state.system_prompt == "p\n\nmore\n\nB\n\nC"
    del state.messages[0]
    assert state.system_prompt == "more\n\nB\n\nC"
    state.messages = []
    assert state.system_prompt == ""


async def test_the_prompt_follows_a_run(state):
    """System messages that a run appends count at the next read (ST-03)."""
    s = Scripted("a", "b", system_prompt="p")
    seen = []
    s.agent.subscribe(lambda e, _: seen.append(s.state.system_prompt), events="message_end")
    await s.prompt([SystemMessage(content="two"), user()])
    s.state.messages.append(SystemMessage(content="three"))
    await s.prompt()

    assert seen == ["p\n\ntwo"] * 3 + ["p\n\ntwo\n\nthree"] * 2


def test_two_threads_read_the_prompt_at_once(state, monkeypatch):
    """Reads are safe from any thread: no system message is counted twice (api.md)."""
    assert state.system_prompt == "p"
    state.messages.append_by_run(SystemMessage(content="two"))
    both = threading.Barrier(2, timeout=0.5)
    extend = state_module.Replay.extend

    def slow_extend(self, messages):
        messages = list(messages)
        with suppress(threading.BrokenBarrierError):  # the other one waits: as good
            both.wait()
        extend(self, messages)

    monkeypatch.setattr(state_module.Replay, "extend", slow_extend)
    threads = [threading.Thread(target=lambda: state.system_prompt) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert state.system_prompt == "p\n\ntwo"


# ----------------------------------------------------------------------------- during a run


async def test_streaming_flag_spans_the_run():
    """It is true in every listener, agent_end's included, and false in agent_idle's (ST-04)."""
    s = Scripted("ok")
    seen = {}
    s.agent.subscribe(
        lambda e, _: seen.setdefault(e.type, s.state.is_streaming),
        events=["agent_start", "agent_end", "agent_idle"],
    )
    await s.prompt()

    assert seen == {"agent_start": True, "agent_end": True, "agent_idle": False}


async def test_streaming_message_is_what_is_open():
    """It is set by the start of any message, grows, and is cleared at its end (ST-05)."""
    s = Scripted("hello world, a longer text", faux_options={"token_size": 1})
    seen = []

    def look(event, _signal):
        now = s.state.streaming_message
        if event.type == "message_update":
            assert now == event.message
            seen.append(now.text)
        else:
            seen.append((event.type, now.role if now else None))

    s.agent.subscribe(look, events=["message_start", "message_update", "message_end"])
    await s.prompt()

    texts = [one for one in seen if isinstance(one, str)]
    assert texts == sorted(texts, key=len)
    assert texts[0] == ""
    assert texts[-1] == "hello world, a longer text"
    assert [one for one in seen if isinstance(one, tuple)] == [
        ("message_start", "user"),
        ("message_end", None),
        ("message_start", "assistant"),
        ("message_end", None),
    ]


async def test_a_message_is_appended_before_its_end_is_heard():
    """A listener of message_end finds the message in the transcript (ST-06)."""
    s = Scripted(call(), "ok", tools=[make_tool(ok)])
    seen = []
    s.agent.subscribe(
        lambda e, _: seen.append(s.state.messages[-1] is e.message), events="message_end"
    )
    await s.prompt()

    assert seen == [True] * 4


async def test_pending_calls_are_new_sets():
    """The set is replaced, so that one read earlier does not change (ST-07)."""
    s = Scripted([call("t", "a"), call("t", "b")], "ok", tools=[make_tool(ok)])
    seen = []
    s.agent.subscribe(
        lambda e, _: seen.append(s.state.pending_tool_calls),
        events=["tool_execution_start", "tool_execution_end"],
    )
    await s.prompt()

    assert seen[:2] == [{"a"}, {"a", "b"}]
    assert seen[2] in ({"a"}, {"b"})
    assert seen[3] == set()


async def test_error_is_written_at_turn_end_and_cleared_by_the_next_run():
    """`error_message` appears with turn_end and is gone at the next agent_start (ST-08)."""
    s = Scripted(faux_assistant_message("", error_message="no luck"), "fine")
    seen = []
    s.agent.subscribe(lambda e, _: seen.append((e.type, s.state.error_message)))
    await s.prompt()
    await s.prompt()

    assert ("message_end", "no luck") not in seen[: len(seen) // 2]
    assert ("turn_end", "no luck") in seen
    second = seen[[kind for kind, _ in seen].index("agent_end") + 1 :]
    assert second[0] == ("agent_start", None)
    assert s.state.error_message is None


async def test_turn_counters():
    """Turns of this run count from its start; completed ones count for ever (ST-11)."""
    s = Scripted(call(), call(), "end", "again", tools=[make_tool(ok)])
    await s.prompt()

    assert (s.state.turn_index, s.state.total_turns) == (3, 3)
    await s.prompt()
    assert (s.state.turn_index, s.state.total_turns) == (1, 4)
    await s.prompt()  # nothing is scripted: it fails, but the turn was taken
    assert (s.state.turn_index, s.state.total_turns) == (1, 5)


async def test_changes_by_the_host_wait_for_the_next_run():
    """Tools and messages changed during a run are not seen by it (D2, ST-02)."""
    late = make_tool(ok, "late")

    async def add(*_):
        s.state.tools = [*s.state.tools, late]
        s.state.messages.append(CustomMessage(role="note"))
        return "added"

    s = Scripted(call("add"), call("late", "c2"), "end", "next", tools=[make_tool(add, "add")])
    await s.prompt()

    assert s.outcomes[1] == ("Tool late not found", True)
    await s.prompt()
    declared = [m for m in s.requests[-1] if isinstance(m, SystemMessage) and m.tools_added]
    assert [one.name for one in declared[-1].tools_added] == ["late"]


async def test_a_hook_changes_model_and_level_for_the_run_only():
    """`state.model` and `state.thinking_level` stay (ST-09)."""
    from pi_agent_kernel import AgentRequestUpdate

    other = Model(id="other", provider="p", api="a")
    s = Scripted(
        "ok",
        prepare_request=lambda *_: AgentRequestUpdate(model=other, thinking_level="high"),
    )
    await s.prompt()

    assert (s.models[0].id, s.options[0].reasoning) == ("other", "high")
    assert s.state.model.id == "faux-1"
    assert s.state.thinking_level == "off"
    assert s.last.thinking_level == "high"


@pytest.mark.parametrize("level", ["off", "minimal", "low", "medium", "high", "xhigh", "max"])
async def test_every_response_is_stamped_with_its_level(level):
    """The level reaches the stream function, off as absent, and the message always (ST-12)."""
    s = Scripted("ok", thinking_level=level)
    await s.prompt()

    assert s.options[0].reasoning == (None if level == "off" else level)
    assert s.last.thinking_level == level


def test_transcripts_may_hold_any_message(state):
    """Tool results without a call are the host's business, not the state's (CO-13)."""
    state.messages = [ToolResultMessage(tool_call_id="x", tool_name="t")]

    assert state.messages[0].tool_call_id == "x"
