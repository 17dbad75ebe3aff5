"""The live view in a front end that runs widgets: small numbered messages, and buttons.

    WidgetView      shows a run by a widget where one answers, else as `LiveView` does
    RunControls     what its buttons do

The widget lives as long as the run. At the end the static bundle takes its place under the same
display id, and nothing of it stays in the saved file. It is told to be there by its own first
message: until that comes nothing is sent, and if none comes in time, whole answers are.

Messages from the front end may be handled on any thread: they only set flags and wake the run.
"""

from __future__ import annotations

import threading
import time
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from pi_agent_kernel.abort import run_soon

from pi_notebook.render.html import footer_html, part_html, whole_style
from pi_notebook.render.live import LiveView, Pace
from pi_notebook.render.markdown import MarkdownStream
from pi_notebook.render.text import plain_text
from pi_notebook.render.untrusted import LONGEST_ANSWER, bound
from pi_notebook.snapshot import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pi_notebook.render.live import Later, Publish
    from pi_notebook.snapshot import RunSnapshot

__all__ = ["PATIENCE", "RunControls", "WidgetView"]

#: Seconds until a run gets a widget: what is over sooner needs none.
WORTH_IT = 0.15
#: Seconds for the widget to say that it is there.
PATIENCE = 1.5
#: Seconds between two messages, at least.
INTERVAL = 1 / 30
#: Messages a run may send for its text: some to begin with, then one for so many characters.
MESSAGES_TO_BEGIN_WITH = 30
CHARACTERS_PER_MESSAGE = 130
#: Seconds between two messages when the text does not grow.
QUIET_INTERVAL = 0.25
#: Seconds without a new piece of text after which all of it is shown, whatever the budget says.
STALLED_AFTER = 1.0


class RunControls(Protocol):
    """**Protocol:** what the buttons of a run do; every method may be called on any thread."""

    def stop(self) -> None:
        """Abort the run."""
        ...

    def steer(self, text: str) -> None:
        """Tell the agent something after its current turn."""
        ...

    def follow(self, text: str) -> None:
        """Tell the agent something when it would stop."""
        ...

    def asks(self) -> Sequence[Mapping[str, Any]]:
        """Return the calls that wait: `number`, `name`, `args` (JSON text)."""
        ...

    def approve(self, number: int, args: str | None, *, always: bool) -> None:
        """Let a call run; `args` is JSON text that takes the place of its arguments."""
        ...

    def deny(self, number: int, reason: str) -> None:
        """Keep a call from running."""
        ...


@cache
def _widget_class() -> type[Any]:
    import anywidget
    import traitlets

    class RunWidget(anywidget.AnyWidget):
        _esm = resources.files("pi_notebook.render").joinpath("stream.js").read_text("utf-8")
        agent = traitlets.Unicode().tag(sync=True)

        def __repr__(self) -> str:
            return f"<live view of {self.agent}>"

    return RunWidget


class _Picture:
    """What the front end has been told, and what it has to be told next."""

    def __init__(self) -> None:
        self.number = 0
        #: HTML, and whether it is a piece of the answer.
        self._parts: list[tuple[str, bool]] = []
        self._tail = ""
        self._foot = ""
        self._asks: list[Any] = []
        self._streams: dict[int, MarkdownStream] = {}

    def whole(self) -> dict[str, Any]:
        """Return the message that tells everything."""
        return {
            "t": "full",
            "n": self.number,
            "style": whole_style(),
            "parts": [(place, *part) for place, part in enumerate(self._parts)],
            "tail": self._tail,
            "foot": self._foot,
            "asks": self._asks,
        }

    def update(self, run: RunSnapshot, asks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Take a new picture; return the message that leads to it, None if nothing is new."""
        parts, tail = self._drawn(run)
        message: dict[str, Any] = {}
        changed: list[tuple[int, str, bool]] = []
        added: list[tuple[int, str]] = []
        for place, part in enumerate(parts):
            before = self._parts[place] if place < len(self._parts) else None
            if part == before:
                continue
            html, is_answer = part
            if before and is_answer and before[1] and html.startswith(before[0]):
                added.append((place, html[len(before[0]) :]))
            else:
                changed.append((place, html, is_answer))
        if len(parts) < len(self._parts):
            message["cut"] = len(parts)
        if changed:
            message["parts"] = changed
        if added:
            message["add"] = added
        if tail != self._tail:
            grown = bool(self._tail) and tail.startswith(self._tail)
            message["more" if grown else "tail"] = tail[len(self._tail) :] if grown else tail
        foot, waiting = footer_html(run), list(asks)
        if foot != self._foot:
            message["foot"] = foot
        if waiting != self._asks:
            message["asks"] = waiting
        self._parts, self._tail, self._foot, self._asks = parts, tail, foot, waiting
        if not message:
            return None
        self.number += 1
        return {"t": "d", "n": self.number, **message}

    def _drawn(self, run: RunSnapshot) -> tuple[list[tuple[str, bool]], str]:
        """Draw the parts; the last block of a text that still grows is the tail."""
        parts: list[tuple[str, bool]] = []
        tail = ""
        last = len(run.parts) - 1
        for place, part in enumerate(run.parts):
            if isinstance(part, Text):
                text = bound(part.text, LONGEST_ANSWER)
                stream = self._streams.setdefault(place, MarkdownStream())
                if place == last and run.status == "running":
                    html, tail = stream.split(text)
                else:
                    html = stream.html(text)
                parts.append((html, True))
            else:
                parts.append((part_html(part, place, live=run.status == "running"), False))
        return parts, tail


class WidgetView:
    """Show a run by a widget where one answers.

    Args:
        agent: Name of the agent.
        publish: Sends a bundle to the run's output.
        controls: What the buttons do.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        agent: str,
        publish: Publish,
        controls: RunControls,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent = agent
        self._publish = publish
        self._controls = controls
        self._clock = clock
        self._whole = LiveView(publish, clock)
        self._picture = _Picture()
        self._lock = threading.RLock()  # the picture, and the order in which it is sent
        self._widget: Any = None
        self._ready = False
        self._gave_up = False
        self._brought = 0.0
        self._messages = 0
        self._last_text = 0
        self._last_sent = 0.0
        self._stalled_at = -1
        self._decided: list[Callable[[], None]] = []  # who waits to know whether it is ready

    def open(self, take: Callable[[], RunSnapshot], later: Later) -> None:
        """Make the output; the widget comes if the run is still on in a moment."""
        self._take = take
        self._later = later
        self._whole.open(take, later)
        self._pace = Pace(self._show, self._clock, later, INTERVAL)
        later(WORTH_IT, self._bring)

    def changed(self) -> None:
        """Show what is new if it is time, else arrange for it."""
        if self._ready:
            self._pace.changed()
        elif self._widget is None or self._gave_up:
            self._whole.changed()

    def refresh(self, *, asked: bool = False) -> None:
        """Show the run as it is at once."""
        if self._ready and not self._gave_up:
            self._send(self._take())
        elif self._widget is None or self._gave_up:
            self._whole.refresh(asked=asked)
        elif asked or self._clock() - self._brought >= PATIENCE:
            self._give_up_unless_ready()  # it cannot say that it is there while this thread is kept

    def close(self, run: RunSnapshot, metadata: Mapping[str, Any]) -> None:
        """Put the static bundle in the place of the widget."""
        self._gave_up = True
        self._pace.stop()
        self._whole.close(run, metadata)
        self._close_widget()

    async def can_ask(self) -> bool:
        """Tell whether the page has buttons; waits until it has said so, or its time is up."""
        decided = anyio.Event()
        with self._lock:
            if self._ready or self._gave_up:
                return self._ready and not self._gave_up
            self._decided.append(run_soon(decided.set))
        await decided.wait()
        return self._ready

    def _decide(self) -> None:
        for tell in self._decided:
            tell()
        self._decided.clear()

    def _bring(self) -> None:
        if self._gave_up:
            return
        self._whole.pause()
        self._brought = self._clock()
        widget = _widget_class()(agent=self._agent)
        widget.on_msg(self._hear)
        self._widget = widget
        view = {"model_id": widget.model_id, "version_major": 2, "version_minor": 0}
        run = self._take()
        self._publish(
            {
                "text/plain": plain_text(run)[-200:],
                "application/vnd.jupyter.widget-view+json": view,
            },
            {},
            update=True,
        )
        self._later(PATIENCE, self._give_up_unless_ready)

    def _give_up_unless_ready(self) -> None:
        if self._ready or self._gave_up:
            return
        with self._lock:
            self._gave_up = True
            self._decide()
        self._close_widget()
        self._whole.resume()

    def _close_widget(self) -> None:
        if self._widget is not None:
            self._widget.layout.close()
            self._widget.close()

    def _show(self) -> None:
        run = self._take()
        now = self._clock()
        text = len(run.text)
        grown = text != self._last_text
        allowed = MESSAGES_TO_BEGIN_WITH + text / CHARACTERS_PER_MESSAGE
        if grown and self._messages >= allowed and text != self._stalled_at:
            self._later(STALLED_AFTER, lambda: self._show_stalled(text))
            return
        if not grown and now - self._last_sent < QUIET_INTERVAL:
            self._later(QUIET_INTERVAL, self.changed)
            return
        self._send(run)

    def _send(self, run: RunSnapshot) -> None:
        with self._lock:
            message = self._picture.update(run, self._controls.asks())
            if message is None:
                return
            text = len(run.text)
            self._messages += text != self._last_text
            self._last_text, self._last_sent = text, self._clock()
            self._widget.send(message)

    def _show_stalled(self, text: int) -> None:
        """Show what the budget kept back, if nothing has come since."""
        if not self._gave_up and text != self._last_text and len(self._take().text) == text:
            self._stalled_at = text
            self._show()

    def _hear(self, _widget: object, content: Any, _buffers: object) -> None:
        """Take a message of the front end; on any thread."""
        if not isinstance(content, dict) or self._gave_up:
            return
        controls = self._controls
        match content:
            case {"t": "ready"}:
                with self._lock:
                    if not self._ready:
                        self._picture.update(self._take(), controls.asks())
                    self._widget.send(self._picture.whole())
                    self._ready = True
                    self._decide()
            case {"t": "stop"}:
                controls.stop()
            case {"t": "steer", "text": str(text)} if text.strip():
                controls.steer(text)
            case {"t": "follow", "text": str(text)} if text.strip():
                controls.follow(text)
            case {"t": "approve", "number": int(number), **rest}:
                args = rest.get("args")
                controls.approve(
                    number, args if isinstance(args, str) else None, always=bool(rest.get("always"))
                )
            case {"t": "deny", "number": int(number), **rest}:
                controls.deny(number, str(rest.get("reason") or ""))
            case _:
                return
