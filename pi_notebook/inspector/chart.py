"""A run as a chart: requests, tools and turns, one above the other.

Where times are told the axis is time; elsewhere it is the order of the events, which is the same
in every execution.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pi_notebook.inspector.panel import Bar, Chart, Tick
from pi_notebook.inspector.words import seconds

if TYPE_CHECKING:
    from pi_notebook.inspector.panel import Tone
    from pi_notebook.inspector.reading import Reading, Run, Span
    from pi_notebook.inspector.words import Words

__all__ = ["run_chart"]

#: More bars than these can hardly be told apart; the last ones are drawn.
MOST_BARS = 150
#: Tools that run at the same time have lanes of their own, up to so many.
MOST_TOOL_LANES = 4
TICKS = 4


def run_chart(run: Run, reading: Reading, words: Words) -> Chart | None:
    """Draw a run; None if nothing in it takes any time.

    Args:
        run: The run.
        reading: The log.
        words: How to say things; exact ones draw times, others only the order.
    """
    spans = [span for span in run.spans if reading.log.first_seq <= (span.last or reading.seq)]
    if not spans:
        return None
    left_out = max(0, len(spans) - MOST_BARS)
    spans = spans[left_out:]
    axis = _Times(run, spans, reading) if words.exact else _Order(run, spans, reading)
    lanes = _lanes(spans)
    tool_lanes = 1 + max((lane for lane, span in lanes if span.kind == "tool"), default=-1)
    names = ["request", *["tools", *[""] * (tool_lanes - 1)][:tool_lanes], "turn"]
    bars = [
        Bar(
            lane=_lane(span, lane, tool_lanes),
            start=axis.at(span, end=False),
            end=axis.at(span, end=True),
            tone=_tone(span),
            title=_title(span, words),
            ref=span.seq,
        )
        for lane, span in lanes
    ]
    title = f"run from #{run.seq}"
    title += f" to #{run.last}" if run.last is not None else ", still going on"
    if left_out:
        title += f"; {left_out} earlier bars are left out"
    return Chart(title, tuple(names), tuple(bars), axis.ticks())


class _Times:
    """Be the axis of seconds since the run began."""

    def __init__(self, run: Run, spans: list[Span], reading: Reading) -> None:
        last = reading.steps[-1]
        self._now = getattr(last, "until", last.time) if run.until is None else run.until
        self._zero = run.time if len(spans) == len(run.spans) else spans[0].time
        self._offset = self._zero - run.time
        self._length = max(self._now - self._zero, 1e-6)

    def at(self, span: Span, *, end: bool) -> float:
        time = (span.until if span.until is not None else self._now) if end else span.time
        return min(1.0, max(0.0, (time - self._zero) / self._length))

    def ticks(self) -> tuple[Tick, ...]:
        step = _round_step(self._length / TICKS)
        first = math.ceil(self._offset / step)
        ticks: list[Tick] = []
        for count in range(first, first + 2 * TICKS + 2):
            at = (count * step - self._offset) / self._length
            if at <= 1:
                ticks.append(Tick(at, "0" if count == 0 else _time_label(count * step)))
        return tuple(ticks)


class _Order:
    """Be the axis of the events in their order; updates of a message count as one."""

    def __init__(self, run: Run, spans: list[Span], reading: Reading) -> None:
        self._reading = reading
        self._seqs = (
            spans[0].seq if len(spans) < len(run.spans) else run.seq,
            run.last or reading.seq,
        )
        self._first = self._place(self._seqs[0])
        self._length = max(1, self._place(self._seqs[1]) - self._first)

    def _place(self, seq: int) -> int:
        return self._reading.place(max(seq, self._reading.log.first_seq))

    def at(self, span: Span, *, end: bool) -> float:
        seq = (span.last or self._seqs[1]) if end else span.seq
        return min(1.0, max(0.0, (self._place(seq) - self._first) / self._length))

    def ticks(self) -> tuple[Tick, ...]:
        count = min(TICKS, self._length)
        places = sorted({self._first + round(self._length * at / count) for at in range(count)})
        return tuple(
            Tick((place - self._first) / self._length, f"#{self._reading.steps[place].seq}")
            for place in places
        )


def _lanes(spans: list[Span]) -> list[tuple[int, Span]]:
    """Give tools that run at the same time lanes of their own."""
    busy: list[Span] = []
    placed: list[tuple[int, Span]] = []
    for span in spans:
        lane = 0
        if span.kind == "tool":
            free = [
                n
                for n, other in enumerate(busy)
                if other.last is not None and other.last < span.seq
            ]
            if free:
                lane = free[0]
                busy[lane] = span
            elif len(busy) < MOST_TOOL_LANES:
                lane = len(busy)
                busy.append(span)
            else:
                lane = MOST_TOOL_LANES - 1
        placed.append((lane, span))
    return placed


def _lane(span: Span, lane: int, tool_lanes: int) -> int:
    return {"request": 0, "tool": 1 + lane}.get(span.kind, 1 + tool_lanes)


def _tone(span: Span) -> Tone:
    if span.kind == "turn":
        return ""
    if span.outcome == "bad":
        return "bad"
    return "ok" if span.kind == "tool" and span.outcome == "ok" else "live"


def _title(span: Span, words: Words) -> str:
    last = f" to #{span.last}" if span.last is not None else ", not ended"
    lasted = (
        f", {seconds(span.until - span.time)}" if words.exact and span.until is not None else ""
    )
    failed = ", failed" if span.outcome == "bad" else ""
    return f"{words.line(span.name, 60)}: #{span.seq}{last}{lasted}{failed}"


def _round_step(raw: float) -> float:
    power = 10 ** math.floor(math.log10(raw))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= raw)


def _time_label(time: float) -> str:
    if time < 1:
        return f"{time * 1000:.3g} ms"
    return f"{time:.3g} s" if time < 1000 else f"{time:.0f} s"
