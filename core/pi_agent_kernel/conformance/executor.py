"""Execute one scenario and return its trace."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import anyio

from pi_agent_kernel import StreamFn, get_default_stream_fn, set_default_stream_fn
from pi_agent_kernel.conformance.agent_kind import play_agent
from pi_agent_kernel.conformance.function_cases import play_functions
from pi_agent_kernel.conformance.loop_kind import play_loop, play_tool_call
from pi_agent_kernel.conformance.script import Json, ScenarioError
from pi_agent_kernel.conformance.stage import Stage
from pi_agent_kernel.conformance.tools import scripted_tools
from pi_agent_kernel.conformance.trace import joined_surrogates
from pi_agent_kernel.conformance.virtual_time import BackendName, run_in_virtual_time

__all__ = ["TIME_LIMIT", "execute"]

#: Seconds a scenario may take (FORMAT.md, section 1).
TIME_LIMIT = 20.0
# What never yields to its event loop cannot be stopped, only left behind.
_STUCK_AFTER = TIME_LIMIT + 2

_KINDS: dict[str, Callable[[Stage], Awaitable[Json]]] = {
    "agent": play_agent,
    "loop": play_loop,
    "toolCall": play_tool_call,
    "functions": play_functions,
}


def execute(scenario: Json, *, backend: BackendName = "asyncio") -> Json:
    """Execute a scenario on an event loop and in a thread of its own.

    Args:
        scenario: The scenario.
        backend: The event loop: "asyncio" or "trio".

    Returns:
        Its trace, plain JSON.

    Raises:
        ScenarioError: It cannot be executed, or took more than 20 seconds; the text says why.
    """
    outcome: list[Json | BaseException] = []
    default = _default_stream_fn()

    def work() -> None:
        try:
            outcome.append(run_in_virtual_time(lambda: _play(scenario), backend))
        except BaseException as error:  # noqa: BLE001 - it is raised in the calling thread
            outcome.append(error)

    thread = threading.Thread(target=work, name="conformance scenario", daemon=True)
    thread.start()
    thread.join(_STUCK_AFTER)
    set_default_stream_fn(default)
    if not outcome:
        raise ScenarioError(f"took more than {TIME_LIMIT:g} s without yielding")
    trace = outcome[0]
    if isinstance(trace, BaseException):
        raise _as_scenario_error(trace) from trace
    return {"scenario": scenario.get("name"), **joined_surrogates(trace)}


def _default_stream_fn() -> StreamFn | None:
    try:
        return get_default_stream_fn()
    except ValueError:
        return None


async def _play(scenario: Json) -> Json:
    if scenario.get("format") != 1:
        raise ScenarioError(f"unknown format {scenario.get('format')!r}")
    kind = scenario.get("kind", "agent")
    if kind not in _KINDS:
        raise ScenarioError(f"unknown kind {kind!r}")
    stages: list[Stage] = []
    traces: list[Json] = []
    try:
        with anyio.fail_after(TIME_LIMIT):
            async with anyio.create_task_group() as tasks:
                stages.append(stage := Stage(scenario, tasks))
                stage.tools = scripted_tools(stage)
                traces.append(await _KINDS[kind](stage))
                tasks.cancel_scope.cancel()
    finally:
        if stages and stages[0].problem is not None:
            raise stages[0].problem
    return traces[0]


def _as_scenario_error(error: BaseException) -> ScenarioError:
    """Tell why a scenario failed in one line; a scenario's own problem comes first."""
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, ScenarioError):
            return leaf
    leaf: BaseException = leaves[0]
    if isinstance(leaf, TimeoutError):
        return ScenarioError(f"took more than {TIME_LIMIT:g} s")
    return ScenarioError(f"cannot be executed: {type(leaf).__name__}: {_first_line(leaf)}")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        members = cast("tuple[BaseException, ...]", error.exceptions)  # pyright: ignore[reportUnknownMemberType]
        for member in members:
            yield from _leaves(member)
    else:
        yield error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
