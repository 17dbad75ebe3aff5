"""Hooks and listeners that stand in cells of their own: `@pi.on`, `@pi.before`, `@pi.after`.

    @pi.on("tool_execution_end")      def plot(event): ...        hears of events
    @pi.before("sql")                 def check(call): ...        may block a call, or edit it
    @pi.after("sql")                  def shorten(call): ...      may replace a result

They hold for every agent of the notebook. A function has one place by its name: running its cell
again replaces it, and never doubles it. `pi.hooks` lists them, `del pi.hooks["plot"]` takes one
off.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import msgspec
from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.events import ALL_EVENTS
from pi_agent_kernel.hooks import AfterToolCallResult, BeforeToolCallResult
from pi_agent_kernel.messages import ToolCall
from pi_agent_kernel.tool_results import convert_tool_result

if TYPE_CHECKING:
    from pi_agent_kernel.abort import AbortSignal
    from pi_agent_kernel.events import AgentEvent
    from pi_agent_kernel.hooks import AfterToolCallContext, BeforeToolCallContext

__all__ = ["CellHook", "CellHooks", "hooks"]

F = TypeVar("F", bound=Callable[..., Any])

_EVENT_NAMES = frozenset(kind.type for kind in ALL_EVENTS)


@dataclass(frozen=True, slots=True)
class CellHook:
    """Hold one function of a cell: what kind of hook it is, for which events or tools."""

    kind: Literal["on", "before", "after"]
    #: Events or tools; empty for all.
    names: tuple[str, ...]
    function: Callable[..., Any]

    def is_for(self, kind: str, name: str) -> bool:
        """Tell whether it is asked about an event or a tool."""
        return self.kind == kind and (not self.names or name in self.names)

    async def ask(self, context: object, signal: AbortSignal | None) -> Any:
        """Call the function, with the signal if it takes two arguments."""
        answer = (
            self.function(context, signal) if _takes_two(self.function) else self.function(context)
        )
        return await answer if is_awaitable(answer) else answer


class CellHooks(MutableMapping[str, CellHook]):
    """Hold the hooks of this notebook, by the names of their functions."""

    def __init__(self) -> None:
        self._hooks: dict[str, CellHook] = {}

    def __getitem__(self, name: str) -> CellHook:
        return self._hooks[name]

    def __setitem__(self, name: str, hook: CellHook) -> None:
        self._hooks[name] = hook

    def __delitem__(self, name: str) -> None:
        try:
            del self._hooks[name]
        except KeyError:
            have = ", ".join(self._hooks) or "none"
            raise KeyError(f"no hook is named {name!r} (there is: {have})") from None

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._hooks))

    def __len__(self) -> int:
        return len(self._hooks)

    def __repr__(self) -> str:
        rows = (
            f"{name}: {hook.kind} {', '.join(hook.names) or 'all'}"
            for name, hook in self._hooks.items()
        )
        return f"<hooks: {'; '.join(rows) or 'none'}>"

    def on(self, *events: str | type[Any]) -> Callable[[F], F]:
        """Have a function called with events: `@pi.on("tool_execution_end")`.

        Args:
            *events: Names or classes of events; all if none is given.

        Raises:
            ValueError: There is no such event.
        """
        names = tuple(event if isinstance(event, str) else event.type for event in events)
        unknown = [name for name in names if name not in _EVENT_NAMES]
        if unknown:
            have = ", ".join(sorted(_EVENT_NAMES))
            raise ValueError(f"There is no event {unknown[0]!r}. These are: {have}.")
        return self._decorator("on", names)

    def before(self, *tools: str) -> Callable[[F], F]:
        """Have a function asked before a tool runs: `@pi.before("sql")`.

        It gets the call (`tool_call`, `args`, ...). It returns None to let it run, a text to
        block it for that reason, a mapping to run it with these arguments instead, or a
        `BeforeToolCallResult`.

        Args:
            *tools: Names of tools; all if none is given.
        """
        return self._decorator("before", tools)

    def after(self, *tools: str) -> Callable[[F], F]:
        """Have a function asked after a tool ran: `@pi.after("sql")`.

        It gets the call with its `result`. It returns None to keep that, an
        `AfterToolCallResult`, or anything that a tool may return, in its place.

        Args:
            *tools: Names of tools; all if none is given.
        """
        return self._decorator("after", tools)

    def _decorator(
        self, kind: Literal["on", "before", "after"], names: tuple[str, ...]
    ) -> Callable[[F], F]:
        if any(not isinstance(cast("object", name), str) for name in names):
            raise TypeError(f'@pi.{kind} takes names: write @pi.{kind}("…") above the function.')

        def keep(function: F) -> F:
            if not callable(function):
                raise TypeError(f"@pi.{kind} goes above a function.")
            name = getattr(function, "__name__", repr(function))
            self._hooks[name] = CellHook(kind, names, function)
            return function

        return keep

    @property
    def listens(self) -> bool:
        """Whether any function wants events."""
        return any(hook.kind == "on" for hook in self._hooks.values())

    async def hear(self, event: AgentEvent, signal: AbortSignal | None) -> None:
        """Tell the functions that want it of an event: a listener of a run."""
        for hook in list(self._hooks.values()):
            if hook.is_for("on", event.type):
                await hook.ask(event, signal)

    async def before_tool_call(
        self, context: BeforeToolCallContext, signal: AbortSignal | None
    ) -> BeforeToolCallResult | None:
        """Ask the functions about a call, each with what the one before made of it."""
        arguments: Mapping[str, Any] | None = None
        for name, hook in list(self._hooks.items()):
            if not hook.is_for("before", context.tool_call.name):
                continue
            origin = f"the cell hook @pi.before {name}"
            answer: Any = await hook.ask(context, signal)
            if isinstance(answer, ToolCall):
                answer = answer.arguments
            if isinstance(answer, str):
                return BeforeToolCallResult(block=True, reason=answer, origin=origin)
            if isinstance(answer, BeforeToolCallResult):
                if answer.block:
                    return msgspec.structs.replace(answer, origin=answer.origin or origin)
                answer = answer.arguments
            if answer is None:
                continue
            if not isinstance(answer, Mapping):
                raise TypeError(
                    f"@pi.before returns None, a reason, arguments or a BeforeToolCallResult, not "
                    f"{type(answer).__name__}."
                )
            arguments = cast("Mapping[str, Any]", answer)
            context = msgspec.structs.replace(context, args=dict(arguments))
        return None if arguments is None else BeforeToolCallResult(arguments=arguments)

    async def after_tool_call(
        self, context: AfterToolCallContext, signal: AbortSignal | None
    ) -> AfterToolCallResult | None:
        """Ask the functions about a result; the last one that replaces it wins."""
        replaced: AfterToolCallResult | None = None
        for hook in list(self._hooks.values()):
            if not hook.is_for("after", context.tool_call.name):
                continue
            answer: Any = await hook.ask(context, signal)
            if answer is None:
                continue
            if not isinstance(answer, AfterToolCallResult):
                made = convert_tool_result(answer)
                answer = AfterToolCallResult(
                    content=made.content, structured_content=made.structured_content
                )
            replaced = answer
        return replaced


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in placed if p.default is p.empty]
    return len(required) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


hooks = CellHooks()
