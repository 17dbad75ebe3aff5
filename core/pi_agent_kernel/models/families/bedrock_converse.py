"""Amazon Bedrock's ConverseStream format.

boto3 knows the requests, the endpoints and the credentials, but it sends in threads that nothing
can interrupt. So it only prepares a request here; the HTTP client all providers share sends it,
with the same limits, callbacks and abort, and AWS's frames are read from its answer.
"""

# boto3 and what pydantic-ai makes of it have no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread

from pi_agent_kernel.models.error_kinds import ReplyError, kind_of
from pi_agent_kernel.models.families.token_counts import whole_counts
from pi_agent_kernel.models.headers import check_headers
from pi_agent_kernel.models.provider_http import CONNECT_TIMEOUT, current_exchange
from pi_agent_kernel.models.provider_words import WEB_PAGE, is_web_page, json_of
from pi_agent_kernel.models.retry_headers import wait_wanted

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2
    from pydantic_ai.messages import ModelResponseStreamEvent
    from pydantic_ai.models.bedrock import BedrockConverseModel

    from pi_agent_kernel.models.families import Reach
    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["build_model", "settings_for", "thinking_settings"]

#: Counts that every report of usage has.
_COUNTS = ("inputTokens", "outputTokens", "totalTokens")
_FRAMES = "application/vnd.amazon.eventstream"


def build_model(reach: Reach) -> BedrockConverseModel:
    """Build pydantic-ai's model."""
    from pydantic_ai.providers.bedrock import BedrockProvider

    sender = _Sender(reach)
    provider = BedrockProvider(bedrock_client=sender.preparing)
    model = _model_class()(reach.name, provider=provider)
    model.sender = sender
    return model


def settings_for(model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
    """Return the settings that only this format has: what to cache, where the model can."""
    del model, options, reach
    return {"cache": True}


def thinking_settings(thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return how hard to think; older Claude models take a budget."""
    if thinking.level == "off":
        return {"thinking": False}
    wants_budget = profile.get("bedrock_thinking_variant") == "anthropic" and not profile.get(
        "bedrock_supports_adaptive_thinking"
    )
    if not wants_budget:
        return {"thinking": thinking.level}
    budget = thinking.tokens(least=1024)
    field = {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return {"bedrock_additional_model_requests_fields": field} if budget else {}


class _Sender:
    """Send what boto3 prepared, with a key or signed."""

    def __init__(self, reach: Reach) -> None:
        import boto3
        import botocore
        from botocore.config import Config
        from botocore.exceptions import NoRegionError

        def given(name: str) -> str | None:
            return reach.env.get(name, "").strip() or None

        self._key = reach.key
        self._http = reach.client
        session: Any = boto3.Session(
            aws_access_key_id=given("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=given("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=given("AWS_SESSION_TOKEN"),
            profile_name=given("AWS_PROFILE"),
            region_name=given("AWS_REGION") or given("AWS_DEFAULT_REGION"),
        )
        self._region: str = session.region_name or ""
        if not self._region and reach.base_url:
            self._region = "us-east-1"  # a server of one's own is in no region
        self._credentials: Any = None if self._key else session.get_credentials()
        if not (self._key or self._credentials or reach.base_url):
            raise ReplyError(
                "There are no AWS credentials for Amazon Bedrock. Set AWS_BEARER_TOKEN_BEDROCK, "
                "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.",
                "auth",
            )
        unsigned = Config(
            signature_version=botocore.UNSIGNED,
            connect_timeout=CONNECT_TIMEOUT,
            retries={"total_max_attempts": 1},
        )
        try:
            #: A boto3 client that never sends: an answer is put in its way.
            self.preparing: Any = session.client(
                "bedrock-runtime",
                config=unsigned,
                endpoint_url=reach.base_url or None,
                region_name=self._region or None,
            )
        except NoRegionError as error:
            raise ReplyError(
                "Amazon Bedrock needs a region. Set AWS_REGION, for example to us-east-1.", "setup"
            ) from error
        self.preparing.meta.events.register("before-call.bedrock-runtime", _hold_back)

    async def send(self, prepared: dict[str, Any]) -> httpx2.Response:
        """Send a prepared request; return the answer, its body unread.

        Raises:
            ReplyError: The server refused it, or answered with something else than frames.
        """
        headers = {name: _header(value) for name, value in prepared["headers"].items()}
        request = self._http.build_request(
            prepared["method"], prepared["url"], headers=headers, content=prepared["body"]
        )
        auth = await self._auth()
        response = await self._http.send(request, auth=auth, stream=True)
        try:
            if 300 <= response.status_code < 400:
                raise ReplyError(
                    f"it answered with a redirection (HTTP {response.status_code})",
                    "unexpected",
                    told=True,
                    status=response.status_code,
                )
            if response.status_code >= 400:
                raise _refusal(response.status_code, await response.aread(), response.headers)
        except BaseException:
            await response.aclose()
            raise
        return response

    async def _auth(self) -> Any:
        import httpx2

        if self._key:
            bearer = {"authorization": f"Bearer {self._key}"}
            return _signing(lambda request: request.headers.update(bearer))
        if self._credentials is None:
            return httpx2.Auth()
        # Temporary credentials are fetched anew when they expire, over the network.
        frozen = await anyio.to_thread.run_sync(
            self._credentials.get_frozen_credentials, abandon_on_cancel=True
        )
        return _signing(partial(_sign, credentials=frozen, region=self._region))


def _header(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _hold_back(params: dict[str, Any], **_: Any) -> Any:
    """Give boto3 an answer before it sends: the request itself."""
    return SimpleNamespace(status_code=200), {"ResponseMetadata": {}, "stream": params}


def _signing(sign: Any) -> Any:
    import httpx2

    class Signing(httpx2.Auth):
        """Sign what is really sent: callbacks may have replaced the payload."""

        def auth_flow(
            self, request: httpx2.Request
        ) -> Generator[httpx2.Request, httpx2.Response, None]:
            sign(request)
            check_headers(request.headers.multi_items())
            yield request

    return Signing()


def _sign(request: httpx2.Request, *, credentials: Any, region: str) -> None:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    signed: Any = AWSRequest(
        method=request.method,
        url=str(request.url),
        data=request.content,
        headers={"Content-Type": request.headers.get("content-type", "application/json")},
    )
    SigV4Auth(credentials, "bedrock", region).add_auth(signed)
    for name, value in signed.headers.items():
        request.headers[name] = value


def _refusal(status: int | None, body: bytes, headers: Mapping[str, str]) -> ReplyError:
    """Return the error of a refused request, or of an exception among the frames."""
    said: Any = json_of(body)
    if said is None:
        said = body.decode(errors="replace").strip()
    message = said
    if isinstance(said, dict):
        fields = cast("dict[str, Any]", said)
        inner: Any = fields.get("error")  # as gateways word it
        fields = cast("dict[str, Any]", inner) if isinstance(inner, dict) else fields
        message = fields.get("message") or fields.get("Message") or ""
    code = headers.get("x-amzn-errortype") or headers.get(":exception-type") or ""
    code = code or headers.get(":error-code") or ""
    message = message or headers.get(":error-message") or ""
    code = code.partition(":")[0].rpartition("#")[2]
    text = str(message)
    if is_web_page(text):
        text = WEB_PAGE
    return ReplyError(
        f"{code}: {text}" if code and text else code or text or "no reason given",
        kind_of(f"{code} {text}", status, otherwise="server"),
        told=True,
        status=status,
        retry_after=wait_wanted(headers),
    )


class _Events:
    """Read AWS's frames from an answer."""

    def __init__(self, response: httpx2.Response) -> None:
        from botocore.eventstream import EventStreamBuffer

        self.response = response
        self._exchange = current_exchange.get()
        self._buffer: Any = EventStreamBuffer()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        from botocore.eventstream import ParserError

        exchange = self._exchange
        async for piece in self.response.aiter_bytes():
            self._buffer.add_data(piece)
            try:
                frames = list(self._buffer)
            except ParserError as error:
                raise ReplyError(str(error), "unexpected", told=True) from error
            for frame in frames:
                event = self._event(frame)
                if exchange is not None and exchange.watches_events:
                    await exchange.show(json.loads(json.dumps(event)))
                yield _with_bytes(event)

    @staticmethod
    def _event(frame: Any) -> dict[str, Any]:
        headers: dict[str, str] = frame.headers
        if headers.get(":message-type") != "event":
            raise _refusal(None, frame.payload, headers)
        event: dict[str, Any] = {headers[":event-type"]: json.loads(frame.payload)}
        usage = event.get("metadata", {}).get("usage")
        if usage is not None:
            event["metadata"]["usage"] = whole_counts(usage, always=_COUNTS) or {}
        return event


def _with_bytes(event: dict[str, Any]) -> dict[str, Any]:
    """Decode the one field that is bytes to pydantic-ai."""
    delta = event.get("contentBlockDelta", {}).get("delta", {})
    hidden = delta.get("reasoningContent", {}).get("redactedContent")
    if hidden is not None:
        delta["reasoningContent"]["redactedContent"] = base64.b64decode(hidden)
    return event


@cache
def _model_class() -> Any:
    from pydantic_ai.models.bedrock import BedrockConverseModel, BedrockStreamedResponse

    @dataclass
    class FrameStream(BedrockStreamedResponse):
        async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
            async for chunk in cast("_Events", self._event_stream):
                for event in self._map_chunk(cast("Any", chunk)):
                    yield event

        async def close_stream(self) -> None:
            await cast("_Events", self._event_stream).response.aclose()

        def get_stream_cancel_errors(self) -> tuple[type[BaseException], ...]:
            import httpx2

            return (httpx2.StreamError, httpx2.TransportError)

    class SentModel(BedrockConverseModel):
        sender: _Sender

        @asynccontextmanager
        async def request_stream(
            self,
            messages: Any,
            model_settings: Any,
            model_request_parameters: Any,
            run_context: Any = None,
        ) -> AsyncGenerator[FrameStream]:
            del run_context
            settings, parameters = self.prepare_request(model_settings, model_request_parameters)
            prepared: Any = await self._messages_create(
                messages,
                stream=True,
                model_settings=cast("Any", settings or {}),
                model_request_parameters=parameters,
            )
            response = await self.sender.send(prepared["stream"])
            try:
                stream = FrameStream(
                    model_request_parameters=parameters,
                    _model_name=self.model_name,
                    _model_profile=cast("Any", self.profile),
                    _event_stream=cast("Any", _Events(response)),
                    _provider_name=self._provider.name,
                    _model_id_namespace=self._provider.model_id_namespace,
                    _provider_url=self.base_url,
                    _provider_response_id=response.headers.get("x-amzn-requestid"),
                )
                stream.canonical_system = self._canonical_system_stamp
                yield stream
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                    await response.aclose()

    return SentModel
