from __future__ import annotations

import copy
import pickle

import pytest
from pi_agent_kernel import (
    AssistantMessage,
    Cost,
    CustomMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    thaw,
)
from pi_agent_kernel.json_value import EMPTY, FrozenDict, FrozenList, freeze
from pi_agent_kernel.messages import CustomMessageLike, text_of
from pi_agent_kernel.request import Prefix

EVERY = [
    TextContent(text="x"),
    ThinkingContent(thinking="x"),
    ImageContent(data="x", mime_type="y"),
    ToolCall(id="c", name="t", arguments={"a": [1]}),
    Usage(input=1, cost=Cost(total=1)),
    Tool(name="t", parameters={"type": "object"}, constrained_sampling={"a": [1]}),
    SystemMessage(content="x", sections={"a": None}, timestamp=1),
    UserMessage(content=[TextContent(text="x")], timestamp=1),
    AssistantMessage(diagnostics=[{"a": 1}], deferred={"a": 1}, timestamp=1),
    ToolResultMessage(tool_call_id="c", tool_name="t", details={"a": [1]}, timestamp=1),
    CustomMessage(role="note", text="x", deep={"a": [1]}, timestamp=1),
]
KINDS = [type(one).__name__ for one in EVERY]


@pytest.mark.parametrize("value", EVERY, ids=KINDS)
def test_values_are_immutable(value):
    """Assigning or deleting a field raises (MS-01)."""
    name = "timestamp" if hasattr(value, "timestamp") else value.__struct_fields__[0]

    with pytest.raises(AttributeError):
        setattr(value, name, 5)
    with pytest.raises((AttributeError, TypeError)):
        delattr(value, name)


@pytest.mark.parametrize("value", EVERY, ids=KINDS)
def test_values_can_be_copied(value):
    """Copies and pickles are equal (MS-07)."""
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value
    assert type(value).__name__ in repr(value)


def test_lists_become_tuples_and_json_is_frozen():
    """What a constructor was given can be changed afterwards without effect (DEVIATIONS 11)."""
    blocks, arguments = [TextContent(text="x")], {"a": [1]}
    made = UserMessage(content=blocks)
    asked = ToolCall(id="c", name="t", arguments=arguments)
    blocks.append(blocks[0])
    arguments["a"].append(2)

    assert len(made.content) == 1
    assert asked.arguments == {"a": [1]}
    with pytest.raises(TypeError, match="never change"):
        asked.arguments["a"].append(2)
    for message in (
        SystemMessage(content=[], tools_added=[], tools_removed=[]),
        AssistantMessage(content=[]),
        ToolResultMessage(tool_call_id="c", tool_name="t", content=[], nested_calls={"a": 1}),
    ):
        assert message.content == ()


def test_text_of_content():
    """Text, or the text blocks joined (MS-01)."""
    blocks = (TextContent(text="a"), ImageContent(data="x", mime_type="y"), TextContent(text="b"))

    assert text_of("x") == "x"
    assert text_of(blocks) == "a\nb"
    assert text_of(blocks, ", ") == "a, b"
    assert AssistantMessage(content=blocks).text == "a\nb"
    assert ToolResultMessage(tool_call_id="c", tool_name="t", content=blocks).text == "a\nb"


# --------------------------------------------------------------------------------- custom


def test_a_custom_message_has_its_fields():
    """They are attributes; an unknown one is named (CO-13, MS-05)."""
    note = CustomMessage(role="note", text="x", fields={"a": 1})

    assert (note.role, note.text) == ("note", "x")
    assert note.timestamp > 1_600_000_000_000
    assert note.fields["fields"] == {"a": 1}
    with pytest.raises(AttributeError, match="'note' message has no field 'nope'"):
        _ = note.nope
    assert isinstance(note, CustomMessageLike)


@pytest.mark.parametrize("role", ["user", "assistant", "system", "toolResult"])
def test_a_standard_role_is_no_custom_one(role):
    """Such a message would never reach the model (CO-13)."""
    with pytest.raises(ValueError, match=role):
        CustomMessage(role=role)


def test_custom_messages_compare_by_value():
    """Role, time and fields; they can stand in sets (CO-13)."""
    first = CustomMessage(role="a", timestamp=1, x=[1])

    assert first == CustomMessage(role="a", timestamp=1, x=[1])
    assert first != CustomMessage(role="a", timestamp=2, x=[1])
    assert first != CustomMessage(role="a", timestamp=1, x=[2])
    assert first != 5
    assert len({first, CustomMessage(role="a", timestamp=1, x=[1])}) == 1
    assert repr(first) == "CustomMessage(role='a', timestamp=1, x=[1])"
    with pytest.raises(AttributeError, match="immutable"):
        first.x = 2
    with pytest.raises(AttributeError, match="immutable"):
        del first.role


# -------------------------------------------------------------------------- frozen values

FROZEN = freeze({"a": [1, {"b": 2}], "e": {}})
DICT_EDITS = {
    "set": lambda d: d.__setitem__("a", 1),
    "delete": lambda d: d.__delitem__("a"),
    "or": lambda d: d.__ior__({"a": 1}),
    "clear": lambda d: d.clear(),
    "pop": lambda d: d.pop("a"),
    "popitem": lambda d: d.popitem(),
    "setdefault": lambda d: d.setdefault("x", 1),
    "update": lambda d: d.update(a=1),
}
LIST_EDITS = {
    "set": lambda x: x.__setitem__(0, 1),
    "delete": lambda x: x.__delitem__(0),
    "add": lambda x: x.__iadd__([1]),
    "mul": lambda x: x.__imul__(2),
    "append": lambda x: x.append(1),
    "extend": lambda x: x.extend([1]),
    "insert": lambda x: x.insert(0, 1),
    "pop": lambda x: x.pop(),
    "remove": lambda x: x.remove(1),
    "clear": lambda x: x.clear(),
    "reverse": lambda x: x.reverse(),
    "sort": lambda x: x.sort(),
}


@pytest.mark.parametrize("edit", DICT_EDITS)
def test_a_frozen_dict_refuses(edit):
    """Every way to change it, with words (DEVIATIONS 11)."""
    with pytest.raises(TypeError, match="This dict belongs to a message"):
        DICT_EDITS[edit](FROZEN)


@pytest.mark.parametrize("edit", LIST_EDITS)
def test_a_frozen_list_refuses(edit):
    """Every way to change it, with words (DEVIATIONS 11)."""
    with pytest.raises(TypeError, match="This list belongs to a message"):
        LIST_EDITS[edit](FROZEN["a"])


def test_freezing_and_thawing():
    """Equal to the plain values, copied deeply, both ways (DEVIATIONS 11)."""
    plain = {"a": [1, {"b": 2}], "e": {}}
    thawed = thaw(FROZEN)

    assert plain == FROZEN
    assert (type(FROZEN), type(FROZEN["a"]), FROZEN["e"]) == (FrozenDict, FrozenList, EMPTY)
    assert freeze(FROZEN) is FROZEN
    assert freeze(FROZEN["a"]) is FROZEN["a"]
    assert (type(thawed), type(thawed["a"]), type(thawed["a"][1])) == (dict, list, dict)
    assert freeze((1, [2])) == [1, [2]]
    assert copy.copy(FROZEN) is copy.deepcopy(FROZEN) is FROZEN
    assert copy.copy(FROZEN["a"]) is copy.deepcopy(FROZEN["a"]) is FROZEN["a"]
    assert pickle.loads(pickle.dumps(FROZEN)) == FROZEN
    assert type(pickle.loads(pickle.dumps(FROZEN))["a"]) is FrozenList
    marker = object()
    assert freeze(marker) is thaw(marker) is marker


# --------------------------------------------------------------------------------- prefix


def test_a_prefix_shows_the_first_items():
    """It does not grow with the list, and cannot be changed (D7)."""
    items = [1, 2, 3]
    prefix = Prefix(items)
    items.append(4)

    assert len(prefix) == 3
    assert list(prefix) == [1, 2, 3]
    assert prefix == [1, 2, 3] == prefix
    assert prefix != [1, 2]
    assert prefix != "123"
    assert (prefix[0], prefix[-1], prefix[1:], prefix[::-1]) == (1, 3, [2, 3], [3, 2, 1])
    assert (2 in prefix, 4 in prefix) == (True, False)
    assert repr(prefix) == "[1, 2, 3]"
    assert list(Prefix(items, 1)) == [1]
    for index in (3, -4):
        with pytest.raises(IndexError):
            prefix[index]
    with pytest.raises(TypeError):
        hash(prefix)
