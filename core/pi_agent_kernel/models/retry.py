"""Try a failed request again, where everybody sees it.

Two levels. `retry_provider_request` repeats the opening of a request, before anything of its reply
is shown (MD-23). A reply that fails later stays in the transcript as an error message, and the
whole call is repeated: by the loop with `Agent(retry=RetryPolicy())`, by `retry_assistant_call`
outside of one (MD-22). Every repetition is told beforehand, as a `ModelRetry`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec

from pi_agent_kernel.abort import AbortSignal, OperationAborted, until_abort
from pi_agent_kernel.errors import error_text
from pi_agent_kernel.events import ModelRetry
from pi_agent_kernel.messages import AssistantMessage
from pi_agent_kernel.models.error_kinds import ReplyError
from pi_agent_kernel.models.provider_errors import Failure
from pi_agent_kernel.models.retry_headers import retry_wanted, wait_wanted
from pi_agent_kernel.models.retry_policy import DEFAULT_MAX_RETRIES, RetryPolicy
from pi_agent_kernel.models.transient import TRANSIENT_KINDS, transient_kind, wait_wanted_ms

__all__ = [
    "next_attempt",
    "pause",
    "retry_assistant_call",
    "retry_provider_request",
]

T = TypeVar("T")

DEFAULT_MAX_RETRY_DELAY_MS = 60_000

_LONGEST_BACKOFF = 8.0  # seconds
_JITTER = 0.25
#: Classes of errors that no header makes worth another try.
_FINAL_KINDS = frozenset({"quota", "auth", "context_overflow", "refused"})
_TRANSIENT_STATUSES = frozenset({408, 409, 429})


def next_attempt(
    policy: RetryPolicy,
    attempt: int,
    message: AssistantMessage,
    max_retry_delay_ms: int | None = None,
) -> ModelRetry | None:
    """Plan the attempt after one that gave this message.

    Args:
        policy: How often and how soon.
        attempt: The number of the attempt that was made.
        message: What it gave.
        max_retry_delay_ms: Longest wait that the server may ask for; 60 s by default, 0 for any.

    Returns:
        The attempt to announce; None if the message stands.
    """
    kind = transient_kind(message)
    if kind is None or attempt > policy.max_retries:
        return None
    wanted = wait_wanted_ms(message)
    if wanted is not None and _is_too_long(wanted / 1000, max_retry_delay_ms):
        return None
    return ModelRetry(
        attempt=attempt + 1,
        max_attempts=policy.max_retries + 1,
        delay_ms=policy.delay_ms(attempt) if wanted is None else wanted,
        error_message=message.error_message or "",
        kind=kind,
    )


async def retry_assistant_call(
    call: Callable[[], Awaitable[AssistantMessage]],
    policy: RetryPolicy | None = None,
    signal: AbortSignal | None = None,
    *,
    on_scheduled: Callable[[ModelRetry], object] | None = None,
    on_attempt: Callable[[int], object] | None = None,
    on_finished: Callable[[AssistantMessage, int], object] | None = None,
) -> AssistantMessage:
    """Call a model; again as long as its reply fails for a reason that passes.

    Args:
        call: Makes one attempt and returns its final message.
        policy: How often and how soon; twice, after 2 and 4 seconds, by default.
        signal: Ends the wait.
        on_scheduled: Hears of an attempt before the wait for it; plain or async, as the others.
        on_attempt: Hears the number of an attempt when it begins.
        on_finished: Hears the message that is returned and the number of attempts.

    Returns:
        The first message that stands. After an abort during a wait the failed one, marked as
        aborted, without the error text.

    Source: MD-22, E17.
    """
    policy = policy or RetryPolicy()
    attempt = 1
    while True:
        if on_attempt is not None:
            await _settled(on_attempt(attempt))
        message = await call()
        planned = next_attempt(policy, attempt, message)
        if planned is not None:
            try:
                if on_scheduled is not None:
                    await _settled(on_scheduled(planned), signal)
                await pause(planned.delay_ms / 1000, signal)
            except OperationAborted:
                message = msgspec.structs.replace(
                    message, stop_reason="aborted", error_message=None, diagnostics=None
                )
            else:
                attempt = planned.attempt
                continue
        if on_finished is not None:
            await _settled(on_finished(message, attempt))
        return message


async def retry_provider_request(
    request: Callable[[], Awaitable[T]],
    *,
    explain: Callable[[Exception], Failure] | None = None,
    attempt: int = 1,
    max_retries: int | None = None,
    max_retry_delay_ms: int | None = None,
    base_delay: float = 0.5,
    signal: AbortSignal | None = None,
    on_retry: Callable[[ModelRetry], object] | None = None,
    jitter: Callable[[], float] | None = None,
) -> T:
    """Make a request; again if it fails with 408, 409, 429, 5xx or without any answer.

    Args:
        request: Makes one attempt.
        explain: Describes an error; by default from its `status_code` and `headers`.
        attempt: The number of the first attempt; more than 1 if others were made before.
        max_retries: How many attempts may follow the very first one; 2 by default.
        max_retry_delay_ms: Longest wait that the server may ask for; 60 s by default, 0 for any.
        base_delay: Seconds before the first repetition if the server asks for none; doubled each
            time up to 8 s, then shortened by up to a quarter.
        signal: Ends the wait.
        on_retry: Hears of an attempt before the wait for it; plain or async.
        jitter: Gives a number from 0 to 1, how much to shorten; random by default.

    Returns:
        What the first request that succeeds returns.

    Raises:
        OperationAborted: The signal was set off during a wait, that of `on_retry` included.
        ReplyError: `on_retry` raised.
        Exception: What the last attempt raised. A server that wants a longer wait is not waited
            for; a note on its error says so.

    Source: MD-23, CO-09, E15, E17.
    """
    if max_retries is None:
        max_retries = DEFAULT_MAX_RETRIES
    explain = explain or _failure_of
    first = attempt
    while True:
        try:
            return await request()
        except OperationAborted:
            raise
        except Exception as error:
            failure = explain(error)
            if attempt > max_retries or not _may_pass(failure):
                raise
            delay = failure.retry_after
            if delay is None:
                delay = _backoff(base_delay, attempt - first, jitter)
            elif _is_too_long(delay, max_retry_delay_ms):
                error.add_note(
                    f"The server wants a wait of {delay:g} s, longer than max_retry_delay_ms allows"
                    f" ({_cap(max_retry_delay_ms) / 1000:g} s), so it was not asked again."
                )
                raise
        attempt += 1
        if on_retry is not None:
            planned = ModelRetry(
                attempt=attempt,
                max_attempts=max_retries + 1,
                delay_ms=round(delay * 1000),
                error_message=failure.text,
                kind=failure.kind,
            )
            await _tell(on_retry, planned, signal)
        await pause(delay, signal)


async def pause(seconds: float, signal: AbortSignal | None) -> None:
    """Wait, but no longer than until the abort.

    Raises:
        OperationAborted: The signal was set off first.
    """
    import anyio

    if signal is None:
        await anyio.sleep(seconds)
        return
    with anyio.move_on_after(seconds):
        await signal.wait()
    signal.raise_if_aborted()


def _may_pass(failure: Failure) -> bool:
    if failure.kind in _FINAL_KINDS:
        return False
    if failure.should_retry is not None:
        return failure.should_retry
    if failure.status is None:
        return failure.kind in TRANSIENT_KINDS
    return failure.status in _TRANSIENT_STATUSES or failure.status >= 500


def _backoff(base: float, retries: int, jitter: Callable[[], float] | None) -> float:
    from random import random

    shortened = _JITTER * (jitter or random)()
    return min(base * 2.0 ** min(retries, 32), _LONGEST_BACKOFF) * (1 - shortened)


def _cap(max_retry_delay_ms: int | None) -> int:
    return DEFAULT_MAX_RETRY_DELAY_MS if max_retry_delay_ms is None else max_retry_delay_ms


def _is_too_long(seconds: float, max_retry_delay_ms: int | None) -> bool:
    return 0 < _cap(max_retry_delay_ms) < seconds * 1000


def _failure_of(error: Exception) -> Failure:
    """Describe an error of whatever client by the attributes that they all have."""
    status = getattr(error, "status_code", None)
    answer = getattr(error, "response", None)
    headers = getattr(error, "headers", None) or getattr(answer, "headers", None)
    said: Mapping[str, str] = headers or {}
    return Failure(
        text=str(error) or type(error).__name__,
        kind="connection" if status is None and isinstance(error, OSError) else "unknown",
        status=status if isinstance(status, int) else None,
        retry_after=wait_wanted(said),
        should_retry=retry_wanted(said),
    )


async def _tell(
    on_retry: Callable[[ModelRetry], object], planned: ModelRetry, signal: AbortSignal | None
) -> None:
    try:
        await _settled(on_retry(planned), signal)
    except OperationAborted:
        raise
    except Exception as error:
        raise ReplyError(
            f"on_retry raised {type(error).__name__}: {error_text(error)}. The request was given "
            "up; correct that callback.",
            "setup",
        ) from error


async def _settled(answer: Any, signal: AbortSignal | None = None) -> None:
    if isinstance(answer, Awaitable):
        await until_abort(signal, cast("Awaitable[object]", answer))
