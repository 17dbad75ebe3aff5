from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import (
    Agent,
    AgentEnd,
    AgentTool,
    AssistantMessage,
    CustomMessage,
    ImageContent,
    NothingToContinueError,
    SystemMessage,
    TextContent,
    UserMessage,
    faux_assistant_message,
    faux_provider,
    faux_tool_call,
    set_default_stream_fn,
    tool,
)
from scripted import LIMIT, Scripted, make_tool, ok, user


@tool
async def echo(text: str) -> str:
    """Say it back.

    Args:
        text: What to say.
    """
    if text == "boom":
        raise RuntimeError("echo went boom")
    return text


@pytest.fixture
def default_stream_fn():
    """The process-wide default, cleared again."""
    yield set_default_stream_fn
    set_default_stream_fn(None)


# ------------------------------------------------------------------------------- the seeds


async def seed_trace(word):
    """Run the traced example of the issue."""
    faux = faux_provider()
    faux.set_responses(
        [
            faux_assistant_message([faux_tool_call("echo", {"text": word}, "call-1")]),
            faux_assistant_message("done"),
        ]
    )
    agent = Agent(
        stream_fn=faux.stream_fn, model=faux.model(), system_prompt="Be brief.", tools=[echo]
    )
    ends = []
    agent.subscribe(lambda event, signal: ends.append(event), events=[AgentEnd])
    with anyio.fail_after(LIMIT):
        await agent.prompt(f"echo {word}")
    (end,) = ends
    return agent, end


async def test_seed_trace_echo():
    """Five messages are in the state and four in agent_end: the system message was there (D1)."""
    agent, end = await seed_trace("hello")

    roles = [message.role for message in agent.state.messages]
    assert roles == ["system", "user", "assistant", "toolResult", "assistant"]
    assert [message.role for message in end.messages] == roles[1:]
    assert (agent.state.messages[3].text, agent.state.messages[3].is_error) == ("hello", False)
    assert agent.state.messages[-1].text == "done"
    assert agent.state.error_message is None


async def test_seed_trace_boom():
    """A tool that raises gives an error result, and the loop goes on (000.81)."""
    agent, end = await seed_trace("boom")

    assert len(agent.state.messages) == 5
    assert len(end.messages) == 4
    result = agent.state.messages[3]
    assert (result.text, result.is_error, result.details) == ("echo went boom", True, {})
    assert agent.state.messages[-1].text == "done"
    assert agent.state.error_message is None


# ---------------------------------------------------------------------------- construction


def test_defaults():
    """What was not given has the defaults of the reference (CO-05)."""
    agent = Agent(stream_fn=faux_provider().stream_fn)

    assert (agent.state.thinking_level, agent.transport, agent.tool_execution) == (
        "off",
        "auto",
        "parallel",
    )
    assert (agent.steering_mode, agent.follow_up_mode) == ("one-at-a-time", "one-at-a-time")
    model = agent.state.model
    assert (model.id, model.provider, model.api) == ("unknown", "unknown", "unknown")
    assert (model.context_window, model.max_tokens) == (0, 0)
    assert list(agent.state.messages) == []
    assert agent.signal is None
    assert agent.abort_grace == 0.25


def test_without_a_stream_function_construction_fails(default_stream_fn):
    """The error names both remedies (CO-01)."""
    default_stream_fn(None)

    with pytest.raises(ValueError, match=r"stream_fn.*set_default_stream_fn"):
        Agent()


async def test_the_default_stream_function_is_used(default_stream_fn):
    """An agent without a stream function of its own takes the default one (CO-01)."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("from the default")])
    default_stream_fn(faux.stream_fn)
    agent = Agent()

    await agent.prompt("hi")

    assert agent.state.messages[-1].text == "from the default"


def test_arguments_are_keyword_only():
    """An agent takes no positional arguments (api.md)."""
    with pytest.raises(TypeError):
        Agent(faux_provider().stream_fn)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"model": "gpt-4"}, TypeError, "Model.*str.*gpt-4"),
        ({"thinking_level": "huge"}, ValueError, "off, minimal.*'huge'"),
        ({"tools": [len]}, TypeError, "AgentTool.*@tool"),
        ({"tools": [make_tool(ok), make_tool(ok)]}, ValueError, "'t'"),
        ({"messages": [3]}, TypeError, "int: 3"),
        ({"messages": [{"role": "user"}]}, ValueError, "content"),
        ({"steering_mode": "some"}, ValueError, "one-at-a-time.*some"),
        ({"follow_up_mode": None}, ValueError, "one-at-a-time"),
        ({"tool_execution": "serial"}, ValueError, "serial"),
        ({"max_log_events": 0}, ValueError, "max_(log_)?events"),
        ({"is_streaming": True}, TypeError, "is_streaming"),
        ({"error_message": "x"}, TypeError, "error_message"),
        ({"tools": make_tool(ok)}, TypeError, "Tool"),
        ({"stream_fn": 42}, TypeError, "stream"),
        ({"before_tool_call": 42}, TypeError, "before_tool_call"),
    ],
)
def test_bad_options_are_refused(options, error, words):
    """An option of a wrong type or value is an error that names it (CO-03, DEVIATIONS 5)."""
    with pytest.raises(error, match=words):
        Agent(**({"stream_fn": faux_provider().stream_fn} | options))


def test_prompt_and_tools_become_one_leading_system_message():
    """It has timestamp 0 and declares the tools (CO-04)."""
    agent = Agent(stream_fn=faux_provider().stream_fn, system_prompt="p", tools=[make_tool(ok)])

    (head,) = agent.state.messages
    assert (head.content, head.timestamp) == ("p", 0)
    assert [one.name for one in head.tools_added] == ["t"]


def test_a_leading_system_message_wins_over_the_prompt():
    """`system_prompt` is ignored when `messages` starts with a system message (CO-04)."""
    mine = SystemMessage(content="mine")
    agent = Agent(stream_fn=faux_provider().stream_fn, system_prompt="p", messages=[mine])

    assert list(agent.state.messages) == [mine]
    assert agent.state.system_prompt == "mine"


def test_state_cannot_be_replaced():
    """`agent.state` is assigned field by field (ST-01)."""
    agent = Agent(stream_fn=faux_provider().stream_fn)

    with pytest.raises(AttributeError, match="read-only"):
        agent.state = agent.state


# ---------------------------------------------------------------------------------- prompt

IMAGE = ImageContent(data="aGk=", mime_type="image/png")


async def test_text_becomes_one_user_message_of_blocks():
    """Text first, then the images (LP-13)."""
    s = Scripted("ok")
    await s.prompt("look", [IMAGE])

    assert s.state.messages[0].content == (TextContent(text="look"), IMAGE)
    assert s.state.messages[0].timestamp > 1_600_000_000_000


@pytest.mark.parametrize(
    "given",
    [
        user("one"),
        {"role": "user", "content": "one"},
        [user("one")],
        ({"role": "user", "content": "one", "timestamp": 5},),
    ],
)
async def test_a_message_or_a_list_is_taken_as_it_is(given):
    """A message object, a dict of the wire form, or several of them (LP-13)."""
    s = Scripted("ok")
    await s.prompt(given)

    assert s.state.messages[0].content == "one"
    assert s.roles == ["user", "assistant"]


async def test_several_messages_keep_their_order():
    """A list is appended in transcript order, custom messages included (LP-13, MS-05)."""
    s = Scripted("ok")
    await s.prompt([user("a"), CustomMessage(role="note", text="n"), user("b")])

    assert s.roles == ["user", "note", "user", "assistant"]
    assert [m.role for m in s.requests[0]] == ["user", "user"]


async def test_an_empty_list_continues():
    """`prompt([])` is `continue_()` (DEVIATIONS 6)."""
    s = Scripted("ok", messages=[user("waiting")])
    await s.prompt([])

    assert s.roles == ["user", "assistant"]
    with pytest.raises(NothingToContinueError):
        await s.prompt([])


@pytest.mark.parametrize(
    ("given", "images", "words"),
    [
        (42, None, "int: 42"),
        (None, None, "NoneType"),
        ([42], None, "int: 42"),
        ("x", [b"\x89PNG"], "ImageContent.*bytes"),
        ("x", b"\x89PNG", "ImageContent"),
        ("x", IMAGE, "ImageContent|list"),
        (user("x"), [IMAGE], "Images go with a text"),
        (TextContent(text="x"), None, "TextContent"),
        (make_tool(ok), None, "AgentTool"),
    ],
)
async def test_a_wrong_prompt_is_refused_before_anything_changes(given, images, words):
    """A prompt that is neither text nor messages is a TypeError (LP-13)."""
    s = Scripted("ok")

    with pytest.raises(TypeError, match=words):
        await s.prompt(given, images)

    assert (s.roles, s.events) == ([], [])


@pytest.mark.parametrize(
    "given", [{"type": "text", "text": "x"}, {"role": 3}, {}, {"role": "user"}]
)
async def test_a_dict_that_is_no_message_is_refused(given):
    """A content block or half a message is not taken for a message (LP-13)."""
    s = Scripted("ok")

    with pytest.raises(ValueError, match=r"message|content"):
        await s.prompt(given)
    with pytest.raises(ValueError, match=r"message|content"):
        s.agent.steer(given)

    assert (s.roles, s.agent.has_queued_messages()) == ([], False)


async def test_images_may_be_any_iterable():
    """Images from a generator are not lost on the way (LP-13)."""
    s = Scripted("ok")
    await s.prompt("look", (image for image in [IMAGE]))

    assert s.state.messages[0].content == (TextContent(text="look"), IMAGE)


@pytest.mark.parametrize("name", ["AgentTool", "tool"])
def test_a_tool_is_not_a_function(name):
    """An AgentTool where a function was meant is refused at once (api.md)."""
    made = {"AgentTool": make_tool(ok), "tool": echo}[name]

    with pytest.raises(TypeError, match=r"tool|function"):
        tool(made)
    with pytest.raises(TypeError, match=r"tool|function"):
        AgentTool(name="x", execute=made)


async def test_message_objects_of_a_standard_role_must_be_ours():
    """An object that says it is a user message but is none would never reach the model (CO-13)."""

    class Mine:
        role = "user"
        timestamp = 1
        content = "hi"

    s = Scripted("ok")

    with pytest.raises((TypeError, ValueError), match="user"):
        await s.prompt(Mine())


def test_assistant_message_is_what_a_run_adds():
    """The public message classes are constructed with what they need, no more."""
    assert AssistantMessage().content == ()
    with pytest.raises(TypeError):
        UserMessage()
