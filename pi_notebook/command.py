"""The `pi-notebook` command: `demo`, `lab`, `doctor`.

Every import that costs time stands inside the command that needs it, so `--help` answers at once.

Exit status: 0 all went well, 1 something failed, 2 the command line or a missing optional package,
130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["main"]

INTERRUPTED = 130
TERMINATED = 143


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `pi-notebook` command and return its exit status.

    Args:
        arguments: The words after the command's name; the process's own when omitted.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show becomes "?"
            stream.reconfigure(errors="replace")
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # `pi-notebook demo | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pi-notebook", description="An agent inside your notebook: demonstrate, open, examine."
    )
    parser.add_argument("--version", action=_ShowVersion, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="run the quickstart and print the answer as it streams")
    demo.add_argument(
        "--model",
        metavar="SPEC",
        help="value of PI_NOTEBOOK_MODEL in the notebook",
    )
    demo.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=120.0,
        help="give up after this long (default: %(default)g)",
    )
    demo.set_defaults(run=_demo)

    lab = commands.add_parser("lab", help="open JupyterLab on your own copy of the tutorials")
    lab.add_argument(
        "--dir",
        metavar="FOLDER",
        type=Path,
        default=Path("pi-notebooks"),
        help="where the copy is; a file you changed is never overwritten (default: %(default)s)",
    )
    lab.add_argument("jupyter", nargs="*", metavar="-- ARG", help="arguments for JupyterLab")
    lab.set_defaults(run=_lab)

    doctor = commands.add_parser("doctor", help="check the installation, one line per check")
    doctor.set_defaults(run=_doctor)
    return parser


class _ShowVersion(argparse.Action):
    """Look the version up only when it is asked for."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"pi-notebook {version('pi-notebook')}\n")
        parser.exit()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


_seconds.__name__ = "number of seconds"  # argparse says: invalid number of seconds value


def _demo(options: argparse.Namespace) -> int:
    from pi_notebook.demo import play, quickstart

    def on_sigterm(_number: int, _frame: FrameType | None) -> None:
        sys.exit(TERMINATED)  # unwinds through the `with` that ends the kernel

    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        notebook = quickstart().read_bytes()
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return play(notebook, timeout=options.timeout, model=options.model)


def _lab(options: argparse.Namespace) -> int:
    import importlib.util
    import subprocess

    from pi_notebook.demo import copy_tutorials, trust_tutorials

    if importlib.util.find_spec("jupyterlab") is None:
        sys.stderr.write("JupyterLab is not installed: pip install 'pi-notebook[lab]'\n")
        return 2
    try:
        for line in copy_tutorials(options.dir):
            sys.stdout.write(f"{line}\n")
        trust_tutorials(options.dir)
    except OSError as error:
        sys.stderr.write(f"Cannot put the tutorials into {options.dir}: {error}\n")
        return 1
    sys.stdout.flush()
    command = [sys.executable, "-m", "jupyterlab", str(options.dir), *options.jupyter]
    if getattr(os, "geteuid", lambda: 1)() == 0 and "--allow-root" not in command:
        command.append("--allow-root")  # a container's only user is often root
    if os.name == "posix":  # signals and Ctrl-C are then JupyterLab's own matter
        os.execv(sys.executable, command)  # noqa: S606 - our interpreter, the user's own words
    return subprocess.call(command)  # noqa: S603 - as above


def _doctor(_options: argparse.Namespace) -> int:
    from pi_notebook.doctor import examine

    return examine(sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
