from __future__ import annotations

import functools
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest
from pi_agent_kernel.messages import Tool
from pi_agent_kernel.tools import (
    AgentTool,
    AgentToolResult,
    ToolContext,
    convert_tool_result,
    current_agent,
    to_tool_declaration,
    tool,
)
from pydantic import BaseModel


def nothing(tool_call_id, params, signal, on_update): ...


async def nothing_async(tool_call_id, params, signal, on_update): ...


def generator(tool_call_id, params, signal, on_update):
    yield


class Model(BaseModel):
    x: int
    title: str = "t"


def test_a_tool_has_defaults_and_does_not_change():
    """Only name and execute are needed; assignment raises (TL-01)."""
    made = AgentTool(name="t", execute=nothing)

    assert (made.label, made.description, made.replay) == ("t", "", "never")
    assert made.parameters == {"type": "object", "properties": {}}
    assert (made.execution_mode, made.effects, made.timeout, made.thread) == (None,) * 4
    assert made.takes_signal is True
    assert repr(made) == "AgentTool('t')"
    with pytest.raises(AttributeError, match="make another one"):
        made.name = "u"
    with pytest.raises(AttributeError):
        del made.name
    with pytest.raises(TypeError):
        made.parameters["type"] = "array"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": ""}, "name"),
        ({"name": " "}, "name"),
        ({"name": 5}, "5"),
        ({"description": None}, "description"),
        ({"label": 5}, "label"),
        ({"execute": 5}, "give a function"),
        ({"execute": generator}, "generator"),
        ({"prepare_arguments": 5}, "prepare_arguments"),
        ({"parameters": 5}, "JSON Schema"),
        ({"parameters": int}, "pydantic model class"),
        ({"parameters": {"type": "array"}}, "object"),
        ({"parameters": {"default": float("nan")}}, "JSON"),
        ({"parameters": {"default": object()}}, "JSON"),
        ({"output_schema": 5}, "output_schema"),
        ({"execution_mode": "serial"}, "'serial'.*sequential, parallel"),
        ({"replay": "always"}, "never, safe"),
        ({"thread": "yes"}, "thread"),
        ({"executor": 5}, "Executor"),
        ({"effects": "raed"}, "'raed'.*read, write, execute, network"),
        ({"effects": ["read", 5]}, "5"),
        ({"effects": 5}, "effects"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "-1"),
        ({"timeout": float("nan")}, "nan"),
        ({"timeout": 1e12}, "2147483"),
        ({"timeout": True}, "seconds"),
        ({"timeout": "5"}, "seconds"),
        ({"execute": nothing_async, "thread": True}, "async"),
    ],
    ids=str,
)
def test_bad_options_name_the_value_and_the_remedy(options, words):
    """A tool that could not work is refused when it is made (B30)."""
    with pytest.raises((TypeError, ValueError), match=words):
        AgentTool(**({"name": "t", "execute": nothing} | options))


def test_options_are_normalised():
    """Effects become a set, a model class its schema, constants immutable copies."""
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}}
    made = AgentTool(name="t", execute=nothing, parameters=schema, effects=["read", "network"])
    schema["properties"]["a"]["enum"].append("y")

    assert made.effects == {"read", "network"}
    assert made.parameters["properties"]["a"] == {"enum": ["x"]}
    assert AgentTool(name="t", execute=nothing, parameters=Model).parameters == {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "title": {"type": "string", "default": "t"}},
        "required": ["x"],
    }
    with ThreadPoolExecutor(1) as executor:
        assert AgentTool(name="t", execute=nothing, executor=executor).executor is executor


class AsyncCallable:
    async def __call__(self, tool_call_id, params, signal, on_update): ...

    async def method(self, tool_call_id, params, signal, on_update): ...


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (nothing, False),
        (nothing_async, True),
        (functools.partial(nothing_async), True),
        (functools.partial(functools.partial(nothing)), False),
        (AsyncCallable(), True),
        (AsyncCallable().method, True),
        (print, False),
        (lambda *_args: None, False),
    ],
)
def test_async_functions_are_recognised(function, is_async):
    """Also behind partials, methods and callable objects."""
    assert AgentTool(name="t", execute=function).is_async is is_async


def test_a_declaration_has_only_what_the_model_may_see():
    """Name, description, whole schema and sampling constraint (TR-11, B15)."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {}}}
    made = AgentTool(
        name="t",
        description="d",
        label="L",
        parameters=schema,
        execute=nothing,
        constrained_sampling={"strict": True},
    )

    assert to_tool_declaration(made) == Tool(
        name="t", description="d", parameters=schema, constrained_sampling={"strict": True}
    )


def test_a_function_stays_a_function():
    """The tool is called like the function it was made from, and looks like it."""

    @tool(label="Find", effects="read", execution_mode="sequential", timeout=5)
    def search(query: str, limit: int = 10) -> str:
        """Find things."""
        return f"{query} {limit}"

    assert search("x", limit=2) == "x 2"
    assert (search.name, search.label, search.__name__) == ("search", "Find", "search")
    assert search.__doc__ == search.description == "Find things."
    assert str(inspect.signature(search)) == "(query: 'str', limit: 'int' = 10) -> 'str'"
    assert (search.effects, search.execution_mode, search.timeout) == ({"read"}, "sequential", 5)
    assert search.execute("id", {"query": "y"}, None, print) == "y 10"
    assert tool(search.__wrapped__, name="s", description="D").description == "D"
    assert isinstance(search, AgentTool)


@pytest.mark.anyio
async def test_async_functions_make_async_tools():
    """The four-argument form is async exactly when the function is."""

    @tool
    async def double(n: int) -> int:
        return 2 * n

    @tool
    def triple(n: int) -> int:
        return 3 * n

    assert (double.is_async, triple.is_async) == (True, False)
    assert await double.execute("id", {"n": 2}, None, print) == 4
    assert await double(3) == 6
    assert triple.execute("id", {"n": 2}, None, print) == 6


def test_a_context_is_filled_in_and_hidden():
    """It carries the call; a tool has time to end by itself only if it asks for one."""
    updates = []
    signal = object()

    @tool
    def work(n: int, ctx: ToolContext | None = None) -> str:
        assert ctx is not None
        ctx.update("half")
        ctx.progress(1, 2)
        ctx.progress(3, text="three")
        return f"{ctx.tool_call_id} {ctx.signal is signal} {ctx.agent}"

    @tool
    def other(n: int) -> None: ...

    token = current_agent.set("agent")
    try:
        assert work.execute("id", {"n": 1}, signal, updates.append) == "id True agent"
    finally:
        current_agent.reset(token)
    assert list(work.parameters["properties"]) == ["n"]
    assert (work.takes_signal, other.takes_signal) == (True, False)
    assert updates == [
        convert_tool_result("half"),
        AgentToolResult(content="1/2", details={"progress": {"done": 1, "total": 2, "text": None}}),
        AgentToolResult(
            content="three", details={"progress": {"done": 3, "total": None, "text": "three"}}
        ),
    ]


def test_a_direct_call_needs_no_context():
    """Outside a run the context knows nothing and its reports go nowhere."""

    @tool
    def work(*, ctx: ToolContext) -> object:
        ctx.progress(1)
        return (ctx.tool_call_id, ctx.signal, ctx.agent)

    assert work() == ("", None, None)
    assert work(ctx=ToolContext("id")) == ("id", None, None)
