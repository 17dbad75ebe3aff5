"""Where a run lives and what an interrupt does to it: the only module that knows.

Two ways, one class:

    run_here    on the loop that awaits it, which in a cell is the kernel's own
    run_apart   on a loop of its own in another thread, while this thread waits and serves it: for
                callers that cannot await (`%%time`, a loop over `run_cell_magic`, `prompt_sync`)

Either way plain tool functions and displays run on the thread that started the run. The first
interrupt asks the run to abort, the second one cancels it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.lowlevel
from pi_agent_kernel.abort import run_soon

from pi_notebook.errors import AgentAborted
from pi_notebook.interrupts import UserCode, interrupts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ForegroundRun"]

#: Turns of the loop until a cancellation by ipykernel's handler has arrived: it got the signal if
#: the signal came before ours was in place.
SETTLING_TURNS = 5

_log = logging.getLogger(__name__)


class ForegroundRun:
    """Run one piece of work for a cell.

    Args:
        abort: Asks the work to end soon; called from the signal handler.
    """

    def __init__(self, abort: Callable[[], object]) -> None:
        self._abort = abort
        self._thread = threading.get_ident()
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] | None = None
        self._wake: Callable[[], None] | None = None
        self._cancel: Callable[[], None] | None = None
        self.user_code = UserCode()
        #: Whether an interrupt has asked the run to end.
        self.interrupted = False

    @property
    def apart(self) -> bool:
        """Whether the run lives on a loop of its own."""
        return self._jobs is not None

    def serves(self, thread: int) -> bool:
        """Tell whether a thread is the one that waits for a run apart, and displays for it."""
        return self.apart and thread == self._thread

    async def run_here(self, work: Callable[[], Awaitable[None]], *, owns_task: bool) -> None:
        """Await the work on this loop.

        Args:
            work: The work.
            owns_task: Whether the task belongs to the cell, so that only an interrupt cancels it.

        Raises:
            AgentAborted: An interrupt came before the work began, or it had to be cancelled.
        """
        try:
            with interrupts(self):
                for _ in range(SETTLING_TURNS):
                    await anyio.lowlevel.checkpoint()
                await self._run(work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not owns_task or task is None or not task.cancelling():
                raise
            task.uncancel()
            raise AgentAborted from None

    def run_apart(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work on a loop of its own, and serve it until it ends.

        Raises:
            AgentAborted: As `run_here`.
        """
        jobs = self._jobs = queue.SimpleQueue()
        with interrupts(self), anyio.from_thread.start_blocking_portal("asyncio") as portal:
            context = contextvars.copy_context()
            ended = context.run(portal.start_task_soon, self._run, work)
            ended.add_done_callback(lambda _ended: jobs.put(None))
            while (job := jobs.get()) is not None:
                try:
                    job()
                except Exception:  # noqa: BLE001 - a display that fails is no reason to stop serving
                    _log.exception("Showing a run failed")
            ended.result()

    def run_sync(self, call: Callable[[], Any]) -> Any:
        """Call a plain tool function on the thread that started the run: the agent's `run_sync`."""
        if threading.get_ident() == self._thread:
            return self._call_user_code(call)
        return self._call_over_there(call)

    def post(self, call: Callable[[], object]) -> None:
        """Have the thread that started the run call something."""
        if self._jobs is None or threading.get_ident() == self._thread:
            call()
        else:
            self._jobs.put(call)

    def interrupt(self) -> None:
        """Ask the run to end; the second time end it. Called from the signal handler."""
        again, self.interrupted = self.interrupted, True
        self._abort()
        if again and self._cancel is not None:
            self._cancel()
        if self._wake is not None:
            self._wake()

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        with anyio.CancelScope() as scope:
            self._cancel = run_soon(scope.cancel)
            self._wake = run_soon(_nothing)
            if not self.interrupted:
                await work()
                return
        raise AgentAborted

    def _call_user_code(self, call: Callable[[], Any]) -> Any:
        return self.user_code.call(call, forbidden=lambda: self.interrupted)

    async def _call_over_there(self, call: Callable[[], Any]) -> Any:
        done = anyio.Event()
        tell = run_soon(done.set)
        outcome: list[Any] = []
        problem: list[BaseException] = []

        def job() -> None:
            try:
                outcome.append(self._call_user_code(call))
            except BaseException as error:  # noqa: BLE001 - raised again over there
                problem.append(error)
            tell()

        self.post(job)
        await done.wait()
        if problem:
            raise problem[0]
        return outcome[0]


def _nothing() -> None:
    """Do nothing, on a loop that shall wake up."""
