from __future__ import annotations

import dataclasses
import json

import msgspec
import pytest
from pi_agent_kernel import (
    AssistantMessage,
    CustomMessage,
    Model,
    SystemMessage,
    TextContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    from_json,
    thaw,
    to_json,
)
from pi_agent_kernel.wire import coerce_message
from scripted import Scripted, call, make_tool, ok, user

USAGE = {
    "input": 1,
    "output": 2,
    "cacheRead": 3,
    "cacheWrite": 4,
    "cacheWrite1h": 1,
    "reasoning": 1,
    "totalTokens": 10,
    "cost": {"input": 0.1, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0.1},
}
MESSAGES = {
    "system": {
        "role": "system",
        "content": [{"type": "text", "text": "p"}],
        "sections": {"a": "A", "b": None},
        "toolsAdded": [{"name": "t", "description": "d", "parameters": {"type": "object"}}],
        "toolsRemoved": [{"name": "u"}],
        "timestamp": 1,
    },
    "user": {
        "role": "user",
        "content": [
            {"type": "text", "text": "x", "textSignature": "s"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        ],
        "timestamp": 2,
    },
    "assistant": {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "s", "redacted": True},
            {"type": "text", "text": "x"},
            {
                "type": "toolCall",
                "id": "c",
                "name": "t",
                "arguments": {"n": [1, 2.5, None, {"a": "b"}]},
                "thoughtSignature": "s",
            },
        ],
        "api": "a",
        "provider": "p",
        "model": "m",
        "responseId": "r",
        "thinkingLevel": "high",
        "usage": USAGE,
        "stopReason": "toolUse",
        "diagnostics": [{"k": 1}],
        "deferred": {"id": "d"},
        "endTurn": False,
        "timestamp": 3,
        "durationMs": 5,
    },
    "toolResult": {
        "role": "toolResult",
        "toolCallId": "c",
        "toolName": "t",
        "content": [{"type": "text", "text": "x"}],
        "details": {"a": [1]},
        "usage": USAGE,
        "nestedCalls": {"x": 1},
        "isError": True,
        "timestamp": 4,
        "durationMs": 0,
    },
    "custom": {"role": "note", "text": "n", "deep": {"a": [1]}, "timestamp": 5},
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_round_trip_loses_nothing(name):
    """Reading and writing gives the same JSON; the object survives it, too (MS-07)."""
    data = MESSAGES[name]
    message = from_json(data)

    assert to_json(message) == data
    assert from_json(json.loads(json.dumps(to_json(message)))) == message
    assert message.role == data["role"]


def test_a_list_is_read_as_a_list():
    """A whole transcript goes there and back (MS-07)."""
    data = list(MESSAGES.values())

    assert to_json(from_json(data)) == data
    assert isinstance(from_json(tuple(data)), list)


@pytest.mark.parametrize("name", ["system", "user", "assistant", "toolResult"])
@pytest.mark.parametrize("extra", [{"x-new": {"a": [1]}}, {"newKey": None}, {"new_key": "v"}])
def test_an_unknown_key_is_kept(name, extra):
    """At any level it is kept and written back (api.md)."""
    data = MESSAGES[name] | extra
    assert to_json(from_json(data)) == data

    block = {"type": "text", "text": "x"} | extra
    deep = MESSAGES[name] | {"content": [block]}
    assert to_json(from_json(deep)) == deep


@pytest.mark.parametrize("field", ["errorMessage", "thinkingLevel"])
def test_a_null_field_is_kept_and_can_be_set(field):
    """An explicit null comes back; a value set later wins over it (MS-07)."""
    data = MESSAGES["assistant"] | {field: None}
    message = from_json(data)
    assert to_json(message) == data

    name = {"errorMessage": "error_message", "thinkingLevel": "thinking_level"}[field]
    changed = msgspec.structs.replace(message, **{name: "set"})
    assert to_json(changed)[field] == "set"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *[("user", key) for key in ("content", "timestamp")],
        *[("system", key) for key in ("content", "timestamp")],
        *[("assistant", k) for k in ("content", "api", "provider", "model", "usage", "stopReason")],
        *[("toolResult", k) for k in ("toolCallId", "toolName", "content", "isError")],
        ("custom", "timestamp"),
    ],
)
def test_a_missing_field_is_named(name, key):
    """The wire form must have what the reference requires (api.md)."""
    data = {k: v for k, v in MESSAGES[name].items() if k != key}

    with pytest.raises(ValueError, match=key):
        from_json(data)


@pytest.mark.parametrize(
    ("name", "change", "path"),
    [
        ("user", {"content": 5}, "content"),
        ("user", {"content": [5]}, r"content\[0\]"),
        ("user", {"content": [{"type": "toolCall", "id": "c"}]}, r"content\[0\].*text or image"),
        ("user", {"content": [{"type": "text", "text": 5}]}, r"content\[0\]\.text.*str"),
        ("user", {"content": [{"type": "text"}]}, r"content\[0\]\.text"),
        ("user", {"timestamp": "1"}, "timestamp"),
        ("user", {"timestamp": 1.5}, "timestamp"),
        ("user", {"timestamp": None}, "timestamp.*null"),
        ("assistant", {"stopReason": "done"}, "stopReason"),
        ("assistant", {"usage": 5}, "usage"),
        ("assistant", {"usage": [USAGE]}, "usage"),
        ("assistant", {"usage": USAGE | {"input": "1"}}, r"usage\.input"),
        ("assistant", {"usage": USAGE | {"cost": "free"}}, r"usage\.cost"),
        ("assistant", {"content": "text"}, "content"),
        ("assistant", {"content": [{"type": "toolCall", "id": "c", "name": "t"}]}, "arguments"),
        (
            "assistant",
            {"content": [{"type": "toolCall", "id": "c", "name": "t", "arguments": "{}"}]},
            r"content\[0\]\.arguments",
        ),
        ("toolResult", {"isError": 1}, "isError"),
        ("toolResult", {"toolCallId": 5}, "toolCallId"),
        ("system", {"toolsAdded": [5]}, r"toolsAdded\[0\]"),
        ("system", {"toolsAdded": [{"name": "t"}]}, r"toolsAdded\[0\]"),
        ("system", {"toolsRemoved": ["t"]}, r"toolsRemoved\[0\]"),
        ("custom", {"timestamp": "now"}, "timestamp"),
    ],
)
def test_a_wrong_type_is_an_error_with_its_path(name, change, path):
    """Nothing is coerced (api.md)."""
    with pytest.raises(ValueError, match=path):
        from_json(MESSAGES[name] | change)


@pytest.mark.parametrize(
    "data", [5, None, "x", {}, {"type": "x"}, {"role": 5}, [5], {"role": "user"}]
)
def test_what_is_no_message_is_refused(data):
    """The error says what was expected and what came (api.md)."""
    with pytest.raises(ValueError, match=r"expected|missing"):
        from_json(data)


@pytest.mark.parametrize("name", ["system", "user", "assistant", "toolResult"])
def test_null_content_is_mended(name):
    """Imported transcripts hold `content: null`; it becomes empty (B17)."""
    message = from_json(MESSAGES[name] | {"content": None})

    assert message.content == ()
    assert to_json(message)["content"] == []


def test_values_by_class():
    """Usage, tools and models are read by naming their class (MS-07)."""
    tool = {"name": "t", "description": "", "parameters": {}, "constrainedSampling": {"a": 1}}
    model = {
        "id": "m",
        "name": "M",
        "api": "a",
        "provider": "p",
        "baseUrl": "u",
        "reasoning": True,
        "input": ["text"],
        "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 10,
        "maxTokens": 5,
        "thinkingLevelMap": {"low": "l", "max": None},
    }

    assert to_json(from_json(USAGE, Usage)) == USAGE
    assert to_json(from_json(tool, Tool)) == tool
    assert to_json(from_json(model, Model)) == model
    assert [one.input for one in from_json([USAGE, USAGE], Usage)] == [1, 1]


def test_blocks_alone():
    """A block is read by its type (MS-06)."""
    block = {"type": "toolCall", "id": "c", "name": "t", "arguments": {"a": 1}}

    assert from_json(block) == ToolCall(id="c", name="t", arguments={"a": 1})
    assert to_json(from_json(block)) == block


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_are_finite(value):
    """JSON has no others; the path is named (P6)."""
    message = ToolResultMessage(tool_call_id="c", tool_name="t", details={"a": [value]})

    with pytest.raises(ValueError, match=r"details\.a\[0\]"):
        to_json(message)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": object()}, r"details\.a"),
        ({"a": {1: 2}}, r"details\.a"),
        ({"a": b"x"}, r"details\.a"),
    ],
)
def test_what_has_no_json_form_is_named(value, path):
    """With its path and what to do (api.md)."""
    message = ToolResultMessage(tool_call_id="c", tool_name="t", details=value)

    with pytest.raises(TypeError, match=path):
        to_json(message)


def test_objects_of_ones_own():
    """A `to_json` method or a dataclass gives the form of a custom message (CO-13)."""

    @dataclasses.dataclass
    class Note:
        role: str
        timestamp: int
        text: str

    class Memo:
        role = "memo"
        timestamp = 1

        def to_json(self):
            return {"role": "memo", "timestamp": 1, "n": (1, 2)}

    assert to_json([Note("note", 1, "x"), Memo()]) == [
        {"role": "note", "timestamp": 1, "text": "x"},
        {"role": "memo", "timestamp": 1, "n": [1, 2]},
    ]


def test_messages_are_immutable():
    """Neither fields nor JSON inside can be changed (MS-01)."""
    for data in MESSAGES.values():
        message = from_json(data)
        with pytest.raises(AttributeError):
            message.timestamp = 9
    with pytest.raises(TypeError, match="thaw"):
        from_json(MESSAGES["toolResult"]).details["a"].append(2)
    thawed = thaw(from_json(MESSAGES["toolResult"]).details)
    thawed["a"].append(2)
    assert thawed == {"a": [1, 2]}


# ----------------------------------------------------------------------------- the border


def test_a_dict_may_be_short():
    """At the border what a constructor has a default for may be missing (CO-13)."""
    message = coerce_message({"role": "assistant", "content": [{"type": "text", "text": "x"}]})

    assert isinstance(message, AssistantMessage)
    assert message.timestamp > 1_600_000_000_000
    note = coerce_message({"role": "note", "text": "x"})
    assert (note.role, note.text) == ("note", "x")
    assert note.timestamp > 1_600_000_000_000


def test_ours_are_taken_as_they_are():
    """A message object is not copied (CO-13)."""
    for message in (user(), SystemMessage(), CustomMessage(role="x")):
        assert coerce_message(message) is message


@pytest.mark.parametrize("value", [5, None, "x", [], TextContent(text="x"), UserMessage])
def test_anything_else_is_refused(value):
    """The error names what may stand there and shows what came (CO-13)."""
    with pytest.raises(TypeError, match="message"):
        coerce_message(value)


@pytest.mark.parametrize("data", [{"type": "text", "text": "x"}, {"content": "x"}, {}])
def test_a_dict_without_a_role_is_no_message(data):
    """Least of all a content block (CO-13)."""
    with pytest.raises(ValueError, match="role"):
        coerce_message(data)


class Hostile:
    def __repr__(self):
        raise RuntimeError("no")


def test_a_failing_repr_does_not_hide_the_error():
    """The error is still about the message (CO-13)."""
    with pytest.raises(TypeError, match="Hostile"):
        coerce_message(Hostile())


# --------------------------------------------------------------------------------- events


async def test_every_event_has_a_json_form():
    """Type and camelCase fields, as the reference names them (MS-07)."""
    s = Scripted(call(), "end", tools=[make_tool(lambda i, p, g, update: update("half"))])
    await s.prompt()

    written = [to_json(event) for event in s.events]
    json.dumps(written)
    assert [one["type"] for one in written] == s.types
    by_type = {one["type"]: one for one in written}
    assert set(by_type["tool_execution_end"]) == {
        *("type", "toolCallId", "toolName", "result", "isError", "durationMs"),
    }
    assert set(by_type["tool_execution_update"]) == {
        *("type", "toolCallId", "toolName", "args", "partialResult"),
    }
    assert set(by_type["turn_end"]) == {"type", "message", "toolResults"}
    assert by_type["message_update"]["assistantMessageEvent"]["partial"]["role"] == "assistant"
    assert by_type["message_update"]["message"]["role"] == "assistant"


async def test_a_transcript_goes_into_a_new_agent():
    """What was written can be continued from (MS-07, SE-18)."""
    s = Scripted(call(), "end", system_prompt="p", tools=[make_tool(ok)])
    await s.prompt()
    text = json.dumps(to_json(s.state.messages))
    again = Scripted("more", messages=from_json(json.loads(text)), tools=[make_tool(ok)])
    await again.prompt()

    assert again.state.system_prompt == "p"
    assert again.roles == [*s.roles, "user", "assistant"]
    assert to_json(again.state.messages[:5]) == json.loads(text)
