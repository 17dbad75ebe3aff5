"""What a cell can fail with, each shown as one line.

    CellError                the root: a cell that ends with one line instead of a traceback
    ├── AgentAborted         the run was stopped: by Interrupt, `%agent abort` or `agent.abort()`
    ├── AgentFailed          the run ended in an error, so the notebook must not go on
    └── AgentUnavailable     nothing was sent: the agent is busy, or its model cannot be used

An error reply, unlike a normal end, makes "Run All" stop at this cell. None of these is a
KeyboardInterrupt: asyncio would carry that out of the task and through the kernel's loop.
"""

from __future__ import annotations

from pi_notebook.shown_text import without_secrets

__all__ = ["AgentAborted", "AgentFailed", "AgentUnavailable", "CellError"]

LONGEST_LINE = 500


class CellError(Exception):
    """End a cell with one line.

    Args:
        message: What happened and what to do; more than one line is folded into one.
        details: Lines that are shown below it, such as a diff.
    """

    def __init__(self, message: str, *, details: str = "") -> None:
        self.details = without_secrets(details)
        line = " ".join(without_secrets(message).split())
        super().__init__(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…")

    def _render_traceback_(self) -> list[str]:
        """Give IPython the whole traceback; this also saves the time it takes to format one."""
        return [str(self), *self.details.splitlines()]


class AgentAborted(CellError):
    """Say that the run was stopped; what had arrived is shown and kept."""

    def __init__(self, message: str = "agent run aborted") -> None:
        super().__init__(message)


class AgentFailed(CellError):
    """Say that the run ended in an error."""


class AgentUnavailable(CellError):
    """Say that nothing was sent."""
