"""What went wrong with a request, in words that name the status and the remedy.

Every failure has one of the kinds of `error_kinds`, one sentence of what happened and one of what
to do. The rest (kind, status, wait) goes into the message's `diagnostics`, where a retry can read
it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from pi_agent_kernel.errors import ContextOverflowError, ModelError, error_text
from pi_agent_kernel.messages import now_ms
from pi_agent_kernel.models.error_kinds import Kind, ReplyError, kind_of, told_by_server
from pi_agent_kernel.models.overflow import says_overflow
from pi_agent_kernel.models.provider_words import (
    WEB_PAGE,
    clean,
    is_web_page,
    json_of,
    own_words,
    raw_words,
)
from pi_agent_kernel.models.retry_headers import retry_wanted, wait_wanted
from pi_agent_kernel.secrecy import Secrets, shown_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pi_agent_kernel.models.provider_http import Exchange

__all__ = ["Failure", "Place", "explain_failure"]

#: What reading something else than a reply of the format ends as.
_UNREADABLE = (
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
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
    #: How the address of such an API ends; empty if it has no path.
    address_end: str = ""
    #: What must not be shown, whoever says it.
    secrets: Secrets = msgspec.field(default_factory=Secrets)

    @property
    def check_address(self) -> str:
        """What to look at if something else than the API seems to answer."""
        end = f" (it usually ends in {self.address_end})" if self.address_end else ""
        return f"that {self.url_variable} is the address of the API{end}"

    @property
    def server(self) -> str:
        """The address as texts show it: without a password."""
        return shown_address(self.base_url) or "the provider"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a failed request."""

    text: str
    kind: Kind
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


def explain_failure(error: Exception, place: Place, exchange: Exchange | None = None) -> Failure:
    """Describe an error of the adapter, of pydantic-ai or of the HTTP client.

    Args:
        error: What was raised, whatever it is: explaining it never fails (MD-01).
        place: Where the request went, and what must not show up in the text.
        exchange: Its HTTP side, if it got that far.
    """
    try:
        failure = _explain(error, place, exchange)
    except Exception as raised:  # noqa: BLE001 - a failure is told, however odd it is
        failure = Failure(
            text=f"The request to {place.server} failed ({type(error).__name__}), and what it "
            f"says cannot be read ({type(raised).__name__}). Try again.",
            kind="unknown",
            status=exchange.status if exchange else None,
        )
    notes = getattr(error, "__notes__", ())  # what `retry_provider_request` has to add
    text = clean(place.secrets.hide(" ".join([failure.text, *notes])))
    return msgspec.structs.replace(
        failure, text=text, should_retry=retry_wanted(_headers(error, exchange))
    )


def _explain(error: Exception, place: Place, exchange: Exchange | None) -> Failure:
    if exchange is not None and exchange.raised is not None:
        name, raised = exchange.raised
        return Failure(
            text=f"{name} raised {type(raised).__name__}: {error_text(raised)}. The request was "
            "given up; correct that callback.",
            kind="setup",
        )
    if exchange is not None and exchange.refused is not None:
        error = exchange.refused
    cut = not isinstance(error, ReplyError) or error.kind in ("incomplete", "unexpected")
    if cut and exchange is not None and _is_no_stream(exchange):
        return _transport_failure(error, place, exchange) or _no_stream(place, exchange)
    if isinstance(error, ReplyError) and not error.told:
        return Failure(
            text=str(error), kind=error.kind, status=error.status, retry_after=error.retry_after
        )
    if isinstance(error, ContextOverflowError):
        return Failure(text=str(error), kind="context_overflow", status=error.status)
    if isinstance(error, ImportError):
        return Failure(
            text=f"The package for this model is not installed ({error}). Run: "
            f"pip install '{place.requirement}'",
            kind="not_installed",
        )
    transport = _transport_failure(error, place, exchange)
    return transport or _in_words(error, place, exchange)


def _in_words(error: Exception, place: Place, exchange: Exchange | None) -> Failure:
    """Put the provider's class of error and its own words into sentences."""
    status: int | None = getattr(error, "status_code", None) or getattr(error, "status", None)
    wait = wait_wanted(_headers(error, exchange))
    if wait is None:
        wait = getattr(error, "retry_after", None) or None  # 0 is also what a past date gives
    kind, detail = _kind(error, status), _detail(error, place)
    answered = exchange is not None and exchange.status is not None and exchange.status < 400
    if answered and "ended without content" in detail:
        return Failure(
            text=f"The reply of {place.server} ended before it began. Try again.",
            kind="incomplete",
            status=exchange.status if exchange else None,
        )
    if answered and kind == "unknown" and isinstance(error, _UNREADABLE):
        kind, detail = "unexpected", f"{type(error).__name__}: {detail}"
    if kind == "unexpected":
        return Failure(
            text=f"{place.server} sent a reply that cannot be read: {detail}. Try again; if it "
            f"stays, {place.model} may not work with this kind of request.",
            kind=kind,
            status=exchange.status if exchange else None,
        )
    happened, remedy = _sentences(kind, place, wait)
    # An error inside an answer of 200 has a code, but that is no status anybody sent.
    sent = exchange is None or exchange.status == status
    said = f" (HTTP {status})" if status is not None and sent else ""
    said += f": {detail}" if detail else ""
    return Failure(
        text=f"{happened}{said.rstrip('.!? ')}. {remedy}".strip(),
        kind=kind,
        status=status,
        retry_after=wait,
    )


def _kind(error: Exception, status: int | None) -> Kind:
    if isinstance(error, ReplyError):
        return error.kind
    from pydantic_ai import exceptions as kinds

    certain: tuple[tuple[type[Exception], Kind], ...] = (
        (kinds.ModelContextWindowExceededError, "context_overflow"),
        (kinds.ModelAuthenticationError, "auth"),
        (kinds.ModelNotFoundError, "not_found"),
        (kinds.ModelQuotaExceededError, "quota"),
        (kinds.ModelRateLimitError, "rate_limit"),
        (kinds.ModelUnavailableError, "overloaded"),
        (kinds.ContentFilterError, "refused"),
        (kinds.UserError, "setup"),
        (kinds.UnexpectedModelBehavior, "unexpected"),
    )
    for kind_class, kind in certain:
        if isinstance(error, kind_class):
            return kind
    if not isinstance(error, (kinds.ModelAPIError, ModelError)):
        return "unknown"
    if any(type(cause).__name__ == "ValidationError" for cause in _causes(error)):
        return "unexpected"
    words = " ".join(
        str(part)[:4000]
        for part in (
            getattr(error, "provider_error_code", None),
            getattr(error, "provider_error_type", None),
            getattr(error, "body", None) or raw_words(error),
        )
        if part
    )
    kind = kind_of(words, status, otherwise=_by_class(error))
    open_to_words = kind in ("invalid_request", "server", "unknown")
    return "context_overflow" if open_to_words and says_overflow(own_words(error)) else kind


def _by_class(error: Exception) -> Kind:
    from pydantic_ai import exceptions as kinds

    match error:
        case kinds.ModelServerError():
            return "server"
        case kinds.ModelRequestRejectedError():
            return "invalid_request"
        case kinds.ModelRequestTimeout():
            return "timeout"
        case kinds.ModelAPIError() if "Failed to decode" in str(error):
            return "unexpected"
        case _:
            return "unknown"


def _sentences(kind: Kind, place: Place, wait: float | None) -> tuple[str, str]:
    """Return what happened and what to do."""
    server, name = place.server, place.model
    seconds = f"{wait:g} s" if wait is not None else None
    match kind:
        case "context_overflow":
            return (
                f"The request does not fit the context window of {name}",
                "Start a new conversation or send less.",
            )
        case "auth":
            return (
                f"{server} refused the API key",
                f"Set {place.key_variable} to a key that is valid there and may use {name}.",
            )
        case "not_found":
            return (
                f"{server} does not know {name!r}",
                f"Check the model name, and {place.check_address}.",
            )
        case "quota":
            return (
                f"The account's quota or credit at {server} is used up",
                "Top it up or choose another model; trying again will not help.",
            )
        case "rate_limit":
            return (
                f"{server} is limiting the rate of requests",
                f"Try again in {seconds or 'a minute'}.",
            )
        case "overloaded":
            return f"{server} is overloaded", f"Try again in {seconds or 'a moment'}."
        case "server":
            return (
                f"{server} failed",
                "Try again; if it stays, look at the server's log or status page.",
            )
        case "timeout":
            return (
                f"{server} gave up waiting for an answer",
                "The server may be overloaded or still loading the model: try again.",
            )
        case "invalid_request":
            return (
                f"{server} rejected the request",
                (
                    "Check the model name, and that the model supports what was sent: tools, "
                    "images, thinking level."
                ),
            )
        case "refused":
            return "The provider refused to answer (content filter)", "Rephrase the request."
        case "setup":
            return "The model cannot be used as it is set up", "Correct that and try again."
        case _:
            return f"The request to {server} failed", "Try again."


# -------------------------------------------------------------------- the way to the server


def _transport_failure(error: Exception, place: Place, exchange: Exchange | None) -> Failure | None:
    """Explain a failure of the connection; None if it is none."""
    chain = list(_causes(error))
    names = {base.__name__ for cause in chain for base in type(cause).__mro__}
    if not names & {"ModelConnectionError", "TransportError", "HTTPClientError"}:
        return None
    answered = exchange is not None and exchange.status is not None
    if "ConnectTimeout" in names or "PoolTimeout" in names:
        return _unreachable(place, "no connection within the time limit")
    if "ModelTimeoutError" in names or "TimeoutException" in names:
        return Failure(
            text=f"{place.server} sent nothing for {place.idle_timeout:g} s. The server may be "
            "overloaded or still loading the model: try again.",
            kind="timeout",
        )
    if answered:
        return Failure(
            text=f"The connection to {place.server} broke off in the middle of the reply. Try "
            "again.",
            kind="connection",
        )
    if any(isinstance(cause, socket.gaierror) for cause in chain):
        host = urlsplit(place.base_url).hostname
        return Failure(
            text=f"Cannot reach {place.server}: there is no address for the name {host!r}. Check "
            f"{place.url_variable} and the network connection.",
            kind="connection",
        )
    certificate = next((c for c in chain if isinstance(c, ssl.SSLCertVerificationError)), None)
    if certificate is not None:
        why = certificate.verify_message or "it cannot be verified"
        return Failure(
            text=f"Cannot trust {place.server}: its certificate was rejected ({why}). If the "
            "server is yours, set SSL_CERT_FILE to the file of the authority that signed it.",
            kind="connection",
        )
    if any(isinstance(cause, ssl.SSLError) for cause in chain):
        return Failure(
            text=f"{place.server} does not answer in TLS. If it is a server without encryption, "
            f"set {place.url_variable} to an address with http://.",
            kind="connection",
        )
    if names & {"ReadError", "WriteError", "RemoteProtocolError"}:
        return Failure(
            text=f"{place.server} closed the connection without an answer. Try again; if it "
            "stays, look at the server's log.",
            kind="connection",
        )
    return _unreachable(place, _said_last(chain, place))


def _unreachable(place: Place, why: str) -> Failure:
    return Failure(
        text=f"Cannot reach {place.server}: {why.rstrip('.')}. Is the server running? Start it, "
        f"or set {place.url_variable} to its address.",
        kind="connection",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Walk from an error to what it was raised from, to the first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _said_last(chain: list[BaseException], place: Place) -> str:
    text = next((str(cause) for cause in reversed(chain) if str(cause)), "connection failed")
    return _short(text, place)


def _detail(error: Exception, place: Place) -> str:
    """Return the provider's own words, shortened."""
    text = own_words(error)
    return WEB_PAGE if is_web_page(text) else _short(text, place)


def _short(text: str, place: Place) -> str:
    """Return words of others without secrets, then cut: a part of a secret would be left."""
    text = " ".join(clean(place.secrets.hide(text, cut=True)).split())
    return text if len(text) <= _MAX_DETAIL else text[: _MAX_DETAIL - 1] + "…"


# ----------------------------------------------------------------------- what it answered


def _is_no_stream(exchange: Exchange) -> bool:
    """Whether the server answered well, but with something else than a stream of events."""
    return (
        exchange.status is not None
        and exchange.status < 400
        and exchange.content_type
        not in ("", "text/event-stream", "application/vnd.amazon.eventstream")
    )


def _no_stream(place: Place, exchange: Exchange) -> Failure:
    body = json_of(exchange.tail)
    error: Any = cast("dict[str, Any]", body).get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):  # a gateway that calls every answer a success
        return _in_words(told_by_server(error), place, exchange)
    said = f": {_short(error, place)}" if isinstance(error, str) else ""
    return Failure(
        text=f"{place.server} answered with {exchange.content_type}, not with a stream of events "
        f"(HTTP {exchange.status}){said}. Check {place.check_address} and that the server can "
        "stream.",
        kind="unexpected",
        status=exchange.status,
    )


def _headers(error: Exception, exchange: Exchange | None) -> Mapping[str, str]:
    """Return the headers of the response that an error is about."""
    return getattr(error, "headers", None) or (exchange.headers if exchange else {})
