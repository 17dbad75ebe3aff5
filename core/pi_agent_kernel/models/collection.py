"""Several providers behind one stream function: a collection that finds who serves a model.

    models = create_models()
    models.set_provider(create_provider("mine", auth=..., models=[...], api=stream_fn))
    agent = Agent(stream_fn=models.stream, model=models.get_model("mine", "big"))

Nothing here raises for a request: an unknown provider, a missing key and a missing format end the
stream with an error message (MD-11).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from pi_agent_kernel.abort import AbortSignal
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.events import AssistantMessageEvent, StreamDone, StreamError
from pi_agent_kernel.messages import AssistantMessage, Message, TextContent, UserMessage
from pi_agent_kernel.models.credentials import CredentialStore, ProviderAuth, resolve_key
from pi_agent_kernel.models.lazy_stream import lazy_stream
from pi_agent_kernel.models.providers import PROVIDERS, Provider
from pi_agent_kernel.request import Model, StreamEvents, StreamFn, StreamOptions, TranscriptContext

__all__ = ["ModelProvider", "Models", "create_models", "create_provider", "merge_headers"]

Headers = Mapping[str, str | None]


class ModelProvider(msgspec.Struct, frozen=True, kw_only=True):
    """Describe who serves models; `create_provider` makes one."""

    id: str
    auth: ProviderAuth
    models: tuple[Model, ...]
    #: One stream function, or one by `Model.api`.
    api: StreamFn | Mapping[str, StreamFn]
    headers: Headers | None = None

    def stream_fn(self, api: str) -> StreamFn:
        """Return what speaks a wire format.

        Raises:
            ModelError: Nothing does.
        """
        if not isinstance(self.api, Mapping):
            return self.api
        found = self.api.get(api)
        if found is None:
            known = ", ".join(sorted(self.api)) or "none"
            raise ModelError(
                f"The provider {self.id} does not speak {api!r}, only: {known}.", provider=self.id
            )
        return found


def create_provider(
    id: str,
    auth: ProviderAuth | None = None,
    models: Sequence[Model] = (),
    api: StreamFn | Mapping[str, StreamFn] | None = None,
    *,
    headers: Headers | None = None,
) -> ModelProvider:
    """Make a provider for a collection.

    Args:
        id: What `Model.provider` names it by.
        auth: How it knows who asks; by default it needs no key.
        models: What it lists. Requests may name others.
        api: One stream function, or one for each wire format it speaks; by default the one for
            real models.
        headers: Sent with every request, unless the model or the request says otherwise.

    Raises:
        ValueError: The id is empty, or a model belongs to another provider.

    Source: MD-12.
    """
    if not id.strip():
        raise ValueError("A provider needs an id.")
    foreign = next((model for model in models if model.provider != id), None)
    if foreign is not None:
        raise ValueError(
            f"The model {foreign.id!r} has provider {foreign.provider!r}; one of {id!r} is needed."
        )
    if api is None:
        from pi_agent_kernel.models.pydantic_ai import provider_stream_fn

        api = provider_stream_fn()
    return ModelProvider(
        id=id,
        auth=auth or ProviderAuth(keyless=True),
        models=tuple(models),
        api=api,
        headers=headers,
    )


class Models:
    """Hold providers and ask the one a model belongs to; `create_models` makes one.

    `stream` is a stream function. Keys are looked up and providers loaded when a stream is read.
    """

    def __init__(
        self,
        credentials: CredentialStore | None = None,
        env: Mapping[str, str] | None = None,
        transform_headers: Callable[[dict[str, str | None]], Headers] | None = None,
    ) -> None:
        self._providers: dict[str, ModelProvider] = {}
        self._credentials = credentials
        self._env = env
        self._transform = transform_headers

    def __repr__(self) -> str:
        return f"<models of {', '.join(self._providers) or 'no provider'}>"

    def set_provider(self, provider: ModelProvider) -> None:
        """Add a provider, or replace the one with its id."""
        self._providers[provider.id] = provider

    def delete_provider(self, id: str) -> None:
        """Take a provider out; unknown ones are ignored. Streams that run go on."""
        self._providers.pop(id, None)

    def clear_providers(self) -> None:
        """Take all providers out."""
        self._providers.clear()

    def get_provider(self, id: str) -> ModelProvider | None:
        """Return a provider, or None."""
        return self._providers.get(id)

    def get_providers(self) -> list[ModelProvider]:
        """Return the providers in the order they were added."""
        return list(self._providers.values())

    def get_model(self, provider: str, id: str) -> Model | None:
        """Return a listed model, or None."""
        return next((model for model in self.get_models(provider) if model.id == id), None)

    def get_models(self, provider: str | None = None) -> list[Model]:
        """Return the models that a provider, or every provider, lists."""
        return [
            model
            for each in self._providers.values()
            if provider is None or each.id == provider
            for model in each.models
        ]

    def stream(
        self, model: Model, context: TranscriptContext, options: StreamOptions | None = None
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        """Ask a model; this is a stream function.

        Args:
            model: Its `provider` names who is asked.
            context: The messages.
            options: As for any stream function; their key goes before every other.

        Returns:
            The stream, at once. Every failure is its last event.

        Source: MD-11, MD-13, MD-14, MD-25.
        """
        options = options or StreamOptions()

        async def open_stream() -> StreamEvents:
            provider = self._providers.get(model.provider)
            if provider is None:
                known = ", ".join(self._providers) or "none"
                raise ModelError(
                    f"There is no provider {model.provider!r} for the model {model.id!r}; "
                    f"these are set: {known}.",
                    provider=model.provider,
                )
            stream_fn = provider.stream_fn(model.api)
            key = await resolve_key(
                provider.id,
                provider.auth,
                given=options.api_key,
                store=self._credentials,
                env=self._env,
            )
            headers = merge_headers(provider.headers, model.headers, options.headers)
            if self._transform is not None:
                headers = merge_headers(self._transform(headers))
            ready = msgspec.structs.replace(options, api_key=key, headers=headers or None)
            opened: Any = stream_fn(model, context, ready)
            return opened if hasattr(opened, "__aiter__") else await opened

        return lazy_stream(model, open_stream, options.signal)

    async def complete(
        self, model: Model, context: TranscriptContext, options: StreamOptions | None = None
    ) -> AssistantMessage:
        """Ask a model and wait for its whole answer; otherwise as `stream`.

        Returns:
            The message; a failure has stop reason "error" or "aborted" and an `error_message`.

        Cancellation: Closes the connection.
        """
        return await _last(self.stream(model, context, options))

    def stream_simple(
        self,
        model: Model,
        prompt: str | Message | Sequence[Message],
        *,
        reasoning: str | None = None,
        max_tokens: int | None = None,
        api_key: str | None = None,
        signal: AbortSignal | None = None,
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        """Ask a model something without building a context; otherwise as `stream`.

        Args:
            model: Its `provider` names who is asked.
            prompt: Text, a message, or messages in transcript order.
            reasoning: Thinking level; left out for a model that does not think.
            max_tokens: Longest answer; by default the provider's own limit.
            api_key: Goes before every other key.
            signal: Aborts the request.
        """
        if isinstance(prompt, str):
            messages: Sequence[Message] = [UserMessage(content=[TextContent(text=prompt)])]
        else:
            messages = prompt if isinstance(prompt, Sequence) else [prompt]
        options = StreamOptions(
            reasoning=reasoning if model.reasoning and reasoning != "off" else None,
            max_tokens=max_tokens,
            api_key=api_key,
            signal=signal,
        )
        return self.stream(model, TranscriptContext(messages=messages), options)

    async def complete_simple(
        self,
        model: Model,
        prompt: str | Message | Sequence[Message],
        *,
        reasoning: str | None = None,
        max_tokens: int | None = None,
        api_key: str | None = None,
        signal: AbortSignal | None = None,
    ) -> AssistantMessage:
        """Ask a model something and wait for its whole answer; as `stream_simple` and `complete`.

        Cancellation: Closes the connection.
        """
        return await _last(
            self.stream_simple(
                model,
                prompt,
                reasoning=reasoning,
                max_tokens=max_tokens,
                api_key=api_key,
                signal=signal,
            )
        )


def create_models(
    *,
    builtin: bool = False,
    credentials: CredentialStore | None = None,
    env: Mapping[str, str] | None = None,
    transform_headers: Callable[[dict[str, str | None]], Headers] | None = None,
) -> Models:
    """Make a collection of providers.

    Args:
        builtin: Start with every known provider, each listing its default model.
        credentials: Keys that go before the environment.
        env: Environment variables; the process's own by default, read at each request.
        transform_headers: Gets the merged headers of a request and returns what is sent.

    Source: MD-11 to MD-14, MD-25.
    """
    models = Models(credentials, env, transform_headers)
    if builtin:
        for row in PROVIDERS.values():
            models.set_provider(_builtin(row, env))
    return models


def merge_headers(*sources: Headers | None) -> dict[str, str | None]:
    """Merge headers whatever their case; a later source wins (MD-14).

    Args:
        *sources: In the order provider, model, request. None takes a header out of what follows
            from earlier sources, and stays as None for whoever merges next.
    """
    merged: dict[str, tuple[str, str | None]] = {}
    for source in sources:
        for name, value in (source or {}).items():
            merged[name.lower()] = (name, value)
    return dict(merged.values())


def _builtin(row: Provider, env: Mapping[str, str] | None) -> ModelProvider:
    from pi_agent_kernel.models.model_info import describe_model
    from pi_agent_kernel.models.pydantic_ai import provider_stream_fn

    keyless = row.keyless or not row.base_url  # Bedrock finds credentials itself
    listed = [describe_model(row, row.default_model, "")] if row.default_model else []
    return create_provider(
        row.id,
        ProviderAuth(variables=row.key_variables, keyless=keyless),
        listed,
        provider_stream_fn(env=env),
    )


async def _last(stream: AsyncGenerator[AssistantMessageEvent, None]) -> AssistantMessage:
    async with aclosing(stream):
        async for event in stream:
            if isinstance(event, StreamDone | StreamError):
                return event.message
    raise ModelError("The stream ended without a final event.")
