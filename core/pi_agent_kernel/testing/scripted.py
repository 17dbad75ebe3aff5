"""A model for tests: it says what it was told to say, and refuses what a real one would refuse.

Its replies are written one a line: a text, `call("add", a=2, b=40)`, a list of both, an exception
for a request that fails, or a function of the request that returns one of these.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self, cast

import msgspec

from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.errors import error_text
from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantBlock,
    AssistantMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    text_of,
)
from pi_agent_kernel.models.faux import FauxState, faux_assistant_message, faux_provider
from pi_agent_kernel.request import Model, StreamEvents, StreamOptions, TranscriptContext
from pi_agent_kernel.testing.transcripts import StrictFaux
from pi_agent_kernel.transcript import get_current_tools

__all__ = ["Reply", "ReplyFunction", "ScriptedModel", "call", "scripted_model"]

_Said = str | AssistantBlock | AssistantMessage | Sequence[str | AssistantBlock] | Exception
#: Makes a reply from the messages of the request; plain or async.
ReplyFunction = Callable[[Sequence[AgentMessage]], _Said | Awaitable[_Said]]
#: What a scripted model can be told to answer.
Reply = _Said | ReplyFunction


def call(name: str, /, **arguments: Any) -> ToolCall:
    """Script a tool call; the model it is given to numbers it: "call-1", "call-2", ...

    Args:
        name: The tool's name.
        **arguments: What the model passes.

    Returns:
        The call. For an id of your own use `faux_tool_call(name, arguments, id)`.

    Example:
        >>> call("add", a=2, b=40).arguments
        {'a': 2, 'b': 40}
    """
    return ToolCall(id="", name=name, arguments=arguments)


class ScriptedModel(StrictFaux):
    """Be a model that plays its script; `scripted_model` makes one.

    It is a stream function: `Agent(stream_fn=model, model=model.model)`. As a context manager it
    checks itself at the end.
    """

    def __init__(self, *, one_system_message: bool = False, undeclared_calls: bool = False) -> None:
        self._faux = faux_provider()
        super().__init__(self._faux.stream_fn, one_system_message=one_system_message)
        self._undeclared_calls = undeclared_calls
        self._replies: deque[AssistantMessage | ReplyFunction] = deque()
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True
        if error is None:
            self.check()

    @property
    def model(self) -> Model:
        """A description of the model, for `Agent(model=...)`."""
        return self._faux.model()

    @property
    def pending(self) -> int:
        """How many replies are left."""
        return len(self._replies)

    def add(self, *replies: Reply) -> None:
        """Put further replies at the end of the script.

        Raises:
            TypeError: A reply is of none of the kinds of `Reply`.

        Example:
            >>> model = scripted_model("Hello.")
            >>> model.add("Goodbye.")
            >>> model.pending
            2
        """
        # Made at once: what is no reply is refused where it is written, not inside a run.
        self._replies.extend(
            reply if callable(reply) and not isinstance(reply, type) else self._message(reply)
            for reply in replies
        )

    def __call__(
        self, model: Model, context: TranscriptContext, options: StreamOptions, /
    ) -> StreamEvents | Awaitable[StreamEvents]:
        """Check the request, then play the next reply.

        Raises:
            AssertionError: The request is refused, or the script is at its end.
        """
        if options.signal is None or not options.signal.aborted:
            self._faux.set_responses([self._respond])
        return super().__call__(model, context, options)

    def check(self) -> None:
        """Raise if a request was refused, a reply function raised, or replies are left.

        Raises:
            AssertionError: What went wrong, one a line.

        Example:
            >>> scripted_model("Never asked for.").check()
            Traceback (most recent call last):
            AssertionError: the model was asked 0 times; these replies are left: 'Never asked for.'
        """
        __tracebackhide__ = True
        super().check()
        if self._replies:
            asked = len(self.requests)
            raise AssertionError(
                f"the model was asked {asked} time{'s' * (asked != 1)}; these replies are left: "
                + ", ".join(map(_shown, self._replies))
            )

    async def _respond(
        self, context: TranscriptContext, _options: StreamOptions, _state: FauxState, _model: Model
    ) -> AssistantMessage:
        if not self._replies:
            self._at_the_end(context.messages[-1])
        message = self._replies.popleft()
        if not isinstance(message, AssistantMessage):
            try:
                said: Any = message(context.messages)
                message = self._message(await said if is_awaitable(said) else said)
            except Exception as error:
                told = f"the reply function raised {type(error).__name__}: {error_text(error)}"
                raise self.refused(told) from error
        if not self._undeclared_calls:
            self._require_declared(message, context.messages)
        return message

    def _at_the_end(self, last: AgentMessage) -> NoReturn:
        played = len(self.requests) - 1
        raise self.refused(
            f"the script is at its end after {played} repl{'y' if played == 1 else 'ies'}, but the "
            f"agent asks again; the request ends with {last.role}: {_shown(last)}. Add a reply, "
            "or end the run."
        )

    def _require_declared(
        self, message: AssistantMessage, messages: Sequence[AgentMessage]
    ) -> None:
        declared = [tool.name for tool in get_current_tools(messages)]
        for called in message.tool_calls:
            if called.name not in declared:
                known = f"only: {', '.join(declared)}" if declared else "nor any other"
                raise self.refused(
                    f"the script calls {called.name!r}, but the request declares no such tool, "
                    f"{known} (TR-10). Give the agent the tool, or say undeclared_calls=True to "
                    "see what it does without."
                )

    def _message(self, said: object) -> AssistantMessage:
        if isinstance(said, AssistantMessage):
            return said
        if isinstance(said, Exception):
            return faux_assistant_message([], error_message=error_text(said))
        parts: Sequence[object] = (
            cast("Sequence[object]", said) if isinstance(said, list | tuple) else [said]
        )
        return faux_assistant_message([self._block(part) for part in parts])

    def _block(self, part: object) -> AssistantBlock:
        match part:
            case str():
                return TextContent(text=part)
            case ToolCall(id=""):
                return msgspec.structs.replace(part, id=f"call-{next(self._numbers)}")
            case ToolCall() | TextContent() | ThinkingContent():
                return part
            case _:
                raise TypeError(
                    "A reply is a text, call(...), a list of both, an AssistantMessage, an "
                    f"exception, or a function that returns one of these, not {part!r}."
                )


def scripted_model(
    *replies: Reply, one_system_message: bool = False, undeclared_calls: bool = False
) -> ScriptedModel:
    """Make a model that plays these replies, one a request, and is as strict as a real one.

    It refuses what `check_request` refuses, a request that lost its prompt, a scripted call of a
    tool that the request does not declare, and a request after its last reply. What is refused
    ends the run with an error message; `check()` raises it in the test. Chunks, ids of calls and
    usage are the same in every run.

    Args:
        *replies: A text; `call(...)`; a list of both; an `AssistantMessage`; an exception, for a
            request that fails with its text; or a function of the request's messages, plain or
            async, that returns one of these.
        one_system_message: As in `check_request`.
        undeclared_calls: Let the script call tools that the agent does not have.

    Returns:
        The stream function, with `model`, `requests`, `refusals`, `pending`, `add` and `check`.

    Raises:
        TypeError: A reply is none of these.

    Example:
        >>> from pi_agent_kernel import Agent, tool
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     return a + b
        >>> script = [call("add", a=2, b=40), lambda messages: f"It is {messages[-1].text}."]
        >>> with scripted_model(*script) as model:
        ...     agent = Agent(stream_fn=model, tools=[add])
        ...     agent.prompt_sync("Add 2 and 40.")
        >>> agent.state.messages[-1].text
        'It is 42.'
        >>> model.requests[1].messages[-1].text
        '42'

    Source: MD-15 to MD-18; known-failures.md, "Strict faux"; TR-10.
    """
    model = ScriptedModel(one_system_message=one_system_message, undeclared_calls=undeclared_calls)
    model.add(*replies)
    return model


def _shown(reply: AgentMessage | ReplyFunction) -> str:
    """Tell a message or a reply function in a few words."""
    calls = [f"call of {call.name}" for call in getattr(reply, "tool_calls", ())]
    content = getattr(reply, "content", None)
    if content is None:
        return getattr(reply, "__name__", "a function")
    text = text_of(content) or getattr(reply, "error_message", None) or ""
    short = text if len(text) <= 60 else text[:59] + "…"
    return ", ".join([repr(short)] * bool(short or not calls) + calls)
