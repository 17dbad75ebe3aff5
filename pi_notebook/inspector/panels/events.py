"""The log in order: what happened, what each step changed, and a chart of what took how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pi_agent_kernel.log import LogRecord, UpdateSpan

from pi_notebook.inspector.chart import run_chart
from pi_notebook.inspector.panel import Layout, Listing, Note, Panel, Row, Rows
from pi_notebook.inspector.words import Words, tone_of

if TYPE_CHECKING:
    from pi_notebook.inspector.panel import Block
    from pi_notebook.inspector.reading import Step
    from pi_notebook.inspector.scene import Scene

__all__ = ["EventQuery", "event_details", "events_panel"]

LAYOUT = Layout("events", (("#", "k"), ("event → what it changed", "v"), ("at", "n")))
PLAIN_LAYOUT = Layout("events", (("#", "k"), ("event → what it changed", "v")))


@dataclass(slots=True)
class EventQuery:
    """Say which events are wanted.

    What a filter finds is kept, and only new steps are looked at again.
    """

    #: Words that all have to stand in an event's row.
    words: str = ""
    #: Whether each update of a message has a row of its own.
    every_update: bool = False
    #: The event that is shown first, and whose run the chart shows; by default the last.
    seq: int | None = None
    _found: list[int] | None = None
    _found_for: tuple[str, int] = ("", 0)
    _looked_at: int = 0

    def found(self, scene: Scene) -> list[int] | None:
        """Return the places of the steps that fit; None if all do."""
        wanted = self.words.lower().split()
        if not wanted:
            return None
        steps = scene.reading.steps
        key = (self.words, steps[0].seq if steps else 0)
        if self._found is None or key != self._found_for:
            self._found, self._found_for, self._looked_at = [], key, 0
        unseen = Words(exact=scene.exact, redacted=False)
        # The last step may still grow, which changes none of its words but a count.
        for place in range(self._looked_at, len(steps)):
            text = _text(scene, unseen, steps[place]).lower()
            if all(word in text for word in wanted):
                self._found.append(place)
        self._looked_at = len(steps)
        return self._found


def events_panel(scene: Scene, query: EventQuery | None = None) -> Panel:
    """List the events, and draw the run that the query means."""
    query = query or EventQuery()
    reading = scene.reading
    steps = list(reading.steps)
    blocks: list[Block] = []
    run = reading.run_of(query.seq)
    chart = None if run is None else run_chart(run, reading, scene.words)
    if chart is not None:
        blocks.append(chart)
    if not steps:
        blocks.append(Note("No events", "yet: the agent has done nothing, and nobody changed it."))
    elif reading.log.first_seq > 1:
        gone = reading.log.first_seq - 1
        blocks.append(Note(f"#1 to #{gone}", "are no longer kept (max_log_events)."))
    places = query.found(scene)
    at: int | None = None
    if places is None and query.every_update:
        first, total = reading.log.first_seq, max(0, reading.seq - reading.log.first_seq + 1)

        def read(start: int, stop: int) -> Sequence[Row]:
            return _records(scene, first + start, first + stop)

        if query.seq is not None:
            at = query.seq - first
    else:
        shown = range(len(steps)) if places is None else places
        total = len(shown)

        def read(start: int, stop: int) -> Sequence[Row]:
            return [_row(scene, steps[place]) for place in shown[start:stop]]

        if query.seq is not None:
            try:
                place = reading.place(query.seq)
                at = place if places is None else places.index(place)
            except (KeyError, ValueError):
                at = None
    layout = LAYOUT if scene.exact else PLAIN_LAYOUT
    rows = Rows(layout, total, read, at=at)
    aside = () if query.seq is None else event_details(scene, query.seq)
    return Panel("events", "Events", blocks=tuple(blocks), rows=rows, aside=aside)


def event_details(scene: Scene, ref: int) -> tuple[Block, ...]:
    """Show one record: what it carries, and each change from what to what."""
    try:
        record = scene.reading.log.record(ref)
    except KeyError:
        return (Note(f"#{ref}", "is not in the log, or is no longer kept."),)
    words, reading = scene.words, scene.reading
    moment = scene.moment(record)
    blocks: list[Block] = [Note(f"#{ref} {record.type}", moment and f"at {moment} of its run")]
    if words.event(record):
        blocks.append(Listing("event", words.event(record)))
    message = getattr(record.event, "message", None)
    if message is not None:
        blocks.extend(words.message_parts(message))
    result = getattr(record.event, "result", None)
    if result is not None:
        from pi_agent_kernel.messages import text_of

        blocks.append(Listing("result", words.text(text_of(result.content or ())) or "no text"))
    raised = getattr(record.event, "raised", None)
    if raised:
        blocks.append(Listing("raised", words.text(raised)))
    changed = words.changes(record, reading).replace("; ", "\n")
    blocks.append(Listing("changed in the state", changed or "nothing"))
    return tuple(blocks)


def _records(scene: Scene, first: int, stop: int) -> list[Row]:
    rows: list[Row] = []
    for record in scene.reading.log.since(first):
        if record.seq >= stop:
            break
        rows.append(_row(scene, record))
    return rows


def _row(scene: Scene, step: Step) -> Row:
    number = str(step.seq)
    if isinstance(step, UpdateSpan) and step.last > step.seq:
        number = f"{step.seq}–{step.last}"  # noqa: RUF001 - from, to
    cells = (number, _text(scene, scene.words, step))
    if scene.exact:
        cells = (*cells, scene.moment(step))
    return Row(cells, tone=tone_of(step), ref=step.seq)


def _text(scene: Scene, words: Words, step: LogRecord | UpdateSpan) -> str:
    said = f"{step.type} {words.event(step)}".strip()
    if step.type == "host_call":
        said = f"host {words.event(step)}"
    changed = words.changes(step, scene.reading)
    return f"{said} → {changed}" if changed else said
