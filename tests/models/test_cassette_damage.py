from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.messages import Usage
from pi_agent_kernel.models.cassette import CassetteRecorder, record_stream_fn, replay_stream_fn
from pi_agent_kernel.response import ResponseBuilder
from test_cassette_files import HEADER, ask, recording, says

# -------------------------------------------------------------------------- edits by hand


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"stopReason": "stop"', '"stopReason": "error"', "is one of stop, length, toolUse"),
        ('"stopReason": "stop"', '"stopReason": "pending"', "not 'pending'"),
        ('"stopReason": "stop", ', "", "not None"),
        ('"type": "done"', '"type": "error"', "of 'error' is one of error, aborted, not 'stop'"),
        ('"text": "hello"', '"text": null', "Expected `str`, got `null` - at `$.text`"),
        ('"text": "hello"', '"text": "hello", "chunks": null', "at `$.chunks`"),
        ('"text": "hello"', '"text": "hello", "chunks": [-1, 6]', "its chunks add up to 5"),
        ('"text": "hello"', '"text": "hello", "chunks": []', "its chunks add up to 0"),
        ('"stopReason": "stop"', '"stopReason": "stop", "diagnostics": 5', "diagnostics: expected"),
        ('"input": 0', '"input": 1.5', "usage.input: expected int, got 1.5"),
        ('"role": "user"', '"role": ' + "[" * 1_000_000, "is no JSON: it is nested too deeply"),
        ('"role": "user"', '"x": ' + "[" * 600 + "]" * 600, "it has no 'role'"),
    ],
)
def test_a_wrong_edit_names_its_line(tmp_path, old, new, words):
    """What cannot be played is refused with the number of its line, and of no other."""
    path = recording(tmp_path / "c.jsonl")
    text = path.read_text()
    assert old in text
    number = text[: text.index(old)].count("\n") + 1

    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ModelError) as caught:
        replay_stream_fn(path)
    assert f"Line {number} of the cassette {path}" in str(caught.value)
    assert words in str(caught.value)


def test_a_second_response_to_a_request_is_refused(tmp_path):
    """Which one was meant is not guessed."""
    path = recording(tmp_path / "c.jsonl")
    answer = path.read_text()[path.read_text().index('{"type": "response"') :]
    with path.open("a") as file:
        file.write(answer)

    with pytest.raises(ModelError, match="there are two responses to request 1"):
        replay_stream_fn(path)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"text": "hello"', '"text": "", "chunks": []', ""),
        ('"text": "hello"', '"text": "", "chunks": [0, 0]', ""),
        ('"stopReason": "stop"', '"stopReason": "stop", "started": false', "hello"),
        (HEADER, "\ufeff" + HEADER, "hello"),
    ],
)
def test_an_odd_edit_is_played(tmp_path, old, new, text):
    """Empty chunks, a reply without a start and a byte order mark do no harm."""
    path = recording(tmp_path / "c.jsonl")
    path.write_text(path.read_text().replace(old, new, 1), "utf-8")

    message = ask(replay_stream_fn(path))

    assert (message.stop_reason, message.text) == ("stop", text)


@pytest.mark.parametrize(
    "message",
    [
        *('"content": 5', '"content": [5, null]', '"content": [{"type": "text"}]', '"sections": 5'),
        *('"toolsAdded": 5', '"content": {"a": ' + "[" * 50 + "]" * 50 + "}", '"x": 1'),
    ],
)
def test_a_message_of_an_odd_form_is_shown_in_the_difference(tmp_path, message):
    """A request beside an oddly edited message ends in the error that shows both."""
    path = recording(tmp_path / "c.jsonl", "go")
    path.write_text(path.read_text().replace('"content": "go"', message))

    answer = ask(replay_stream_fn(path), "go")

    assert "has no response to this request; the nearest of 1 is request 1" in answer.error_message


@pytest.mark.parametrize("header", ["[" * 5000, "[" * 990, '{"type": "cassette", "version": -3}'])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_first_line_of_something_else_is_no_cassette(tmp_path, header, end):
    """Deep JSON and a version that never was are refused; deep JSON is not recorded over."""
    path = tmp_path / "c.jsonl"
    path.write_text(header + end)

    with pytest.raises(ModelError, match="is no cassette: its first line is not"):
        replay_stream_fn(path)
    if header.startswith("["):
        with pytest.raises(ModelError, match="is there and is no cassette"):
            CassetteRecorder(path)


# ---------------------------------------------------------- what stream functions may give


@pytest.mark.parametrize(
    ("kind", "reason", "back"),
    [
        *(("done", "error", "error"), ("done", "pending", "stop")),
        *(("error", "pending", "error"), ("error", "stop", "stop")),
    ],
)
def test_a_sloppy_last_event_is_recorded_as_its_message(tmp_path, kind, reason, back):
    """A last event that contradicts its message still gives a file that can be read."""

    async def stream(model, context, options):
        builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
        yield builder.start()
        last = builder.done() if kind == "done" else builder.error("no")
        field = "message" if kind == "done" else "error"
        message = msgspec.structs.replace(getattr(last, field), stop_reason=reason)
        yield type(last)(reason=reason, **{field: message})
        yield last  # nobody listens any more

    path = tmp_path / "c.jsonl"
    ask(record_stream_fn(stream, path))

    assert ask(replay_stream_fn(path)).stop_reason == back


def test_a_reply_that_could_not_be_read_back_is_not_written(tmp_path):
    """A usage of fractions is said where it comes from, and the file stays readable."""

    async def stream(model, context, options):
        builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
        builder.fields["usage"] = Usage(input=1.5)
        yield builder.start()
        yield builder.done()

    path = tmp_path / "c.jsonl"
    recorder = CassetteRecorder(path)
    message = ask(recorder.wrap(stream), "a")
    ask(recorder.wrap(says("x")), "b")

    assert "could not be recorded. usage.input: expected int, got 1.5" in message.error_message
    assert ask(replay_stream_fn(path), "b").text == "x"


def test_a_stream_that_just_ends_and_cannot_be_recorded_says_so(tmp_path):
    """The failure is an event, as for a stream that ends as it should."""
    path = tmp_path / "c.jsonl"

    async def stream(model, context, options):
        path.unlink()
        yield ResponseBuilder(api=model.api, provider=model.provider, model=model.id).start()

    message = ask(record_stream_fn(stream, path))

    assert message.stop_reason == "error"
    assert "could not be recorded" in message.error_message


# --------------------------------------------------------------- several recorders, one file


def test_every_earlier_recording_is_kept(tmp_path):
    """However often a file is recorded anew, what was in it before is in a file of its own."""
    path = tmp_path / "c.jsonl"
    for name in "abcd":
        recorder = CassetteRecorder(path)
        ask(recorder.wrap(says(name)), "go")

    names = ["c.jsonl.bak", "c.jsonl.bak2", "c.jsonl.bak3", "c.jsonl"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(names)
    kept = [ask(replay_stream_fn(tmp_path / name), "go").text for name in names]
    assert kept == ["a", "b", "c", "d"]
    assert recorder.backup == tmp_path / "c.jsonl.bak3"


def test_a_recorder_whose_file_another_one_took_stops(tmp_path):
    """It sends no request any more, although both files have the same size; both are whole."""
    path = tmp_path / "c.jsonl"
    model = says("x")
    first, second = record_stream_fn(model, path), record_stream_fn(model, path)
    ask(first, "a1")
    ask(second, "b1")
    kept = tmp_path / "c.jsonl.bak"
    assert kept.stat().st_size == path.stat().st_size
    before = path.read_bytes()

    refused = ask(first, "a2")

    assert "was not sent" in refused.error_message
    assert "perhaps by another recording into it" in refused.error_message
    assert model.asked == 2
    assert path.read_bytes() == before
    assert ask(second, "b2").stop_reason == "stop"
    assert ask(replay_stream_fn(kept), "a1").text == "x"
    assert [ask(replay_stream_fn(path), name).text for name in ("b1", "b2")] == ["x", "x"]


def test_another_text_of_the_same_size_is_noticed(tmp_path):
    """A file that somebody rewrote in place is not added to; one that was only touched is."""
    path = tmp_path / "c.jsonl"
    stream_fn = record_stream_fn(says("hello"), path)
    ask(stream_fn, "a")
    os.utime(path, ns=(1, 1))
    assert ask(stream_fn, "b").stop_reason == "stop"

    path.write_text(path.read_text().replace("hello", "HELLO"))
    os.utime(path, ns=(2, 2))
    assert "was changed by somebody else" in ask(stream_fn, "c").error_message


def test_a_reply_does_not_get_into_the_file_of_another_recorder(tmp_path):
    """A file that is taken while the reply comes in stays as its new recorder wrote it."""
    path = tmp_path / "c.jsonl"
    taken: list[bytes] = []

    async def stream(model, context, options):
        async for event in says("mine")(model, context, options):
            yield event
            if not taken:
                other = record_stream_fn(says("theirs"), path)
                async for _ in other(model, context, options):
                    pass
                taken.append(path.read_bytes())

    message = ask(record_stream_fn(stream, path))

    assert message.text == "mine"
    assert "could not be recorded" in message.error_message
    assert path.read_bytes() == taken[0]
    assert not Path(f"{path}.bak").exists()  # it held a request and no reply
