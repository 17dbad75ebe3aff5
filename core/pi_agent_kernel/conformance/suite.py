"""Run a directory of scenarios and compare each trace with its golden one."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from pi_agent_kernel.conformance.compare import differences
from pi_agent_kernel.conformance.executor import execute
from pi_agent_kernel.conformance.script import Json, ScenarioError, is_object
from pi_agent_kernel.conformance.virtual_time import BackendName

__all__ = ["SuiteError", "Verdict", "run_suite", "scenario_names"]


class SuiteError(Exception):
    """Say why a directory holds no suite, in one line."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what became of one scenario.

    A difference of a scenario tagged `quirk` is allowed: the scenario records an accident of the
    reference (FORMAT.md, section 12). One that could not be executed has failed, quirk or not.
    """

    name: str
    outcome: Literal["passed", "failed", "quirk"]
    differences: tuple[str, ...] = ()
    trace: Json | None = None


def scenario_names(directory: Path) -> list[str]:
    """Return the names of a suite's scenarios, sorted.

    Args:
        directory: Holds `scenarios/NAME.json` and `golden/NAME.json`.

    Raises:
        SuiteError: It does not, or holds no scenario.
    """
    for part in (directory, directory / "scenarios", directory / "golden"):
        if not part.is_dir():
            raise SuiteError(f"{part} is not a directory")
    names = sorted(path.stem for path in (directory / "scenarios").glob("*.json"))
    if not names:
        raise SuiteError(f"{directory / 'scenarios'} holds no scenario")
    return names


def run_suite(
    directory: Path, names: Collection[str], *, backend: BackendName = "asyncio"
) -> Iterator[Verdict]:
    """Execute scenarios one after another and compare their traces.

    Args:
        directory: Holds `scenarios/` and `golden/`.
        names: Which scenarios.
        backend: The event loop: "asyncio" or "trio".

    Yields:
        The verdict on each, as soon as it is known.
    """
    for name in names:
        yield _verdict(directory, name, backend)


def _verdict(directory: Path, name: str, backend: BackendName) -> Verdict:
    trace: Json | None = None
    try:
        scenario = _load(directory / "scenarios" / f"{name}.json")
        trace = execute({"name": name, **scenario}, backend=backend)
        found = differences(_load(directory / "golden" / f"{name}.json"), trace)
    except ScenarioError as error:
        return Verdict(name=name, outcome="failed", differences=(str(error),), trace=trace)
    if not found:
        return Verdict(name=name, outcome="passed", trace=trace)
    quirk = "quirk" in scenario.get("tags", ())
    return Verdict(
        name=name,
        outcome="quirk" if quirk else "failed",
        differences=tuple(found),
        trace=trace,
    )


def _load(path: Path) -> Json:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScenarioError(f"cannot read {path}: {error}") from error
    if not is_object(data):
        raise ScenarioError(f"cannot read {path}: it holds no JSON object")
    return data
