"""The scripted model: every way to answer, and every way to fail to."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from fuzz.plans import FOREVER, Block, Response
from pi_agent_kernel import AssistantMessageEventStream, Model, ResponseBuilder

if TYPE_CHECKING:
    from fuzz.world import World

GOOD = Response(
    blocks=(Block(kind="text", text="good"),),
    stop=None, delivery="generator", fault=None, at=0, pause=False,
)  # fmt: skip


class Script:
    """Be the stream function of a world; it counts the requests."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.requests = 0
        self.generators: list[Any] = []  # that nobody but the test closes
        self.producers: set[object] = set()  # tasks that push events

    def __call__(self, _model: Model, _context: Any, options: Any) -> Any:
        """Answer the next request as planned."""
        script = self._world.plan.responses
        done = self.requests >= len(script)
        response = None if done else script[self.requests]
        self.requests += 1
        if response is None:
            return self._events(GOOD, options)
        match response.fault, response.delivery:
            case "raise_call", _:
                raise RuntimeError("the stream function broke")
            case "not_a_stream", _:
                return 42
            case _, "pushed":
                stream = AssistantMessageEventStream()
                self._world.group.start_soon(self._push, stream, response, options)
                return stream
            case _, "thread":
                stream = AssistantMessageEventStream()
                self._world.start_thread(partial(self._push_all, stream, response))
                return stream
            case _, "awaited":
                return self._awaited(response, options)
            case _, "iterator":
                generator = self._events(response, options)
                self.generators.append(generator)
                return _Iterator(generator)
            case _:
                return self._events(response, options)

    async def _awaited(self, response: Response, options: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return self._events(response, options)

    async def _push(self, stream: Any, response: Response, options: Any) -> None:
        if self._world.asyncio:
            self.producers.add(asyncio.current_task())
        try:
            async for event in self._events(response, options):
                stream.push(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, the consumer gets it
            stream.fail(error)
        except asyncio.CancelledError as error:
            stream.fail(error)
            if "by itself" not in error.args:
                raise
        stream.end()

    def _push_all(self, stream: Any, response: Response) -> None:
        for index, event in enumerate(_pieces(response)):
            if index == response.at:
                if response.fault == "raise_mid":
                    return stream.fail(RuntimeError("the stream broke"))
                if response.fault == "no_terminal":
                    break
                if response.fault in ("hang", "wait_signal", "swallow_cancel", "hang_start"):
                    return self._world.disturb()
                if response.fault == "abort_mid":
                    self._world.agent.abort()
            stream.push(event)
        return stream.end()

    async def _events(self, response: Response, options: Any) -> Any:
        fault = response.fault
        pieces = list(_pieces(response))
        at = 0 if fault == "hang_start" else min(response.at, len(pieces) - 1)
        builder = pieces[0].origin
        if fault == "error_first":
            yield builder.error("provider says no")
            return
        for index, event in enumerate(pieces):
            if index == at:
                match fault:
                    case "raise_mid":
                        raise RuntimeError("the stream broke")
                    case "cancelled_mid":
                        raise self._world.cancellation()
                    case "no_terminal":
                        return
                    case "hang" | "hang_start":
                        self._world.disturb()
                        await anyio.sleep(FOREVER)
                    case "wait_signal":
                        self._world.disturb()
                        await options.signal.wait()
                        yield builder.error("Request was aborted", aborted=True)
                        return
                    case "swallow_cancel":
                        self._world.disturb()
                        with suppress(asyncio.CancelledError):
                            await anyio.sleep(FOREVER)
                    case "rubbish_event":
                        yield 42
                    case "error_event":
                        yield builder.error("provider says no")
                        return
                    case "abort_mid":
                        self._world.agent.abort()
                    case _:
                        pass
            if response.pause:
                await anyio.lowlevel.checkpoint()
            if not (fault == "no_start" and index == 0):
                yield event
        if fault in ("two_ends", "late_push"):
            yield pieces[1]
            yield pieces[-1]


class _Iterator:
    """Be a stream that is no async generator."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def __aiter__(self) -> _Iterator:
        return self

    async def __anext__(self) -> Any:
        return await self._generator.__anext__()


def _pieces(response: Response) -> Any:
    """Give the stream events of a whole response."""
    builder = ResponseBuilder(api="fuzz", provider="fuzz", model="fuzz")
    yield builder.start()
    for block in response.blocks:
        if block.kind == "call":
            call_id = f"c{time.monotonic_ns()}" if block.call_id == 0 else "same"
            opened = builder.toolcall_start(call_id, block.tool)
            index = opened.content_index
            yield opened
            half = len(block.arguments) // 2
            for delta in (block.arguments[:half], block.arguments[half:]):
                yield builder.toolcall_delta(delta, index)
            yield builder.toolcall_end(index)
        elif block.kind == "thinking":
            opened = builder.thinking_start()
            yield opened
            yield builder.thinking_delta(block.text, opened.content_index)
            yield builder.thinking_end(opened.content_index)
        else:
            opened = builder.text_start()
            yield opened
            for letter in block.text:
                yield builder.text_delta(letter, opened.content_index)
            yield builder.text_end(opened.content_index)
    yield builder.done(response.stop)
