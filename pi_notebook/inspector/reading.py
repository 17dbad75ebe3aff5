"""An agent's log as the inspector reads it: once, and then only what is new.

Nothing is written down beside the log: all that is kept here follows from its records, and what
the log drops is dropped here.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pi_agent_kernel.events import (
    AgentEnd,
    AgentStart,
    MessageEnd,
    ModelRequestStart,
    ModelResponse,
    ModelRetry,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from pi_agent_kernel.log import HostCall, LogRecord, UpdateSpan
from pi_agent_kernel.messages import SystemMessage

if TYPE_CHECKING:
    from pi_agent_kernel.log import EventLog

__all__ = ["Reading", "Run", "Span", "Step"]

Step = LogRecord | UpdateSpan
Outcome = Literal["open", "ok", "bad"]


@dataclass(slots=True)
class Span:
    """Be a turn, a request or a tool call from its first event to its last."""

    kind: Literal["turn", "request", "tool"]
    name: str
    seq: int
    time: float
    last: int | None = None
    until: float | None = None
    outcome: Outcome = "open"


@dataclass(slots=True)
class Run:
    """Be one run: from agent_start to agent_end."""

    seq: int
    time: float
    spans: list[Span] = field(default_factory=list[Span])
    last: int | None = None
    until: float | None = None


class Reading:
    """Read a log.

    Args:
        log: The log of an agent.
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log
        #: The number of the last record read.
        self.seq = log.first_seq - 1
        #: Every record, updates that follow each other as one.
        self.steps: list[Step] = []
        self.runs: list[Run] = []
        #: The records of the requests.
        self.requests: list[int] = []
        #: Which record last changed each field of the state.
        self.writers: dict[str, Step] = {}
        #: Which record may last have changed the replayed prompt.
        self.prompt_writers: list[LogRecord] = []
        #: Names of the tools by call id, as their start named them.
        self.tool_names: dict[str, str] = {}
        self._appended: dict[int, int] = {}
        self._open: dict[str, Span] = {}
        self.update()

    def update(self) -> None:
        """Read what is new."""
        self._forget()
        for step in self.log.folded(self.seq + 1):
            self._take(step)
            self.seq = step.last if isinstance(step, UpdateSpan) else step.seq

    def place(self, seq: int) -> int:
        """Return which step has a record.

        Raises:
            KeyError: The log does not hold it.
        """
        if not self.steps or not self.log.first_seq <= seq <= self.seq:
            raise KeyError(f"The log has no record {seq}.")
        place = bisect_left(self.steps, seq, key=_last)
        return min(place, len(self.steps) - 1)

    def appended_by(self, message: object) -> int | None:
        """Return the number of the message_end that appended a message; None if the host did."""
        return self._appended.get(id(message))

    def run_of(self, seq: int | None) -> Run | None:
        """Return the run that a record is part of; by default, and after all runs, the last."""
        found = None
        for run in self.runs:
            if found is not None and seq is not None and run.seq > seq:
                break
            found = run
        return found

    # ------------------------------------------------------------------------------ reading

    def _forget(self) -> None:
        """Drop what the log has dropped."""
        first = self.log.first_seq
        self.seq = max(self.seq, first - 1)
        if self.steps and _last(self.steps[0]) < first:
            cut = bisect_left(self.steps, first, key=_last)
            for step in self.steps[:cut]:
                if isinstance(step, LogRecord) and isinstance(step.event, MessageEnd):
                    self._appended.pop(id(step.event.message), None)
            del self.steps[:cut]
            del self.requests[: bisect_left(self.requests, first)]
            self.runs = [run for run in self.runs if (run.last or self.seq + 1) >= first]

    def _take(self, step: Step) -> None:
        if isinstance(step, UpdateSpan):
            self.writers["streaming_message"] = step
            before = self.steps[-1] if self.steps else None
            if isinstance(before, UpdateSpan) and before.last == step.seq - 1:
                step = UpdateSpan(
                    seq=before.seq, last=step.last, time=before.time, until=step.until
                )
                self.steps[-1] = self.writers["streaming_message"] = step
                return
            self.steps.append(step)
            return
        self.steps.append(step)
        for changed in step.flat[::3]:
            self.writers[changed] = step
        self._take_event(step)

    def _take_event(self, step: LogRecord) -> None:
        match step.event:
            case MessageEnd(message=message):
                self._appended[id(message)] = step.seq
                if isinstance(message, SystemMessage):
                    self.prompt_writers.append(step)
            case HostCall():
                if "messages" in step.flat[::3]:
                    self.prompt_writers.append(step)
            case AgentStart():
                self.runs.append(Run(step.seq, step.time))
                self._open.clear()
            case AgentEnd():
                if self.runs:
                    self.runs[-1].last, self.runs[-1].until = step.seq, step.time
                for name in list(self._open):
                    self._close(name, step, "bad")
            case TurnStart():
                self._begin("turn", "turn", "turn", step)
            case TurnEnd(message=message):
                self._close("turn", step, "bad" if message.error_message else "ok")
            case ModelRequestStart(model=model):
                self.requests.append(step.seq)
                self._begin("request", "request", model, step)
            case ModelResponse(stop_reason=reason):
                failed = reason in ("error", "aborted")
                self._close("request", step, "bad" if failed else "ok")
            case ModelRetry():
                self._close("request", step, "bad")
            case ToolExecutionStart(tool_call_id=call, tool_name=name):
                self.tool_names[call] = name
                self._begin(f"tool {call}", "tool", name, step)
            case ToolExecutionEnd(tool_call_id=call, tool_name=name, is_error=failed):
                self.tool_names[call] = name
                self._close(f"tool {call}", step, "bad" if failed else "ok")
            case _:
                pass

    def _begin(
        self, key: str, kind: Literal["turn", "request", "tool"], name: str, step: LogRecord
    ) -> None:
        if not self.runs:  # its start is no longer kept
            self.runs.append(Run(step.seq, step.time))
        span = self._open[key] = Span(kind, name, step.seq, step.time)
        self.runs[-1].spans.append(span)

    def _close(self, key: str, step: LogRecord, outcome: Outcome) -> None:
        span = self._open.pop(key, None)
        if span is not None:
            span.last, span.until, span.outcome = step.seq, step.time, outcome


def _last(step: Step) -> int:
    return step.last if isinstance(step, UpdateSpan) else step.seq
