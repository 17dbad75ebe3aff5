"""The panels by name, in the order of their tabs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pi_notebook.inspector.panels.events import EventQuery, event_details, events_panel
from pi_notebook.inspector.panels.queues import queue_details, queues_panel
from pi_notebook.inspector.panels.requests import request_details, requests_panel
from pi_notebook.inspector.panels.state import state_details, state_panel
from pi_notebook.inspector.panels.tools import tool_details, tools_panel
from pi_notebook.inspector.panels.transcript import message_details, transcript_panel
from pi_notebook.inspector.panels.tree import tree_details, tree_panel
from pi_notebook.inspector.panels.usage import usage_panel

if TYPE_CHECKING:
    from collections.abc import Callable

    from pi_notebook.inspector.panel import Block, Panel
    from pi_notebook.inspector.scene import Scene

__all__ = ["details_of", "panel_of", "tab_titles", "titled"]

_PANELS: dict[str, Callable[[Scene], Panel]] = {
    "state": state_panel,
    "transcript": transcript_panel,
    "tools": tools_panel,
    "events": events_panel,
    "requests": requests_panel,
    "queues": queues_panel,
    "usage": usage_panel,
    "tree": tree_panel,
}
_DETAILS: dict[str, Callable[[Scene, int], tuple[Block, ...]]] = {
    "state": state_details,
    "transcript": message_details,
    "tools": tool_details,
    "events": event_details,
    "requests": request_details,
    "queues": queue_details,
    "usage": message_details,
    "tree": tree_details,
}


def tab_titles(scene: Scene) -> dict[str, tuple[str, int | None]]:
    """Return each tab's title, and how many things its panel has if it counts any."""
    agent, reading = scene.agent, scene.reading
    approvals: Any = scene.in_notebook("approvals")
    branches: Any = scene.in_notebook("branches")
    tools = {tool.name for tool in list(agent.state.tools)} | set(agent.state.replay().tools)
    waiting = sum(map(len, agent.queued_messages().values())) + len(approvals or ())
    titles: dict[str, tuple[str, int | None]] = {
        "state": ("State", None),
        "transcript": ("Transcript", len(agent.state.messages)),
        "tools": ("Tools", len(tools)),
        "events": ("Events", max(0, reading.seq - reading.log.first_seq + 1)),
        "requests": ("Requests", len(reading.requests)),
        "queues": ("Queues" if approvals is None else "Queues & approvals", waiting or None),
        "usage": ("Usage", None),
    }
    if branches is not None:
        titles["tree"] = ("Tree", len(branches))
    return titles


def titled(title: str, count: int | None) -> str:
    """Write a tab."""
    return title if count is None else f"{title} {count}"


def panel_of(scene: Scene, name: str, query: EventQuery | None = None) -> Panel:
    """Make one panel.

    Args:
        scene: The scene.
        name: Of the panel, as `tab_titles` has it.
        query: Which events are wanted; only for "events".
    """
    return events_panel(scene, query) if name == "events" else _PANELS[name](scene)


def details_of(scene: Scene, name: str, ref: int) -> tuple[Block, ...]:
    """Show what a row refers to."""
    return _DETAILS[name](scene, ref)
