"""The same for prompts, messages, endings, fields and requests."""

from __future__ import annotations

import pytest
from faults import Faults, raises
from pi_agent_kernel import (
    AgentBusyError,
    AgentToolResult,
    AgentTurnUpdate,
    RetryPolicy,
    SystemMessage,
    TurnDecision,
    faux_assistant_message,
)
from scripted import Scripted, call, make_tool, ok, user

fault = Faults()


# ----------------------------------------------------------------------- prompts and messages


@fault("why is my system prompt ignored?", "was never used", "CO-04", ("model_request_start", {}))
async def prompt_overridden():
    s = Scripted("hi", system_prompt="mine", messages=[SystemMessage(content="theirs")])
    await s.prompt()
    return s


@fault(
    "why does my prompt not apply",
    "transform_context dropped",
    "CX-18",
    ("model_request_start", {}),
)
async def prompt_dropped():
    s = Scripted("hi", system_prompt="mine", transform_context=lambda m, _: m[1:])
    await s.prompt()
    return s


@fault(
    "why does section style not apply?",
    "'style' was replaced",
    "TR-03",
    ("message_end", {"which": 3}),
)
async def section_patched():
    s = Scripted("a", "b")
    await s.prompt([SystemMessage(sections={"style": "brief"}), user("1")])
    await s.prompt([SystemMessage(sections={"style": "long"}), user("2")])
    return s


@fault("my section is gone", "'style' was removed", "TR-03", ("message_end", {"which": 3}))
async def section_removed():
    s = Scripted("a", "b")
    await s.prompt([SystemMessage(sections={"style": "brief"}), user("1")])
    await s.prompt([SystemMessage(sections={"style": None}), user("2")])
    return s


@fault("is the system prompt collapsed?", "mid-conversation", "TR-13", ("model_request_start", {}))
async def collapsed():
    s = Scripted("a", "b", system_prompt="p")
    await s.prompt("1")
    await s.prompt([SystemMessage(content="more"), user("2")])
    return s


@fault("where is my system prompt?", "The host assigned messages", "ST-03", ("state", {}))
async def prompt_assigned_away():
    s = Scripted("a", system_prompt="p")
    s.state.messages = [user("old")]
    await s.prompt()
    return s


@fault("where is my message", "still queued", "QU-03", ("steer", {}))
async def still_queued():
    s = Scripted("a")
    await s.prompt()
    s.agent.steer("later")
    return s


@fault(
    "my message was lost",
    "dropped by clear_follow_up_queue",
    "QU-06",
    ("clear_follow_up_queue", {}),
)
async def queue_cleared():
    s = Scripted("a")
    s.agent.follow_up("later")
    s.agent.clear_all_queues()
    await s.prompt()
    return s


@fault(
    "why did my prompt not reach the model",
    "reached no model",
    "DEVIATIONS 1",
    ("message_end", {"which": 0}),
)
async def aborted_before_its_request():
    s = Scripted("a")
    s.agent.subscribe(lambda *_: s.agent.abort(), events="message_end")
    await s.prompt("hello")
    return s


@fault("why was my prompt refused?", "a run was active", "LP-16", ("prompt_refused", {}))
async def refused_because_busy():
    s = Scripted("a")

    async def prompt(*_):
        with pytest.raises(AgentBusyError):
            await s.agent.prompt("me too")

    s.agent.subscribe(prompt, events="turn_start")
    await s.prompt()
    return s


@fault(
    "why did my message not arrive",
    "transform_context dropped or changed",
    "CO-07",
    ("model_request_start", {}),
)
async def message_dropped():
    s = Scripted("a", transform_context=lambda m, _: [one for one in m if one.role != "user"])
    await s.prompt("hello")
    return s


# --------------------------------------------------------------------------------- doubles


@fault("why is my message twice?", "prompted", "LP-13", ("prompt", {}))
async def prompted_twice():
    s = Scripted("a", "b")
    await s.prompt("same")
    await s.prompt("same")
    return s


@fault("why is it duplicated", "the same line, run again", "LP-13", ("prompt", {}))
async def run_again():
    s = Scripted("a", "b")
    for _ in range(2):
        await s.agent.prompt("same")
    return s


@fault("message twice", "steered", "QU-01", ("follow_up", {}))
async def steered_and_followed_up():
    s = Scripted("a", "b", "c")
    s.agent.steer("same")
    s.agent.follow_up("same")
    await s.prompt()
    return s


@fault("why twice?", "put into state.messages by the host", "ST-06", ("state", {}))
async def restored():
    s = Scripted("a", "b")
    await s.prompt("same")
    s.state.messages = [*s.state.messages, user("same")]
    await s.prompt("other")
    return s


@fault("why twice?", "prepare_next_turn", "LP-09", ("prepare_next_turn", {}))
async def a_hook_appended_it():
    s = Scripted(
        call(),
        "b",
        tools=[make_tool(ok)],
        prepare_next_turn=lambda _: AgentTurnUpdate(messages=[user("go")]),
    )
    await s.prompt("go")
    return s


@fault(
    "why is a message twice in the request?",
    "before_model_request added it",
    "CO-07",
    ("model_request_start", {}),
)
async def doubled_in_the_request():
    s = Scripted("a", before_model_request=lambda m, _: [*m, m[-1]])
    await s.prompt("go")
    return s


@fault(
    "are there duplicate call ids?",
    "calls have the id 'c1'",
    "TR-15",
    ("message_end", {"which": 1}),
)
async def duplicate_call_ids():
    s = Scripted([call(), call()], "end", tools=[make_tool(ok)])
    await s.prompt()
    return s


# --------------------------------------------------------------------------------- endings


@fault("why did the run stop?", "without calling a tool", "LP-12", ("model_response", {}))
async def normal_end():
    s = Scripted("a")
    await s.prompt()
    return s


@fault("why did it stop", "rate_limit", "FL-01", ("model_response", {}))
async def provider_error():
    s = Scripted(faux_assistant_message("", stop_reason="error", error_message="429 rate limit"))
    await s.prompt()
    return s


@fault("what failed?", "transform_context", "FL-02", ("transform_context", {}))
async def a_hook_failed_the_run():
    s = Scripted("a", transform_context=raises)
    await s.prompt()
    return s


@fault("why did the run stop", "listener of turn_start", "FL-05", ("listener of turn_start", {}))
async def a_listener_failed_the_run():
    s = Scripted("a")
    s.agent.subscribe(raises, events="turn_start")
    await s.prompt()
    return s


@fault("why did it stop", "aborted (line", "AB-01", ("abort", {"which": 0}))
async def aborted():
    s = Scripted("a")
    s.agent.subscribe(lambda *_: s.agent.abort(), events="message_start")
    await s.prompt()
    return s


@fault("why did it stop?", "asked to terminate", "TL-16", ("tool_execution_end", {}))
async def terminated():
    async def last(*_):
        return AgentToolResult(content=(), terminate=True)

    s = Scripted(call(), tools=[make_tool(last)])
    await s.prompt()
    return s


@fault("why did it stop?", "by the budget: spent", "LP-07", ("finish_turn", {}))
async def ended_by_a_budget():
    s = Scripted(
        call(),
        tools=[make_tool(ok)],
        finish_turn=lambda *_: TurnDecision(action="end", origin="the budget: spent"),
    )
    await s.prompt()
    return s


@fault("why did it stop?", "hook should_stop", "S4-10", ("should_stop", {}))
async def ended_by_should_stop():
    s = Scripted(call(), tools=[make_tool(ok)], should_stop=lambda _: True)
    await s.prompt()
    return s


@fault("why did it stop?", "output limit", "MS-04", ("model_response", {}))
async def cut_answer():
    s = Scripted(faux_assistant_message("half", stop_reason="length"))
    await s.prompt()
    return s


@fault("why did it go on?", "because the model called t", "LP-01", ("turn_start", {}))
async def went_on_for_calls():
    s = Scripted(call(), "end", tools=[make_tool(ok)])
    await s.prompt()
    return s


@fault("why did it continue", "a message that follow_up gave", "LP-12", ("follow_up", {}))
async def went_on_for_a_follow_up():
    s = Scripted("a", "b")
    s.agent.follow_up("and then")
    await s.prompt()
    return s


@fault("why did the run not stop", "said continue", "LP-08", ("finish_turn", {"which": 0}))
async def went_on_for_a_decision():
    said = []

    def finish(*_):
        said.append(1)
        return TurnDecision(action="continue") if len(said) == 1 else None

    s = Scripted("a", "b", finish_turn=finish)
    await s.prompt()
    return s


@fault("was anything retried?", "overloaded", "MD-22", ("model_retry", {}))
async def retried():
    failed = faux_assistant_message("", stop_reason="error", error_message="overloaded")
    s = Scripted(failed, "x", retry=RetryPolicy(base_delay_ms=0))
    await s.prompt()
    return s


@fault("context overflow?", "did not fit", "MD-24", ("model_response", {}))
async def overflow():
    text = "prompt is too long: 210000 tokens > 200000 maximum"
    s = Scripted(faux_assistant_message("", stop_reason="error", error_message=text))
    await s.prompt()
    return s


# --------------------------------------------------------------------- fields and requests


@fault("who changed error_message?", "turn_end", "ST-08", ("turn_end", {}))
async def who_wrote_an_error():
    return await provider_error()


@fault("who changed messages", "line", "ST-06", ("state", {}))
async def who_wrote_messages():
    s = Scripted("a")
    await s.prompt()
    s.state.messages = []
    return s


@fault("who changed the thinking level?", "from 'off' to 'low'", "ST-01", ("state", {}))
async def who_wrote_the_level():
    s = Scripted("a")
    s.state.thinking_level = "low"
    await s.prompt()
    return s


@fault(
    "what did request 2 contain?",
    "4 messages (1 system, 1 user, 1 assistant, 1 toolResult)",
    "CO-07",
    ("model_request_start", {}),
)
async def what_a_request_contained():
    s = Scripted(call(), "end", tools=[make_tool(ok)], system_prompt="be brief\nand kind")
    await s.prompt()
    return s


@pytest.mark.parametrize("name", list(fault))
async def test_the_cause_and_its_record_are_named(name):
    """The answers name the cause, its rule, and first the record that shows it."""
    await fault.check(name)


def test_there_are_enough_faults():
    """Thirty-five causes at least, each of another kind."""
    assert len(fault) >= 35
