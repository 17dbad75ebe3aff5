"""pi-notebook: an agent inside your notebook.

    %load_ext pi_notebook          the magics %%agent and %agent
    import pi_notebook as pi       pi.agent, pi.agents, @pi.tool, pi.record, pi.replay,
                                   @pi.on, @pi.before, @pi.after, pi.hooks, pi.explain, pi.inspect

Importing it imports neither IPython nor a provider; each name is looked up when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pi_notebook.cassettes import record as record
    from pi_notebook.cassettes import replay as replay
    from pi_notebook.cell_hooks import CellHooks as CellHooks
    from pi_notebook.errors import AgentAborted as AgentAborted
    from pi_notebook.errors import AgentFailed as AgentFailed
    from pi_notebook.errors import AgentUnavailable as AgentUnavailable
    from pi_notebook.explain_verb import explain as explain
    from pi_notebook.inspector import inspect as inspect
    from pi_notebook.notebook_agent import NotebookAgent as NotebookAgent
    from pi_notebook.registry import Agents as Agents

    agent: NotebookAgent
    agents: Agents
    hooks: CellHooks
    after: Any
    before: Any
    on: Any
    tool: Any

__all__ = [
    "AgentAborted",
    "AgentFailed",
    "AgentUnavailable",
    "NotebookAgent",
    "after",
    "agent",
    "agents",
    "before",
    "explain",
    "hooks",
    "inspect",
    "load_ipython_extension",
    "on",
    "record",
    "replay",
    "tool",
    "unload_ipython_extension",
]

_ERRORS = frozenset({"AgentAborted", "AgentFailed", "AgentUnavailable"})


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics: `%load_ext pi_notebook`."""
    from pi_notebook.extension import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Take the magics away again: `%unload_ext pi_notebook`."""
    from pi_notebook.extension import unload

    unload(ipython)


async def _cell(line: str, body: str) -> None:
    """Run an `%%agent` cell: what the input transformer makes of it."""
    from pi_notebook.magics import run_cell

    await run_cell(line, body)


def __getattr__(name: str) -> Any:
    if name in _ERRORS:
        from pi_notebook import errors

        return getattr(errors, name)
    if name == "NotebookAgent":
        from pi_notebook.notebook_agent import NotebookAgent

        return NotebookAgent
    if name == "explain":
        from pi_notebook.explain_verb import explain

        return explain
    if name in ("on", "before", "after", "hooks"):
        from pi_notebook.cell_hooks import hooks

        return hooks if name == "hooks" else getattr(hooks, name)
    if name == "inspect":
        from pi_notebook.inspector import inspect

        return inspect
    if name in ("record", "replay"):
        from pi_notebook import cassettes

        return getattr(cassettes, name)
    if name in ("agent", "agents", "tool"):
        from pi_notebook.registry import agents

        return {
            "agents": lambda: agents,
            "agent": lambda: agents.current,
            "tool": lambda: agents.tool,
        }[name]()
    raise AttributeError(f"module 'pi_notebook' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
