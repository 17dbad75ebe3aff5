"""The loop: turns of one model response and its tool results, until nothing is left to do.

    agent_start, turn_start, prompts
    repeat
        prepare the next turn, turn_start            (not before the first)
        append pending messages                      (tool changes are declared here)
        prepare_request -> transform -> before_model_request -> convert -> key -> stream_fn
        assistant message
        error or abort?  finish_turn, turn_end, agent_end
        tool calls -> tool results
        finish_turn, turn_end
        poll steering
    until no tool calls, no steering; then poll follow-ups
    agent_end

Stateless: everything comes in by arguments and goes out by `emit`. The `Agent` adds state,
queues and listeners.

Source: LP-01 to LP-16, LL-01 to LL-07, DEVIATIONS 1, 4, 7.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import isasyncgen, isawaitable
from typing import Any, TypeVar, cast

import msgspec

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.backend import Backend, Expiry, current_backend
from pi_agent_kernel.errors import NothingToContinueError
from pi_agent_kernel.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelRequestStart,
    ModelResponse,
    StreamDone,
    StreamError,
    StreamStart,
    TurnEnd,
    TurnStart,
)
from pi_agent_kernel.execution import Emit, ToolBatch, ToolSettings
from pi_agent_kernel.hooks import (
    AfterModelResponse,
    AfterToolCall,
    AfterToolResult,
    AgentContext,
    AgentTurnUpdate,
    BeforeModelRequest,
    BeforeToolCall,
    ConvertToLlm,
    FinishTurn,
    GetApiKey,
    GetQueuedMessages,
    PrepareNextTurnWithContext,
    PrepareRequest,
    PrepareRequestContext,
    ToolExecutionMode,
    TransformContext,
    TurnContext,
    TurnDecision,
)
from pi_agent_kernel.invocation import RunSync
from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    Message,
    SystemMessage,
    ThinkingLevel,
    Tool,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.request import (
    DEFAULT_IDENTITY,
    ClientIdentity,
    Model,
    Prefix,
    StreamFn,
    StreamOptions,
    TranscriptContext,
    Transport,
    get_default_stream_fn,
    merge_client_identity,
)
from pi_agent_kernel.streams import EventStream
from pi_agent_kernel.tools import AgentTool, to_tool_declaration
from pi_agent_kernel.transcript import Replay, declare_tool_changes

__all__ = [
    "AgentLoopConfig",
    "agent_loop",
    "agent_loop_continue",
    "default_convert_to_llm",
    "run_agent_loop",
    "run_agent_loop_continue",
]

T = TypeVar("T")

#: The error text of the message that closes an aborted run (DEVIATIONS 1).
REQUEST_ABORTED = "Request was aborted"

_STANDARD = (UserMessage, AssistantMessage, ToolResultMessage, SystemMessage)


def default_convert_to_llm(messages: Sequence[AgentMessage]) -> Sequence[Message]:
    """Keep the four standard roles, in order; drop every other (CO-06)."""
    return [message for message in messages if isinstance(message, _STANDARD)]


class AgentLoopConfig(msgspec.Struct, kw_only=True):
    """Hold what a run needs beside its context; only `model` is required (LL-07).

    The hooks are described in `hooks`. `get_steering_messages` and `get_follow_up_messages`
    return the next batch of queued messages, `return_messages` takes a batch back that could
    not be used, and `has_queued_messages` says whether anything waits.
    """

    model: Model
    convert_to_llm: ConvertToLlm = default_convert_to_llm
    transform_context: TransformContext | None = None
    before_model_request: BeforeModelRequest | None = None
    after_model_response: AfterModelResponse | None = None
    get_api_key: GetApiKey | None = None
    api_key: str | None = None
    prepare_request: PrepareRequest | None = None
    finish_turn: FinishTurn | None = None
    should_stop: Callable[[], Any] | None = None
    prepare_next_turn: PrepareNextTurnWithContext | None = None
    before_tool_call: BeforeToolCall | None = None
    after_tool_call: AfterToolCall | None = None
    after_tool_result: AfterToolResult | None = None
    tool_execution: ToolExecutionMode = "parallel"
    abort_grace: float = 0.25
    run_sync: RunSync | None = None
    get_steering_messages: GetQueuedMessages | None = None
    get_follow_up_messages: GetQueuedMessages | None = None
    return_messages: Callable[[Sequence[AgentMessage]], object] | None = None
    has_queued_messages: Callable[[], bool] | None = None
    reasoning: str | None = None
    session_id: str | None = None
    transport: Transport | None = None
    thinking_budgets: Any = None
    max_retry_delay_ms: int | None = None
    identity: ClientIdentity | None = None
    on_payload: Callable[..., Any] | None = None
    on_response: Callable[..., Any] | None = None
    on_provider_stream_event: Callable[..., Any] | None = None
    lifecycle_events: bool = False


# ----------------------------------------------------------------------------- entry points


async def run_agent_loop(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    emit: Callable[[AgentEvent], object],
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
) -> list[AgentMessage]:
    """Run on new messages until there is nothing left to do.

    Args:
        prompts: Messages that start the run.
        context: Transcript and tools so far; never changed (DEVIATIONS 7).
        config: Everything else.
        emit: Takes each event, plain or async; awaited before the run goes on.
        signal: Aborts the run; None for a run that cannot be aborted.
        stream_fn: Asks the model; the default one if omitted.

    Returns:
        The messages that the run added, the prompts first.

    Raises:
        Exception: Whatever a hook, the stream function or `emit` raised.

    Source: LL-02.
    """
    run = _Run(context, config, cast("Emit", emit), signal, stream_fn)
    await run.send(AgentStart())
    await run.send(TurnStart())
    for message in run.open_with(prompts):
        await run.send(MessageStart(message=message))
        await run.send(MessageEnd(message=message))
    await run.to_the_end()
    return run.new_messages


async def run_agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    emit: Callable[[AgentEvent], object],
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
) -> list[AgentMessage]:
    """Run on the context as it is.

    Raises:
        NothingToContinueError: It is empty or ends with an assistant message (LL-04).

    Source: LL-02; the rest as `run_agent_loop`.
    """
    _check_tail(context)
    run = _Run(context, config, cast("Emit", emit), signal, stream_fn)
    await run.send(AgentStart())
    await run.send(TurnStart())
    await run.to_the_end()
    return run.new_messages


def agent_loop(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
) -> EventStream[AgentEvent, list[AgentMessage]]:
    """Start a run and return its events as a stream.

    The stream only observes: the run does not wait for its reader, and goes on to its end when
    the reader stops. `await stream.result()` gives the new messages; if the run raises, both
    iteration and `result()` raise the same.

    Source: LL-01, LL-03, LL-06.
    """
    return _observed(
        lambda emit: run_agent_loop(prompts, context, config, emit, signal, stream_fn)
    )


def agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
) -> EventStream[AgentEvent, list[AgentMessage]]:
    """Start a run on the context as it is and return its events as a stream.

    Raises:
        NothingToContinueError: At once, before any event (LL-04).

    Source: LL-01; the rest as `agent_loop`.
    """
    _check_tail(context)
    return _observed(
        lambda emit: run_agent_loop_continue(context, config, emit, signal, stream_fn)
    )


def _observed(
    start: Callable[[Callable[[AgentEvent], object]], Awaitable[list[AgentMessage]]],
) -> EventStream[AgentEvent, list[AgentMessage]]:
    stream = EventStream[AgentEvent, list[AgentMessage]](
        lambda event: isinstance(event, AgentEnd),
        lambda event: list(cast("AgentEnd", event).messages),
    )

    async def work() -> None:
        try:
            stream.end(await start(stream.push))
        except BaseException as error:
            stream.fail(error)
            if not isinstance(error, Exception):
                raise

    current_backend().detach(work)
    return stream


def _check_tail(context: AgentContext) -> None:
    if not context.messages:
        raise NothingToContinueError
    if isinstance(context.messages[-1], AssistantMessage):
        raise NothingToContinueError("assistant")


# --------------------------------------------------------------------------------- one run


class _Run:
    """Hold one run's context and carry it through its turns."""

    def __init__(
        self,
        context: AgentContext,
        config: AgentLoopConfig,
        emit: Emit,
        signal: AbortSignal | None,
        stream_fn: StreamFn | None,
    ) -> None:
        self.config = config
        self.signal = signal
        self.backend: Backend = current_backend()
        self.stream_fn = stream_fn or get_default_stream_fn()
        self.model = config.model
        self.reasoning = config.reasoning
        self.new_messages: list[AgentMessage] = []
        self.identity = merge_client_identity(DEFAULT_IDENTITY, config.identity)
        self._emit = emit
        self._turn_open = True
        self._last_turn: TurnContext | None = None
        self.use(context)

    # -------------------------------------------------------------------- the transcript

    def use(self, context: AgentContext) -> None:
        """Go on with this context; its lists are copied."""
        self.messages: list[AgentMessage] = list(context.messages)
        self.tools: tuple[AgentTool, ...] = tuple(context.tools)
        self.tools_by_name = {tool.name: tool for tool in reversed(self.tools)}
        self._executable: list[Tool] = [to_tool_declaration(tool) for tool in self.tools]
        self._replay = Replay(self.messages)
        self._declared_at = -1
        self._for_model: list[Message] = list(default_convert_to_llm(self.messages))

    @property
    def context(self) -> AgentContext:
        """The context as it is now."""
        return AgentContext(messages=Prefix(self.messages), tools=self.tools)

    def _append(self, message: AgentMessage) -> None:
        self.messages.append(message)
        self.new_messages.append(message)
        if isinstance(message, _STANDARD):
            self._for_model.append(message)
            if isinstance(message, SystemMessage):
                self._replay.add(message)

    def _declared(self, pending: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        """Declare tool changes among the messages about to be appended (TR-05)."""
        if self._declared_at == self._replay.version and not any(
            isinstance(message, SystemMessage) for message in pending
        ):
            return pending
        return declare_tool_changes(self._replay, self._executable, pending)

    def open_with(self, prompts: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        """Put the prompts into the context and return them, tool changes declared."""
        opening = self._declared(prompts)
        for message in opening:
            self._append(message)
        self._declared_at = self._replay.version
        return opening

    # --------------------------------------------------------------------------- the turns

    async def to_the_end(self) -> None:
        """Take turns until nothing is left to do."""
        config = self.config
        pending = await self._poll(config.get_steering_messages)
        again = False
        while True:
            more = True
            while more or pending:
                prepared: Sequence[AgentMessage] = ()
                if self._last_turn is not None:
                    prepared, pending = await self._next_turn(self._last_turn, pending)
                if self.aborted:
                    return await self._close_aborted(pending)
                await self._append_pending([*prepared, *pending])
                message = await self._request()
                if message is None:
                    return await self._close_aborted(())
                if message.stop_reason in ("error", "aborted"):
                    await self._end_turn(message, [])
                    return await self.send(AgentEnd(messages=self.new_messages))
                results, more = await self._run_tools(message)
                decision = await self._end_turn(message, results)
                if decision == "end":
                    return await self.send(AgentEnd(messages=self.new_messages))
                if self.aborted:
                    if more or decision == "continue" or self._has_queued():
                        return await self._close_aborted(())
                    return await self.send(AgentEnd(messages=self.new_messages))
                pending = await self._poll(config.get_steering_messages)
                again = decision == "continue" and not more and not pending
            pending = await self._poll(config.get_follow_up_messages)
            if not pending and not again:
                return await self.send(AgentEnd(messages=self.new_messages))

    async def _next_turn(
        self, turn: TurnContext, pending: Sequence[AgentMessage]
    ) -> tuple[Sequence[AgentMessage], Sequence[AgentMessage]]:
        """Prepare and open a turn after another; returns what to append to it (LP-09)."""
        config = self.config
        prepared: Sequence[AgentMessage] = ()
        if config.prepare_next_turn is not None and not self.aborted:
            update = await self._ask(config.prepare_next_turn(turn, self.signal))
            if update is not None:
                self._update(update.context, update.model, update.thinking_level)
                prepared = cast("AgentTurnUpdate", update).messages or ()
        # Preparing may take long. Poll again, but never deliver two batches in one turn (LP-10).
        if not pending:
            pending = await self._poll(config.get_steering_messages)
        if not self.aborted:
            await self._open_turn()
        return prepared, pending

    async def _open_turn(self) -> None:
        self._turn_open = True
        await self.send(TurnStart())

    async def _append_pending(self, pending: Sequence[AgentMessage]) -> None:
        """Append messages with their events, tool changes declared among them."""
        for message in self._declared(pending):
            await self.send(MessageStart(message=message))
            await self.send(MessageEnd(message=message))
            self._append(message)
        self._declared_at = self._replay.version

    async def _run_tools(
        self, message: AssistantMessage
    ) -> tuple[list[ToolResultMessage], bool]:
        """Execute the calls because they are there, whatever the stop reason (LP-02)."""
        calls = message.tool_calls
        if not calls:
            return [], False
        config = self.config
        batch = ToolBatch(
            ToolSettings(
                tools=self.tools_by_name,
                assistant_message=message,
                context=self.context,
                signal=self.signal,
                backend=self.backend,
                before_tool_call=config.before_tool_call,
                after_tool_call=config.after_tool_call,
                after_tool_result=config.after_tool_result,
                mode=config.tool_execution,
                abort_grace=config.abort_grace,
                run_sync=config.run_sync,
            ),
            self._emit,
            lifecycle=config.lifecycle_events,
        )
        await batch.run(calls)
        for result in batch.results:
            self._append(result)
        return batch.results, not batch.terminate

    async def _end_turn(
        self, message: AssistantMessage, results: list[ToolResultMessage]
    ) -> str | None:
        """Ask `finish_turn` and `should_stop`, close the turn, return the decision (LP-06)."""
        config = self.config
        self._last_turn = turn = TurnContext(
            message=message,
            tool_results=tuple(results),
            context=self.context,
            new_messages=Prefix(self.new_messages),
        )
        decision: TurnDecision | None = None
        if config.finish_turn is not None:
            decision = await self._ask(config.finish_turn(turn, self.signal))
        stop = False
        if config.should_stop is not None:
            stop = bool(await self._ask(config.should_stop()))
        await self.send(TurnEnd(message=message, tool_results=tuple(results)))
        self._turn_open = False
        if stop:
            return "end"
        return None if decision is None else decision.action

    async def _close_aborted(self, unused: Sequence[AgentMessage]) -> None:
        """Close an aborted run visibly, without a dead request (DEVIATIONS 1)."""
        if unused and self.config.return_messages is not None:
            self.config.return_messages(unused)
        if not self._turn_open:
            await self._open_turn()
        message = self._closing_message("aborted", REQUEST_ABORTED)
        await self.send(MessageStart(message=message))
        await self.send(MessageEnd(message=message))
        self._append(message)
        await self._end_turn(message, [])
        await self.send(AgentEnd(messages=self.new_messages))

    # ------------------------------------------------------------------------- the request

    async def _request(self) -> AssistantMessage | None:
        """Ask the model and stream its answer; None if the run was aborted before."""
        config, signal = self.config, self.signal
        if self.aborted:
            return None
        if config.prepare_request is not None:
            request = PrepareRequestContext(
                context=self.context,
                model=self.model,
                thinking_level=cast("ThinkingLevel", self.reasoning or "off"),
            )
            update = await self._ask(config.prepare_request(request, signal))
            if update is not None:
                self._update(update.context, update.model, update.thinking_level)
        messages: Sequence[AgentMessage] = self.messages
        for hook in (config.transform_context, config.before_model_request):
            if hook is not None and not self.aborted:
                answer = await self._ask(hook(list(messages), signal))
                messages = messages if answer is None else answer
        if self.aborted:
            return None
        if config.convert_to_llm is not default_convert_to_llm:
            converted = await self._ask(config.convert_to_llm(list(messages)))
        elif messages is self.messages:
            converted = Prefix(self._for_model)
        else:
            converted = default_convert_to_llm(messages)
        key = None
        if config.get_api_key is not None and not self.aborted:
            key = await self._ask(config.get_api_key(self.model.provider))
        if self.aborted:
            return None
        options = StreamOptions(
            signal=signal,
            api_key=key or config.api_key,
            reasoning=self.reasoning,
            session_id=config.session_id,
            transport=config.transport,
            thinking_budgets=config.thinking_budgets,
            max_retry_delay_ms=config.max_retry_delay_ms,
            identity=self.identity,
            on_payload=config.on_payload,
            on_response=config.on_response,
            on_provider_stream_event=config.on_provider_stream_event,
        )
        context = TranscriptContext(messages=converted)
        if config.lifecycle_events:
            await self.send(
                ModelRequestStart(model=self.model.id, message_count=len(converted))
            )
            if self.aborted:
                # The request was announced: it ends as an aborted one.
                return await self._receive(None)
        return await self._receive((context, options))

    async def _receive(
        self, request: tuple[TranscriptContext, StreamOptions] | None
    ) -> AssistantMessage:
        """Stream a response and finish its message (S4-03, S4-07, ST-12)."""
        opened, final = (None, None) if request is None else await self._stream(request)
        if final is None:
            final = self._unfinished(opened)
        final = msgspec.structs.replace(final, thinking_level=self.reasoning or "off")
        if self.config.after_model_response is not None:
            answer = await self._ask(self.config.after_model_response(final, self.signal))
            final = answer or final
        self._append(final)
        if opened is None:
            await self.send(MessageStart(message=final))
        await self.send(MessageEnd(message=final))
        if self.config.lifecycle_events:
            await self.send(
                ModelResponse(stop_reason=final.stop_reason, usage=final.usage, message=final)
            )
        return final

    async def _stream(
        self, request: tuple[TranscriptContext, StreamOptions]
    ) -> tuple[Any, AssistantMessage | None]:
        """Forward a response's events; returns the last one and the final message, if any."""
        emit, signal = self._emit, self.signal
        last: Any = None
        final: AssistantMessage | None = None
        stream: Any = None
        watch = _Watch(self, self.backend.expiry())
        try:
            with watch.expiry as expiry:
                stream = await watch.open(request)
                async for event in stream:
                    kind = type(event)
                    if kind is StreamDone or kind is StreamError:
                        final = cast("StreamDone | StreamError", event).message
                        break
                    if kind is StreamStart:
                        if last is not None:
                            continue
                        waiting = emit(MessageStart(message=event.partial))
                    elif last is not None:
                        waiting = emit(MessageUpdate(assistant_message_event=event))
                    else:
                        continue  # EV-09: nothing before the start
                    last = event
                    if waiting is not None and isawaitable(waiting):
                        expiry.hold()
                        await waiting
                        if expiry.release():
                            break
                    if watch.at_once and signal is not None and signal.aborted:
                        break
                else:
                    if isinstance(stream, EventStream) and stream.settled:
                        final = await cast("EventStream[Any, AssistantMessage]", stream).result()
        finally:
            watch.end()
            if isasyncgen(stream):
                await stream.aclose()
        return last, final

    def _unfinished(self, last: Any) -> AssistantMessage:
        """Make the answer of a response that was cut off or just ended (DEVIATIONS 4)."""
        reason, text = "error", "The model's stream ended without a final event."
        if self.aborted:
            reason, text = "aborted", REQUEST_ABORTED
        if last is None:
            return self._closing_message(reason, text)
        return msgspec.structs.replace(last.partial, stop_reason=reason, error_message=text)

    # ------------------------------------------------------------------------------- helpers

    @property
    def aborted(self) -> bool:
        """Whether the run was aborted."""
        return self.signal is not None and self.signal.aborted

    async def send(self, event: AgentEvent) -> None:
        """Emit an event and wait until it has been dealt with."""
        waiting = self._emit(event)
        if waiting is not None and isawaitable(waiting):
            await waiting

    async def _ask(self, answer: T | Awaitable[T]) -> T | Any:
        """Take a hook's answer; after an abort a hook has the same grace as a tool."""
        if not isawaitable(answer):
            return answer
        if self.signal is None:
            return await answer
        with self.backend.expiry() as expiry:
            cut = self.backend.soon(partial(expiry.expire_in, self.config.abort_grace))
            remove = self.signal.add_listener(cut)
            try:
                return await answer
            finally:
                remove()
        return None

    async def _poll(self, source: GetQueuedMessages | None) -> Sequence[AgentMessage]:
        if source is None or self.aborted:
            return ()
        return await self._ask(source()) or ()

    def _has_queued(self) -> bool:
        has = self.config.has_queued_messages
        return has is not None and has()

    def _update(
        self,
        context: AgentContext | None,
        model: Model | None,
        thinking_level: ThinkingLevel | None,
    ) -> None:
        if context is not None:
            self.use(context)
        if model is not None:
            self.model = model
        if thinking_level is not None:
            self.reasoning = None if thinking_level == "off" else thinking_level

    def _closing_message(self, reason: Any, text: str) -> AssistantMessage:
        return AssistantMessage(
            api=self.model.api,
            provider=self.model.provider,
            model=self.model.id,
            thinking_level=self.reasoning or "off",
            stop_reason=reason,
            error_message=text,
        )


class _Watch:
    """Cut a stream off on abort: at once if it runs in our own task, else after the grace."""

    __slots__ = ("_remove", "_run", "at_once", "expiry")

    def __init__(self, run: _Run, expiry: Expiry) -> None:
        self._run = run
        self._remove: Callable[[], None] | None = None
        self.expiry = expiry
        self.at_once = False

    async def open(self, request: tuple[TranscriptContext, StreamOptions]) -> Any:
        """Call the stream function and return its stream."""
        run = self._run
        opened = run.stream_fn(run.model, *request)
        if isawaitable(opened):
            self._watch(partial(self.expiry.expire_in, run.config.abort_grace))
            opened = await opened
            self.end()
        if not hasattr(opened, "__aiter__"):
            raise TypeError(
                "A stream function returns an async iterable of stream events, not "
                f"{type(opened).__name__}."
            )
        self.at_once = isasyncgen(opened)
        self._watch(
            self.expiry.expire
            if self.at_once
            else partial(self.expiry.expire_in, run.config.abort_grace)
        )
        return opened

    def end(self) -> None:
        """End the watch."""
        if self._remove is not None:
            self._remove()
            self._remove = None

    def _watch(self, cut: Callable[[], object]) -> None:
        if self._run.signal is not None:
            self._remove = self._run.signal.add_listener(self._run.backend.soon(cut))
