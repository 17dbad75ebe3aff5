from __future__ import annotations

import pytest
from pi_agent_kernel import CustomMessage, SystemMessage, Tool, ToolReference
from pi_agent_kernel.request import TranscriptContext
from pi_agent_kernel.transcript import (
    Replay,
    collapse_system_messages,
    create_initial_system_message,
    declarations_equal,
    declare_tool_changes,
    get_current_system_message,
    get_current_system_prompt,
    get_current_tools,
    get_declared_tools,
    get_initial_system_message,
    get_system_message_text,
    get_tool_state_changes,
    has_non_additive_tool_changes,
    normalize_context,
    render_system_message_update,
    resolve_transcript,
    resolve_transcript_tools,
    without_initial_system_message,
)
from scripted import Scripted, call, make_tool, ok, user

A, B, C = (Tool(name=name, description=name.upper()) for name in "abc")
A2 = Tool(name="a", description="changed")


def system(content="", **fields):
    return SystemMessage(content=content, timestamp=fields.pop("timestamp", 1), **fields)


def adds(*tools):
    return system(tools_added=tools)


def removes(*names):
    return system(tools_removed=[ToolReference(name=name) for name in names])


def names(tools):
    return [one.name for one in tools]


# --------------------------------------------------------------------------------- replay


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], []),
        ([adds(A, B)], ["a", "b"]),
        ([adds(A), user(), adds(B)], ["a", "b"]),
        ([adds(A, B), removes("a")], ["b"]),
        ([adds(A, B), adds(A2)], ["a", "b"]),
        (
            [adds(A, B), system(tools_removed=[ToolReference(name="a")], tools_added=[A2])],
            ["b", "a"],
        ),
        ([adds(A), removes("x")], ["a"]),
        ([CustomMessage(role="system-like"), adds(C)], ["c"]),
    ],
)
def test_tools_are_replayed_in_order(messages, expected):
    """Removals first, then additions; a redefinition keeps its place (TR-02)."""
    assert names(get_current_tools(messages)) == expected


def test_a_redefinition_counts():
    """The later definition is the one in force (TR-02)."""
    assert get_current_tools([adds(A, B), adds(A2)])[0] is A2


def test_the_head_is_one_message():
    """Contents joined, sections patched, tools in force, timestamp of the first (TR-03)."""
    head = get_current_system_message(
        [
            system("one", sections={"x": "X", "y": "Y"}, tools_added=[A], timestamp=5),
            user(),
            system("", sections={"x": None, "z": "Z"}, timestamp=9),
            system("two", tools_added=[B], timestamp=10),
        ]
    )

    assert (head.content, head.sections, head.timestamp) == ("one\n\ntwo", {"y": "Y", "z": "Z"}, 5)
    assert names(head.tools_added) == ["a", "b"]
    assert head.tools_removed is None


def test_without_system_messages_there_is_no_head():
    """Nothing was said of prompt or tools (TR-03)."""
    assert get_current_system_message([user(), CustomMessage(role="x")]) is None
    assert get_current_system_prompt([user()]) == ""


def test_the_prompt_text():
    """Contents, then sections verbatim, empty parts skipped (TR-04)."""
    messages = [system("one", sections={"a": "A", "b": ""}), system("", sections={"c": "C"})]

    assert get_current_system_prompt(messages) == "one\n\nA\n\nC"
    assert get_system_message_text(messages[0]) == "one\n\nA"


def test_an_update_as_text():
    """Changed and removed sections are named (TR-13)."""
    update = system("also", sections={"a": "A", "b": None})

    assert render_system_message_update(update) == (
        'also\n\nUpdated system prompt section "a":\n\nA\n\nRemoved system prompt section "b".'
    )
    assert render_system_message_update(system()) == ""


def test_a_replay_goes_on():
    """Feeding each message once gives the same as all at once (TR-02)."""
    messages = [system("a"), user(), adds(A), removes("a"), system("b", sections={"s": "S"})]
    replay = Replay()
    for message in messages:
        replay.extend([message])

    assert replay.head == get_current_system_message(messages)
    assert replay.prompt == "a\n\nb\n\nS"
    assert replay.version == 4


def test_the_first_message_may_be_the_head():
    """Only a leading system message is the initial one (CO-04)."""
    head = system("p")

    assert get_initial_system_message([head, user()]) is head
    assert get_initial_system_message([user(), head]) is None
    assert get_initial_system_message([]) is None
    assert without_initial_system_message([head, user("x")])[0].content == "x"
    assert len(without_initial_system_message([user(), head])) == 2


def test_making_a_head():
    """Prompt and tools at timestamp 0; neither gives none (CO-04)."""
    made = create_initial_system_message("p", [A])

    assert (made.content, made.tools_added, made.timestamp) == ("p", (A,), 0)
    assert create_initial_system_message("", []) is None
    assert create_initial_system_message(None, [A]).content == ""


def test_every_tool_ever_declared():
    """Each with its latest definition, also when it was removed (TR-02)."""
    assert get_declared_tools([adds(A), removes("a"), adds(B, A2)]) == [A2, B]


# -------------------------------------------------------------------------------- changes


def test_definitions_are_compared_as_json():
    """Key order does not count, content does (TR-06)."""
    left = Tool(name="a", parameters={"type": "object", "x": [1]})
    right = Tool(name="a", parameters={"x": [1], "type": "object"})

    assert declarations_equal(left, right)
    assert not declarations_equal(A, A2)
    assert not declarations_equal(A, Tool(name="a", description="A", constrained_sampling=True))


def test_changes_between_two_sets():
    """A changed definition is a removal and an addition; order does not count (TR-06, A21)."""
    changes = get_tool_state_changes([A, B], [C, A2])

    assert names(changes.tools_added) == ["c", "a"]
    assert names(changes.tools_removed) == ["a", "b"]
    assert bool(changes) is True
    assert not get_tool_state_changes([A, B], [B, A])


def test_the_difference_goes_before_the_first_other_message():
    """A new message with empty content, after pending system messages none (TR-08)."""
    pending = [user("x"), user("y")]
    made = declare_tool_changes(Replay([adds(A)]), [A, B], pending)

    assert [m.role for m in made] == ["system", "user", "user"]
    assert (made[0].content, names(made[0].tools_added), made[0].tools_removed) == ("", ["b"], None)
    assert made[1:] == pending
    assert [m.role for m in declare_tool_changes(Replay(), [A], [])] == ["system"]


def test_no_difference_inserts_nothing():
    """The caller's own objects are kept (TR-08)."""
    pending = [system("p"), user()]
    made = declare_tool_changes(Replay([adds(A)]), [A], pending)

    assert [id(m) for m in made] == [id(m) for m in pending]


@pytest.mark.parametrize(
    ("pending", "added", "removed"),
    [
        ([system("p", tools_added=[C])], ["b"], None),
        ([adds(B), system("p")], None, None),
        ([system("p", tools_removed=[ToolReference(name="b")])], ["b"], None),
        ([adds(B, C), system("p", tools_added=[A])], None, ["c"]),
    ],
)
def test_a_pending_system_message_gets_the_true_difference(pending, added, removed):
    """Its own tool fields are intent, not fact; the last one is corrected (TR-07)."""
    made = declare_tool_changes(Replay([adds(A)]), [A, B], pending)
    last = made[-1]

    assert last.content == "p"
    assert names(last.tools_added or ()) == (added or [])
    assert names(last.tools_removed or ()) == (removed or [])
    replay = Replay([adds(A), *made])
    assert names(replay.tools.values()) == ["a", "b"]


# -------------------------------------------------------------------------------- requests


def test_normalizing_a_separate_prompt():
    """Prompt and tools become a leading system message (CO-02)."""
    context = normalize_context([user()], system_prompt="p", tools=[A])

    assert [m.role for m in context.messages] == ["system", "user"]
    assert normalize_context([user("x")]).messages[0].content == "x"


def test_collapsing():
    """One leading message, the others dropped, the rest in order (TR-13)."""
    context = TranscriptContext(messages=[system("a"), user("x"), system("b", tools_added=[A])])
    collapsed = collapse_system_messages(context)

    assert [m.role for m in collapsed.messages] == ["system", "user"]
    assert collapsed.messages[0].content == "a\n\nb"
    assert len(context.messages) == 3
    assert resolve_transcript(context, supports_mid_conversation_system_messages=True) is context
    assert resolve_transcript(context, supports_mid_conversation_system_messages=False) == collapsed
    only = TranscriptContext(messages=[user()])
    assert [m.role for m in collapse_system_messages(only).messages] == ["user"]


MESSAGES = [adds(A), user(), adds(B), user(), removes("a"), user(), adds(C)]


@pytest.mark.parametrize(
    ("support", "tools", "folded"),
    [("none", ["b", "c"], 4), ("additions", ["b"], 3), ("changes", [], 0)],
)
def test_tools_of_a_request(support, tools, folded):
    """What goes with the request depends on what a provider understands (TR-13)."""
    resolved = resolve_transcript_tools(MESSAGES, support)

    assert names(resolved.request_tools) == tools
    assert resolved.folded_system_messages == folded


def test_additions_only():
    """Without removals only the leading message is folded; none leads, none is (TR-13)."""
    assert resolve_transcript_tools([adds(A), adds(B)], "additions").folded_system_messages == 1
    assert resolve_transcript_tools([user(), adds(B)], "additions").folded_system_messages == 0
    assert not has_non_additive_tool_changes([adds(A), adds(B)])
    assert has_non_additive_tool_changes([adds(A), adds(A2)])
    assert has_non_additive_tool_changes([removes("x")])


# -------------------------------------------------------------------------------- in runs


async def test_a_new_tool_is_declared_once():
    """With the next run, before the user's message; then no more (TR-05, TR-12)."""
    s = Scripted("1", "2", "3")
    await s.prompt()
    s.state.tools.append(make_tool(ok))
    await s.prompt()
    await s.prompt()

    assert s.roles == [
        *("user", "assistant"),
        *("system", "user", "assistant"),
        *("user", "assistant"),
    ]
    assert s.of("agent_end")[1].messages[0].role == "system"
    assert s.count("message_start") == s.count("message_end") == 7


async def test_tools_of_the_constructor_are_declared_by_the_head():
    """No second declaration follows (CO-04, TR-05)."""
    s = Scripted("1", tools=[make_tool(ok)])
    await s.prompt()

    assert s.roles == ["system", "user", "assistant"]


async def test_a_declared_tool_that_cannot_run():
    """The declaration is withdrawn before the request; a call of it is not found (TR-10)."""
    s = Scripted(call("a"), "end", messages=[adds(A)])
    await s.prompt()

    assert s.outcomes == [("Tool a not found", True)]
    withdrawn = s.requests[0][1]
    assert names(withdrawn.tools_removed) == ["a"]


async def test_continuing_declares_after_the_tail():
    """A changed set of tools is announced even without new input (TR-12)."""
    s = Scripted("1", messages=[user()], tools=[make_tool(ok)])
    del s.state.messages[0]
    await s.resume()

    assert s.roles == ["user", "system", "assistant"]


async def test_a_declaration_is_no_more_than_the_model_may_know():
    """Label, function and hooks never enter the transcript (TR-11)."""
    from pi_agent_kernel import to_json

    t = make_tool(
        ok, description="d", label="L", effects="read", parameters={"type": "object", "$defs": {}}
    )
    s = Scripted("1", tools=[t])

    assert to_json(s.state.messages[0])["toolsAdded"] == [
        {"name": "t", "description": "d", "parameters": {"type": "object", "$defs": {}}}
    ]
