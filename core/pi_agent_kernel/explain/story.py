"""Read a log once, into what the rules ask for: runs, calls, requests, and the transcript."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, TypeVar

from pi_agent_kernel.events import (
    AgentEnd,
    AgentIdle,
    AgentStart,
    MessageEnd,
    ModelRequestStart,
    ModelResponse,
    ModelRetry,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnStart,
)
from pi_agent_kernel.log import EventLog, HostCall, LogRecord
from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from pi_agent_kernel.request_log import LoggedRequest
from pi_agent_kernel.transcript import Replay

__all__ = ["Call", "Entry", "Run", "Seen", "Source", "Story", "decided_by", "message_text", "short"]


T = TypeVar("T")


@dataclass(frozen=True)
class Seen(Generic[T]):
    """Be one record of a known kind: its number, its time, and what it holds."""

    seq: int
    time: float
    event: T


@dataclass
class Call:
    """Follow one tool call from the model's message to its result."""

    call: ToolCall
    message: AssistantMessage
    #: Record of the assistant's message_end.
    asked: int
    run: Run | None
    request: LoggedRequest | None
    start: int = 0
    end: int = 0
    ended: ToolExecutionEnd | None = None
    result: int = 0
    #: What hooks decided about it.
    decisions: list[Seen[HostCall]] = field(default_factory=list[Seen[HostCall]])

    @property
    def text(self) -> str:
        """What its result says."""
        return "" if self.ended is None else text_of(self.ended.result.content or ())


@dataclass
class Run:
    """Hold the records of one run that say how it went."""

    start: int
    before: int = 0
    end: int = 0
    idle: int = 0
    responses: list[Seen[ModelResponse]] = field(default_factory=list[Seen[ModelResponse]])
    turns: list[int] = field(default_factory=list[int])
    aborts: list[Seen[HostCall]] = field(default_factory=list[Seen[HostCall]])
    retries: list[Seen[ModelRetry]] = field(default_factory=list[Seen[ModelRetry]])
    decisions: list[Seen[HostCall]] = field(default_factory=list[Seen[HostCall]])
    failure: Seen[AssistantMessage] | None = None

    def holds(self, seq: int) -> bool:
        """Whether a record is one of this run's."""
        return self.start <= seq and (not self.idle or seq <= self.idle)


@dataclass(frozen=True)
class Source:
    """Say who supplied a message: which call of the host, or which hook."""

    seq: int
    name: str
    by: str


@dataclass(frozen=True)
class Entry:
    """Be one message of the transcript, and the record that put it there; 0 for the agent's making.

    A message that the log no longer holds is None.
    """

    message: AgentMessage | None
    seq: int
    source: Source | None = None


class Story:
    """Hold a log as the rules read it."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.records: list[LogRecord] = list(log.steps())
        self.requests: list[LoggedRequest] = log.requests()
        self.calls: list[Call] = []
        self.runs: list[Run] = []
        self.hosts: list[Seen[HostCall]] = []
        #: Host calls that assigned the whole of state.messages.
        self.assigned: list[Seen[HostCall]] = []
        self.transcript: list[Entry] = [Entry(message, 0) for message in log.first_messages]
        #: Executable tools by the record that set them; 0 for the agent's making.
        self.loadouts: list[tuple[int, tuple[str, ...]]] = [(0, log.first_tools)]
        self.sources: dict[int, list[Source]] = {}
        #: Every message that entered the transcript, by its message_end.
        self.entered: dict[int, int] = {}
        self._by_id: dict[str, list[Call]] = {}
        self._request = -1
        for record in self.records:
            self._read(record)

    # --------------------------------------------------------------------------- reading

    def _read(self, record: LogRecord) -> None:
        event, seq = record.event, record.seq
        run = self.runs[-1] if self.runs else None
        if run is not None and run.idle:
            run = None
        match event:
            case HostCall():
                self._read_host(record, event, run)
            case AgentStart():
                before = self.hosts[-1].seq if self.hosts else 0
                self.runs.append(Run(seq, before if before == seq - 1 else 0))
            case MessageEnd():
                self._read_message(seq, event.message, record, run)
            case ModelRequestStart():
                self._request += 1
            case ToolExecutionStart():
                self._mark(event.tool_call_id, event.tool_name, "start", seq)
            case ToolExecutionEnd():
                call = self._mark(event.tool_call_id, event.tool_name, "end", seq)
                if call is not None:
                    call.ended = event
            case _:
                if run is not None:
                    self._read_run(record, run)

    def _read_run(self, record: LogRecord, run: Run) -> None:
        match record.event:
            case ModelResponse() as response:
                run.responses.append(Seen(record.seq, record.time, response))
            case ModelRetry() as retry:
                run.retries.append(Seen(record.seq, record.time, retry))
            case TurnStart():
                run.turns.append(record.seq)
            case AgentEnd():
                run.end = record.seq
            case AgentIdle():
                run.idle = record.seq
            case _:
                pass

    def _read_host(self, record: LogRecord, event: HostCall, run: Run | None) -> None:
        seen = Seen(record.seq, record.time, event)
        self.hosts.append(seen)
        for change in record.changes:
            if change.field == "tools":
                self.loadouts.append((record.seq, tuple(change.after)))
            if change.field == "messages":
                self._edit(seen, change.before, change.after)
        source = Source(record.seq, event.name, event.by)
        if event.name != "state":
            for message in event.messages:
                self.sources.setdefault(id(message), []).append(source)
        if event.call_id:
            call = self._latest(event.call_id)
            if call is not None:
                call.decisions.append(seen)
        if run is not None:
            if event.name == "abort":
                run.aborts.append(seen)
            else:
                run.decisions.append(seen)

    def _edit(self, seen: Seen[HostCall], before: int, after: int) -> None:
        source = Source(seen.seq, "state.messages", seen.event.by)
        given = list(seen.event.messages)
        if len(given) != after:
            self._pad(before)
            self.transcript += [Entry(message, seen.seq, source) for message in given]
            return
        self.assigned.append(seen)
        known = {id(entry.message): entry for entry in self.transcript}
        self.transcript = []
        for message in given:
            entry = known.pop(id(message), None)
            self.transcript.append(entry or Entry(message, seen.seq, source))

    def _pad(self, count: int) -> None:
        missing = count - len(self.transcript)
        self.transcript[:0] = [Entry(None, 0)] * missing

    def _read_message(
        self, seq: int, message: AgentMessage, record: LogRecord, run: Run | None
    ) -> None:
        for change in record.changes:
            if change.field == "messages":
                self._pad(change.before)
        supplied = [s for s in self.sources.get(id(message), ()) if s.seq < seq]
        self.transcript.append(Entry(message, seq, supplied[-1] if supplied else None))
        self.entered[id(message)] = seq
        if isinstance(message, AssistantMessage):
            request = self.requests[self._request] if self._in_requests else None
            for one in message.tool_calls:
                call = Call(one, message, seq, run, request)
                self.calls.append(call)
                self._by_id.setdefault(one.id, []).append(call)
            if run is not None:
                failed = message.stop_reason in ("error", "aborted")
                run.failure = Seen(seq, record.time, message) if failed else None
        elif isinstance(message, ToolResultMessage):
            self._mark(message.tool_call_id, message.tool_name, "result", seq)

    @property
    def _in_requests(self) -> bool:
        return 0 <= self._request < len(self.requests)

    def _mark(self, call_id: str, name: str, part: str, seq: int) -> Call | None:
        """Note a step of a call; of several with one id and name, of the first that lacks it."""
        for call in self._by_id.get(call_id, ()):
            taken_up = part == "start" or call.start
            if call.message.stop_reason in ("error", "aborted"):
                continue  # calls of such a response are never taken up
            if call.call.name == name and taken_up and not getattr(call, part):
                setattr(call, part, seq)
                return call
        return None

    def _latest(self, call_id: str) -> Call | None:
        """Return the call of this id that is being handled."""
        fits = [call for call in self._by_id.get(call_id, ()) if call.start]
        still = [call for call in fits if not call.end]
        return (still or fits[-1:] or [None])[0]

    # --------------------------------------------------------------------------- asking

    @property
    def run(self) -> Run | None:
        """The last run."""
        return self.runs[-1] if self.runs else None

    @property
    def active(self) -> Run | None:
        """The run that goes on, if any."""
        run = self.run
        return run if run is not None and not run.idle else None

    @property
    def executable(self) -> tuple[str, ...]:
        """The tools of the next run."""
        return self.loadouts[-1][1]

    def requests_of(self, run: Run) -> list[LoggedRequest]:
        """Return the requests of one run."""
        return [request for request in self.requests if run.holds(request.seq)]

    def declared(self, request: LoggedRequest) -> list[str]:
        """Return the names of the tools that a request declared."""
        return [tool.name for tool in request.tools]

    def tool_names(self) -> set[str]:
        """Return every name of a tool the log knows, called ones included."""
        names = {name for _seq, loadout in self.loadouts for name in loadout}
        names.update(name for request in self.requests for name in request.executable)
        for request in self.requests[-1:]:
            names.update(self.declared(request))
        names.update(call.call.name for call in self.calls)
        for entry in self.transcript:
            if isinstance(entry.message, SystemMessage):
                names.update(tool.name for tool in entry.message.tools_added or ())
                names.update(tool.name for tool in entry.message.tools_removed or ())
        return names

    @property
    def run_ended(self) -> bool:
        """Whether the last run has announced its end."""
        return self.run is not None and bool(self.run.end)

    @property
    def last_seq(self) -> int:
        """The number of the last record that is no update."""
        return self.records[-1].seq if self.records else 0

    def call_of(self, call_id: str) -> Call | None:
        """Return the call of this id that is being handled, else the last."""
        return self._latest(call_id)

    def seq_at(self, time: float | None) -> int:
        """Return the last record made until then."""
        if time is None:
            return self.last_seq
        return next((r.seq for r in reversed(self.records) if r.time <= time), 0)

    def event_before(self, kind: str) -> int:
        """Return the last record of a type, 0 for none; updates of messages are the last record."""
        if kind == "message_update":
            return self.log.last_sign()[0]
        return next((r.seq for r in reversed(self.records) if r.type == kind), 0)

    def seqs_of(self, messages: Sequence[Any]) -> list[int]:
        """Return the records that put messages into the transcript."""
        wanted = {id(message) for message in messages}
        return [e.seq for e in self.transcript if e.seq and id(e.message) in wanted]

    def time_of(self, seq: int) -> float:
        """Return when a record was made."""
        return next((record.time for record in self.records if record.seq == seq), monotonic())

    def since(self, time: float) -> str:
        """Say how long ago a time was."""
        seconds = max(0.0, monotonic() - time)
        return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

    def dropping_stage(self, request: LoggedRequest, holds: Callable[[Sequence[Any]], bool]) -> str:
        """Name the hook after which the messages of a request no longer hold something."""
        for name, messages in request.stages:
            if not holds(messages):
                return name
        return "convert_to_llm"

    def declaring_stage(self, request: LoggedRequest, name: str) -> str | None:
        """Name the hook that declared a tool in one request; None if the transcript does."""
        written = Replay(e.message for e in self.transcript if e.message and e.seq < request.seq)
        if name in written.tools:
            return None
        stages = request.stages
        return next((hook for hook, sent in stages if name in Replay(sent).tools), None)

    def queued(self) -> list[Seen[HostCall]]:
        """Return the calls that queued a message which nothing has taken or dropped since."""
        waiting: list[Seen[HostCall]] = []
        for record in self.hosts:
            call = record.event
            if call.name in ("steer", "follow_up"):
                waiting.append(record)
            elif call.name in ("clear_steering_queue", "clear_follow_up_queue", "reset"):
                waiting = [one for one in waiting if not _clears(call.name, one)]
        return [record for record in waiting if not self.delivered(record)]

    def delivered(self, queued: Seen[HostCall]) -> bool:
        """Whether a message that was queued has entered the transcript."""
        entered = (self.entered.get(id(message), 0) for message in queued.event.messages)
        return any(seq > queued.seq for seq in entered)

    def hosts_named(self, *names: str) -> Iterator[Seen[HostCall]]:
        """Iterate the host's calls of some names."""
        return (host for host in self.hosts if host.event.name in names)


def _clears(name: str, queued: Seen[HostCall]) -> bool:
    is_steer = queued.event.name == "steer"
    return name == "reset" or is_steer == (name == "clear_steering_queue")


def decided_by(decision: HostCall) -> str:
    """Name who decided: what it says of itself, such as a policy, else the hook's function."""
    named = decision.by
    is_function = ", line " in named or ("." in named and " " not in named)
    return f"hook {decision.name} ({named})" if is_function or not named else named


def short(text: str, limit: int = 80) -> str:
    """Return a text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def message_text(message: Any) -> str:
    """Return the text of a message of any role."""
    return text_of(message.content) if isinstance(message, _WITH_TEXT) else ""


_WITH_TEXT = (UserMessage, SystemMessage, AssistantMessage, ToolResultMessage)
