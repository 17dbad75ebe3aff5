"""What a tool prints and displays goes to its card, also from threads that it starts.

A context variable says in whose card a piece of code runs. While a run goes on, what the process
writes and displays through is told to look there first: the streams of the kernel, its display
publisher, its question for input, and the two ways to start a thread. Code outside of tools finds
no card and is not touched. What a child process writes by itself goes past it, to the cell.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, Token
from functools import partial
from typing import Any

from pi_notebook.tool_view import Display, Image, Output, Value

__all__ = ["Card", "capturing", "in_card", "look_again", "open_card", "outside_cards"]

#: Characters that are kept of what a tool prints: of the beginning, and of the end.
HEAD = 8_000
TAIL = 16_000
#: Displays that are kept: the first ones, and as many of the last.
DISPLAYS = 4
LONGEST_DISPLAY = 20_000
_WIDGET = "application/vnd.jupyter.widget-view+json"
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")

_card: ContextVar[Card | None] = ContextVar("card", default=None)


class Card:
    """Take what one tool call prints and displays; on any thread.

    Args:
        changed: Called after each piece; told whether a plain function keeps that thread.
        ask: Called before a person is asked something: what was printed has to be seen by then.
    """

    def __init__(self, changed: Callable[[bool], object], ask: Callable[[], object]) -> None:
        self.is_open = True
        self.ask = ask
        self.value: Value | None = None
        #: The thread that a plain function keeps.
        self.kept_thread: int | None = None
        self._changed = changed
        self._lock = threading.RLock()
        self.clear()

    def enter(self) -> Token[Card | None]:
        """Have the output of what follows, on this task, until `leave`."""
        return _card.set(self)

    def leave(self, token: Token[Card | None]) -> None:
        """Undo `enter`."""
        _card.reset(token)

    def clear(self) -> None:
        """Forget what came so far."""
        with self._lock:
            self._head = self._tail = ""
            self._dropped = 0
            self._displays: dict[object, Display] = {}
            self._left_out = 0

    def write(self, text: str) -> None:
        """Take printed text."""
        with self._lock:
            room = HEAD - len(self._head)
            self._head += text[:room]
            self._tail += text[room:]
            if len(self._tail) > 2 * TAIL:
                self._dropped += len(self._tail) - TAIL
                self._tail = self._tail[-TAIL:]
        self._changed(self.kept_thread == threading.get_ident())

    def display(self, data: Mapping[str, Any], key: object, *, update: bool) -> bool:
        """Take a mime bundle: its image, else its text. Return whether it belongs here.

        Args:
            data: The bundle.
            key: Its display id; None if it has none.
            update: Whether it takes the place of the one with its id.
        """
        mime_type = next((kind for kind in _IMAGES if isinstance(data.get(kind), str | bytes)), "")
        if mime_type:
            shown = Display(image=Image(_base64(data[mime_type]), mime_type))
        else:
            shown = Display(text=str(data.get("text/plain", ""))[:LONGEST_DISPLAY])
        with self._lock:
            if update and key not in self._displays:
                return False
            self._displays[object() if key is None else key] = shown
            if len(self._displays) > 2 * DISPLAYS:
                del self._displays[list(self._displays)[DISPLAYS]]
                self._left_out += 1
        self._changed(self.kept_thread == threading.get_ident())
        return True

    def picture(self) -> Output:
        """Take the picture of it as it is now."""
        with self._lock:
            end = self._tail[-TAIL:]
            dropped = self._dropped + len(self._tail) - len(end)
            between = f"\n… {dropped} characters left out …\n" if dropped else ""
            return Output(
                printed=_last_written(f"{self._head}{between}{end}"),
                displays=tuple(self._displays.values()),
                left_out=self._left_out,
                value=self.value,
            )


def _last_written(text: str) -> str:
    """Keep of each line what a carriage return left of it, as a progress bar means it."""
    if "\r" not in text:
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)


def _base64(data: str | bytes) -> str:
    if isinstance(data, str):
        return data.replace("\n", "")
    from base64 import b64encode

    return b64encode(data).decode("ascii")


def in_card(card: Card | None, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call something whose output belongs to a card, or to none."""
    token = _card.set(card)
    try:
        return call(*args, **kwargs)
    finally:
        _card.reset(token)


@contextlib.contextmanager
def outside_cards() -> Iterator[None]:
    """Let what is displayed reach the cell."""
    token = _card.set(None)
    try:
        yield
    finally:
        _card.reset(token)


def open_card() -> Card | None:
    """Return the card of the code that runs, if it still takes something."""
    card = _card.get()
    return card if card is not None and card.is_open else None


# ------------------------------------------------------------------ what looks for a card first


def _writing(write: Callable[[str], Any]) -> Callable[[str], Any]:
    def look(text: str) -> Any:
        card = open_card()
        if card is None or not isinstance(text, str):
            return write(text)
        card.write(text)
        return len(text)

    return look


def _publishing(publish: Callable[..., Any]) -> Callable[..., Any]:
    def look(data: Any, metadata: Any = None, *args: Any, **kwargs: Any) -> Any:
        card = open_card()
        # The buttons of a widget work where the kernel put them, and nowhere else.
        if card is None or not isinstance(data, Mapping) or _WIDGET in data:
            return publish(data, metadata, *args, **kwargs)
        key = (kwargs.get("transient") or {}).get("display_id")
        if card.display(data, key, update=bool(kwargs.get("update"))):
            return None
        return publish(data, metadata, *args, **kwargs)  # of a display of the cell's own

    return look


def _clearing(clear: Callable[..., Any]) -> Callable[..., Any]:
    def look(*args: Any, **kwargs: Any) -> Any:
        card = open_card()
        return clear(*args, **kwargs) if card is None else card.clear()

    return look


def _asking(ask: Callable[..., Any]) -> Callable[..., Any]:
    def look(*args: Any, **kwargs: Any) -> Any:
        card = open_card()
        if card is not None:
            with outside_cards():
                card.ask()
        return ask(*args, **kwargs)

    return look


def _starting(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def look(thread: threading.Thread) -> None:
        card = open_card()
        if card is not None:
            run = thread.run
            thread.run = partial(in_card, card, run)  # pyright: ignore[reportAttributeAccessIssue]
        start(thread)

    return look


def _submitting(submit: Callable[..., Any]) -> Callable[..., Any]:
    def look(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kw: Any
    ) -> Any:
        # Its threads are shared: each piece of work brings its own card, or none.
        return submit(pool, partial(in_card, open_card(), function), *args, **kw)

    return look


class _Patch:
    """Put something in the place of an attribute, and put the attribute back."""

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._owner, self._name = owner, name
        self._own = name in vars(owner)
        self._before = getattr(owner, name)
        self._made = make(self._before)
        self._made.looks = True
        setattr(owner, name, self._made)

    def take_back(self) -> None:
        """Restore it, unless somebody else has put something there meanwhile."""
        if vars(self._owner).get(self._name) is not self._made:
            return
        if self._own:
            setattr(self._owner, self._name, self._before)
        else:
            delattr(self._owner, self._name)


class _Patches:
    """Hold what is patched while runs go on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._shell: Any = None
        self._patches: list[_Patch] = []

    def enter(self, shell: Any) -> None:
        """Patch what tools write through, for one run more."""
        with self._lock:
            self._runs += 1
            self._shell = shell
        self.renew()

    def renew(self) -> None:
        """Patch what is not patched, or not any more: IPython puts back a cell's own streams."""
        with self._lock:
            for owner, name, make in _places(self._shell) if self._runs else ():
                if getattr(getattr(owner, name, None), "looks", False):
                    continue
                try:
                    self._patches.append(_Patch(owner, name, make))
                except (AttributeError, TypeError):
                    continue  # it has no such thing, or lets nobody in

    def leave(self) -> None:
        """Take everything back once no run is left."""
        with self._lock:
            self._runs -= 1
            if self._runs:
                return
            while self._patches:
                self._patches.pop().take_back()
            self._shell = None


_patches = _Patches()
look_again = _patches.renew


def _places(shell: Any) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    yield sys.stdout, "write", _writing
    yield sys.stderr, "write", _writing
    yield shell.display_pub, "publish", _publishing
    yield shell.display_pub, "clear_output", _clearing
    yield getattr(shell, "kernel", None), "_input_request", _asking
    yield threading.Thread, "start", _starting
    yield ThreadPoolExecutor, "submit", _submitting


@contextlib.contextmanager
def capturing(shell: Any) -> Iterator[None]:
    """Have cards looked for while a run goes on.

    Args:
        shell: The IPython shell of the kernel.
    """
    _patches.enter(shell)
    try:
        yield
    finally:
        _patches.leave()
