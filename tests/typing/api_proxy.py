"""A proxy as its users write it; type-checked only, never run."""

from __future__ import annotations

from functools import partial

from pi_agent_kernel import Agent, Model, StreamFn, faux_provider, proxy_stream_fn, stream_proxy
from pi_agent_kernel.models.proxy_protocol import (
    ProxyRequest,
    decode_proxy_request,
    encode_proxy_event,
)


def through_a_proxy() -> list[Agent]:
    """Bind the two arguments, one way or the other."""
    model = Model(id="claude-x", provider="anthropic", api="anthropic-messages")
    url = "https://models.example.com"
    bound: StreamFn = partial(stream_proxy, auth_token="t", proxy_url=url, cache_retention="long")
    made: StreamFn = proxy_stream_fn(auth_token="t", proxy_url=url, idle_timeout=60)
    return [Agent(stream_fn=bound, model=model), Agent(stream_fn=made, model=model)]


async def be_a_proxy(body: bytes) -> list[bytes]:
    """Answer a request of the protocol."""
    request: ProxyRequest = decode_proxy_request(body)
    faux = faux_provider()
    events = faux.stream_fn(request.model, request.context, request.options)
    return [encode_proxy_event(event) async for event in events]
