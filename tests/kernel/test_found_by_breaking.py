"""Defects that a fresh reader found by attacking the kernel; each test states the rule."""

import copy
import os
import pickle

import pytest
from pi_agent_kernel import (
    Agent,
    AgentBusyError,
    CustomMessage,
    NothingToContinueError,
    Tool,
    ToolCall,
    ToolNotFoundError,
    UserMessage,
    faux_assistant_message,
    faux_provider,
    faux_tool_call,
    from_json,
    parse_tool_call_arguments,
    to_json,
    tool,
    validate_tool_arguments,
)


def make_agent(*answers, **options):
    faux = faux_provider()
    faux.set_responses(list(answers))
    return Agent(stream_fn=faux.stream_fn, model=faux.model(), **options)


async def test_a_replaced_transcript_queues_nothing_again():
    """A queued message that a run has answered stays answered when a host compacts (A02, A18)."""
    agent = make_agent(faux_assistant_message("one"), faux_assistant_message("two"))
    await agent.prompt("go")
    agent.steer("again")

    def compact(event, signal):
        agent.state.messages = from_json(to_json(list(agent.state.messages)))

    agent.subscribe(compact, events="turn_end")
    await agent.continue_()

    assert agent.state.messages[-1].text == "two"
    assert agent.peek_queued_messages() == []


async def test_a_queued_prompt_goes_back_when_the_run_breaks_at_once():
    """What was not announced is still queued, a system message too (A02)."""
    agent = make_agent(faux_assistant_message("one"), faux_assistant_message("two"))
    await agent.prompt("go")
    agent.steer("again")

    def breaks(event, signal):
        unsubscribe()
        raise ValueError("broke")

    unsubscribe = agent.subscribe(breaks, events="agent_start")
    await agent.continue_()

    assert [message.text for message in agent.peek_queued_messages()] == ["again"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    """A plain tool runs in a child although the parent's idle threads are not there."""

    @tool
    def echo(text: str) -> str:
        """Echo."""
        return text

    def run():
        call = faux_tool_call("echo", {"text": "x"})
        agent = make_agent(
            faux_assistant_message(call), faux_assistant_message("end"), tools=[echo]
        )
        agent.prompt_sync("go")
        return agent.state.messages[-1].text

    assert run() == "end"
    child = os.fork()
    if child == 0:
        os._exit(0 if run() == "end" else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("do", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_agent_is_not_copied(do):
    """Copying or pickling an agent is refused with the way to do it."""
    with pytest.raises(TypeError, match=r"to_json\(agent\.state\.messages\)"):
        do(make_agent())


@pytest.mark.parametrize("depth", [250, 700, 5000])
def test_arguments_nested_too_deeply_are_an_error_of_the_call(depth):
    """One limit, far from the stack's: such a call is answered, the run goes on (TL-06)."""
    parsed = parse_tool_call_arguments('{"a":' * depth + "1" + "}" * depth)

    assert (parsed.arguments, "deep" in parsed.arguments_error) == ({}, True)


def test_data_nested_too_deeply_is_bad_data():
    """`from_json` says so by its own error."""
    value = 1
    for _ in range(900):
        value = {"a": value}
    data = {"type": "toolCall", "id": "c", "name": "t", "arguments": value}

    with pytest.raises(ValueError, match="deep"):
        from_json(data)


@pytest.mark.parametrize(
    ("schema", "value", "ok"),
    [
        ({"not": {"type": "integer"}}, 3.0, False),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 3.0, False),
        ({"if": {"type": "integer"}, "then": {"minimum": 5}}, 3.0, False),
        ({"not": {"type": "integer"}}, 3.5, True),
    ],
)
def test_a_whole_float_is_an_integer(schema, value, ok):
    """JSON has one kind of number (TL-07)."""
    declared = Tool(name="t", parameters={"type": "object", "properties": {"a": schema}})
    call = ToolCall(id="c", name="t", arguments={"a": value})
    if ok:
        assert validate_tool_arguments(declared, call) == {"a": value}
    else:
        with pytest.raises(ValueError, match=r"  - a: "):
            validate_tool_arguments(declared, call)


def test_editing_the_transcript_in_place_is_linear():
    """An edit reads the message it adds, not those that are there (C12)."""
    read = []

    class Mine:
        timestamp = 1

        @property
        def role(self):
            read.append(self)
            return "mine"

    agent = make_agent(messages=[Mine() for _ in range(50)])
    read.clear()
    agent.state.messages.insert(0, UserMessage(content="x"))
    agent.state.messages[1] = UserMessage(content="y")
    del agent.state.messages[2]
    agent.state.messages.pop()

    assert (len(agent.state.messages), read) == (49, [])


@pytest.mark.parametrize(
    "error", [AgentBusyError("prompt"), NothingToContinueError("assistant"), ToolNotFoundError("x")]
)
def test_errors_survive_copies(error):
    """A copied or pickled error says and holds the same."""
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_unknown_keys_with_telling_names_are_kept():
    """`type` on a message, `role` on a nested block, `self` on a custom message (MS-07)."""
    data = {
        "role": "user",
        "type": "odd",
        "content": [{"type": "text", "text": "x", "role": "odd"}],
        "timestamp": 1,
    }
    custom = {"role": "note", "self": 1, "timestamp": 1}

    assert to_json(from_json(data)) == data
    assert to_json(from_json(custom)) == custom
    assert isinstance(from_json(custom), CustomMessage)
