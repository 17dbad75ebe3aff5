"""The inspector: which event wrote which field, and what the model saw.

    pi.inspect(agent)        in any cell; also for a plain `pi_agent_kernel.Agent`
    %agent inspect [EVENT]   for the current agent
    pi.agent                 as the last expression of a cell

Panels are pure functions of an agent and its log (`panels`), shown by three renderers: a page for
saved files, text for terminals and headless execution, and a live view.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pi_notebook import frontend
from pi_notebook.inspector.panels.events import EventQuery
from pi_notebook.inspector.plain import plain_inspector
from pi_notebook.inspector.scene import Scene

if TYPE_CHECKING:
    from pi_agent_kernel.agent import Agent

    from pi_notebook.inspector.live import LiveInspector

__all__ = ["inspect", "show_agents_by_name", "show_agents_in_cells"]

#: The live views; an agent has one, the newest.
_live: list[tuple[Agent, LiveInspector]] = []
_shells: list[Any] = []


def inspect(agent: Agent, event: int | None = None) -> None:
    """Show what an agent is, how it came to be so, and what its model saw.

    Live in a notebook, until a newer one of the same agent is shown or it is closed; a page that
    stays in headless execution; text elsewhere.

    Args:
        agent: Any agent.
        event: The number of the event to show first; by default the state is shown.

    Raises:
        TypeError: It is no agent.
        ValueError: The log does not hold that event.
    """
    from pi_agent_kernel.agent import Agent

    if not isinstance(agent, Agent):
        raise TypeError(f"inspect takes an agent, such as pi.agent, not {type(agent).__name__}")
    log = agent.log
    if event is not None and not log.first_seq <= event <= log.last_seq:
        held = f"#{log.first_seq} to #{log.last_seq}" if len(log) else "nothing yet"
        raise ValueError(f"the log has no event {event}; it holds {held}")
    shell = frontend.shell()
    query = EventQuery(seq=event)
    if shell is None or (getattr(shell, "kernel", None) is None and not frontend.is_headless()):
        sys.stdout.write(f"{plain_inspector(Scene.of(agent, exact=True), query=query)}\n")
        return
    tab = "state" if event is None else "events"
    if not frontend.is_live():
        from pi_notebook.inspector.page import page_of

        scene = Scene.of(agent, exact=False)
        frontend.publish(
            {
                "text/plain": plain_inspector(scene, query=query),
                "text/html": page_of(scene, tab=tab, query=query),
            }
        )
        return
    from pi_notebook.inspector.live import LiveInspector

    for known in [pair for pair in _live if pair[0] is agent]:
        _live.remove(known)
        known[1].close()
    view = LiveInspector(agent, frontend.updating(), tab=tab, seq=event)
    view.open()
    _live.append((agent, view))
    show_agents_in_cells()


def show_agents_in_cells() -> None:
    """Have a cell whose last expression is an agent show the inspector."""
    from pi_agent_kernel.agent import Agent

    shell = frontend.shell()
    if shell is None or any(known is shell for known in _shells):
        return
    _shells.append(shell)
    shell.display_formatter.ipython_display_formatter.for_type(Agent, inspect)
    shell.events.register("post_run_cell", _after_cell)


def show_agents_by_name() -> None:
    """Undo `show_agents_in_cells`, and close what is live."""
    from pi_agent_kernel.agent import Agent

    for _, view in _live:
        view.close()
    _live.clear()
    shell = frontend.shell()
    if any(known is shell for known in _shells):
        _shells.remove(shell)
        shell.display_formatter.ipython_display_formatter.pop(Agent, None)
        shell.events.unregister("post_run_cell", _after_cell)


def _after_cell(*_result: object) -> None:
    for pair in list(_live):
        if pair[1].is_open:
            pair[1].renew()
        else:
            _live.remove(pair)
