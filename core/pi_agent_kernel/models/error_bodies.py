"""The body of a refused request, read with limits on its size and its time.

SDKs read such a body whole before they raise. A few kilobytes of it can unpack to gigabytes, or
come one byte at a time for ever, so it is read here first and they get what there was.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    import httpx2

__all__ = ["ACCEPTED", "is_page_or_failure", "with_short_body"]

#: Bytes that are read, and bytes that they may unpack to.
_MOST = 65_536
#: What is unpacked here; a server that was asked for it sends nothing else.
ACCEPTED = "gzip, deflate"


def is_page_or_failure(response: httpx2.Response) -> bool:
    """Say whether a response is no reply of a model: an error, a redirect or a web page."""
    kind = response.headers.get("content-type", "")
    return response.status_code >= 300 or kind.lower().startswith("text/html")


async def with_short_body(response: Any, seconds: float, broken: tuple[Any, ...]) -> Any:
    """Read the beginning of a body and close it; return a response that has only that.

    Args:
        response: Of the HTTP client; its body is unread.
        seconds: Longest wait for the body.
        broken: Classes of errors that end a body early.
    """
    encoding: str = response.headers.get("content-encoding", "identity").strip().lower()
    body = b""
    try:
        with anyio.move_on_after(seconds):
            async for piece in response.aiter_raw(_MOST):
                body += piece
                if len(body) >= _MOST:
                    break
    except broken:
        pass  # the status tells enough
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            await response.aclose()
    headers = [
        (name, value)
        for name, value in response.headers.multi_items()
        if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
    ]
    short = type(response)(
        response.status_code,
        headers=headers,
        content=_unpacked(body[:_MOST], encoding),
        request=response.request,
        extensions={
            name: value for name, value in response.extensions.items() if name != "network_stream"
        },
        history=list(response.history),
    )
    short.next_request = response.next_request
    return short


def _unpacked(body: bytes, encoding: str) -> bytes:
    """Unpack no more than what is shown; what cannot be unpacked is nothing."""
    if encoding in ("identity", ""):
        return body
    windows = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}.get(encoding, ())
    for window in windows:
        try:
            return zlib.decompressobj(window).decompress(body, _MOST)
        except zlib.error:
            continue
    return b""
