"""Our figures beside the bare-asyncio floor: `make bench`, or `python bench/run.py A3 A4`.

Each round runs the floor and the product on one workload back to back, each in a process of its
own; a figure is the median over the rounds, a ratio the median of the rounds' ratios. Compare
the ratios: seconds depend on the machine. `common` describes the workloads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORKLOADS = [
    "A1",
    "A2",
    "A3",
    "A4",
    "A5",
    "A6",
    "A7",
    "A7array",
    "A8stream",
    "A8stall",
    "A8tools",
    "A8signal",
    "A9",
    "A10",
]
CPU_BOUND = {"A2", "A3", "A4", "A7", "A7array"}
UNITS = {
    "A1": "ms", "A2": "us a run", "A3": "us a delta", "A4": "us a turn", "A5": "us a call",
    "A6": "us a call", "A7": "us a chunk", "A7array": "us a chunk", "A9": "us an agent",
    "A10": "bytes a message",
}  # fmt: skip


def run_one(script: str, workload: str, budget: float) -> dict[str, Any]:
    """Run one workload of one script and return its JSON line."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), workload, "--budget", str(budget)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(HERE)},
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise SystemExit(f"{script} {workload} printed nothing:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])


def figure(workload: str, row: dict[str, Any]) -> float:
    """Return what is compared: smaller is better in every workload."""
    if workload == "A10":
        return row["bytes_per_message"]
    if workload in CPU_BOUND:
        count = row.get("chunks", row["n"])
        return min(row["wall_s"], row.get("cpu_s") or row["wall_s"]) / count * 1e6
    if workload == "A5":
        return (row["wall_s"] - 0.010) / row["n"] * 1e6
    if workload in {"A6", "A9"}:
        return row["wall_s"] / row["n"] * 1e6
    return row["wall_s"] * 1e3


def measure(workload: str, rounds: int, budget: float) -> list[str]:
    """Run the rounds of one workload and return its lines of the table."""
    ours: dict[int, list[float]] = {}
    ratios: dict[int, list[float]] = {}
    memory: list[float] = []
    for _ in range(rounds):
        floor = {row["n"]: row for row in run_one("floor.py", workload, budget)["rows"]}
        result = run_one("product.py", workload, budget)
        if "error" in result:
            return [f"| {workload} | | {result['error']} | |"]
        for row in result["rows"]:
            value = figure(workload, row)
            ours.setdefault(row["n"], []).append(value)
            memory += [row[key] for key in ("rss_mib", "rss_growth_mib") if key in row]
            if row["n"] in floor and workload != "A10":
                ratios.setdefault(row["n"], []).append(value / figure(workload, floor[row["n"]]))
    lines = []
    for n, values in ours.items():
        ratio = f"{statistics.median(ratios[n]):.2f}x" if n in ratios else ""
        shown = f"{statistics.median(values):,.2f} {UNITS.get(workload, 'ms')}"
        if memory:
            shown += f", {statistics.median(memory):.1f} MiB"
        lines.append(f"| {workload} | {n:,} | {shown} | {ratio} |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="*", help=f"by default all: {' '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds a size and script")
    options = parser.parse_args()
    unknown = set(options.workload) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; there are {WORKLOADS}")
    sys.stdout.write("| workload | n | product | beside the floor |\n| --- | --- | --- | --- |\n")
    for workload in options.workload or WORKLOADS:
        sys.stdout.write("\n".join(measure(workload, options.rounds, options.budget)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
