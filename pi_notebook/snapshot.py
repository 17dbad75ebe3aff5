"""From the events of a run to an immutable picture of it.

`RunReducer.apply` takes one event and costs O(1), a text delta included: it keeps the newest
update and reads the message from it only when a picture is taken. `RunReducer.snapshot` builds
that picture. Nothing here knows a display, a clock or a loop, so the same events always give the
same picture.

Texts in a picture are clean and without secrets: everything that is shown is made from pictures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pi_agent_kernel.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelRequestStart,
    ModelRetry,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnStart,
)
from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    UserMessage,
    text_of,
)
from pi_agent_kernel.models.overflow import is_context_overflow

from pi_notebook.picture import (
    Discarded,
    Note,
    Part,
    Progress,
    Retry,
    RunSnapshot,
    RunStatus,
    Text,
    Thinking,
    Tokens,
    ToolRun,
    ToolState,
)
from pi_notebook.safe_picture import safe_output, safe_part
from pi_notebook.shown_text import GrowingText, without_secrets
from pi_notebook.tool_view import NO_OUTPUT, Display, Image, Output, Table, Value

__all__ = [
    "Discarded",
    "Display",
    "Image",
    "Note",
    "Output",
    "Part",
    "Progress",
    "Retry",
    "RunReducer",
    "RunSnapshot",
    "RunStatus",
    "Table",
    "Text",
    "Thinking",
    "Tokens",
    "ToolRun",
    "ToolState",
    "Value",
]

#: What a reader is told of a failure, by the kind of its event.
_REASONS = {
    "rate_limit": "rate limit reached",
    "overloaded": "overloaded",
    "server": "server error",
    "connection": "connection failed",
    "timeout": "no answer in time",
    "incomplete": "reply cut off",
}


class _Call:
    """A tool call while it changes; parts hold it until a picture is taken."""

    __slots__ = ("_call", "_picture", "_take", "_taken")

    def __init__(self, call: ToolCall) -> None:
        self._call = call
        self._take: Callable[[], Output] | None = None
        #: The output as it was taken, whether more may come, and as it is shown.
        self._taken: tuple[Output, bool, Output] = (NO_OUTPUT, False, NO_OUTPUT)
        self._picture = ToolRun(name=call.name, arguments=call.arguments, state="announced")

    def start(self) -> None:
        self._picture = ToolRun(
            name=self._call.name, arguments=self._call.arguments, state="running"
        )

    def wait(self, approval: int) -> None:
        self._picture = replace(self._picture, state="waiting", approval=approval)

    def go_on(self) -> None:
        self._picture = replace(self._picture, state="running", approval=None)

    def report(self, partial: Any) -> None:
        self._picture = ToolRun(
            name=self._call.name,
            arguments=self._call.arguments,
            state="running",
            progress=Progress(text=_content_text(partial), fraction=_fraction(partial)),
        )

    def end(self, event: ToolExecutionEnd) -> None:
        content = event.result.content or ()
        self._picture = ToolRun(
            name=self._call.name,
            arguments=self._call.arguments,
            state="error" if event.is_error else "ok",
            result=_content_text(event.result),
            images=tuple(
                Image(data=block.data, mime_type=block.mime_type)
                for block in content
                if isinstance(block, ImageContent)
            ),
            duration_ms=event.duration_ms,
            raised=event.raised,
        )

    def hold(self, take: Callable[[], Output]) -> None:
        self._take = take

    def let_go(self) -> None:
        """Take the last picture of the output; nothing comes any more."""
        self.output()
        self._take = None

    def raw(self) -> ToolRun:
        return self._picture

    def output(self) -> Output:
        """Return the output as it may be shown."""
        if self._take is not None:
            key = (self._take(), self._picture.state == "running")
            if key != self._taken[:2]:
                self._taken = (*key, safe_output(key[0], growing=key[1]))
        return self._taken[2]


class RunReducer:
    """Fold the events of one run.

    Args:
        agent: Name of the agent, as the picture carries it.
        model: Name of its model, until a request names the one it used.
        prompts: How many user messages the prompt has; the cell shows them, so the run does not.
    """

    def __init__(self, agent: str, model: str = "", *, prompts: int = 1) -> None:
        self._agent = agent
        self._model = model
        self._status: RunStatus = "running"
        self._turns = 0
        self._parts: list[Text | Thinking | Note | Discarded | Retry | _Call] = []
        self._lock = threading.RLock()  # of what pictures have in common
        self._safe: dict[int, tuple[Part, Part]] = {}  # by position, as it is and as it is shown
        self._growing: dict[int, GrowingText] = {}  # by position in the open message
        self._response_at = 0  # where the parts of the last response begin
        self._calls: dict[str, _Call] = {}  # of the last response: ids may repeat in a later one
        self._open: AssistantMessage | None = None
        self._update: MessageUpdate | None = None
        self._tokens = Tokens()
        self._stop_reason: str | None = None
        self._error: str | None = None
        self._overflowed = False
        self._prompts = prompts
        self._remarks: list[str] = []

    @property
    def status(self) -> RunStatus:
        """How the run stands."""
        return self._status

    @property
    def error(self) -> str | None:
        """Why the run failed, if it did."""
        return self._error

    @property
    def overflowed(self) -> bool:
        """Whether the last request did not fit the model's context window."""
        return self._overflowed

    def apply(self, event: AgentEvent) -> None:
        """Take the next event of the run."""
        match event:
            case MessageUpdate():
                self._update = event
            case MessageStart(message=AssistantMessage() as message):
                self._open, self._update = message, None
                self._growing.clear()
                self._begin_attempt()
            case MessageEnd(message=message):
                self._close_message(message)
            case ToolExecutionStart(tool_call_id=identity):
                self._call(identity, event).start()
            case ToolExecutionUpdate(tool_call_id=identity):
                self._call(identity, event).report(event.partial_result)
            case ToolExecutionEnd(tool_call_id=identity):
                self._call(identity, event).end(event)
            case TurnStart():
                self._turns += 1
            case ModelRequestStart(model=model):
                self._model = model
                self._begin_attempt()
                self._response_at = len(self._parts)
            case ModelRetry():
                self._retry(event)
            case AgentStart():
                self._status = "running"  # again, where an answer had to be repaired
            case AgentEnd():
                reason = self._stop_reason
                self._status = reason if reason in ("aborted", "error") else "ok"
            case _:
                pass

    def ask(self, identity: str, approval: int) -> None:
        """Record that a call waits for a word."""
        if identity in self._calls:
            self._calls[identity].wait(approval)

    def answered(self, identity: str) -> None:
        """Record that a call no longer waits."""
        if identity in self._calls:
            self._calls[identity].go_on()

    def hold(self, identity: str, take: Callable[[], Output]) -> None:
        """Record where the picture of what a call prints and displays is taken."""
        if identity in self._calls:
            self._calls[identity].hold(take)

    def let_go(self) -> None:
        """Take the last picture of what the calls printed and displayed."""
        for part in self._parts:
            if isinstance(part, _Call):
                part.let_go()

    def remark(self, text: str) -> None:
        """Record what a reader has to know beside the run."""
        self._remarks.append(text)

    def fail(self, error: str) -> None:
        """Record that the run ended without its closing events, by an exception."""
        self._status = "error"
        self._error = error

    def abort(self) -> None:
        """Record that the run was given up without its closing events."""
        self._status = "aborted"

    def snapshot(self) -> RunSnapshot:
        """Take the picture of the run as it is now; on any thread."""
        with self._lock:
            return self._snapshot()

    def _snapshot(self) -> RunSnapshot:
        parts = [self._shown(place, part) for place, part in enumerate(self._parts)]
        message = self._open if self._update is None else self._update.message
        if message is not None:
            opened = (
                self._begun(place, _part(block)) for place, block in enumerate(message.content)
            )
            parts.extend(part for part in opened if part is not None)
        return RunSnapshot(
            agent=self._agent,
            model=without_secrets(self._model),
            status=self._status,
            turns=self._turns,
            parts=tuple(parts),
            tokens=self._tokens,
            stop_reason=self._stop_reason,
            error=None if self._error is None else without_secrets(self._error),
            remarks=tuple(map(without_secrets, self._remarks)),
        )

    def _shown(self, place: int, part: Text | Thinking | Note | Discarded | Retry | _Call) -> Part:
        """Return a part as it may be shown, made once."""
        raw = part.raw() if isinstance(part, _Call) else part
        known = self._safe.get(place)
        if known is None or known[0] is not raw:
            known = self._safe[place] = (raw, safe_part(raw))
        shown = known[1]
        if isinstance(part, _Call) and isinstance(shown, ToolRun):
            output = part.output()
            if output is not shown.output:
                shown = replace(shown, output=output)
                self._safe[place] = (raw, shown)
        return shown

    def _begun(self, place: int, part: Text | Thinking | _Call | None) -> Part | None:
        """Return a part that is being written as it may be shown."""
        if part is None:
            return None
        if isinstance(part, _Call):
            return safe_part(part.raw(), growing=True)
        text = self._growing.setdefault(place, GrowingText()).shown(part.text)
        return replace(part, text=text)

    def _close_message(self, message: AgentMessage) -> None:
        if isinstance(message, AssistantMessage):
            self._open = self._update = None
            self._growing.clear()
            self._calls = {}
            self._response_at = len(self._parts)
            for block in message.content:
                part = _part(block)
                if part is None:
                    continue
                self._parts.append(part)
                if isinstance(block, ToolCall) and isinstance(part, _Call):
                    self._calls[block.id] = part
            used, before = message.usage, self._tokens
            self._tokens = Tokens(
                input=before.input + used.input,
                output=before.output + used.output,
                cache_read=before.cache_read + used.cache_read,
                cache_write=before.cache_write + used.cache_write,
                total=before.total + used.total_tokens,
            )
            self._stop_reason, self._error = message.stop_reason, message.error_message
            self._overflowed = is_context_overflow(message)
        elif isinstance(message, UserMessage):
            if self._prompts > 0:
                self._prompts -= 1
            else:
                self._parts.append(Note(text=text_of(message.content)))

    def _retry(self, event: ModelRetry) -> None:
        """Mark what the failed request answered, and say that it is made again."""
        for position in range(self._response_at, len(self._parts)):
            part = self._parts[position]
            if isinstance(part, Text):
                self._parts[position] = Discarded(text=part.text)
            elif isinstance(part, _Call):  # it was not run; later parts keep their positions
                self._parts[position] = Discarded(text="")
        self._parts.append(
            Retry(
                reason=_REASONS.get(event.kind, "request failed"),
                attempt=event.attempt,
                max_attempts=event.max_attempts,
                wait_ms=event.delay_ms,
            )
        )

    def _begin_attempt(self) -> None:
        last = self._parts[-1] if self._parts else None
        if isinstance(last, Retry):
            self._parts[-1] = replace(last, wait_ms=None)

    def _call(
        self,
        identity: str,
        event: ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd,
    ) -> _Call:
        """Find a call by its id; one that no response named is shown all the same."""
        call = self._calls.get(identity)
        if call is None:
            arguments = {} if isinstance(event, ToolExecutionEnd) else event.args
            call = _Call(ToolCall(id=identity, name=event.tool_name, arguments=arguments))
            self._calls[identity] = call
            self._parts.append(call)
        return call


def _part(block: object) -> Text | Thinking | _Call | None:
    """Turn a block into a part; empty and redacted ones have nothing to show."""
    match block:
        case TextContent(text=text) if text:
            return Text(text=text)
        case ThinkingContent(thinking=text) if text:
            return Thinking(text=text)
        case ToolCall():
            return _Call(block)
        case _:
            return None


def _content_text(result: Any) -> str:
    """Join the text blocks of a tool result, which may have none."""
    return text_of(getattr(result, "content", None) or ())


def _fraction(partial: Any) -> float | None:
    """Read how far a tool is from the details that `ToolContext.progress` reports."""
    details = getattr(partial, "details", None)
    progress = details.get("progress") if isinstance(details, Mapping) else None
    if not isinstance(progress, Mapping):
        return None
    done, total = progress.get("done"), progress.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float) or not total > 0:
        return None
    return min(1.0, max(0.0, done / total))
