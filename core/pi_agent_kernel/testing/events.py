"""What holds for the events of every run.

Source: EV-02, EV-03, EV-08, S4-01 to S4-05, FL-03, FL-04, A24.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from pi_agent_kernel.events import (
    LIFECYCLE_EVENTS,
    AgentEnd,
    AgentEvent,
    AgentIdle,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelRequestStart,
    ModelResponse,
    ModelRetry,
    ToolBatchEnd,
    ToolBatchStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from pi_agent_kernel.messages import AgentMessage, AssistantMessage, ToolCall, ToolResultMessage
from pi_agent_kernel.testing.transcripts import answer_call, calls_to_run, fail

__all__ = ["check_events"]


def check_events(events: Iterable[AgentEvent]) -> None:
    """Check the events of whole runs, from the first run's start to the last one's end.

    Every start has exactly one end, in order; every call one result, in order; nothing follows
    `agent_end` but one `agent_idle`. The one permitted irregularity is the `turn_end` of a
    failure between turns, which has no start (FL-04). The rules about lifecycle events apply if
    there are any.

    Raises:
        AssertionError: The rule that is broken, and the index of the event.

    Example:
        >>> from pi_agent_kernel import AgentEnd, AgentStart
        >>> check_events([AgentStart(), AgentEnd(messages=[])])
        >>> check_events([AgentStart()])
        Traceback (most recent call last):
        AssertionError: event 1 (the end): the run has no agent_end (A24)

    Source: EV-02, EV-03, EV-08, LP-11, S4-01 to S4-05, FL-03, FL-04, A24.
    """
    events = list(events)
    rules = _EventRules(lifecycle=any(type(event) in LIFECYCLE_EVENTS for event in events))
    for index, event in enumerate(events):
        kind = getattr(event, "type", type(event).__name__)
        rules.take(f"event {index} ({kind})", event)
    rules.finish(f"event {len(events)} (the end)")


class _EventRules:
    """Follow one agent's events and know what may come next."""

    def __init__(self, *, lifecycle: bool) -> None:
        self._lifecycle = lifecycle
        self._running = False
        self._idle_due = False
        self._begin()

    def _begin(self) -> None:
        self._turn_open = False
        self._failed: AssistantMessage | None = None  # of a turn_end without a start
        self._message: AgentMessage | None = None
        self._messages: list[AgentMessage] = []
        self._results: list[ToolResultMessage] = []
        self._answer: AssistantMessage | None = None
        self._to_start: deque[ToolCall] = deque()
        self._to_answer: deque[ToolCall] = deque()
        self._executing: Counter[str] = Counter()
        self._ended: list[ToolExecutionEnd] = []
        self._batch: int | None = None
        self._requesting = False
        self._attempt = 1  # of the request that is open, or is made next
        self._previous: AgentEvent | None = None

    def take(self, place: str, event: AgentEvent) -> None:
        """Check one event and go on from it."""
        if isinstance(event, AgentStart):
            self._require(not self._running, place, "the run before has not ended (EV-02)")
            self._require(not self._idle_due, place, "the run before had no agent_idle (S4-05)")
            self._begin()
            self._running = True
        elif isinstance(event, AgentIdle):
            self._require(self._idle_due, place, "agent_idle comes once, after agent_end (S4-05)")
            self._idle_due = False
        else:
            self._require(self._running, place, "nothing is emitted outside a run (LP-11)")
            if self._failed is not None and not isinstance(event, AgentEnd):
                fail(place, "only agent_end may follow a turn_end without a start (FL-04)")
            self._take_inside(place, event)
        self._previous = event

    def finish(self, place: str) -> None:
        """Check that nothing is open."""
        self._require(not self._running, place, "the run has no agent_end (A24)")
        self._require(not self._idle_due, place, "the run had no agent_idle (S4-05)")

    def _take_inside(self, place: str, event: AgentEvent) -> None:
        match event:
            case TurnStart():
                self._require(not self._turn_open, place, "the turn before has not ended (A24)")
                self._turn_open, self._results, self._attempt = True, [], 1
            case TurnEnd():
                self._end_turn(place, event)
            case MessageStart() | MessageUpdate() | MessageEnd():
                self._take_message(place, event)
            case ToolExecutionStart() | ToolExecutionUpdate() | ToolExecutionEnd():
                self._take_call(place, event)
            case ToolBatchStart():
                self._require(self._batch is None, place, "the batch before has not ended (A24)")
                right = event.count == len(self._to_start)
                self._require(right, place, "the count is that of the calls (S4-04)")
                self._batch = event.count
            case ToolBatchEnd():
                self._require(self._batch == event.count, place, "the batch was not opened (S4-04)")
                self._require_no_calls(place)
                self._batch = None
            case ModelRequestStart():
                self._require(not self._requesting, place, "the request before is open (S4-03)")
                right = event.attempt == self._attempt
                self._require(right, place, "attempts count from 1 in each turn (S4-02)")
                self._requesting = True
            case ModelRetry():
                self._take_retry(place, event)
            case ModelResponse():
                self._require(self._requesting, place, "no request is open (S4-03)")
                ended = self._previous
                follows = isinstance(ended, MessageEnd) and ended.message == event.message
                self._require(follows, place, "it comes right after its message_end (S4-03)")
                self._requesting = False
            case AgentEnd():
                self._end_run(place, event)
            case _:
                fail(place, f"this is no agent event: {event!r}")

    def _take_retry(self, place: str, event: ModelRetry) -> None:
        before = self._previous
        failed = isinstance(before, ModelResponse) and before.stop_reason == "error"
        inside = self._requesting and self._message is None
        self._require(failed or inside, place, "only a failed request is made again (MD-22)")
        right = event.attempt == self._attempt + 1 <= event.max_attempts
        self._require(right, place, "attempts count up to max_attempts (MD-22)")
        self._attempt = event.attempt

    def _take_message(self, place: str, event: MessageStart | MessageUpdate | MessageEnd) -> None:
        match event:
            case MessageStart():
                self._require(self._message is None, place, "messages do not overlap (EV-08)")
                self._message = event.message
                if isinstance(event.message, ToolResultMessage):
                    self._check_result(place, event.message)
            case MessageUpdate():
                if not isinstance(self._message, AssistantMessage):
                    fail(place, "updates come only within an assistant message (EV-08)")
            case MessageEnd():
                self._end_message(place, event.message)

    def _take_call(
        self, place: str, event: ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd
    ) -> None:
        match event:
            case ToolExecutionStart():
                call = self._to_start.popleft() if self._to_start else None
                if call is None or (call.id, call.name) != (event.tool_call_id, event.tool_name):
                    fail(place, "calls start once each, in their order (TL-09)")
                self._executing[call.id] += 1
            case ToolExecutionUpdate():
                running = self._executing[event.tool_call_id] > 0
                self._require(running, place, "updates come only between start and end (TL-17)")
            case ToolExecutionEnd():
                running = self._executing[event.tool_call_id] > 0
                self._require(running, place, "every call ends once, after its start (A24)")
                self._executing[event.tool_call_id] -= 1
                self._ended.append(event)

    def _end_turn(self, place: str, event: TurnEnd) -> None:
        self._require_nothing_open(place)
        right = event.message == self._answer
        self._require(right, place, "it shows the last assistant message (LP-06)")
        synthetic = event.message.stop_reason in ("error", "aborted")
        if not self._turn_open:
            self._require(synthetic, place, "only a failure ends a turn without a start (FL-04)")
            self._failed = event.message
        elif not synthetic:
            right = list(event.tool_results) == self._results
            self._require(right, place, "tool_results are the turn's, in order (TL-10)")
        self._turn_open = False

    def _end_message(self, place: str, message: AgentMessage) -> None:
        opened, self._message = self._message, None
        if opened is None or opened.role != message.role:
            fail(place, "every message_end has its message_start (EV-08)")
        if not isinstance(message, AssistantMessage):
            self._require(opened == message, place, "start and end show the same message (EV-08)")
        self._messages.append(message)
        if isinstance(message, ToolResultMessage):
            answer_call(place, self._to_answer, message)
            self._results.append(message)
        elif self._to_answer:
            fail(place, f"tool call {self._to_answer[0].id!r} has no result before it (A04)")
        elif isinstance(message, AssistantMessage):
            self._answer = message
            calls = calls_to_run(message)
            self._to_start, self._to_answer, self._ended = deque(calls), deque(calls), []

    def _check_result(self, place: str, message: ToolResultMessage) -> None:
        ends = [end for end in self._ended if end.tool_call_id == message.tool_call_id]
        for end in ends:  # several if the model gave two calls one id (E08)
            said = (end.is_error, list(end.result.content or ()))
            if said == (message.is_error, list(message.content)):
                self._ended.remove(end)
                return
        self._require(not ends, place, "event and message agree (DEVIATIONS 8)")
        fail(place, "a result comes after the end of its call (EV-03)")

    def _end_run(self, place: str, event: AgentEnd) -> None:
        self._require_nothing_open(place)
        self._require(not self._turn_open, place, "the turn has not ended (A24)")
        messages = list(event.messages)
        of_failure = len(messages) == 1 and messages == self._messages[-1:]
        of_failure = of_failure and self._last_failed()
        right = messages == self._messages or of_failure
        self._require(right, place, "it lists the messages of the run (LP-11, FL-03)")
        self._running, self._idle_due = False, self._lifecycle

    def _last_failed(self) -> bool:
        last = self._messages[-1]
        return isinstance(last, AssistantMessage) and last.stop_reason in ("error", "aborted")

    def _require_nothing_open(self, place: str) -> None:
        self._require(self._message is None, place, "a message has not ended (A24)")
        self._require(self._batch is None, place, "a tool batch has not ended (A24)")
        self._require(not self._requesting, place, "a request has no model_response (S4-03)")
        self._require_no_calls(place)

    def _require_no_calls(self, place: str) -> None:
        self._require(not +self._executing, place, "a tool call has not ended (A24)")
        self._require(not self._to_start, place, "a tool call was never announced (A24)")
        self._require(not self._to_answer, place, "a tool call has no result (A04)")

    @staticmethod
    def _require(holds: bool, place: str, rule: str) -> None:  # noqa: FBT001 - read at each use
        if not holds:
            fail(place, rule)
