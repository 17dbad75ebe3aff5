"""The verb `%agent inspect [EVENT]`."""

from __future__ import annotations

from IPython.core.error import UsageError

from pi_notebook.inspector import inspect
from pi_notebook.registry import agents

__all__ = ["show_inspector"]


def show_inspector(text: str) -> None:
    """Show the inspector of the current agent, at an event if one is named.

    Raises:
        UsageError: The text is no number of an event that the log holds.
    """
    number = text.removeprefix("#")
    if text and not number.isdecimal():
        raise UsageError(f"%agent inspect takes the number of an event, such as 131, not {text!r}")
    try:
        inspect(agents.current, int(number) if text else None)
    except ValueError as error:
        raise UsageError(f"%agent inspect: {error}") from None
