"""What passes through the one seam to a model: model, transcript, options, stream function.

A stream function gets a `Model`, a `TranscriptContext` that holds messages and nothing else
(prompt and tools are in its system messages), and `StreamOptions`. It returns the events of the
response and encodes every failure as one of them (MD-01).
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload

import msgspec

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.events import AssistantMessageEvent, ModelRetry
from pi_agent_kernel.json_value import FrozenDict
from pi_agent_kernel.messages import Message
from pi_agent_kernel.secrecy import HIDDEN, shown_address, shown_headers

__all__ = [
    "DEFAULT_IDENTITY",
    "UNKNOWN_MODEL",
    "ClientIdentity",
    "Model",
    "ModelCost",
    "ModelCostTier",
    "Prefix",
    "StreamFn",
    "StreamOptions",
    "TranscriptContext",
    "Transport",
    "get_default_stream_fn",
    "merge_client_identity",
    "set_default_stream_fn",
]

T = TypeVar("T")

Transport = Literal["sse", "websocket", "websocket-cached", "auto"]
#: Who asks: optional keys "attribution" (a mapping, or None for none), "version", "userAgent".
ClientIdentity = Mapping[str, Any]

#: The attribution that requests carry unless `identity` says otherwise (CO-14).
DEFAULT_IDENTITY: ClientIdentity = FrozenDict(
    attribution=FrozenDict(name="pi", url="https://pi.dev", categories=["cli-agent"])
)


class ModelCostTier(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold the rates of requests whose whole input exceeds a number of tokens (MD-20)."""

    input_tokens_above: int
    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0
    extra: FrozenDict | None = None


class ModelCost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hold US dollars per million tokens, with other rates for large inputs (MD-20)."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0
    tiers: Sequence[ModelCostTier] | None = None
    extra: FrozenDict | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a model: identity, abilities, limits in tokens, price."""

    id: str
    name: str = ""
    api: str = "unknown"
    provider: str = "unknown"
    base_url: str = ""
    reasoning: bool = False
    input: Sequence[str] = ("text",)
    cost: ModelCost = ModelCost()
    context_window: int = 0
    max_tokens: int = 0
    headers: Mapping[str, str] | None = None
    thinking_level_map: Mapping[str, str | None] | None = None
    extra: FrozenDict | None = None

    def __repr__(self) -> str:
        return _shown(self)


#: What an agent has when no model was given: nothing is known of it (CO-05).
UNKNOWN_MODEL = Model(id="unknown", name="unknown", input=())


class Prefix(Sequence[T]):
    """Show the first `length` items of a list that only grows, without copying it.

    It equals any sequence with the same items; `list(prefix)` copies.
    """

    __slots__ = ("_length", "items")

    def __init__(self, items: Sequence[T], length: int | None = None) -> None:
        self.items: Sequence[T] = items
        self._length = len(items) if length is None else length

    def views_same_list(self, other: object) -> bool:
        """Say whether another prefix shows the same list, so that one is the start of the other."""
        return isinstance(other, Prefix) and cast("Prefix[Any]", other).items is self.items

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(iter(self.items), self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self.items[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError("index out of range")
        return self.items[index if index >= 0 else self._length + index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return list(self) == list(cast("Sequence[Any]", other))

    if not TYPE_CHECKING:
        __hash__ = None  # equal to lists, which have none

    def __repr__(self) -> str:
        return repr(list(self))


class TranscriptContext(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the messages of one request; the only field, on purpose (CO-02)."""

    messages: Sequence[Message]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a request needs beside its messages (CO-08 to CO-11). All may be absent.

    `reasoning` is the thinking level, absent for "off". `on_payload` may return a replacement
    for the payload; the other callbacks observe. `attempt` is the number of the first attempt this
    request makes, of `max_retries` + 1 in all; a stream function that makes another by itself
    announces it to `on_retry` before it waits.
    """

    signal: AbortSignal | None = None
    api_key: str | None = None
    reasoning: str | None = None
    session_id: str | None = None
    transport: Transport | None = None
    thinking_budgets: Mapping[str, int] | None = None
    max_retry_delay_ms: int | None = None
    max_retries: int | None = None
    attempt: int = 1
    identity: ClientIdentity | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    headers: Mapping[str, str | None] | None = None
    metadata: Mapping[str, Any] | None = None
    on_payload: Callable[..., Any] | None = None
    on_response: Callable[..., Any] | None = None
    on_provider_stream_event: Callable[..., Any] | None = None
    on_retry: Callable[[ModelRetry], object] | None = None

    def __repr__(self) -> str:
        return _shown(self)


def _shown(struct: Model | StreamOptions) -> str:
    """Write a struct as `repr` does, without what must not be shown."""
    parts: list[str] = []
    for name in struct.__struct_fields__:
        value: Any = getattr(struct, name)
        match name:
            case "api_key" if value:
                value = HIDDEN
            case "headers" if isinstance(value, Mapping):
                value = shown_headers(cast("Mapping[str, str | None]", value))
            case "base_url":
                value = shown_address(value)
            case _:
                pass
        parts.append(f"{name}={value!r}")
    return f"{type(struct).__name__}({', '.join(parts)})"


StreamEvents = AsyncIterable[AssistantMessageEvent]


class StreamFn(Protocol):
    """**Protocol:** ask a model, stream its response (CO-02).

    Contract (MD-01): never raise for a failed request; end the stream with an `error` event.
    An async generator is cancelled at once when the run is aborted. Any other stream is left
    `abort_grace` seconds to send its own last event, then abandoned.
    """

    def __call__(
        self, model: Model, context: TranscriptContext, options: StreamOptions, /
    ) -> StreamEvents | Awaitable[StreamEvents]:
        """Start the request."""
        ...


_default_stream_fn: list[StreamFn] = []


def set_default_stream_fn(stream_fn: StreamFn | None) -> None:
    """Set what agents use that were given no stream function; None clears it (CO-01)."""
    _default_stream_fn[:] = [] if stream_fn is None else [stream_fn]


def get_default_stream_fn() -> StreamFn:
    """Return the default stream function.

    Raises:
        ValueError: None was set; the message names both remedies (CO-01).
    """
    if not _default_stream_fn:
        raise ValueError(
            "No stream function: pass Agent(stream_fn=...) or call set_default_stream_fn(...) "
            "first. pi_agent_kernel.faux_provider().stream_fn needs no network and no key."
        )
    return _default_stream_fn[0]


def merge_client_identity(*identities: ClientIdentity | None) -> dict[str, Any] | None:
    """Merge identities field by field; a later one wins, None ones are skipped (CO-14).

    Returns:
        The merged identity, or None when there was none.
    """
    given = [identity for identity in identities if identity]
    if not given:
        return None
    merged: dict[str, Any] = {}
    for identity in given:
        merged.update(identity)
    return merged
