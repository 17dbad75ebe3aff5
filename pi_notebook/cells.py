"""What one `%%agent` cell asks for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CellRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """Hold a cell's prompt, literally, and the options that hold for it.

    Args:
        prompt: What the user wrote below the magic's line.
        agent: Name of the agent; None for the current one.
        model: Model for this cell only.
        system: Instructions from here on; "" takes earlier ones back, None leaves them.
        tools: Names of the only tools of this cell.
        quiet: Show nothing.
        record: File to record the cell into.
        replay: File to replay the cell from.
    """

    prompt: str
    agent: str | None = None
    model: str | None = None
    system: str | None = None
    tools: tuple[str, ...] | None = None
    quiet: bool = False
    record: str | None = None
    replay: str | None = None
