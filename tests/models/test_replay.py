from __future__ import annotations

import sys

import pytest
from pi_agent_kernel.messages import (
    AssistantMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.models.replay import replayable
from pi_agent_kernel.request import Model

MODEL = Model(id="m", api="a", provider="p", input=("text", "image"))


def assistant(*blocks, own=True, **fields):
    """Return a reply of this model or of another."""
    return AssistantMessage(
        content=blocks, api="a", provider="p", model="m" if own else "other", **fields
    )


def call(id, **fields):
    """Return a tool call."""
    return ToolCall(id=id, name="f", **fields)


def result(id, text="ok"):
    """Return a tool result."""
    return ToolResultMessage(tool_call_id=id, tool_name="f", content=[TextContent(text=text)])


def shape(messages):
    """Return the roles, with the ids of calls and results."""
    return [
        (message.role, *(c.id for c in getattr(message, "tool_calls", ())))
        if message.role != "toolResult"
        else ("toolResult", message.tool_call_id)
        for message in replayable(messages, MODEL)
    ]


GO = UserMessage(content="go")


def test_failed_replies_are_left_out():
    """Neither an errored or aborted reply nor results for its calls are sent (E09)."""
    for reason in ("error", "aborted"):
        messages = [GO, assistant(call("c1"), stop_reason=reason), result("c1"), GO]

        assert shape(messages) == [("user",), ("user",)]


def test_a_call_without_result_gets_an_error_result():
    """The missing result comes before the next message, or at the end (TR-14)."""
    messages = [assistant(call("c1"), call("c2")), result("c2"), GO, assistant(call("c3"))]

    assert shape(messages) == [
        ("assistant", "c1", "c2"),
        ("toolResult", "c2"),
        ("toolResult", "c1"),
        ("user",),
        ("assistant", "c3"),
        ("toolResult", "c3"),
    ]
    missing = replayable(messages, MODEL)[2]
    assert (missing.is_error, missing.text) == (True, "No result provided")


def test_a_system_message_waits_for_the_results():
    """A system message between a call and its result comes after the result (TR-14)."""
    update = SystemMessage(content="new")
    messages = [update, assistant(call("c1")), update, result("c1"), GO]

    assert shape(messages) == [
        ("system",),
        ("assistant", "c1"),
        ("toolResult", "c1"),
        ("system",),
        ("user",),
    ]


def test_ids_are_made_unique():
    """Equal ids get a suffix, and results find their calls in order (E08)."""
    long = "x" * 40
    messages = [
        assistant(call("c"), call("c"), call(long)),
        result("c", "first"),
        result("c", "second"),
        result(long),
        assistant(call("c"), call(long), call("")),
    ]
    sent = replayable(messages, MODEL)

    assert [each.id for each in sent[0].tool_calls] == ["c", "c_2", long]
    assert [(each.tool_call_id, each.text) for each in sent[1:3]] == [
        ("c", "first"),
        ("c_2", "second"),
    ]
    assert [each.id for each in sent[4].tool_calls] == ["c_3", "x" * 38 + "_2", "call"]


def equal(n):
    """All calls have one id."""
    return ["a"] * n


def taken(n):
    """The numbered ids are there already, and long ids begin alike."""
    return [
        *("a" for _ in range(n)),
        *(f"a_{number}" for number in range(n)),
        *("x" * 34 + f"{number:06}" for number in [*range(n)] * 2),
    ]


def different(n):
    """The results come last call first."""
    return [f"a{number}" for number in range(n)]


@pytest.mark.parametrize("ids", [equal, taken, different])
@pytest.mark.parametrize("id_length", [None, 9])
def test_the_work_grows_with_the_calls_and_not_faster(ids, id_length):
    """Four times the calls cost four times the steps, whatever their ids and order."""

    def steps(n):
        count, before = 0, sys.gettrace()

        def trace(_frame, _event, _argument):
            nonlocal count
            count += 1
            return trace

        messages = [assistant(*map(call, ids(n))), *map(result, reversed(ids(n)))]
        sys.settrace(trace)
        try:
            sent = replayable(messages, MODEL, id_length=id_length)
        finally:
            sys.settrace(before)
        used = [each.id for each in sent[0].tool_calls]
        assert len(set(used)) == len(used) == len(sent) - 1
        return count

    assert steps(800) < 4.6 * steps(200)


def test_ids_are_fitted_to_a_length():
    """Where ids have one length, others become hashes of it, the same every time (TR-15)."""
    messages = [
        assistant(call("Abc123xyz"), call("call_1"), call("call_1"), call("")),
        result("call_1", "first"),
        result("call_1", "second"),
    ]
    sent = replayable(messages, MODEL, id_length=9)
    ids = [each.id for each in sent[0].tool_calls]

    assert ids[0] == "Abc123xyz"
    assert len(set(ids)) == 4
    assert all(len(each) == 9 and each.isalnum() for each in ids)
    assert [each.tool_call_id for each in sent[1:3]] == ids[1:3]
    assert replayable(messages, MODEL, id_length=9)[0] == sent[0]


def test_names_nobody_declared_are_made_harmless():
    """A made-up tool name is cut to what providers take, on call and result; real ones stay."""
    names = ("get.it", "real.one", "x" * 70, "")
    messages = [
        SystemMessage(tools_added=[Tool(name="real.one")]),
        assistant(*(ToolCall(id=f"c{i}", name=name) for i, name in enumerate(names))),
        *(
            ToolResultMessage(tool_call_id=f"c{i}", tool_name=name, content=[])
            for i, name in enumerate(names)
        ),
    ]
    _, reply, *results = replayable(messages, MODEL)

    sent = [each.name for each in reply.tool_calls]
    assert sent == ["get_it", "real.one", "x" * 64, "unnamed"]
    assert [each.tool_name for each in results] == sent


def test_what_belongs_to_another_model_is_dropped():
    """Thinking and signatures go only to the model they came from (TR-15, E10)."""
    blocks = (
        ThinkingContent(thinking="hm", thinking_signature="s"),
        TextContent(text="t", text_signature="s"),
        call("id|with/odd+chars" + "x" * 40, thought_signature="s"),
    )
    own, foreign = replayable([assistant(*blocks), assistant(*blocks, own=False)], MODEL)[::2]

    assert own.content == blocks
    text, tool_call = foreign.content
    assert text == TextContent(text="t")
    assert tool_call.id == "id_with_odd_chars" + "x" * 23
    assert tool_call.thought_signature is None


def test_empty_blocks_are_left_out_unless_signed():
    """Blank thinking and text go, redacted thinking stays; an empty reply goes whole (E13)."""
    redacted = ThinkingContent(thinking="", redacted=True)
    messages = [
        GO,
        assistant(ThinkingContent(thinking=" "), TextContent(text="")),
        assistant(TextContent(text=" \n")),
        assistant(redacted, ThinkingContent(thinking=" "), TextContent(text="x")),
    ]
    sent = replayable(messages, MODEL)

    assert [message.role for message in sent] == ["user", "assistant"]
    assert sent[1].content == (redacted, TextContent(text="x"))


def test_images_become_text_for_text_only_models():
    """A run of images becomes one placeholder; text around it stays (TR-15)."""
    image = ImageContent(data="AA==", mime_type="image/png")
    blind = Model(id="m", api="a", provider="p")
    content = [TextContent(text="a"), image, image, TextContent(text="b"), image]
    omitted = "(image omitted: model does not support images)"

    (user, plain) = replayable([UserMessage(content=content), GO], blind)

    assert [block.text for block in user.content] == ["a", omitted, "b", omitted]
    assert plain is GO
    assert replayable([UserMessage(content=content)], MODEL)[0].content == tuple(content)


def test_a_blank_result_gets_a_placeholder():
    """Providers refuse blank output (E11)."""
    image = ImageContent(data="AA==", mime_type="image/png")
    pictures = ToolResultMessage(tool_call_id="c2", tool_name="f", content=[image])
    messages = [assistant(call("c1"), call("c2")), result("c1", "\r\n"), pictures]
    _, blank, picture = replayable(messages, MODEL)

    assert blank.text == "(no tool output)"
    assert picture.content == (TextContent(text="(see attached image)"), image)
