"""What a kernel of this server is started with: the proxy's address and a token, no keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pi_agent_kernel.models.catalog import MODEL_VARIABLE
from pi_agent_kernel.models.proxy import PROXY_TOKEN_VARIABLE, PROXY_URL_VARIABLE

__all__ = ["KernelTokens", "equip_kernels", "user_name"]

#: Who asks where Jupyter knows only one person.
OWNER = "owner"
_WILDCARDS = {"": "127.0.0.1", "*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - not bound, replaced
# What a class overrides that tells users apart.
_IDENTITY_METHODS = ("get_user", "get_user_token", "get_user_cookie")


class KernelTokens:
    """Make and read tokens that stand for a user.

    A token is the user's name, signed with a secret of this server process: nothing is stored, a
    kernel that is restarted keeps its token, and a restart of the server ends them all.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def issue(self, user: str) -> str:
        """Return a token for a user."""
        name = user.encode("utf-8", "surrogatepass")
        return f"pi.{_text(name)}.{_text(self._signature(name))}"

    def user_of(self, token: str) -> str | None:
        """Return the user that a token stands for, or None if it is not one of ours."""
        kind, _, rest = token.partition(".")
        name_part, _, signature_part = rest.partition(".")
        try:
            name, signature = _bytes(name_part), _bytes(signature_part)
        except ValueError:
            return None
        if kind != "pi" or not hmac.compare_digest(signature, self._signature(name)):
            return None
        return name.decode("utf-8", "surrogatepass")

    def _signature(self, name: bytes) -> bytes:
        return hmac.digest(self._secret, b"kernel:" + name, hashlib.sha256)


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode(), altchars=b"-_", validate=True)


def user_name(handler: Any) -> str:
    """Return who asks, as limits and the log name them.

    Where Jupyter Server identifies people itself, by one token or password for all, it makes up
    a new name for each visitor: they are one user here.

    Args:
        handler: Of an authenticated request.
    """
    provider = type(handler.identity_provider)
    own = all(
        str(getattr(getattr(provider, name, None), "__module__", "")).startswith("jupyter_server.")
        for name in _IDENTITY_METHODS
    )
    return OWNER if own else str(handler.current_user.username)


def equip_kernels(
    serverapp: Any,
    tokens: KernelTokens,
    secret_variables: frozenset[str],
    *,
    url: str = "",
    default_model: str = "",
) -> None:
    """Have every kernel that this server starts find the proxy, and none of the secrets.

    Args:
        serverapp: Its kernel manager's `start_kernel` is wrapped.
        tokens: Makes the kernel's token, for the user who starts it.
        secret_variables: Are left out of a kernel's environment.
        url: The proxy's address; by default where the server listens.
        default_model: What a kernel uses unless its environment says otherwise.
    """
    from jupyter_server import CallContext

    manager = serverapp.kernel_manager
    start = manager.start_kernel

    def start_kernel(*args: Any, **options: Any) -> Any:
        inherited = os.environ if options.get("env") is None else options["env"]
        env = {name: value for name, value in inherited.items() if name not in secret_variables}
        handler = CallContext.get(CallContext.JUPYTER_HANDLER)
        known = handler is not None and getattr(handler, "current_user", None)
        env[PROXY_TOKEN_VARIABLE] = tokens.issue(user_name(handler) if known else OWNER)
        env[PROXY_URL_VARIABLE] = url or _own_address(serverapp)
        if default_model:
            env.setdefault(MODEL_VARIABLE, f"proxy:{default_model}")
        return start(*args, **{**options, "env": env})

    manager.start_kernel = start_kernel


def _own_address(serverapp: Any) -> str:
    """Return where a process on this machine reaches the proxy."""
    parts = urlsplit(serverapp.connection_url)
    if serverapp.ip in _WILDCARDS:
        parts = parts._replace(netloc=f"{_WILDCARDS[serverapp.ip]}:{serverapp.port}")
    return urlunsplit(parts._replace(path=serverapp.base_url.rstrip("/") + "/pi"))
