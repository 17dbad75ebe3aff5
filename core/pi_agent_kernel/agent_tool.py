"""The tool itself: a name, a JSON Schema, a function, and how to run it. Immutable."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from functools import lru_cache
from typing import Any, ClassVar, Literal, NoReturn, cast

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.json_value import FrozenDict, freeze
from pi_agent_kernel.messages import Tool

__all__ = [
    "EFFECTS",
    "MAX_TIMEOUT",
    "AgentTool",
    "Execute",
    "is_async_callable",
    "to_tool_declaration",
]

#: What a tool may say that it does to the world, for approval policies.
EFFECTS = ("read", "write", "execute", "network")

#: Longest timeout in seconds: what 32-bit millisecond timers can hold (B30).
MAX_TIMEOUT = 2_147_483.0

Execute = Callable[[str, Any, AbortSignal | None, Callable[[Any], object]], Any]

_CALL = "__call__"
_CO_COROUTINE = 0x80
_CO_GENERATOR = 0x20
_CO_ASYNC_GENERATOR = 0x200


def _code_flags(function: Any) -> int:
    """Return the code flags of what a callable finally calls, without importing inspect."""
    inner: Any = function
    while inner is not None:
        function = inner
        is_partial = hasattr(function, "func") and hasattr(function, "keywords")
        inner = function.func if is_partial else getattr(function, "__func__", None)
    if not hasattr(function, "__code__") and not isinstance(function, type):
        method: Any = getattr(cast("object", type(function)), _CALL, None)
        function = getattr(method, "__func__", method)
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    # What inspect.markcoroutinefunction and the mocks of unittest set.
    marked = getattr(function, "_is_coroutine_marker", None) is not None
    return flags | (_CO_COROUTINE if marked else 0)


class AgentTool:
    """Describe a tool completely: what the model sees of it and how it runs.

    Args:
        name: What the model calls it.
        description: What the model reads about it.
        parameters: JSON Schema of the arguments, or a pydantic model class to take it from. By
            default an object without properties.
        execute: Called with (tool_call_id, params, signal, on_update); plain or async. `params`
            are the validated arguments as plain dicts and lists that the tool owns, also where
            `parameters` is a model class. Returns anything `convert_tool_result` knows; an
            exception becomes an error result with its text.
        label: What people see instead of the name.
        prepare_arguments: Gets the raw arguments before validation, returns those to validate.
        output_schema: JSON Schema of the structured content.
        execution_mode: "sequential" makes every batch with this tool sequential (TL-12).
        replay: "safe" lets crash recovery run an interrupted call again (TL-22).
        effects: One or more of "read", "write", "execute", "network"; None says nothing.
        constrained_sampling: Passed through to the model's provider.
        thread: Where a plain function runs: True in a worker thread, False on the thread of the
            run, None as the host decides.
        executor: Runs a plain function instead of a thread; any `concurrent.futures.Executor`.
        timeout: Seconds after which a call is answered with an error.

    Raises:
        TypeError: An argument is of a wrong type, or `parameters` is not JSON.
        ValueError: An argument has a value outside its choices or range.

    Source: TL-01, TL-02, TL-22, B30, DEVIATIONS 14.
    """

    __slots__ = (
        "__weakref__",
        "constrained_sampling",
        "declaration",
        "description",
        "effects",
        "execute",
        "execution_mode",
        "executor",
        "is_async",
        "label",
        "name",
        "output_schema",
        "parameters",
        "prepare_arguments",
        "replay",
        "takes_signal",
        "thread",
        "timeout",
    )

    #: Whether dates and times in the arguments are what pydantic takes, not what JSON Schema asks.
    python_formats: ClassVar[bool] = False

    name: str
    label: str
    description: str
    parameters: Mapping[str, Any]
    execute: Execute
    prepare_arguments: Callable[[Any], Any] | None
    output_schema: Mapping[str, Any] | None
    execution_mode: Literal["sequential", "parallel"] | None
    replay: Literal["never", "safe"]
    effects: frozenset[str] | None
    constrained_sampling: Any
    thread: bool | None
    executor: Executor | None
    timeout: float | None
    #: What the transcript and the model may know of the tool (TR-11).
    declaration: Tool
    #: Whether `execute` is a coroutine function.
    is_async: bool
    #: Whether the tool can see an abort, and so gets time to end by itself.
    takes_signal: bool

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        parameters: Mapping[str, Any] | type | None = None,
        execute: Execute,
        label: str | None = None,
        prepare_arguments: Callable[[Any], Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        execution_mode: Literal["sequential", "parallel"] | None = None,
        replay: Literal["never", "safe"] = "never",
        effects: str | Collection[str] | None = None,
        constrained_sampling: Any = None,
        thread: bool | None = None,
        executor: Executor | None = None,
        timeout: float | None = None,
    ) -> None:
        if not _is_text(name) or not name.strip():
            raise _error(ValueError, "name", name, "give the text by which the model calls it")
        where = f" of tool {name!r}"
        if not _is_text(description):
            raise _error(TypeError, f"description{where}", description, "give text")
        if label is not None and not _is_text(label):
            raise _error(TypeError, f"label{where}", label, "give text, or None for the name")
        if isinstance(execute, AgentTool):
            raise _error(TypeError, f"execute{where}", execute, "that is a tool already")
        if not callable(execute):
            raise _error(TypeError, f"execute{where}", execute, "give a function")
        if prepare_arguments is not None and not callable(prepare_arguments):
            raise _error(TypeError, f"prepare_arguments{where}", prepare_arguments, "a function")
        if execution_mode not in (None, "sequential", "parallel"):
            raise _choice(
                f"execution_mode{where}", execution_mode, "sequential", "parallel", "None"
            )
        if replay not in ("never", "safe"):
            raise _choice(f"replay{where}", replay, "never", "safe")
        if thread not in (None, True, False):
            raise _choice(f"thread{where}", thread, "True", "False", "None")
        if executor is not None and not callable(getattr(executor, "submit", None)):
            raise _error(
                TypeError, f"executor{where}", executor, "give a concurrent.futures.Executor"
            )
        flags = _code_flags(execute)
        if flags & (_CO_GENERATOR | _CO_ASYNC_GENERATOR):
            raise _error(
                TypeError,
                f"execute{where}",
                execute,
                "a generator is not a tool: report progress by on_update (in a @tool function: "
                "ctx.update) and return the result",
            )
        is_async = bool(flags & _CO_COROUTINE)
        if is_async and (thread is True or executor is not None):
            raise ValueError(
                f"Tool {name!r} is async, so it runs on the event loop: leave out thread= and "
                "executor=, or make it a plain function."
            )
        self._set("name", name)
        self._set("label", name if label is None else label)
        self._set("description", description)
        self._set("parameters", _argument_schema(parameters, where))
        self._set("execute", execute)
        self._set("prepare_arguments", prepare_arguments)
        output = (
            None if output_schema is None else _json_copy(output_schema, "output_schema", where)
        )
        self._set("output_schema", output)
        self._set("execution_mode", execution_mode)
        self._set("replay", replay)
        self._set("effects", _effects(effects, where))
        self._set("constrained_sampling", freeze(constrained_sampling))
        self._set("thread", thread)
        self._set("executor", executor)
        self._set("timeout", _timeout(timeout, where))
        self._set("is_async", is_async)
        declaration = Tool(
            name=name,
            description=description,
            parameters=self.parameters,
            constrained_sampling=self.constrained_sampling,
        )
        self._set("declaration", declaration)
        self._set("takes_signal", value=True)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"Tool {self.name!r} cannot be changed ({name} = ...): make another one."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Tool {self.name!r} cannot be changed (del {name}).")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _error(kind: type[Exception], what: str, value: object, remedy: str) -> Exception:
    text = repr(value)
    return kind(f"The {what} cannot be {text[:100]}: {remedy}.")


def _choice(what: str, value: object, *choices: str) -> Exception:
    return _error(ValueError, what, value, f"choose one of {', '.join(choices)}")


def _effects(effects: object, where: str) -> frozenset[str] | None:
    if effects is None:
        return None
    if isinstance(effects, str):
        names: list[object] = [effects]
    elif isinstance(effects, Collection):
        names = list(cast("Collection[object]", effects))
    else:
        raise _choice(f"effects{where}", effects, *EFFECTS)
    for name in names:
        if name not in EFFECTS:
            raise _choice(f"effects{where}", name, *EFFECTS)
    return frozenset(cast("list[str]", names))


def _timeout(timeout: Any, where: str) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise _error(TypeError, f"timeout{where}", timeout, "give seconds, or None for no limit")
    if not 0 < timeout <= MAX_TIMEOUT:
        raise _error(
            ValueError,
            f"timeout{where}",
            timeout,
            f"give seconds above 0 and up to {MAX_TIMEOUT:.0f}, or None for no limit",
        )
    return float(timeout)


def _argument_schema(parameters: Any, where: str) -> FrozenDict:
    if parameters is None:
        return FrozenDict({"type": "object", "properties": FrozenDict()})
    if isinstance(parameters, type):
        make_schema = getattr(parameters, "model_json_schema", None)
        if make_schema is None:
            raise _error(
                TypeError,
                f"parameters{where}",
                cast("Any", parameters),
                "give a JSON Schema or a pydantic model class",
            )
        from pi_agent_kernel.signature import without_titles

        parameters = without_titles(make_schema())
    if not isinstance(parameters, Mapping):
        raise _error(
            TypeError,
            f"parameters{where}",
            parameters,
            'give a JSON Schema such as {"type": "object", "properties": {...}}',
        )
    schema = _json_copy(cast("Mapping[str, Any]", parameters), "parameters", where)
    if isinstance(schema.get("type", "object"), str) and schema.get("type", "object") != "object":
        raise _error(
            ValueError,
            f"parameters{where}",
            schema,
            'the arguments of a call are an object, so its "type" is "object"',
        )
    return schema


def _json_copy(schema: object, what: str, where: str) -> FrozenDict:
    if not isinstance(schema, Mapping):
        raise _error(TypeError, f"{what}{where}", schema, "give a JSON Schema")
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"The {what}{where} cannot be written as JSON: {error}.") from error
    return _frozen_schema(text)


@lru_cache(maxsize=256)
def _frozen_schema(text: str) -> FrozenDict:
    """Read a schema; equal ones are one object, compiled once however many tools have it."""
    return cast("FrozenDict", freeze(json.loads(text)))


def to_tool_declaration(tool: AgentTool) -> Tool:
    """Return what the transcript and the model may know of a tool.

    Only name, description, parameters and the sampling constraint; the schema keeps its
    definitions (B15). Source: TR-11.
    """
    return tool.declaration


def is_async_callable(function: object) -> bool:
    """Return whether calling `function` makes a coroutine, by what it is and not by a call."""
    return bool(_code_flags(function) & _CO_COROUTINE)
