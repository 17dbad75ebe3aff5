"""pi-notebook under the workloads A1-A10: the adapter that `run_all.py --product` calls.

It is a `Peer` of `common.py`, which is on the path when `run_all.py` or `bench/run.py` starts
this file. The scripted model is a stream function on `ResponseBuilder`, as any provider is.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

from common import SCHEMAS, Peer, Script, Seen, Unsupported, main, play, text_of
from pi_agent_kernel import (
    Agent,
    AgentTool,
    AssistantMessage,
    Model,
    ResponseBuilder,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

MODEL = Model(id="scripted", api="scripted", provider="scripted")


class Product(Peer):
    """Our own column."""

    name = "product"
    signals = True
    minimal = "from pi_agent_kernel import Agent\nAgent(stream_fn=lambda *a: None)"

    def version(self) -> str:
        return version("pi-notebook")

    def agent(self, script: Script, tools: list[Any]) -> Agent:
        async def stream_fn(_model: Model, _context: Any, _options: Any) -> Any:
            index, turn = script.take()
            message = ResponseBuilder(api="scripted", provider="scripted", model="scripted")
            yield message.start()
            block = 0
            if turn.text:
                yield message.text_start()
            async for item in play(turn, index):
                kind = item[0]
                if kind == "text":
                    yield message.text_delta(item[1], 0)
                elif kind == "args":
                    yield message.toolcall_delta(item[2], block)
                elif kind == "call":
                    started = message.toolcall_start(item[2], item[3])
                    block = started.content_index
                    yield started
                else:
                    yield message.toolcall_end(block)
            if turn.text:
                yield message.text_end(0)
            yield message.done()

        return Agent(stream_fn=stream_fn, model=MODEL, tools=[_tool(tool) for tool in tools])

    async def prompt(self, agent: Agent) -> Seen:
        seen = Seen()

        def listener(event: Any, _signal: Any) -> None:
            kind = event.type
            if kind == "message_update":
                seen.deltas += event.assistant_message_event.type.endswith("_delta")
            elif kind == "tool_execution_end":
                seen.results += not event.is_error

        agent.subscribe(listener)
        await agent.prompt("go")
        return seen

    def abort(self, agent: Agent, task: Any) -> None:
        agent.abort()

    def transcript(self, n: int) -> list[Any]:
        def assistant(block: Any) -> AssistantMessage:
            return AssistantMessage(
                content=(block,), api="scripted", provider="scripted", model="scripted"
            )

        return [
            (
                UserMessage(content=(TextContent(text=text_of(i)),)),
                assistant(ToolCall(id=f"c{i}", name="echo", arguments={"x": i})),
                ToolResultMessage(
                    tool_call_id=f"c{i}",
                    tool_name="echo",
                    content=(TextContent(text=text_of(i)),),
                ),
                assistant(TextContent(text=text_of(i))),
            )[i % 4]
            for i in range(n)
        ]

    async def save(self, messages: Any, path: str) -> None:
        raise Unsupported("no session storage yet")


def _tool(function: Any) -> AgentTool:
    name = function.__name__
    execute: Any

    if not asyncio.iscoroutinefunction(function):

        def execute(_id: str, params: dict[str, Any], _signal: Any, _update: Any) -> Any:
            return function(**params)

    else:

        async def execute(_id: str, params: dict[str, Any], signal: Any, _update: Any) -> Any:
            if name != "hang_signal":
                return await function(**params)
            work = asyncio.ensure_future(function(**params))
            signal.add_listener(lambda: work.get_loop().call_soon_threadsafe(work.cancel))
            return await work

    made = AgentTool(
        name=name,
        description=function.__doc__ or "",
        parameters=SCHEMAS[name],
        execute=execute,
    )
    # `hang` knows nothing of the signal: a @tool function without a context, as in the README.
    if name == "hang":
        from pi_agent_kernel import tool

        return tool(function)
    return made


if __name__ == "__main__":
    main(Product())
