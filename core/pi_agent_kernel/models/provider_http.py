"""One HTTP client per event loop for all providers, and a view of the request it carries.

Building a client costs 80 ms (it loads certificates), and one made on another loop cannot be
used, so each loop keeps its own. It lives in an async generator: the loop closes that when it
ends, and with it every connection, so nothing is left open. Callbacks of one request reach the
client through a context variable, because nothing between here and there would pass them on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.lowlevel import RunVar

from pi_agent_kernel.models.error_bodies import ACCEPTED, is_page_or_failure, with_short_body
from pi_agent_kernel.models.error_kinds import ReplyError
from pi_agent_kernel.models.headers import check_headers
from pi_agent_kernel.models.server_events import ServerEvents

if TYPE_CHECKING:
    import httpx2

    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["CONNECT_TIMEOUT", "Exchange", "current_exchange", "loop_cache", "shared_client"]

CONNECT_TIMEOUT = 10.0  # seconds
_TAIL = 32  # bytes of a stream
_BODY = 4000  # bytes of something else
#: A proxy that the environment names has no way to this machine's own servers.
_DIRECT = {"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None}


class Exchange:
    """Observe the HTTP request of one model request (CO-10)."""

    def __init__(self, model: Model, options: StreamOptions) -> None:
        self.model = model
        self.options = options
        #: Headers to send beside the request's own.
        self.added: dict[str, str] = {}
        #: Of the last response: HTTP status, content type and all headers.
        self.status: int | None = None
        self.content_type: str = ""
        self.headers: Mapping[str, str] = {}
        #: The last bytes of the body so far; more of them if it is no stream.
        self.tail: bytes = b""
        #: A callback that raised, by its name, and what it raised.
        self.raised: tuple[str, Exception] | None = None
        #: Why the request was not sent.
        self.refused: ReplyError | None = None

    @property
    def watches_events(self) -> bool:
        """Whether somebody wants to see the provider's events."""
        return self.options.on_provider_stream_event is not None

    async def before(self, request: httpx2.Request) -> httpx2.Request:
        """Show the payload to `on_payload`; return the request with its replacement, if any."""
        # What an earlier attempt got says nothing of this one.
        self.status, self.content_type, self.headers, self.tail = None, "", {}, b""
        request.headers.update(self.added)
        # Events are read in passing; of packed errors only the beginning is unpacked.
        request.headers["accept-encoding"] = "identity" if self.watches_events else ACCEPTED
        try:
            check_headers(request.headers.multi_items())
        except ReplyError as error:
            self.refused = error  # on its way the SDK may take it for a failed connection
            raise
        if self.options.on_payload is None:
            return request
        payload = json.loads(request.content)
        replaced = await self._call("on_payload", self.options.on_payload, payload)
        if replaced is None:
            return request
        try:
            content = json.dumps(replaced, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            self.refused = ReplyError(
                f"on_payload returned what is no JSON ({error}), so nothing was sent. Return the "
                "changed payload, or None to leave it as it is.",
                "setup",
            )
            raise self.refused from error
        headers = [(k, v) for k, v in request.headers.items() if k.lower() != "content-length"]
        return type(request)(
            request.method,
            request.url,
            headers=headers,
            content=content,
            extensions=request.extensions,
        )

    async def after(self, response: httpx2.Response) -> None:
        """Note the response and show it to `on_response`, before its body is read."""
        self.status = response.status_code
        self.headers = dict(response.headers)
        self.content_type: str = response.headers.get("content-type", "").partition(";")[0].strip()
        if self.options.on_response is not None:
            seen = {"status": response.status_code, "headers": dict(response.headers)}
            await self._call("on_response", self.options.on_response, seen)

    async def show(self, event: object) -> None:
        """Show one of the provider's own events to `on_provider_stream_event`."""
        callback = self.options.on_provider_stream_event
        if callback is not None:
            await self._call("on_provider_stream_event", callback, event)

    async def _call(self, name: str, callback: Callable[..., Any], seen: object) -> Any:
        try:
            result = callback(seen, self.model)
            if isinstance(result, Awaitable):
                return await cast("Awaitable[Any]", result)
        except Exception as error:
            self.raised = name, error  # as above
            raise
        return result


#: The request being opened in this context.
current_exchange: ContextVar[Exchange | None] = ContextVar("current_exchange", default=None)

_loop_caches: RunVar[dict[Any, Any]] = RunVar("pi_agent_kernel.models")


def loop_cache() -> dict[Any, Any]:
    """Return what this event loop keeps between requests."""
    try:
        return _loop_caches.get()
    except LookupError:
        cache: dict[Any, Any] = {}
        _loop_caches.set(cache)
        return cache


async def shared_client(idle_timeout: float, library: str = "httpx2") -> httpx2.AsyncClient:
    """Return this event loop's client.

    Args:
        idle_timeout: Seconds without a byte from the server after which a request fails; also
            the longest wait for the headers of an answer.
        library: Whose client: "httpx2" or its forerunner "httpx", which has the same interface.
    """
    cache = loop_cache()
    key = ("client", library, idle_timeout)
    if key not in cache:
        lifetime = _lifetime(idle_timeout, library)
        cache[key] = (await anext(lifetime), lifetime)
    return cache[key][0]


async def _lifetime(idle_timeout: float, library: str) -> AsyncGenerator[httpx2.AsyncClient, None]:
    client = _build(idle_timeout, import_module(library))
    try:
        yield client
    finally:
        with anyio.CancelScope(shield=True):
            await client.aclose()


def _build(idle_timeout: float, http: Any) -> httpx2.AsyncClient:
    class PassingStream(http.AsyncByteStream):
        """Look at a body as it passes by: at its end, and at its events if somebody asks."""

        def __init__(self, body: Any, exchange: Exchange) -> None:
            self._body = body
            self._pieces = aiter(body)
            self._exchange = exchange
            streams = exchange.content_type == "text/event-stream"
            self._kept = _TAIL if streams else _BODY
            self._events = ServerEvents() if streams and exchange.watches_events else None

        def __aiter__(self) -> PassingStream:
            return self

        async def __anext__(self) -> bytes:
            exchange, events = self._exchange, self._events
            try:
                piece: bytes = await anext(self._pieces)
            except StopAsyncIteration:
                for event in events.end() if events else ():
                    await exchange.show(event)
                raise
            exchange.tail = (exchange.tail + piece[-self._kept :])[-self._kept :]
            for event in events.feed(piece) if events else ():
                await exchange.show(event)
            return piece

        async def aclose(self) -> None:
            await self._body.aclose()

    class ObservedClient(http.AsyncClient):
        async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
            plain: Any = super()
            exchange = current_exchange.get()
            if exchange is None:
                return await plain.send(request, **settings)
            request = await exchange.before(request)
            # Some SDKs put limits of their own, or none, in place of the client's.
            request.extensions = {**request.extensions, "timeout": timeout.as_dict()}
            response: Any = None
            with anyio.move_on_after(idle_timeout):
                response = await plain.send(request, **settings)
            if response is None:
                # A server that trickles its headers never trips the limit of a single read.
                raise http.ReadTimeout("no headers within the time limit", request=request)
            try:
                await exchange.after(response)
            except BaseException:
                await response.aclose()
                raise
            if not response.is_closed and is_page_or_failure(response):
                return await with_short_body(response, idle_timeout, broken)
            if not response.is_closed:
                response.stream = PassingStream(response.stream, exchange)
            return response

    broken = (http.TransportError, http.StreamError)
    timeout = http.Timeout(
        idle_timeout, connect=min(CONNECT_TIMEOUT, idle_timeout), pool=CONNECT_TIMEOUT
    )
    client = ObservedClient(
        timeout=timeout,
        limits=http.Limits(max_keepalive_connections=20),
        mounts=_DIRECT,
        # One client serves all keys and servers: what one was told is never for another.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
    )
    return cast("httpx2.AsyncClient", client)
