"""Prove that an agent behaves like the reference: scenarios, golden traces, a comparison.

    python -m pi_agent_kernel.conformance DIR [--out DIR] [--only NAME ...] [--backend trio]

A scenario scripts a model, tools, hooks, listeners and host calls; its golden trace is what
pi-agent-core 1.6.0 did. This package plays scenarios on `pi_agent_kernel`, in virtual time, and
says where the traces differ, so whoever ports or changes the loop can prove it. The format is
described by the scenarios' own documentation, FORMAT.md.
"""

from __future__ import annotations

from pi_agent_kernel.conformance.compare import differences
from pi_agent_kernel.conformance.executor import execute
from pi_agent_kernel.conformance.script import ScenarioError
from pi_agent_kernel.conformance.suite import SuiteError, Verdict, run_suite, scenario_names

__all__ = [
    "ScenarioError",
    "SuiteError",
    "Verdict",
    "differences",
    "execute",
    "run_suite",
    "scenario_names",
]
