"""What one `%%agent` cell asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from pi_notebook.budget import Budget

__all__ = ["CellRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """Hold a cell's prompt, literally, and the options that hold for it.

    Args:
        prompt: What the user wrote below the magic's line.
        raw: Leave references to values and functions as they are written.
        agent: Name of the agent; None for the current one.
        model: Model for this cell only.
        thinking: Thinking level for this cell only.
        system: Instructions from here on; "" takes earlier ones back, None leaves them.
        tools: Names of the only tools of this cell.
        images: Expressions whose values are sent as images.
        to: Name of the variable that gets the answer.
        output: Expression for the type of the answer.
        append: Go on at the end, also if this cell has run before.
        once: Show the answer of before if nothing that led to it has changed.
        approve: Rules for approvals in this cell.
        budget: What the run may spend.
        quiet: Show nothing.
        record: File to record the cell into.
        replay: File to replay the cell from.
    """

    prompt: str
    raw: bool = False
    agent: str | None = None
    model: str | None = None
    thinking: str | None = None
    system: str | None = None
    tools: tuple[str, ...] | None = None
    images: tuple[str, ...] = ()
    to: str | None = None
    output: str | None = None
    append: bool = False
    once: bool = False
    approve: str | None = None
    budget: Budget = field(default_factory=Budget)
    quiet: bool = False
    record: str | None = None
    replay: str | None = None
