"""How a run is shown while it goes on: four views of one stream of pictures.

    LiveView      one output that is updated in place: a notebook that somebody watches
    StaticView    one output when the run has ended: headless execution, captured output
    TerminalView  text that grows: IPython in a terminal
    SilentView    nothing

A live output is updated at most ten times a second, and only while everything sent for it stays
under six times the text so far plus 64 KB: a long answer is sent in steps that grow with it, so the
bytes stay proportional to the answer. The full bundle is sent once, at the end.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Protocol

from pi_notebook.render.bundle import final_bundle, live_bundle
from pi_notebook.render.markdown import MarkdownStream
from pi_notebook.render.text import plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pi_notebook.render.bundle import MimeBundle
    from pi_notebook.snapshot import RunSnapshot

__all__ = [
    "Later",
    "LiveView",
    "Pace",
    "Publish",
    "SilentView",
    "StaticView",
    "TerminalView",
    "View",
]

#: Seconds between two updates, at least.
INTERVAL = 0.1
BYTES_PER_CHARACTER = 6
BYTES_TO_BEGIN_WITH = 64 * 1024
#: What a message of the protocol weighs beside its data.
MESSAGE_BYTES = 700


class Publish(Protocol):
    """**Protocol:** sends one mime bundle to the front end."""

    def __call__(self, data: MimeBundle, metadata: Mapping[str, Any], *, update: bool) -> None:
        """Send it as the run's output, or as an update of it."""
        ...


class Later(Protocol):
    """**Protocol:** calls back on the loop of the run after some seconds."""

    def __call__(self, seconds: float, callback: Callable[[], object], /) -> object:
        """Arrange one call."""
        ...


class View(Protocol):
    """**Protocol:** shows one run."""

    def open(self, take: Callable[[], RunSnapshot], later: Later) -> None:
        """Begin.

        Args:
            take: Takes the picture of the run as it is now.
            later: Calls back on the loop of the run.
        """
        ...

    def changed(self) -> None:
        """Hear that the run has gone on; cheap, as every text delta calls it."""
        ...

    def refresh(self, *, asked: bool = False) -> None:
        """Show the run as it is at once; on any thread that may display.

        Args:
            asked: Whether somebody is about to be asked something, so that no budget counts.
        """
        ...

    def close(self, run: RunSnapshot, metadata: Mapping[str, Any]) -> None:
        """Show the run as it ended."""
        ...

    async def can_ask(self) -> bool:
        """Tell whether it has buttons that answer; waits a moment where that is not known yet."""
        ...


class _Mute:
    """Be a view without buttons."""

    def refresh(self, *, asked: bool = False) -> None:
        """Do nothing: nobody watches."""

    async def can_ask(self) -> bool:
        """Say no."""
        return False


class Pace:
    """Refresh at most every `interval`, and never leave a change unshown for longer.

    A stream that never lets the loop turn is served by `changed`, a quiet one by the timer.

    Args:
        refresh: Shows the run as it is.
        clock: Seconds that only go forward.
        later: Calls back on the loop of the run.
        interval: Seconds between two refreshes, at least.
    """

    def __init__(
        self,
        refresh: Callable[[], object],
        clock: Callable[[], float],
        later: Later,
        interval: float = INTERVAL,
    ) -> None:
        self._refresh = refresh
        self._clock = clock
        self._later = later
        self._interval = interval
        self._due = clock() + interval
        self._awaited = False  # whether the timer will ring
        self._stopped = False

    def changed(self) -> None:
        """Refresh now if it is time, else arrange for it."""
        now = self._clock()
        if now >= self._due:
            self._refresh()
            self._due = self._clock() + self._interval
        elif not self._awaited:
            self._awaited = True
            self._later(self._due - now, self._ring)

    def stop(self) -> None:
        """Refresh no more."""
        self._stopped = True

    def _ring(self) -> None:
        self._awaited = False
        if not self._stopped:
            self.changed()


class LiveView(_Mute):
    """Show a run in one output that is updated in place.

    Args:
        publish: Sends a bundle.
        clock: Seconds that only go forward.
    """

    def __init__(self, publish: Publish, clock: Callable[[], float] = time.monotonic) -> None:
        self._publish = publish
        self._clock = clock
        self._streams: dict[int, MarkdownStream] = {}
        self._sent = 0
        self._last_size = 0

    def open(self, take: Callable[[], RunSnapshot], later: Later) -> None:
        """Make the output at once: something goes on."""
        self._take, self._later = take, later
        self._send(live_bundle(take(), self._render), update=False)
        self._pace = Pace(lambda: self._update(take()), self._clock, later)

    def changed(self) -> None:
        """Update now if it is time, else arrange for it."""
        self._pace.changed()

    def refresh(self, *, asked: bool = False) -> None:
        """Send the run as it is, within the budget unless somebody is asked."""
        if asked:
            self._send(live_bundle(self._take(), self._render), update=True)
        else:
            self._update(self._take())

    def pause(self) -> None:
        """Send nothing until `resume` or `close`."""
        self._pace.stop()

    def resume(self) -> None:
        """Send the run as it is, and go on."""
        self._pace = Pace(lambda: self._update(self._take()), self._clock, self._later)
        self.refresh(asked=True)

    def close(self, run: RunSnapshot, metadata: Mapping[str, Any]) -> None:
        """Send the full bundle; nothing follows it."""
        self._pace.stop()
        self._publish(final_bundle(run), metadata, update=True)

    def _update(self, run: RunSnapshot) -> None:
        budget = BYTES_PER_CHARACTER * len(run.text) + BYTES_TO_BEGIN_WITH
        # Pictures of a run hardly shrink, so one that surely does not fit is not even rendered.
        if self._sent + self._last_size > budget:
            return
        bundle = live_bundle(run, self._render)
        self._last_size = _size(bundle)
        if self._sent + self._last_size <= budget:
            self._send(bundle, update=True)

    def _send(self, bundle: MimeBundle, *, update: bool) -> None:
        self._last_size = _size(bundle)
        self._sent += self._last_size
        self._publish(bundle, {}, update=update)

    def _render(self, position: int, text: str) -> str:
        return self._streams.setdefault(position, MarkdownStream()).html(text)


class StaticView(_Mute):
    """Show a run once, when it has ended.

    Args:
        publish: Sends a bundle.
    """

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    def open(self, take: Callable[[], RunSnapshot], later: Later) -> None:
        """Do nothing: nobody watches."""

    def changed(self) -> None:
        """Do nothing: nobody watches."""

    def close(self, run: RunSnapshot, metadata: Mapping[str, Any]) -> None:
        """Send the one output of the run."""
        self._publish(final_bundle(run), metadata, update=False)


class TerminalView(_Mute):
    """Write the text of a run to a terminal as it grows.

    Args:
        write: Writes text and flushes.
        clock: Seconds that only go forward.
    """

    def __init__(
        self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._shown = ""

    def open(self, take: Callable[[], RunSnapshot], later: Later) -> None:
        """Begin; there is nothing to write yet."""
        self._pace = Pace(lambda: self._update(take()), self._clock, later)

    def changed(self) -> None:
        """Write what is new if it is time, else arrange for it."""
        self._pace.changed()

    def close(self, run: RunSnapshot, metadata: Mapping[str, Any]) -> None:
        """Write the rest and end the line."""
        del metadata
        self._pace.stop()
        self._update(run)
        if self._shown:
            self._write("\n")

    def _update(self, run: RunSnapshot) -> None:
        text = plain_text(run)
        if text.startswith(self._shown):
            new = text[len(self._shown) :]
        else:  # a result that came late: again from the line it stands on
            new = f"\n{text[_same_lines(self._shown, text) :]}"
        if new:
            self._write(new)
        self._shown = text


class SilentView(_Mute):
    """Show nothing."""

    def open(self, take: Callable[[], RunSnapshot], later: Later) -> None:
        """Do nothing."""

    def changed(self) -> None:
        """Do nothing."""

    def close(self, run: RunSnapshot, metadata: Mapping[str, Any]) -> None:
        """Do nothing."""


def _size(bundle: MimeBundle) -> int:
    return len(json.dumps(bundle, ensure_ascii=False).encode()) + MESSAGE_BYTES


def _same_lines(before: str, after: str) -> int:
    """Count the characters of the whole lines that both texts begin with."""
    length = 0
    for old, new in zip(
        before.splitlines(keepends=True), after.splitlines(keepends=True), strict=False
    ):
        if old != new:
            break
        length += len(new)
    return length
