from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import msgspec
import pytest
from pi_agent_kernel import (
    Agent,
    AgentEnd,
    AgentIdle,
    AgentStart,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    CustomMessage,
    MessageEnd,
    MessageStart,
    ModelRequestStart,
    ModelResponse,
    SystemMessage,
    TextContent,
    ToolBatchEnd,
    ToolBatchStart,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    UserMessage,
    faux_assistant_message,
    faux_provider,
    faux_tool_call,
)
from pi_agent_kernel.testing import (
    EventRecorder,
    check_events,
    check_request,
    check_transcript,
    strict_faux,
)

ONE = ToolCall(id="c1", name="echo")
TWO = ToolCall(id="c2", name="echo")
HEAD = SystemMessage(content="Be brief.")
ASK = UserMessage(content="go")
CALLS = AssistantMessage(content=(ONE, TWO), stop_reason="toolUse")
FIRST = ToolResultMessage(tool_call_id="c1", tool_name="echo", content=(TextContent(text="1"),))
SECOND = ToolResultMessage(tool_call_id="c2", tool_name="echo", content=(TextContent(text="2"),))
DONE = AssistantMessage(content=(TextContent(text="done"),))
FAILED = AssistantMessage(stop_reason="error", error_message="no")

TRANSCRIPT = [HEAD, ASK, CALLS, FIRST, SECOND, DONE]


def echo(_id, _args, _signal, on_update):
    """Report once and answer."""
    on_update("half")
    return "ok"


async def a_run():
    """Return an agent that has run two calls, and the recorder of its events."""
    faux = faux_provider()
    faux.set_responses(
        [
            faux_assistant_message([faux_tool_call("echo", {}, "c1"), faux_tool_call("no", {})]),
            faux_assistant_message("done"),
        ]
    )
    agent = Agent(stream_fn=faux.stream_fn, tools=[AgentTool(name="echo", execute=echo)])
    recorder = EventRecorder(agent)
    await agent.prompt("go")
    return agent, recorder


@pytest.mark.parametrize(
    "messages",
    [
        [],
        TRANSCRIPT,
        [ASK, msgspec.structs.replace(CALLS, stop_reason="aborted"), ASK],
        [ASK, FAILED, CustomMessage(role="note"), ASK, DONE],
    ],
)
def test_good_transcripts_pass(messages):
    """Answered calls, failed messages with unanswered ones, and custom roles are in order."""
    check_transcript(messages)
    known = [message for message in messages if not isinstance(message, CustomMessage)]
    if known:
        check_request(known)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([ASK, CALLS, FIRST], r"message 2 \(the last\): tool call 'c2' has no result"),
        ([ASK, CALLS, FIRST, ASK], r"message 3 \(user\): tool call 'c2' has no result before it"),
        ([ASK, CALLS, SECOND, FIRST], r"message 2 .*'c2' of 'echo' stands where .*'c1'"),
        ([ASK, FIRST], r"message 1 \(toolResult\): result 'c1' answers no open tool call"),
        ([ASK, CALLS, FIRST, SECOND, SECOND], "message 4 .*answers no open"),
        ([msgspec.structs.replace(CALLS, stop_reason="error"), FIRST], "message 1 .*answers no"),
        ([CALLS, HEAD, FIRST, SECOND], r"message 1 \(system\): tool call 'c1' has no result"),
        ([msgspec.structs.replace(DONE, stop_reason="pending")], "a partial message never"),
        ([ASK, 42], r"message 1 \(int\): every message has a role and a timestamp"),
    ],
)
def test_each_fault_of_a_transcript_is_named(messages, complaint):
    """The complaint says which message breaks which rule."""
    with pytest.raises(AssertionError, match=complaint):
        check_transcript(messages)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([ASK, CALLS, SECOND, FIRST], "stands where"),
        ([UserMessage(content="")], r"message 0 \(user\): no message is empty"),
        ([UserMessage(content=(TextContent(text=""),))], "no message is empty"),
        ([ASK, AssistantMessage()], r"message 1 \(assistant\): no message is empty"),
        ([ASK, DONE, HEAD, ASK], "does not start with it"),
        ([ASK, CustomMessage(role="note")], r"message 1 \(note\): .*convert_to_llm \(MS-05\)"),
        ([HEAD], r"message 1 \(the end\): there is nothing to answer"),
        ([], "there is nothing to answer"),
    ],
)
def test_each_fault_of_a_request_is_named(messages, complaint):
    """A strict provider refuses what a transcript may not hold, and emptiness and lost heads."""
    with pytest.raises(AssertionError, match=complaint):
        check_request(messages)


def test_request_may_have_system_messages_between_call_and_result():
    """Providers hold a system message back until the results before it are complete (TR-14)."""
    check_request([HEAD, ASK, CALLS, HEAD, FIRST, SECOND])


async def test_strict_faux_hands_good_requests_on():
    """A request in order is answered by the wrapped stream function."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("hi")])
    strict = strict_faux(faux.stream_fn)
    agent = Agent(stream_fn=strict, system_prompt="Be brief.")

    await agent.prompt("go")

    assert agent.state.messages[-1].text == "hi"
    assert [len(request.messages) for request in strict.requests] == [2]
    assert strict.refusals == []


async def test_strict_faux_refuses_a_request_that_lost_its_head():
    """Once a request began with a system message, every later one does (D15)."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("hi"), faux_assistant_message("again")])
    strict = strict_faux(faux.stream_fn)
    agent = Agent(stream_fn=strict, system_prompt="Be brief.")
    await agent.prompt("go")
    agent.transform_context = lambda messages, _signal: list(messages)[1:]

    await agent.prompt("and now")

    assert "the system head of earlier requests is gone" in agent.state.error_message
    assert strict.refusals == [agent.state.error_message]
    assert strict.refusals[0].startswith("request 2: message 0: ")
    assert faux.call_count == 1
    with pytest.raises(AssertionError, match="request 2: "):
        strict.check()


async def test_strict_faux_refuses_an_orphan_call():
    """A context hook that drops a result makes the run fail with the broken rule."""
    agent, _ = await a_run()
    faux = faux_provider()
    strict = agent.stream_fn = strict_faux(faux.stream_fn)
    agent.transform_context = lambda messages, _signal: [
        message for message in messages if message.role != "toolResult"
    ]

    await agent.prompt("more")

    assert "tool call 'c1' has no result" in strict.refusals[0]


async def test_recorder_keeps_events_until_it_is_taken_off():
    """It has lifecycle events, too, and finds events by class."""
    agent, recorder = await a_run()
    types = recorder.types

    assert types[0] == "agent_start"
    assert types[-2:] == ["agent_end", "agent_idle"]
    assert [event.count for event in recorder.of_type(ToolBatchStart)] == [2]

    recorder.unsubscribe()
    await agent.prompt("again")

    assert recorder.types == types


async def test_events_of_real_runs_pass():
    """A run with calls, one that fails, and the ten events alone are in order."""
    agent, recorder = await a_run()
    await agent.prompt("no response is left")

    assert agent.state.error_message
    check_events(recorder.events)
    check_events([event for event in recorder.events if not isinstance(event, LIFECYCLE)])
    check_transcript(agent.state.messages)


LIFECYCLE = (AgentIdle, ModelRequestStart, ModelResponse, ToolBatchStart, ToolBatchEnd)


@dataclass
class Edit:
    """Change a good sequence of events at the nth event of a kind."""

    kind: type
    nth: int = 0
    how: str = "drop"
    other: object = None

    def apply(self, events):
        """Return the changed sequence."""
        place = [i for i, event in enumerate(events) if isinstance(event, self.kind)][self.nth]
        event = events[place]
        if self.how == "drop":
            changed = []
        elif self.how == "double":
            changed = [event, event]
        elif self.how == "before":
            changed = [self.other, event]
        elif self.how == "after":
            changed = [event, self.other]
        elif self.how == "swap":
            return [*events[:place], events[place + 1], event, *events[place + 2 :]]
        else:
            changed = [msgspec.structs.replace(event, **self.other)]
        return [*events[:place], *changed, *events[place + 1 :]]


UPDATE = ToolExecutionUpdate(
    tool_call_id="c1", tool_name="echo", args={}, partial_result=AgentToolResult()
)
START = ToolExecutionStart(tool_call_id="c1", tool_name="echo", args={})
END = ToolExecutionEnd(
    tool_call_id="c1", tool_name="echo", result=AgentToolResult(), is_error=False
)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (Edit(AgentStart), r"event 0 \(turn_start\): nothing is emitted outside a run"),
        (Edit(AgentStart, 0, "double"), r"event 1 \(agent_start\): the run before has not ended"),
        (Edit(AgentEnd), "agent_idle comes once, after agent_end"),
        (Edit(AgentEnd, 0, "double"), r"\(agent_end\): nothing is emitted outside a run"),
        (Edit(AgentEnd, 0, "after", START), "nothing is emitted outside a run"),
        (Edit(AgentIdle), r"\(the end\): the run had no agent_idle"),
        (Edit(AgentIdle, 0, "double"), "agent_idle comes once"),
        (Edit(TurnStart, 1), "only a failure ends a turn without a start"),
        (Edit(TurnStart, 0, "double"), "the turn before has not ended"),
        (Edit(TurnEnd, 1), "the turn has not ended"),
        (Edit(TurnEnd, 0, "replace", {"tool_results": ()}), "tool_results are the turn's"),
        (Edit(TurnEnd, 1, "after", TurnEnd(message=FAILED, tool_results=())), "it shows the last"),
        (Edit(AgentEnd, 0, "replace", {"messages": (ASK,)}), "it lists the messages of the run"),
        (Edit(MessageStart, 1), "updates come only within an assistant message"),
        (Edit(MessageStart, 0, "double"), "messages do not overlap"),
        (Edit(MessageStart, 2), "every message_end has its message_start"),
        (Edit(MessageEnd, 0, "replace", {"message": ASK}), "start and end show the same message"),
        (Edit(MessageEnd, -1), "it comes right after its message_end"),
        (Edit(MessageEnd, 1, "replace", {"message": DONE}), "it comes right after"),
        (Edit(ToolExecutionStart, 0), "calls start once each, in their order"),
        (Edit(ToolExecutionStart, 0, "double"), "calls start once each, in their order"),
        (Edit(ToolExecutionEnd, 0), "a result comes after the end of its call"),
        (Edit(ToolExecutionEnd, 1), "a result comes after the end of its call"),
        (Edit(ToolExecutionEnd, 0, "double"), "every call ends once, after its start"),
        (Edit(ToolExecutionEnd, 1, "after", UPDATE), "updates come only between start and end"),
        (Edit(ToolExecutionEnd, 1, "replace", {"is_error": True}), "event and message agree"),
        (Edit(ToolBatchStart), "the batch was not opened"),
        (Edit(ToolBatchStart, 0, "double"), "the batch before has not ended"),
        (Edit(ToolBatchStart, 0, "replace", {"count": 1}), "the count is that of the calls"),
        (Edit(ToolBatchEnd), "a tool batch has not ended"),
        (Edit(ToolBatchEnd, 0, "before", END), "every call ends once"),
        (Edit(ModelRequestStart), "no request is open"),
        (Edit(ModelRequestStart, 0, "double"), "the request before is open"),
        (Edit(ModelResponse, 1), "a request has no model_response"),
        (Edit(ModelResponse, 0, "swap"), "it comes right after its message_end"),
        (Edit(AgentStart, 0, "after", "rubbish"), "this is no agent event"),
    ],
)
async def test_each_fault_of_events_is_named(edit, complaint):
    """A run with one event missing, doubled, moved or changed is found, with its place."""
    _, recorder = await a_run()
    events = edit.apply(recorder.events)
    types = [getattr(event, "type", "str") for event in events]
    assert types != recorder.types or edit.how == "replace"

    with pytest.raises(AssertionError, match=complaint):
        check_events(events)


async def test_missing_result_messages_are_found():
    """A call whose result message is missing is named where the results should be complete."""
    _, recorder = await a_run()
    shown = (MessageStart, MessageEnd)
    events = [
        event
        for event in recorder.events
        if not (isinstance(event, shown) and event.message.role == "toolResult")
    ]

    with pytest.raises(AssertionError, match=r"\(tool_batch_end\): a tool call has no result"):
        check_events(events)


async def test_run_without_an_end_is_found():
    """Events that stop in the middle of a run are no whole run."""
    _, recorder = await a_run()

    with pytest.raises(AssertionError, match=r"\(the end\): the run has no agent_end"):
        check_events(recorder.events[:-2])


async def test_turn_end_of_a_failure_between_turns_may_be_unpaired():
    """The documented exception passes, and nothing but agent_end may follow it (FL-04)."""
    faux = faux_provider()
    faux.set_responses([faux_assistant_message("hi")])

    def broken(_signal):
        raise ValueError("no")

    agent = Agent(stream_fn=faux.stream_fn, prepare_next_turn=broken)
    recorder = EventRecorder(agent)
    agent.follow_up("more")
    await agent.prompt("go")
    check_events(recorder.events)

    again = Edit(TurnEnd, -1, "after", TurnStart()).apply(recorder.events)
    with pytest.raises(AssertionError, match="only agent_end may follow"):
        check_events(again)


def test_importing_the_helpers_imports_no_pytest():
    """The helpers work where pytest is not installed."""
    code = (
        "import sys, pi_agent_kernel.testing, pi_agent_kernel.testing.pytest_plugin as plugin; "
        "print('pytest' in sys.modules)"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert printed.stdout.strip() == "False"


def test_fixtures_check_what_they_watch(tmp_path):
    """A test that uses the fixtures passes, or fails for a refused request or a bad transcript."""
    (tmp_path / "test_mine.py").write_text(
        """
import anyio
from pi_agent_kernel import Agent, AssistantMessage, ToolCall, UserMessage, faux_assistant_message

def prompt(agent):
    anyio.run(agent.prompt, "go")

def test_good(faux, strict_faux, watch_agent):
    faux.set_responses([faux_assistant_message("hi")])
    agent = Agent(stream_fn=strict_faux)
    recorder = watch_agent(agent)
    prompt(agent)
    assert recorder.types[-1] == "agent_idle"

def test_refused(strict_faux):
    prompt(Agent(stream_fn=strict_faux, messages=[UserMessage(content="")]))

def test_bad_transcript(faux, watch_agent):
    agent = Agent(stream_fn=faux.stream_fn)
    watch_agent(agent)
    agent.state.messages.append(AssistantMessage(content=[ToolCall(id="c", name="t")]))
""",
        encoding="utf-8",
    )

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pi_agent_kernel.testing.pytest_plugin",
         "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert "3 passed, 2 errors" in ran.stdout, ran.stdout
    assert "no message is empty" in ran.stdout
    assert "tool call 'c' has no result" in ran.stdout
