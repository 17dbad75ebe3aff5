"""The cards of one run: each call of a tool gets one, and what it returned is kept."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.awaiting import is_awaitable

from pi_notebook.tool_output import Card, in_card, look_again, open_card

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pi_agent_kernel.tools import AgentTool

    from pi_notebook.results import Results
    from pi_notebook.tool_view import Output

__all__ = ["ToolCards"]

#: Held while figures are displayed, each once.
_figures = threading.RLock()


class ToolCards:
    """Stand around the calls of a run's tools.

    Args:
        hold: Gets the id of each call and what takes the picture of its card.
        results: Gets what the calls return.
        changed: Called when a card has changed, on any thread; told whether a plain function
            keeps that thread.
        show: Shows the run at once; on any thread.
        flush: Displays the figures that were drawn.
        show_live: Gets each returned value; shows it if it is a widget.
    """

    def __init__(
        self,
        hold: Callable[[str, Callable[[], Output]], None],
        results: Results,
        *,
        changed: Callable[[bool], object],
        show: Callable[[], object],
        flush: Callable[[], object],
        show_live: Callable[[object], object],
    ) -> None:
        self._hold = hold
        self._results = results
        self._changed = changed
        self._show = show
        self._flush = flush
        self._show_live = show_live
        self._cards: list[Card] = []
        self._on_main_thread = 0  # plain calls that run there

    def around(self, _tool: AgentTool, call_id: str, call: Callable[[], Any]) -> Callable[[], Any]:
        """Give a call its card; a call within a call has that of the outer one."""
        if open_card() in self._cards:
            return call
        card = Card(self._changed, self._show)
        name = self._results.begin(call_id)
        self._cards.append(card)
        self._hold(call_id, card.picture)
        look_again()
        return lambda: in_card(card, self._run, card, name, call)

    def keep_only(
        self, _tool: AgentTool, call_id: str, call: Callable[[], Any]
    ) -> Callable[[], Any]:
        """Keep what a call returns; what it prints goes where it would go anyway."""
        name = self._results.begin(call_id)

        def run() -> Any:
            value = call()
            if is_awaitable(value):
                return self._keep(name, value)
            self._results.keep(name, value)
            return value

        return run

    def close(self) -> None:
        """Take nothing more; what a tool left running prints where it would print anyway."""
        for card in self._cards:
            card.is_open = False

    def _run(self, card: Card, name: str, call: Callable[[], Any]) -> Any:
        value = None
        here = threading.current_thread() is threading.main_thread()
        self._on_main_thread += here
        card.kept_thread = threading.get_ident()
        try:
            value = call()
            card.kept_thread = None
            if not is_awaitable(value):
                self._keep_shown(card, name, value)
        finally:
            self._on_main_thread -= here
            if not is_awaitable(value):
                self._take_figures(value)
        return self._finish(card, name, value) if is_awaitable(value) else value

    async def _finish(self, card: Card, name: str, waiting: Awaitable[Any]) -> Any:
        value = None
        token = card.enter()
        try:
            value = await waiting
            self._keep_shown(card, name, value)
        finally:
            self._take_figures(value)
            card.leave(token)
        return value

    def _keep_shown(self, card: Card, name: str, value: object) -> None:
        card.value = self._results.keep(name, value)
        if card.value is not None:
            self._show_live(value)

    async def _keep(self, name: str, waiting: Awaitable[Any]) -> Any:
        value = await waiting
        self._results.keep(name, value)
        return value

    def _take_figures(self, value: object) -> None:
        """Have the figures that a call drew in its card; those it returned are there already."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            for one in value if isinstance(value, list | tuple) else [value]:
                if hasattr(one, "savefig"):
                    pyplot.close(one)
        # Figures are the process's, and those of now are most likely of the plain call there.
        with _figures:
            if not self._on_main_thread:
                self._flush()
