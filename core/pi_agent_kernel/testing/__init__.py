"""Doubles and checkers for tests of agents, yours and ours.

`strict_faux` wraps a stream function and refuses what a strict provider refuses;
`EventRecorder` keeps every event; `check_events` and `check_transcript` raise an
`AssertionError` that names the broken rule and the place.

`pytest_plugins = ["pi_agent_kernel.testing.pytest_plugin"]` in a `conftest.py` adds three
fixtures: `faux`, `strict_faux` around it, and `watch_agent`, which takes an agent, returns its
recorder, and checks both at the end of the test. Nothing here imports pytest before that.
"""

from __future__ import annotations

from pi_agent_kernel.testing.events import EventRecorder, check_events
from pi_agent_kernel.testing.transcripts import (
    StrictFaux,
    check_request,
    check_transcript,
    strict_faux,
)

__all__ = [
    "EventRecorder",
    "StrictFaux",
    "check_events",
    "check_request",
    "check_transcript",
    "strict_faux",
]
