"""Asking again for replies that failed, in the loop."""

from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import (
    Agent,
    AgentRequestUpdate,
    ModelRequestStart,
    ModelResponse,
    ModelRetry,
    ResponseBuilder,
    RetryPolicy,
    faux_assistant_message,
    faux_provider,
    to_json,
)
from pi_agent_kernel.testing import check_events
from scripted import LIMIT, Scripted, call, make_tool, ok

AT_ONCE = RetryPolicy(base_delay_ms=0)


def overloaded(text="", reason="overloaded"):
    return faux_assistant_message(text, stop_reason="error", error_message=reason)


def retry_of(attempt=2, maximum=3, delay=1):
    return ModelRetry(
        attempt=attempt, max_attempts=maximum, delay_ms=delay, error_message="x", kind="server"
    )


async def test_prompt_returns_after_the_whole_retry_loop():
    """A passing error, a tool and an answer are one run of one prompt (A20, MD-22)."""
    s = Scripted(overloaded("Half"), call(), "done", tools=[make_tool(ok)], retry=AT_ONCE)

    await s.prompt()

    assert s.roles == ["system", "user", "assistant", "assistant", "toolResult", "assistant"]
    assert (s.last.text, s.state.is_streaming, s.state.error_message) == ("done", False, None)
    assert s.count("turn_start") == 2
    s.check()


async def test_the_order_of_a_retry():
    """The failed answer is closed, then the retry is told, then the next request begins."""
    s = Scripted(overloaded("Half"), "ok", retry=AT_ONCE)

    await s.prompt()

    first = s.core.index("model_request_start")
    assert s.core[first : first + 6] == [
        "model_request_start",
        "message_start",
        "message_end",
        "model_response",
        "model_retry",
        "model_request_start",
    ]
    assert [event.attempt for event in s.of("model_request_start")] == [1, 2]
    assert s.of("model_retry") == [
        ModelRetry(
            attempt=2, max_attempts=3, delay_ms=0, error_message="overloaded", kind="overloaded"
        )
    ]
    assert s.of("agent_end")[0].messages == tuple(s.state.messages)


async def test_the_last_attempt_stands():
    """After the policy's retries the error ends the run."""
    s = Scripted(*[overloaded(reason=f"overloaded {n}") for n in range(4)], retry=AT_ONCE)

    await s.prompt()

    assert s.faux.call_count == 3
    assert s.state.error_message == "overloaded 2"
    s.check()


@pytest.mark.parametrize(
    ("reason", "policy"),
    [
        ("Invalid API key", AT_ONCE),
        ("prompt is too long: 9 tokens > 8", AT_ONCE),
        ("overloaded", None),
        ("overloaded", RetryPolicy(max_retries=0)),
    ],
)
async def test_what_is_not_asked_for_again(reason, policy):
    """An error that stays, or no policy, ends the run (MD-22, MD-24)."""
    s = Scripted(overloaded(reason=reason), "ok", retry=policy)

    await s.prompt()

    assert (s.faux.call_count, s.count("model_retry"), s.last.stop_reason) == (1, 0, "error")


async def test_each_attempt_runs_the_hooks():
    """A hook sees every attempt, and may send the next one to another model."""
    seen = []

    def prepare(request, signal):
        seen.append(len(request.context.messages))
        return AgentRequestUpdate(model=s.faux.model("b")) if len(seen) == 2 else None

    options = {"models": ("a", "b")}
    s = Scripted(overloaded(), "ok", retry=AT_ONCE, prepare_request=prepare, faux_options=options)

    await s.prompt()

    assert seen == [1, 2]
    assert [model.id for model in s.models] == ["a", "b"]


async def test_a_hook_may_mend_the_answer():
    """What after_model_response makes of a failed answer decides."""
    s = Scripted(
        overloaded("Half"),
        retry=AT_ONCE,
        after_model_response=lambda *_: faux_assistant_message("mended"),
    )

    await s.prompt()

    assert (s.last.text, s.faux.call_count) == ("mended", 1)


async def test_an_abort_in_the_wait_closes_the_run():
    """A minute's wait is over at once; the run ends as aborted and no listener is left (E17)."""
    s = Scripted(overloaded(), "never", retry=RetryPolicy(base_delay_ms=60_000))
    signals = []

    def stop(_event, signal):
        signals.append(signal)
        s.agent.abort()

    s.agent.subscribe(stop, events=[ModelRetry])

    await s.prompt()

    assert (s.last.stop_reason, s.faux.call_count) == ("aborted", 1)
    assert signals[0]._listeners == {}
    s.check()


async def test_an_abort_while_it_already_waits():
    """An abort from elsewhere wakes the wait."""
    s = Scripted(overloaded(), "never", retry=RetryPolicy(base_delay_ms=60_000))
    waiting = anyio.Event()
    s.agent.subscribe(lambda *_: waiting.set(), events=[ModelRetry])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(s.prompt)
        await waiting.wait()
        await anyio.lowlevel.checkpoint()
        s.agent.abort()

    assert (s.last.stop_reason, s.faux.call_count) == ("aborted", 1)


class Announcing:
    """A stream function that makes a second attempt by itself."""

    def __init__(self, wait=0.0):
        self.options = None
        self.wait = wait

    async def __call__(self, model, context, options):
        self.options = options
        builder = ResponseBuilder(api="a", provider="p", model="m")
        await options.on_retry(retry_of())
        await anyio.sleep(self.wait)
        yield builder.start()
        yield builder.done()


async def test_a_stream_function_announces_its_own_attempts():
    """Its on_retry is an event between the request's start and the answer."""
    s = Scripted(stream_fn=Announcing())

    await s.prompt()

    at = s.core.index("model_retry")
    assert s.core[at - 1 : at + 2] == ["model_request_start", "model_retry", "message_start"]
    s.check()


async def test_an_abort_during_the_announcement():
    """A slow listener is not cut off; the stream function is, at its next wait."""
    s = Scripted(stream_fn=Announcing(wait=60))
    ended = []

    async def listen(_event, _signal):
        s.agent.abort()
        await anyio.sleep(0.01)
        ended.append(True)

    s.agent.subscribe(listen, events=[ModelRetry])

    await s.prompt()

    assert (ended, s.last.stop_reason) == ([True], "aborted")
    s.check()


async def test_an_announcement_that_comes_too_late():
    """A callback called after its request has no effect."""
    stream = Announcing()
    s = Scripted(stream_fn=stream)
    await s.prompt()
    before = len(s.events)

    await stream.options.on_retry(retry_of(3))

    assert len(s.events) == before


async def test_the_options_of_a_request_count_attempts():
    """The stream function learns how many attempts were made and may be made."""
    s = Scripted(overloaded(), "ok", retry=RetryPolicy(base_delay_ms=0, max_retries=4))
    await s.prompt()
    off = Scripted("ok")
    await off.prompt()

    assert [(o.attempt, o.max_retries) for o in s.options] == [(1, 4), (2, 4)]
    assert [(o.attempt, o.max_retries) for o in off.options] == [(1, None)]


async def test_a_server_that_wants_too_long_a_wait():
    """The cap of max_retry_delay_ms holds for the retry of a reply, too (CO-09)."""
    entry = {"type": "provider_error", "details": {"kind": "rate_limit", "retryAfterMs": 90}}

    async def stream(model, context, options):
        builder = ResponseBuilder(api="a", provider="p", model="m")
        builder.fields["diagnostics"] = [entry]
        yield builder.start()
        yield builder.error("slow down")

    waits = {}
    for cap in (1, 90, 0):
        s = Scripted(stream_fn=stream, retry=RetryPolicy(max_retries=1), max_retry_delay_ms=cap)
        await s.prompt()
        waits[cap] = [event.delay_ms for event in s.of("model_retry")]

    assert waits == {1: [], 90: [90], 0: [90]}


def test_a_retry_is_told_in_words_and_on_the_wire():
    """explain() cites the retry; its wire form has camelCase fields."""
    faux = faux_provider()
    faux.set_responses([overloaded(), faux_assistant_message("ok")])
    agent = Agent(stream_fn=faux.stream_fn, model=faux.model(), retry=AT_ONCE)
    agent.prompt_sync("go")

    told = agent.explain()
    assert "is made again in 0 ms (attempt 2 of 3): overloaded" in told
    assert "with 2 messages (attempt 2)" in told
    assert to_json(retry_of()) == {
        "type": "model_retry",
        "attempt": 2,
        "maxAttempts": 3,
        "delayMs": 1,
        "errorMessage": "x",
        "kind": "server",
    }


def test_a_wrong_policy_is_refused_where_it_is_given():
    """Agent(retry=3) says what a policy is."""
    with pytest.raises(TypeError, match=r"RetryPolicy, such as RetryPolicy\(\), or None, not 3"):
        Agent(stream_fn=faux_provider().stream_fn, retry=3)


async def test_the_checker_knows_the_rules_of_retries():
    """Events with a retry out of place are refused."""
    s = Scripted(overloaded(), "ok", retry=AT_ONCE)
    with anyio.fail_after(LIMIT):
        await s.prompt()
    at = next(i for i, event in enumerate(s.events) if isinstance(event, ModelRetry))
    second = next(
        i for i, e in enumerate(s.events) if isinstance(e, ModelRequestStart) and e.attempt == 2
    )
    assert isinstance(s.events[at - 1], ModelResponse)

    check_events(s.events)
    for broken, said in (
        ([*s.events[:at], *s.events[at + 1 :]], "attempts count from 1"),
        ([*s.events[:at], retry_of(3), *s.events[at + 1 :]], "attempts count up"),
        ([*s.events[:at], retry_of(2, 1), *s.events[at + 1 :]], "attempts count up"),
        ([*s.events[: at + 1], *s.events[at:]], "only a failed request"),
        ([*s.events[: second + 2], retry_of(3), *s.events[second + 2 :]], "only a failed request"),
    ):
        with pytest.raises(AssertionError, match=said):
            check_events(broken)
