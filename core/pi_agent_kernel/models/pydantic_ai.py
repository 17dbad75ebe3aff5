"""Real models: any provider pydantic-ai knows, behind the one seam.

pydantic-ai is used only as a model layer (`pydantic_ai.direct.model_request_stream`): it speaks
the wire formats, we keep the loop, the messages and the retries. It is imported on the first
request, in a worker thread. What a provider needs is in `providers` and `families`; nothing here
knows which one it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from pi_agent_kernel.abort import OperationAborted, until_abort
from pi_agent_kernel.events import AssistantMessageEvent
from pi_agent_kernel.models.error_kinds import ReplyError
from pi_agent_kernel.models.families import FAMILIES, Reach, load_modules
from pi_agent_kernel.models.headers import is_header_value
from pi_agent_kernel.models.provider_errors import Failure, Place, explain_failure
from pi_agent_kernel.models.provider_http import (
    Exchange,
    current_exchange,
    loop_cache,
    shared_client,
)
from pi_agent_kernel.models.providers import PROVIDERS, Provider
from pi_agent_kernel.models.pydantic_history import to_history, to_tool_definitions
from pi_agent_kernel.models.pydantic_stream import ResponseReader
from pi_agent_kernel.models.replay import replayable
from pi_agent_kernel.models.request_settings import places_of, request_settings
from pi_agent_kernel.models.retry import retry_provider_request
from pi_agent_kernel.models.retry_policy import DEFAULT_MAX_RETRIES
from pi_agent_kernel.request import Model, StreamFn, StreamOptions, TranscriptContext
from pi_agent_kernel.response import ResponseBuilder
from pi_agent_kernel.secrecy import Secrets, is_credential
from pi_agent_kernel.transcript import get_current_tools

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ProviderModel
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.settings import ModelSettings

__all__ = ["provider_stream_fn"]

T = TypeVar("T")


def provider_stream_fn(
    *,
    env: Mapping[str, str] | None = None,
    idle_timeout: float = 300.0,
    retry_delay: float = 0.5,
) -> StreamFn:
    """Make the stream function for real models.

    The model says where the request goes: `api` names the family, `base_url` the server (by
    default the family's environment variable, then its own server). The key is
    `options.api_key`, then the family's environment variable; a local server needs none.

    Args:
        env: Environment variables; the process's own by default, read at each request.
        idle_timeout: Seconds without a byte from the server after which the request fails.
        retry_delay: Seconds before the second attempt if the server asks for no other wait.

    A request that fails for a passing reason before anything of the reply came is made again, as
    `options.max_retries` (2 by default) and `options.max_retry_delay_ms` allow.

    Returns:
        An async generator function. It never raises for a failed request (MD-01); cancelling it
        closes the connection at once.

    Source: MD-01 to MD-06, CO-08 to CO-11, TR-13 to TR-15.
    """

    async def stream(
        model: Model, context: TranscriptContext, options: StreamOptions | None = None
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        options = options or StreamOptions()
        variables = os.environ if env is None else env
        request = _Request(model, context, options, variables, idle_timeout)
        builder, signal = request.builder, options.signal
        reader: ResponseReader | None = None
        try:
            async with AsyncExitStack() as stack:
                response = await retry_provider_request(
                    lambda: until_abort(signal, request.open(stack)),
                    explain=request.explain,
                    attempt=options.attempt,
                    max_retries=options.max_retries,
                    max_retry_delay_ms=options.max_retry_delay_ms,
                    base_delay=retry_delay,
                    signal=signal,
                    on_retry=options.on_retry,
                )
                reader = ResponseReader(response, builder, model)
                yield builder.start()
                events = aiter(response)
                while True:
                    try:
                        event = await until_abort(signal, anext(events))
                    except StopAsyncIteration:
                        break
                    for ours in reader.feed(event):
                        yield ours
                for ours in reader.finish(always_says_why=request.family.always_says_why):
                    yield ours
            return
        except Exception as error:  # noqa: BLE001 - MD-01: a failure is an event
            last = request.failed(error, reader)
        yield last

    return stream


class _Request:
    """One request: from our words to pydantic-ai's, and open."""

    def __init__(
        self,
        model: Model,
        context: TranscriptContext,
        options: StreamOptions,
        env: Mapping[str, str],
        idle_timeout: float,
    ) -> None:
        self._model = model
        self._context = context
        self._options = options
        self._env = env
        family = FAMILIES.get(model.api)
        self.family = family or FAMILIES["openai-completions"]
        self._known = family is not None
        provider = PROVIDERS.get(model.provider) or _first_of(model.api)
        self._provider = provider
        self._key = (options.api_key or "").strip() or provider.secret(env) or None
        url = model.base_url.strip() or provider.address(env)
        self._place = Place(
            model=model.id,
            base_url=url.rstrip("/"),
            key_variable=provider.key_variables[0],
            url_variable=provider.url_variable,
            requirement=self.family.requirement,
            address_end=self.family.address_end,
            idle_timeout=idle_timeout,
            secrets=Secrets(
                (
                    self._key,
                    *(env.get(name) for name in self.family.variables if is_credential(name)),
                    *_credentials_in(model.headers),
                    *_credentials_in(options.headers),
                ),
                addresses=(url,),
            ),
        )
        self._exchange = Exchange(model, options)
        self._attempt = options.attempt - 1
        self.builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)

    async def open(self, stack: AsyncExitStack) -> StreamedResponse:
        """Send the request; the stack closes it."""
        self._attempt += 1
        if not self._known:
            raise ReplyError(
                f"No provider speaks {self._model.api!r} ({self._model.id}); these are known: "
                + ", ".join(sorted(FAMILIES))
                + ".",
                "setup",
            )
        place = self._place
        is_own = bool(place.base_url) and place.base_url == self._provider.base_url
        if self._key is None and is_own and not self._provider.keyless:
            raise ReplyError(
                f"There is no API key for {place.server}. Set {place.key_variable}, or "
                f"{place.url_variable} for a server of your own.",
                "auth",
            )
        if self._key is not None and not is_header_value(self._key):
            raise ReplyError(
                f"The API key for {place.server} has a line break or another character that no "
                "key has, so nothing was sent. Copy it again, alone on its line: "
                f"{place.key_variable}, or api_key in the options.",
                "auth",
            )
        if not self.family.trio and not _on_asyncio():
            raise ReplyError(
                f"The package for {self._provider.name} needs asyncio, and this event loop is "
                "another one. Run the agent on asyncio, or use another provider.",
                "setup",
            )
        await _load(self.family.modules)
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.models import ModelRequestParameters

        reach = await self._reach()
        provider = await self._provider_model(reach)
        messages, profile = self._context.messages, provider.profile
        opening = model_request_stream(
            provider,
            to_history(
                replayable(messages, self._model, id_length=profile.get("tool_call_id_length")),
                model=self._model.id,
                system=provider.system,
                places=places_of(self.family, reach, provider.system, profile),
            ),
            model_settings=self._settings(reach, provider),
            model_request_parameters=ModelRequestParameters(
                function_tools=to_tool_definitions(get_current_tools(messages))
            ),
        )
        token = current_exchange.set(self._exchange)
        try:
            response = await stack.enter_async_context(opening)
        finally:
            current_exchange.reset(token)
        stack.push_async_callback(_cancel, response)
        return response

    def failed(
        self, error: Exception, reader: ResponseReader | None = None
    ) -> AssistantMessageEvent:
        """Make the event that ends the stream because of an error or an abort."""
        if reader is not None:
            with suppress(Exception):  # the failure is what has to be told (MD-01)
                reader.note()
        signal = self._options.signal
        # Closing the connection may raise anything: the abort is asked first.
        if isinstance(error, OperationAborted) or (signal is not None and signal.aborted):
            return self.builder.error("Request was aborted", aborted=True)
        failure = self.explain(error)
        text, limit = failure.text, self._options.max_retries
        if self._attempt > max(1, DEFAULT_MAX_RETRIES if limit is None else limit):
            text += f" Gave up after {self._attempt} attempts."
        self.builder.fields["diagnostics"] = [failure.diagnostic()]
        return self.builder.error(text)

    def explain(self, error: Exception) -> Failure:
        """Describe an error of this request."""
        return explain_failure(error, self._place, self._exchange)

    async def _reach(self) -> Reach:
        place = self._place
        return Reach(
            name=self._model.id,
            provider=self._model.provider,
            base_url=place.base_url,
            own_url=self._provider.base_url,
            key=self._key,
            env=self._env,
            client=await shared_client(place.idle_timeout, self.family.http_library),
            idle_timeout=place.idle_timeout,
        )

    async def _provider_model(self, reach: Reach) -> ProviderModel:
        """Return pydantic-ai's model, one per event loop, address, key and name (trap 4)."""
        model, cache = self._model, loop_cache()
        secrets = [reach.key, *map(reach.env.get, self.family.variables)]
        secret = hashlib.sha256(repr(secrets).encode()).hexdigest()
        key = (model.api, model.provider, model.id, reach.base_url, secret, reach.idle_timeout)
        if key not in cache:
            build = partial(self.family.build, reach)
            cache[key] = await anyio.to_thread.run_sync(build, abandon_on_cancel=True)
        return cache[key]

    def _settings(self, reach: Reach, provider: ProviderModel) -> ModelSettings:
        settings = request_settings(
            self.family,
            self._model,
            self._options,
            reach,
            messages=self._context.messages,
            profile=provider.profile,
            unsupported=provider.unsupported_settings,
        )
        self._exchange.added = settings.headers
        self.builder.fields["provider_thinking_level"] = settings.thinking
        return settings.values  # pyright: ignore[reportReturnType] - a TypedDict, built by name


def _first_of(api: str) -> Provider:
    """Return the provider that stands for those who speak a format and are not listed."""
    speakers = [provider for provider in PROVIDERS.values() if provider.api == api]
    return speakers[0] if speakers else PROVIDERS["openai-chat"]


def _credentials_in(headers: Mapping[str, str | None] | None) -> Iterator[str]:
    """Yield what the headers tell of who asks, and the parts of it, such as after "Bearer"."""
    for name, value in (headers or {}).items():
        if is_credential(str(name)) and isinstance(value, str):
            yield value
            yield from value.split()[1:]


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _load(modules: tuple[str, ...]) -> None:
    """Import modules without blocking the loop: it takes a second the first time."""
    if any(sys.modules.get(name) is None for name in modules):
        await anyio.to_thread.run_sync(load_modules, modules, abandon_on_cancel=True)


async def _cancel(response: StreamedResponse) -> None:
    """Close the connection now; leaving the context alone would not do it everywhere (trap 3)."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(1):
        await response.cancel()
