"""The core against the reference's golden traces, and the command that compares them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pi_agent_kernel.conformance import ScenarioError, differences, execute, run_suite
from pi_agent_kernel.conformance.command import main

SUITE = Path(__file__).parents[1] / "conformance"
NAMES = sorted(path.stem for path in (SUITE / "scenarios").glob("*.json"))
#: Scenarios tagged `quirk` whose trace may differ from ours, each with the reason.
ALLOWED_QUIRKS: dict[str, str] = {}


@pytest.fixture
def suite(tmp_path):
    """A suite of its own, of two scenarios, to be changed at will."""
    for name in ("events-text-only", "fn-current-tools"):
        for part in ("scenarios", "golden"):
            (tmp_path / part).mkdir(exist_ok=True)
            shutil.copy(SUITE / part / f"{name}.json", tmp_path / part)
    return tmp_path


def change(path: Path, **fields) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | fields), "utf-8")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", NAMES)
def test_scenario(name, backend):
    """The core does what the reference did, on either event loop."""
    (verdict,) = run_suite(SUITE, [name], backend=backend)

    allowed = ("passed", "quirk") if name in ALLOWED_QUIRKS else ("passed",)
    assert verdict.outcome in allowed, "\n".join(verdict.differences)


def test_every_golden_trace_has_its_scenario():
    """Nothing of the suite is left out of the run."""
    assert sorted(path.stem for path in (SUITE / "golden").glob("*.json")) == NAMES
    assert len(NAMES) == 152


def test_command_counts(suite, capsys):
    """Without a difference only the line of counts is printed, and the exit code is 0."""
    assert main([str(suite)]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed, 0 quirks\n"


def test_changed_golden_is_found(suite, capsys):
    """A golden trace that was changed is reported with the place, and the exit code is 1."""
    path = suite / "golden" / "events-text-only.json"
    path.write_text(path.read_text("utf-8").replace("turn_start", "turn_began", 1), "utf-8")

    assert main([str(suite)]) == 1

    assert capsys.readouterr().out.splitlines() == [
        "DIFF events-text-only",
        '  .log[2].event: expected "turn_began", got "turn_start"',
        "1 passed, 1 failed, 0 quirks",
    ]


def test_missing_golden_is_a_failure(suite, capsys):
    """A scenario without a golden trace has failed."""
    (suite / "golden" / "events-text-only.json").unlink()

    assert main([str(suite)]) == 1
    assert "cannot read" in capsys.readouterr().out


def test_different_quirk_is_no_failure(suite, capsys):
    """A difference in a scenario tagged `quirk` is shown and counted, but does not fail."""
    change(suite / "golden" / "events-text-only.json", log=[])
    change(suite / "scenarios" / "events-text-only.json", tags=["quirk"])

    assert main([str(suite)]) == 0

    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "QUIRK events-text-only"
    assert last == "1 passed, 0 failed, 1 quirks"


def test_equal_quirk_has_passed(suite, capsys):
    """A scenario tagged `quirk` whose trace is equal counts as passed."""
    change(suite / "scenarios" / "events-text-only.json", tags=["quirk"])

    assert main([str(suite)]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed, 0 quirks\n"


def test_only_chooses(suite, capsys):
    """`--only` takes names, once or several times, and refuses unknown ones."""
    assert main([str(suite), "--only", "fn-current-tools"]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed, 0 quirks\n"
    both = ["--only", "fn-current-tools", "--only", "events-text-only"]
    assert main([str(suite), *both]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed, 0 quirks\n"
    assert main([str(suite), "--only", "nothing"]) == 2
    assert capsys.readouterr().err == "error: there is no scenario 'nothing'\n"


def test_out_gets_the_traces(suite, tmp_path):
    """`--out` writes every trace, also into a folder that has to be made."""
    out = tmp_path / "a" / "b"

    assert main([str(suite), "--out", str(out)]) == 0

    for path in (suite / "golden").glob("*.json"):
        golden = json.loads(path.read_text("utf-8"))
        assert differences(golden, json.loads((out / path.name).read_text("utf-8"))) == []


@pytest.mark.parametrize("missing", [".", "scenarios", "golden"])
def test_bad_directory(suite, capsys, missing):
    """A directory that is no suite gets one clear line and exit code 2."""
    shutil.rmtree(suite / missing)

    assert main([str(suite)]) == 2
    assert capsys.readouterr().err == f"error: {suite / missing} is not a directory\n"


def test_empty_suite(tmp_path, capsys):
    """A suite without scenarios is an error, not a success."""
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "golden").mkdir()

    assert main([str(tmp_path)]) == 2
    assert "holds no scenario" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", "\ufffd"])
def test_unreadable_scenario(suite, capsys, text):
    """A scenario that is no JSON object fails in one line; the others still run."""
    (suite / "scenarios" / "fn-current-tools.json").write_text(text, "utf-8")

    assert main([str(suite)]) == 1

    label, reason, counts = capsys.readouterr().out.splitlines()
    assert label == "DIFF fn-current-tools"
    assert reason.startswith("  cannot read ")
    assert counts == "1 passed, 1 failed, 0 quirks"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"format": 2}, "unknown format 2"),
        ({"kind": "dance"}, "unknown kind 'dance'"),
        ({"actions": [{"dance": 1}]}, "unknown step 'dance'"),
        ({"actions": [{}]}, "a step is empty"),
        ({"actions": [{"update": {}}]}, "unknown step 'update'"),
        ({"actions": [{"do": "dance"}]}, "unknown action 'dance'"),
        ({"actions": [{"do": "prompt"}]}, "action 'prompt' lacks 'text'"),
        ({"actions": [{"do": "subscribe", "listener": "L"}]}, "unknown listener 'L'"),
        ({"actions": [{"do": "unsubscribe", "listener": "L"}]}, "unknown listener 'L'"),
        ({"actions": [{"delay": "long"}]}, "cannot be executed: TypeError"),
        ({"actions": [{"wait": "nobody opens it"}]}, "took more than 20 s"),
        ({"hooks": {"dance": []}}, "unknown hook 'dance'"),
        ({"options": {"tools": ["t"]}}, "unknown tool 't'"),
        ({"options": {"streamFn": "dance"}}, "unknown streamFn 'dance'"),
        ({"options": {"callbacks": ["dance"]}}, "unknown callback 'dance'"),
        ({"kind": "loop", "signal": "dance"}, "unknown signal 'dance'"),
        ({"kind": "loop", "runs": [{"mode": "dance"}]}, "unknown mode 'dance'"),
        ({"kind": "functions", "cases": [{"fn": "dance"}]}, "unknown function 'dance'"),
    ],
)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_scenario_that_cannot_be_executed(fields, reason, backend):
    """What the executor does not know fails the scenario by its name, and nothing hangs."""
    with pytest.raises(ScenarioError, match=reason) as caught:
        execute({"format": 1, "name": "x", **fields}, backend=backend)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"tools": {"t": {"calls": [{"do": [{"dance": 1}]}]}}}, "unknown step 'dance' in tool:c"),
        (
            {"hooks": {"beforeToolCall": [{"do": [{"do": "dance"}]}]}},
            "unknown action 'dance'",
        ),
        (
            {"hooks": {"transformContext": [{"do": [{"return": [{"dance": 1}]}]}]}},
            "unknown message operation 'dance'",
        ),
        ({"responses": [{"script": [{"push": {"type": "dance"}}]}]}, "unknown stream event"),
    ],
)
def test_problem_inside_a_run_is_not_lost(place, reason):
    """What cannot be executed fails the scenario though the run makes a result of it."""
    call = {"content": [{"type": "toolCall", "id": "c", "name": "t", "arguments": {}}]}
    scenario = {
        "format": 1,
        "name": "x",
        "options": {"tools": ["t"]},
        "tools": {"t": {}},
        "responses": [call, {"text": "end"}],
        "actions": [{"do": "prompt", "text": "go"}],
        **place,
    }

    with pytest.raises(ScenarioError, match=reason):
        execute(scenario)


def test_command_is_runnable(suite):
    """`python -m pi_agent_kernel.conformance` is the command, on trio as well."""
    run = subprocess.run(
        [sys.executable, "-m", "pi_agent_kernel.conformance", suite, "--backend", "trio"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, run.stdout, run.stderr) == (0, "2 passed, 0 failed, 0 quirks\n", "")
