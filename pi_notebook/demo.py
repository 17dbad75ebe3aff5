"""Run a notebook in a real kernel and show it in a terminal, outputs as they grow.

The kernel is told `PI_NOTEBOOK_HEADLESS=0`, so `%%agent` streams although nobody can be asked
for input: each update of its display carries the answer so far as text/plain, and only what is new
is printed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

__all__ = ["copy_tutorials", "play", "quickstart", "trust_tutorials"]

QUICKSTART = "00_quickstart.ipynb"
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-_])")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _tutorials() -> list[Traversable]:
    """Find the notebooks: in the installed package, else beside it in a checkout."""
    for folder in (
        resources.files("pi_notebook") / "notebooks",
        Path(__file__).resolve().parent.parent / "notebooks",
    ):
        if folder.is_dir():
            found = (item for item in folder.iterdir() if item.name.endswith(".ipynb"))
            return sorted(found, key=lambda item: item.name)
    return []


def quickstart() -> Traversable:
    """Find the quickstart notebook.

    Raises:
        FileNotFoundError: The installation is not complete.
    """
    for notebook in _tutorials():
        if notebook.name == QUICKSTART:
            return notebook
    text = f"{QUICKSTART} is missing from this installation; install pi-notebook again."
    raise FileNotFoundError(text)


def copy_tutorials(folder: Path) -> Iterator[str]:
    """Copy the tutorials into a folder; keep each file that is already there.

    Args:
        folder: Made when it does not exist.

    Yields:
        One line for each file that was copied, or kept although it differs.

    Raises:
        OSError: The folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for notebook in _tutorials():
        target = folder / notebook.name
        content = notebook.read_bytes()
        try:
            with target.open("xb") as file:
                file.write(content)
        except FileExistsError:
            if target.read_bytes() != content:
                yield f"kept {target}: it differs from the tutorial"
        else:
            yield f"copied {target}"


def trust_tutorials(folder: Path) -> None:
    """Sign the copies that are still as we ship them, so that JupyterLab keeps their styles.

    Args:
        folder: As for `copy_tutorials`.
    """
    import nbformat
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary()
    for notebook in _tutorials():
        content = notebook.read_bytes()
        if (folder / notebook.name).read_bytes() == content:
            notary.sign(nbformat.reads(content.decode(), as_version=4))
    notary.store.close()


def play(
    notebook: bytes, *, timeout: float = 120.0, model: str | None = None, out: TextIO | None = None
) -> int:
    """Run a notebook's cells in a new kernel and print them with their outputs, live.

    Args:
        notebook: The file's content, notebook format 4.
        timeout: Seconds for the whole notebook.
        model: Value of `PI_NOTEBOOK_MODEL` in the kernel; None leaves the environment as it is.
        out: Where to print; standard output when omitted.

    Returns:
        0, or 1 when a cell failed, the time was over or the kernel died. A cell tagged
        `raises-exception` may fail. The kernel is dead in every case, also on an exception.
    """
    from pi_notebook.kernel_process import KernelFailedError, KernelProcess

    screen = _Screen(sys.stdout if out is None else out)
    environment = {"PI_NOTEBOOK_HEADLESS": "0"}
    if model is not None:
        environment["PI_NOTEBOOK_MODEL"] = model
    number = 0
    try:
        with KernelProcess(timeout=timeout, environment=environment) as kernel:
            for cell in json.loads(notebook)["cells"]:
                source = "".join(cell["source"]).strip("\n")
                may_fail = "raises-exception" in cell["metadata"].get("tags", ())
                if cell["cell_type"] != "code":
                    screen.text(source)
                elif source.strip():
                    number += 1
                    screen.code(number, source)
                    failed = False
                    for message in kernel.run(source):
                        failed = screen.message(message) or failed
                    if failed and not may_fail:
                        screen.stop(f"Cell {number} failed; the rest was not run.")
                        return 1
    except KernelFailedError as error:
        screen.stop(f"Stopped in cell {number}: {error}" if number else str(error))
        return 1
    if number == 0:
        screen.stop("The notebook has no code cell.")
        return 1
    screen.end()
    return 0


class _Screen:
    """Print a notebook top to bottom; a display that grows is printed where it grew."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._color = out.isatty() and "NO_COLOR" not in os.environ
        self._shown: dict[str, str] = {}  # display_id -> its text as printed
        self._last: str | None = None  # what the cursor stands behind
        self._at_line_start = True
        self._after_output = False

    def text(self, source: str) -> None:
        self._block(source)

    def code(self, number: int, source: str) -> None:
        prompt, indent = f"In [{number}]: ", "\n" + " " * len(f"In [{number}]: ")
        lines = source.replace("\n", indent)
        self._block(f"\x1b[2m{prompt}\x1b[0m{lines}" if self._color else prompt + lines)

    def stop(self, reason: str) -> None:
        self.end()
        self._out.flush()
        sys.stderr.write(f"{reason}\n")

    def end(self) -> None:
        """Leave the cursor at the start of a line."""
        if not self._at_line_start:
            self._write("\n")
        self._last = None

    def message(self, message: dict[str, Any]) -> bool:
        """Print one message of a cell's output; tell whether it says that the cell failed."""
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                self._go_on(content["name"])
                self._write(self._plain(content["text"]))
            case "display_data" | "update_display_data":
                identity = content.get("transient", {}).get("display_id")
                if message["msg_type"] == "display_data" and self._shown.pop(identity, None):
                    self._last = None
                self._display(identity, _text(content["data"]))
            case "execute_result":
                self._display(None, _text(content["data"]))
            case "error":
                self.end()
                trace = (
                    "\n".join(content["traceback"]) or f"{content['ename']}: {content['evalue']}"
                )
                self._write(self._plain(trace) + "\n")
                return True
        return False

    def _display(self, identity: str | None, text: str) -> None:
        before = self._shown.get(identity, "") if identity else ""
        if identity:
            self._shown[identity] = text
        if text.startswith(before):
            new = text[len(before) :]
            if new:
                self._go_on(identity)
                self._write(new)
        else:  # it did not just grow: again from the first line that changed
            same = _same_lines(before, text)
            self.end()
            self._write(text[same:])
        self._last = identity
        if identity is None:
            self.end()

    def _go_on(self, source: str | None) -> None:
        """Start a line unless the cursor stands behind this very output."""
        if source is None or source != self._last:
            self.end()
        self._last = source

    def _block(self, text: str) -> None:
        self.end()
        self._write(("\n" if self._after_output else "") + f"{text}\n\n" if text else "")
        self._after_output = False

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            self._at_line_start = text.endswith("\n")
            self._after_output = True

    def _plain(self, text: str) -> str:
        return text if self._color else ESCAPES.sub("", text)


def _same_lines(before: str, after: str) -> int:
    """Count the characters of the whole lines that both texts begin with."""
    length = 0
    for old, new in zip(
        before.splitlines(keepends=True), after.splitlines(keepends=True), strict=False
    ):
        if old != new:
            break
        length += len(new)
    return length


def _text(data: dict[str, str]) -> str:
    """Take the text of an output; a model's text moves no cursor and sets no colour."""
    text = data.get("text/plain", data.get("text/markdown", ""))
    return CONTROLS.sub("", ESCAPES.sub("", text))
