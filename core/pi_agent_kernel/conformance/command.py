"""The command `python -m pi_agent_kernel.conformance`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pi_agent_kernel.conformance.script import Json
from pi_agent_kernel.conformance.suite import SuiteError, Verdict, run_suite, scenario_names

__all__ = ["main"]

_LABELS = {"failed": "DIFF", "quirk": "QUIRK"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The command line without the program; that of the process by default.

    Returns:
        The exit code: 0 if no scenario failed, 1 if one did, 2 if the suite cannot be run.
    """
    options = _parser().parse_args(arguments)
    directory: Path = options.directory
    out: Path | None = options.out
    try:
        names = _chosen(scenario_names(directory), options.only)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    except (SuiteError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    counts: Counter[str] = Counter()
    for verdict in run_suite(directory, names, backend=options.backend):
        counts[verdict.outcome] += 1
        _report(verdict)
        if out is not None and verdict.trace is not None:
            _write(out / f"{verdict.name}.json", verdict.trace)
    _say(f"{counts['passed']} passed, {counts['failed']} failed, {counts['quirk']} quirks")
    return 1 if counts["failed"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pi_agent_kernel.conformance",
        description="Execute conformance scenarios on this agent core and compare their traces.",
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="holds scenarios/ and golden/")
    parser.add_argument("--out", metavar="DIR", type=Path, help="write the traces there")
    parser.add_argument(
        "--only",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="run only the scenarios of these names",
    )
    parser.add_argument(
        "--backend",
        choices=("asyncio", "trio"),
        default="asyncio",
        help="the event loop to run on (default: asyncio)",
    )
    return parser


def _chosen(names: Sequence[str], only: Sequence[str]) -> Sequence[str]:
    unknown = [name for name in only if name not in names]
    if unknown:
        raise SuiteError(f"there is no scenario {unknown[0]!r}")
    return [name for name in names if name in only] if only else names


def _report(verdict: Verdict) -> None:
    if verdict.differences:
        _say(f"{_LABELS[verdict.outcome]} {verdict.name}")
        for difference in verdict.differences:
            _say(f"  {difference}")


def _say(line: str) -> None:
    # Half of a character, or a terminal that cannot show it, must not end the run.
    encoding = sys.stdout.encoding or "utf-8"
    shown = line.encode(encoding, "backslashreplace").decode(encoding)
    sys.stdout.write(f"{shown}\n")
    sys.stdout.flush()


def _write(path: Path, trace: Json) -> None:
    path.write_text(json.dumps(trace, indent="\t") + "\n", encoding="utf-8")
