"""One HTTP client per event loop for all providers, and a view of the request it carries.

Building a client costs 80 ms (it loads certificates), and one made on another loop cannot be
used, so each loop keeps its own. It lives in an async generator: the loop closes that when it
ends, and with it every connection, so nothing is left open. Callbacks of one request reach the
client through a context variable, because nothing between here and there would pass them on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.lowlevel import RunVar

if TYPE_CHECKING:
    import httpx2

    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["CONNECT_TIMEOUT", "Exchange", "current_exchange", "loop_cache", "shared_client"]

CONNECT_TIMEOUT = 10.0  # seconds
#: A proxy that the environment names has no way to this machine's own servers.
_DIRECT = {"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None}


class Exchange:
    """Observe the HTTP request of one model request (CO-10)."""

    def __init__(self, model: Model, options: StreamOptions) -> None:
        self.model = model
        self.options = options
        #: Of the last response: HTTP status, content type and all headers.
        self.status: int | None = None
        self.content_type = ""
        self.headers: Mapping[str, str] = {}

    async def before(self, request: httpx2.Request) -> httpx2.Request:
        """Show the payload to `on_payload`; return the request with its replacement, if any."""
        import httpx2

        # What an earlier attempt got says nothing of this one.
        self.status, self.content_type, self.headers = None, "", {}
        if self.options.on_payload is None:
            return request
        payload = json.loads(request.content)
        replaced = await _settled(self.options.on_payload(payload, self.model))
        if replaced is None:
            return request
        headers = [(k, v) for k, v in request.headers.items() if k.lower() != "content-length"]
        return httpx2.Request(
            request.method,
            request.url,
            headers=headers,
            content=json.dumps(replaced).encode(),
            extensions=request.extensions,
        )

    async def after(self, response: httpx2.Response) -> None:
        """Note the response and show it to `on_response`, before its body is read."""
        self.status = response.status_code
        self.headers = dict(response.headers)
        self.content_type: str = response.headers.get("content-type", "").partition(";")[0].strip()
        if self.options.on_response is not None:
            seen = {"status": response.status_code, "headers": dict(response.headers)}
            await _settled(self.options.on_response(seen, self.model))


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


async def shared_client(idle_timeout: float) -> httpx2.AsyncClient:
    """Return this event loop's client.

    Args:
        idle_timeout: Seconds without a byte from the server after which a request fails.
    """
    cache = loop_cache()
    key = ("client", idle_timeout)
    if key not in cache:
        lifetime = _lifetime(idle_timeout)
        cache[key] = (await anext(lifetime), lifetime)
    return cache[key][0]


async def _lifetime(idle_timeout: float) -> AsyncGenerator[httpx2.AsyncClient, None]:
    client = _build(idle_timeout)
    try:
        yield client
    finally:
        with anyio.CancelScope(shield=True):
            await client.aclose()


def _build(idle_timeout: float) -> httpx2.AsyncClient:
    import httpx2

    class ObservedClient(httpx2.AsyncClient):
        async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
            exchange = current_exchange.get()
            if exchange is None:
                return await super().send(request, **settings)
            response = await super().send(await exchange.before(request), **settings)
            try:
                await exchange.after(response)
            except BaseException:
                await response.aclose()
                raise
            return response

    timeout = httpx2.Timeout(idle_timeout, connect=CONNECT_TIMEOUT)
    return ObservedClient(
        timeout=timeout, limits=httpx2.Limits(max_keepalive_connections=20), mounts=_DIRECT
    )


async def _settled(value: Any) -> Any:
    if isinstance(value, Awaitable):
        return await cast("Awaitable[Any]", value)
    return value
