"""The loop: turns of one model response and its tool results, until nothing is left to do.

    agent_start, turn_start, prompts
    repeat
        prepare the next turn, turn_start            (not before the first)
        append pending messages                      (tool changes are declared here)
        request a response                           (model_request)
        error or abort?  finish_turn, turn_end, agent_end
        tool calls -> tool results                   (execution)
        finish_turn, turn_end
        poll steering
    until no tool calls, no steering; then poll follow-ups
    agent_end

Stateless: everything comes in by arguments and goes out by `emit`. The `Agent` adds state,
queues and listeners.

Source: LP-01 to LP-16, LL-01 to LL-07, DEVIATIONS 1, 4, 7.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import cast

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.backend import Backend, current_backend
from pi_agent_kernel.errors import NothingToContinueError
from pi_agent_kernel.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    TurnEnd,
    TurnStart,
)
from pi_agent_kernel.execution import ToolBatch
from pi_agent_kernel.hooks import (
    AgentContext,
    AgentTurnUpdate,
    GetQueuedMessages,
    TurnContext,
    TurnDecision,
)
from pi_agent_kernel.loop_config import AgentLoopConfig
from pi_agent_kernel.messages import AgentMessage, AssistantMessage, ToolResultMessage
from pi_agent_kernel.model_request import request_response
from pi_agent_kernel.notes import replaced_by
from pi_agent_kernel.request import Prefix, StreamFn
from pi_agent_kernel.run import REQUEST_ABORTED, Run
from pi_agent_kernel.streams import EventStream
from pi_agent_kernel.tool_call import ToolSettings
from pi_agent_kernel.wire import coerce_message

__all__ = ["agent_loop", "agent_loop_continue", "run_agent_loop", "run_agent_loop_continue"]


# ----------------------------------------------------------------------------- entry points


async def run_agent_loop(  # noqa: PLR0917 - api.md fixes the order
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    emit: Callable[[AgentEvent], object],
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
    *,
    backend: Backend | None = None,
) -> list[AgentMessage]:
    """Run on new messages until there is nothing left to do.

    Args:
        prompts: Messages that start the run.
        context: Transcript and tools so far; never changed (DEVIATIONS 7).
        config: Everything else.
        emit: Takes each event, plain or async; awaited before the run goes on.
        signal: Aborts the run; None for a run that cannot be aborted.
        stream_fn: Asks the model; the default one if omitted.
        backend: The loop it lives on; found by itself if omitted.

    Returns:
        The messages that the run added, the prompts first.

    Raises:
        Exception: Whatever a hook, the stream function or `emit` raised.

    Source: LL-02.
    """
    with Run(context, config, emit, signal, stream_fn, backend) as run:
        opening = run.declared([coerce_message(message) for message in prompts])
        for message in opening:
            run.append(message)
        run.settle_declarations()
        if config.prompts_are_queued:
            run.queued = list(prompts)
        await run.send(AgentStart())
        await run.send(TurnStart())
        for left, message in _countdown(opening):
            run.announcing(left)
            await run.send(MessageStart(message=message))
            await run.send(MessageEnd(message=message))
        await _take_turns(run)
        return run.new_messages


async def run_agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    emit: Callable[[AgentEvent], object],
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
    *,
    backend: Backend | None = None,
) -> list[AgentMessage]:
    """Run on the context as it is.

    Raises:
        NothingToContinueError: It is empty or ends with an assistant message (LL-04).

    Source: LL-02; the rest as `run_agent_loop`.
    """
    _check_tail(context)
    with Run(context, config, emit, signal, stream_fn, backend) as run:
        await run.send(AgentStart())
        await run.send(TurnStart())
        await _take_turns(run)
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
    return _observed(lambda emit: run_agent_loop(prompts, context, config, emit, signal, stream_fn))


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
    return _observed(lambda emit: run_agent_loop_continue(context, config, emit, signal, stream_fn))


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


# -------------------------------------------------------------------------------- the turns


async def _take_turns(run: Run) -> None:
    """Take turns until nothing is left to do."""
    config = run.config
    await _poll(run, config.get_steering_messages)
    again = False
    while True:
        more = True
        while more or run.queued:
            prepared: Sequence[AgentMessage] = ()
            if run.last_turn is not None:
                prepared = await _next_turn(run, run.last_turn)
            if run.aborted:
                return await _close_aborted(run)
            await _append_pending(run, prepared)
            message = await request_response(run)
            if message is None:
                return await _close_aborted(run)
            if message.stop_reason in ("error", "aborted"):
                await _end_turn(run, message, ())
                return await run.send(AgentEnd(messages=tuple(run.new_messages)))
            results, more = await _run_tools(run, message)
            decision = await _end_turn(run, message, results)
            if decision == "end":
                return await run.send(AgentEnd(messages=tuple(run.new_messages)))
            if run.aborted:
                if more or decision == "continue" or _has_queued(run):
                    return await _close_aborted(run)
                return await run.send(AgentEnd(messages=tuple(run.new_messages)))
            await _poll(run, config.get_steering_messages)
            again = decision == "continue" and not more and not run.queued
        await _poll(run, config.get_follow_up_messages)
        if not run.queued and not again:
            return await run.send(AgentEnd(messages=tuple(run.new_messages)))


async def _next_turn(run: Run, turn: TurnContext) -> Sequence[AgentMessage]:
    """Prepare and open a turn after another; returns what a hook adds to it (LP-09)."""
    config = run.config
    prepared: Sequence[AgentMessage] = ()
    if config.prepare_next_turn is not None and not run.aborted:
        hook = config.prepare_next_turn
        update = await run.ask("prepare_next_turn", hook, (turn, run.signal), AgentTurnUpdate)
        if update is not None:
            run.update(update.context, update.model, update.thinking_level)
            prepared = [coerce_message(message) for message in update.messages or ()]
            what = replaced_by(update)
            config.notes.decided("prepare_next_turn", what, hook, messages=prepared)
    # Preparing may take long. Poll again, but never deliver two batches in one turn (LP-10).
    if not run.queued:
        await _poll(run, config.get_steering_messages)
    if not run.aborted:
        await _open_turn(run)
    return prepared


async def _open_turn(run: Run) -> None:
    run.turn_open = True
    await run.send(TurnStart())


async def _append_pending(run: Run, prepared: Sequence[AgentMessage]) -> None:
    """Append prepared and queued messages, tool changes declared among them."""
    for left, message in _countdown(run.declared([*prepared, *run.queued])):
        run.announcing(left)
        await run.send(MessageStart(message=message))
        await run.send(MessageEnd(message=message))
        run.append(message)
    run.settle_declarations()


def _countdown(messages: Sequence[AgentMessage]) -> Iterator[tuple[int, AgentMessage]]:
    """Number messages by how many come after each."""
    return zip(range(len(messages) - 1, -1, -1), messages, strict=True)


async def _run_tools(
    run: Run, message: AssistantMessage
) -> tuple[Sequence[ToolResultMessage], bool]:
    """Execute the calls because they are there, whatever the stop reason (LP-02).

    Returns:
        The results, and whether they call for another request.
    """
    calls = message.tool_calls
    if not calls:
        return (), False
    config = run.config
    batch = ToolBatch(
        ToolSettings(
            tools=run.tools_by_name,
            assistant_message=message,
            context=run.context,
            watch=run.watch,
            backend=run.backend,
            before_tool_call=config.before_tool_call,
            after_tool_call=config.after_tool_call,
            after_tool_result=config.after_tool_result,
            mode=config.tool_execution,
            run_sync=config.run_sync,
            tasks=config.tasks,
            notes=config.notes,
        ),
        run.emit,
        lifecycle=config.lifecycle_events,
    )
    await batch.run(calls)
    for result in batch.results:
        run.append(result)
    return batch.results, not batch.terminate


async def _end_turn(
    run: Run, message: AssistantMessage, results: Sequence[ToolResultMessage]
) -> str | None:
    """Ask `finish_turn` and `should_stop`, close the turn, return the decision (LP-06)."""
    config = run.config
    results = tuple(results)
    decision: TurnDecision | None = None
    stop = False
    run.last_turn = turn = TurnContext(
        message=message,
        tool_results=results,
        context=run.context,
        new_messages=Prefix(run.new_messages),
    )
    if config.finish_turn is not None:
        hook = config.finish_turn
        decision = await run.ask("finish_turn", hook, (turn, run.signal), TurnDecision)
        if decision is not None:
            config.notes.decided("finish_turn", decision.action, decision.origin or hook)
    if config.should_stop is not None:
        stop = bool(await run.ask("should_stop", config.should_stop, ()))
        if stop:
            config.notes.decided("should_stop", "end", config.should_stop)
    await run.send(TurnEnd(message=message, tool_results=results))
    run.turn_open = False
    if stop:
        return "end"
    return None if decision is None else decision.action


async def _close_aborted(run: Run) -> None:
    """Close an aborted run visibly, without a dead request (DEVIATIONS 1)."""
    if not run.turn_open:
        await _open_turn(run)
    message = run.closing_message("aborted", REQUEST_ABORTED)
    await run.send(MessageStart(message=message))
    await run.send(MessageEnd(message=message))
    run.append(message)
    await _end_turn(run, message, ())
    await run.send(AgentEnd(messages=tuple(run.new_messages)))


async def _poll(run: Run, source: GetQueuedMessages | None) -> None:
    """Take the next batch of queued messages, which now wait for their turn."""
    if source is not None and not run.aborted:
        run.queued = list(await run.ask("a queue", source, (), Sequence) or ())


def _has_queued(run: Run) -> bool:
    has = run.config.has_queued_messages
    return has is not None and has() > 0
