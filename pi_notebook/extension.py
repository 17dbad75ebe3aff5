"""What `%load_ext pi_notebook` registers, and `%unload_ext` takes away again."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from pi_agent_kernel.errors import ModelError

from pi_notebook.completion import install_completions, remove_completions
from pi_notebook.config import PiNotebook
from pi_notebook.errors import CellError
from pi_notebook.inspector import show_agents_by_name, show_agents_in_cells
from pi_notebook.kernel_compat import why_unsupported
from pi_notebook.magics import agent_magic
from pi_notebook.model_verbs import warm_in_background
from pi_notebook.registry import agents
from pi_notebook.transformer import AgentCells

__all__ = ["load", "unload"]

MAGIC = "agent"
#: The settings that new agents take over.
DEFAULTS = ("model", "gguf", "system_prompt")


@dataclass
class _Loaded:
    """Hold what one shell has registered."""

    shell: Any
    cells: AgentCells
    config: PiNotebook


_loaded: list[_Loaded] = []


def load(shell: Any) -> None:
    """Register the magics in a shell and say which model was found.

    Raises:
        CellError: The kernel is of a version that loses output.
    """
    ipykernel = sys.modules.get("ipykernel")
    reason = None if ipykernel is None else why_unsupported(ipykernel.__version__)
    if reason is not None:
        raise CellError(reason)
    unload(shell)
    config = PiNotebook(parent=shell)
    config.strict = True
    config.observe(_take_defaults, names=list(DEFAULTS))
    shell.configurables.append(config)
    for name in DEFAULTS:
        agents.set_default(name, getattr(config, name))
    shell.register_magic_function(agent_magic, "line_cell", MAGIC)
    cells = AgentCells(shell)
    cells.install()
    install_completions(shell)
    show_agents_in_cells()
    _loaded.append(_Loaded(shell, cells, config))
    try:
        chosen = agents.prepare()
        line = f"pi-notebook: {chosen.summary} %agent model SPEC changes it."
    except ModelError as error:
        line = f"pi-notebook: no model yet: {error}"
        chosen = None
    sys.stdout.write(f"{' '.join(line.split())}\n")
    if chosen is not None:
        warm_in_background(chosen)


def unload(shell: Any) -> None:
    """Take away what `load` registered; the agents stay for a later `load`."""
    for loaded in [known for known in _loaded if known.shell is shell]:
        _loaded.remove(loaded)
        loaded.cells.remove()
        remove_completions(shell)
        show_agents_by_name()
        shell.configurables.remove(loaded.config)
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop(MAGIC, None)


def _take_defaults(change: Any) -> None:
    agents.set_default(change["name"], change["new"])
