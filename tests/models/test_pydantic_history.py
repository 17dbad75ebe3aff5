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
from provider import GO, ask, model_at

# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning"
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
