"""A scripted model, for tests, examples and measurements: no network, no key, no chance.

Responses are queued and taken in request order; each is a message, or a function that makes one
from the request. They stream like a real model's: block by block, in chunks of a few tokens, the
arguments of tool calls as growing JSON. Chunk sizes are random but the same in every run.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from pi_agent_kernel.errors import ModelError, error_text
from pi_agent_kernel.events import AssistantMessageEvent, StreamDone, StreamError
from pi_agent_kernel.messages import (
    AssistantBlock,
    AssistantMessage,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    now_ms,
)
from pi_agent_kernel.models.prompt_size import (
    CHARACTERS_PER_TOKEN,
    PromptEstimator,
    compact_json,
)
from pi_agent_kernel.request import Model, StreamOptions, TranscriptContext
from pi_agent_kernel.response import ResponseBuilder

__all__ = [
    "FauxProvider",
    "FauxResponse",
    "FauxResponseFunction",
    "FauxState",
    "faux_assistant_message",
    "faux_provider",
    "faux_text",
    "faux_thinking",
    "faux_tool_call",
]

_ABORTED = "Request was aborted"
_EMPTY = "No more faux responses queued"
#: What the partial message already shows of the response to come.
_KEPT_FIELDS = ("response_model", "response_id", "raw_stop_reason", "end_turn", "duration_ms")

_call_numbers = itertools.count(1)


class FauxState:
    """Count what a faux provider was asked; response functions get it."""

    __slots__ = ("call_count",)

    def __init__(self) -> None:
        #: Requests so far, also those that found no response.
        self.call_count: int = 0


#: Makes a response from `(context, options, state, model)`; plain or async.
FauxResponseFunction = Callable[
    [TranscriptContext, StreamOptions, FauxState, Model],
    AssistantMessage | Awaitable[AssistantMessage],
]
FauxResponse = AssistantMessage | FauxResponseFunction


class FauxProvider:
    """Play queued responses; `faux_provider` makes one.

    Source: MD-15 to MD-18.
    """

    def __init__(
        self,
        models: Sequence[str | Model],
        *,
        tokens_per_second: float | None,
        token_size: tuple[int, int],
        seed: int,
        cooperative: bool,
        api: str,
        provider: str,
    ) -> None:
        import random

        self.api = api
        self.provider = provider
        self.models: tuple[Model, ...] = tuple(
            model if isinstance(model, Model) else _describe(model, api, provider)
            for model in models
        )
        self.state: FauxState = FauxState()
        self._queue: deque[FauxResponse] = deque()
        self._tokens_per_second = tokens_per_second
        self._smallest, self._span = token_size[0], token_size[1] - token_size[0] + 1
        self._random = random.Random(seed).random  # noqa: S311 - sizes of chunks, not secrets
        self._cooperative = cooperative
        self._estimator = PromptEstimator()

    def model(self, id: str | None = None) -> Model:
        """Return a model by its id; the first one by default.

        Raises:
            ModelError: No model has that id.
        """
        for model in self.models:
            if id is None or model.id == id:
                return model
        known = ", ".join(model.id for model in self.models)
        raise ModelError(f"There is no faux model {id!r}, only: {known}.", provider=self.provider)

    @property
    def pending(self) -> int:
        """How many responses are queued."""
        return len(self._queue)

    @property
    def call_count(self) -> int:
        """How many requests were made."""
        return self.state.call_count

    def set_responses(self, responses: Sequence[FauxResponse]) -> None:
        """Replace the queued responses."""
        self._queue = deque(_checked(responses))

    def append_responses(self, responses: Sequence[FauxResponse]) -> None:
        """Queue further responses."""
        self._queue.extend(_checked(responses))

    def stream_fn(
        self, model: Model, context: TranscriptContext, options: StreamOptions | None = None
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        """Take the next response and stream it.

        Never raises: an empty queue, a response function that raises and an abort end the stream
        with an error event. A request whose signal is already aborted takes no response.
        """
        options = options or StreamOptions()
        self.state.call_count += 1
        response: FauxResponse | None = None
        if self._queue and not (options.signal and options.signal.aborted):
            response = self._queue.popleft()
        return self._play(response, model, context, options)

    async def _play(
        self,
        response: FauxResponse | None,
        model: Model,
        context: TranscriptContext,
        options: StreamOptions,
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        message = await self._answer(response, model, context, options)
        if isinstance(message, StreamError):
            yield message
            return
        from anyio import sleep
        from anyio.lowlevel import checkpoint

        builder = ResponseBuilder(
            api=message.api,
            provider=message.provider,
            model=message.model,
            timestamp=message.timestamp,
        )
        builder.fields["usage"] = message.usage
        for name in _KEPT_FIELDS:
            value = getattr(message, name)
            if value is not None:
                builder.fields[name] = value
        signal, rate, cooperative = options.signal, self._tokens_per_second, self._cooperative
        smallest, span, random = self._smallest, self._span, self._random
        yield builder.start()
        for index, block in enumerate(message.content):
            if signal is not None and signal.aborted:
                yield builder.error(_ABORTED, aborted=True)
                return
            match block:
                case TextContent():
                    yield builder.text_start()
                    add, text = builder.text_delta, block.text
                case ThinkingContent():
                    yield builder.thinking_start()
                    add, text = builder.thinking_delta, block.thinking
                case _:
                    yield builder.toolcall_start(block.id, block.name)
                    add, text = builder.toolcall_delta, compact_json(block.arguments)
            position, length = 0, len(text)
            while True:  # an empty text has one empty chunk
                tokens = smallest if span == 1 else smallest + int(random() * span)
                chunk = text[position : position + tokens * CHARACTERS_PER_TOKEN]
                if rate:
                    await sleep(-(-len(chunk) // CHARACTERS_PER_TOKEN) / rate)
                elif cooperative:
                    await checkpoint()
                if signal is not None and signal.aborted:
                    yield builder.error(_ABORTED, aborted=True)
                    return
                yield add(chunk, index)
                position += len(chunk)
                if position >= length:
                    break
            match block:
                case TextContent():
                    yield builder.text_end(index, text, signature=block.text_signature)
                case ThinkingContent():
                    yield builder.thinking_end(
                        index, text, signature=block.thinking_signature, redacted=block.redacted
                    )
                case _:
                    yield builder.toolcall_end(index, block)
        if message.stop_reason in ("error", "aborted"):
            yield StreamError(reason=message.stop_reason, error=message)
        else:
            yield StreamDone(reason=message.stop_reason, message=message)

    async def _answer(
        self,
        response: FauxResponse | None,
        model: Model,
        context: TranscriptContext,
        options: StreamOptions,
    ) -> AssistantMessage | StreamError:
        """Return the message to stream, or the one event that says why there is none."""
        failed = ResponseBuilder(api=self.api, provider=self.provider, model=model.id)
        signal = options.signal
        if signal is not None and signal.aborted:
            return failed.error(_ABORTED, aborted=True)
        try:
            if options.on_response is not None:
                await _settled(options.on_response({"status": 200, "headers": {}}, model))
            if response is None:
                usage = self._estimator.usage(context.messages, (), options.session_id)
                return failed.error(_EMPTY, usage=usage)
            message = await self._resolve(response, model, context, options)
        except Exception as error:  # noqa: BLE001 - MD-01: a failure is an event
            return failed.error(error_text(error))
        if signal is not None and signal.aborted:
            return failed.error(_ABORTED, aborted=True)
        return message

    async def _resolve(
        self,
        response: FauxResponse,
        model: Model,
        context: TranscriptContext,
        options: StreamOptions,
    ) -> AssistantMessage:
        if not isinstance(response, AssistantMessage):
            made: Any = await _settled(response(context, options, self.state, model))
            if not isinstance(made, AssistantMessage):
                raise ModelError(
                    f"The faux response function returned {made!r}; return a message, such as "
                    "faux_assistant_message('...')."
                )
            response = made
        if response.stop_reason == "pending":
            raise ModelError("Faux response ended without a stop reason")
        usage = self._estimator.usage(context.messages, response.content, options.session_id)
        return msgspec.structs.replace(
            response, api=self.api, provider=self.provider, model=model.id, usage=usage
        )


def faux_provider(
    models: Sequence[str | Model] = ("faux-1",),
    *,
    tokens_per_second: float | None = None,
    token_size: int | tuple[int, int] = (3, 5),
    seed: int = 0,
    cooperative: bool = True,
    api: str = "faux",
    provider: str = "faux",
) -> FauxProvider:
    """Make a scripted model.

    Args:
        models: Ids, or whole models, that `model()` knows. Requests may name any other.
        tokens_per_second: Pace, a token being four characters; as fast as possible by default.
        token_size: Tokens of a chunk: a number, or the smallest and largest of a random choice.
        seed: Of that choice; equal seeds give equal chunks.
        cooperative: Let other tasks run before every chunk. Switch it off to measure what the
            rest costs.
        api: What the messages give as their wire format.
        provider: What the messages give as their provider.

    Returns:
        The provider. Hand `provider.stream_fn` and `provider.model()` to an agent.

    Raises:
        ValueError: No models, or a token size that is not positive.

    Source: MD-15 to MD-18.
    """
    if isinstance(models, str) or not models:
        raise ValueError(f"models must be a list of at least one model id, not {models!r}.")
    sizes = (token_size, token_size) if isinstance(token_size, int) else token_size
    if not 1 <= sizes[0] <= sizes[1]:
        raise ValueError(
            f"token_size must be a positive number or (smallest, largest), not {token_size!r}."
        )
    return FauxProvider(
        models,
        tokens_per_second=tokens_per_second,
        token_size=sizes,
        seed=seed,
        cooperative=cooperative,
        api=api,
        provider=provider,
    )


def faux_text(text: str) -> TextContent:
    """Make a text block."""
    return TextContent(text=text)


def faux_thinking(thinking: str) -> ThinkingContent:
    """Make a thinking block."""
    return ThinkingContent(thinking=thinking)


def faux_tool_call(name: str, arguments: Mapping[str, Any], id: str | None = None) -> ToolCall:
    """Make a tool call, with an id of its own unless one is given."""
    call_id = f"tool:{time.time_ns():x}:{next(_call_numbers)}" if id is None else id
    return ToolCall(id=call_id, name=name, arguments=arguments)


def faux_assistant_message(
    content: str | AssistantBlock | Sequence[AssistantBlock],
    *,
    stop_reason: StopReason | None = None,
    error_message: str | None = None,
    response_id: str | None = None,
    deferred: Mapping[str, Any] | None = None,
    timestamp: int | None = None,
) -> AssistantMessage:
    """Make a response.

    Args:
        content: Text, a block, or blocks.
        stop_reason: By default "error" if there is an error message, "toolUse" if there are tool
            calls, else "stop".
        error_message: What went wrong, for a response that ends as an error.
        response_id: The provider's id of the response.
        deferred: Where to fetch the response later, with stop reason "deferred".
        timestamp: Milliseconds since the epoch; now by default.

    Returns:
        The message; the faux provider puts its own names and the usage in.
    """
    blocks: tuple[AssistantBlock, ...]
    if isinstance(content, str):
        blocks = (TextContent(text=content),)
    elif isinstance(content, TextContent | ThinkingContent | ToolCall):
        blocks = (content,)
    else:
        blocks = tuple(content)
    if stop_reason is None:
        calls = any(isinstance(block, ToolCall) for block in blocks)
        stop_reason = "error" if error_message is not None else "toolUse" if calls else "stop"
    return AssistantMessage(
        content=blocks,
        api="faux",
        provider="faux",
        model="faux-1",
        stop_reason=stop_reason,
        error_message=error_message,
        response_id=response_id,
        deferred=deferred,
        timestamp=now_ms() if timestamp is None else timestamp,
    )


def _describe(id: str, api: str, provider: str) -> Model:
    return Model(
        id=id,
        name="Faux Model" if id == "faux-1" else id,
        api=api,
        provider=provider,
        base_url="http://localhost:0",
        input=("text", "image"),
        context_window=128_000,
        max_tokens=16_384,
    )


def _checked(responses: Sequence[FauxResponse]) -> list[FauxResponse]:
    """Refuse at once what could only fail later, inside a run."""
    if isinstance(responses, AssistantMessage):
        raise TypeError("Faux responses are a list: put the message in brackets.")
    for response in responses:
        if not isinstance(response, AssistantMessage) and not callable(cast("object", response)):
            raise TypeError(
                f"A faux response is a message or a function that makes one, not {response!r}: "
                "use faux_assistant_message(...)."
            )
    return list(responses)


async def _settled(value: Any) -> Any:
    if isinstance(value, Awaitable):
        return await cast("Awaitable[Any]", value)
    return value
