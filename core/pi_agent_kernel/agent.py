"""The agent: state, queues and listeners around the loop.

A run lives in a task of its own on the loop that awaits `prompt`. Each of its events is applied
to the state, then logged, then handed to the listeners one after another; the run waits for
them. Cancelling whoever awaits `prompt` aborts the run; it never tears it apart.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pi_agent_kernel.errors import AgentBusyError, AgentStateError, NothingToContinueError
from pi_agent_kernel.log import EventLog
from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    SystemMessage,
    ThinkingLevel,
)
from pi_agent_kernel.option_checks import check_option
from pi_agent_kernel.prompt_input import PromptInput, as_message, as_messages, summary_of
from pi_agent_kernel.queues import MessageQueue, QueueMode, Queues
from pi_agent_kernel.request import (
    ClientIdentity,
    Model,
    StreamFn,
    Transport,
    get_default_stream_fn,
)
from pi_agent_kernel.state import AgentState
from pi_agent_kernel.subscriptions import Listener, Subscriptions
from pi_agent_kernel.transcript import get_current_system_message

if TYPE_CHECKING:
    from pi_agent_kernel import hooks
    from pi_agent_kernel.abort import AbortSignal
    from pi_agent_kernel.active_run import ActiveRun
    from pi_agent_kernel.explain import Explanation
    from pi_agent_kernel.invocation import RunSync
    from pi_agent_kernel.models.retry_policy import RetryPolicy
    from pi_agent_kernel.tools import AgentTool

__all__ = ["Agent"]

# Two threads may try to start a run of one agent; the check takes no time worth a lock each.
_starting = threading.Lock()


class Agent:
    """Prompt a model, run the tools it calls, keep the transcript, announce every step.

    All options are keyword-only; hooks and listeners are plain or async. Attributes of the same
    names may be reassigned and count from the next run (CO-12).

    Args:
        stream_fn: The only seam to a model; by default what `set_default_stream_fn` was given.
        system_prompt: Text of the leading system message; ignored if `messages` has one.
        model: The model; by default one of which nothing is known.
        thinking_level: "off", "minimal", "low", "medium", "high", "xhigh" or "max".
        tools: What the model may call; names are unique.
        messages: The transcript to start from; the list is copied.
        convert_to_llm: Maps the transcript to what the model understands; by default keeps the
            four standard roles.
        transform_context: Edits the messages of each request.
        prepare_request: Edits context, model or thinking level before each request.
        finish_turn: Decides after each turn how the run goes on.
        prepare_next_turn: Edits the run before a further turn.
        prepare_next_turn_with_context: The same with the finished turn; wins over the former.
        before_tool_call: Blocks a call or edits its arguments.
        after_tool_call: Edits a result.
        before_model_request: Edits the messages of each request, after `transform_context`.
        after_model_response: Replaces a response before it is recorded.
        after_tool_result: Replaces a result message before it is announced.
        should_stop: Ends the run after a turn when it returns true for the state.
        get_api_key: Gives the key for a provider before each request.
        session_id: Handed to the stream function; providers use it as a cache key.
        thinking_budgets: Tokens by thinking level, handed on.
        transport: "auto", "sse", "websocket" or "websocket-cached", handed on.
        max_retry_delay_ms: Longest retry delay in milliseconds that a server may ask for, handed
            on; 60,000 by default, 0 for any.
        retry: Has replies that fail for a passing reason asked for again; by default the run ends.
        identity: Merged field by field over the default identity, handed on.
        steering_mode: "one-at-a-time" or "all".
        follow_up_mode: "one-at-a-time" or "all".
        tool_execution: "parallel" or "sequential".
        abort_grace: Seconds that tools, hooks and streams which know of an abort have to end.
        run_sync: How plain tool functions run: takes a call without arguments and returns or
            awaits its value. By default they run in worker threads.
        on_payload: Sees, and may replace, the payload of a request; handed on.
        on_response: Sees the response's status; handed on.
        on_provider_stream_event: Sees each raw event; handed on.
        max_log_events: How many events `log` keeps at least; None keeps all.

    Raises:
        TypeError: An option is of a wrong type; assigning a wrong one raises the same.
        ValueError: There is no stream function, two tools share a name, or an option is out of
            range.

    Source: CO-01 to CO-14.
    """

    __slots__ = (
        "__weakref__", "_active", "_queues", "_state", "_subscriptions", "abort_grace",
        "after_model_response", "after_tool_call", "after_tool_result", "before_model_request",
        "before_tool_call", "convert_to_llm", "finish_turn", "get_api_key", "identity", "log",
        "max_retry_delay_ms", "on_payload", "on_provider_stream_event", "on_response",
        "prepare_next_turn", "prepare_next_turn_with_context", "prepare_request", "retry",
        "run_sync", "session_id", "should_stop", "stream_fn", "thinking_budgets", "tool_execution",
        "transform_context", "transport",
    )  # fmt: skip

    def __init__(
        self,
        *,
        stream_fn: StreamFn | None = None,
        system_prompt: str = "",
        model: Model | None = None,
        thinking_level: ThinkingLevel = "off",
        tools: Sequence[AgentTool] = (),
        messages: Sequence[AgentMessage] = (),
        convert_to_llm: hooks.ConvertToLlm | None = None,
        transform_context: hooks.TransformContext | None = None,
        prepare_request: hooks.PrepareRequest | None = None,
        finish_turn: hooks.FinishTurn | None = None,
        prepare_next_turn: hooks.PrepareNextTurn | None = None,
        prepare_next_turn_with_context: hooks.PrepareNextTurnWithContext | None = None,
        before_tool_call: hooks.BeforeToolCall | None = None,
        after_tool_call: hooks.AfterToolCall | None = None,
        before_model_request: hooks.BeforeModelRequest | None = None,
        after_model_response: hooks.AfterModelResponse | None = None,
        after_tool_result: hooks.AfterToolResult | None = None,
        should_stop: Callable[[AgentState], bool | Awaitable[bool]] | None = None,
        get_api_key: hooks.GetApiKey | None = None,
        session_id: str | None = None,
        thinking_budgets: dict[str, int] | None = None,
        transport: Transport = "auto",
        max_retry_delay_ms: int | None = None,
        retry: RetryPolicy | None = None,
        identity: ClientIdentity | None = None,
        steering_mode: QueueMode = "one-at-a-time",
        follow_up_mode: QueueMode = "one-at-a-time",
        tool_execution: hooks.ToolExecutionMode = "parallel",
        abort_grace: float = 0.25,
        run_sync: RunSync | None = None,
        on_payload: Callable[..., Any] | None = None,
        on_response: Callable[..., Any] | None = None,
        on_provider_stream_event: Callable[..., Any] | None = None,
        max_log_events: int | None = 100_000,
    ) -> None:
        self.stream_fn: StreamFn = get_default_stream_fn() if stream_fn is None else stream_fn
        self.convert_to_llm: hooks.ConvertToLlm | None = convert_to_llm
        self.transform_context: hooks.TransformContext | None = transform_context
        self.prepare_request: hooks.PrepareRequest | None = prepare_request
        self.finish_turn: hooks.FinishTurn | None = finish_turn
        self.prepare_next_turn: hooks.PrepareNextTurn | None = prepare_next_turn
        self.prepare_next_turn_with_context: hooks.PrepareNextTurnWithContext | None = (
            prepare_next_turn_with_context
        )
        self.before_tool_call: hooks.BeforeToolCall | None = before_tool_call
        self.after_tool_call: hooks.AfterToolCall | None = after_tool_call
        self.before_model_request: hooks.BeforeModelRequest | None = before_model_request
        self.after_model_response: hooks.AfterModelResponse | None = after_model_response
        self.after_tool_result: hooks.AfterToolResult | None = after_tool_result
        self.should_stop: Callable[[AgentState], bool | Awaitable[bool]] | None = should_stop
        self.get_api_key: hooks.GetApiKey | None = get_api_key
        self.session_id: str | None = session_id
        self.thinking_budgets: dict[str, int] | None = thinking_budgets
        self.transport: Transport = transport
        self.max_retry_delay_ms: int | None = max_retry_delay_ms
        self.retry: RetryPolicy | None = retry
        self.identity: ClientIdentity | None = identity
        self.tool_execution: hooks.ToolExecutionMode = tool_execution
        self.abort_grace: float = abort_grace
        self.run_sync: RunSync | None = run_sync
        self.on_payload: Callable[..., Any] | None = on_payload
        self.on_response: Callable[..., Any] | None = on_response
        self.on_provider_stream_event: Callable[..., Any] | None = on_provider_stream_event
        check_option("system_prompt", system_prompt)
        #: Every event with its time and the state fields it changed.
        self.log: EventLog = EventLog(max_log_events)
        self._state = AgentState(
            system_prompt=system_prompt,
            model=model,
            thinking_level=thinking_level,
            tools=tools,
            messages=messages,
            log=self.log,
        )
        self._queues = Queues(steering_mode, follow_up_mode)
        self._subscriptions = Subscriptions(self.log.notes)
        self._active: ActiveRun | None = None

    if not TYPE_CHECKING:  # so that a checker still finds a misspelt attribute

        def __setattr__(self, name: str, value: object) -> None:
            check_option(name, value)
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        state = "running" if self._state.is_streaming else "idle"
        counts = f"{len(self._state.messages)} messages, {len(self._state.tools)} tools"
        return f"<{type(self).__name__}: {state}, model {self._state.model.id}, {counts}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "An agent is not copied or pickled: keep to_json(agent.state.messages) and make "
            "another with Agent(messages=...)."
        )

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    # ----------------------------------------------------------------------------- reading

    @property
    def state(self) -> AgentState:
        """The state; `pi_agent_kernel.state.FIELDS` says who writes which field, and when."""
        return self._state

    @state.setter
    def state(self, _value: object) -> NoReturn:
        raise AttributeError("agent.state is read-only: assign its fields, or reset() the agent.")

    @property
    def signal(self) -> AbortSignal | None:
        """The abort signal of the active run, or None (AB-01)."""
        active = self._active
        return None if active is None else active.controller.signal

    def subscribe(
        self, listener: Listener, events: Iterable[type[Any] | str] | None = None
    ) -> Callable[[], None]:
        """Have a listener called with every event, in order.

        Listeners are awaited one after another in the order they were registered; the run waits
        for them. One that raises fails the run (FL-05). Registering it again replaces its
        filter. A listener added or removed during an event counts from the next one.

        Args:
            listener: Called with the event and the run's abort signal; plain or async.
            events: Event classes or wire names it wants; by default the ten `AGENT_EVENTS`.

        Returns:
            A function that takes the listener off again.

        Raises:
            ValueError: An event name is unknown.

        Source: EV-04, EV-05, EV-07.
        """
        return self._subscriptions.add(listener, events)

    def explain(self, question: str | None = None) -> Explanation:
        """Say in words what happened and why, from `log` alone, citing its numbers.

        Args:
            question: Such as "why did sql not run?", "why is it stuck?" or "request 3"; the last
                run by default.

        Returns:
            A text; its `answers` hold each cause with its records, its rule and a remedy.
        """
        from pi_agent_kernel.explain import explain

        return explain(self.log, question)

    # ----------------------------------------------------------------------------- running

    async def prompt(
        self, input: PromptInput, images: Sequence[ImageContent] | None = None
    ) -> None:
        """Run on new input until there is nothing left to do.

        Args:
            input: Text, one message, or several in transcript order. Text becomes a user
                message of one text block and the images. An empty list is `continue_()`.
            images: Images that go with a text.

        Raises:
            AgentBusyError: A run is active; nothing was changed.
            TypeError: The input is none of these.

        A failure inside the run is not raised: the last message has stop_reason "error" and
        `state.error_message` says why. Only a listener that raises again while that failure is
        announced makes this raise (FL-05).

        Cancellation: aborts the run, waits until it has closed itself, re-raises.

        Source: LP-13, LP-16, AB-09, EV-06.
        """
        if self._active is not None:
            self._refuse("prompt", input)
        messages = as_messages(input, images)
        if not messages:
            await self.continue_()
            return
        self.log.note("prompt", summary_of(messages), messages=tuple(messages))
        await self._run(messages)

    async def continue_(self) -> None:
        """Run on the transcript as it is, or on queued messages after an assistant's.

        With an assistant message at the end, one batch of steering messages, else one of
        follow-ups, becomes the prompt.

        Raises:
            AgentBusyError: A run is active.
            NothingToContinueError: There is nothing to go on from; queues are untouched.

        Cancellation: as `prompt`.

        Source: LP-14, LP-15, FL-08.
        """
        if self._active is not None:
            self._refuse("continue")
        messages = self._state.messages
        if all(isinstance(message, SystemMessage) for message in messages):
            raise NothingToContinueError
        if not isinstance(messages[-1], AssistantMessage):
            self.log.note("continue_")
            await self._run(None)
            return
        if not self.has_queued_messages():
            raise NothingToContinueError("assistant")
        self.log.note("continue_")
        steering = self._queues.drain_steering()
        queued = steering or self._queues.drain_follow_up()
        await self._run(queued, skip_first_poll=bool(steering), queued=True)

    def prompt_sync(self, input: PromptInput, images: Sequence[ImageContent] | None = None) -> None:
        """Run like `prompt`, blocking; in a script, a thread, or a thread with a running loop.

        With a loop running in this thread the run gets a loop of its own in another thread, and
        this thread, and its loop, wait. Ctrl-C aborts the run.

        Raises:
            AgentBusyError: A run is active.

        Source: P4, api.md.
        """
        from pi_agent_kernel.blocking import run_blocking

        run_blocking(partial(self.prompt, input, images), partial(self._abort, "Ctrl-C"))

    def abort(self) -> None:
        """Abort the active run; do nothing when idle. Callable from any thread or signal handler.

        The run closes itself with an assistant message of stop_reason "aborted". Read the state
        after `wait_for_idle()`.

        Source: AB-01, AB-07, AB-08.
        """
        self._abort()

    def _abort(self, why: str = "") -> None:
        active = self._active
        if active is not None:
            self.log.note("abort", why)
            active.controller.abort()

    async def wait_for_idle(self) -> None:
        """Wait until the active run has settled, its agent_end listeners included.

        Raises:
            AgentStateError: It was called from within the run, which would wait for itself.

        Source: AB-05, EV-06.
        """
        active = self._active
        if active is None:
            return
        if active.is_inside():
            raise AgentStateError(
                "wait_for_idle() was called by a listener, hook or tool of this run, so it would "
                "wait for itself. Start a task for it, or subscribe to agent_idle."
            )
        await active.wait()

    def reset(self) -> None:
        """Empty the conversation down to the replayed prompt and tools; clear queues and error.

        Raises:
            AgentBusyError: A run is active; nothing was changed.

        Source: AB-06, D13.
        """
        if self._active is not None:
            self._refuse("reset")
        self.log.note("reset")
        head = get_current_system_message(self._state.messages)
        self._state.messages = [] if head is None else [head]
        self._state.end_run()
        self._state.clear_error()
        self._queues.steering.clear()
        self._queues.follow_up.clear()

    # ------------------------------------------------------------------------------ queues

    def steer(self, message: str | AgentMessage) -> None:
        """Queue a message for after the current turn; callable from any thread (QU-01)."""
        self._put("steer", self._queues.steering, message)

    def follow_up(self, message: str | AgentMessage) -> None:
        """Queue a message for when the agent would stop; callable from any thread (QU-01)."""
        self._put("follow_up", self._queues.follow_up, message)

    def peek_queued_messages(self) -> list[AgentMessage]:
        """Return what would be delivered next: steering if any, else follow-up (QU-05)."""
        return self._queues.peek()

    def queued_messages(self) -> dict[str, list[AgentMessage]]:
        """Return all that is queued: under "steer" and "follow", the next one first."""
        return self._queues.messages()

    def has_queued_messages(self) -> bool:
        """Say whether anything is queued (QU-05)."""
        return len(self._queues) > 0

    def clear_steering_queue(self) -> None:
        """Drop queued steering messages (QU-06)."""
        self._queues.steering.clear()
        self.log.note("clear_steering_queue")

    def clear_follow_up_queue(self) -> None:
        """Drop queued follow-up messages (QU-06)."""
        self._queues.follow_up.clear()
        self.log.note("clear_follow_up_queue")

    def clear_all_queues(self) -> None:
        """Drop all queued messages (QU-06)."""
        self.clear_steering_queue()
        self.clear_follow_up_queue()

    @property
    def steering_mode(self) -> QueueMode:
        """How much one steering poll delivers; counts from the next poll (QU-02)."""
        return self._queues.steering.mode

    @steering_mode.setter
    def steering_mode(self, mode: QueueMode) -> None:
        self._queues.steering.mode = mode

    @property
    def follow_up_mode(self) -> QueueMode:
        """How much one follow-up poll delivers; counts from the next poll (QU-02)."""
        return self._queues.follow_up.mode

    @follow_up_mode.setter
    def follow_up_mode(self, mode: QueueMode) -> None:
        self._queues.follow_up.mode = mode

    def _put(self, name: str, queue: MessageQueue, message: str | AgentMessage) -> None:
        queued = as_message(message)
        queue.put(queued)
        self.log.note(name, summary_of([queued]), messages=(queued,))

    def _refuse(self, action: str, given: object = ()) -> NoReturn:
        messages: list[AgentMessage] = []
        with contextlib.suppress(TypeError, ValueError):
            messages = as_messages(given)
        said = summary_of(messages) if messages else ""
        self.log.note(f"{action}_refused", said, messages=tuple(messages))
        raise AgentBusyError(action)

    # --------------------------------------------------------------------------- one run

    async def _run(
        self,
        prompts: Sequence[AgentMessage] | None,
        *,
        skip_first_poll: bool = False,
        queued: bool = False,
    ) -> None:
        # Loaded with the first run: making an agent needs neither the loop nor an event loop.
        from pi_agent_kernel.active_run import ActiveRun, config_of

        active = ActiveRun(self._state, self.log, self._subscriptions)
        with _starting:
            if self._active is not None:
                self._refuse("prompt", prompts or ())
            self._active = active
        cancelled = True
        try:
            self._state.begin_run()
            config = config_of(self, self._queues, active, skip_first_poll=skip_first_poll)
            config.prompts_are_queued = queued
            error = await active.carry_out(prompts, config, self)
            cancelled = False
        finally:
            self._state.end_run()
            self._active = None
            active.settle()
            await active.announce_idle(cancelled=cancelled)
        if error is not None:
            raise error
