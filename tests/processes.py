"""What tests know of processes that they did not start themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 15  # seconds for what must happen soon on any machine


def is_running(pid: int) -> bool:
    """Tell whether a process is there and not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
        listed = subprocess.run(["ps", "-p", str(pid)], check=False, capture_output=True)
        return listed.returncode == 0
    return state != "Z"


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds that nobody announces."""
    with anyio.fail_after(LIMIT):
        while not condition():  # noqa: ASYNC110 - other processes set no event of ours
            await anyio.sleep(0.01)
