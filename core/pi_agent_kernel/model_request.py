"""One request to the model: prepare it, stream the response, finish its message.

    prepare_request -> transform_context -> before_model_request -> convert_to_llm
                    -> get_api_key -> model_request_start -> stream_fn
                    -> message_start, message_update ..., after_model_response
                    -> message_end -> model_response
    failed for a passing reason? -> model_retry, the wait, and all of it again

Source: CO-07, CO-08, LP-05, EV-08, EV-09, AB-02, S4-02, S4-03, MD-22, DEVIATIONS 1, 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import msgspec

from pi_agent_kernel.abort import OperationAborted
from pi_agent_kernel.awaiting import is_async_generator, is_awaitable
from pi_agent_kernel.backend import Expiry
from pi_agent_kernel.events import (
    STREAM_EVENTS,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelRequestStart,
    ModelResponse,
    ModelRetry,
    StreamDone,
    StreamError,
    StreamEvent,
    StreamStart,
)
from pi_agent_kernel.hooks import AgentRequestUpdate, PrepareRequestContext
from pi_agent_kernel.loop_config import default_convert_to_llm
from pi_agent_kernel.messages import AgentMessage, AssistantMessage, StopReason, ThinkingLevel
from pi_agent_kernel.notes import SentRequest
from pi_agent_kernel.request import StreamOptions, TranscriptContext
from pi_agent_kernel.run import REQUEST_ABORTED, Run
from pi_agent_kernel.streams import EventStream

__all__ = ["request_response"]

#: Seconds beyond the grace that a generator has to clean up.
CLOSING = 1.0

_Request = tuple[TranscriptContext, StreamOptions]
#: The options that a log may hold: no key, no header, no callback.
_SHOWN_OPTIONS = (
    "session_id",
    "transport",
    "thinking_budgets",
    "max_retry_delay_ms",
    "max_retries",
)


async def request_response(run: Run) -> AssistantMessage | None:
    """Ask the model and record its answer; ask again as the run's retry policy says.

    Every attempt is a request of its own: its answer is in the transcript, and hooks see it.

    Returns:
        The last answer, in the transcript and announced; None if the run was aborted before the
        request was announced, so that there was none.
    """
    config = run.config
    attempt = 1
    while True:
        request = await _prepare(run, attempt)
        if request is None:
            return None
        retries = _Retries(run, attempt)
        final = await _attempt(run, request, retries)
        if config.retry is None or final.stop_reason != "error" or run.aborted:
            return final
        from pi_agent_kernel.models.retry import next_attempt, pause  # few runs need it

        limit = config.max_retry_delay_ms
        planned = next_attempt(config.retry, retries.attempt, final, limit)
        if planned is None:
            return final
        attempt = planned.attempt
        if config.lifecycle_events:
            await run.send(planned)
        try:
            await pause(planned.delay_ms / 1000, run.signal)
        except OperationAborted:
            return None


async def _attempt(run: Run, request: _Request, retries: _Retries) -> AssistantMessage:
    last: StreamEvent | None = None
    final: AssistantMessage | None = None
    if run.config.lifecycle_events:
        count = len(request[0].messages)
        attempt = retries.attempt
        await run.send(ModelRequestStart(model=run.model.id, message_count=count, attempt=attempt))
    if not run.aborted:
        last, final = await _stream(run, request, retries)
    if final is None:
        final = _unfinished(run, last)
    final = msgspec.structs.replace(final, thinking_level=run.reasoning or "off")
    if run.config.after_model_response is not None:
        answer = await run.ask(
            "after_model_response",
            run.config.after_model_response(final, run.signal),
            AssistantMessage,
        )
        final = answer or final
    run.append(final)
    if last is None:
        await run.send(MessageStart(message=final))
    await run.send(MessageEnd(message=final))
    if run.config.lifecycle_events:
        await run.send(
            ModelResponse(stop_reason=final.stop_reason, usage=final.usage, message=final)
        )
    return final


async def _prepare(run: Run, attempt: int) -> _Request | None:
    """Run the request-side hooks in order; None as soon as the run is aborted."""
    config, signal = run.config, run.signal
    if run.aborted:
        return None
    if config.prepare_request is not None:
        request = PrepareRequestContext(
            context=run.context,
            model=run.model,
            thinking_level=cast("ThinkingLevel", run.reasoning or "off"),
        )
        update = await run.ask(
            "prepare_request", config.prepare_request(request, signal), AgentRequestUpdate
        )
        if update is not None:
            run.update(update.context, update.model, update.thinking_level)
    stages = await _edit_messages(run)
    messages = stages[-1][1] if stages else run.messages
    if run.aborted:
        return None
    if config.convert_to_llm is not default_convert_to_llm:
        answer = config.convert_to_llm(list(messages))
        converted = await run.ask("convert_to_llm", answer, Sequence)
        if converted is None and not run.aborted:
            raise TypeError("convert_to_llm returns a sequence of messages, not None.")
    elif messages is run.messages:
        converted = run.messages_for_model
    else:
        converted = default_convert_to_llm(messages)
    key = None
    if config.get_api_key is not None and not run.aborted:
        key = await run.ask("get_api_key", config.get_api_key(run.model.provider), str)
    if run.aborted or converted is None:
        return None
    options = StreamOptions(
        signal=signal,
        api_key=key or config.api_key,
        reasoning=run.reasoning,
        session_id=config.session_id,
        transport=config.transport,
        thinking_budgets=config.thinking_budgets,
        max_retry_delay_ms=config.max_retry_delay_ms,
        max_retries=None if config.retry is None else config.retry.max_retries,
        attempt=attempt,
        identity=run.identity,
        on_payload=config.on_payload,
        on_response=config.on_response,
        on_provider_stream_event=config.on_provider_stream_event,
    )
    if config.notes.on_request is not None:
        config.notes.on_request(
            SentRequest(
                model=run.model,
                messages=converted,
                stages=stages,
                thinking_level=cast("ThinkingLevel", run.reasoning or "off"),
                options={
                    name: value
                    for name in _SHOWN_OPTIONS
                    if (value := getattr(options, name)) is not None
                },
                executable=run.executable_names,
                transcript_length=len(run.messages),
            )
        )
    return TranscriptContext(messages=converted), options


async def _edit_messages(run: Run) -> list[tuple[str, Sequence[AgentMessage]]]:
    """Ask the hooks that edit the messages of a request; returns what each made of them."""
    config = run.config
    messages: Sequence[AgentMessage] = run.messages
    stages: list[tuple[str, Sequence[AgentMessage]]] = []
    for name, hook in (
        ("transform_context", config.transform_context),
        ("before_model_request", config.before_model_request),
    ):
        if hook is not None and not run.aborted:
            answer = await run.ask(name, hook(list(messages), run.signal), Sequence)
            messages = messages if answer is None else answer
            stages.append((name, messages))
    return stages


async def _stream(
    run: Run, request: _Request, retries: _Retries
) -> tuple[StreamEvent | None, AssistantMessage | None]:
    """Forward a response's events; returns the last one and the final message, if any came."""
    emit, signal = run.emit, run.signal
    last: StreamEvent | None = None
    final: AssistantMessage | None = None
    stream: Any = None
    key = 0
    try:
        with run.backend.expiry() as expiry:
            retries.expiry = expiry
            context, options = request
            options = msgspec.structs.replace(options, on_retry=retries.announce)
            stream, key = await _open(run, (context, options), expiry)
            at_once = is_async_generator(stream)
            async for event in stream:
                kind = cast("type[Any]", type(event))
                if kind is StreamDone or kind is StreamError:
                    final = _final_of(event)
                    break
                if kind not in STREAM_EVENTS:
                    raise TypeError(
                        f"A model's stream gives stream events, not {kind.__name__}: {event!r}"
                    )
                if kind is StreamStart:
                    if last is not None:
                        continue
                    waiting = emit(MessageStart(message=event.partial))
                elif last is not None:
                    waiting = emit(MessageUpdate(assistant_message_event=event))
                else:
                    continue  # EV-09: nothing before the start
                last = event
                if waiting is not None and is_awaitable(waiting):
                    # An abort cuts off the model's stream, never a listener.
                    expiry.hold()
                    await waiting
                    if expiry.release():
                        break
                if at_once and signal is not None and signal.aborted:
                    break
            else:
                final = await _result_of(stream)
    finally:
        retries.expiry = None
        run.watch.discard(key)
        if is_async_generator(stream):
            # Its clean-up may wait for a network that is gone.
            with run.backend.expiry() as expiry:
                expiry.expire_in(run.config.abort_grace + CLOSING)
                await stream.aclose()
    if retries.error is not None:
        raise retries.error
    return last, final


class _Retries:
    """Count the attempts of a request, and announce those its stream function makes by itself."""

    __slots__ = ("_run", "attempt", "error", "expiry")

    def __init__(self, run: Run, attempt: int) -> None:
        self._run = run
        self.attempt: int = attempt
        #: Of the block that the stream is read in; None when it is read no more.
        self.expiry: Expiry | None = None
        #: What a listener raised: the run fails, although the stream function may catch it.
        self.error: Exception | None = None

    async def announce(self, retry: ModelRetry) -> None:
        """Be `on_retry` of the request."""
        expiry = self.expiry
        if expiry is None:
            return
        self.attempt = retry.attempt
        if not self._run.config.lifecycle_events:
            return
        # An abort cuts off the model's stream, never a listener.
        expiry.hold()
        try:
            await self._run.send(retry)
        except Exception as error:
            self.error = error
            raise
        finally:
            if expiry.release():
                expiry.expire()


def _final_of(event: StreamDone | StreamError) -> AssistantMessage:
    """Return the message of a last event; only partials are pending (MS-04)."""
    message = event.message
    if message.stop_reason != "pending":
        return message
    return msgspec.structs.replace(message, stop_reason=event.reason)


async def _result_of(stream: object) -> AssistantMessage | None:
    """Return the result of a stream that ended with one but without a final event."""
    if not isinstance(stream, EventStream):
        return None
    ended = cast("EventStream[Any, AssistantMessage]", stream)
    return await ended.result() if ended.settled else None


def _unfinished(run: Run, last: StreamEvent | None) -> AssistantMessage:
    """Make the answer of a response that was cut off or just ended (DEVIATIONS 4)."""
    reason: StopReason = "error"
    text = "The model's stream ended without a final event."
    if run.aborted:
        reason, text = "aborted", REQUEST_ABORTED
    if last is None:
        return run.closing_message(reason, text)
    return msgspec.structs.replace(last.partial, stop_reason=reason, error_message=text)


async def _open(run: Run, request: _Request, expiry: Expiry) -> tuple[Any, int]:
    """Call the stream function; returns its stream and the key of the watch over it.

    On abort a generator, which runs in our own task, is cut off at once. Any other stream may
    send its own last event within the grace.
    """
    by_itself = partial(expiry.expire_in, run.config.abort_grace)
    opened: Any = run.stream_fn(run.model, *request)
    if not is_async_generator(opened) and is_awaitable(opened):
        key = run.watch.add(by_itself)
        try:
            opened = await opened
        finally:
            run.watch.discard(key)
    if not hasattr(opened, "__aiter__"):
        raise TypeError(
            "A stream function returns an async iterable of stream events, not "
            f"{type(opened).__name__}."
        )
    return opened, run.watch.add(expiry.expire if is_async_generator(opened) else by_itself)
