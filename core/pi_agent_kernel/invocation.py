"""Invoke one tool: where its function runs, how it is cut off, how its progress gets out.

| function | runs | on abort | on timeout |
| --- | --- | --- | --- |
| async, takes no signal | on the loop | cancelled at once | cancelled |
| async, takes the signal | on the loop | has `abort_grace` seconds, then cancelled | cancelled |
| plain | in a worker thread, or by `run_sync` | abandoned after the same rule | abandoned |
| plain, with `executor=` | there | abandoned after the same rule | abandoned |

An executor other than a `ThreadPoolExecutor` gets the bare function and its arguments, so that
it may live in other processes. An abandoned function may go on; what it returns or reports is
discarded (DEVIATIONS 14).
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar, cast

import anyio
import msgspec

from pi_agent_kernel.abort_watch import AbortWatch
from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.backend import Backend, Jobs, is_cancellation
from pi_agent_kernel.events import AgentEvent, ToolExecutionUpdate
from pi_agent_kernel.json_value import freeze
from pi_agent_kernel.messages import ToolCall
from pi_agent_kernel.tool_context import around_tools
from pi_agent_kernel.tools import (
    AgentTool,
    AgentToolResult,
    FunctionTool,
    convert_tool_result,
)
from pi_agent_kernel.worker_threads import WorkerThreads

__all__ = ["Emit", "Ending", "Progress", "RunSync", "call_tool"]

T = TypeVar("T")

#: Takes an event; what it returns, if anything, is awaited.
Emit = Callable[[AgentEvent], Awaitable[None] | None]
#: Runs a plain function somewhere: takes a call without arguments, returns or awaits its value.
RunSync = Callable[[Callable[[], Any]], Any]

_threads = WorkerThreads()


class Ending(msgspec.Struct, kw_only=True):
    """Be how an invocation ended: a result, an error, or cut off."""

    result: AgentToolResult = AgentToolResult()
    error: BaseException | None = None
    expired: bool = False


class Progress:
    """Deliver a tool's progress reports until it settles (TL-17).

    `report` may be called from any thread. A report after the tool has settled is ignored.
    """

    __slots__ = (
        "_backend",
        "_deliver",
        "_error",
        "_jobs",
        "_open",
        "_settled",
        "_tasks",
        "_thread",
        "_waiting",
    )

    def __init__(
        self,
        backend: Backend,
        deliver: Callable[[AgentToolResult], object],
        jobs: Jobs | None = None,
        tasks: set[object] | None = None,
    ) -> None:
        self._tasks: set[object] = set() if tasks is None else tasks
        self._backend = backend
        self._deliver = deliver
        self._jobs = jobs
        self._thread = threading.get_ident()
        self._open = True
        self._waiting = 0
        self._settled: anyio.Event | None = None
        self._error: BaseException | None = None

    @classmethod
    def of_call(
        cls,
        backend: Backend,
        emit: Emit,
        call: ToolCall,
        jobs: Jobs,
        tasks: set[object],
    ) -> Progress:
        """Deliver reports as events of one call."""

        def deliver(partial_result: AgentToolResult) -> object:
            return emit(
                ToolExecutionUpdate(
                    tool_call_id=call.id,
                    tool_name=call.name,
                    args=call.arguments,
                    partial_result=partial_result,
                )
            )

        return cls(backend, deliver, jobs, tasks)

    @property
    def is_open(self) -> bool:
        """Whether the tool has not settled yet."""
        return self._open

    def report(self, partial_result: object) -> None:
        """Take one report; anything that `convert_tool_result` takes."""
        if not self._open:
            return
        result = convert_tool_result(partial_result)
        if type(result.details) in (dict, list):
            result = msgspec.structs.replace(result, details=freeze(result.details))
        if threading.get_ident() == self._thread:
            self._send(result)
        else:
            self._backend.soon(partial(self._send, result))()

    async def settle(self) -> None:
        """Stop taking reports and wait until those already sent have been delivered.

        Raises:
            Exception: What a listener raised; it fails the run, not the tool.
        """
        self.close()
        if self._waiting:
            self._settled = anyio.Event()
            await self._settled.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Take no more reports."""
        self._open = False

    def _send(self, result: AgentToolResult) -> None:
        if not self._open:
            return
        try:
            waiting = self._deliver(result)
        except Exception as error:  # noqa: BLE001 - raised again by settle, outside the tool
            self._error = self._error or error
            return
        if is_awaitable(waiting):
            if self._jobs is None:
                raise TypeError("on_update of run_tool_call is a plain function, not an async one.")
            self._waiting += 1
            self._jobs.start(partial(self._wait, waiting))

    async def _wait(self, waiting: Awaitable[object]) -> None:
        task = self._backend.task()
        self._tasks.add(task)
        try:
            await waiting
        except Exception as error:  # noqa: BLE001 - raised again by settle, outside the tool
            self._error = self._error or error
        finally:
            self._tasks.discard(task)
            self._waiting -= 1
            if not self._waiting and self._settled is not None:
                self._settled.set()


async def call_tool(
    tool: AgentTool,
    tool_call_id: str,
    args: dict[str, Any],
    *,
    watch: AbortWatch,
    backend: Backend,
    progress: Progress,
    run_sync: RunSync | None,
) -> Ending:
    """Run a tool's function to its end, whatever that is; never raises for the tool.

    Args:
        tool: The tool.
        tool_call_id: Id of the call.
        args: Validated arguments; the tool owns them.
        watch: Aborts the call.
        backend: The loop the run lives on.
        progress: Takes the tool's reports.
        run_sync: How plain functions run; worker threads by default.

    Returns:
        The ending.
    """
    execute = partial(tool.execute, tool_call_id, args, watch.signal, progress.report)
    expiry = backend.expiry()
    cut = partial(expiry.expire_in, watch.grace) if tool.takes_signal else expiry.expire
    key = watch.add(cut)
    value: object = None
    try:
        with expiry:
            if tool.timeout is not None:
                expiry.expire_in(tool.timeout)
            value = await _execute(tool, execute, backend, run_sync)
        if expiry.expired:
            return Ending(expired=True)
        return Ending(result=convert_tool_result(value))
    except Exception as error:  # noqa: BLE001 - TL-13: any failure is a result
        return Ending(error=error)
    except BaseException as error:  # a tool may raise these too (P2)
        if is_cancellation(error):
            raise
        return Ending(error=error)
    finally:
        watch.discard(key)


async def _execute(
    tool: AgentTool, execute: partial[Any], backend: Backend, run_sync: RunSync | None
) -> object:
    around = around_tools.get() or _as_it_is
    tool_call_id: str = execute.args[0]
    if tool.executor is not None and not isinstance(tool.executor, ThreadPoolExecutor):
        future = _send(tool, tool.executor, execute)
        value = await _ended(future, backend, lambda given_up: given_up.cancel())
        value = around(tool, tool_call_id, lambda: value)()
        return await value if is_awaitable(value) else value
    call = around(tool, tool_call_id, execute)
    if tool.executor is not None:
        future = tool.executor.submit(copy_context().run, call)
        value = await _ended(future, backend, lambda given_up: given_up.cancel())
    elif tool.is_async:
        value = call()
    elif tool.thread is True or tool.timeout is not None:
        value = await _in_thread(call, backend)
    elif run_sync is not None:
        value = run_sync(call)
    elif tool.thread is False:
        value = call()
    else:
        value = await _in_thread(call, backend)
    return await value if is_awaitable(value) else value


def _as_it_is(_tool: AgentTool, _tool_call_id: str, call: Callable[[], Any]) -> Callable[[], Any]:
    return call


async def _in_thread(call: Callable[[], T], backend: Backend) -> T:
    future = _threads.submit(partial(copy_context().run, call))
    return await _ended(future, backend, _threads.abandon)


def _send(tool: AgentTool, executor: Executor, execute: partial[Any]) -> Future[Any]:
    # There nothing of the run can be reached: just the function and its arguments go there.
    tool_call_id, args, _signal, _report = execute.args
    if not isinstance(tool, FunctionTool):
        return executor.submit(tool.execute, tool_call_id, args, None, _ignore)
    if tool.takes_signal:
        raise TypeError(
            f"Tool {tool.name} takes a ToolContext, which cannot be sent to a "
            f"{type(executor).__name__}: leave it out, or use a ThreadPoolExecutor."
        )
    function_tool = cast("FunctionTool[..., Any]", tool)
    return executor.submit(_call_function, function_tool.to_send(), *function_tool.bind(args))


def _ignore(_report: object) -> None:
    """Take a progress report that has no way back."""


def _call_function(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if isinstance(function, FunctionTool):
        function = cast("FunctionTool[..., Any]", function).__wrapped__
    return function(*args, **kwargs)


async def _ended(future: Future[T], backend: Backend, give_up: Callable[[Future[T]], object]) -> T:
    ended = anyio.Event()
    wake = backend.soon(ended.set)
    future.add_done_callback(lambda _future: wake())
    try:
        await ended.wait()
    except BaseException:
        give_up(future)
        raise
    return future.result()
