from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import warnings

import anyio
import pytest
from fuzz.plans import Plan, plans
from fuzz.world import World
from hypothesis import HealthCheck, given, settings

EXAMPLES = int(os.environ.get("PI_FUZZ_EXAMPLES", "2000"))
PART = 10_000  # hypothesis remembers every example of one test, so hours of them are parts
LIMIT = 5  # seconds for one example, which takes milliseconds

pytestmark = pytest.mark.property

fuzz = settings(
    max_examples=min(EXAMPLES, PART),
    deadline=None,
    database=None,
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


def play(plan: Plan, backend: str) -> None:
    """Play one example; whatever complains in the background is an error, too."""
    problems: list[object] = []

    async def main() -> None:
        if backend == "asyncio":
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _loop, context: problems.append(context))
        with anyio.fail_after(LIMIT):
            await World(plan).play()

    hooks = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = threading.excepthook = problems.append
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gc.freeze()  # what was there before need not be searched for what this one leaves
            anyio.run(main, backend=backend)
            gc.collect()
    finally:
        sys.unraisablehook, threading.excepthook = hooks
    problems += [warning.message for warning in caught]
    assert problems == []


@pytest.fixture(autouse=True)
def _thaw_heap():
    yield
    gc.unfreeze()


@pytest.mark.parametrize("part", range(-(-EXAMPLES // PART)))
@fuzz
@given(plan=plans)
def test_every_run_ends_well(plan, part):
    """Whatever model, tools, hooks, listeners and host do, the run ends and all is in order."""
    play(plan, "asyncio")


@settings(fuzz, max_examples=max(1, min(EXAMPLES, PART) // 8))
@given(plan=plans)
def test_every_run_ends_well_on_trio(plan):
    """The same holds on trio."""
    play(plan, "trio")
