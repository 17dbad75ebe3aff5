"""What a run tells whoever keeps its log, beside its events.

| fact | writer | moment |
| --- | --- | --- |
| a request and the stages of its messages | `model_request` | right before `model_request_start` |
| a hook's decision, and who made it | `run`, `tool_call` | when the hook has answered or raised |
| what a listener raised | `subscriptions` | when it raised |
| what is awaited, and since when | `run`, `tool_call`, `subscriptions` | while it lasts |

Everything is O(1) for an event, and nothing of it is an event.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Literal

import msgspec

from pi_agent_kernel.errors import CARRIERS, error_text, raised_at
from pi_agent_kernel.events import AgentEvent
from pi_agent_kernel.messages import AgentMessage, Message, ThinkingLevel
from pi_agent_kernel.request import Model

__all__ = ["Awaited", "Notes", "SentRequest", "calling_line", "name_of", "replaced_by"]


#: The hook, what it decided, who, about which call, which messages it added.
OnDecision = Callable[[str, str, str, str, Sequence[AgentMessage]], None]


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Be a request that is about to be sent; its lists still belong to the run.

    `stages` holds what each hook made of the messages, `executable` the names of the tools that
    can run, `options` what may be shown of the settings.
    """

    model: Model
    messages: Sequence[Message]
    stages: Sequence[tuple[str, Sequence[AgentMessage]]]
    thinking_level: ThinkingLevel
    options: Mapping[str, Any]
    executable: tuple[str, ...]
    transcript_length: int


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """Say what a run waits for right now.

    Args:
        kind: A "hook", a "listener" or a "tool"; "approval" for a person's word.
        name: The hook's or the tool's name; the event's wire string for a listener.
        by: The function, as well as it can be named.
        call_id: The tool call it is about, if any.
        since: Since when, in seconds on the monotonic clock; None for a plain listener, which
            began with the last record.
    """

    kind: Literal["hook", "listener", "tool", "approval"]
    name: str
    by: str = ""
    call_id: str = ""
    since: float | None = None


class _Waiting:
    """Be one wait while it lasts; a hook that raises meanwhile has decided something."""

    __slots__ = ("_awaited", "_key", "_notes")

    def __init__(self, notes: Notes, awaited: tuple[Any, ...]) -> None:
        self._notes = notes
        self._awaited = awaited
        self._key = 0

    def __enter__(self) -> None:
        self._key = next(self._notes.keys)
        self._notes.waits[self._key] = self._awaited

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._notes.waits.pop(self._key, None)
        if error is not None and self._awaited[0] != "tool" and isinstance(error, Exception):
            _kind, name, function, call_id, _since = self._awaited
            self._notes.raised(name, function, error, call_id)


class Notes:
    """Take what a run has to tell; what nobody asked for is dropped.

    Args:
        on_request: Gets each request right before its `model_request_start`.
        on_decision: Gets what a hook decided: the hook's name, what, by whom, about which call,
            and the messages it added.
    """

    __slots__ = ("keys", "listening", "on_decision", "on_request", "waits")

    def __init__(
        self,
        on_request: Callable[[SentRequest], None] | None = None,
        on_decision: OnDecision | None = None,
    ) -> None:
        self.on_request: Callable[[SentRequest], None] | None = on_request
        self.on_decision: OnDecision | None = on_decision
        self.keys: itertools.count[int] = itertools.count()
        self.waits: dict[int, tuple[Any, ...]] = {}
        #: The plain listener that is being called, and the event it is called with.
        self.listening: tuple[Any, AgentEvent] | None = None

    def waiting(self, kind: str, name: str, function: object, call_id: str = "") -> _Waiting:
        """Return a block within which something is awaited; `Awaited` says what of it."""
        return _Waiting(self, (kind, name, function, call_id, monotonic()))

    def decided(
        self,
        hook: str,
        what: str,
        by: object,
        call_id: str = "",
        messages: Sequence[AgentMessage] = (),
    ) -> None:
        """Tell that a hook decided something; `by` is the function, or a text that names it."""
        if self.on_decision is not None:
            self.on_decision(hook, what, name_of(by), call_id, messages)

    def raised(self, hook: str, function: object, error: Exception, call_id: str = "") -> None:
        """Tell that a hook or a listener raised."""
        where = raised_at(error) or type(error).__name__
        self.decided(hook, f"raised: {error_text(error)} [{where}]", function, call_id)

    def awaited(self) -> list[Awaited]:
        """Return what is awaited right now, the longest wait first; from any thread."""
        found = [
            Awaited(kind=kind, name=name, by=name_of(by), call_id=call_id, since=since)
            for kind, name, by, call_id, since in list(self.waits.values())
        ]
        listening = self.listening
        if listening is not None:
            listener, event = listening
            found.append(Awaited(kind="listener", name=event.type, by=name_of(listener)))
        return found


def name_of(function: object) -> str:
    """Name a function, a method or another callable, as well as it can be named."""
    if isinstance(function, str):
        return function
    while inner := getattr(function, "func", None) or getattr(function, "__wrapped__", None):
        function = inner
    named = function if hasattr(function, "__qualname__") else type(function)
    name = str(getattr(named, "__qualname__", named)).replace("<locals>.", "")
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    line = f", line {code.co_firstlineno}" if code is not None else ""
    module = str(getattr(named, "__module__", "") or "")
    within = "" if module in ("__main__", "builtins", "") else f"{module}."
    return f"{within}{name}{line}"


def replaced_by(update: msgspec.Struct) -> str:
    """Say what a hook's answer replaces or adds: its fields that are given."""
    given = [name for name in update.__struct_fields__ if getattr(update, name)]
    return f"replaced {', '.join(given) or 'nothing'}"


def calling_line() -> str:
    """Say which line of whose code has led here: the innermost that is not a carrier's."""
    # `inspect` is slow to import.
    frame = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in CARRIERS:
            name = frame.f_code.co_name
            within = "" if module in ("__main__", "builtins") else f"{module}."
            return f"line {frame.f_lineno} of {within}{name}"
        frame = frame.f_back
    return ""
