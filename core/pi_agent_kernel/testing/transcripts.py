"""What holds for every transcript, and for every request made from one.

Source: known-failures.md, recurring cause 1 and "Strict faux".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, NoReturn, cast

from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    CustomMessageLike,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.request import Model, StreamEvents, StreamFn, StreamOptions, TranscriptContext

__all__ = [
    "StrictFaux",
    "answered_calls",
    "check_request",
    "check_transcript",
    "strict_faux",
]

#: What a model understands; every other role is the program's own.
_ROLES = ("system", "user", "assistant", "toolResult")


def check_transcript(messages: Iterable[AgentMessage]) -> None:
    """Check what holds for every transcript of an idle agent.

    Every tool call of an assistant message that did not fail has exactly one result, directly
    after the message and in the order of the calls; there is no other result.

    Raises:
        AssertionError: The rule that is broken, and the index of the message.

    Example:
        >>> from pi_agent_kernel import AssistantMessage, ToolCall, UserMessage
        >>> call = ToolCall(id="c1", name="add", arguments={"a": 2, "b": 40})
        >>> check_transcript(
        ...     [
        ...         UserMessage(content="Add 2 and 40."),
        ...         AssistantMessage(content=[call], stop_reason="toolUse"),
        ...     ]
        ... )
        Traceback (most recent call last):
        AssertionError: message 1 (the last): tool call 'c1' has no result (A04)

    Source: A04, AB-03, TL-10, E09, DEVIATIONS 2.
    """
    _check_messages("message", messages, between=())


def check_request(messages: Iterable[AgentMessage], *, one_system_message: bool = False) -> None:
    """Check what a strict provider demands of one request.

    As `check_transcript`, and: there is something to answer, there are only the four standard
    roles, no user or assistant message is empty, and a system message with a prompt is preceded
    by one at the very start. System messages may stand between calls and results. Failed and
    aborted assistant messages are left out, as providers do (TR-14).

    Args:
        messages: What the stream function gets as `context.messages`.
        one_system_message: Refuse all system messages but one at the start, for a model that
            takes no other and a `convert_to_llm` that sees to it.

    Raises:
        AssertionError: The rule that is broken, and the index of the message.

    Example:
        >>> from pi_agent_kernel import SystemMessage, UserMessage
        >>> check_request([SystemMessage(content="Be brief."), UserMessage(content="")])
        Traceback (most recent call last):
        AssertionError: message 1 (user): no message is empty (E13)

    Source: known-failures.md, "Strict faux"; D15, E13, MS-05, TR-13.
    """
    messages = list(messages)
    _check_messages("message", messages, between=(SystemMessage,))
    if all(isinstance(message, SystemMessage) for message in messages):
        fail(f"message {len(messages)} (the end)", "there is nothing to answer (LP-14)")
    for index, message in enumerate(messages):
        place = f"message {index} ({message.role})"
        match message:
            case SystemMessage():
                if one_system_message and index:
                    fail(place, "the model takes one system message, at the start (TR-13)")
                if message.text and not isinstance(messages[0], SystemMessage):
                    fail(place, "the request has a prompt but does not start with it (D15)")
            case AssistantMessage(stop_reason="error" | "aborted"):
                pass
            case UserMessage() | AssistantMessage():
                if not _has_content(message.content):
                    fail(place, "no message is empty (E13)")
            case _ if message.role not in _ROLES:
                fail(place, "a role of your own reaches no model: map it in convert_to_llm (MS-05)")
            case _:
                pass


def answered_calls(
    messages: Iterable[AgentMessage],
) -> list[tuple[ToolCall, ToolResultMessage]]:
    """Return every tool call of a transcript with its result, in order.

    Args:
        messages: A transcript, such as `agent.state.messages`.

    Raises:
        AssertionError: The transcript breaks a rule of `check_transcript`.

    Example:
        >>> from pi_agent_kernel import Agent, tool
        >>> from pi_agent_kernel.testing import call, scripted_model
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     return a + b
        >>> agent = Agent(stream_fn=scripted_model(call("add", a=2, b=40), "42."), tools=[add])
        >>> agent.prompt_sync("Add 2 and 40.")
        >>> [(call.name, result.text) for call, result in answered_calls(agent.state.messages)]
        [('add', '42')]
    """
    messages = list(messages)
    check_transcript(messages)
    calls = [
        call
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in calls_to_run(message)
    ]
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    return list(zip(calls, results, strict=True))


def _check_messages(
    what: str, messages: Iterable[AgentMessage], between: tuple[type[Any], ...]
) -> None:
    due: deque[ToolCall] = deque()
    index = -1
    for index, message in enumerate(messages):
        role = getattr(message, "role", type(message).__name__)
        place = f"{what} {index} ({role})"
        if not isinstance(cast("object", message), CustomMessageLike):
            fail(place, f"every message has a role and a timestamp, not {message!r} (CO-13)")
        if isinstance(message, ToolResultMessage):
            answer_call(place, due, message)
            continue
        if due and not isinstance(message, between):
            fail(place, f"tool call {due[0].id!r} has no result before it (A04)")
        if isinstance(message, AssistantMessage):
            if message.stop_reason == "pending":
                fail(place, "a partial message never enters the transcript (MS-04)")
            due = deque(calls_to_run(message))
    if due:
        fail(f"{what} {index} (the last)", f"tool call {due[0].id!r} has no result (A04)")


def answer_call(place: str, due: deque[ToolCall], result: ToolResultMessage) -> None:
    """Match a result with the call whose turn it is."""
    if not due:
        fail(place, f"result {result.tool_call_id!r} answers no open tool call (A04)")
    call = due.popleft()
    if (result.tool_call_id, result.tool_name) != (call.id, call.name):
        fail(
            place,
            f"result {result.tool_call_id!r} of {result.tool_name!r} stands where the one of "
            f"{call.id!r} of {call.name!r} is due (TL-10)",
        )


def calls_to_run(message: AssistantMessage) -> tuple[ToolCall, ...]:
    """Return the calls that need a result: none of a failed message (E09)."""
    return () if message.stop_reason in ("error", "aborted") else message.tool_calls


def _has_content(content: str | Sequence[object]) -> bool:
    if isinstance(content, str):
        return bool(content)
    return any(not isinstance(block, TextContent) or block.text for block in content)


def fail(place: str, rule: str) -> NoReturn:
    """Complain: the rule, after the place where it is broken."""
    raise AssertionError(f"{place}: {rule}")


class StrictFaux:
    """Be a stream function that refuses requests a strict provider refuses.

    A refused request raises inside the run, so the run ends with the complaint as its error;
    `refusals` keeps it for the test. `strict_faux` makes one.
    """

    def __init__(self, stream_fn: StreamFn, *, one_system_message: bool = False) -> None:
        self._stream_fn = stream_fn
        self._one_system_message = one_system_message
        self._had_head = False
        #: The requests so far, refused ones included.
        self.requests: list[TranscriptContext] = []
        #: Why requests were refused, oldest first.
        self.refusals: list[str] = []

    def __call__(
        self, model: Model, context: TranscriptContext, options: StreamOptions, /
    ) -> StreamEvents | Awaitable[StreamEvents]:
        """Check the request, then hand it on.

        Raises:
            AssertionError: The request breaks a rule of `check_request`, or lost the system
                message that an earlier request began with.
        """
        messages = list(context.messages)
        self.requests.append(TranscriptContext(messages=messages))
        has_head = bool(messages) and isinstance(messages[0], SystemMessage)
        try:
            check_request(messages, one_system_message=self._one_system_message)
            if self._had_head and not has_head:
                fail("message 0", "the system head of earlier requests is gone (D15)")
        except AssertionError as refusal:
            raise self.refused(str(refusal)) from None
        self._had_head = has_head
        return self._stream_fn(model, context, options)

    def refused(self, why: str) -> AssertionError:
        """Keep why the present request is refused, and make the error to raise."""
        self.refusals.append(f"request {len(self.requests)}: {why}")
        return AssertionError(self.refusals[-1])

    def check(self) -> None:
        """Raise if a request was refused; a run turns what is raised in it into a message.

        Raises:
            AssertionError: All refusals, one a line.
        """
        __tracebackhide__ = True
        if self.refusals:
            raise AssertionError("\n".join(self.refusals))


def strict_faux(stream_fn: StreamFn, *, one_system_message: bool = False) -> StrictFaux:
    """Make a stream function refuse requests that a strict provider refuses.

    `scripted_model` is one already.

    Args:
        stream_fn: Answers what is not refused, for example `faux_provider().stream_fn`.
        one_system_message: As in `check_request`.

    Returns:
        The stream function, with its `requests` and `refusals`.

    Example:
        >>> from pi_agent_kernel import Agent, faux_provider
        >>> strict = strict_faux(faux_provider().stream_fn)
        >>> agent = Agent(stream_fn=strict)
        >>> agent.transform_context = lambda messages, signal: messages[:-1]
        >>> agent.prompt_sync("The hook drops this.")
        >>> strict.refusals
        ['request 1: message 0 (the end): there is nothing to answer (LP-14)']
    """
    return StrictFaux(stream_fn, one_system_message=one_system_message)
