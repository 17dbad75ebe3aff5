"""The two addresses of the extension: `pi/api/stream` and `pi/api/models`."""

from __future__ import annotations

import inspect
import json
import re
import time
import traceback
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http.client import responses
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.auth.identity import User
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.events import AssistantMessageEvent, StreamDone, StreamError
from pi_agent_kernel.messages import ZERO_USAGE
from pi_agent_kernel.models.proxy_protocol import (
    KEEP_ALIVE,
    ProxyRequest,
    decode_proxy_request,
    encode_proxy_event,
)
from pi_agent_kernel.request import StreamOptions
from pi_agent_kernel.response import ResponseBuilder
from tornado import web
from tornado.iostream import StreamClosedError

from pi_notebook.server.allowed import AllowedModels, RefusedError
from pi_notebook.server.kernels import KernelTokens, equip_kernels, user_name
from pi_notebook.server.limits import Limits, Visit
from pi_notebook.server.model_loops import ModelLoops

if TYPE_CHECKING:
    from pi_agent_kernel.models.catalog import ChosenModel

    from pi_notebook.server.settings import PiServer

__all__ = ["Proxy", "serve"]

KEEP_ALIVE_SECONDS = 15.0
#: How long a client may take to read what was sent before it counts as gone.
READ_SECONDS = 60.0
#: A body of up to so many times the limit is read and dropped, so that its client hears why.
_DRAINED = 4
_READERS = 4  # threads
_CHARACTERS_PER_TOKEN = 4  # of an estimate, where a response broke off before its usage came
# What a client may decide; the rest, headers above all, is the server's business.
_CLIENT_OPTIONS = (
    *("temperature", "max_tokens", "reasoning", "session_id", "thinking_budgets"),
    "max_retry_delay_ms",
)
_BEARER = re.compile(r"(?:bearer|token)\s+(\S+)\s*", re.IGNORECASE)


class Proxy:
    """Hold what the routes share."""

    def __init__(self, settings: PiServer) -> None:
        self.models = AllowedModels(settings.models, settings.keys, settings.addresses)
        if settings.default_model and not self.models.allows(settings.default_model):
            raise ValueError(
                f"c.PiServer.default_model: {settings.default_model!r} is not one of "
                f"c.PiServer.models, {', '.join(self.models.patterns)}."
            )
        self.limits = Limits(
            requests_per_minute=settings.requests_per_minute,
            tokens_per_day=settings.tokens_per_day,
            concurrent_streams=settings.concurrent_streams,
        )
        self.tokens = KernelTokens()
        self.max_body_bytes: int = settings.max_body_bytes
        self.loops = ModelLoops()
        #: Threads that read requests; those of Jupyter Server stay free for its own work.
        self.readers = anyio.CapacityLimiter(_READERS)


def serve(serverapp: Any, settings: PiServer) -> None:
    """Add the routes to a server and equip the kernels that it will start.

    Args:
        serverapp: The running `ServerApp`.
        settings: Its configuration, with at least one model.

    Raises:
        ValueError: As `AllowedModels`, or the default model is not allowed.
    """
    proxy = Proxy(settings)
    base = url_path_join(serverapp.web_app.settings["base_url"], "pi", "api")
    routes = [
        (url_path_join(base, "stream"), StreamRoute, {"proxy": proxy}),
        (url_path_join(base, "models"), ModelsRoute, {"proxy": proxy}),
    ]
    serverapp.web_app.add_handlers(".*$", routes)
    equip_kernels(
        serverapp,
        proxy.tokens,
        proxy.models.secret_variables,
        url=settings.url,
        default_model=settings.default_model,
    )
    serverapp.log.info("pi_notebook.server: models %s", ", ".join(proxy.models.patterns))


class _Route(APIHandler):
    """Know who asks: a kernel by its token, anyone else as Jupyter Server knows them."""

    auth_resource = "pi"
    proxy: Proxy
    user = ""

    def initialize(self, proxy: Proxy) -> None:
        self.proxy = proxy

    async def prepare(self) -> None:
        name = self.proxy.tokens.user_of(self._bearer() or "")
        if name is None:
            await super().prepare()
            if self.current_user:
                self.user = user_name(self)
        elif not self.check_host():
            raise web.HTTPError(403)
        else:
            self.current_user = self._jupyter_current_user = User(username=name or "unnamed")
            self.user = name

    def _bearer(self) -> str | None:
        found = _BEARER.fullmatch(self.request.headers.get("Authorization", ""))
        return found[1] if found else None

    def check_xsrf_cookie(self) -> None:
        """Ask for the XSRF token unless the request carries a bearer token.

        No page of another site can add that header: the answer to its preflight allows nothing.
        """
        if not hasattr(self, "_jupyter_current_user") or (self.current_user and self._bearer()):
            return  # not known yet, comes again; or safe
        if not self.check_origin():
            raise web.HTTPError(403, "Requests from another origin are not allowed.")
        web.RequestHandler.check_xsrf_cookie(self)

    def set_default_headers(self) -> None:
        super().set_default_headers()
        for name in ("Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"):
            self.clear_header(name)

    def set_cors_headers(self) -> None:
        """Allow no other origin, whatever the server allows elsewhere."""

    def options(self, *_: Any, **__: Any) -> None:
        raise web.HTTPError(405)

    def refuse(self, refusal: RefusedError) -> None:
        """Answer with an error; nothing of it is logged."""
        self.set_status(refusal.status)
        if refusal.retry_after is not None:
            self.set_header("Retry-After", str(round(refusal.retry_after)))
        self.finish(json.dumps({"error": refusal.text}))

    def write_error(self, status_code: int, **about: Any) -> None:
        error = about.get("exc_info", (None, None))[1]
        text = getattr(error, "log_message", None) or responses.get(status_code, "Error")
        if status_code == 403 and not self.current_user:
            text = (
                "This server does not know you: send its token, or the kernel's "
                "PI_NOTEBOOK_PROXY_TOKEN, as 'Authorization: Bearer TOKEN'. A kernel that was "
                "started before the server has to be restarted."
            )
        self.finish(json.dumps({"error": text}))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Say where it failed, not with what: that may be a prompt."""
        if isinstance(value, web.HTTPError):
            super().log_exception(typ, value, tb)
        else:
            frame = traceback.extract_tb(tb)[-1]
            self.log.error("pi: %s at %s:%s", typ.__name__, frame.filename, frame.lineno)


class ModelsRoute(_Route):
    """`GET pi/api/models`: what may be used."""

    @web.authenticated
    @authorized
    def get(self) -> None:
        listing = {
            "models": self.proxy.models.listing(),
            "limits": self.proxy.limits.describe(),
        }
        self.finish(json.dumps(listing))


@web.stream_request_body
class StreamRoute(_Route):
    """`POST pi/api/stream`: ask a model."""

    def initialize(self, proxy: Proxy) -> None:
        super().initialize(proxy)
        self._body = bytearray()
        self._refused: web.HTTPError | RefusedError | None = None
        self._abort = AbortController()
        self._sent_at = 0.0
        self._sending = anyio.Lock()  # of two writes at a time only the second is waited for

    async def prepare(self) -> None:
        limit = self.proxy.max_body_bytes
        connection: Any = self.request.connection
        connection.set_max_body_size(_DRAINED * limit)
        try:
            await super().prepare()
        except web.HTTPError as error:
            # Told in `post`: a client that is still sending would not hear it.
            self._refused = error
        length = self.request.headers.get("Content-Length", "")
        if length.isdigit() and int(length) > _DRAINED * limit:
            self.refuse(self._too_large())

    def data_received(self, chunk: bytes) -> None:
        if self._refused is None and self.current_user:  # nothing is kept for strangers
            self._body += chunk
            if len(self._body) > self.proxy.max_body_bytes:
                self._refused = self._too_large()
                self._body.clear()

    def _too_large(self) -> RefusedError:
        limit = self.proxy.max_body_bytes
        return RefusedError(413, f"The request is too large: this server takes {limit:,} bytes.")

    def on_connection_close(self) -> None:
        self._abort.abort("The client has left")

    async def post(self) -> None:
        if isinstance(self._refused, RefusedError):
            self.refuse(self._refused)
        elif self._refused is not None:
            raise self._refused
        else:
            answered: Any = self._ask()
            await answered

    @web.authenticated
    @authorized
    async def _ask(self) -> None:
        try:
            # Whoever asks is counted before anything is done for them, also for what is no request.
            with self.proxy.limits.visit(self.user) as visit:
                # Reading takes seconds for a large body, and describing a model may load a table
                # of prices: the server has other things to do meanwhile.
                request, chosen = await anyio.to_thread.run_sync(
                    self._understand, limiter=self.proxy.readers
                )
                await self._answer(request, chosen, visit)
        except RefusedError as refusal:
            self.refuse(refusal)

    def _understand(self) -> tuple[ProxyRequest, ChosenModel]:
        """Read the request and find its model; called in a worker thread."""
        try:
            request = decode_proxy_request(bytes(self._body))
        except ValueError as error:
            raise RefusedError(400, self.proxy.models.without_secrets(str(error))) from None
        return request, self.proxy.models.choose(request.model)

    async def _answer(self, request: ProxyRequest, chosen: ChosenModel, visit: Visit) -> None:
        """Stream the response, count it and log it."""
        began = time.monotonic()
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Accel-Buffering", "no")
        await self._send(b"")
        streamed = 0
        last: StreamDone | StreamError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_alive)
                events = self.proxy.loops.stream(self.user, lambda: self._events(request, chosen))
                async with aclosing(events):
                    async for event in events:
                        streamed += len(getattr(event, "delta", ""))
                        if last is not None:
                            continue  # nothing follows the last event (MD-03)
                        if isinstance(event, (StreamDone, StreamError)):
                            last = event
                        await self._send(self._encoded(event))
                tasks.cancel_scope.cancel()
        finally:
            usage = ZERO_USAGE if last is None else last.message.usage
            tokens = max(0, usage.total_tokens)
            if not isinstance(last, StreamDone) and (streamed or self._abort.signal.aborted):
                # Whoever leaves has used the model all the same, and what a provider says before
                # the end leaves out the most of it.
                tokens = max(tokens, (len(self._body) + streamed) // _CHARACTERS_PER_TOKEN)
            elif not tokens and streamed:
                tokens = (len(self._body) + streamed) // _CHARACTERS_PER_TOKEN
            visit.tokens = tokens
        self.log.info(
            "pi: user=%r model=%s:%s tokens=%d cost=%.6f stop=%s seconds=%.2f",
            *(self.user, chosen.model.provider, chosen.model.id, tokens, usage.cost.total),
            *(last.reason if last else "none", time.monotonic() - began),
        )

    async def _events(
        self, request: ProxyRequest, chosen: ChosenModel
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        """Ask the model; what its stream function raises becomes an error event (MD-01)."""
        options = StreamOptions(
            signal=self._abort.signal,
            **{name: getattr(request.options, name) for name in _CLIENT_OPTIONS},
        )
        try:
            events: Any = chosen.stream_fn(chosen.model, request.context, options)
            if inspect.isawaitable(events):
                events = await events
            async for event in events:
                yield event
        except Exception as error:  # noqa: BLE001 - the client must be told
            name = type(error).__name__  # no more of it: that may be a prompt
            self.log.error("pi: the model's stream raised %s", name)  # noqa: TRY400
            model = chosen.model
            failed = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
            yield failed.error("The server failed to ask the model; its log has more.")

    def _encoded(self, event: AssistantMessageEvent) -> bytes:
        if isinstance(event, StreamError):
            error = event.error
            hidden = self.proxy.models.hidden
            error = msgspec.structs.replace(
                error,
                error_message=hidden(error.error_message),
                diagnostics=hidden(error.diagnostics),
            )
            event = msgspec.structs.replace(event, error=error)
        return encode_proxy_event(event)

    async def _send(self, data: bytes) -> None:
        """Put bytes on the wire; a client that is gone, or does not read, ends the request."""
        if self._abort.signal.aborted:
            return
        async with self._sending:
            self.write(data)
            self._sent_at = time.monotonic()
            try:
                with anyio.fail_after(READ_SECONDS):
                    await self.flush()
            except StreamClosedError:
                self._abort.abort("The client has left")
            except TimeoutError:
                self._abort.abort("The client does not read")
                connection: Any = self.request.connection
                connection.close()

    async def _keep_alive(self) -> None:
        """Let a client that waits for a slow model know that the server is there."""
        while True:
            await anyio.sleep(KEEP_ALIVE_SECONDS)
            if time.monotonic() - self._sent_at >= KEEP_ALIVE_SECONDS:
                await self._send(KEEP_ALIVE)
