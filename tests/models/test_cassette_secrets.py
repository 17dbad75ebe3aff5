from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pi_agent_kernel.messages import TextContent
from pi_agent_kernel.models.cassette import record_stream_fn, replay_stream_fn
from pi_agent_kernel.models.cassette.redaction import Redactor
from pi_agent_kernel.models.pydantic_ai import provider_stream_fn
from pi_agent_kernel.request import StreamOptions
from pi_agent_kernel.response import ResponseBuilder
from provider import model_at
from test_cassette_files import MODEL, ask, recording

pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning",
    "ignore:Exception ignored in. <async_generator object:pytest.PytestUnraisableExceptionWarning",
)


def test_no_secret_gets_into_the_file(server, tmp_path, monkeypatch):
    """Keys of the request, the environment and the headers, and what looks like one, stay out."""
    secrets = {
        "option": "key-of-the-option",
        "environment": "hush-hush-environment",
        "header": "header-value-123",
        "openai": "sk-proj-abcdefghijklmnop1234",
        "google": "AIzaSyA1234567890abcdefghijklmnopqrstu",
        "aws": "AKIAIOSFODNN7EXAMPLE",
        "github": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "url": "pass-in-url",
    }
    monkeypatch.setenv("MY_SERVICE_TOKEN", secrets["environment"])
    server.play("text")
    model = model_at(server.url, headers={"Authorization": f"Bearer {secrets['header']}"})
    prompt = "https://me:pass-in-url@host/ " + " ".join(secrets.values())
    recorder = record_stream_fn(provider_stream_fn(env={}), tmp_path / "c.jsonl")

    ask(recorder, prompt, model=model, api_key=secrets["option"])

    text = (tmp_path / "c.jsonl").read_text()
    assert [name for name, secret in secrets.items() if name != "url" and secret in text] == []
    assert "me:[redacted]@host" in text
    assert "pass-in-url" in text  # outside an address nothing tells that it is one
    assert server.url not in text
    assert server.requests[0].payload["messages"][-1]["content"] == prompt  # the model got it all


def test_a_redacted_prompt_is_found_without_the_secret(tmp_path, monkeypatch):
    """Where the environment has no key, the place of the secret fits any text."""
    monkeypatch.setenv("MY_API_KEY", "hush-hush")
    path = recording(tmp_path / "c.jsonl", "my key is hush-hush, ok?")
    monkeypatch.delenv("MY_API_KEY")
    player = replay_stream_fn(path)

    assert ask(player, "my key is hush-hush, ok?").stop_reason == "stop"
    assert ask(player, "my key is hush-hush, no?").stop_reason == "error"


def test_a_secret_in_pieces_is_redacted(tmp_path):
    """A key that streams in several pieces is found, and the number of pieces stays."""
    pieces = ("see sk-abcd", "efghijklmn", "opqrstuv", "", " end")
    path = recording(tmp_path / "c.jsonl", pieces=pieces)
    line = next(x for x in map(json.loads, path.read_text().splitlines()) if x["type"] == "text")

    assert line["text"] == "see [redacted] end"
    assert len(line["chunks"]) == len(pieces)
    assert ask(replay_stream_fn(path)).content == (TextContent(text="see [redacted] end"),)


@pytest.mark.parametrize(
    "text",
    ["a task-oriented-approach-to-things", "OPENAI_API_KEY", "the token none", "ghp_short", "sk-1"],
)
def test_plain_words_are_left_alone(text, monkeypatch):
    """What only resembles a key stays, as do placeholders such as "none"."""
    monkeypatch.setenv("OLLAMA_API_KEY", "none")
    redactor = Redactor()
    redactor.learn(MODEL, StreamOptions(api_key="none"))

    assert redactor.text(text) == text
    assert redactor.text(redactor.text("key sk-" + "a" * 20)) == "key [redacted]"


def calls(text):
    """A stream function that calls a tool with these raw arguments, piece by piece."""

    async def stream(model, context, options):
        builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
        yield builder.start()
        yield builder.toolcall_start("c1", "login")
        for at in range(0, len(text), 5):
            yield builder.toolcall_delta(text[at : at + 5], 0)
        yield builder.toolcall_end(0)
        yield builder.done("toolUse")

    return stream


SECRET = 'p"ss/w\u00f6rd\\12\N{GRINNING FACE}3'
QUOTED = json.dumps(SECRET)[1:-1]
FORMS = {
    "plain": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "ascii": QUOTED,
    "slash": QUOTED.replace("/", "\\/"),
    "capitals": QUOTED.replace("00f6", "00F6").replace("d83d", "D83D"),
    "every": "".join(f"\\u{ord(c):04x}" for c in SECRET[:-2]) + "\\ud83d\\ude003",
    "nested": json.dumps(json.dumps(SECRET))[1:-1],
    "nested twice": json.dumps(json.dumps(json.dumps(SECRET)))[1:-1],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_that_json_escapes_is_redacted_in_a_call(tmp_path, monkeypatch, form):
    """However its raw arguments write it, the call's text is JSON without the secret."""
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    path = tmp_path / "c.jsonl"
    raw = f'{{"user": "me\\n", "password": "{FORMS[form]}", "more": "\\u00e9"}}'
    assert SECRET in decoded(json.loads(raw)["password"])

    ask(record_stream_fn(calls(raw), path))

    (line,) = [x for x in map(json.loads, path.read_text().splitlines()) if x["type"] == "toolCall"]
    assert "call" not in line  # what its text amounts to, and nothing else
    assert decoded(json.loads(line["text"])["password"]) == "[redacted]"
    assert line["text"] == raw.replace(SECRET_IN[form], "[redacted]")
    (call,) = ask(replay_stream_fn(path)).content
    assert decoded(call.arguments["password"]) == "[redacted]"
    assert call.arguments["user"] == "me\n"
    assert len(line["chunks"]) == -(-len(raw) // 5)


def decoded(text):
    """Resolve what is JSON text in JSON text."""
    while text.startswith('"'):
        text = json.loads(text)
    return text


# Where the forms have the secret itself: without the quotes that belong to the JSON around it.
SECRET_IN = {
    **FORMS,
    "nested": FORMS["nested"].removeprefix('\\"').removesuffix('\\"'),
    "nested twice": FORMS["nested twice"].removeprefix('\\"\\\\\\"').removesuffix('\\\\\\"\\"'),
}


def test_a_key_behind_an_escaped_newline_is_redacted(tmp_path):
    """In a file that a tool returns as JSON text, a key at the start of a line is found."""
    path = recording(tmp_path / "c.jsonl", json.dumps("A=1\nsk-proj-abcdefghijklmnop1234\n"))

    assert "abcdefghijklmnop" not in path.read_text()
    assert r"A=1\\n[redacted]\\n" in path.read_text()


@pytest.mark.property
@given(st.text(st.sampled_from('ab"\\/u006n\n{}'), max_size=40), st.lists(st.integers(0, 40)))
def test_pieces_are_redacted_as_the_whole(text, cuts):
    """Wherever a text is cut, its pieces together are what the whole becomes, without a secret."""
    redactor = Redactor()
    redactor.learn(MODEL, StreamOptions(api_key='ab"\\/ab"ab'))
    text = text + json.dumps('ab"\\/ab"ab') + text
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]

    clean = redactor.pieces(pieces)

    assert len(clean) == len(pieces)
    assert "".join(clean) == redactor.text("".join(pieces))
    assert redactor.text("".join(clean)) == "".join(clean)


@pytest.mark.parametrize("count", [8, 30, 3000])
def test_many_redacted_places_are_matched_at_once(tmp_path, monkeypatch, count):
    """The time to see that a prompt does not fit does not grow with the ways it might."""
    monkeypatch.setenv("MY_API_KEY", "hush-hush")
    path = recording(tmp_path / "c.jsonl", "hush-hush valid\n" * 200)
    monkeypatch.delenv("MY_API_KEY")
    player = replay_stream_fn(path)

    assert ask(player, "other key valid\n" * count + "changed").stop_reason == "error"
    assert ask(player, "other key valid\n" * 200).stop_reason == "stop"


@pytest.mark.parametrize(
    ("recorded", "asked", "fits"),
    [
        ("<hush-hush>", "<x>", True),
        ("<hush-hush>", "<>", False),
        ("hush-hush", "x", True),
        ("hush-hushhush-hush", "xy", True),
        ("hush-hushhush-hush", "x", False),
        ("aba hush-hush aba", "aba aba", False),
        ("hush-hush, hush-hush.", "a, b, c.", True),
        ("hush-hush, hush-hush.", "a, b, c", False),
    ],
)
def test_a_redacted_place_stands_for_some_text(tmp_path, monkeypatch, recorded, asked, fits):
    """Every place fits one character or more, and what is around it must be there."""
    monkeypatch.setenv("MY_API_KEY", "hush-hush")
    path = recording(tmp_path / "c.jsonl", recorded)
    monkeypatch.delenv("MY_API_KEY")

    assert (ask(replay_stream_fn(path), asked).stop_reason == "stop") is fits


def test_many_beginnings_of_private_keys_are_read_once():
    """A key between its marks is redacted; beginnings without an end take no long time."""
    redactor = Redactor()
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"

    assert redactor.text(f"a {begin}\nDEK-Info: A-B\nMII\n{end} b") == "a [redacted] b"
    assert redactor.text(begin * 50_000) == begin * 50_000
