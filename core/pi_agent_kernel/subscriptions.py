"""Who gets which event: listeners in the order they were registered (EV-04, EV-07)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.events import AGENT_EVENTS, ALL_EVENTS, AgentEvent
from pi_agent_kernel.notes import Notes

__all__ = ["Listener", "Subscriptions"]

Listener = Callable[[Any, AbortSignal], object]
_Subscription = tuple[Listener, frozenset[type[Any]]]


class Subscriptions:
    """Hold the listeners of one agent and deliver events to them."""

    __slots__ = ("_all", "_notes")

    def __init__(self, notes: Notes | None = None) -> None:
        self._notes = Notes() if notes is None else notes
        # Replaced as a whole, so that a change counts from the next event (DEVIATIONS 12).
        self._all: tuple[_Subscription, ...] = ()

    def add(
        self, listener: Listener, events: Iterable[type[Any] | str] | None
    ) -> Callable[[], None]:
        """Register a listener, or replace the filter of one that is registered.

        Returns:
            A function that takes it off again.
        """
        if not callable(listener):
            raise TypeError(
                "A listener is a function of the event and the abort signal, not "
                f"{type(listener).__name__}."
            )
        subscription = (listener, _classes(events))
        known = [one for one, _kinds in self._all]
        if listener in known:
            at = known.index(listener)
            self._all = (*self._all[:at], subscription, *self._all[at + 1 :])
        else:
            self._all = (*self._all, subscription)

        def unsubscribe() -> None:
            self._all = tuple(one for one in self._all if one[0] != listener)

        return unsubscribe

    def deliver(self, event: AgentEvent, signal: AbortSignal) -> Awaitable[None] | None:
        """Call each listener that wants the event; what it returns has to be awaited."""
        kind = type(event)
        listeners = self._all
        for index, (listener, kinds) in enumerate(listeners):
            if kind in kinds:
                waiting = self._call(listener, event, signal)
                if waiting is not None and is_awaitable(waiting):
                    return self._deliver_rest(waiting, listeners[index:], event, signal)
        return None

    def _call(self, listener: Listener, event: AgentEvent, signal: AbortSignal) -> Any:
        notes = self._notes
        outer, notes.listening = notes.listening, (listener, event)
        try:
            return listener(event, signal)
        except Exception as error:
            notes.raised(f"listener of {event.type}", listener, error)
            raise
        finally:
            notes.listening = outer

    async def _deliver_rest(
        self,
        waiting: Awaitable[Any],
        rest: Sequence[_Subscription],
        event: AgentEvent,
        signal: AbortSignal,
    ) -> None:
        (first, _kinds), *others = rest
        await self._wait(waiting, first, event)
        for listener, kinds in others:
            if type(event) in kinds:
                answer = self._call(listener, event, signal)
                if is_awaitable(answer):
                    await self._wait(answer, listener, event)

    async def _wait(self, waiting: Awaitable[Any], listener: Listener, event: AgentEvent) -> None:
        with self._notes.waiting("listener", event.type, listener):
            await waiting


def _classes(events: Iterable[type[Any] | str] | None) -> frozenset[type[Any]]:
    if events is None:
        return AGENT_EVENTS
    by_name = {kind.type: kind for kind in ALL_EVENTS}
    classes: set[type[Any]] = set()
    for wanted in [events] if isinstance(events, (str, type)) else events:
        kind = by_name.get(wanted) if isinstance(wanted, str) else wanted
        if kind not in ALL_EVENTS:
            raise ValueError(f"There is no event {wanted!r}; the events are {sorted(by_name)}.")
        classes.add(kind)
    return frozenset(classes)
