"""One conversation with everything a provider may refuse, for each family to be sent.

The same transcript goes to every model; `own` signatures are those a family gave itself.
"""

from __future__ import annotations

import base64
import json

from pi_agent_kernel.messages import (
    AssistantMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolReference,
    ToolResultMessage,
    UserMessage,
)

# One white pixel.
PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f"
    b"\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xff\xff\xff\x7f\x00\t\xfb\x03\xfd\x05CE\xca\x00\x00"
    b"\x00\x00IEND\xaeB`\x82"
)
IMAGE = ImageContent(data=base64.b64encode(PIXEL).decode(), mime_type="image/png")

ADD = Tool(
    name="add",
    description="Add two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
)
PLOT = Tool(name="plot", description="Draw a picture.")
CLOCK = Tool(name="clock", description="Tell the time.")


def signed(system, **fields):
    """Return a signature as a block from that provider keeps it."""
    return json.dumps({"pydantic_ai": 1, **fields, "provider": system}, separators=(",", ":"))


def conversation(model, system, *, thinking=(), redacted=(), call_signature=None):
    """Return the transcript.

    Args:
        model: The model that answered, and is asked again.
        system: What pydantic-ai calls its provider.
        thinking: Fields of its signature of a thought; None if it never shows one.
        redacted: Fields of its signature of a hidden thought; none if it has no such thing.
        call_signature: Its signature of a call.
    """

    def reply(*blocks, **fields):
        known = {"api": model.api, "provider": model.provider, "model": model.id}
        return AssistantMessage(content=blocks, **{**known, **fields})

    def result(id, name, *content, **fields):
        return ToolResultMessage(tool_call_id=id, tool_name=name, content=content, **fields)

    def text(words):
        return TextContent(text=words)

    own: list[ThinkingContent] = []
    if thinking is not None:
        own.append(
            ThinkingContent(
                thinking="Own thought.", thinking_signature=signed(system, **dict(thinking))
            )
        )
    if redacted:
        own.append(
            ThinkingContent(
                thinking="", redacted=True, thinking_signature=signed(system, **dict(redacted))
            )
        )
    return [
        SystemMessage(
            content="Be brief.",
            sections={"style": "Plain words."},
            tools_added=[ADD, PLOT],
        ),
        UserMessage(content=[text("What is this?"), IMAGE]),
        # Another model's answer: its thoughts and signatures stay with it.
        AssistantMessage(
            content=[
                ThinkingContent(thinking="Foreign thought.", thinking_signature="foreign"),
                ThinkingContent(thinking="", redacted=True, thinking_signature="foreign hidden"),
                text("A white pixel."),
                ToolCall(
                    id="fc_1|call/with+odd:chars_and_more_than_forty_of_them",
                    name="add",
                    arguments={"a": 1, "b": 2},
                    thought_signature="foreign",
                ),
            ],
            api="other",
            provider="other",
            model="other-1",
        ),
        SystemMessage(content="The user is called Ada."),  # waits for the result
        result("fc_1|call/with+odd:chars_and_more_than_forty_of_them", "add", text("3")),
        UserMessage(content="Now add and draw \ud800."),
        # This model's own answer: parallel calls, two of them with the same id.
        reply(
            *own,
            text("Adding."),
            ToolCall(
                id="call_1",
                name="add",
                arguments={"a": 3, "b": "vier"},
                thought_signature=call_signature,
            ),
            ToolCall(id="call_1", name="plot"),
            ToolCall(id="call_2", name="plot"),
            ToolCall(id="call_3", name="plot"),
        ),
        result("call_1", "add", text("b is no number"), IMAGE, is_error=True),
        result("call_1", "plot", text("Done."), text("See:"), IMAGE),
        result("call_2", "plot", text(" \r\n")),
        # call_3 has no result: the user went on.
        SystemMessage(
            sections={"style": None, "language": "Answer in German."},
            tools_added=[CLOCK],
            tools_removed=[ToolReference(name="plot")],
        ),
        UserMessage(content=[text("Stop."), text("What time is it?")]),
        reply(text("It is"), ToolCall(id="call_4", name="clock"), stop_reason="aborted"),
        result("call_4", "clock", text("never asked")),
        reply(),
        UserMessage(content="Go on."),
    ]
