from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from server import Reply, recorded

from pi_notebook.server.allowed import RefusedError
from pi_notebook.server.limits import Limits

LIMIT = 30  # seconds for what must end soon on any machine
STREAM = "pi/api/stream"
BODY = {
    "model": {"id": "test-1", "provider": "openai-chat"},
    "context": {"messages": [{"role": "user", "content": "go", "timestamp": 1}]},
}
MODELS = 'c.PiServer.models = ["openai-chat:test-*"]'


def limits(**changes):
    none = {"requests_per_minute": 0, "tokens_per_day": 0, "concurrent_streams": 0}
    return Limits(**{**none, **changes})


def use(counted, user="ada", tokens=0):
    with counted.visit(user) as visit:
        visit.tokens = tokens


def test_requests_of_a_minute_are_counted():
    """The request after the last allowed one is refused with the time to wait."""
    counted = limits(requests_per_minute=2)
    use(counted)
    use(counted)

    with pytest.raises(RefusedError, match="2 requests a minute") as caught:
        use(counted)

    assert caught.value.status == 429
    assert 1 <= caught.value.retry_after <= 60
    use(counted, "bob")


def test_tokens_of_a_day_are_counted():
    """Once the tokens are used up nothing is let in until midnight; others have their own."""
    counted = limits(tokens_per_day=100)
    use(counted, tokens=99)
    use(counted, tokens=99)

    with pytest.raises(RefusedError, match="100 tokens") as caught:
        use(counted)

    assert 0 < caught.value.retry_after <= 86_400
    use(counted, "bob")


def test_a_failed_request_frees_its_place():
    """A request that raises is no longer counted as streaming, and its tokens count."""
    counted = limits(concurrent_streams=1, tokens_per_day=10)

    def fails():
        with counted.visit("ada") as visit:
            visit.tokens = 9
            raise KeyError

    with pytest.raises(KeyError):
        fails()

    with counted.visit("ada"), pytest.raises(RefusedError, match="1 responses streaming"):
        use(counted)


def test_no_limit_refuses_nobody():
    """Zero means no limit."""
    counted = limits()
    for _ in range(200):
        use(counted, tokens=10**9)


def test_midnight_gives_tokens_and_no_requests(monkeypatch):
    """A new day begins with no tokens used; the requests of the last minute still count."""
    counted = limits(requests_per_minute=2, tokens_per_day=10)
    use(counted, tokens=10)
    monkeypatch.setattr("pi_notebook.server.limits._DAY", 1)  # another day, at any hour

    use(counted)
    with pytest.raises(RefusedError, match="2 requests a minute"):
        use(counted)


def post(server, user, body=BODY):
    with server.client(user) as client:
        return client.post(STREAM, json=body)


@pytest.mark.kernel
def test_what_is_no_request_counts_too(start_server, upstream):
    """Bodies that cannot be read and models that are not allowed use up the minute."""
    server = start_server(MODELS, "c.PiServer.requests_per_minute = 2")
    upstream.play("text")
    other = {**BODY, "model": {"id": "other", "provider": "openai-chat"}}

    answers = [post(server, "ada", body).status_code for body in ({}, other, BODY)]

    assert answers == [400, 403, 429]
    assert upstream.requests == []


@pytest.mark.kernel
def test_parallel_requests_pass_no_limit(start_server, upstream):
    """Of many requests at once only as many get through as there are places."""
    server = start_server(MODELS, "c.PiServer.concurrent_streams = 3")
    upstream.play(Reply(recorded("text").partition(b"rld")[0] + b"\n", ending="hang"))

    answered = Barrier(12)

    with ThreadPoolExecutor(12) as threads, server.client("ada") as client:

        def status(_):
            with client.stream("POST", STREAM, json=BODY) as response:
                answered.wait(LIMIT)  # nobody leaves before all have their answer
                return response.status_code

        statuses = sorted(threads.map(status, range(12)))

    assert statuses == [200] * 3 + [429] * 9


@pytest.mark.kernel
def test_parallel_requests_pass_no_minute(start_server, upstream):
    """Of many requests at once only as many are asked as a minute has."""
    server = start_server(
        MODELS, "c.PiServer.requests_per_minute = 5", "c.PiServer.concurrent_streams = 0"
    )
    upstream.play("text")

    with ThreadPoolExecutor(12) as threads:
        statuses = [each.status_code for each in threads.map(post, [server] * 12, ["ada"] * 12)]

    assert sorted(statuses) == [200] * 5 + [429] * 7
    assert len(upstream.requests) == 5


@pytest.mark.kernel
def test_too_many_requests_are_refused(start_server, upstream):
    """The third request of a minute is a 429 with Retry-After; another user is not touched."""
    server = start_server(MODELS, "c.PiServer.requests_per_minute = 2")
    upstream.play("text")

    statuses = [post(server, "ada").status_code for _ in range(2)]
    refused = post(server, "ada")

    assert statuses == [200, 200]
    assert (refused.status_code, post(server, "bob").status_code) == (429, 200)
    assert "2 requests a minute" in refused.json()["error"]
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert len(upstream.requests) == 3


@pytest.mark.kernel
def test_tokens_and_streams_are_limited(start_server, upstream):
    """A second stream waits its turn, and one that left early has used tokens all the same."""
    server = start_server(
        MODELS, "c.PiServer.concurrent_streams = 1", "c.PiServer.tokens_per_day = 50"
    )
    upstream.play(Reply(recorded("text").partition(b"rld")[0] + b"\n", ending="hang"))
    with server.client("ada") as client, client.stream("POST", STREAM, json=BODY):
        assert upstream.asked.wait(LIMIT)
        second = post(server, "ada")
    assert upstream.client_left.wait(LIMIT)
    server.wait_for_log("stop=aborted")
    upstream.play("text")

    third, fourth = post(server, "ada"), post(server, "ada")

    assert second.status_code == 429
    assert "streaming" in second.json()["error"]
    assert json.loads(third.text.split("\n\n")[-2][6:])["type"] == "done"
    assert fourth.status_code == 429
    assert "50 tokens" in fourth.json()["error"]
    assert post(server, "bob").status_code == 200
