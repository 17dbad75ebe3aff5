"""What a running tool function can ask of its call."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.json_value import FrozenDict
from pi_agent_kernel.messages import TextContent
from pi_agent_kernel.tool_results import AgentToolResult, convert_tool_result

if TYPE_CHECKING:
    from pi_agent_kernel.agent_tool import AgentTool

__all__ = ["Around", "ToolContext", "around_tools", "current_agent"]

#: The agent whose run is executing, for `ToolContext.agent`; set by the agent.
current_agent: ContextVar[Any] = ContextVar("current_agent", default=None)

#: Takes a tool, the id of a call and the call itself; returns what is called in its place, on the
#: same thread. What that returns is awaited if it can be.
Around = Callable[["AgentTool", str, Callable[[], Any]], Callable[[], Any]]
#: Set by a host for the runs that it starts, to see what a tool's function does and returns.
around_tools: ContextVar[Around | None] = ContextVar("around_tools", default=None)


class ToolContext:
    """Be what a `@tool` function may ask for: a parameter of this type is filled in.

    It never appears in the schema. A function called directly gets one without a run: no
    signal, no agent, and reports go nowhere.

    Attributes:
        tool_call_id: Id of the call.
        signal: Tells whether the run was aborted; None when it cannot be.
        agent: The agent whose run this is, or None.
    """

    __slots__ = ("_on_update", "agent", "signal", "tool_call_id")

    def __init__(
        self,
        tool_call_id: str = "",
        signal: AbortSignal | None = None,
        on_update: Callable[[Any], object] | None = None,
    ) -> None:
        self.tool_call_id: str = tool_call_id
        self.signal: AbortSignal | None = signal
        self.agent: Any = current_agent.get()
        self._on_update = on_update

    def update(self, partial: object) -> None:
        """Show a partial result; anything `convert_tool_result` knows.

        Ignored once the tool has returned (TL-17). May be called from any thread.
        """
        if self._on_update is not None:
            self._on_update(convert_tool_result(partial))

    def progress(self, done: float, total: float | None = None, text: str | None = None) -> None:
        """Show how far the tool is.

        Args:
            done: Amount done.
            total: Amount to do, if known.
            text: What people read; by default "done/total".
        """
        shown = text if text is not None else f"{done}" if total is None else f"{done}/{total}"
        progress = FrozenDict({"done": done, "total": total, "text": text})
        self.update(
            AgentToolResult(
                content=(TextContent(text=shown),), details=FrozenDict({"progress": progress})
            )
        )
