"""Where the key of a request comes from: the request, a store, the environment, in this order.

A stored credential owns its provider: if the store has an entry that cannot be used, the request
fails and does not go out with some other key that happens to be in the environment (MD-13).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, cast

import msgspec

from pi_agent_kernel.errors import ModelError

__all__ = ["CredentialStore", "MemoryCredentials", "ProviderAuth", "resolve_key"]


class CredentialStore(Protocol):
    """**Protocol:** hold keys by provider id. Its methods may be plain or async."""

    def read(self, provider: str, /) -> str | Awaitable[str | None] | None:
        """Return the key, None if there is no entry, or an empty text for one that is void."""
        ...


class MemoryCredentials:
    """Be a store that forgets its keys when the process ends."""

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        self._keys = dict(keys or {})

    def __repr__(self) -> str:
        return f"<credentials for {', '.join(sorted(self._keys)) or 'nobody'}>"

    def read(self, provider: str, /) -> str | None:
        """Return the key of a provider, or None."""
        return self._keys.get(provider)

    def write(self, provider: str, key: str) -> None:
        """Keep the key of a provider."""
        self._keys[provider] = key

    def delete(self, provider: str) -> None:
        """Forget the key of a provider; unknown ones are ignored."""
        self._keys.pop(provider, None)


class ProviderAuth(msgspec.Struct, frozen=True, kw_only=True):
    """Say how a provider knows who asks."""

    #: Environment variables that may hold the key, the first that is set wins.
    variables: tuple[str, ...] = ()
    #: Whether it can be asked without a key.
    keyless: bool = False


async def resolve_key(
    provider: str,
    auth: ProviderAuth,
    *,
    given: str | None = None,
    store: CredentialStore | None = None,
    env: Mapping[str, str] | None = None,
) -> str | None:
    """Find the key of one request.

    Args:
        provider: Provider id.
        auth: How it knows who asks.
        given: The request's own key, which goes before everything.
        store: Asked next.
        env: Environment variables; the process's own by default.

    Returns:
        The key; None where none is needed and none was found.

    Raises:
        ModelError: There is none, or the stored one is void. No key is in the text.

    Source: MD-13, CO-08.
    """
    if given and given.strip():
        return given.strip()
    if store is not None:
        stored: Any = store.read(provider)
        if isinstance(stored, Awaitable):
            stored = await cast("Awaitable[Any]", stored)
        if stored is not None:
            if isinstance(stored, str) and stored.strip():
                return stored.strip()
            raise ModelError(
                f"The stored credential for {provider} is empty. Store one again or delete it; "
                "while it is there the environment is not looked at.",
                provider=provider,
            )
    variables = os.environ if env is None else env
    found = next((key for name in auth.variables if (key := variables.get(name, "").strip())), None)
    if found is None and not auth.keyless:
        ways = " or ".join(auth.variables) or "api_key in the options"
        raise ModelError(f"There is no API key for {provider}. Set {ways}.", provider=provider)
    return found
