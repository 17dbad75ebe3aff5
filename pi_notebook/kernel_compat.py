"""What differs between versions of ipykernel: one place, nothing of it needed to run."""

from __future__ import annotations

import re

__all__ = ["why_unsupported"]

OLDEST = (6, 17)
LOSES_OUTPUT = (7, 0)


def why_unsupported(version: str) -> str | None:
    """Say why a version of ipykernel cannot be used and what to do; None if it can.

    Args:
        version: As the package says it.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    release = tuple(int(number) for number in numbers.groups()) if numbers else ()
    if release == LOSES_OUTPUT:
        return f"ipykernel {version} loses output: pip install --upgrade ipykernel"
    if release < OLDEST:
        return f"ipykernel {version} is older than 6.17: pip install --upgrade ipykernel"
    return None
