"""`%%agent` and `%agent`: words in, a call of a method out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from pi_agent_kernel.errors import AgentBusyError, PiAgentError

from pi_notebook.cell_options import cell_help, parse_cell
from pi_notebook.errors import AgentUnavailable
from pi_notebook.registry import agents
from pi_notebook.shown_text import without_secrets
from pi_notebook.verbs import run_verb

if TYPE_CHECKING:
    from pi_notebook.cells import CellRequest
    from pi_notebook.notebook_agent import NotebookAgent

__all__ = ["agent_magic", "run_cell"]


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
        run_verb(line)
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
    return UsageError(without_secrets(f"%%agent: {error}"))


agent_magic.__doc__ = f"""{cell_help()}
`%agent help` lists what the line magic does.
"""
