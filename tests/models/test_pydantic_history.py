from __future__ import annotations

import base64
import json

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
from pi_agent_kernel.models.pydantic_history import Places, to_history
from pi_agent_kernel.models.replay import replayable
from pi_agent_kernel.request import Model
from provider import GO, ask, model_at

# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
)


async def test_the_request_carries_prompt_tools_and_settings(server):
    """System messages are folded into one, tools go out with their schema unchanged (TR-13)."""
    server.play("text")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    late = Tool(name="late", description="Later.", parameters={})
    messages = [
        SystemMessage(
            content="Be brief.",
            tools_added=[Tool(name="add", description="Add.", parameters=schema)],
        ),
        UserMessage(content="one"),
        AssistantMessage(content=[TextContent(text="ok")]),
        SystemMessage(sections={"style": "Plain."}, tools_added=[late]),
        UserMessage(content=[TextContent(text="two"), TextContent(text="three")]),
    ]

    await ask(
        server.url,
        messages,
        api_key="k-1",
        temperature=0.5,
        max_tokens=99,
        session_id="s",
        model=model_at(server.url, headers={"X-A": "model", "X-B": "model"}),
        headers={"x-a": "request", "x-b": None},
    )
    (request,) = server.requests
    payload = request.payload

    assert [(m["role"], m["content"]) for m in payload["messages"]] == [
        ("system", "Be brief.\n\nPlain."),
        ("user", "one"),
        ("assistant", "ok"),
        ("user", "two\nthree"),
    ]
    functions = [tool["function"] for tool in payload["tools"]]
    assert [function["name"] for function in functions] == ["add", "late"]
    assert functions[0]["parameters"] == schema
    assert payload["model"] == "test-1"
    assert payload["temperature"] == 0.5
    assert payload.get("max_tokens", payload.get("max_completion_tokens")) == 99
    assert "store" not in payload
    assert "prompt_cache_key" not in payload
    assert request.header("authorization") == "Bearer k-1"
    assert (request.header("x-a"), request.header("x-b")) == ("request", None)


async def test_the_transcript_is_repaired(server):
    """Failed replies are left out, calls without a result get one, ids are unique (TR-14)."""
    server.play("text")
    call = ToolCall(id="c1", name="f", arguments={"x": 1})
    png = ImageContent(data=base64.b64encode(b"png").decode(), mime_type="image/png")
    messages = [
        UserMessage(content=[TextContent(text="look"), png]),
        AssistantMessage(content=[call], stop_reason="error", error_message="x"),
        AssistantMessage(content=[]),
        AssistantMessage(
            content=[ThinkingContent(thinking="secret"), call, call, ToolCall(id="d|1", name="g")]
        ),
        ToolResultMessage(tool_call_id="c1", tool_name="f", content=[TextContent(text="1")]),
        ToolResultMessage(
            tool_call_id="c1", tool_name="f", content=[TextContent(text=" \r\n")], is_error=True
        ),
        ToolResultMessage(tool_call_id="zz", tool_name="f", content=[TextContent(text="lost")]),
        UserMessage(content="more \ud800"),
    ]

    assert (await ask(server.url, messages)).stop_reason == "stop"
    first, reply, *results, last = server.requests[0].payload["messages"]

    assert first["content"][0] == {"type": "text", "text": "look"}
    assert first["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    ids = [each["id"] for each in reply["tool_calls"]]
    assert ids == ["c1", "c1_2", "d_1"]
    assert "secret" not in json.dumps(reply)
    assert [(each["role"], each["tool_call_id"]) for each in results] == [
        ("tool", each) for each in ids
    ]
    assert results[0]["content"] == "1"
    assert "(no tool output)" in results[1]["content"]
    assert "error" in results[1]["content"]
    assert "No result provided" in results[2]["content"]
    assert last["content"] == "more �"


async def test_images_go_only_to_models_that_take_them(server):
    """A text-only model gets a placeholder (TR-15); an image of a tool reaches the others."""
    server.play("text")
    png = ImageContent(data=base64.b64encode(b"png").decode(), mime_type="image/png")
    messages = [
        UserMessage(content=[png, png]),
        AssistantMessage(content=[ToolCall(id="c1", name="f")]),
        ToolResultMessage(tool_call_id="c1", tool_name="f", content=[png]),
        UserMessage(content="and?"),
    ]

    await ask(server.url, messages, model=model_at(server.url, input=("text",)))
    await ask(server.url, messages)
    blind, seeing = (json.dumps(request.payload) for request in server.requests)

    assert "data:image" not in blind
    assert blind.count("(image omitted: model does not support images)") == 1
    assert "(tool image omitted: model does not support images)" in blind
    assert seeing.count("data:image/png") == 3
    assert "(see attached image)" in seeing
    assert "Images of the result of f (c1):" in seeing


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("!!!", "Only base64 data"),
        ("data:image/png;base64,AAAA", "Only base64 data"),
        ("", "empty"),
    ],
)
async def test_a_bad_image_is_named(data, problem, server):
    """An image that is not base64 ends the reply as an error that says where it is."""
    server.play("text")
    bad = ImageContent(data=data, mime_type="image/png")
    said = [UserMessage(content="one"), UserMessage(content=[bad])]
    made = [
        AssistantMessage(content=[ToolCall(id="c1", name="plot")]),
        ToolResultMessage(tool_call_id="c1", tool_name="plot", content=[bad]),
    ]

    of_user = (await ask(server.url, said)).error_message
    of_tool = (await ask(server.url, [*GO, *made])).error_message

    assert "An image in user message 2 is not base64" in of_user
    assert "An image in the result of 'plot', call 'c1' is not base64" in of_tool
    assert problem in of_user
    assert server.requests == []
    blind = model_at(server.url, input=("text",))
    assert (await ask(server.url, said, model=blind)).stop_reason == "stop"


def parts_of(messages, **places):
    """Return the kinds of the parts, by message, with the text of system and user parts."""
    history = to_history(messages, model="m", system="s", places=Places(**places))
    return [
        [
            (part.part_kind, part.content)
            if part.part_kind in ("system-prompt", "user-prompt")
            else part.part_kind
            for part in message.parts
        ]
        for message in history
    ]


def test_system_messages_stay_in_place_where_they_may():
    """Later ones are told as updates where they stand, else folded into the first (TR-13)."""
    messages = [
        SystemMessage(content="a", sections={"x": "1"}),
        SystemMessage(content="b"),
        UserMessage(content="u"),
        SystemMessage(sections={"x": None, "y": "2"}),
        SystemMessage(tools_added=[Tool(name="t")]),
        UserMessage(content="v"),
        AssistantMessage(content=[TextContent(text="r")]),
        SystemMessage(content="c"),
    ]

    assert parts_of(messages, system_anywhere=True) == [
        [
            ("system-prompt", "a\n\nb\n\n1"),
            ("user-prompt", "u"),
            (
                "system-prompt",
                'Removed system prompt section "x".\n\nUpdated system prompt section "y":\n\n2',
            ),
            ("user-prompt", "v"),
        ],
        ["text"],
        [("system-prompt", "c")],
    ]
    assert parts_of(messages) == [
        [("system-prompt", "a\n\nb\n\nc\n\n2"), ("user-prompt", "u\n\nv")],
        ["text"],
    ]


def test_an_empty_reply_leaves_no_gap():
    """What an empty reply stood between becomes one turn, in both ways (E13)."""
    model = Model(id="m")
    messages = [
        SystemMessage(content="a"),
        UserMessage(content="u"),
        AssistantMessage(content=[TextContent(text="r")]),
        SystemMessage(content="b"),
        AssistantMessage(content=[]),
        UserMessage(content="v"),
    ]
    sent = replayable(messages, model)

    assert parts_of(sent, system_anywhere=True)[2] == [("system-prompt", "b"), ("user-prompt", "v")]
    assert parts_of(sent)[2] == [("user-prompt", "v")]


def test_images_of_a_failed_call_follow_the_results():
    """They come after all results of the turn, before what the user says (E12)."""
    png = ImageContent(data="AAAA", mime_type="image/png")
    messages = [
        ToolResultMessage(
            tool_call_id=call_id,
            tool_name="f",
            content=[TextContent(text=call_id), png],
            is_error=call_id == "c1",
        )
        for call_id in ("c1", "c2")
    ]
    _, second, (kind, content) = parts_of([*messages, UserMessage(content="u")])[0]

    assert (second, kind) == ("tool-return", "user-prompt")
    assert (content[0], content[2]) == ("Images of the result of f (c1):", "u")
    (_, _, (_, all_moved)) = parts_of(messages, images_in_results=False)[0]
    assert [item for item in all_moved if isinstance(item, str)] == [
        "Images of the result of f (c1):",
        "Images of the result of f (c2):",
    ]


def test_thinking_stays_here_where_it_has_no_place():
    """It never becomes text of the answer; a reply of nothing else goes whole (E10)."""
    signed = ThinkingContent(thinking="hm", thinking_signature="s")
    unsigned = ThinkingContent(thinking="hm")
    messages = [
        UserMessage(content="u"),
        AssistantMessage(content=[signed, unsigned, TextContent(text="r")]),
        UserMessage(content="v"),
        AssistantMessage(content=[unsigned]),
    ]

    assert [len(parts) for parts in parts_of(messages, thinking="none")] == [1, 1, 1]
    assert [len(parts) for parts in parts_of(messages, thinking="signed")] == [1, 2, 1]
    assert [len(parts) for parts in parts_of(messages, thinking="all")] == [1, 3, 1, 1]


async def test_lone_surrogates_never_stop_a_request(server):
    """What no request body can carry is replaced wherever it stands."""
    server.play("text")
    bad = "x\ud800"
    schema = {"type": "object", "properties": {bad: {"description": bad, "enum": [bad, 1]}}}
    messages = [
        SystemMessage(
            content=bad, tools_added=[Tool(name="f", description=bad, parameters=schema)]
        ),
        UserMessage(content=[TextContent(text=bad)]),
        AssistantMessage(
            content=[
                TextContent(text=bad),
                ToolCall(id="c1", name="f", arguments={bad: [bad, None, 1.5]}),
            ]
        ),
        ToolResultMessage(tool_call_id="c1", tool_name="f", content=[TextContent(text=bad)]),
    ]

    reply = await ask(server.url, messages)
    sent = json.dumps(server.requests[0].payload, ensure_ascii=False)

    assert reply.stop_reason == "stop"
    assert sent.count("x�") == 10


async def test_thinking_goes_back_to_the_model_it_came_from(server):
    """Own reasoning is replayed in its field, another model's is not (TR-15, E10)."""
    server.play("thinking")
    own = await ask(server.url)
    other = AssistantMessage(content=[ThinkingContent(thinking="foreign"), TextContent(text="x")])

    await ask(server.url, [*GO, own, *GO, other, *GO])
    sent = server.requests[1].payload["messages"]

    assert sent[1]["content"] == "Four."
    assert "Let me see." in json.dumps(sent[1])
    assert "foreign" not in json.dumps(sent)
