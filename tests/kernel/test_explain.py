from __future__ import annotations

import pickle
import re

import pytest
from pi_agent_kernel import (
    BeforeToolCallResult,
    SystemMessage,
    ToolReference,
    faux_assistant_message,
)
from pi_agent_kernel.state import FIELDS
from scripted import Scripted, call, make_tool, ok, user


def test_before_any_run():
    """There is nothing to tell yet."""
    assert Scripted().agent.explain() == "The agent has not run yet."


async def test_the_last_run_is_told():
    """Line by line, each with its number in the log."""
    s = Scripted("old", call("t", "c1"), "the end", system_prompt="p")
    await s.prompt("first")
    s.state.tools = [make_tool(ok)]
    await s.prompt("do it")
    told = s.agent.explain()
    lines = [re.sub(r"\d+ ms", "N ms", line.split(" ", 1)[1]) for line in told.splitlines()]

    assert lines == [
        "the host called prompt: do it",
        "the run started",
        "a system message told the model of new tools t",
        "a user message entered the transcript: do it",
        "faux-1 was asked, with 5 messages",
        "it answered with stop reason 'toolUse' and called t",
        "tool t (call c1) was taken up",
        "tool t (call c1) ran for N ms and succeeded: ok",
        "faux-1 was asked, with 7 messages",
        "it answered with stop reason 'stop'",
        "the run ended",
    ]
    numbers = [int(line.split(" ")[0].removeprefix("#")) for line in told.splitlines()]
    assert all(s.agent.log.record(n).seq == n for n in numbers)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("why did the tool 'boom' fail?", "failed: it broke"),
        ("c1", "call c1"),
        ("boom", "boom"),
    ],
)
async def test_a_question_picks_lines(question, words):
    """Only lines with one of its words, from the whole log."""

    def breaks(*_):
        raise ValueError("it broke")

    s = Scripted(call("boom", "c1"), "end", "more", tools=[make_tool(breaks, "boom")])
    await s.prompt()
    await s.prompt()

    assert words in s.agent.explain(question)


async def test_a_question_about_nothing():
    """It says that nothing in the log mentions it."""
    s = Scripted("x")
    await s.prompt()

    told = s.agent.explain("elephant").splitlines()
    assert told[0] == "Nothing in the log mentions any word of 'elephant'."
    assert told[1].startswith("You can ask: why is it stuck?")
    assert told[2:] == s.agent.explain().splitlines()
    assert s.agent.explain("elephant").answers == ()


async def test_failures_are_told():
    """The error of a response and of an unknown tool, and what the host removed."""
    s = Scripted(
        call("nope"),
        faux_assistant_message("", error_message="overloaded"),
        messages=[SystemMessage(content="p", tools_removed=[ToolReference(name="x")])],
    )
    await s.prompt([SystemMessage(content="new words"), user()])
    told = s.agent.explain()

    assert "tool nope (call c1) did not run and failed: Tool nope not found" in told
    assert "stop reason 'error': overloaded" in told
    assert "the assistant's message failed: overloaded" in told
    assert "a system message told the model of a changed prompt" in told
    s.state.tools = [make_tool(ok)]
    s.faux.set_responses([faux_assistant_message("x")] * 2)
    await s.prompt()
    s.state.tools = []
    await s.prompt()
    assert "removed tools t" in s.agent.explain()


async def test_long_texts_are_cut():
    """A result of any length is one short line."""
    s = Scripted(call(), "end", tools=[make_tool(lambda *_: "x" * 5000)])
    await s.prompt("y" * 5000)

    assert max(len(line) for line in s.agent.explain().splitlines()) < 250


# ------------------------------------------------------------------------ how people ask


@pytest.fixture
async def broken():
    """A run with a blocked call, a steered message that is still queued, and an end."""
    s = Scripted(
        call("sql", "c1"),
        "end",
        tools=[make_tool(ok, "sql")],
        before_tool_call=lambda *_: BeforeToolCallResult(block=True, reason="no", origin="me"),
        system_prompt="p",
    )
    await s.prompt()
    s.agent.steer("later")
    return s


@pytest.mark.parametrize(
    ("question", "row"),
    [
        ("sql", "HK-02"),
        ("why didn't SQL run", "HK-02"),
        ("what happened to call c1?", "HK-02"),
        ("who denied it??", "HK-02"),
        ("was something blocked", "HK-02"),
        ("tool did not execute", "HK-02"),
        ("does the model know sql", "TR-05"),
        ("Which request announced sql?", "TR-05"),
        ("why did you stop", "LP-12"),
        ("why has the run ended?", "LP-12"),
        ("why another turn?", "LP-01"),
        ("is it hanging", "ST-04"),
        ("where's my steering message", "QU-03"),
        ("request 2", "CO-07"),
        ("what did the model see", "CO-07"),
        ("who wrote state.turn_index", "ST-11"),
        ("when did messages change", "ST-06"),
        ("turn_index", "ST-11"),
        ("is my system prompt in effect", "ST-03"),
    ],
)
async def test_questions_are_matched_generously(broken, question, row):
    """Names, ids, numbers and words of every day lead to the same rules."""
    answers = broken.agent.explain(question).answers

    assert [a.row for a in answers if a.row == row], str(broken.agent.explain(question))


async def test_a_record_is_asked_about_by_its_number(broken):
    """The answers that cite it, then the step itself."""
    end = broken.agent.log.of_type("tool_execution_end")[0].seq
    told = broken.agent.explain(f"what is #{end}?")

    assert told.answers[0].row == "HK-02"
    assert end in told.answers[0].events


async def test_findings_come_before_the_steps(broken):
    """Without a question: what is odd, then the last run."""
    told = broken.agent.explain()

    assert [a.row for a in told.answers] == ["HK-02", "QU-03"]
    assert told.splitlines()[0] == str(told.answers[0])
    assert told.splitlines()[2] == told.steps[0]
    assert repr(told) == str(told)
    assert pickle.loads(pickle.dumps(told)).answers == told.answers
    assert all(a.remedy for a in told.answers)


def test_every_field_of_the_state_can_be_asked_about():
    """The rules of fields are those that the state documents."""
    from pi_agent_kernel.explain.fields import FIELD_ROWS

    assert {field.name: field.source for field in FIELDS} == FIELD_ROWS


@pytest.mark.parametrize(
    "question", ["", " ", "?", "(", "[a-", "*" * 1000, "\U0001d518\x00", "why " * 500]
)
async def test_any_text_is_a_question(broken, question):
    """Nothing that may be typed breaks it."""
    assert broken.agent.explain(question)


def test_a_declaration_of_the_constructor_counts_before_the_first_run():
    """Tools of the constructor are declared from the start; the first request tells of them."""
    agent = Scripted(tools=[make_tool(ok)]).agent

    (answer,) = agent.explain("why does the model not know t").answers

    assert answer.text.startswith("The transcript declares t: request 1")
    assert not answer.is_problem
