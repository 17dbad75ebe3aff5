from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.messages import UserMessage
from pi_agent_kernel.models.cassette import CassetteRecorder, record_stream_fn, replay_stream_fn
from pi_agent_kernel.request import StreamOptions, TranscriptContext
from pi_agent_kernel.response import ResponseBuilder
from provider import LIMIT, model_at

MODEL = model_at("", id="m", provider="p")
HEADER = '{"type": "cassette", "version": 1}\n'
# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning",
    "ignore:Exception ignored in. <async_generator object:pytest.PytestUnraisableExceptionWarning",
)


def says(*pieces):
    """A stream function that answers everything with these pieces, and counts."""

    async def stream(model, context, options):
        stream.asked += 1
        builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
        yield builder.start()
        opened = builder.text_start()
        yield opened
        for piece in pieces:
            yield builder.text_delta(piece, opened.content_index)
        yield builder.text_end(opened.content_index)
        yield builder.done()

    stream.asked = 0
    return stream


def ask(stream_fn, *prompts, model=MODEL, **options):
    """Return the final message of one request."""

    async def play():
        with anyio.fail_after(LIMIT):
            messages = [UserMessage(content=prompt) for prompt in prompts or ("go",)]
            context = TranscriptContext(messages=messages)
            return [e async for e in stream_fn(model, context, StreamOptions(**options))]

    return anyio.run(play)[-1].message


def recording(path, *prompts, pieces=("hello",)):
    """Record one request."""
    ask(record_stream_fn(says(*pieces), path), *prompts)
    return path


# ---------------------------------------------------------------------------- a bad request


def test_an_unknown_request_shows_what_differs(tmp_path):
    """The error names the nearest request, the first difference, and has a diff."""
    recorder = CassetteRecorder(tmp_path / "c.jsonl")
    for prompt in ("count the words of this text\nplease", "draw a plot"):
        ask(recorder.wrap(says("x")), prompt)
    player = replay_stream_fn(tmp_path / "c.jsonl")

    message = ask(player, "count the letters of this text\nplease")

    first, *diff = message.error_message.splitlines()
    assert message.stop_reason == "error"
    assert message.diagnostics[0]["details"] == {"kind": "invalid", "shouldRetry": False}
    assert "c.jsonl has no response to this request; the nearest of 2 is request 1" in first
    assert "message 1 (user) was 'count the words of" in first
    assert "and is 'count the letters of" in first
    assert "-user: count the words of this text" in diff
    assert "+user: count the letters of this text" in diff
    assert " user: please" in diff


@pytest.mark.parametrize(
    ("prompts", "options", "words"),
    [
        (("a", "b", "more"), {}, "message 3 (user) was not in it: 'more'"),
        (("a",), {}, "it has 2 messages, this one only the first 1 of them"),
        (("a", "b"), {"reasoning": "high"}, "thinking was 'off' and is 'high'"),
        (("a", "b"), {"model": model_at("", id="n", provider="p")}, "the model was 'p:m' and is"),
        (("x" * 5000,), {}, "message 1 (user) was 'a' and is 'xxx"),
    ],
)
def test_each_kind_of_difference_is_named(tmp_path, prompts, options, words):
    """More or fewer messages, another model, another thinking level are told apart."""
    player = replay_stream_fn(recording(tmp_path / "c.jsonl", "a", "b"))

    message = ask(player, *prompts, **options)

    assert words in message.error_message.splitlines()[0]
    assert len(message.error_message) < 4000


# -------------------------------------------------------------------------------- bad files


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty: record it first"),
        ("\n\n", "is empty: record it first"),
        ("hello\n", "is no cassette: its first line is not"),
        ('{"cells": []}\n', "is no cassette"),
        ('["cassette"]\n', "is no cassette"),
        ('{"type": "cassette"}\n', "is no cassette"),
        ('{"type": "cassette", "version": 2}\n', "is of version 2, this program reads 1: update"),
        (HEADER + "oops\n\n", "Line 2 of the cassette"),
        (HEADER + '{"type": "oops"}\n\n', "no line of a cassette has the type 'oops'"),
        (HEADER + '{"type": "model"}\n\n', "Line 2"),
        (HEADER + '{"type": "request", "request": 1, "model": "p:m"}\n\n', "describes 'p:m'"),
        (HEADER + '{"type": "response", "request": 7}\n\n', "there is no request 7 before it"),
        (HEADER + '{"type": "message", "role": "user"}\n\n', "follows a request"),
        (HEADER + "[1]\n\n", "expected an object"),
    ],
)
def test_what_is_no_cassette_is_said(tmp_path, content, words):
    """Empty, foreign, newer and damaged files are refused with the line and a remedy."""
    (tmp_path / "c.jsonl").write_text(content)

    with pytest.raises(ModelError) as caught:
        replay_stream_fn(tmp_path / "c.jsonl")
    assert words in str(caught.value)
    assert str(tmp_path / "c.jsonl") in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"chunks": [3, 2]', '"chunks": [3, 3]', "chunks add up to 6, its text has 5 characters"),
        ('"chunks": [3, 2]', '"chunks": "no"', "Expected `array"),
        ('"block": 0', '"block": "x"', "Expected `int`"),
        ('"stopReason": "stop"', '"stopReason": 5', "stopReason"),
        ('"type": "text"', '"type": "toolCall"', "a tool call begins with an id and a name"),
    ],
)
def test_a_line_that_was_edited_wrongly_is_named(tmp_path, old, new, words):
    """A wrong edit by hand is an error with its line; a right one is what replay gives."""
    path = recording(tmp_path / "c.jsonl", pieces=("hel", "lo"))
    text = path.read_text()

    path.write_text(text.replace(', "chunks": [3, 2]', "").replace("hello", "bye"))
    assert ask(replay_stream_fn(path)).text == "bye"
    path.write_text(text.replace(old, new) + "\n")
    with pytest.raises(ModelError, match=r"Line \d+ of the cassette") as caught:
        replay_stream_fn(path)
    assert words in str(caught.value)


def test_a_missing_file_and_a_folder_are_said(tmp_path):
    """Neither is taken for an empty cassette, to replay or to record."""
    with pytest.raises(ModelError, match="There is no cassette"):
        replay_stream_fn(tmp_path / "nope.jsonl")
    with pytest.raises(ModelError, match="is a folder"):
        replay_stream_fn(tmp_path)
    with pytest.raises(ModelError, match="is a folder"):
        CassetteRecorder(tmp_path)
    with pytest.raises(ModelError, match="There is no folder"):
        CassetteRecorder(tmp_path / "nope" / "c.jsonl")
    with pytest.raises(ValueError, match="chunks_per_second"):
        replay_stream_fn(tmp_path, chunks_per_second=0)


def test_a_file_that_broke_off_anywhere_can_be_read(tmp_path):
    """After any byte of a crash the complete responses are there, the last one says it is not."""
    path = tmp_path / "c.jsonl"
    recorder = CassetteRecorder(path)
    ask(recorder.wrap(says("one")), "a")
    whole = path.stat().st_size
    ask(recorder.wrap(says("two", "more")), "b")
    raw = path.read_bytes()

    for end in range(whole, len(raw)):
        path.write_bytes(raw[:end])
        player = replay_stream_fn(path)
        assert ask(player, "a").text == "one"
        if end < len(raw) - 1:
            assert ask(player, "b").stop_reason == "error"


def run_apart(code, path):
    """Run code in a program of its own, with a stream function that records; return its status."""
    opening = (
        "import os, sys\n"
        "from test_cassette_files import *\n"
        "path = sys.argv[1]\n"
        "model = says('one')\n"
        "recorder = CassetteRecorder(path)\n"
        "stream_fn = recorder.wrap(model)\n"
    )
    here = str(Path(__file__).parent)
    ended = subprocess.run(
        [sys.executable, "-c", opening + code, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])},
        check=False,
        timeout=LIMIT,
    )
    return ended.returncode


def test_a_program_that_is_killed_leaves_its_responses(tmp_path):
    """A response that has ended is in the file, whatever becomes of the program then."""
    code = (
        "ask(stream_fn, 'a')\n"
        "async def dies(model, context, options):\n"
        "    yield ResponseBuilder(api='a', provider='p', model='m').start()\n"
        "    os._exit(9)\n"
        "ask(recorder.wrap(dies), 'b')\n"
    )
    path = tmp_path / "c.jsonl"

    assert run_apart(code, path) == 9
    player = replay_stream_fn(path)
    assert ask(player, "a").text == "one"
    assert "the recording broke off there" in ask(player, "b").error_message


# -------------------------------------------------------------------------------- recording


def test_an_earlier_recording_is_kept(tmp_path):
    """Recording into a cassette starts it anew at the first request; the old one is FILE.bak."""
    path = recording(tmp_path / "c.jsonl", "old")
    before = path.read_bytes()
    recorder = CassetteRecorder(path)
    assert path.read_bytes() == before

    ask(recorder.wrap(says("x")), "new")

    assert (tmp_path / "c.jsonl.bak").read_bytes() == before
    assert recorder.backup == tmp_path / "c.jsonl.bak"
    assert "old" not in path.read_text()
    assert recording(tmp_path / "d.jsonl", "new", pieces=("x",)).read_bytes() == path.read_bytes()


def test_a_file_of_something_else_is_not_touched(tmp_path):
    """A file that is no cassette is refused before anything is asked."""
    path = tmp_path / "notes.txt"
    path.write_text("my notes")

    with pytest.raises(ModelError, match="is there and is no cassette"):
        record_stream_fn(says("x"), path)
    assert path.read_text() == "my notes"


def test_a_request_that_cannot_be_recorded_is_not_sent(tmp_path):
    """When the file was changed or its folder is gone, the model is not asked."""
    folder = tmp_path / "sub"
    folder.mkdir()
    path = folder / "c.jsonl"
    model = says("x")
    stream_fn = record_stream_fn(model, path)
    ask(stream_fn)
    with path.open("a") as file:
        file.write("x")
    changed = ask(stream_fn)
    path.unlink()
    anew = ask(stream_fn)
    path.unlink()
    folder.rmdir()
    gone = ask(stream_fn)

    assert "was not sent" in changed.error_message
    assert "was changed by somebody else" in changed.error_message
    assert anew.stop_reason == "stop"
    assert "was not sent" in gone.error_message
    assert "There is no folder" in gone.error_message
    assert model.asked == 2


@pytest.mark.skipif(sys.platform == "win32", reason="the limit of a file's size is POSIX's")
def test_a_full_disk_is_an_error_before_the_request(tmp_path):
    """Without space the request is not sent, and the file stays as it was."""
    code = (
        "import resource, signal\n"
        "ask(stream_fn, 'a')\n"
        "size = os.stat(path).st_size + 10\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))\n"
        "message = ask(stream_fn, 'b')\n"
        "assert 'was not sent' in message.error_message, message\n"
        "assert model.asked == 1\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "assert ask(stream_fn, 'c').stop_reason == 'stop'\n"
    )
    path = tmp_path / "c.jsonl"

    assert run_apart(code, path) == 0
    player = replay_stream_fn(path)
    assert [ask(player, prompt).stop_reason for prompt in "abc"] == ["stop", "error", "stop"]


def test_a_reply_that_cannot_be_recorded_is_shown_and_fails(tmp_path):
    """What came is in the message, which says that the file does not have it."""
    path = tmp_path / "c.jsonl"

    async def stream(model, context, options):
        async for event in says("precious")(model, context, options):
            yield event
            path.unlink(missing_ok=True)

    message = ask(record_stream_fn(stream, path))

    assert message.stop_reason == "error"
    assert "could not be recorded" in message.error_message
    assert message.text == "precious"
