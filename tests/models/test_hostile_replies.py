from __future__ import annotations

import gzip
import json
import warnings

import anyio
import pytest
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.messages import AssistantMessage, TextContent, ToolCall, UserMessage
from pi_agent_kernel.models.catalog import choose_model
from pi_agent_kernel.models.error_kinds import kind_of
from pi_agent_kernel.models.survey import survey_models
from pi_agent_kernel.request import Model, StreamOptions
from pi_agent_kernel.secrecy import Secrets, shown_address
from pi_agent_kernel.wire import from_json, to_json
from provider import LIMIT, ask, ask_format, failure, model_at
from server import Reply

# On trio the SDKs leave their inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|groq|google|httpx|httpcore).*:ResourceWarning"
)
KEY = "sk-KEYKEYKEYKEY1234"


def chunks(*deltas, finish="stop", usage=None):
    """Write a reply in chat completions."""
    base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": finish}])
    events = [{**base, "choices": each} for each in choices]
    if usage is not None:
        events.append({**base, "choices": [], "usage": usage})
    return Reply(b"".join(b"data: %s\n\n" % json.dumps(e).encode() for e in events))


@pytest.mark.parametrize("end", ["\n", "\r\n", " "])
async def test_a_key_is_used_without_the_line_break_it_ends_with(server, end):
    """Files and secrets of containers end in a line break; the key does not."""
    server.play(chunks({"content": "hi"}))

    given = await ask(server.url, api_key=KEY + end)
    read = await ask(server.url, env={"OPENAI_API_KEY": KEY + end})

    assert (given.stop_reason, read.stop_reason) == ("stop", "stop")
    assert {r.header("authorization") for r in server.requests} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("bad", ["sk-KEYKEY\nKEYKEY", "sk-KEYKEY\0KEYKEY", "sk-KEYKEY\u2028KEY"])
async def test_what_is_no_key_is_neither_sent_nor_shown(server, bad):
    """A key that no header can carry is refused once, before the request, in words without it."""
    server.play(chunks({"content": "hi"}))

    message = await ask(server.url, api_key=bad, max_retries=2)

    assert "KEYKEY" not in message.error_message
    assert "OPENAI_API_KEY" in message.error_message
    assert message.diagnostics[0]["details"]["kind"] == "auth"
    assert server.requests == []


@pytest.mark.parametrize("headers", [{"X-Token": "hunter2\r\nX-B: 1"}, {"X-A\r\nX-B": "hunter2"}])
async def test_what_is_no_header_is_neither_sent_nor_shown(server, headers):
    """A header with a line break is refused before the request, in words without its value."""
    server.play(chunks({"content": "hi"}))

    message = await ask(server.url, headers=headers, max_retries=2)

    assert "hunter2" not in message.error_message
    assert message.diagnostics[0]["details"]["kind"] == "setup"
    assert server.requests == []


@pytest.mark.parametrize("before", [386, 390, 395])
async def test_no_part_of_a_key_is_left_where_a_text_is_cut(server, before):
    """Secrets are hidden before a text is cut."""
    server.play(failure(400, "x" * before + KEY))

    assert "sk-K" not in (await ask(server.url, api_key=KEY)).error_message


def test_secrets_are_hidden_however_they_are_written():
    """A secret is found as repr, JSON and addresses write it, and cut off at an end."""
    secrets = Secrets(["k/ä\n1+2=3"], addresses=["https://ada:hunter2@host/v1"])

    for form in ("k/ä\n1+2=3", r"k\/\u00e4\n1+2=3", "k%2F%C3%A4%0A1%2B2%3D3", "hunter2"):
        assert secrets.hide(f"a {form} b") == "a … b"
    assert secrets.hide("a k/ä\n1+", cut=True) == "a …"
    assert "hunter2" not in repr(secrets)


def test_addresses_and_options_are_shown_without_secrets():
    """No summary, survey or repr has a password, a key or a header that says who asks."""
    env = {
        "OPENAI_BASE_URL": "https://user:hunter2@gw.example/v1",
        "OPENAI_API_KEY": "k",
        "ANTHROPIC_BASE_URL": "https://user:hunter2@gw.example",
    }
    chosen = choose_model(None, env)
    options = StreamOptions(api_key="hunter2", headers={"Authorization": "hunter2", "X-A": "b"})

    assert "at https://gw.example/v1 (" in chosen.summary
    shown = [chosen, chosen.model, options, Model(id="m", headers={"x-api-key": "hunter2"})]
    shown += survey_models(env)
    assert not any("hunter2" in repr(each) for each in shown)
    assert "'X-A': 'b'" in repr(options)
    assert "temperature=None" in repr(options)
    assert shown_address("u:p@w@host/x@y") == "host/x@y"


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages", "groq-completions"])
@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (500, gzip.compress(b"\0" * 50_000_000, 1), {"content-encoding": "gzip"}),
        (400, b"exceed" * 17_000, {}),
        (400, b"[" * 100_000, {}),
        (500, b"no gzip", {"content-encoding": "gzip"}),
        (200, b"<html>" + b"<p>hello" * 200_000, {}),
    ],
)
async def test_a_monstrous_error_is_a_short_one(server, api, status, body, headers):
    """Of the body of a failure only the beginning is read, unpacked and shown (MD-01)."""
    kind = "text/html" if body.startswith(b"<html") else "application/json"
    server.play(Reply(body, status=status, content_type=kind, headers=headers))

    message = (await ask_format(api, server.url))[-1].message

    assert message.diagnostics[0]["details"]["status"] == status
    assert len(message.error_message) < 800


async def test_an_error_that_never_ends_is_told_within_the_limit(server):
    """The status is enough when the body keeps dripping."""
    server.play(Reply(b"x" * 10, status=500, content_type="application/json", ending="drip"))

    message = await ask(server.url, idle_timeout=1.0)

    assert message.diagnostics[0]["details"] == {"kind": "server", "status": 500}


async def test_json_nested_without_end_is_an_error_event(server):
    """Explaining a failure never raises (MD-01)."""
    server.play(Reply(b"[" * 4000, content_type="application/json"))

    assert "application/json" in (await ask(server.url)).error_message


def test_long_texts_are_classed_by_their_beginning():
    """What comes late in a page of text classes nothing."""
    assert kind_of("rate limit") == "rate_limit"
    assert kind_of("exceed" * 100_000 + " rate limit") == "unknown"


async def test_words_of_a_provider_are_fit_to_be_shown(server):
    """Controls and lone surrogates in an error are replaced."""
    server.play(failure(400, "a\0b\ud800c\x1b[31m"))

    message = await ask(server.url)

    assert "a\ufffdb\ufffdc\ufffd[31m" in message.error_message


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 1.5, "completion_tokens": 1}, (1, 1)),
        ({"prompt_tokens": None, "completion_tokens": 2}, (0, 2)),
        ({"prompt_tokens": "5", "completion_tokens": -1}, (0, 0)),
        ({"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": "x"}, (3, 1)),
        ({"prompt_tokens": float("nan"), "completion_tokens": 10**30}, (0, 2**53 - 1)),
        ("x", (0, 0)),
    ],
)
async def test_usage_is_counted_in_whole_numbers(server, usage, counted):
    """Whatever a provider reports, a message can be stored and read again; nobody is warned."""
    server.play(chunks({"content": "hi"}, usage=usage))

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        message = await ask(server.url)

    assert message.stop_reason == "stop", message.error_message
    assert (message.usage.input, message.usage.output) == counted
    assert from_json(to_json(message)).usage == message.usage


@pytest.mark.parametrize("api", ["openai-completions", "groq-completions"])
async def test_a_call_without_a_name_is_told(server, api):
    """Nobody knows what it wanted: an error, not a call to run (E02)."""
    call = {"index": 0, "id": "a", "type": "function", "function": {"arguments": "{}"}}
    server.play(chunks({"tool_calls": [call]}, {"content": "hello"}))

    message = (await ask_format(api, server.url))[-1].message

    assert "a tool call without a name" in message.error_message
    assert message.text == "hello"


async def test_a_name_may_come_after_the_arguments(server):
    """What came before it belongs to the call (E02)."""
    early = {"index": 0, "id": "a", "function": {"arguments": '{"q":'}}
    late = {"index": 0, "function": {"name": "find", "arguments": "1}"}}
    server.play(chunks({"tool_calls": [early]}, {"tool_calls": [late]}, finish="tool_calls"))

    (call,) = (await ask(server.url)).tool_calls

    assert (call.id, call.name, dict(call.arguments)) == ("a", "find", {"q": 1})


@pytest.mark.parametrize("junk", [b"null", b"5", b'"x"'])
async def test_what_is_no_chunk_is_left_out(server, junk):
    """Also as the first event (E19)."""
    whole = chunks({"content": "hi"})
    server.play(Reply(b"data: %s\n\n%sdata: %s\n\n" % (junk, whole.body, junk)))

    assert (await ask(server.url)).text == "hi"


async def test_an_abort_ends_a_callback_that_waits(server):
    """Of the next attempt is told in a callback that may wait, but no longer than the abort."""
    server.play(failure(500))
    controller = AbortController()

    async def wait(_):
        controller.abort()
        await anyio.sleep(LIMIT * 4)

    message = await ask(server.url, max_retries=1, on_retry=wait, signal=controller.signal)

    assert message.stop_reason == "aborted"


async def test_a_callback_that_fails_is_named(server):
    """Whoever wrote it can find it."""
    server.play(failure(500))

    def broken(_):
        raise RuntimeError("no disk")

    retry = await ask(server.url, max_retries=1, on_retry=broken)
    payload = await ask(server.url, on_payload=lambda *_: {"a": float("nan")})

    assert "on_retry raised RuntimeError: no disk" in retry.error_message
    assert "on_payload returned what is no JSON" in payload.error_message
    assert payload.diagnostics[0]["details"]["kind"] == "setup"
    assert len(server.requests) == 1


async def test_an_odd_id_or_signature_does_not_end_a_conversation(server):
    """What cannot be sent is cleaned or left out, so that the next request works (E08)."""
    model = model_at(server.url)
    known = {"api": model.api, "provider": model.provider, "model": model.id}
    broken = '{"pydantic_ai":1'
    history = [
        UserMessage(content="go"),
        AssistantMessage(
            content=[
                TextContent(text="well", text_signature=broken),
                ToolCall(id="a\ud800", name="t", thought_signature='{"pydantic_ai":1,"id":[1]}'),
            ],
            stop_reason="toolUse",
            **known,
        ),
        UserMessage(content="on"),
    ]
    server.play(chunks({"content": "hi"}))

    message = await ask(server.url, history)

    assert message.text == "hi", message.error_message
    (_, said, result, _) = server.requests[0].payload["messages"]
    assert (said["tool_calls"][0]["id"], result["tool_call_id"]) == ("a_", "a_")


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages"])
@pytest.mark.parametrize("content", ["", " \n", [], [TextContent(text=" ")]])
async def test_a_blank_message_of_the_user_gets_a_placeholder(server, api, content):
    """Providers refuse a message with nothing in it, and every request after it (E11)."""
    server.play(failure(400))

    await ask_format(api, server.url, [UserMessage(content=content)])

    assert "(empty message)" in json.dumps(server.requests[0].payload["messages"])
