"""The HTTP client of all providers."""

from __future__ import annotations

import pytest
from provider import ask, ask_format, stream_of
from server import unused_url

# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
)


async def test_loopback_is_reached_without_the_proxy_of_the_environment(server, monkeypatch):
    """A proxy variable does not stand between the kernel and a server on this machine."""
    server.play("text")
    with unused_url() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)

        by_number = await ask(server.url)
        by_name = await ask(server.url.replace("127.0.0.1", "localhost"))

    assert (by_number.error_message, by_name.error_message) == (None, None)


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages", "groq-completions"])
async def test_no_cookie_is_kept(server, api):
    """What a server tells one key is never sent with another, by either HTTP library."""
    reply = stream_of(api, "text")
    reply.headers["set-cookie"] = "session=of-the-first; Path=/; HttpOnly"
    server.play(reply)

    for key in ("k-first-1", "k-second-2"):
        assert (await ask_format(api, server.url, api_key=key))[-1].type == "done"
    await ask(server.url.replace("127.0.0.1", "localhost"))

    assert len(server.requests) == 3
    assert [request.header("cookie") for request in server.requests] == [None] * 3
