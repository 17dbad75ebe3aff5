"""What acceptance found in tools made from functions, and in `help()` of the public names."""

from __future__ import annotations

import datetime as dt
import inspect
import multiprocessing
import pickle
import pydoc
import typing
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass

import pi_agent_kernel
import pytest
from pi_agent_kernel import AgentTool, ToolCall, run_tool_call, tool, validate_tool_arguments
from pi_agent_kernel.errors import ToolArgumentsError
from pydantic import AwareDatetime

PUBLIC = {name: getattr(pi_agent_kernel, name) for name in pi_agent_kernel.__all__}
CLASSES = [name for name, value in PUBLIC.items() if isinstance(value, type)]
CALLABLES = [*CLASSES, *(name for name, value in PUBLIC.items() if inspect.isfunction(value))]


def call(name, **arguments):
    return ToolCall(id="1", name=name, arguments=arguments)


def refusal(checked, **arguments):
    with pytest.raises(ToolArgumentsError) as caught:
        validate_tool_arguments(checked, call(checked.name, **arguments))
    return str(caught.value).splitlines()[1]


# ------------------------------------------------------------------------ dates and times


@dataclass
class Meeting:
    at: dt.datetime
    takes: dt.timedelta = dt.timedelta(hours=1)


@tool
def remind(
    at: dt.datetime = dt.datetime(2024, 1, 2, 9, 0),  # noqa: DTZ001 - without an offset on purpose
    clock: dt.time = dt.time(9, 0),
    maybe: dt.datetime | None = None,
    meetings: list[Meeting] | None = None,
    aware: AwareDatetime | None = None,
) -> str:
    """Remind."""
    return f"{at!r} {clock!r} {maybe!r} {meetings!r} {aware!r}"


def by_hand(text_format):
    schema = {"type": "string", "format": text_format}
    return AgentTool(
        name="by_hand",
        parameters={"type": "object", "properties": {"x": schema}},
        execute=lambda *_: "",
    )


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"at": "2024-01-02T09:00:00"}, "datetime.datetime(2024, 1, 2, 9, 0) "),
        ({"at": "2024-01-02 09:00"}, "datetime.datetime(2024, 1, 2, 9, 0) "),
        ({"at": "2024-01-02T09:00:00Z"}, "datetime.datetime(2024, 1, 2, 9, 0, tzinfo="),
        ({"clock": "09:30"}, " datetime.time(9, 30) "),
        ({"clock": "09:30:00"}, " datetime.time(9, 30) "),
        ({"maybe": "2024-05-06T07:08"}, " datetime.datetime(2024, 5, 6, 7, 8) "),
        (
            {"meetings": [{"at": "2024-05-06 07:08", "takes": "00:30:00"}]},
            "Meeting(at=datetime.datetime(2024, 5, 6, 7, 8), takes=datetime.timedelta(seconds=1800",
        ),
    ],
)
async def test_pydantic_decides_what_a_date_is(arguments, shown):
    """A tool from a Python signature takes each date and time that pydantic reads."""
    outcome = await run_tool_call(call("remind", **arguments), tools=[remind])
    assert not outcome.is_error
    assert shown in outcome.result.content[0].text


def test_a_tools_own_defaults_are_valid():
    """What the schema shows as a default is taken when a model sends it."""
    properties = remind.parameters["properties"]
    defaults = {name: properties[name]["default"] for name in ("at", "clock")}
    assert defaults == {"at": "2024-01-02T09:00:00", "clock": "09:00:00"}
    assert validate_tool_arguments(remind, call("remind", **defaults)) == defaults


def test_a_wrong_date_is_answered_with_an_example():
    """The refusal says what is expected and shows one that is taken."""
    line = "  - at: expected format date-time, for example 2024-01-02T09:00:00"
    assert refusal(remind, at="tomorrow") == line
    line = "  - clock: expected format time, for example 09:00:00"
    assert refusal(remind, clock="noon") == line
    line = "  - meetings.0.takes: expected format duration, for example PT1H30M"
    assert refusal(remind, meetings=[{"at": "2024-01-02", "takes": "long"}]) == line


async def test_what_pydantic_asks_beyond_the_format_is_its_own_error():
    """An annotation that demands an offset still refuses a text without one."""
    outcome = await run_tool_call(call("remind", aware="2024-01-02T09:00"), tools=[remind])
    assert outcome.is_error
    assert "timezone" in outcome.result.content[0].text


@pytest.mark.parametrize(
    ("text_format", "bad", "example"),
    [
        ("date-time", "2024-01-02T09:00:00", "2024-01-02T09:00:00Z"),
        ("time", "09:00", "09:00:00Z"),
        ("date", "2024-01-02T00:00:00", "2024-01-02"),
        ("duration", "01:30:00", "PT1H30M"),
    ],
)
def test_a_schema_by_hand_keeps_its_meaning(text_format, bad, example):
    """In a hand-written schema a format is JSON Schema's, and its own example is valid."""
    checked = by_hand(text_format)
    assert refusal(checked, x=bad) == f"  - x: expected format {text_format}, for example {example}"
    assert validate_tool_arguments(checked, call("by_hand", x=example)) == {"x": example}


def test_equal_schemas_keep_apart():
    """The same schema by hand and from a function, in either order, has two meanings."""

    @tool
    def when(x: dt.datetime) -> str:
        """Say when."""
        return str(x)

    naive = "2024-01-02T09:00:00"
    written = AgentTool(name="when", parameters=when.parameters, execute=lambda *_: "")
    assert written.parameters is when.parameters
    for _ in range(2):
        assert refusal(written, x=naive)
        assert validate_tool_arguments(when, call("when", x=naive)) == {"x": naive}


# ------------------------------------------------------------------------ help


@pytest.mark.parametrize("name", CALLABLES)
def test_help_and_signature_of_every_public_name(name):
    """`help()` and `inspect.signature` evaluate the annotations of a struct; none is unknown."""
    assert name in pydoc.render_doc(PUBLIC[name])
    try:
        inspect.signature(PUBLIC[name])
    except ValueError as error:  # how Python answers for any exception without its own __init__
        assert issubclass(PUBLIC[name], Exception)
        assert "no signature found for builtin type" in str(error)  # noqa: PT017 - only then


@pytest.mark.parametrize("name", CLASSES)
def test_type_hints_of_every_public_class(name):
    """`typing.get_type_hints` resolves the annotations of each class."""
    assert isinstance(typing.get_type_hints(PUBLIC[name]), dict)


def test_type_hints_are_the_classes_themselves():
    """The hints name what the events and tools really hold."""
    hints = typing.get_type_hints(pi_agent_kernel.ToolExecutionEnd)
    assert hints["result"] is pi_agent_kernel.AgentToolResult
    assert typing.get_type_hints(AgentTool)["executor"] == Executor | None


# ------------------------------------------------------------------------ process pools


class Pickling(Executor):
    """Run a call at once, after everything of it went through pickle."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            fn, args, kwargs = pickle.loads(pickle.dumps((fn, args, kwargs)))
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - handed over, as a pool does
            future.set_exception(error)
        return future


def plain(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(executor=Pickling())
def decorated(a: int, b: int) -> int:
    """Add."""
    return a + b


class Holder:
    @tool(executor=Pickling())
    @staticmethod
    def inner(a: int, b: int) -> int:
        """Add."""
        return a + b


@pytest.mark.parametrize(
    "made",
    [
        decorated,
        Holder.inner,
        tool(executor=Pickling())(plain),
        tool(plain, name="other", executor=Pickling()),
    ],
    ids=["decorated", "in a class", "undecorated", "renamed"],
)
async def test_another_process_gets_the_bare_function(made):
    """Whether the tool hides its function's name or not, the call can be sent."""
    outcome = await run_tool_call(call(made.name, a="1", b=2), tools=[made])
    assert (outcome.result.content[0].text, outcome.is_error) == ("3", False)


async def test_a_function_that_cannot_be_sent_says_so():
    """Without a name to find it by, the call is answered with pickle's error."""
    made = tool(lambda: 1, name="nameless", executor=Pickling())
    outcome = await run_tool_call(call("nameless"), tools=[made])
    assert outcome.is_error
    assert "lambda" in outcome.result.content[0].text


@pytest.mark.timeout(60)
async def test_a_real_process_pool_runs_an_undecorated_function():
    """The same in another process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        made = tool(plain, executor=processes)
        outcome = await run_tool_call(call("plain", a="1", b=2), tools=[made])
        assert (outcome.result.content[0].text, outcome.is_error) == ("3", False)


# ------------------------------------------------------------------------ options


def test_a_misspelt_option_of_tool_is_named():
    """The error names `tool`, the option, the closest one and all, before a function comes."""
    with pytest.raises(
        TypeError, match=r"^tool\(\) has no option 'names'\. Did you mean name\?"
    ) as (caught):
        tool(names="x")
    options = set(str(caught.value).rstrip(".").partition("Its options are ")[2].split(", "))
    of_tool = set(inspect.signature(AgentTool).parameters) - {"parameters", "execute"}
    assert options == of_tool
    with pytest.raises(TypeError, match="Did you mean timeout"):
        tool(plain, time_out=3)


@pytest.mark.parametrize("option", ["parameters", "execute", "zzz"])
def test_an_option_that_is_not_like_any_other_is_refused(option):
    """What the function itself gives is no option either; nothing is suggested at random."""
    with pytest.raises(TypeError, match=rf"^tool\(\) has no option '{option}'\."):
        tool(plain, **{option: None})


# -------------------------------------------------------------------- annotations


def test_a_parameter_without_a_type_is_refused_with_the_remedy():
    """The model would have to guess what it may send; `Any` says so on purpose."""

    def bare(text):
        return text

    def defaulted(count=3):
        return count

    def on_purpose(value: typing.Any, **rest):
        return value

    with pytest.raises(TypeError, match=r"^bare\(\) cannot be a tool: .* 'text' .* text: str, or"):
        tool(bare)
    with pytest.raises(TypeError, match=r"count: int, or count: Any"):
        tool(defaulted)
    with pytest.raises(TypeError, match="cannot be a tool"):
        tool(lambda x: x, name="short")
    assert dict(tool(on_purpose).parameters["properties"]) == {"value": {}}
