"""Play one random example: an agent whose model, tools, hooks and listeners follow a plan."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from fuzz_checks import check_agent, check_log
from fuzz_plans import TOOLS, HookPlan, ListenerPlan, Plan, Response, ToolPlan
from pi_agent_kernel import (
    AfterToolCallResult,
    Agent,
    AgentBusyError,
    AgentContext,
    AgentIdle,
    AgentRequestUpdate,
    AgentStateError,
    AgentTool,
    AgentToolResult,
    AgentTurnUpdate,
    AssistantMessageEventStream,
    BeforeToolCallResult,
    Model,
    NothingToContinueError,
    ResponseBuilder,
    TextContent,
    TurnDecision,
    UserMessage,
    tool,
)
from pi_agent_kernel.testing import EventRecorder, StrictFaux
from fuzz_plans import Block
from pi_agent_kernel import ALL_EVENTS as _ALL

FOREVER = 60  # seconds; whatever waits so long must have been cut off
BLINK = 0.001
EXECUTOR = ThreadPoolExecutor(2)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
EDITED = TextContent(text="edited")


class ListenerError(Exception):
    """Be what a planned listener raises."""


class World:
    """Hold one agent and what its plan has done so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.strict = StrictFaux(self.stream)
        hooks = {hook.name: self._hook(hook) for hook in plan.hooks}
        self.agent = Agent(
            stream_fn=self.strict,
            system_prompt="You are fuzzed.",
            model=Model(id="fuzz", provider="fuzz", api="fuzz"),
            tools=[self._tool(name, one) for name, one in zip(TOOLS, plan.tools, strict=True)],
            tool_execution="sequential" if plan.sequential else "parallel",
            steering_mode="all" if plan.all_at_once else "one-at-a-time",
            abort_grace=plan.grace,
            max_log_events=plan.max_log,
            **hooks,
        )
        self.recorder = EventRecorder(self.agent)
        for listener in plan.listeners:
            self._subscribe(listener)
        self.asyncio = True
        self.loop_thread = threading.get_ident()
        self.token: Any = None
        self.scope = anyio.CancelScope()
        self.task: asyncio.Task[None] | None = None
        self.group: Any = None
        self.requests = 0
        self.said: list[str] = []  # texts that were prompted or queued
        self.threads: list[threading.Thread] = []
        self.generators: list[Any] = []
        self.cancelled = False  # whether a cancellation was requested during this step's run

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
        agent = self.agent
        for name in {hook.name for hook in self.plan.hooks}:
            setattr(agent, name, None)
        self._quiet = True
        self.requests = FOREVER
        agent.stream_fn = StrictFaux(self.stream)
        events = len(self.recorder.events)
        await agent.prompt([self.say("further")])
        await self._settle()
        assert len(self.recorder.events) > events
        check_agent(self)
        check_log(self)
        assert agent.state.error_message is None, "a further prompt clears the error (ST-08)"
        assert agent.state.messages[-1].stop_reason == "stop", "a further prompt works (FL-06)"
        for generator in self.generators:
            await generator.aclose()

    _quiet = False

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
        elif self._quiet:
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
        if self.agent.state.is_streaming and not self.recorder.types[-1:] == ["agent_end"]:
            self.cancelled = True

    def start_thread(self, call: Callable[[], object]) -> None:
        """Call something from another thread."""
        thread = threading.Thread(target=call)
        thread.start()
        self.threads.append(thread)

    def cancellation(self) -> BaseException:
        """Make what a cancelled inner task would raise."""
        return asyncio.CancelledError("by itself") if self.asyncio else RuntimeError("by itself")

    # -------------------------------------------------------------------------- the model

    def stream(self, _model: Model, _context: Any, options: Any) -> Any:
        """Answer the next request as planned."""
        script = self.plan.responses
        done = self.requests >= len(script)
        response = None if done else script[self.requests]
        self.requests += 1
        if response is None:
            return self._events(_GOOD, options)
        match response.fault, response.delivery:
            case "raise_call", _:
                raise RuntimeError("the stream function broke")
            case "not_a_stream", _:
                return 42
            case _, "pushed":
                stream = AssistantMessageEventStream()
                self.group.start_soon(self._push, stream, response, options)
                return stream
            case _, "thread":
                stream = AssistantMessageEventStream()
                self.start_thread(partial(self._push_all, stream, response))
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
        try:
            async for event in self._events(response, options):
                stream.push(event)
        except Exception as error:
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
                    return self.disturb()
                if response.fault == "abort_mid":
                    self.agent.abort()
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
                        raise self.cancellation()
                    case "no_terminal":
                        return
                    case "hang" | "hang_start":
                        self.disturb()
                        await anyio.sleep(FOREVER)
                    case "wait_signal":
                        self.disturb()
                        await options.signal.wait()
                        yield builder.error("Request was aborted", aborted=True)
                        return
                    case "swallow_cancel":
                        self.disturb()
                        try:
                            await anyio.sleep(FOREVER)
                        except asyncio.CancelledError:
                            pass
                    case "rubbish_event":
                        yield 42
                    case "error_event":
                        yield builder.error("provider says no")
                        return
                    case "abort_mid":
                        self.agent.abort()
                    case _:
                        pass
            if response.pause:
                await anyio.lowlevel.checkpoint()
            if not (fault == "no_start" and index == 0):
                yield event
        if fault in ("two_ends", "late_push"):
            yield pieces[1]
            yield pieces[-1]

    # -------------------------------------------------------------------------- the tools

    def _tool(self, name: str, plan: ToolPlan) -> AgentTool:
        options: dict[str, Any] = {
            "name": name,
            "execution_mode": "sequential" if plan.sequential else None,
            "timeout": 0.003 if plan.timeout else None,
        }

        async def deaf(n: int = 0) -> Any:
            return await self._act(plan, None, _nothing)

        async def listening(_id: str, _args: Any, signal: Any, on_update: Any) -> Any:
            return await self._act(plan, signal, on_update)

        def plain(_id: str, _args: Any, signal: Any, on_update: Any) -> Any:
            return self._act_plainly(plan, signal, on_update)

        if plan.place == "async_deaf":
            return tool(deaf, **options)
        if plan.place == "async":
            return AgentTool(execute=listening, parameters=SCHEMA, **options)
        if plan.place == "inline":
            options["thread"] = False
        if plan.place == "executor":
            options["executor"] = EXECUTOR
        return AgentTool(execute=plain, parameters=SCHEMA, **options)

    async def _act(self, plan: ToolPlan, signal: Any, on_update: Any) -> Any:
        match plan.action:
            case "slow" | "timeout":
                await anyio.sleep(2 * BLINK if plan.action == "slow" else 6 * BLINK)
            case "abort_slow":
                self.disturb()
                await anyio.sleep(2 * BLINK)
            case "hang":
                self.disturb()
                await anyio.sleep(FOREVER)
            case "wait_signal":
                self.disturb()
                await (anyio.sleep(FOREVER) if signal is None else signal.wait())
            case "swallow":
                self.disturb()
                try:
                    await anyio.sleep(FOREVER)
                except anyio.get_cancelled_exc_class():
                    await anyio.sleep(BLINK)
            case "raise_on_cancel":
                self.disturb()
                try:
                    await anyio.sleep(FOREVER)
                except anyio.get_cancelled_exc_class():
                    raise ValueError("too late") from None
            case "update":
                on_update("half")
                await anyio.lowlevel.checkpoint()
                on_update({"n": 2})
            case "nested_prompt":
                try:
                    await self.agent.prompt("no")
                except AgentBusyError:
                    return "busy"
            case "wait_idle":
                try:
                    await self.agent.wait_for_idle()
                except AgentStateError:
                    return "refused"
            case _:
                return self._act_anyhow(plan, on_update)
        return "done"

    def _act_plainly(self, plan: ToolPlan, signal: Any, on_update: Any) -> Any:
        match plan.action:
            case "slow" | "timeout":
                time.sleep(2 * BLINK if plan.action == "slow" else 6 * BLINK)
            case "abort_slow" | "hang" | "swallow" | "raise_on_cancel" | "wait_signal":
                self.disturb()
                time.sleep(5 * BLINK)
                if plan.action == "wait_signal":
                    signal.raise_if_aborted()
            case "update":
                on_update("half")
                on_update({"n": 2})
            case "nested_prompt" | "wait_idle":
                return "a plain function cannot await"
            case _:
                return self._act_anyhow(plan, on_update)
        return "done"

    def _act_anyhow(self, plan: ToolPlan, on_update: Any) -> Any:
        match plan.action:
            case "none":
                return None
            case "dict":
                return {"a": [1, float("nan"), {"b": None}]}
            case "rubbish":
                return object()
            case "no_content":
                return AgentToolResult(content=None)
            case "flagged":
                return AgentToolResult(content=[EDITED], details={"k": [1]}, is_error=True)
            case "cyclic":
                cycle: list[Any] = []
                cycle.append(cycle)
                return cycle
            case "image":
                return [b"\x89PNG\r\n\x1a\n0", "and text"]
            case "terminate":
                return AgentToolResult(content=[EDITED], terminate=True)
            case "abort":
                self.agent.abort()
            case "steer" | "follow_up":
                self.queue(plan.action)
            case "late_update":
                self.start_thread(partial(_later, on_update))
            case action if action in RAISED:
                raise RAISED[action]()
            case _:
                pass
        return "fine"

    # -------------------------------------------------------------------------- the hooks

    def _hook(self, plan: HookPlan) -> Callable[..., Any]:
        calls = 0

        def due() -> bool:
            nonlocal calls
            calls += 1
            return calls - 1 == plan.nth

        def plain(*args: Any) -> Any:
            if not due():
                return list(args[0]) if plan.name == "convert_to_llm" else None
            return self._answer(plan, args)

        async def awaited(*args: Any) -> Any:
            await anyio.lowlevel.checkpoint()
            if due():
                match plan.action:
                    case "hang":
                        self.disturb()
                        await anyio.sleep(FOREVER)
                    case "slow" | "abort_slow":
                        if plan.action != "slow":
                            self.disturb()
                        await anyio.sleep(2 * BLINK)
                    case _:
                        return self._answer(plan, args)
            return list(args[0]) if plan.name == "convert_to_llm" else None

        return awaited if plan.is_async else plain

    def _answer(self, plan: HookPlan, args: tuple[Any, ...]) -> Any:
        first = args[0] if args else None
        match plan.name, plan.action:
            case _, "raise":
                raise RuntimeError(f"{plan.name} broke")
            case _, "raise_cancelled":
                raise self.cancellation()
            case _, "abort" | "abort_slow" | "hang":
                self.agent.abort()
            case _, "steer" | "follow_up":
                self.queue(plan.action)
            case _, "busy":
                self._reset_refused()
            case _, "rubbish":
                return 42
            case "prepare_request" | "prepare_next_turn", "model":
                update = {"prepare_request": AgentRequestUpdate}.get(plan.name, AgentTurnUpdate)
                return update(model=Model(id="other"), thinking_level="high")
            case "prepare_request", "fewer_tools":
                context = AgentContext(messages=first.context.messages, tools=first.context.tools[1:])
                return AgentRequestUpdate(context=context)
            case _, "fewer_tools":
                context = AgentContext(messages=first.context.messages, tools=first.context.tools[1:])
                return AgentTurnUpdate(context=context)
            case _, "messages":
                return AgentTurnUpdate(messages=[self.say("m")])
            case "transform_context" | "before_model_request", "edit":
                return [*first, UserMessage(content="hint")]
            case _, "key":
                return "secret"
            case "after_model_response", "edit":
                return msgspec.structs.replace(first, content=(EDITED, *first.content))
            case _, "block" | "block_terminate":
                end = plan.action == "block_terminate"
                return BeforeToolCallResult(block=True, reason="no", terminate=end)
            case "before_tool_call", "edit":
                return BeforeToolCallResult(arguments={"n": "3"})
            case _, "edit_bad":
                return BeforeToolCallResult(arguments={"n": "x"})
            case _, "in_place":
                first.args["n"] = object()
            case "after_tool_call", _:
                return {
                    "terminate": AfterToolCallResult(terminate=True),
                    "flip": AfterToolCallResult(is_error=not first.is_error),
                    "content": AfterToolCallResult(content=[EDITED], details=[1]),
                }.get(plan.action)
            case "after_tool_result", "edit":
                return msgspec.structs.replace(first, content=(EDITED,), is_error=True)
            case _, "wrong_id":
                return msgspec.structs.replace(first, tool_call_id="other")
            case _, "end" | "continue":
                return TurnDecision(action=plan.action)
            case _, "yes":
                return True
            case _:
                pass
        return list(first) if plan.name == "convert_to_llm" else None

    def _reset_refused(self) -> None:
        try:
            self.agent.reset()
        except AgentBusyError:
            return
        assert not self.agent.state.is_streaming, "reset() is refused during a run (AB-06)"

    # ---------------------------------------------------------------------- the listeners

    def _subscribe(self, plan: ListenerPlan) -> None:
        seen = 0
        left = plan.times

        def due(event: Any) -> bool:
            nonlocal seen, left
            seen += 1
            if plan.action == "prompt_on_idle":
                ready = isinstance(event, AgentIdle) and left == plan.times
            else:
                ready = seen > plan.nth and left > 0
            left -= ready
            return ready and not self._quiet

        def plain(event: Any, _signal: Any) -> None:
            if due(event):
                self._react(plan, unsubscribe, event)

        async def awaited(event: Any, _signal: Any) -> None:
            if due(event):
                await (anyio.sleep(BLINK) if plan.action == "slow" else anyio.lowlevel.checkpoint())
                if plan.action == "prompt_on_idle":
                    await self.agent.prompt([self.say("i")])
                self._react(plan, unsubscribe, event)

        listener = awaited if plan.is_async else plain
        unsubscribe = self.agent.subscribe(listener, events=_ALL)

    def _react(self, plan: ListenerPlan, unsubscribe: Callable[[], None], event: Any) -> None:
        match plan.action:
            case "raise":
                raise ListenerError(f"a listener broke at {event.type}")
            case "raise_cancelled":
                raise self.cancellation()  # reaches the host as a plain error
            case "unsubscribe":
                unsubscribe()
            case "subscribe":
                self.agent.subscribe(lambda _event, _signal: None)
            case "abort":
                self.agent.abort()
            case "steer" | "follow_up":
                if plan.nth + 3 > len(self.said):
                    self.queue(plan.action)
            case "thread_steer" | "thread_follow_up":
                if plan.nth + 3 > len(self.said):
                    message = self.say("t")
                    kind = plan.action.removeprefix("thread_")
                    self.start_thread(partial(getattr(self.agent, kind), message))
            case "thread_abort":
                self.start_thread(self.agent.abort)
            case "cancel":
                self.disturb("cancel")
            case "busy":
                if self.agent.state.is_streaming:
                    self._reset_refused()
            case _:
                pass


RAISED: dict[str, Callable[[], BaseException]] = {
    "raise": lambda: ValueError("bad luck"),
    "raise_silent": ValueError,
    "raise_cancelled": asyncio.CancelledError,
    "raise_interrupt": KeyboardInterrupt,
    "raise_exit": lambda: SystemExit(3),
    "raise_stop": StopIteration,
    "raise_stop_async": StopAsyncIteration,
    "raise_generator_exit": GeneratorExit,
    "raise_group": lambda: BaseExceptionGroup("many", [ValueError("a"), KeyboardInterrupt()]),
}


_GOOD = Response(
    blocks=(Block(kind="text", text="good"),),
    stop=None, delivery="generator", fault=None, at=0, pause=False,
)  # fmt: skip


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


def _later(on_update: Callable[[Any], object]) -> None:
    time.sleep(BLINK)
    on_update("late")


def _nothing(_partial: object) -> None:
    """Take no progress."""
