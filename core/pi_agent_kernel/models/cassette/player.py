"""Answer requests from a cassette."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import TYPE_CHECKING, Any, cast

import anyio.lowlevel
import msgspec

from pi_agent_kernel.abort import OperationAborted
from pi_agent_kernel.errors import ModelError, error_text
from pi_agent_kernel.events import AssistantMessageEvent, StreamDone, StreamError
from pi_agent_kernel.models.cassette.conversation import Seen, follow, model_spec
from pi_agent_kernel.models.cassette.difference import describe_difference
from pi_agent_kernel.models.cassette.reader import Exchange, read_cassette
from pi_agent_kernel.models.cassette.redaction import Redactor
from pi_agent_kernel.models.cassette.response import Played, final_diagnostics
from pi_agent_kernel.models.overflow import error_details
from pi_agent_kernel.models.retry import DEFAULT_MAX_RETRY_DELAY_MS, pause
from pi_agent_kernel.models.transient import transient_kind, wait_wanted_ms
from pi_agent_kernel.request import Model, StreamOptions, TranscriptContext
from pi_agent_kernel.response import ResponseBuilder

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path


__all__ = ["CassettePlayer"]


class CassettePlayer:
    """Be the stream function that plays a cassette; needs no key and no network.

    Equal requests get the recorded responses in the order the requests were recorded, then the
    last one again. Any number of agents, threads and event loops may share a player.

    Args:
        path: The file. It is read once, here.
        chunks_per_second: Pace; as fast as possible by default.

    Raises:
        ModelError: The file cannot be read, or is no cassette.
        ValueError: The pace is not positive.
    """

    def __init__(
        self, path: str | PathLike[str], *, chunks_per_second: float | None = None
    ) -> None:
        if chunks_per_second is not None and not chunks_per_second > 0:
            raise ValueError(f"chunks_per_second must be positive, not {chunks_per_second!r}.")
        self._recorded = read_cassette(path)
        self._wait = 1 / chunks_per_second if chunks_per_second else 0.0
        self._lock = threading.Lock()
        self._redactor = Redactor()
        self._seen = Seen(self._redactor)
        self._used: dict[int, int] = {}  # by the number of the first of equal requests
        self._answered: set[int] = set()

    def __repr__(self) -> str:
        return f"<cassette player {self.path}: {self.played} of {self.responses} responses used>"

    @property
    def path(self) -> Path:
        """The file."""
        return self._recorded.path

    @property
    def models(self) -> tuple[Model, ...]:
        """The recorded models, in the order they were first asked."""
        return tuple(self._recorded.models.values())

    @property
    def responses(self) -> int:
        """How many responses there are."""
        return self._recorded.responses

    @property
    def played(self) -> int:
        """How many of them were used so far."""
        return len(self._answered)

    def model_like(self, model: Model) -> Model:
        """Return the recorded model of the same provider and id, else the first one there is.

        Raises:
            ModelError: Nothing was recorded.
        """
        models = self._recorded.models
        if not models:
            raise ModelError(f"The cassette {self.path} holds no request: record it again.")
        return models.get(model_spec(model)) or next(iter(models.values()))

    async def __call__(
        self, model: Model, context: TranscriptContext, options: StreamOptions | None = None, /
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        """Stream the recorded response; a request that was not recorded ends in an error."""
        options = options or StreamOptions()
        signal = options.signal
        builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
        try:
            response = self._find(model, context, options)
            for retry in response.retries:
                heard = None if options.on_retry is None else options.on_retry(retry)
                if isinstance(heard, Awaitable):
                    await cast("Awaitable[object]", heard)
            builder = response.builder()
            events, event = response.events(builder), None
            while not isinstance(event, StreamDone | StreamError):
                # The next event comes after the pause: an abort shows what was there before it.
                await (pause(self._wait, signal) if self._wait else anyio.lowlevel.checkpoint())
                if signal is not None:
                    signal.raise_if_aborted()
                event = next(events, None)
                if event is None:
                    return
                yield _without_wait(event, options)
        except OperationAborted:
            yield builder.error("Request was aborted", aborted=True)
        except Exception as error:  # noqa: BLE001 - MD-01: a failure is an event
            builder.fields["diagnostics"] = final_diagnostics()
            yield builder.error(error_text(error))

    def _find(self, model: Model, context: TranscriptContext, options: StreamOptions) -> Played:
        with self._lock:
            if self._redactor.learn(model, options):
                self._seen.forget()
            texts = self._seen.texts(context.messages)
            node, known = follow(self._recorded.root, texts)
            asked = (model_spec(model), options.reasoning or "off")
            same = node.requests.get(asked, []) if known == len(texts) else []
            if not same:
                raise ModelError(describe_difference(self._recorded, texts, asked, node, known))
            return self._next(same)

    def _next(self, same: list[Exchange]) -> Played:
        answered = [exchange for exchange in same if exchange.response is not None]
        if not answered:
            raise ModelError(
                f"Request {same[-1].number} of {self.path} has no response: the recording broke "
                "off there. Record again."
            )
        first = same[0].number
        used = self._used.get(first, 0)
        self._used[first] = used + 1
        chosen = answered[min(used, len(answered) - 1)]
        self._answered.add(chosen.number)
        response = chosen.response
        assert response is not None  # noqa: S101 - chosen from those that have one
        return response


def _without_wait(event: AssistantMessageEvent, options: StreamOptions) -> AssistantMessageEvent:
    """Have a failure that passes asked again at once; a wait that was too long stays as it was."""
    if not isinstance(event, StreamError) or transient_kind(event.error) is None:
        return event
    limit = options.max_retry_delay_ms
    longest = DEFAULT_MAX_RETRY_DELAY_MS if limit is None else limit or float("inf")
    if (wait_wanted_ms(event.error) or 0) > longest:
        return event
    at_once = {
        "type": "provider_error",
        "timestamp": event.error.timestamp,
        "details": {**error_details(event.error), "retryAfterMs": 0},
    }
    entries: list[Any] = [*(event.error.diagnostics or ())]
    entries = [known for known in entries if not _is_provider_error(known)]
    error = msgspec.structs.replace(event.error, diagnostics=[at_once, *entries])
    return StreamError(reason=event.reason, error=error)


def _is_provider_error(entry: object) -> bool:
    return isinstance(entry, Mapping) and cast("Mapping[str, Any]", entry).get("type") == (
        "provider_error"
    )
