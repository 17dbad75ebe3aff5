"""What went wrong with a request, in words that name the status and the remedy.

pydantic-ai classifies the errors of all providers; here each class gets one sentence of what
happened and one of what to do. The rest (status, wait) goes into the message's `diagnostics`,
where a retry can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pi_agent_kernel.errors import ContextOverflowError, ModelError
from pi_agent_kernel.messages import now_ms
from pi_agent_kernel.models.overflow import says_overflow
from pi_agent_kernel.models.retry_headers import retry_wanted, wait_wanted

if TYPE_CHECKING:
    from pi_agent_kernel.models.provider_http import Exchange

__all__ = ["Failure", "Place", "explain_failure"]

_MAX_DETAIL = 400  # characters of a provider's own words


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Say where a request went: what error texts name."""

    model: str
    base_url: str
    #: Environment variables with the key and the address.
    key_variable: str
    url_variable: str
    #: What to install for this provider.
    requirement: str
    idle_timeout: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a failed request."""

    text: str
    #: Class of error: "auth", "rate_limit", "quota", "connection" ...
    kind: str
    status: int | None = None
    retry_after: float | None = None
    #: What the server's headers say about trying again, if anything.
    should_retry: bool | None = None

    def diagnostic(self) -> dict[str, Any]:
        """Return the entry for `AssistantMessage.diagnostics`."""
        details: dict[str, Any] = {"kind": self.kind}
        if self.status is not None:
            details["status"] = self.status
        if self.retry_after is not None:
            details["retryAfterMs"] = round(self.retry_after * 1000)
        if self.should_retry is not None:
            details["shouldRetry"] = self.should_retry
        return {"type": "provider_error", "timestamp": now_ms(), "details": details}


def explain_failure(
    error: Exception, place: Place, exchange: Exchange | None = None, key: str | None = None
) -> Failure:
    """Describe an error of the adapter, of pydantic-ai or of the HTTP client.

    Args:
        error: What was raised.
        place: Where the request went.
        exchange: Its HTTP side, if it got that far.
        key: The API key, which must not show up in the text.
    """
    failure = _explain(error, place, exchange)
    notes = getattr(error, "__notes__", ())  # what `retry_provider_request` has to add
    failure = msgspec.structs.replace(
        failure,
        text=" ".join([failure.text, *notes]),
        should_retry=retry_wanted(_headers(error, exchange)),
    )
    if key and len(key) > 3 and key in failure.text:
        failure = msgspec.structs.replace(failure, text=failure.text.replace(key, "…"))
    return failure


def _explain(error: Exception, place: Place, exchange: Exchange | None) -> Failure:
    if isinstance(error, ModelError):
        return Failure(
            text=str(error),
            kind="context_overflow" if isinstance(error, ContextOverflowError) else "model",
            status=error.status,
            retry_after=error.retry_after,
        )
    if isinstance(error, ImportError):
        return Failure(
            text=f"The package for this model is not installed ({error}). Run: "
            f"pip install '{place.requirement}'",
            kind="not_installed",
        )
    from pydantic_ai import exceptions as kinds

    status = error.status_code if isinstance(error, kinds.ModelHTTPError) else None
    wait = wait_wanted(_headers(error, exchange))
    if wait is None and isinstance(error, kinds.ModelAPIError):
        wait = error.retry_after or None  # 0 is also what a date that has passed gives
    detail = _detail(error)
    server, name = place.base_url, place.model

    def failure(kind: str, happened: str, remedy: str) -> Failure:
        said = f" (HTTP {status})" if status is not None else ""
        said += f": {detail}" if detail else ""
        if said and said[-1] in ".!?":
            said = said[:-1]
        return Failure(
            text=f"{happened}{said}. {remedy}".strip(), kind=kind, status=status, retry_after=wait
        )

    other = kinds.ModelRateLimitError | kinds.ModelQuotaExceededError | kinds.ModelUnavailableError
    match error:
        case kinds.ModelAPIError() if isinstance(error, kinds.ModelContextWindowExceededError) or (
            not isinstance(error, other) and says_overflow(detail)
        ):
            return failure(
                "context_overflow",
                f"The request does not fit the context window of {name}",
                "Start a new conversation or send less.",
            )
        case kinds.ModelAuthenticationError():
            return failure(
                "auth",
                f"{server} refused the API key",
                f"Set {place.key_variable} to a key that is valid there and may use {name}.",
            )
        case kinds.ModelNotFoundError():
            return failure(
                "not_found",
                f"{server} does not know {name!r}",
                f"Check the model name, and that {place.url_variable} is the address of the API "
                "(it usually ends in /v1).",
            )
        case kinds.ModelQuotaExceededError():
            return failure(
                "quota",
                f"The account's quota or credit at {server} is used up",
                "Top it up or choose another model; trying again will not help.",
            )
        case kinds.ModelRateLimitError():
            again = f"in {wait:g} s" if wait is not None else "in a minute"
            return failure(
                "rate_limit",
                f"{server} is limiting the rate of requests",
                f"Try again {again}.",
            )
        case kinds.ModelUnavailableError():
            again = f"in {wait:g} s" if wait is not None else "in a moment"
            return failure("unavailable", f"{server} is overloaded", f"Try again {again}.")
        case kinds.ModelServerError():
            return failure(
                "server",
                f"{server} failed",
                "Try again; if it stays, look at the server's log or status page.",
            )
        case kinds.ModelRequestRejectedError():
            return failure(
                "rejected",
                f"{server} rejected the request",
                "Check that the model supports what was sent: tools, images, thinking level.",
            )
        case kinds.ModelTimeoutError() if error.phase != "connect":
            return failure(
                "timeout",
                f"{server} sent nothing for {place.idle_timeout:g} s",
                "The server may be overloaded or still loading the model: try again.",
            )
        case kinds.ModelConnectionError() if exchange and exchange.status:
            return failure(
                "connection",
                f"The connection to {server} broke off in the middle of the reply",
                "Try again.",
            )
        case kinds.ModelConnectionError() if error.phase in ("read", "write"):
            return failure(
                "connection",
                f"{server} closed the connection without an answer",
                "Try again; if it stays, look at the server's log.",
            )
        case kinds.ModelConnectionError():
            return failure(
                "connection",
                f"Cannot reach {server}",
                f"Is the server running? Start it, or set {place.url_variable} to its address.",
            )
        case kinds.UserError():
            return failure("setup", "The model cannot be used as it is set up", "")
        case kinds.UnexpectedModelBehavior():
            return _unexpected(error, place, exchange)
        case _:
            return failure("unknown", f"The request to {server} failed", "Try again.")


def _headers(error: Exception, exchange: Exchange | None) -> Mapping[str, str]:
    """Return the headers of the response that an error is about."""
    return getattr(error, "headers", None) or (exchange.headers if exchange else {})


def _unexpected(error: Exception, place: Place, exchange: Exchange | None) -> Failure:
    """Explain an answer that is no stream: another page, or nothing."""
    kind = exchange.content_type if exchange else ""
    if kind and kind != "text/event-stream":
        text = (
            f"{place.base_url} answered with {kind}, not with a stream of events (HTTP "
            f"{exchange.status if exchange else 200}). Check that {place.url_variable} is the "
            "address of the API (it usually ends in /v1) and that the server can stream."
        )
    else:
        text = (
            f"{place.base_url} sent a reply that cannot be read: {_detail(error)}. Try again; if "
            f"it stays, {place.model} may not work with this kind of request."
        )
    return Failure(text=text, kind="unexpected", status=exchange.status if exchange else None)


def _detail(error: Exception) -> str:
    """Return the provider's own words, shortened."""
    body: object = getattr(error, "body", None)
    for _ in range(2):  # {"error": {"message": ...}}, {"message": ...}, {"detail": ...}
        if isinstance(body, dict):
            fields = cast("dict[str, object]", body)
            body = next(
                (fields[name] for name in ("error", "message", "detail") if fields.get(name)), None
            )
    text = body if isinstance(body, str) else _raw(error)
    text = " ".join(text.split())
    if text.lower().startswith(("<!doctype", "<html")):
        return "it answered with a web page"
    return text if len(text) <= _MAX_DETAIL else text[: _MAX_DETAIL - 1] + "…"


def _raw(error: Exception) -> str:
    return str(getattr(error, "message", None) or error or type(error).__name__)
