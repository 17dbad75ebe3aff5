"""The live inspector of a notebook that somebody watches.

The output holds the saved page, and only that: its HTML names a place, and a widget without a view
of its own takes that place in the browser. So nothing of a widget is ever in the file, and where no
widget runs the page stays. The page is renewed after a run, or a cell, that changed the agent.

While the view is in sight, what has changed is sent at most ten times a second; out of sight
nothing is. Messages of the page may come on any thread.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.backend import current_backend
from pi_agent_kernel.events import (
    AgentIdle,
    AgentStart,
    MessageStart,
    ToolExecutionStart,
    TurnStart,
)

from pi_notebook.inspector.page import inspector_style, page_of
from pi_notebook.inspector.panels.events import EventQuery
from pi_notebook.inspector.plain import plain_inspector
from pi_notebook.inspector.scene import Scene
from pi_notebook.inspector.tabs import details_of, panel_of, tab_titles, titled
from pi_notebook.inspector.wire import Picture, block_data
from pi_notebook.inspector.words import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from pi_agent_kernel.abort import AbortSignal
    from pi_agent_kernel.agent import Agent
    from pi_agent_kernel.events import AgentEvent

    from pi_notebook.render.live import Publish

__all__ = ["LiveInspector"]

#: Seconds between two messages, at least; and until the saved page is renewed after a change.
INTERVAL = 0.1
RENEWED_AFTER = 0.25
#: Rows of a long list that are sent before the page has said which it shows.
FIRST_ROWS = 60
#: Rows that the page may ask for at once.
MOST_ROWS = 400
#: Events after which a view that has just come in sight finds that a run goes on: no deltas.
_HEARD = (AgentStart, TurnStart, MessageStart, ToolExecutionStart, AgentIdle)


@cache
def _widget_class() -> type[Any]:
    import anywidget
    import traitlets

    class InspectorWidget(anywidget.AnyWidget):
        _esm = resources.files("pi_notebook.inspector").joinpath("inspector.js").read_text("utf-8")
        mount = traitlets.Unicode().tag(sync=True)

    return InspectorWidget


class LiveInspector:
    """Show an agent in one output, live while it is in sight.

    Args:
        agent: Any agent.
        publish: Sends a bundle to the output.
        tab: Which panel is open first.
        seq: The event to show first.
    """

    def __init__(
        self, agent: Agent, publish: Publish, *, tab: str = "state", seq: int | None = None
    ) -> None:
        self._agent = agent
        self._publish = publish
        self._saved_query = EventQuery(seq=seq)
        self._saved_tab = tab
        self._saved_at = -1
        self._mount = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._tab = tab
        self._query = EventQuery(seq=seq)
        self._window: tuple[int, int] | None = None
        self._at_end = True
        self._picture = Picture()
        self._titles: list[Any] = []
        self._foot: list[str] = []
        self._scene: Scene | None = None
        self._number = 0
        self._seen = -1  # the last record that the page knows of
        self._steps = -1
        self._ticking = False
        self._unsubscribe: Callable[[], None] | None = None
        self._widget: Any = None
        self.is_open = False
        self.in_sight = False

    def open(self) -> None:
        """Make the output and the widget that takes its place."""
        self.is_open = True
        self._save(update=False)
        self._widget = _widget_class()(mount=self._mount)
        self._widget.on_msg(self._hear)
        self._unsubscribe = self._agent.subscribe(self._listen, events=_HEARD)

    def close(self) -> None:
        """Leave the saved page, as it is now; nothing listens any more."""
        with self._lock:
            if not self.is_open:
                return
            self.is_open = self.in_sight = False
            if self._unsubscribe is not None:
                self._unsubscribe()
            self._mount = ""
            self._save(update=True)
            self._widget.layout.close()
            self._widget.close()
            self._scene = None

    def renew(self) -> None:
        """Bring page and view up to date, if the agent has changed since; a cell's end calls it."""
        if self.is_open and self._agent.log.last_seq != self._saved_at:
            self.refresh()
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self._renew_page()
            else:
                loop.call_later(RENEWED_AFTER, self._renew_page)

    def refresh(self, *, deltas_only: bool = False) -> None:
        """Send what has changed, if somebody sees it.

        Args:
            deltas_only: Nothing but the log can have changed.
        """
        with self._lock:
            if not self.in_sight:
                return
            self._seen = self._agent.log.last_seq
            message = self._changes(deltas_only=deltas_only)
            if message:
                self._number += 1
                self._widget.send({"t": "d", "n": self._number, **message})

    # ---------------------------------------------------------------------------- the page

    def _save(self, *, update: bool) -> None:
        self._saved_at = self._agent.log.last_seq
        scene = Scene.of(self._agent, exact=False)
        bundle = {
            "text/plain": plain_inspector(scene, query=self._saved_query),
            "text/html": page_of(
                scene, tab=self._saved_tab, query=self._saved_query, mount=self._mount
            ),
        }
        self._publish(bundle, {}, update=update)

    def _renew_page(self) -> None:
        with self._lock:
            idle = not self._agent.state.is_streaming
            if self.is_open and idle and self._agent.log.last_seq != self._saved_at:
                self._save(update=True)

    # ---------------------------------------------------------------------------- the run

    def _listen(self, event: AgentEvent, _signal: AbortSignal) -> None:
        if isinstance(event, AgentIdle):
            # After the run, which waits for its listeners; a cell's end does it, too.
            current_backend().later(0, self.refresh)
            current_backend().later(RENEWED_AFTER, self._renew_page)
        elif self.in_sight and not self._ticking:
            self._ticking = True
            current_backend().later(INTERVAL, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        if self.in_sight and self._agent.log.last_seq != self._seen:
            self.refresh(deltas_only=True)
        if self.in_sight and self._agent.state.is_streaming:
            self._ticking = True
            current_backend().later(INTERVAL, self._tick)

    # ---------------------------------------------------------------------------- the view

    def _changes(self, *, deltas_only: bool = False) -> dict[str, Any]:
        """Return what the page does not know yet.

        Args:
            deltas_only: Nothing but the log can have changed.
        """
        scene = self._scene = self._scene or Scene.of(self._agent, exact=True)
        scene.reading.update()
        message: dict[str, Any] = {}
        titles = tab_titles(scene)
        tabs = [
            (name, titled(title, count), name == self._tab)
            for name, (title, count) in titles.items()
        ]
        if tabs != self._titles:
            message["tabs"] = self._titles = tabs
        foot = self._said(scene)
        if foot != self._foot:
            message["foot"] = self._foot = foot
        # Deltas only make the message that streams longer, which most panels do not show.
        steps = len(scene.reading.steps)
        if steps == self._steps and self._tab not in ("state", "events") and deltas_only:
            return message
        self._steps = steps
        panel = panel_of(scene, self._tab, self._query)
        total = 0 if panel.rows is None else panel.rows.total
        window = self._window
        if window is None:
            window = (max(0, total - FIRST_ROWS), total)
        elif self._at_end:  # who looks at the end goes on looking at it
            window = (max(0, total - max(window[1] - window[0], 1)), total)
        if panel.rows is not None and panel.rows.at is not None and self._window is None:
            window = (panel.rows.at - FIRST_ROWS // 2, panel.rows.at + FIRST_ROWS // 2)
        message.update(
            self._picture.update(
                panel, window, self._epoch(scene), shows_aside=self._tab != "events"
            )
        )
        return message

    def _epoch(self, scene: Scene) -> str:
        """Name what the rows of the list are; others have another name."""
        if self._tab != "events":
            return self._tab
        first = scene.reading.steps[0].seq if scene.reading.steps else 0
        return f"{self._query.words} {self._query.every_update} {first}"

    def _said(self, scene: Scene) -> list[str]:
        state = self._agent.state
        name = getattr(self._agent, "name", "")
        told = [
            scene.words.line(name, 60),
            scene.words.line(state.model.id, 80),
            f"{number(len(state.messages))} messages",
        ]
        if state.is_streaming:
            return ["live", f"turn {state.turn_index}", *filter(None, told)]
        if state.error_message:
            return ["bad", "last run failed", *filter(None, told)]
        return ["ok", "idle", *filter(None, told)]

    def _show_whole(self, *, style: bool = False) -> None:
        """Send the panel that is open as a whole."""
        self._picture = Picture()
        self._titles, self._foot = [], []
        self._window, self._at_end = None, True
        self._seen = self._agent.log.last_seq
        message = self._changes()
        message.setdefault("list", None)
        message.setdefault("blocks", {"of": 0, "changed": ()})
        message.setdefault("aside", {"of": 0, "changed": ()})
        message |= {"find": self._query.words, "every": self._query.every_update}
        if style:
            message["style"] = inspector_style()
        seq = self._query.seq
        if self._tab == "events" and seq is not None and message["list"] is not None:
            message["list"]["at"] = panel_of_at(self._scene, self._query)
        self._number += 1
        self._widget.send({"t": "full", "n": self._number, "tab": self._tab, **message})
        if self._tab == "events" and seq is not None:
            self._show_detail(seq)

    def _show_detail(self, ref: int) -> None:
        scene = self._scene
        if scene is not None:
            blocks = [block_data(block) for block in details_of(scene, self._tab, ref)]
            self._widget.send({"t": "detail", "ref": ref, "blocks": blocks})

    def _hear(self, _widget: object, content: Any, _buffers: object) -> None:
        """Take a message of the page; on any thread."""
        if not isinstance(content, dict) or not self.is_open:
            return
        with self._lock:
            match content:
                case {"t": "watch"}:
                    self.in_sight = True
                    self._show_whole(style=True)
                case {"t": "rest"}:
                    self.in_sight = False
                    self._scene = None
                case {"t": "close"}:
                    self.close()
                case _ if not self.in_sight:
                    return
                case {"t": "tab", "tab": str(tab)} if self._scene is not None and (
                    tab in tab_titles(self._scene)
                ):
                    self._tab = tab
                    self._query.seq = None
                    self._show_whole()
                case {"t": "event", "seq": int(seq)}:
                    self._tab = "events"
                    self._query = EventQuery(seq=seq)
                    self._show_whole()
                case {"t": "find", "words": str(words), **rest}:
                    self._query = EventQuery(
                        words=words[:200], every_update=rest.get("every") is True
                    )
                    self._window, self._at_end = None, True
                    self.refresh()
                case {"t": "rows", "start": int(start), "stop": int(stop), **rest}:
                    start = max(0, start)
                    self._window = (start, max(start, min(stop, start + MOST_ROWS)))
                    self._at_end = rest.get("end") is True
                    if rest.get("missing") is True or not self._agent.state.is_streaming:
                        self.refresh()
                case {"t": "detail", "ref": int(ref)}:
                    self._show_detail(ref)
                case _:
                    return


def panel_of_at(scene: Scene | None, query: EventQuery) -> int | None:
    """Return which row of the events is the one that a query means."""
    rows = None if scene is None else panel_of(scene, "events", query).rows
    return None if rows is None else rows.at
