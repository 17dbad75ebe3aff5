"""The few things that differ between asyncio and trio, behind one small interface.

A run needs three: tasks of its own (`open_jobs`), a way to cut off an await on abort (`expiry`),
and a way back onto the loop from elsewhere (`soon`). On asyncio they are built on plain tasks,
because a cancel scope and a task group per tool call would cost more than the rest of the call;
elsewhere they are anyio's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
import anyio.lowlevel

__all__ = ["Backend", "Expiry", "Job", "Jobs", "current_backend", "is_cancellation"]

Work = Callable[[], Coroutine[Any, Any, None]]


class Expiry(Protocol):
    """**Protocol:** a `with` block whose awaits can be cut off; the block then just ends."""

    @property
    def expired(self) -> bool:
        """Whether the block was cut off."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool: ...

    def expire(self) -> None:
        """Cut the block off now, or at the next wait after a hold; on the same loop."""
        ...

    def expire_in(self, seconds: float) -> None:
        """Cut the block off unless it ends within `seconds`; the earliest call counts."""
        ...

    def hold(self) -> None:
        """Put cutting off on hold: what is awaited now must not be interrupted."""
        ...

    def release(self) -> bool:
        """End a hold; true if the block is due to end."""
        ...


class Job(Protocol):
    """**Protocol:** one task of a run."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        ...

    def cancel(self) -> None:
        """Ask it to end."""
        ...


class Jobs(Protocol):
    """**Protocol:** the tasks of one `async with` block; leaving it cancels and awaits the rest."""

    #: The first exception that a task ended with.
    error: BaseException | None

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def start(self, work: Work) -> Job:
        """Start a task; on asyncio tasks begin in the order they were started, on trio in any."""
        ...

    async def join(self) -> None:
        """Wait until every task has ended, one has failed, or `wake` was called."""
        ...

    def wake(self) -> None:
        """Let `join` return early."""
        ...

    def leave(self, job: Job) -> None:
        """Do not wait for a task any more; nothing is left of it that matters."""
        ...


class Backend(Protocol):
    """**Protocol:** what a run asks of the event loop it lives on."""

    def soon(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Bind a callback to the loop; the result may be called from any thread or signal."""
        ...

    def expiry(self) -> Expiry:
        """Make a block whose awaits can be cut off."""
        ...

    def open_jobs(self) -> Jobs:
        """Open a group of tasks."""
        ...

    def later(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call back on the loop after `seconds`."""
        ...

    def detach(self, work: Work) -> None:
        """Start a task that nobody awaits."""
        ...

    def task(self) -> object:
        """Return the task that is running now."""
        ...


def current_backend() -> Backend:
    """Return the backend of the loop that is running now."""
    if "trio" not in sys.modules:
        return _AsyncioBackend(asyncio.get_running_loop())
    # Under trio in a kernel asyncio finds the kernel's loop, so anyio has to be asked.
    token = anyio.lowlevel.current_token().native_token
    if isinstance(token, asyncio.AbstractEventLoop):
        return _AsyncioBackend(token)
    return _AnyioBackend(token)


# ------------------------------------------------------------------------------- asyncio


_detached: set[asyncio.Task[None]] = set()


class _AsyncioBackend:
    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def soon(self, callback: Callable[[], object]) -> Callable[[], None]:
        loop = self._loop

        def post() -> None:
            # A closed loop has nobody left to wake.
            if not loop.is_closed():
                loop.call_soon_threadsafe(callback)

        return post

    def later(self, seconds: float, callback: Callable[[], object]) -> None:
        self._loop.call_later(seconds, callback)

    def detach(self, work: Work) -> None:
        task = self._loop.create_task(work())
        # The loop keeps only a weak reference to a task.
        _detached.add(task)
        task.add_done_callback(_detached.discard)

    def task(self) -> object:
        return asyncio.current_task()

    def expiry(self) -> _AsyncioExpiry:
        return _AsyncioExpiry(self._loop)

    def open_jobs(self) -> _AsyncioJobs:
        return _AsyncioJobs(self._loop)


class _AsyncioExpiry:
    __slots__ = ("_due", "_expired", "_held", "_loop", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._held = False
        self._due = False
        self._expired = False

    @property
    def expired(self) -> bool:
        return self._expired

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if not self._expired or task is None:
            return False
        task.uncancel()
        return kind is not None and issubclass(kind, asyncio.CancelledError)

    def expire(self) -> None:
        if self._task is None or self._expired:
            return
        self._due = True
        if not self._held:
            self._cancel()

    def expire_in(self, seconds: float) -> None:
        if self._task is None:
            return
        timer, when = self._timer, self._loop.time() + seconds
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timer = self._loop.call_at(when, self.expire)

    def hold(self) -> None:
        self._held = True

    def release(self) -> bool:
        self._held = False
        return self._due

    def _cancel(self) -> None:
        if self._task is not None:
            self._expired = True
            self._task.cancel()


class _AsyncioJob:
    __slots__ = ("task",)

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task

    @property
    def done(self) -> bool:
        return self.task.done()

    def cancel(self) -> None:
        self.task.cancel()


class _AsyncioJobs:
    __slots__ = ("_closing", "_loop", "_tasks", "_waiter", "error")

    #: How often a task that swallows its cancellation is asked again before it is left behind.
    PATIENCE = 3

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiter: asyncio.Future[None] | None = None
        self._closing = False
        self.error: BaseException | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing = True
        for _ in range(self.PATIENCE):
            if not self._tasks:
                return
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=0.3)

    def start(self, work: Work) -> _AsyncioJob:
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return _AsyncioJob(task)

    async def join(self) -> None:
        if self._tasks and self.error is None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = _error_of(task, expected=self._closing)
        if error is not None:
            self.error = self.error or error
        if error is not None or not self._tasks:
            self.wake()

    def leave(self, job: Job) -> None:
        if isinstance(job, _AsyncioJob):
            self._tasks.discard(job.task)


def _error_of(task: asyncio.Task[None], *, expected: bool) -> BaseException | None:
    """Return what a task failed with; a cancellation that nobody asked for is a failure too."""
    if not task.cancelled():
        return task.exception()
    return None if expected else RuntimeError("CancelledError")


def is_cancellation(error: BaseException) -> bool:
    """Tell a cancellation of the current task from a `CancelledError` that code just raised."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return not isinstance(error, Exception) and isinstance(error, anyio.get_cancelled_exc_class())


# ---------------------------------------------------------------------- any other backend


class _AnyioBackend:
    __slots__ = ("_token",)

    def __init__(self, token: Any) -> None:
        self._token = token

    def soon(self, callback: Callable[[], object]) -> Callable[[], None]:
        token = self._token

        def post() -> None:
            try:
                token.run_sync_soon(callback)
            except RuntimeError:
                # The loop has ended, and with it whatever was to be woken.
                return

        return post

    def later(self, seconds: float, callback: Callable[[], object]) -> None:
        async def wait() -> None:
            await anyio.sleep(seconds)
            callback()

        self.detach(wait)

    def detach(self, work: Work) -> None:
        import trio

        trio.lowlevel.spawn_system_task(work)

    def task(self) -> object:
        import trio

        return trio.lowlevel.current_task()

    def expiry(self) -> _AnyioExpiry:
        return _AnyioExpiry()

    def open_jobs(self) -> _AnyioJobs:
        return _AnyioJobs()


class _AnyioExpiry:
    __slots__ = ("_due", "_held", "_open", "_scope", "_wanted")

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._wanted: float | None = None
        self._held = False
        self._due = False
        self._open = False

    @property
    def expired(self) -> bool:
        return self._scope.cancelled_caught

    def __enter__(self) -> Self:
        self._scope.__enter__()
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._open = False
        return bool(self._scope.__exit__(kind, error, trace))

    def expire(self) -> None:
        if not self._open:
            return
        self._due = True
        if not self._held:
            self._scope.cancel()

    def expire_in(self, seconds: float) -> None:
        when = anyio.current_time() + seconds
        self._wanted = when if self._wanted is None else min(when, self._wanted)
        if not self._held:
            self._scope.deadline = self._wanted

    def hold(self) -> None:
        self._held = True
        self._scope.deadline = float("inf")

    def release(self) -> bool:
        self._held = False
        if self._wanted is not None:
            self._due = self._due or anyio.current_time() >= self._wanted
            self._scope.deadline = self._wanted
        return self._due


class _AnyioJob:
    __slots__ = ("done", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.done = False

    def cancel(self) -> None:
        self.scope.cancel()


class _AnyioJobs:
    __slots__ = ("_group", "_jobs", "_woken", "error")

    def __init__(self) -> None:
        self._group = anyio.create_task_group()
        self._jobs: set[_AnyioJob] = set()
        self._woken = anyio.Event()
        self.error: BaseException | None = None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for job in self._jobs:
            job.cancel()
        await self._group.__aexit__(None, None, None)

    def start(self, work: Work) -> _AnyioJob:
        job = _AnyioJob()
        self._jobs.add(job)
        self._group.start_soon(self._run, job, work)
        return job

    async def join(self) -> None:
        if self._jobs and self.error is None:
            self._woken = anyio.Event()
            await self._woken.wait()

    def wake(self) -> None:
        self._woken.set()

    def leave(self, job: Job) -> None:
        # A nursery waits for all of its tasks; under trio a cancelled one gets nowhere.
        job.cancel()

    async def _run(self, job: _AnyioJob, work: Work) -> None:
        # The shield keeps a cancelled caller from tearing the run apart: it aborts instead.
        try:
            with anyio.CancelScope(shield=True), job.scope:
                await work()
        except Exception as error:  # noqa: BLE001 - handed to whoever joins
            self.error = self.error or error
            self._woken.set()
        finally:
            job.done = True
            self._jobs.discard(job)
            if not self._jobs:
                self._woken.set()
