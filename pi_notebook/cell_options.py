"""The options of an `%%agent` cell, read with argparse.

Whatever is wrong with them is a one-line usage error, and nothing is sent.
"""

from __future__ import annotations

import argparse
import difflib
import keyword
import shlex
from typing import NoReturn, get_args

from IPython.core.error import UsageError
from pi_agent_kernel.messages import ThinkingLevel

from pi_notebook.approvals import Policy
from pi_notebook.budget import Budget
from pi_notebook.cells import CellRequest

__all__ = ["THINKING_LEVELS", "cell_help", "parse_cell"]

THINKING_LEVELS: tuple[str, ...] = get_args(ThinkingLevel)


class _Parser(argparse.ArgumentParser):
    """Report what is wrong as IPython's own magics do."""

    def error(self, message: str) -> NoReturn:
        """Raise the one-line error."""
        raise UsageError(f"{message} (%%agent? shows the options)")


def _cell_parser() -> _Parser:
    parser = _Parser(
        prog="%%agent",
        add_help=False,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Prompt the agent with the text of the cell, taken literally.",
    )
    option = parser.add_argument
    option("--agent", metavar="NAME", help="prompt this agent; a new name makes a new agent")
    option(
        "--model",
        metavar="SPEC",
        help="model for this cell, such as openai:NAME or demo (%%agent model SPEC keeps it)",
    )
    option(
        "--thinking",
        metavar="LEVEL",
        choices=THINKING_LEVELS,
        help=f"thinking level for this cell: {', '.join(THINKING_LEVELS)}",
    )
    option(
        "--system",
        metavar="TEXT",
        help='instructions that hold from this cell on, in place of earlier ones; "" ends them',
    )
    option(
        "--tools",
        metavar="A,B",
        type=_names,
        help="offer only these tools in this cell; an empty list offers none",
    )
    option(
        "--image",
        metavar="EXPR",
        action="append",
        default=[],
        help="send the picture that a Python expression is worth; may be given again",
    )
    option("--to", metavar="NAME", type=_variable, help="put the answer into this variable")
    option(
        "--output",
        metavar="TYPE",
        help="have an answer of this type, such as a pydantic model; pi.agent.output keeps it",
    )
    option(
        "--append",
        action="store_true",
        help="go on at the end; without it a cell that runs again takes its former turn's place",
    )
    option(
        "--once",
        action="store_true",
        help="show the answer of before if prompt, values, model and tools are the same",
    )
    option(
        "--approve",
        metavar="POLICY",
        type=_policy,
        help="allow, ask or deny, or rules such as write=allow,sql=ask, for this cell",
    )
    option("--max-turns", metavar="N", type=_count, help="stop after N turns")
    option("--max-cost", metavar="USD", type=_amount, help="stop after the turn that spent it")
    option("--max-seconds", metavar="S", type=_amount, help="stop after the turn that went past it")
    option("--raw", action="store_true", help="leave $`…` and &`…` as they are written")
    option("--quiet", action="store_true", help="show nothing; pi.agent has the answer")
    option = parser.add_mutually_exclusive_group().add_argument
    option(
        "--record",
        metavar="FILE",
        type=_file,
        help="record requests and replies into FILE; cells of one kernel add to it",
    )
    option(
        "--replay",
        metavar="FILE",
        type=_file,
        help="answer from the recording in FILE, without key and network",
    )
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _variable(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be the name of a variable")
    return text


def _policy(text: str) -> str:
    try:
        Policy().with_rules(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more, not {text!r}")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return amount


def _file(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("expected the name of a file, such as demo.jsonl")
    return text


_CELL = _cell_parser()


def parse_cell(line: str, body: str) -> CellRequest:
    """Read what an `%%agent` cell asks for.

    Args:
        line: The rest of the magic's line.
        body: The text below it.

    Raises:
        UsageError: An option is unknown or has a bad value, or there is no prompt.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%%agent: {error} in {line.strip()!r}") from None
    options, rest = _CELL.parse_known_args(words)
    if rest:
        raise UsageError(f"%%agent: {_what_is_left(rest)} (%%agent? shows the options)")
    if not body.strip():
        raise UsageError(
            "%%agent: nothing to send. Type your prompt on the lines below %%agent, "
            "for example: What can you do?"
        )
    return CellRequest(
        # IPython adds a newline to a body that has none at its end.
        prompt=body.removesuffix("\n"),
        raw=options.raw,
        agent=options.agent,
        model=options.model,
        thinking=options.thinking,
        system=options.system,
        tools=options.tools,
        images=tuple(options.image),
        to=options.to,
        output=options.output,
        append=options.append,
        once=options.once,
        approve=options.approve,
        budget=Budget(turns=options.max_turns, cost=options.max_cost, seconds=options.max_seconds),
        quiet=options.quiet,
        record=options.record,
        replay=options.replay,
    )


def _what_is_left(rest: list[str]) -> str:
    words = " ".join(rest)
    if not rest[0].startswith("-"):
        return f"the prompt goes below this line: {words}; a text of several words needs quotes"
    known = [name for action in _CELL._actions for name in action.option_strings]  # noqa: SLF001
    close = difflib.get_close_matches(rest[0], known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown option {words}{hint}"


def cell_help() -> str:
    """Return what `%%agent?` shows."""
    return _CELL.format_help()
