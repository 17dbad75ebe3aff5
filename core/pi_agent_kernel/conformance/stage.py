"""The stage of one scenario: its log, gates, recorded events, responses and running tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from pi_agent_kernel import (
    AbortSignal,
    AgentEvent,
    AgentTool,
    ToolCall,
    ToolCallOutcome,
    ToolExecutionEnd,
)
from pi_agent_kernel.conformance.script import Json, RuleSet, ScenarioError
from pi_agent_kernel.conformance.trace import TraceLog, event_facts

__all__ = ["NO_VALUE", "SETTLE_SECONDS", "Callee", "Host", "NoValue", "Stage"]

#: How long `settle` sleeps (FORMAT.md, section 1).
SETTLE_SECONDS = 0.03
#: Turns of the event loop in one tick: a task may take a few to get where it waits.
_TICK_TURNS = 5


class NoValue:
    """Be the type of `NO_VALUE`."""


#: What an action without a value and steps without a `return` give; None is a value.
NO_VALUE: Final = NoValue()


class Callee(msgspec.Struct, frozen=True, kw_only=True):
    """Say for whom steps run: who is called, with what.

    `where` is None at top level. `variables` fill templates, None fills nothing. `args` is the
    received arguments object, `report` the tool's progress callback, `push` and `end` the stream
    that a `script` response feeds.
    """

    where: str | None = None
    signal: AbortSignal | None = None
    variables: Json | None = None
    args: Json | None = None
    report: Callable[[Any], object] | None = None
    push: Callable[[Json], None] | None = None
    end: Callable[[Json | None], None] | None = None


class Host(Protocol):
    """**Protocol:** what steps and hooks need of the thing under test."""

    async def perform(self, action: Json) -> Any:
        """Do a host action; return its value or `NO_VALUE`."""
        ...

    def snapshot(self) -> Json | None:
        """Return the agent's state as traces record it; None without an agent."""
        ...

    def partial_content(self) -> Any:
        """Return the content of the message that streams, or None."""
        ...

    def state_roles(self) -> list[str] | None:
        """Return the roles of the agent's messages; None without an agent."""
        ...

    async def call_tool(self, call: ToolCall, signal: AbortSignal | None) -> ToolCallOutcome:
        """Run a tool call inside a tool."""
        ...

    def describe_error(self, error: Exception) -> Json:
        """Return an exception as `throws` records it."""
        ...


class _Background:
    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.outcome: Json = {"ok": True}


class Stage:
    """Hold what the parts of one running scenario share.

    Args:
        scenario: The scenario.
        tasks: Runs what goes on beside the script; it is cancelled when the scenario has ended.
    """

    def __init__(self, scenario: Json, tasks: TaskGroup) -> None:
        self.scenario = scenario
        self.tasks = tasks
        self.log: TraceLog = TraceLog()
        self.tools: dict[str, AgentTool] = {}
        self.responses: deque[Json] = deque(scenario.get("responses", ()))
        self.requests = 0
        #: Why the scenario cannot be executed; set once, whatever becomes of the exception.
        self.problem: ScenarioError | None = None
        self._host: Host | None = None
        self._gates: dict[str, anyio.Event] = {}
        self._facts: list[Json] = []
        self._recorded = anyio.Event()
        self._predecessors: dict[str, str | None] = {}
        self._ordered = _ordered_predecessors(scenario)
        self._background: list[_Background] = []

    @property
    def host(self) -> Host:
        """The thing under test; set before anything of it can run."""
        if self._host is None:
            raise ScenarioError("there is no agent yet")
        return self._host

    @host.setter
    def host(self, host: Host) -> None:
        self._host = host

    @contextmanager
    def noting_problems(self) -> Generator[None]:
        """Note a `ScenarioError` of the block, which the package may turn into a result."""
        try:
            yield
        except ScenarioError as error:
            self.problem = self.problem or error
            raise

    def tools_named(self, aliases: Sequence[str]) -> list[AgentTool]:
        """Return the tools of these aliases; one alias is one tool object.

        Raises:
            ScenarioError: An alias is unknown.
        """
        unknown = [alias for alias in aliases if alias not in self.tools]
        if unknown:
            raise ScenarioError(f"unknown tool {unknown[0]!r}")
        return [self.tools[alias] for alias in aliases]

    # ---------------------------------------------------------------------------- order

    async def tick(self) -> None:
        """Let everything that can run now run first."""
        for _ in range(_TICK_TURNS):
            await anyio.lowlevel.checkpoint()

    def open_gate(self, name: str) -> None:
        """Open a gate; it stays open."""
        self._gate(name).set()

    async def wait_gate(self, name: str) -> None:
        """Wait until a gate is open."""
        await self._gate(name).wait()

    def _gate(self, name: str) -> anyio.Event:
        if name not in self._gates:
            self._gates[name] = anyio.Event()
        return self._gates[name]

    def order_calls(self, call_ids: Sequence[str]) -> None:
        """Note the calls of one response: each waits for the one before it."""
        if not self.scenario.get("free"):
            previous: list[str | None] = [None, *call_ids]
            self._predecessors.update(zip(call_ids, previous, strict=False))

    async def wait_turn(self, call_id: str) -> None:
        """Wait until the predecessor of a call, if any, has ended (FORMAT.md, section 5)."""
        if self.scenario.get("free"):
            return
        predecessor = (self._predecessors | self._ordered).get(call_id)
        if predecessor is not None:
            await self.wait_gate(f"end:{predecessor}")

    # ----------------------------------------------------------------------- background

    def start_in_background(self, action: Json) -> None:
        """Start a host action as a task of its own."""
        entry = _Background()
        self._background.append(entry)
        self.tasks.start_soon(self._run_in_background, action, entry)

    async def _run_in_background(self, action: Json, entry: _Background) -> None:
        try:
            await self.host.perform(action)
        except ScenarioError:
            raise
        except Exception as error:  # noqa: BLE001 - it is what join returns
            entry.outcome = {"throws": self.host.describe_error(error)}
        entry.ended.set()

    async def join(self) -> list[Json]:
        """Wait for all background actions; return how each ended, in the order of their start."""
        for entry in self._background:
            await entry.ended.wait()
        return [entry.outcome for entry in self._background]

    # --------------------------------------------------------------------------- events

    def record(self, event: AgentEvent) -> None:
        """Remember an event for `waitEvent`."""
        self._facts.append(event_facts(event))
        self._recorded.set()
        self._recorded = anyio.Event()

    def close(self, event: AgentEvent) -> None:
        """Open the gate of a tool call that has ended."""
        if isinstance(event, ToolExecutionEnd):
            self.open_gate(f"end:{event.tool_call_id}")

    async def wait_event(self, when: Json) -> None:
        """Wait until an event with these facts has been recorded, then settle."""
        rules = RuleSet([{"when": {"nth": 1, **when}}])
        seen = 0
        while True:
            recorded = self._recorded
            for facts in self._facts[seen:]:
                if rules.matching(facts):
                    await anyio.sleep(SETTLE_SECONDS)
                    return
            seen = len(self._facts)
            await recorded.wait()


def _ordered_predecessors(scenario: Json) -> dict[str, str | None]:
    predecessors: dict[str, str | None] = {}
    for calls in scenario.get("order", ()):
        predecessors.update(zip(calls, [None, *calls], strict=False))
    return predecessors
