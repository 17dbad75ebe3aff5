"""Ask a model through a proxy: the keys are there, not here.

The proxy takes the request as it would go to a model and sends the response's events back
(`proxy_protocol`). `pi_notebook.server` is such a proxy, inside a Jupyter Server; the kernels
that it starts find it in the two variables named here.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from pi_agent_kernel.abort import OperationAborted, until_abort
from pi_agent_kernel.errors import ModelError, error_text
from pi_agent_kernel.events import AssistantMessageEvent
from pi_agent_kernel.models.error_kinds import Kind
from pi_agent_kernel.models.provider_errors import Failure
from pi_agent_kernel.models.provider_http import shared_client
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.models.proxy_protocol import PROXY_OPTIONS, encode_proxy_request
from pi_agent_kernel.models.proxy_reader import ProxyReader
from pi_agent_kernel.models.retry_headers import retry_wanted, wait_wanted
from pi_agent_kernel.request import Model, StreamFn, StreamOptions, TranscriptContext
from pi_agent_kernel.secrecy import Secrets, shown_address

if TYPE_CHECKING:
    import httpx2

__all__ = [
    "PROXY_TOKEN_VARIABLE",
    "PROXY_URL_VARIABLE",
    "proxied_model",
    "proxy_stream_fn",
    "stream_proxy",
]

#: Where the proxy is; a Jupyter Server with `pi_notebook.server` sets it for its kernels.
PROXY_URL_VARIABLE = "PI_NOTEBOOK_PROXY_URL"
#: What to show it.
PROXY_TOKEN_VARIABLE = "PI_NOTEBOOK_PROXY_TOKEN"

_ABORTED = "Request was aborted"
_MAX_REFUSAL = 65536  # bytes of a refusal that are read
_REFUSAL_SECONDS = 10.0  # how long they may take
_DRAIN_SECONDS = 0.25
_MAX_DETAIL = 1000  # characters of its text that are shown


def stream_proxy(
    model: Model,
    context: TranscriptContext,
    options: StreamOptions | None = None,
    *,
    auth_token: str,
    proxy_url: str,
    idle_timeout: float = 300.0,
    **opts: Any,
) -> AsyncGenerator[AssistantMessageEvent, None]:
    """Ask a model through a proxy and stream its response.

    A stream function once `auth_token` and `proxy_url` are bound, by `functools.partial` or by
    `proxy_stream_fn`. The request is a POST to `<proxy_url>/api/stream`; it carries the options
    of `PROXY_OPTIONS`, never the key or a callback, and the callbacks of `options` are not
    called.

    Args:
        model: Whom to ask; the proxy decides whether it may be asked.
        context: The messages.
        options: As any stream function gets them.
        auth_token: Sent as the bearer token.
        proxy_url: The proxy's address.
        idle_timeout: Seconds without a byte from the proxy after which the request fails.
        **opts: Single options by name, over those of `options`; `sampling_params` and
            `cache_retention` may be given here too.

    Returns:
        The events. Every failure is the last of them: an error of the proxy, an early end, a
        line that cannot be read, an abort. What arrived before it is kept.

    Raises:
        TypeError: An option has an unknown name.

    Cancellation: Closes the connection at once, as an abort does.
    Source: PX-01 to PX-06, MD-01, E21, E22.
    """
    fields = set(StreamOptions.__struct_fields__)
    unknown = sorted(opts.keys() - fields - set(PROXY_OPTIONS.values()))
    if unknown:
        known = ", ".join(sorted(fields | set(PROXY_OPTIONS.values())))
        raise TypeError(f"stream_proxy has no option {unknown[0]!r}; it has {known}.")
    given = {name: value for name, value in opts.items() if name in fields}
    options = msgspec.structs.replace(options or StreamOptions(), **given)
    place = _Proxy(proxy_url.rstrip("/"), auth_token, idle_timeout)
    return _stream(place, model, context, options, opts)


def proxy_stream_fn(*, auth_token: str, proxy_url: str, idle_timeout: float = 300.0) -> StreamFn:
    """Make the stream function of a proxy: `stream_proxy` with these arguments bound.

    Args:
        auth_token: Sent as the bearer token.
        proxy_url: The proxy's address; requests go to `<proxy_url>/api/stream`.
        idle_timeout: Seconds without a byte from the proxy after which a request fails.

    Returns:
        An async generator function.

    Source: PX-01.
    """

    def stream(
        model: Model, context: TranscriptContext, options: StreamOptions | None = None
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        return stream_proxy(
            model,
            context,
            options,
            auth_token=auth_token,
            proxy_url=proxy_url,
            idle_timeout=idle_timeout,
        )

    return stream


def proxied_model(
    spec: str, env: Mapping[str, str] | None = None, model: Model | None = None
) -> tuple[Model, StreamFn]:
    """Describe a model behind the proxy that the environment names.

    Args:
        spec: `provider:name`, as the proxy's list of models has it, or `demo`.
        env: Environment variables; the process's own by default.
        model: What is known of that model; its address and headers are left out, as the proxy
            has its own.

    Returns:
        The model and its stream function.

    Raises:
        ModelError: There is no proxy, or the name lacks its provider.
    """
    variables = os.environ if env is None else env
    names = (PROXY_URL_VARIABLE, PROXY_TOKEN_VARIABLE)
    url, token = (variables.get(name, "").strip() for name in names)
    if not url or not token:
        absent = PROXY_TOKEN_VARIABLE if url else PROXY_URL_VARIABLE
        raise ModelError(
            f"There is no proxy for {spec!r}: {absent} is not set. A Jupyter Server that has "
            "models for its kernels (pi_notebook.server) sets it when it starts a kernel."
        )
    provider, separator, name = spec.partition(":")
    if spec != "demo" and not (separator and provider and name):
        raise ModelError(f"A model behind the proxy is provider:name, not {spec!r}.")
    known = PROVIDERS.get(provider)
    if model is None:
        name = name or spec
        # The wire format is the provider's: signatures of its thinking go back to it only then.
        api = known.api if known else provider
        model = Model(id=name, name=name, api=api, provider=provider, input=("text", "image"))
    return (
        msgspec.structs.replace(model, base_url="", headers=None),
        proxy_stream_fn(auth_token=token, proxy_url=url),
    )


class _Proxy:
    """Where requests go."""

    def __init__(self, url: str, token: str, idle_timeout: float) -> None:
        self._url = url
        self._token = token
        self.idle_timeout = idle_timeout
        self._secrets = Secrets([token], addresses=[url])
        #: The address as texts show it.
        self.url = shown_address(url)

    async def open(self, body: bytes, stack: AsyncExitStack) -> httpx2.Response:
        """Send a request; the stack closes its connection."""
        self._check()
        await _load_client()
        client = await shared_client(self.idle_timeout)
        headers = {
            "authorization": f"Bearer {self._token}",
            "content-type": "application/json",
            "accept": "text/event-stream",
        }
        opening = client.stream("POST", f"{self._url}/api/stream", content=body, headers=headers)
        return await stack.enter_async_context(opening)

    def without_secrets(self, text: str) -> str:
        """Take the token and the address's password out of a text."""
        return self._secrets.hide(text)

    def _check(self) -> None:
        """Refuse what no request can be made of, before anything is sent or shown."""
        try:
            parts = urlsplit(self._url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a port beyond 65535, half of a bracket
            fits = False
        if not fits or not self._url.isprintable() or " " in self._url:
            text = (
                f"The proxy's address {self.url!r} is no http or https address with a port up to "
                f"65535. Correct {PROXY_URL_VARIABLE}, or the proxy_url that was given."
            )
            raise _RefusedError(Failure(text=text, kind="setup"))
        if not self._token.isascii() or not self._token.isprintable():
            text = (
                "The proxy's token has a character that no header can carry, such as a line "
                f"break. Correct {PROXY_TOKEN_VARIABLE}, or the auth_token that was given."
            )
            raise _RefusedError(Failure(text=text, kind="setup"))


async def _stream(
    proxy: _Proxy,
    model: Model,
    context: TranscriptContext,
    options: StreamOptions,
    more: Mapping[str, Any],
) -> AsyncGenerator[AssistantMessageEvent, None]:
    reader = ProxyReader(model)
    signal = options.signal
    try:
        if signal is not None:
            signal.raise_if_aborted()
        body = encode_proxy_request(model, context, options, more)
        async with AsyncExitStack() as stack:
            response = await until_abort(signal, proxy.open(body, stack))
            chunks = response.aiter_bytes()
            stack.push_async_callback(chunks.aclose)
            refusal = await until_abort(signal, _refusal(proxy, response))
            if refusal is not None:
                raise _RefusedError(refusal)
            while not reader.ended:
                try:
                    chunk = await until_abort(signal, anext(chunks))
                except StopAsyncIteration:
                    break
                except _http_error():
                    for event in reader.flush():  # the end may have come all the same
                        yield event
                    if reader.ended:
                        return
                    raise
                for event in reader.feed(chunk):
                    yield event
            await until_abort(signal, _drain(chunks))
        for event in reader.finish():
            yield event
        return
    except OperationAborted:
        last = reader.fail(_ABORTED, aborted=True)
    except Exception as error:  # noqa: BLE001 - PX-06: a failure is an event
        failure = error.failure if isinstance(error, _RefusedError) else _explain(error, proxy)
        reader.builder.fields["diagnostics"] = [failure.diagnostic()]
        last = reader.fail(proxy.without_secrets(failure.text))
    yield last


class _RefusedError(Exception):
    """Carry what a proxy said instead of a stream."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


async def _refusal(proxy: _Proxy, response: httpx2.Response) -> Failure | None:
    """Read why there is no stream; None if there is one (PX-03)."""
    status = response.status_code
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.is_success:
        if kind not in ("text/html", "application/json"):
            return None
        text = (
            f"{proxy.url} answered with {kind}, not with a stream of events (HTTP {status}). "
            "Check the proxy's address: requests go to <address>/api/stream."
        )
        return Failure(text=text, kind="unexpected", status=status)
    said = _error_field(await _beginning(response), proxy)
    if said is None:
        text = f"The proxy at {proxy.url} refused the request: {status} {response.reason_phrase}."
    else:
        text = f"The proxy refused the request (HTTP {status}): {said}"
    return Failure(
        text=text,
        kind=_kind_of(status),
        status=status,
        retry_after=wait_wanted(response.headers),
        should_retry=retry_wanted(response.headers),
    )


async def _beginning(response: httpx2.Response) -> bytes:
    """Read a body as far as a refusal needs it: so much of it, and so long."""
    import anyio

    body = bytearray()
    pieces = response.aiter_raw()  # unpacked, a small piece may be gigabytes
    with anyio.move_on_after(_REFUSAL_SECONDS):
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    body += piece
                    if len(body) > _MAX_REFUSAL:
                        break
        except _http_error():
            pass  # the status is known all the same
    if response.headers.get("content-encoding", "").strip().lower() not in ("gzip", "deflate"):
        return bytes(body[:_MAX_REFUSAL])
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, _MAX_REFUSAL)
    except zlib.error:
        return b""


def _error_field(body: bytes, proxy: _Proxy) -> str | None:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error: Any = cast("dict[str, Any]", value).get("error") if isinstance(value, dict) else None
    if isinstance(error, dict):
        error = cast("dict[str, Any]", error).get("message")
    if not isinstance(error, str) or not error.strip():
        return None
    error = proxy.without_secrets(error)  # before it is cut: half of a token is one too
    return error if len(error) <= _MAX_DETAIL else error[: _MAX_DETAIL - 1] + "…"


def _kind_of(status: int) -> Kind:
    match status:
        case 401 | 403:
            return "auth"
        case 429:
            return "rate_limit"
        case 503 | 529:
            return "overloaded"
        case _:
            return "server" if status >= 500 else "invalid_request"


def _explain(error: Exception, proxy: _Proxy) -> Failure:
    """Describe what kept a request from being answered, or its answer from being read."""
    import httpx2

    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            text = (
                f"Cannot reach the proxy at {proxy.url} ({error_text(error)}). Is its server "
                f"running, and is {PROXY_URL_VARIABLE} its address?"
            )
            return Failure(text=text, kind="connection")
        case httpx2.TimeoutException():
            text = (
                f"The proxy at {proxy.url} sent nothing for {proxy.idle_timeout:g} s. Its server "
                "may be overloaded: try again."
            )
            return Failure(text=text, kind="timeout")
        case httpx2.UnsupportedProtocol() | httpx2.InvalidURL():
            text = f"The proxy's address {proxy.url!r} is no http or https address."
            return Failure(text=text, kind="setup")
        case httpx2.TransportError():
            text = (
                f"The connection to the proxy at {proxy.url} closed early "
                f"({error_text(error)}). Try again."
            )
            return Failure(text=text, kind="connection")
        case TypeError() | ValueError():
            text = f"The request cannot be sent to the proxy: {error_text(error)}"
            return Failure(text=text, kind="invalid_request")
        case _:
            text = f"The request to the proxy failed: {type(error).__name__}: {error_text(error)}"
            return Failure(text=text, kind="unknown")


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read on to the end of the body, if it comes soon: then the connection can be used again."""
    import anyio

    with anyio.move_on_after(_DRAIN_SECONDS):
        async for _ in chunks:
            pass


def _http_error() -> type[Exception]:
    import httpx2

    return httpx2.TransportError


async def _load_client() -> None:
    """Import the HTTP client without blocking the loop."""
    import sys

    if "httpx2" not in sys.modules:
        from importlib import import_module

        import anyio.to_thread

        await anyio.to_thread.run_sync(import_module, "httpx2", abandon_on_cancel=True)
