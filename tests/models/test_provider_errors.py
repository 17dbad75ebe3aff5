from __future__ import annotations

import sys

import pytest
from pi_agent_kernel.events import StreamError
from pi_agent_kernel.messages import (
    ImageContent,
    UserMessage,
)
from pi_agent_kernel.models.provider_errors import Place, explain_failure
from pi_agent_kernel.request import Model
from provider import ask, failure, play
from pydantic_ai import exceptions as kinds
from server import Reply, recorded, unused_url

# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("cut", "Half an answer", "without a stop reason"),
        ("error", "Well, ", "The model crashed"),
        ("refusal", "I", "content filter"),
    ],
)
async def test_a_stream_that_ends_badly_is_an_error(server, name, text, said):
    """The text so far is kept, the error says what happened (E05, MD-01)."""
    server.play(name)

    events = await play(server.url)

    assert isinstance(events[-1], StreamError)
    assert events[-1].error.text == text
    assert events[-1].error.stop_reason == "error"
    assert said in events[-1].error.error_message


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [
        (failure(401), 401, ["refused the API key (HTTP 401): No luck", "OPENAI_API_KEY"]),
        (failure(403), 403, ["HTTP 403", "OPENAI_API_KEY"]),
        (failure(404), 404, ["HTTP 404", "'test-1'", "OPENAI_BASE_URL", "/v1"]),
        (failure(429, **{"retry-after": "7"}), 429, ["HTTP 429", "Try again in 7 s"]),
        (failure(429), 429, ["HTTP 429", "Try again in a minute"]),
        (failure(402), 402, ["HTTP 402", "quota", "Top it up"]),
        (failure(400), 400, ["rejected the request (HTTP 400): No luck"]),
        (failure(500), 500, ["failed (HTTP 500): No luck", "Try again"]),
        (failure(503), 503, ["overloaded (HTTP 503)"]),
        (
            Reply(b"<!doctype html><p>Hi", content_type="text/html"),
            200,
            ["answered with text/html", "OPENAI_BASE_URL"],
        ),
        (
            Reply(b"<html>bad gateway</html>", status=502, content_type="text/html"),
            502,
            ["HTTP 502", "a web page"],
        ),
        (Reply(b""), 200, ["ended before it began", "Try again"]),
        (
            Reply(b'{"choices": []}', content_type="application/json"),
            200,
            ["answered with application/json", "stream"],
        ),
    ],
)
async def test_a_refused_request_names_status_and_remedy(server, reply, status, said):
    """An HTTP failure is one error event; its text and diagnostics say what to do (MD-01)."""
    server.play(reply)

    (event,) = await play(server.url)

    assert isinstance(event, StreamError)
    for part in said:
        assert part in event.error.error_message
    assert event.error.diagnostics[0]["details"]["status"] == status
    assert len(server.requests) == 1  # the SDK's own retries are off


async def test_the_wait_of_a_rate_limit_is_kept(server):
    """What the provider asked to wait is in the diagnostics, for a retry."""
    server.play(failure(429, **{"retry-after": "7"}))

    (event,) = await play(server.url)

    details = event.error.diagnostics[0]["details"]
    assert details == {"kind": "rate_limit", "status": 429, "retryAfterMs": 7000}


async def test_the_key_is_not_repeated(server):
    """An error text does not show the key, even if the server does."""
    server.play(failure(401, "Bad key sk-secret-1"))

    message = await ask(server.url, api_key="sk-secret-1")

    assert "sk-secret-1" not in message.error_message
    assert "Bad key …" in message.error_message


async def test_nobody_listens():
    """A refused connection says that the server may not be running."""
    with unused_url() as url:
        message = await ask(url)

    assert f"Cannot reach {url}" in message.error_message
    assert "Is the server running?" in message.error_message
    assert "OPENAI_BASE_URL" in message.error_message


@pytest.mark.parametrize("ending", ["cut", "reset"])
async def test_a_connection_that_breaks(server, ending):
    """A connection closed in the middle keeps the text so far and says that it broke off."""
    server.play(Reply(recorded("cut"), ending=ending))

    message = await ask(server.url)

    assert message.stop_reason == "error"
    assert message.text == "Half an answer" or ending == "reset"
    assert "broke off in the middle" in message.error_message


async def test_a_connection_that_closes_without_an_answer(server):
    """A server that hangs up before any answer is said to have done so."""
    server.play(Reply(ending="cut", silent=True))

    message = await ask(server.url)

    assert f"{server.url} closed the connection without an answer" in message.error_message


@pytest.mark.parametrize("silent", [True, False])
async def test_a_server_that_hangs(server, silent):
    """Silence, at once or in the middle, ends after the idle limit."""
    server.play(Reply(recorded("cut"), ending="hang", silent=silent))

    message = await ask(server.url, idle_timeout=0.3)

    assert message.stop_reason == "error"
    assert "sent nothing for 0.3 s" in message.error_message
    assert message.text == ("" if silent else "Half an answer")


async def test_a_bad_image_is_an_error_event():
    """An image that is not base64 does not raise out of the stream."""
    message = await ask(
        "http://127.0.0.1:9/v1",
        [UserMessage(content=[ImageContent(data="data:,x", mime_type="image/png")])],
    )

    assert "not base64" in message.error_message


async def test_a_callback_that_raises_is_an_error_event(server):
    """An exception of a callback ends the stream as an error (MD-01)."""
    server.play("text")

    message = await ask(server.url, on_response=lambda *_: 1 / 0)

    assert message.stop_reason == "error"
    assert "division by zero" in message.error_message


async def test_openai_itself_needs_a_key():
    """Without key and address nothing is sent; the text names both variables."""
    message = await ask("")

    assert "OPENAI_API_KEY" in message.error_message
    assert "OPENAI_BASE_URL" in message.error_message


async def test_an_unknown_format_is_an_error_event():
    """A model of an unknown api ends as an error that lists the known ones."""
    message = await ask("", model=Model(id="x", api="carrier-pigeon"))

    assert "'carrier-pigeon'" in message.error_message
    assert "openai-completions" in message.error_message


async def test_a_missing_package_names_what_to_install(server, monkeypatch):
    """An import that fails ends the stream with the command that helps."""
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.openai", None)

    message = await ask(server.url)

    assert "pip install 'pydantic-ai-slim[openai]'" in message.error_message


def test_errors_of_the_set_up_and_of_the_window():
    """Errors that no server on loopback causes have their words, too."""
    place = Place(
        model="m", base_url="http://x/v1", key_variable="K", url_variable="U", requirement="r",
        idle_timeout=1,
    )  # fmt: skip
    window = kinds.ModelContextWindowExceededError("m", "too long")
    setup = kinds.UserError("No such thing!")

    assert explain_failure(window, place).kind == "context_overflow"
    assert "context window of m: too long" in explain_failure(window, place).text
    assert explain_failure(setup, place).text.endswith(
        "set up: No such thing. Correct that and try again."
    )
    assert "x" * 300 in explain_failure(ValueError("x" * 9999), place).text
    assert len(explain_failure(ValueError("x" * 9999), place).text) < 600
