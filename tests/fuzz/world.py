"""Play one random example: an agent whose model, tools, hooks and listeners follow a plan."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
from fuzz.checks import check_agent, check_log
from fuzz.hooks import make_hook
from fuzz.listeners import ListenerError, subscribe
from fuzz.model import Script
from fuzz.plans import BLINK, TOOLS, Plan
from fuzz.tools import make_tool
from pi_agent_kernel import Agent, Model, NothingToContinueError, UserMessage
from pi_agent_kernel.testing import EventRecorder, StrictFaux


class World:
    """Hold one agent and what its plan has done so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.script = Script(self)
        self.strict = StrictFaux(self.script)
        hooks: dict[str, Any] = {hook.name: make_hook(self, hook) for hook in plan.hooks}
        self.agent = Agent(
            stream_fn=self.strict,
            system_prompt="You are fuzzed.",
            model=Model(id="fuzz", provider="fuzz", api="fuzz"),
            tools=[make_tool(self, name, one) for name, one in zip(TOOLS, plan.tools, strict=True)],
            tool_execution="sequential" if plan.sequential else "parallel",
            steering_mode="all" if plan.all_at_once else "one-at-a-time",
            abort_grace=plan.grace,
            max_log_events=plan.max_log,
            **hooks,
        )
        self.recorder = EventRecorder(self.agent)
        for listener in plan.listeners:
            subscribe(self, listener)
        self.asyncio = True
        self.loop_thread = threading.get_ident()
        self.token: Any = None
        self.scope = anyio.CancelScope()
        self.task: asyncio.Task[None] | None = None
        self.group: Any = None
        self.said: list[str] = []  # texts that were prompted or queued
        self.threads: list[threading.Thread] = []
        self.cancelled = False  # whether a cancellation was requested during this step's run
        self.quiet = False  # whether the disturbances are over

    # --------------------------------------------------------------------------- the host

    async def play(self) -> None:
        """Take the planned steps, check after each, then check that a further prompt works."""
        token = anyio.lowlevel.current_token().native_token
        self.token = token
        self.asyncio = isinstance(token, asyncio.AbstractEventLoop)
        async with anyio.create_task_group() as self.group:
            for step in self.plan.steps:
                await self._step(step)
                await self._settle()
                check_agent(self)
            await self._end()
            self.group.cancel_scope.cancel()

    async def _step(self, step: str) -> None:
        agent = self.agent
        if step == "reset":
            agent.reset()
            self.said.clear()
            return
        if step == "queued":
            self.queue("steer")
            self.queue("follow_up")
        actions: dict[str, Callable[[], Any]] = {
            "continue": agent.continue_,
            "empty": lambda: agent.prompt([]),
            "messages": lambda: agent.prompt([self.say("a"), self.say("b")]),
        }
        action = actions.get(step, lambda: agent.prompt([self.say("p")]))
        self.cancelled = False
        outcome = await self._attempt(action)
        allowed: tuple[type[BaseException], ...] = ()
        if step in ("continue", "empty"):
            allowed = (NothingToContinueError,)
        if any(listener.action.startswith("raise") for listener in self.plan.listeners):
            allowed = (*allowed, ListenerError)  # FL-05
        by_listener = isinstance(outcome, RuntimeError) and ListenerError in allowed
        if isinstance(outcome, Exception) and not by_listener and not isinstance(outcome, allowed):
            raise outcome
        if self.cancelled and outcome is None:
            raise AssertionError("a cancelled prompt returned as if nothing had happened (AB-09)")

    async def _attempt(self, action: Callable[[], Any]) -> BaseException | None:
        """Return what an action ended with: None, an exception, or a cancellation."""
        outcome: list[BaseException] = []
        self.scope = anyio.CancelScope()

        async def attempt() -> None:
            with self.scope:
                try:
                    await action()
                except BaseException as error:
                    outcome.append(error)
                    if not isinstance(error, Exception):
                        raise

        if not self.asyncio:
            await attempt()
        else:
            self.task = asyncio.get_running_loop().create_task(attempt())
            await asyncio.wait({self.task})
            if not self.task.cancelled():
                self.task.exception()
        return outcome[0] if outcome else None

    async def _settle(self) -> None:
        """Let what a run may have left behind show itself."""
        for thread in self.threads:
            thread.join()
        for _ in range(12):
            await anyio.lowlevel.checkpoint()

    async def _end(self) -> None:
        """Take everything off that disturbs, and prompt once more."""
        agent = self.agent
        for name in {hook.name for hook in self.plan.hooks}:
            setattr(agent, name, None)
        self.quiet = True
        self.script.requests = len(self.plan.responses)
        refusals, self.strict = self.strict.refusals, StrictFaux(self.script)
        agent.stream_fn = self.strict
        events = len(self.recorder.events)
        await agent.prompt([self.say("further")])
        await self._settle()
        assert refusals == []
        assert len(self.recorder.events) > events
        check_agent(self)
        check_log(self)
        assert agent.state.error_message is None, "a further prompt clears the error (ST-08)"
        assert agent.state.messages[-1].stop_reason == "stop", "a further prompt works (FL-06)"
        for generator in self.script.generators:
            await generator.aclose()

    def say(self, name: str) -> UserMessage:
        """Make a message of a text of its own."""
        self.said.append(f"{name}{len(self.said)}")
        return UserMessage(content=self.said[-1])

    def queue(self, kind: str) -> None:
        """Steer or follow up."""
        if kind == "steer":
            self.agent.steer(self.say("s"))
        else:
            self.agent.follow_up(self.say("f"))

    def disturb(self, how: str | None = None) -> None:
        """End the run in the planned way."""
        how = how or self.plan.stop
        if how == "abort":
            self.agent.abort()
        elif how == "thread":
            self.start_thread(self.agent.abort)
        elif self.quiet:
            return
        elif threading.get_ident() == self.loop_thread:
            self._cancel(how)
        else:
            post = getattr(self.token, "call_soon_threadsafe", None) or self.token.run_sync_soon
            post(partial(self._cancel, how))

    def _cancel(self, how: str) -> None:
        task = self.task
        if how == "cancel" or task is None:
            self.scope.cancel()
        else:
            task.cancel()
            if how == "cancel_twice":
                asyncio.get_running_loop().call_later(BLINK, task.cancel)
        if self.agent.state.is_streaming and self.recorder.types[-1:] != ["agent_end"]:
            self.cancelled = True

    def start_thread(self, call: Callable[[], object]) -> None:
        """Call something from another thread."""
        thread = threading.Thread(target=call)
        thread.start()
        self.threads.append(thread)

    def cancellation(self) -> BaseException:
        """Make what a cancelled inner task would raise."""
        return asyncio.CancelledError("by itself") if self.asyncio else RuntimeError("by itself")
