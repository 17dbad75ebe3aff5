"""The argparse front of `%%agent` and `%agent`: words in, a call of a method out.

Whatever is wrong with the words is a one-line usage error, and nothing is sent.
"""

from __future__ import annotations

import argparse
import difflib
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from pi_agent_kernel.errors import AgentBusyError, PiAgentError
from pi_agent_kernel.messages import text_of

from pi_notebook import frontend
from pi_notebook.cassettes import cassettes
from pi_notebook.cells import CellRequest
from pi_notebook.errors import AgentUnavailable
from pi_notebook.model_verbs import show_model, show_models
from pi_notebook.registry import agents
from pi_notebook.render.status import table_bundle
from pi_notebook.render.untrusted import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from pi_agent_kernel.messages import AgentMessage

    from pi_notebook.notebook_agent import NotebookAgent

__all__ = ["agent_magic", "run_cell", "verb_names"]


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
        agent=options.agent,
        model=options.model,
        system=options.system,
        tools=options.tools,
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
        close = difflib.get_close_matches(verb, _VERBS, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"%agent: unknown verb {verb!r} ({', '.join(_VERBS)}){hint}; "
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
    queued = agent.peek_queued_messages()
    if queued:
        rows.append(("queued next", first_line(_message_text(queued[0]), 80)))
    if agent.state.error_message:
        rows.append(("last error", agent.state.error_message))
    if cassettes.active is not None:
        rows.append(("cassette", repr(cassettes.active)))
    others = [name for name in agents if name != agent.name]
    if others:
        rows.append(("other agents", ", ".join(others)))
    frontend.publish(table_bundle(rows))


def _models(text: str) -> None:
    _no_text("models", text)
    try:
        current = agents.prepare().spec
    except PiAgentError:  # the list is what helps then
        current = ""
    show_models(agents.gguf, current)


def _tools(text: str) -> None:
    _no_text("tools", text)
    tools = agents.current.state.tools
    rows = [(tool.name, tool.description.split("\n", 1)[0]) for tool in tools]
    frontend.publish(table_bundle(rows or [("tools", "none: put @pi.tool on a function")]))


def _reset(text: str) -> None:
    _no_text("reset", text)
    agents.current.reset()
    _confirm("reset", "the conversation is forgotten; model and tools are kept")


def _abort(text: str) -> None:
    _no_text("abort", text)
    agent = agents.current
    active = agent.state.is_streaming
    agent.abort()
    _confirm("abort", "the run is told to stop" if active else "no run is active")


def _steer(text: str) -> None:
    agent = agents.current
    agent.steer(_some_text("steer", text))
    _confirm("steer", _queued(agent, "reaches the model after the current turn"))


def _follow(text: str) -> None:
    agent = agents.current
    agent.follow_up(_some_text("follow", text))
    _confirm("follow", _queued(agent, "reaches the model when it would stop"))


def _queued(agent: NotebookAgent, when: str) -> str:
    if agent.state.is_streaming:
        return f"queued; it {when}"
    return "queued; no run is active, so it goes with the next prompt (%agent clear drops it)"


def _clear(text: str) -> None:
    _no_text("clear", text)
    agent = agents.current
    had = agent.has_queued_messages()
    agent.clear_all_queues()
    _confirm("clear", "the queued messages are dropped" if had else "nothing was queued")


def _confirm(verb: str, done: str) -> None:
    frontend.publish(table_bundle([(verb, done)]))


def _help(text: str) -> None:
    _no_text("help", text)
    frontend.publish(
        table_bundle(
            [
                ("%%agent", "prompt the agent with the text of the cell (%%agent? has options)"),
                ("%agent", "show the agent: state, model, tools, messages"),
                ("%agent model [SPEC]", "show the model, or use another one from now on"),
                ("%agent models", "list what can be used now, and what the others need"),
                ("%agent tools", "list the tools; @pi.tool on a function adds one"),
                ("%agent reset", "forget the conversation, keep model and tools"),
                ("%agent abort", "stop a run that goes on while other cells run"),
                ("%agent steer TEXT", "tell it something after its current turn"),
                ("%agent follow TEXT", "tell it something when it would stop"),
                ("%agent clear", "drop what steer and follow have queued"),
                ("%agent help", "show this"),
            ]
        )
    )


_VERBS: dict[str, Callable[[str], None]] = {
    "status": _status,
    "model": lambda text: show_model(agents.current, text),
    "models": _models,
    "tools": _tools,
    "reset": _reset,
    "abort": _abort,
    "steer": _steer,
    "follow": _follow,
    "clear": _clear,
    "help": _help,
}


def verb_names() -> list[str]:
    """Return what may stand after `%agent`."""
    return list(_VERBS)


def _no_text(verb: str, text: str) -> None:
    if text:
        raise UsageError(f"%agent {verb} takes nothing more, not {text!r}")


def _some_text(verb: str, text: str) -> str:
    if not text:
        raise UsageError(f"%agent {verb}: say what, for example: %agent {verb} be brief")
    return text


def _message_text(message: AgentMessage) -> str:
    return text_of(getattr(message, "content", None) or ())


def _counted(roles: list[Any]) -> str:
    counts = {role: roles.count(role) for role in roles}
    inside = ", ".join(f"{count} {role}" for role, count in counts.items())
    return f"({inside})" if inside else ""


agent_magic.__doc__ = f"""{_CELL.format_help()}
`%agent help` lists what the line magic does.
"""
