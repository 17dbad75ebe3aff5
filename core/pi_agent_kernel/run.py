"""One run's transcript and settings, and the few moves every step of it makes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar, cast

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.abort_watch import AbortWatch
from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.backend import Backend, current_backend
from pi_agent_kernel.events import AgentEvent
from pi_agent_kernel.hooks import AgentContext, TurnContext
from pi_agent_kernel.invocation import Emit
from pi_agent_kernel.loop_config import (
    STANDARD_MESSAGES,
    AgentLoopConfig,
    default_convert_to_llm,
)
from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    Message,
    SystemMessage,
    ThinkingLevel,
    Tool,
)
from pi_agent_kernel.request import (
    DEFAULT_IDENTITY,
    Model,
    Prefix,
    StreamFn,
    get_default_stream_fn,
    merge_client_identity,
)
from pi_agent_kernel.tools import AgentTool, to_tool_declaration
from pi_agent_kernel.transcript import Replay, declare_tool_changes

__all__ = ["REQUEST_ABORTED", "Run"]

T = TypeVar("T")

#: The error text of the message that closes an aborted run (DEVIATIONS 1).
REQUEST_ABORTED = "Request was aborted"


class Run:
    """Hold what one run works on; its lists are its own (DEVIATIONS 7)."""

    __slots__ = (
        "_declared_at",
        "_executable",
        "_for_model",
        "_replay",
        "backend",
        "config",
        "emit",
        "executable_names",
        "identity",
        "last_turn",
        "messages",
        "model",
        "new_messages",
        "queued",
        "reasoning",
        "signal",
        "stream_fn",
        "tools",
        "tools_by_name",
        "turn_open",
        "watch",
    )

    def __init__(  # noqa: PLR0917 - the order of the loop functions, which api.md fixes
        self,
        context: AgentContext,
        config: AgentLoopConfig,
        emit: Callable[[AgentEvent], object],
        signal: AbortSignal | None,
        stream_fn: StreamFn | None,
        backend: Backend | None = None,
    ) -> None:
        self.config: AgentLoopConfig = config
        self.signal: AbortSignal | None = signal
        self.emit: Emit = cast("Emit", emit)
        self.backend: Backend = backend or current_backend()
        self.watch: AbortWatch = AbortWatch(signal, self.backend, config.abort_grace)
        self.stream_fn: StreamFn = stream_fn or get_default_stream_fn()
        self.model: Model = config.model
        self.reasoning = config.reasoning
        self.identity: dict[str, Any] | None = merge_client_identity(
            DEFAULT_IDENTITY, config.identity
        )
        self.new_messages: list[AgentMessage] = []
        #: Messages taken from a queue that are not in the transcript yet.
        self.queued: list[AgentMessage] = []
        self.turn_open: bool = True
        self.last_turn: TurnContext | None = None
        self.use(context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.watch.close()
        if self.queued and self.config.return_messages is not None:
            self.config.return_messages(self.queued)

    # -------------------------------------------------------------------- the transcript

    def use(self, context: AgentContext) -> None:
        """Go on with this context."""
        self.messages: list[AgentMessage] = list(context.messages)
        self.tools: tuple[AgentTool, ...] = tuple(context.tools)
        self.tools_by_name: dict[str, AgentTool] = {
            tool.name: tool for tool in reversed(self.tools)
        }
        self.executable_names: tuple[str, ...] = tuple(tool.name for tool in self.tools)
        self._executable: list[Tool] = [to_tool_declaration(tool) for tool in self.tools]
        self._replay = Replay(self.messages)
        self._declared_at = -1
        # What the default conversion keeps, so that a request costs nothing per old message.
        self._for_model = list(default_convert_to_llm(self.messages))

    @property
    def context(self) -> AgentContext:
        """The context as it is now."""
        return AgentContext(messages=Prefix(self.messages), tools=self.tools)

    @property
    def messages_for_model(self) -> Sequence[Message]:
        """The transcript as the default conversion gives it."""
        return Prefix(self._for_model)

    def append(self, message: AgentMessage) -> None:
        """Add a message to the context and to what the run produced."""
        self.messages.append(message)
        self.new_messages.append(message)
        if isinstance(message, STANDARD_MESSAGES):
            self._for_model.append(message)
            if isinstance(message, SystemMessage):
                self._replay.add(message)

    def announcing(self, left: int) -> None:
        """Take note that all but `left` of the messages now being appended are announced.

        Once announced, a queued message belongs to the transcript, whatever comes.
        """
        if len(self.queued) > left:
            self.queued = self.queued[len(self.queued) - left :] if left else []

    def declared(self, pending: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        """Return pending messages with tool changes declared among them (TR-05 to TR-08)."""
        if any(isinstance(message, SystemMessage) for message in pending) or (
            self._declared_at != self._replay.version and (self._executable or self._replay.tools)
        ):
            return declare_tool_changes(self._replay, self._executable, pending)
        return pending

    def settle_declarations(self) -> None:
        """Remember that the transcript now declares exactly the executable tools."""
        self._declared_at = self._replay.version

    def update(
        self,
        context: AgentContext | None,
        model: Model | None,
        thinking_level: ThinkingLevel | None,
    ) -> None:
        """Take over what a hook replaced, for the rest of the run (ST-09)."""
        if context is not None:
            self.use(context)
        if model is not None:
            self.model = model
        if thinking_level is not None:
            self.reasoning = None if thinking_level == "off" else thinking_level

    # ----------------------------------------------------------------------------- moves

    @property
    def aborted(self) -> bool:
        """Whether the run was aborted."""
        return self.signal is not None and self.signal.aborted

    async def send(self, event: AgentEvent) -> None:
        """Emit an event and wait until it has been dealt with."""
        waiting = self.emit(event)
        if waiting is not None and is_awaitable(waiting):
            await waiting

    async def ask(
        self, hook: str, answer: T | Awaitable[T | None] | None, kind: type[T] | None = None
    ) -> T | None:
        """Take a hook's answer; after an abort a hook has the same grace as a tool.

        Args:
            hook: The hook's name.
            answer: What it returned.
            kind: What it has to be, if not None; a sequence for `Sequence`.

        Returns:
            The answer; None if the hook was cut off.

        Raises:
            TypeError: The answer is of another kind.
        """
        given: Any = await self.watch.outlast(answer) if is_awaitable(answer) else answer
        if given is None or kind is None or isinstance(given, kind):
            return given
        wanted = "a sequence of messages" if kind is Sequence else f"None or a {kind.__name__}"
        raise TypeError(f"{hook} returns {wanted}, not {type(given).__name__}.")

    def closing_message(self, reason: Any, text: str) -> AssistantMessage:
        """Make an assistant message without content that says how a request ended."""
        return AssistantMessage(
            api=self.model.api,
            provider=self.model.provider,
            model=self.model.id,
            thinking_level=self.reasoning or "off",
            stop_reason=reason,
            error_message=text,
        )
