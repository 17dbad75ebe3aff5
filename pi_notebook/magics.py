"""The argparse front of `%%agent` and `%agent`: words in, a call of a method out.

Whatever is wrong with the words is a one-line usage error, and nothing is sent.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from pi_agent_kernel.errors import AgentBusyError, PiAgentError

from pi_notebook import frontend
from pi_notebook.cells import CellRequest
from pi_notebook.errors import AgentUnavailable
from pi_notebook.registry import agents
from pi_notebook.render.status import table_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

    from pi_notebook.notebook_agent import NotebookAgent

__all__ = ["agent_magic", "run_cell"]


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
        help="model for this cell, such as openai-chat:NAME or demo (%%agent model SPEC keeps it)",
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
    option("--quiet", action="store_true", help="show nothing; pi.agent has the answer")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


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
        what = "unknown option" if rest[0].startswith("-") else "the prompt goes below this line:"
        raise UsageError(f"%%agent: {what} {' '.join(rest)} (%%agent? shows the options)")
    if not body.strip():
        raise UsageError(
            "%%agent: nothing to send. Type your prompt on the lines below %%agent, "
            "for example: What can you do?"
        )
    return CellRequest(
        # IPython adds a newline to a body that has none at its end.
        prompt=body.removesuffix("\n"),
        agent=options.agent,
        model=options.model,
        system=options.system,
        tools=options.tools,
        quiet=options.quiet,
    )


async def run_cell(line: str, body: str) -> None:
    """Run an `%%agent` cell as the transformer wrote it: awaited on the kernel's loop."""
    request = parse_cell(line, body)
    agent = _agent_of(request)
    try:
        await agent.run_cell(request)
    except (PiAgentError, ValueError) as error:
        raise _one_line(agent, error) from None


@no_var_expand
def agent_magic(line: str, cell: str | None = None) -> None:
    """Run `%agent`, or `%%agent` where the cell could not be awaited."""
    if cell is None:
        _run_verb(line)
        return
    request = parse_cell(line, cell)
    agent = _agent_of(request)
    try:
        agent.run_cell_sync(request)
    except (PiAgentError, ValueError) as error:
        raise _one_line(agent, error) from None


def _agent_of(request: CellRequest) -> NotebookAgent:
    try:
        return agents.current if request.agent is None else agents.get_or_make(request.agent)
    except ValueError as error:
        raise UsageError(f"%%agent: {error}") from None
    except PiAgentError as error:
        raise AgentUnavailable(str(error)) from None


def _one_line(agent: NotebookAgent, error: Exception) -> Exception:
    if isinstance(error, AgentBusyError):
        return AgentUnavailable(
            f"agent {agent.name!r} is busy with another run: %agent steer TEXT or %agent follow "
            "TEXT reach it, %agent abort stops it; then run this cell again"
        )
    if isinstance(error, PiAgentError):
        return AgentUnavailable(str(error))
    return UsageError(f"%%agent: {error}")


# ----------------------------------------------------------------------------------- %agent


def _run_verb(line: str) -> None:
    verb, _, text = line.strip().partition(" ")
    known = _VERBS.get(verb or "status")
    if known is None:
        raise UsageError(
            f"%agent: unknown verb {verb!r} ({', '.join(_VERBS)}); "
            "to send a prompt, write it below %%agent"
        )
    try:
        known(text.strip())
    except AgentBusyError:
        raise AgentUnavailable("the agent is busy: %agent abort stops it") from None
    except PiAgentError as error:
        raise AgentUnavailable(str(error)) from None


def _status(text: str) -> None:
    _no_text("status", text)
    agent = agents.current
    roles = [message.role for message in agent.state.messages]
    rows = [
        ("agent", agent.name),
        ("state", "running" if agent.state.is_streaming else "idle"),
        ("model", agent.state.model.id),
        ("tools", ", ".join(tool.name for tool in agent.state.tools) or "none"),
        ("messages", f"{len(roles)} {_counted(roles)}".strip()),
    ]
    if agent.state.error_message:
        rows.append(("last error", agent.state.error_message))
    others = [name for name in agents if name != agent.name]
    if others:
        rows.append(("other agents", ", ".join(others)))
    frontend.publish(table_bundle(rows))


def _model(text: str) -> None:
    agent = agents.current
    chosen = agent.set_model(text) if text else agent.chosen_model
    frontend.publish(table_bundle([("model", chosen.model.id), ("chosen", chosen.reason)]))


def _tools(text: str) -> None:
    _no_text("tools", text)
    tools = agents.current.state.tools
    rows = [(tool.name, tool.description.split("\n", 1)[0]) for tool in tools]
    frontend.publish(table_bundle(rows or [("tools", "none: put @pi.tool on a function")]))


def _reset(text: str) -> None:
    _no_text("reset", text)
    agents.current.reset()


def _abort(text: str) -> None:
    _no_text("abort", text)
    agents.current.abort()


def _steer(text: str) -> None:
    agents.current.steer(_some_text("steer", text))


def _follow(text: str) -> None:
    agents.current.follow_up(_some_text("follow", text))


def _help(text: str) -> None:
    _no_text("help", text)
    frontend.publish(
        table_bundle(
            [
                ("%%agent", "prompt the agent with the text of the cell (%%agent? has options)"),
                ("%agent", "show the agent: state, model, tools, messages"),
                ("%agent model [SPEC]", "show the model, or use another one from now on"),
                ("%agent tools", "list the tools; @pi.tool on a function adds one"),
                ("%agent reset", "forget the conversation, keep model and tools"),
                ("%agent abort", "stop a run that goes on while other cells run"),
                ("%agent steer TEXT", "tell it something after its current turn"),
                ("%agent follow TEXT", "tell it something when it would stop"),
                ("%agent help", "show this"),
            ]
        )
    )


_VERBS: dict[str, Callable[[str], None]] = {
    "status": _status,
    "model": _model,
    "tools": _tools,
    "reset": _reset,
    "abort": _abort,
    "steer": _steer,
    "follow": _follow,
    "help": _help,
}


def _no_text(verb: str, text: str) -> None:
    if text:
        raise UsageError(f"%agent {verb} takes nothing more, not {text!r}")


def _some_text(verb: str, text: str) -> str:
    if not text:
        raise UsageError(f"%agent {verb}: say what, for example: %agent {verb} be brief")
    return text


def _counted(roles: list[Any]) -> str:
    counts = {role: roles.count(role) for role in roles}
    inside = ", ".join(f"{count} {role}" for role, count in counts.items())
    return f"({inside})" if inside else ""


agent_magic.__doc__ = f"""{_CELL.format_help()}
`%agent help` lists what the line magic does.
"""
