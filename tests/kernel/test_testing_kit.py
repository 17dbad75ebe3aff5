"""The testing kit as its users have it: every example runs, every complaint can be read."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap

import anyio
import pytest
from pi_agent_kernel import (
    ALL_EVENTS,
    Agent,
    RetryPolicy,
    SystemMessage,
    ToolExecutionEnd,
    faux_tool_call,
    testing,
    tool,
)
from pi_agent_kernel.testing import (
    EventRecorder,
    answer_calls,
    answered_calls,
    call,
    expect,
    scripted_model,
    try_call,
    watch_hook,
)

MODULES = [f"{testing.__name__}.{module.name}" for module in pkgutil.iter_modules(testing.__path__)]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def an_agent(model, **options):
    """An agent that can add."""
    return Agent(stream_fn=model, tools=[add], **options)


def complaint(assertion, *arguments):
    """What a failing assertion says."""
    with pytest.raises(AssertionError) as caught:
        assertion(*arguments)
    return str(caught.value)


# ------------------------------------------------------------------------------ examples


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    """Every example in a docstring of the kit gives what it says."""
    failures, _count = doctest.testmod(importlib.import_module(name), report=True)

    assert failures == 0


def test_every_function_has_an_example():
    """Every public function, and every method of the recorder that asserts, shows its use."""
    functions = [
        value for name in testing.__all__ if inspect.isroutine(value := vars(testing)[name])
    ]
    methods = [
        method
        for name, method in vars(EventRecorder).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]

    assert len(functions) >= 10
    assert [one.__name__ for one in functions + methods[1:] if ">>>" not in one.__doc__] == []


# -------------------------------------------------------------------------- scripted model


async def test_script_is_played_reply_by_reply():
    """Texts, calls, both, failures and functions of the request each make one reply."""

    async def last(messages):
        return [f"It was {messages[-2].text}.", call("add", a=1, b=1)]

    with scripted_model(
        ["Well.", call("add", a=2, b=40)], ConnectionError("overloaded"), last, "Done."
    ) as model:
        agent = an_agent(model, retry=RetryPolicy(base_delay_ms=0))
        await agent.prompt("Add.")

    replies = [one for one in agent.state.messages if one.role == "assistant"]
    assert [reply.text for reply in replies] == ["Well.", "", "It was 42.", "Done."]
    assert [reply.error_message for reply in replies] == [None, "overloaded", None, None]
    assert [made.id for made, _result in answered_calls(agent.state.messages)] == [
        "call-1",
        "call-2",
    ]
    assert model.model.provider == replies[0].provider


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            [call("add", a=2, b=40)],
            (
                "request 2: the script is at its end after 1 reply, but the agent asks again; "
                "the request ends with toolResult: '42'. Add a reply, or end the run."
            ),
        ),
        (
            [call("sum", a=2)],
            (
                "request 1: the script calls 'sum', but the request declares no such tool, only: "
                "add (TR-10). Give the agent the tool, or say undeclared_calls=True to see what it "
                "does without."
            ),
        ),
        (
            [lambda _messages: 1 / 0],
            "request 1: the reply function raised ZeroDivisionError: division by zero",
        ),
        (["Hello.", "Left."], "the model was asked 1 time; these replies are left: 'Left.'"),
        (
            ["Hello.", [call("add"), "x" * 99], print, ValueError("no")],
            (
                f"the model was asked 1 time; these replies are left: '{'x' * 59}…', call of add, "
                "print, 'no'"
            ),
        ),
    ],
)
async def test_what_the_script_does_not_fit_is_told(script, said):
    """A script that is too short, too long or calls what is not there is told by `check`."""
    model = scripted_model(*script)
    agent = an_agent(model)

    await agent.prompt("Go.")

    assert complaint(model.check) == said
    assert model.refusals in ([], [agent.state.error_message])


async def test_undeclared_calls_can_be_wanted():
    """With `undeclared_calls=True` the agent's own answer to an unknown tool can be tested."""
    with scripted_model(call("sum"), "Sorry.", undeclared_calls=True) as model:
        agent = an_agent(model)
        await agent.prompt("Go.")

    [(_call, result)] = answered_calls(agent.state.messages)
    assert result.is_error
    assert "sum" in result.text


async def test_ids_of_your_own_are_kept():
    """A call that has an id keeps it."""
    model = scripted_model(faux_tool_call("add", {"a": 1, "b": 2}, "mine"), "3")
    agent = an_agent(model)
    await agent.prompt("Go.")

    assert [made.id for made, _result in answered_calls(agent.state.messages)] == ["mine"]


def test_rubbish_in_a_script_is_refused_at_once():
    """What is no reply is a TypeError where the script is written."""
    for rubbish in (42, None, ValueError, ["a", 1], {"a": 1}):
        with pytest.raises(TypeError, match="A reply is a text"):
            scripted_model(rubbish)


async def test_aborted_request_takes_no_reply():
    """A request that is aborted before it is made leaves the script as it is."""
    model = scripted_model("Hello.")
    agent = an_agent(model)
    agent.subscribe(lambda _event, _signal: agent.abort(), events=["agent_start"])

    await agent.prompt("Go.")

    assert agent.state.messages[-1].stop_reason == "aborted"
    assert model.pending == 1


async def test_model_for_one_system_message_refuses_a_second():
    """`one_system_message` refuses what a model without later system messages refuses."""
    model = scripted_model("Hello.", one_system_message=True)
    agent = an_agent(model, system_prompt="Be brief.")
    agent.state.messages.append(SystemMessage(sections={"tone": "kind"}))

    await agent.prompt("Go.")

    assert model.refusals == [
        "request 1: message 1 (system): the model takes one system message, at the start (TR-13)"
    ]


def test_error_in_the_block_is_not_covered_up():
    """A test that fails inside `with scripted_model` fails with its own error."""
    with pytest.raises(ZeroDivisionError), scripted_model("Never asked for."):
        _ = 1 / 0


# -------------------------------------------------------------------------------- recorder


async def two_runs():
    """An agent with a call that fails and two runs, and its recorder."""
    model = scripted_model(call("add", a="x"), "Sorry.", "Again.")
    agent = an_agent(model)
    recorder = EventRecorder(agent)
    await agent.prompt("Go.")
    await agent.prompt("Go on.")
    return agent, recorder


async def test_numbers_are_those_of_the_log():
    """Each line of a recorder names the record of the agent's log that holds the event."""
    agent, recorder = await two_runs()

    lines = [line.split() for line in str(recorder).splitlines()]

    assert len(lines) < len(recorder.events)  # updates in a row are one line
    for number, kind, *_rest in lines:
        assert agent.log.record(int(number[1:])).type == kind


async def test_numbers_of_dropped_records_are_unknown():
    """Events that the log no longer holds are shown without a number."""
    model = scripted_model("Hello.")
    agent = an_agent(model, max_log_events=1)
    recorder = EventRecorder(agent)
    await agent.prompt("Go.")

    assert str(recorder).split()[:2] == ["#?", "agent_start"]


async def test_payloads_are_compared_by_value_pattern_and_function():
    """A field of the event, of its message or of its result may be told in three ways."""
    _agent, recorder = await two_runs()

    recorder.assert_order(
        expect(ToolExecutionEnd, is_error=True, text=re.compile("a: ")),
        expect("message_end", role="toolResult", tool_name="add"),
        expect("message_update", kind="text_delta", delta=lambda text: text.startswith("So")),
        expect("turn_end", text="Sorry.", tool_results=lambda results: not results),
        expect("message_end", role="user", text="Go on."),
    )
    assert "text is 'Again.', expected /Sor/" in complaint(
        recorder.assert_order,
        expect("turn_end", text="Again."),
        expect("turn_end", text=re.compile("Sor")),
    )


async def test_misspelt_expectations_are_refused():
    """An unknown event or field is a ValueError, never an expectation that nothing meets."""
    _agent, recorder = await two_runs()

    with pytest.raises(ValueError, match="There is no event 'tool_end'"):
        recorder.assert_never("tool_end")
    with pytest.raises(ValueError, match="agent_start has no field 'text', nor any other"):
        expect("agent_start", text="x")
    with pytest.raises(ValueError, match="There is no event"):
        recorder.assert_never(int)


async def test_nothing_after_is_asked_of_each_run():
    """`assert_no_event_after` looks at each run alone, and wants the event to have come."""
    _agent, recorder = await two_runs()

    recorder.assert_no_event_after("agent_end")
    recorder.assert_no_event_after("tool_execution_end", "tool_execution_start")
    assert "never came" in complaint(recorder.assert_no_event_after, "model_retry")
    assert "model_request_start" in complaint(
        recorder.assert_no_event_after, "tool_execution_end", "model_request_start"
    )
    late = complaint(recorder.assert_no_event_after, "turn_end")
    assert late.startswith("After #")
    assert "turn_start" in late


async def test_exact_sequences_fold_updates():
    """A whole run can be told event by event, a streamed answer being one `message_update`."""
    model = scripted_model("A long answer of several chunks of text.")
    agent = an_agent(model)
    recorder = EventRecorder(agent, events=ALL_EVENTS)
    await agent.prompt("Go.")

    told = [
        *("agent_start", "turn_start"),
        *("message_start", "message_end"),
        *("model_request_start", "message_start", "message_update", "message_end"),
        *("model_response", "turn_end", "agent_end", "agent_idle"),
    ]
    recorder.assert_exactly(*told)
    recorder.assert_exactly(
        *[
            expect("message_update", kind="text_end") if one == "message_update" else one
            for one in told
        ]
    )
    del told[2]
    assert complaint(recorder.assert_exactly, *told).count("\n  + ") == 1


async def test_recorder_takes_itself_off():
    """At the end of a `with` block the recorder hears no more, and `clear` forgets."""
    agent = an_agent(scripted_model("One.", "Two."))
    with EventRecorder(agent) as recorder:
        await agent.prompt("Go.")
    heard = len(recorder.events)
    await agent.prompt("Go.")
    assert len(recorder.events) == heard
    recorder.clear()
    assert complaint(recorder.assert_order, "agent_start").endswith("Seen:\n    nothing")


# ----------------------------------------------------------------------------------- hooks


async def test_answers_stand_in_for_a_person():
    """Calls run, are blocked, or fail where nobody was expected to be asked."""

    @tool
    def delete(path: str) -> str:
        """Delete a file."""
        return f"{path} is gone"

    answers = answer_calls(add=True, delete="not the original")
    script = [call("add", a=1, b=2), call("delete", path="a.csv")]
    with scripted_model(script, "Done.") as model:
        agent = Agent(stream_fn=model, tools=[add, delete], before_tool_call=answers)
        await agent.prompt("Go.")

    assert [result.text for _call, result in answered_calls(agent.state.messages)] == [
        "3",
        "not the original",
    ]
    assert answers.asked == [("add", {"a": 1, "b": 2}), ("delete", {"path": "a.csv"})]
    answers.check()

    unprepared = answer_calls(delete=False)
    outcome = try_call(call("add", a=1, b=2), [add], before_tool_call=unprepared)
    assert outcome.is_error
    assert complaint(unprepared.check) == "Asked about add; answers are there for: delete."


async def test_watched_hooks_keep_what_they_got_and_answered():
    """Plain and async hooks are watched alike, and so is what they raise."""

    async def shout(message, _signal):
        if message.text == "3":
            raise ValueError("three")

    plain, waiting = watch_hook(), watch_hook(shout)
    model = scripted_model([call("add", a=1, b=2), call("add", a=2, b=2)], "Done.")
    agent = an_agent(
        model, before_tool_call=plain, after_tool_result=waiting, tool_execution="sequential"
    )
    await agent.prompt("Go.")

    assert [one.arguments[0].args for one in plain.calls] == [{"a": 1, "b": 2}, {"a": 2, "b": 2}]
    assert [str(one.raised) for one in waiting.calls] == ["three", "None"]


def test_one_call_is_tried_from_anywhere():
    """`try_call` waits in a script and in a thread whose loop is running, as in a notebook."""

    async def inside():
        return try_call(call("add", a="2", b=40), [add]).message().text

    assert try_call(call("add", a="2", b=40), [add]).message().text == "42"
    assert anyio.run(inside) == "42"
    assert anyio.run(inside, backend="trio") == "42"


# ---------------------------------------------------------------------------------- pytest

PROJECT = {
    "conftest.py": """
        pytest_plugins = ["pi_agent_kernel.testing.pytest_plugin"]
    """,
    "desk.py": """
        from pi_agent_kernel import Agent, BeforeToolCallResult, tool

        STOCK = {"tea": 3}

        @tool
        def stock(article: str) -> int:
            "How many pieces of an article there are."
            return STOCK[article]

        @tool
        def order(article: str, pieces: int) -> str:
            "Order pieces of an article."
            return f"{pieces} {article} ordered"

        def sensible(context, signal):
            if context.tool_call.name == "order" and context.args["pieces"] > 100:
                return BeforeToolCallResult(block=True, reason="Too many: ask a person.")

        def make_desk(stream_fn=None, **options):
            prompt = "You run the stock desk."
            options.setdefault("before_tool_call", sensible)
            return Agent(stream_fn=stream_fn, system_prompt=prompt, tools=[stock, order], **options)
    """,
    "test_desk.py": """
        import pytest
        from desk import make_desk, order, sensible, stock
        from pi_agent_kernel.testing import answered_calls, call, expect, try_call

        @pytest.fixture(params=["asyncio", "trio"])
        def anyio_backend(request):
            return request.param

        @pytest.mark.anyio
        async def test_desk_looks_before_it_orders(scripted_model, watch_agent):
            model = scripted_model(
                call("stock", article="tea"), call("order", article="tea", pieces=7), "Ordered."
            )
            desk = make_desk(model)
            seen = watch_agent(desk)
            await desk.prompt("Fill up the tea.")
            seen.assert_order(
                expect("tool_execution_end", tool_name="stock", text="3"),
                expect("tool_execution_start", tool_name="order"),
            )

        def test_big_orders_are_blocked():
            outcome = try_call(
                call("order", article="tea", pieces=1000), [order], before_tool_call=sensible
            )
            assert outcome.message().text == "Too many: ask a person."

        def test_unknown_article_is_an_error_the_model_reads(scripted_model):
            model = scripted_model(call("stock", article="gold"), "There is none.")
            desk = make_desk(model)
            desk.prompt_sync("How much gold?")
            [(_, result)] = answered_calls(desk.state.messages)
            assert result.is_error

        def test_that_fails(scripted_model, watch_agent):
            desk = make_desk(scripted_model("Nothing to do."))
            seen = watch_agent(desk)
            desk.prompt_sync("Fill up the tea.")
            seen.assert_order(expect("tool_execution_start", tool_name="order"))

        def test_with_a_script_that_is_too_short(scripted_model):
            make_desk(scripted_model(call("stock", article="tea"))).prompt_sync("Tea?")
    """,
}


def test_project_of_a_user_is_tested_by_plain_pytest(tmp_path):
    """A package and its tests run under pytest, asyncio and trio; what fails says why."""
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert "1 failed, 5 passed, 1 error" in ran.stdout, ran.stdout
    assert "AssertionError: tool_execution_start(tool_name='order') did not come." in ran.stdout
    assert re.search(r">\s+seen.assert_order\(expect", ran.stdout)  # the user's line is shown
    assert "def assert_order" not in ran.stdout  # and nothing of ours
    assert "request 2: the script is at its end after 1 reply" in ran.stdout


def test_pytest_loads_nothing_by_itself():
    """The distribution has no pytest entry point: other people's tests do not pay for it."""
    ours = [
        point.value
        for point in importlib.metadata.entry_points(group="pytest11")
        if point.value.startswith(("pi_agent_kernel", "pi_notebook"))
    ]

    assert ours == []
