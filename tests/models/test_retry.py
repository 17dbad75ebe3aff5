from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import anyio
import pytest
from pi_agent_kernel import (
    ALL_EVENTS,
    AbortController,
    Agent,
    ModelRetry,
    OperationAborted,
    RetryPolicy,
    faux_assistant_message,
    is_retryable_assistant_error,
    retry_assistant_call,
    retry_provider_request,
)
from pi_agent_kernel.models.pydantic_ai import provider_stream_fn
from pi_agent_kernel.models.retry_headers import retry_wanted, wait_wanted
from pi_agent_kernel.testing import check_events
from provider import LIMIT, ask, failure, model_at, play
from server import Reply, recorded

# On trio the SDKs leave their inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(anthropic|openai|httpx2|httpcore2):ResourceWarning"
)

SOON = {"retry-after-ms": "1"}
TEXT = Reply(recorded("text"))
CUT = Reply(recorded("cut"))
OVERLOADED = (
    b"event: error\n"
    b'data: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n'
)


async def retried(url, **options):
    """Return the final message of a request that may be made three times, and its retries."""
    heard = []
    message = await ask(url, max_retries=2, on_retry=heard.append, **options)
    return message, heard


class Asking:
    """An agent on the server; keeps its events."""

    def __init__(self, url, **options):
        self.events = []
        stream_fn = provider_stream_fn(env={}, idle_timeout=LIMIT, retry_delay=0)
        self.agent = Agent(stream_fn=stream_fn, model=model_at(url), **options)
        self.agent.subscribe(lambda event, _: self.events.append(event), events=ALL_EVENTS)

    async def prompt(self):
        with anyio.fail_after(LIMIT):
            await self.agent.prompt("go")
        check_events(self.events)

    @property
    def steps(self):
        """The requests and retries, with their numbers."""
        names = ("model_request_start", "model_retry")
        return [(e.type, e.attempt) for e in self.events if e.type in names]

    @property
    def last(self):
        return self.agent.state.messages[-1]


# ------------------------------------------------------------------------ opening a request


async def test_a_rate_limit_is_waited_out(server):
    """After 429 the request is made again when the server said; the retry is told before."""
    server.play(failure(429, "Slow down", **SOON), TEXT)

    message, heard = await retried(server.url)

    assert (message.stop_reason, message.text) == ("stop", "Hello, wörld 🌍.")
    assert [(r.attempt, r.max_attempts, r.delay_ms, r.kind) for r in heard] == [
        (2, 3, 1, "rate_limit")
    ]
    assert "Slow down" in heard[0].error_message


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_two_failures_then_success(server, status):
    """Statuses that pass are tried three times in all."""
    server.play(failure(status, **SOON), failure(status, **SOON), TEXT)

    message, heard = await retried(server.url)

    assert message.stop_reason == "stop"
    assert [retry.attempt for retry in heard] == [2, 3]


async def test_three_failures_say_how_often_it_was_tried(server):
    """When all attempts failed, the error has the remedy and their number."""
    server.play(failure(503, **SOON))

    message, _ = await retried(server.url)

    assert len(server.requests) == 3
    assert "Try again in 0.001 s. Gave up after 3 attempts." in message.error_message


@pytest.mark.parametrize(
    "reply",
    [
        failure(401),
        failure(403),
        failure(400),
        failure(404),
        failure(402),
        Reply(
            b'{"error": {"message": "Top up", "code": "insufficient_quota"}}',
            status=429,
            content_type="application/json",
            headers={"x-should-retry": "true", **SOON},
        ),
        failure(400, "This model's maximum context length is 9 tokens"),
        failure(500, "The request exceeds the available context size"),
        failure(500, **{"x-should-retry": "false"}),
        Reply(b"<!doctype html>", content_type="text/html"),
    ],
)
async def test_what_does_not_pass_is_not_tried_again(server, reply):
    """Key, quota, context, an invalid request and a server that says so end at once."""
    server.play(reply)

    message, heard = await retried(server.url)

    assert (message.stop_reason, heard, len(server.requests)) == ("error", [], 1)
    assert not is_retryable_assistant_error(message)


async def test_the_server_may_ask_for_another_try(server):
    """x-should-retry wins over the status."""
    server.play(failure(400, **{"x-should-retry": "true"}, **SOON), TEXT)

    message, heard = await retried(server.url)

    assert (message.stop_reason, len(heard)) == ("stop", 1)


@pytest.mark.parametrize("as_date", [False, True])
async def test_a_wait_above_the_cap_fails_at_once(server, as_date):
    """An hour is not waited for: the error says how long the server wants, at both levels."""
    date = datetime.now(UTC) + timedelta(seconds=3650)
    header = format_datetime(date, usegmt=True) if as_date else "3650"
    server.play(failure(503, **{"retry-after": header}))
    asking = Asking(server.url, retry=RetryPolicy(base_delay_ms=0))

    await asking.prompt()

    assert "The server wants a wait of 36" in asking.last.error_message
    assert "max_retry_delay_ms allows (60 s)" in asking.last.error_message
    assert (len(server.requests), asking.steps) == (1, [("model_request_start", 1)])


async def test_the_cap_is_an_option(server):
    """A lower cap refuses a second, 0 allows any wait."""
    server.play(failure(429, **SOON), TEXT)

    refused, _ = await retried(server.url, max_retry_delay_ms=0)
    server.play(failure(429, **{"retry-after": "1"}), TEXT)
    waited, _ = await retried(server.url, max_retry_delay_ms=999)

    assert refused.stop_reason == "stop"
    assert "allows (0.999 s)" in waited.error_message


@pytest.mark.parametrize("header", ["soon", "Mon, 01 Jan 2001 00:00:00 GMT"])
async def test_an_unreadable_header_falls_back(server, header):
    """Retry-After: soon waits the base delay, less a quarter at most; so does the past (E15)."""
    server.play(failure(503, **{"retry-after": header}), TEXT)
    heard = []
    stream = provider_stream_fn(env={}, retry_delay=0.004)
    asking = Asking(server.url)
    asking.agent.stream_fn = stream
    asking.agent.subscribe(lambda event, _: heard.append(event.delay_ms), events=["model_retry"])

    await asking.prompt()

    assert heard in ([3], [4])
    assert asking.last.stop_reason == "stop"


async def test_a_closed_connection_is_tried_again(server):
    """No answer at all passes."""
    server.play(Reply(ending="cut", silent=True), TEXT)
    asking = Asking(server.url)

    await asking.prompt()

    assert asking.last.text == "Hello, wörld 🌍."
    assert asking.steps == [("model_request_start", 1), ("model_retry", 2)]


async def test_the_last_failure_is_the_one_that_is_told(server):
    """What an earlier attempt got does not colour the words of a later one."""
    server.play(
        failure(503, **{"x-should-retry": "true"}, **SOON), Reply(ending="cut", silent=True)
    )

    message = await ask(server.url, max_retries=1)

    assert "closed the connection without an answer" in message.error_message
    assert message.diagnostics[0]["details"] == {"kind": "connection"}


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"api": "anthropic-messages", "provider": "anthropic"}, OVERLOADED),
        ({}, b'data: {"error": {"message": "Overloaded", "code": 503}}\n\n'),
        (
            {"api": "openai-responses", "provider": "openai"},
            b'data: {"type": "error", "code": "server_is_overloaded", "message": "Overloaded"}\n\n',
        ),
    ],
)
async def test_an_error_that_opens_a_stream_is_one_of_the_request(server, fields, body):
    """Overloaded as the first event of a 200 is tried again before anything is shown."""
    server.play(Reply(body, headers=SOON))

    events = await play(
        server.url, model=model_at(server.url, **fields), api_key="sk-test", max_retries=1
    )

    assert [event.type for event in events] == ["error"]
    assert len(server.requests) == 2


async def test_a_callback_that_raises_ends_the_request(server):
    """What on_retry raises is the error of the request (MD-01)."""
    server.play(failure(503, **SOON), TEXT)

    message = await ask(server.url, max_retries=2, on_retry=lambda _: 1 / 0)

    assert "division by zero" in message.error_message


async def test_a_listener_that_raises_fails_the_run(server):
    """A listener's error is not taken for one of the model (FL-05)."""
    server.play(failure(503, **SOON), TEXT)
    asking = Asking(server.url)
    asking.agent.subscribe(lambda *_: 1 / 0, events=["model_retry"])

    with anyio.fail_after(LIMIT):
        await asking.agent.prompt("go")

    assert asking.agent.state.error_message == "division by zero"


async def test_an_abort_ends_the_wait(server):
    """A wait of a minute is over at once; nobody goes on listening (E17)."""
    server.play(failure(429, **{"retry-after": "60"}))
    asking = Asking(server.url)
    signals = []

    def stop(_event, signal):
        signals.append(signal)
        asking.agent.abort()

    asking.agent.subscribe(stop, events=["model_retry"])

    await asking.prompt()

    assert (asking.last.stop_reason, len(server.requests)) == ("aborted", 1)
    assert signals[0]._listeners == {}


# --------------------------------------------------------------- a reply that fails on the way


async def test_a_reply_that_breaks_off_is_asked_for_again(server):
    """The failed reply stays, marked, and the next request is told without it (FL-07, MD-22)."""
    server.play(CUT, TEXT)
    asking = Asking(server.url, retry=RetryPolicy(base_delay_ms=0))

    await asking.prompt()

    failed, whole = asking.agent.state.messages[-2:]
    assert (failed.stop_reason, failed.text) == ("error", "Half an answer")
    assert (whole.stop_reason, whole.text) == ("stop", "Hello, wörld 🌍.")
    assert asking.steps == [
        ("model_request_start", 1),
        ("model_retry", 2),
        ("model_request_start", 2),
    ]
    assert [request.payload["messages"] for request in server.requests] == [
        [{"role": "user", "content": "go"}]
    ] * 2
    assert asking.agent.state.error_message is None


async def test_both_levels_share_their_attempts(server):
    """A refused request and a broken reply together are tried three times, not nine."""
    server.play(failure(503, **SOON), CUT, failure(503, **SOON), TEXT)
    asking = Asking(server.url, retry=RetryPolicy(base_delay_ms=0))

    await asking.prompt()

    assert len(server.requests) == 3
    assert asking.steps == [
        ("model_request_start", 1),
        ("model_retry", 2),
        ("model_retry", 3),
        ("model_request_start", 3),
    ]
    assert "Gave up after 3 attempts." in asking.last.error_message


async def test_without_a_policy_a_broken_reply_ends_the_run(server):
    """Asking again for a reply is off by default, as in the reference."""
    server.play(CUT, TEXT)
    asking = Asking(server.url)

    await asking.prompt()

    assert (asking.last.stop_reason, len(server.requests)) == ("error", 1)


# -------------------------------------------------------------------------- without a server


class Refused(Exception):
    """An error as any client has it."""

    def __init__(self, status_code, **headers):
        super().__init__(f"status {status_code}")
        self.status_code = status_code
        self.headers = headers


async def test_the_backoff_doubles():
    """Each wait is twice the one before, less up to a quarter (MD-23)."""

    async def request():
        raise ConnectionResetError("gone")

    async def waits(shortened):
        heard = []
        with anyio.fail_after(LIMIT), pytest.raises(ConnectionResetError):
            await retry_provider_request(
                request,
                base_delay=0.004,
                max_retries=3,
                on_retry=heard.append,
                jitter=lambda: shortened,
            )
        return [retry.delay_ms for retry in heard]

    assert await waits(0) == [4, 8, 16]
    assert await waits(1) == [3, 6, 12]


async def test_ten_retries_leave_no_listener():
    """Each wait takes its listener off the signal (E17)."""
    controller = AbortController()
    heard = []

    async def request():
        raise Refused(503)

    with pytest.raises(Refused):
        await retry_provider_request(
            request,
            signal=controller.signal,
            base_delay=1e-6,
            max_retries=10,
            on_retry=heard.append,
        )

    assert len(heard) == 10
    assert controller.signal._listeners == {}


def test_waits_are_read_from_headers():
    """Milliseconds, seconds and dates are read; anything else says nothing (E15)."""
    now = datetime(2030, 1, 1, tzinfo=UTC)
    cases = {
        ("retry-after-ms", "1500"): 1.5,
        ("Retry-After", "2"): 2,
        ("retry-after", "0.5"): 0.5,
        ("retry-after", "Tue, 01 Jan 2030 00:00:07 GMT"): 7,
        ("retry-after", "Tue, 01 Jan 2030 00:00:07"): 7,
        ("retry-after", "Mon, 31 Dec 2029 23:59:59 GMT"): None,
        **{("retry-after", text): None for text in ("soon", "-1", "nan", "inf", "1e300", "")},
    }

    assert {case: wait_wanted(dict([case]), now=now) for case in cases} == cases
    assert wait_wanted({"retry-after-ms": "x", "retry-after": "3"}) == 3
    assert [retry_wanted({"X-Should-Retry": text}) for text in ("true", "False", "perhaps")] == [
        True,
        False,
        None,
    ]
    assert retry_wanted({}) is None


async def test_a_call_is_repeated_until_its_reply_stands():
    """The callbacks hear of each attempt, each plan and the end (MD-22)."""
    replies = [
        faux_assistant_message("", stop_reason="error", error_message="overloaded"),
        faux_assistant_message("ok"),
    ]
    heard = []

    async def call():
        return replies.pop(0)

    async def attempt(number):
        heard.append(number)

    message = await retry_assistant_call(
        call,
        RetryPolicy(base_delay_ms=1),
        on_attempt=attempt,
        on_scheduled=heard.append,
        on_finished=lambda message, attempts: heard.append((message.text, attempts)),
    )

    assert message.text == "ok"
    assert heard == [
        1,
        ModelRetry(
            attempt=2, max_attempts=3, delay_ms=1, error_message="overloaded", kind="overloaded"
        ),
        2,
        ("ok", 2),
    ]


async def test_an_abort_between_two_calls():
    """The reply is an aborted one without an error text; no listener stays (MD-22, E17)."""
    controller = AbortController()
    failed = faux_assistant_message("Half", stop_reason="error", error_message="overloaded")
    calls = []

    async def call():
        calls.append(1)
        return failed

    with anyio.fail_after(LIMIT):
        message = await retry_assistant_call(
            call,
            RetryPolicy(base_delay_ms=60_000),
            controller.signal,
            on_scheduled=lambda _: controller.abort(),
        )

    assert (message.stop_reason, message.error_message, message.text) == ("aborted", None, "Half")
    assert (len(calls), controller.signal._listeners) == (1, {})


async def test_an_abort_ends_the_wait_of_a_request():
    """The wait for another attempt raises OperationAborted."""
    controller = AbortController()

    async def request():
        raise Refused(503, **{"retry-after": "60"})

    with anyio.fail_after(LIMIT), pytest.raises(OperationAborted):
        await retry_provider_request(
            request, signal=controller.signal, on_retry=lambda _: controller.abort()
        )


def test_the_delay_doubles_up_to_its_limit():
    """Two, four, eight seconds and so on, never more than a minute (MD-22)."""
    policy = RetryPolicy()

    assert [policy.delay_ms(n) for n in (1, 2, 3, 5, 6, 10_000)] == [
        2000,
        4000,
        8000,
        32_000,
        60_000,
        60_000,
    ]


@pytest.mark.parametrize(
    "bad", [{"max_retries": -1}, {"base_delay_ms": 0.5}, {"max_retries": True}]
)
def test_a_bad_policy_is_refused(bad):
    """A policy says what each of its numbers may be."""
    with pytest.raises(ValueError, match=f"{next(iter(bad))} of a RetryPolicy is a whole number"):
        RetryPolicy(**bad)
