"""Turn an `%%agent` cell into a top-level `await`, so that it runs on the kernel's own loop.

IPython has no asynchronous magics. The transformer stands first in `input_transformers_cleanup`,
before IPython strips prompts and indentation, so the body arrives exactly as it was written. Where
awaiting is not possible it leaves the cell alone, and the magic itself runs it: inside another
cell's execution (`%%time`, `run_cell`), or with autoawait off.

IPython takes a question mark at the end of a line for a request for help: a line such as
`%agent explain why did sql not run?` would never arrive. It is made a plain call.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["AgentCells"]

MAGIC = "%%agent"
#: A verb with words that end in a question; `%agent?` and `%agent explain?` ask for help.
_ASKED = re.compile(r"(\s*)%agent\s+(\S+\s+\S.*\?)\s*")


class AgentCells:
    """Recognise `%%agent` cells of one shell.

    Args:
        shell: The IPython shell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._depth = 0  # cells that run now; more than none means nested use

    def install(self) -> None:
        """Take the first place among the shell's transformers, and follow its cells."""
        self._shell.input_transformers_cleanup.insert(0, self.transform)
        self._shell.events.register("pre_run_cell", self._enter)
        self._shell.events.register("post_run_cell", self._leave)

    def remove(self) -> None:
        """Undo `install`."""
        self._shell.input_transformers_cleanup.remove(self.transform)
        self._shell.events.unregister("pre_run_cell", self._enter)
        self._shell.events.unregister("post_run_cell", self._leave)

    def transform(self, lines: list[str]) -> list[str]:
        """Rewrite the lines of an `%%agent` cell, and what a verb is asked in other cells."""
        lines = _with_questions(lines)
        first = next((number for number, line in enumerate(lines) if line.strip()), None)
        if first is None or self._depth or not self._shell.autoawait:
            return lines
        words = lines[first].strip().split(None, 1)
        if words[0] != MAGIC:
            return lines
        line = words[1] if len(words) > 1 else ""
        body = "".join(lines[first + 1 :])
        return [f"await __import__('pi_notebook')._cell({line!r}, {body!r})\n"]

    def _enter(self, _info: object = None) -> None:
        self._depth += 1

    def _leave(self, _result: object = None) -> None:
        # The cell that loads the extension leaves without having entered.
        self._depth = max(0, self._depth - 1)


def _with_questions(lines: list[str]) -> list[str]:
    """Make calls of the verbs that are asked something; the same list if there is none."""
    if not any("%agent" in line and line.rstrip().endswith("?") for line in lines):
        return lines
    if lines[0].lstrip().startswith("%%"):
        return lines
    made: list[str] = []
    for line in lines:
        asked = _ASKED.fullmatch(line)
        before = "".join(made)
        is_code = all(before.count(quotes) % 2 == 0 for quotes in ('"""', "'''"))
        if asked is not None and is_code:
            made.append(f"{asked[1]}get_ipython().run_line_magic('agent', {asked[2]!r})\n")
        else:
            made.append(line)
    return made
