"""Notebooks that are recorded once and replayed without server and key."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))

from provider import failure
from server import ProviderServer

KEY = "sk-test-1234567890abcdef"
MODEL = "openai-chat:test-1"
LOAD = "%%capture\n%load_ext pi_notebook"  # what it prints depends on the environment
WEATHER = '''
import pi_notebook as pi
@pi.tool
def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    print("looking at", city)
    return f"{city} is sunny"
'''
LIMIT = 100


def with_options(mode):
    """Cells that name the cassette; also a second agent, a system text, a secret, a failure."""
    return [
        LOAD,
        WEATHER,
        f"%%agent --{mode} tape.jsonl\nHow is Paris?",
        f"%%agent --{mode} tape.jsonl --agent critic --model {MODEL}\nSay hello.",
        f"%%agent --{mode} tape.jsonl --system 'Be brief.'\nAnd again: my key is {KEY}.",
        f"%%agent --{mode} tape.jsonl\nfails",
    ]


def with_statements(mode):
    """A cassette switched on for all that follows, and another one for a block."""
    return [
        LOAD,
        WEATHER,
        f"pi.{mode}('tape.jsonl')",
        "%%agent\nHow is Paris?",
        f"with pi.{mode}('block.jsonl'):\n    await pi.agent.prompt('And again.')",
        "%%agent\nfails",
    ]


def notebook(cells):
    """Make a notebook; a cell that says so fails."""
    made = [nbformat.v4.new_code_cell(cell, id=f"cell-{n}") for n, cell in enumerate(cells)]
    made[-1].metadata["tags"] = ["raises-exception"]
    return nbformat.v4.new_notebook(cells=made)


def run(*command, cwd, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_")}
    return subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        cwd=cwd,
        env={**kept, "PYDEVD_DISABLE_FILE_VALIDATION": "1", **environment},
    )


def execute(path, **environment):
    """Run a saved notebook from a shell, and save its outputs."""
    command = ("nbconvert", "--to", "notebook", "--execute", "--inplace", path.name)
    return run(*command, cwd=path.parent, **environment)


def nbval(path):
    """Compare a saved notebook with what it gives now, strictly."""
    command = ("pytest", "-q", "-p", "no:cacheprovider", "--nbval", path.name)
    return run(*command, cwd=path.parent)


def record(path, make):
    """Record a notebook in a kernel against a server that is gone afterwards."""
    nbformat.write(notebook(make("record")), path)
    with ProviderServer() as server:
        server.play("tool", "text", "thinking", *["text"] * (make is with_options), failure(401))
        environment = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}
        done = execute(path, PI_NOTEBOOK_MODEL=MODEL, **environment)
        assert done.returncode == 0, done.stderr[-3000:]
        assert len(server.requests) == (5 if make is with_options else 4)
        assert server.requests[0].header("authorization") == f"Bearer {KEY}"


def replace(path, old, new):
    """Change the source of a saved notebook; its outputs stay."""
    book = nbformat.read(path, 4)
    for cell in book.cells:
        cell.source = cell.source.replace(old, new)
    nbformat.write(book, path)


def outputs(path):
    return [
        [{k: v for k, v in output.items() if k != "metadata"} for output in cell.outputs]
        for cell in nbformat.read(path, 4).cells
    ]


@pytest.mark.kernel
@pytest.mark.timeout(300)
@pytest.mark.parametrize("make", [with_options, with_statements])
def test_a_recorded_notebook_replays_strictly(tmp_path, make):
    """Without server and key the notebook gives the saved outputs, each time, and no secret."""
    path = tmp_path / "lesson.ipynb"
    record(path, make)
    saved = outputs(path)
    tapes = {tape.name: tape.read_text("utf-8") for tape in tmp_path.glob("*.jsonl")}
    replace(path, "record", "replay")

    validated = nbval(path)
    replayed = execute(path)

    assert validated.returncode == 0, validated.stdout[-4000:]
    assert replayed.returncode == 0, replayed.stderr[-4000:]
    assert outputs(path) == saved
    assert all(saved[3:])
    assert {tape.name: tape.read_text("utf-8") for tape in tmp_path.glob("*.jsonl")} == tapes
    assert [name for name, text in tapes.items() if KEY in text] == []
    assert "looking at Paris" in json.dumps(saved)
    assert "test-1" in json.dumps(saved)


@pytest.mark.kernel
@pytest.mark.timeout(200)
def test_a_changed_prompt_fails_with_a_diff(tmp_path):
    """A notebook whose prompt is not the recorded one fails, and says how it differs."""
    path = tmp_path / "lesson.ipynb"
    record(path, with_options)
    replace(path, "record", "replay")
    replace(path, "Paris", "Rome")

    stopped = execute(path)

    assert stopped.returncode != 0
    assert "message 2 (user) was 'How is Paris?' and is 'How is Rome?'" in stopped.stderr
    assert "-user: How is Paris?\n+user: How is Rome?" in stopped.stderr


@pytest.mark.kernel
@pytest.mark.timeout(200)
def test_recording_again_gives_the_same_file(tmp_path):
    """A second kernel records the same conversation byte for byte and keeps the first file."""
    path = tmp_path / "lesson.ipynb"
    cells = [cell for cell in with_options("record") if "fails" not in cell]
    record_of = []
    for _ in range(2):
        book = notebook([*cells, "1 / 0"])
        nbformat.write(book, path)
        with ProviderServer() as server:
            server.play("tool", "text", "thinking", "text")
            done = execute(path, OPENAI_BASE_URL=server.url, PI_NOTEBOOK_MODEL=MODEL)
        assert done.returncode == 0, done.stderr[-3000:]
        record_of.append((tmp_path / "tape.jsonl").read_bytes())

    assert record_of[0] == record_of[1]
    assert (tmp_path / "tape.jsonl.bak").read_bytes() == record_of[0]


@pytest.mark.kernel
def test_cassettes_in_a_kernel(kernel, tmp_path):
    """Misuse is one line and sends nothing; the status names what is on; it can be ended."""
    tape = tmp_path / "tape.jsonl"
    where = f"import os; os.chdir({str(tmp_path)!r})"
    assert kernel.run(where).error is None

    for cell, error, words in [
        ("%%agent --record a --replay b\nhi", "UsageError", "not allowed with"),
        ("%%agent --replay\nhi", "UsageError", "expected one argument"),
        ("%%agent --record ''\nhi", "UsageError", "expected the name of a file"),
        ("%%agent --replay nope.jsonl\nhi", "AgentUnavailable", "There is no cassette"),
        ("%%agent --record .\nhi", "AgentUnavailable", "is a folder"),
        ("%%agent --record no/x.jsonl\nhi", "AgentUnavailable", "There is no folder"),
        ("pi.replay('nope.jsonl')", "AgentUnavailable", "There is no cassette"),
        ("pi.record('.')", "AgentUnavailable", "is a folder"),
    ]:
        outcome = kernel.run(cell)
        assert outcome.error == error, cell
        said = outcome.printed or "\n".join(outcome.reply["traceback"])
        assert words in said, cell
    assert kernel.run("len(pi.agent.state.messages)").value == "0"

    assert kernel.run("pi.record('tape.jsonl')").of("execute_result") == []
    assert kernel.run("%%agent --model short\nhi").error is None
    status = kernel.run("%agent").displays[0]["data"]["text/plain"]
    assert "recording into tape.jsonl (1 response)" in status
    assert kernel.run("pi.record(None)").error is None
    assert "cassette" not in kernel.run("%agent").displays[0]["data"]["text/plain"]
    assert len(tape.read_text().splitlines()) == 7

    assert kernel.run("%agent reset").error is None
    assert kernel.run("tape = pi.replay('tape.jsonl')").error is None
    assert kernel.run("%%agent\nhi").error is None
    assert kernel.run("pi.agent.state.messages[-1].model, pi.agent.state.model.id").value == (
        "('short', 'demo')"
    )
    status = kernel.run("%agent").displays[0]["data"]["text/plain"]
    assert "replaying tape.jsonl (1 of 1 response used)" in status
    outcome = kernel.run("%%agent --model long\nhi")
    assert outcome.error == "AgentUnavailable"
    assert "no recording of the model registered:long" in outcome.reply["traceback"][0]
    assert kernel.run("tape.stop()").error is None
    assert "cassette" not in kernel.run("%agent").displays[0]["data"]["text/plain"]


@pytest.mark.kernel
def test_an_interrupted_cell_replays_as_interrupted(kernel, tmp_path):
    """A run that was stopped while it was recorded comes back with what had arrived, stopped."""
    cell = f"%%agent --record {tmp_path / 'tape.jsonl'} --model stalled\nhi"
    stopped = kernel.run(
        cell, interrupt_when=lambda message: "waiting" in json.dumps(message["content"])
    )
    assert kernel.run("%agent reset").error is None

    again = kernel.run(cell.replace("--record", "--replay"))

    assert stopped.error == again.error == "AgentAborted"
    shown = [run.displays[-1]["data"]["text/plain"] for run in (stopped, again)]
    assert shown == ["waiting\n\n[aborted]"] * 2
