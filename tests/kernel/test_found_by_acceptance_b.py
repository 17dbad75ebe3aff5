"""Input that an agent took and that failed its runs; each test states the rule."""

import base64

import pytest
from pi_agent_kernel import (
    Agent,
    AgentTool,
    AssistantMessage,
    CustomMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    faux_provider,
)
from scripted import Scripted, user

PNG = b"\x89PNG"


def image(data="aGk=", mime_type="image/png"):
    return ImageContent(data=data, mime_type=mime_type)


def result(*content, **fields):
    return ToolResultMessage(**{"tool_call_id": "c", "tool_name": "t", **fields}, content=content)


WRONG = [
    (UserMessage(content=["text"]), r"UserMessage\.content\[0\] is a TextContent or ImageContent"),
    (UserMessage(content=["text"]), r"not str: 'text'\. Pass TextContent\(text=\.\.\.\)"),
    (UserMessage(content=[3]), r"UserMessage\.content\[0\] .* not int: 3"),
    (UserMessage(content=3), r"UserMessage\.content is text or a list of .* not int: 3"),
    (UserMessage(content=None), r"UserMessage\.content is text or a list of .* not None"),
    (UserMessage(content=PNG), r"UserMessage\.content is text or a list of .* not bytes"),
    (UserMessage(content=TextContent(text="x")), r"Put the block into a list"),
    (UserMessage(content=[{"type": "text", "text": "x"}]), r"or the whole message as a dict"),
    (UserMessage(content=[TextContent(text=3)]), r"TextContent\.text is text, not int: 3"),
    (UserMessage(content=[image(3)]), r"content\[0\]: ImageContent\.data is base64 text, not int"),
    (UserMessage(content=[image(PNG)]), r"Pass base64\.b64encode\(data\)\.decode\(\)"),
    (UserMessage(content=[image(mime_type=3)]), r"ImageContent\.mime_type is text, not int: 3"),
    (UserMessage(content=[ToolCall(id="c", name="t")]), r"not ToolCall"),
    (AssistantMessage(content="text"), r"Pass AssistantMessage\(content=\[TextContent\(text="),
    (AssistantMessage(content=[image()]), r"AssistantMessage\.content\[0\] .* not ImageContent"),
    (AssistantMessage(content=[ToolCall(id=3, name="t")]), r"ToolCall\.id is text, not int: 3"),
    (AssistantMessage(usage=3), r"AssistantMessage\.usage is a Usage, not int: 3"),
    (result("text"), r"ToolResultMessage\.content\[0\] .* not str: 'text'"),
    (result(image(PNG)), r"ImageContent\.data is base64 text, not bytes"),
    (result(tool_call_id=3), r"ToolResultMessage\.tool_call_id is text, not int: 3"),
    (SystemMessage(content=3), r"SystemMessage\.content is text or a list of TextContent blocks"),
    (SystemMessage(tools_added=[3]), r"SystemMessage\.tools_added\[0\] is a Tool, not int: 3"),
    ({"role": "user", "content": [image(3)]}, r"ImageContent\.data is base64 text, not int: 3"),
    ({"role": "user", "content": TextContent(text="x")}, r"Put the block into a list"),
]

WAYS = {
    "prompt": lambda agent, message: agent.prompt_sync(message),
    "prompt of several": lambda agent, message: agent.prompt_sync([user("x"), message]),
    "steer": lambda agent, message: agent.steer(message),
    "follow_up": lambda agent, message: agent.follow_up(message),
    "assign": lambda agent, message: setattr(agent.state, "messages", [user("x"), message]),
    "append": lambda agent, message: agent.state.messages.append(message),
    "constructor": lambda agent, message: Agent(stream_fn=agent.stream_fn, messages=[message]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("message", "complaint"), WRONG)
def test_a_wrong_field_is_refused_at_the_call(way, message, complaint):
    """A message with a wrong field is a TypeError at each border; nothing changed (MS-01)."""
    s = Scripted("one", "two")
    s.agent.prompt_sync("first")
    before = list(s.state.messages)

    with pytest.raises(TypeError, match=complaint):
        WAYS[way](s.agent, message)

    assert s.state.messages == before
    assert not s.agent.has_queued_messages()
    s.agent.prompt_sync("again")
    assert s.state.error_message is None
    assert s.state.messages[-1].text == "two"


@pytest.mark.parametrize(
    ("images", "complaint"),
    [
        ([image(3)], r"images\[0\]: ImageContent\.data is base64 text, not int: 3"),
        ([image(), image(PNG)], r"images\[1\]: .* Pass base64\.b64encode\(data\)\.decode\(\)"),
        ([image(mime_type=None)], r"images\[0\]: ImageContent\.mime_type is text, not None"),
        ([PNG], r"An image is an ImageContent"),
        (image(), r"images is a list of ImageContent, not ImageContent"),
        (3, r"images is a list of ImageContent, not int"),
    ],
)
def test_a_wrong_image_is_refused_at_the_call(images, complaint):
    """An image that no provider could read is a TypeError of the prompt it came with (LP-13)."""
    s = Scripted("one")

    with pytest.raises(TypeError, match=complaint):
        s.agent.prompt_sync("look", images=images)

    assert s.state.messages == []
    s.agent.prompt_sync("look", images=[image(base64.b64encode(PNG).decode())])
    assert s.state.messages[-1].text == "one"


def test_right_messages_are_taken_as_they_are():
    """The check copies nothing: what is right stands in the transcript itself (ST-06)."""
    s = Scripted()

    class Mine(UserMessage, frozen=True):
        pass

    given = [
        SystemMessage(content=[TextContent(text="p")], sections={"a": None}),
        UserMessage(content="x"),
        UserMessage(content=()),
        Mine(content=[TextContent(text="x"), image()]),
        AssistantMessage(content=[TextContent(text="x"), ToolCall(id="c", name="t")]),
        result(TextContent(text="x"), image()),
        CustomMessage(role="note", content=3),
    ]
    s.state.messages = given

    assert all(mine is theirs for mine, theirs in zip(s.state.messages, given, strict=True))


class Looked(UserMessage, frozen=True):
    """A user message that counts how often its content is read."""

    looks = 0

    def __getattribute__(self, name):
        if name == "content":
            Looked.looks += 1
        return super().__getattribute__(name)


def test_a_prompt_checks_new_messages_only(monkeypatch):
    """A message in the transcript is not looked at again when another one comes in."""
    s = Scripted()
    s.state.messages = [Looked(content="x")]
    assert Looked.looks > 0
    monkeypatch.setattr(Looked, "looks", 0)

    s.state.messages.append(user("y"))
    s.agent.steer("z")

    assert Looked.looks == 0


OPTIONS = [
    ("abort_grace", "1", TypeError, "number of seconds, such as 0.25, not '1'"),
    ("abort_grace", None, TypeError, "number of seconds, such as 0.25, not None"),
    ("abort_grace", True, TypeError, "number of seconds, such as 0.25, not True"),
    ("abort_grace", -1, ValueError, "0 or more, not -1"),
    ("abort_grace", float("nan"), ValueError, "finite number of seconds, 0 or more, not nan"),
    ("abort_grace", float("inf"), ValueError, "finite number of seconds, 0 or more, not inf"),
    ("abort_grace", 10**309, ValueError, "finite number of seconds"),
    ("transport", "x", ValueError, '"sse", "websocket", "websocket-cached" or "auto", not \'x\''),
    ("transport", 3, ValueError, "not 3"),
    ("transport", [], ValueError, "not \\[\\]"),
    ("session_id", 3, TypeError, "text or None, not 3"),
    ("max_retry_delay_ms", "x", TypeError, "whole number of milliseconds, or None .* not 'x'"),
    ("max_retry_delay_ms", 1.5, TypeError, "not 1.5"),
    ("max_retry_delay_ms", -1, ValueError, "0 milliseconds or more, not -1"),
    ("thinking_budgets", 3, TypeError, "a dict of tokens by thinking level, .* not 3"),
    ("thinking_budgets", {"low": "x"}, TypeError, "not {'low': 'x'}"),
    ("identity", 3, TypeError, "a dict, such as .*, or None, not 3"),
    ("tool_execution", "x", ValueError, '"sequential" or "parallel"|"parallel" or "sequential"'),
    ("before_tool_call", 3, TypeError, "a function or None, not 3"),
    ("should_stop", "x", TypeError, "a function or None, not 'x'"),
    ("run_sync", 3, TypeError, "a function or None, not 3"),
    ("stream_fn", 3, TypeError, "a function .* not 3"),
]


@pytest.mark.parametrize(("name", "value", "error", "complaint"), OPTIONS)
def test_a_wrong_option_is_refused_where_it_is_given(name, value, error, complaint):
    """A wrong option raises from the constructor and from its assignment; it stays (CO-12)."""
    faux = faux_provider()
    complaint = f"^{name} is .*({complaint})"

    with pytest.raises(error, match=complaint):
        Agent(**{"stream_fn": faux.stream_fn, name: value})

    agent = Agent(stream_fn=faux.stream_fn)
    before = getattr(agent, name)
    with pytest.raises(error, match=complaint):
        setattr(agent, name, value)
    assert getattr(agent, name) == before


def test_an_assigned_stream_function_is_a_function():
    """The default stream function is chosen when the agent is made, not by assigning None."""
    agent = Agent(stream_fn=faux_provider().stream_fn)

    with pytest.raises(TypeError, match="stream_fn is a function"):
        agent.stream_fn = None


@pytest.mark.parametrize("value", [3, None, b"p", [TextContent(text="p")]])
def test_a_system_prompt_is_text(value):
    """A system prompt that is no text is a TypeError of the constructor (CO-04)."""
    with pytest.raises(TypeError, match=r"system_prompt is text, not .* leave it out"):
        Agent(stream_fn=faux_provider().stream_fn, system_prompt=value)


def test_right_options_may_be_assigned():
    """Every option takes its right values by assignment; other names are still refused."""
    agent = Scripted().agent
    for name, value in (
        ("abort_grace", 0),
        ("abort_grace", 1.5),
        ("transport", "websocket-cached"),
        ("session_id", None),
        ("session_id", "s"),
        ("max_retry_delay_ms", 0),
        ("thinking_budgets", {"low": 1}),
        ("thinking_budgets", None),
        ("identity", {"version": "1"}),
        ("tool_execution", "sequential"),
        ("before_tool_call", print),
        ("before_tool_call", None),
    ):
        setattr(agent, name, value)
        assert getattr(agent, name) == value
    with pytest.raises(AttributeError):
        agent.abort_grase = 1


async def test_a_text_has_one_form_however_it_comes():
    """prompt(), steer() and follow_up() make the same blocks of a text (LP-13, QU-01)."""
    s = Scripted("one", "two", "three")
    s.agent.steer("steered")
    s.agent.follow_up("followed")
    await s.agent.prompt("prompted")

    users = [message for message in s.state.messages if message.role == "user"]
    assert [message.content for message in users] == [
        (TextContent(text=text),) for text in ("prompted", "steered", "followed")
    ]
    assert [message.text for message in users] == ["prompted", "steered", "followed"]


def test_every_standard_message_has_its_text():
    """`text` joins the text blocks of any standard message, and is text given as such (MS-01)."""
    blocks = (TextContent(text="a"), image(), TextContent(text="b"))

    assert UserMessage(content=blocks).text == "a\nb"
    assert UserMessage(content="a").text == "a"
    assert SystemMessage(content="a", sections={"s": "t"}).text == "a"
    assert SystemMessage(content=blocks[:1]).text == "a"
    assert result(*blocks).text == "a\nb"
    with pytest.raises(AttributeError):
        UserMessage(content="a").text = "b"


async def test_a_tools_message_passes_the_check_of_the_next_agent():
    """What a run recorded is what another agent takes as its transcript (CO-12)."""
    tool = AgentTool(name="t", execute=lambda *_: "ok")
    s = Scripted(ToolCall(id="c", name="t"), "end", tools=[tool], system_prompt="p")
    await s.agent.prompt("go", images=[image()])

    other = Agent(stream_fn=s.agent.stream_fn, messages=s.state.messages)

    assert other.state.messages == s.state.messages
