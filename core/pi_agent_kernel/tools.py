"""Tools: what the model may call.

`AgentTool` is the whole of a tool: a name, a JSON Schema and `execute`. `@tool` makes one from
a Python function and keeps the function callable. Both are immutable. Results are converted by
the table in `tool_results`; the schema of a function is derived by `signature`, which is
imported when the first function becomes a tool.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    overload,
)

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.agent_tool import (
    EFFECTS,
    AgentTool,
    Execute,
    is_async_callable,
    to_tool_declaration,
)
from pi_agent_kernel.tool_context import ToolContext, current_agent
from pi_agent_kernel.tool_results import AgentToolResult, convert_tool_result

if TYPE_CHECKING:
    from pi_agent_kernel.signature import FunctionSignature

__all__ = [
    "EFFECTS",
    "AgentTool",
    "AgentToolResult",
    "FunctionTool",
    "ToolContext",
    "convert_tool_result",
    "current_agent",
    "to_tool_declaration",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(AgentTool, Generic[P, R]):
    """Be a tool made from a function by `@tool`; calling it calls the function."""

    python_formats: ClassVar[bool] = True

    __wrapped__: Callable[P, R]

    def __init__(
        self, function: Callable[P, R], signature: FunctionSignature, **options: Any
    ) -> None:
        options.setdefault("description", signature.description)
        super().__init__(
            parameters=signature.parameters,
            execute=_execute(function, signature, options["name"]),
            **options,
        )
        for attribute in ("__doc__", "__module__", "__name__", "__qualname__"):
            if hasattr(function, attribute):
                self._set(attribute, getattr(function, attribute))
        self._set("__wrapped__", function)
        self._set("_signature", signature)
        self._set("_context", signature.context)
        self._set("takes_signal", signature.context is not None)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; its `ToolContext` parameter may be left out."""
        context: str | None = self.__dict__["_context"]
        if context is not None and context not in kwargs:
            kwargs[context] = ToolContext()
        return self.__wrapped__(*args, **kwargs)

    def bind(self, params: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Turn validated arguments into those of the function; its context is left out.

        Raises:
            ToolArgumentsError: A value does not fit the function's own types.
        """
        signature: FunctionSignature = self.__dict__["_signature"]
        args, kwargs = signature.bind(self.name, dict(params))
        return tuple(args), kwargs

    def __reduce__(self) -> str:
        # Like a function: by the name under which its module holds it, so that it can be sent
        # to another process although it hides the function of that name.
        return str(vars(self)["__qualname__"])

    def to_send(self) -> Callable[P, R]:
        """Return what another process finds by its name: the tool if it hides the function."""
        names: dict[str, Any] = vars(self)
        held: Any = sys.modules.get(str(names.get("__module__")))
        for part in str(names.get("__qualname__")).split("."):
            held = getattr(held, part, None)
        return self if held is self else self.__wrapped__


def _execute(function: Callable[..., Any], signature: FunctionSignature, name: str) -> Execute:
    """Return the four-argument form of a function; async exactly when the function is."""
    bind = signature.bind
    context = signature.context

    def call(
        tool_call_id: str,
        params: dict[str, Any],
        signal: AbortSignal | None,
        on_update: Callable[[Any], object],
    ) -> Any:
        args, kwargs = bind(name, params)
        if context is not None:
            kwargs[context] = ToolContext(tool_call_id, signal, on_update)
        return function(*args, **kwargs)

    if not is_async_callable(function):
        return call

    async def call_async(
        tool_call_id: str,
        params: dict[str, Any],
        signal: AbortSignal | None,
        on_update: Callable[[Any], object],
    ) -> Any:
        return await call(tool_call_id, params, signal, on_update)

    return call_async


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    prepare_arguments: Callable[[Any], Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    execution_mode: Literal["sequential", "parallel"] | None = None,
    replay: Literal["never", "safe"] = "never",
    effects: str | Collection[str] | None = None,
    constrained_sampling: Any = None,
    thread: bool | None = None,
    executor: Executor | None = None,
    timeout: float | None = None,
) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    prepare_arguments: Callable[[Any], Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    execution_mode: Literal["sequential", "parallel"] | None = None,
    replay: Literal["never", "safe"] = "never",
    effects: str | Collection[str] | None = None,
    constrained_sampling: Any = None,
    thread: bool | None = None,
    executor: Executor | None = None,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Any:
    """Make a tool from a function; use it as `@tool` or `@tool(option=...)`.

    The schema comes from the signature and the docstring (see `signature`). A parameter
    annotated `ToolContext` is filled in and hidden. `*args` are refused, `**kwargs` allow
    further properties. Generator functions are refused: report with `ctx.update` instead.

    Args:
        function: A function, bound method or `functools.partial`; plain or async.
        name: By default the function's name; a lambda needs one.
        description: By default the docstring without its sections.
        **options: The other arguments of `AgentTool`, except `parameters` and `execute`.

    Returns:
        The tool, which can still be called like the function.

    Raises:
        TypeError: The function's signature cannot be a tool's, or there is no such option; the
            text says what to change.
    """
    _check_options(options)
    if function is None:

        def decorate(decorated: Callable[..., Any]) -> Any:
            return tool(decorated, name=name, description=description, **options)  # pyright: ignore[reportCallIssue]

        return decorate
    if isinstance(function, AgentTool):
        raise TypeError(f"{function!r} is a tool already: use it as it is.")
    from pi_agent_kernel.signature import derive_signature

    signature = derive_signature(function, name)
    if description is not None:
        options["description"] = description
    return FunctionTool(function, signature, name=signature.name, **options)


def _check_options(options: Mapping[str, object]) -> None:
    """Refuse an option `tool` does not have, in its own name and where it was written."""
    known = {"name", *(AgentTool.__init__.__kwdefaults__ or ())} - {"parameters"}
    for option in options:
        if option in known:
            continue
        import difflib

        close = difflib.get_close_matches(option, sorted(known), 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise TypeError(
            f"tool() has no option {option!r}.{meant} Its options are {', '.join(sorted(known))}."
        )
