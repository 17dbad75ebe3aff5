"""Users' tools, for type checkers only: nothing here is ever run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, assert_type

from pi_agent_kernel import (
    AbortSignal,
    AgentTool,
    AgentToolResult,
    ImageContent,
    TextContent,
    ToolContext,
    tool,
)
from pydantic import BaseModel, Field


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(
    name="search_archive",
    label="Search",
    description="Search the archive.",
    effects=["read", "network"],
    execution_mode="sequential",
    replay="safe",
    thread=True,
    timeout=30,
)
def search(
    query: str,
    kind: Literal["title", "text"] = "text",
    limit: Annotated[int, Field(ge=1)] = 10,
    *,
    ctx: ToolContext,
) -> list[str]:
    """Search, reporting progress and looking at the abort signal."""
    if ctx.signal is not None:
        ctx.signal.raise_if_aborted()
    ctx.progress(1, limit, "first page")
    ctx.update(AgentToolResult(content=(TextContent(text="so far"),)))
    return [ctx.tool_call_id, query, kind]


@tool(executor=ThreadPoolExecutor(2))
def crunch(numbers: list[float]) -> float:
    """Run on an executor."""
    return sum(numbers)


@tool
async def fetch(url: str, *, ctx: ToolContext) -> AgentToolResult:
    """Run on the loop."""
    if ctx.signal is not None:
        await ctx.signal.wait()
    image = ImageContent(data="", mime_type="image/png")
    return AgentToolResult(content=(TextContent(text=url), image), details={"url": url})


async def call_tools_as_functions() -> None:
    """A tool is still its function, with the function's types."""
    assert_type(add(1, b=2), int)
    assert_type(await fetch("x", ctx=ToolContext()), AgentToolResult)


class Place(BaseModel):
    """Parameters by a pydantic model."""

    city: str


def execute(
    tool_call_id: str, params: dict[str, Any], signal: AbortSignal | None, on_update: Any
) -> str:
    """The four-argument form, plain."""
    on_update(f"{tool_call_id}: {signal}")
    return str(params["city"])


async def execute_async(
    tool_call_id: str, params: dict[str, Any], signal: AbortSignal | None, on_update: Any
) -> AgentToolResult:
    """The four-argument form, async."""
    return AgentToolResult(
        content=(TextContent(text=f"{tool_call_id}{params}{signal}{on_update}"),)
    )


def prepare_arguments(arguments: Any) -> Any:
    """Mend what a model gets wrong."""
    return arguments


TOOLS: list[AgentTool] = [
    add,
    search,
    crunch,
    fetch,
    tool(max, name="largest"),
    AgentTool(name="weather", description="Weather.", parameters=Place, execute=execute),
    AgentTool(
        name="weather_raw",
        description="Weather.",
        parameters={"type": "object", "properties": {"city": {"type": "string"}}},
        execute=execute_async,
        label="Weather",
        prepare_arguments=prepare_arguments,
        output_schema={"type": "object"},
        execution_mode="parallel",
        effects="network",
        timeout=5,
    ),
]
