"""The models that may be used, and the keys for them."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.models.proxy import PROXY_TOKEN_VARIABLE, PROXY_URL_VARIABLE
from pi_agent_kernel.secrecy import Secrets

if TYPE_CHECKING:
    from pi_agent_kernel.models.catalog import ChosenModel
    from pi_agent_kernel.request import Model

__all__ = ["AllowedModels", "RefusedError", "take_keys"]

#: What these providers can be asked with beside a key of their own.
_FURTHER_SECRETS = {
    "bedrock": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
}
_MAX_NAME = 200  # characters of a model's name


class RefusedError(Exception):
    """Refuse a request: an HTTP status and a text for who asked."""

    def __init__(self, status: int, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after = retry_after


class AllowedModels:
    """Hold the list of models and what is needed to ask them.

    Args:
        patterns: As `PiServer.models`.
        keys: As `PiServer.keys`.
        addresses: As `PiServer.addresses`.
        environment: Where keys are taken out, by default the server's own.

    Raises:
        ValueError: An entry names no provider. The keys are taken out first.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        keys: Mapping[str, str],
        addresses: Mapping[str, str],
        environment: MutableMapping[str, str] | None = None,
    ) -> None:
        environment = os.environ if environment is None else environment
        self.patterns = tuple(pattern.strip() for pattern in patterns)
        named = {pattern.partition(":")[0] for pattern in self.patterns}
        providers = sorted(named & PROVIDERS.keys())
        #: The environment variables that kernels must not inherit.
        self.secret_variables = frozenset(
            name
            for provider in providers
            for name in (
                *PROVIDERS[provider].key_variables,
                *_FURTHER_SECRETS.get(provider, ()),
            )
        )
        taken = take_keys(self.secret_variables, environment)
        # A file or a secret store often ends them with a newline, which no header can carry.
        given = {**environment, **{name: value.strip() for name, value in taken.items()}}
        for name in (PROXY_URL_VARIABLE, PROXY_TOKEN_VARIABLE):
            given.pop(name, None)  # this server asks the providers themselves
        for pattern in self.patterns:
            _check(pattern)
        for provider, key in keys.items():
            _check_provider(provider, "keys")
            first, *others = PROVIDERS[provider].key_variables
            given[first] = key.strip()
            for other in others:
                given.pop(other, None)
        for provider, address in addresses.items():
            _check_provider(provider, "addresses")
            given[PROVIDERS[provider].url_variable] = address.strip()
        self._environment: Mapping[str, str] = given
        self._secrets = Secrets(
            [*(given.get(name) for name in self.secret_variables), *keys.values()],
            addresses=addresses.values(),
        )

    def allows(self, spec: str) -> bool:
        """Say whether `provider:name` is on the list."""
        name = spec.partition(":")[2] or spec
        well_formed = name.isprintable() and " " not in name and len(name) <= _MAX_NAME
        return well_formed and any(fnmatchcase(spec, each) for each in self.patterns)

    def choose(self, asked: Model) -> ChosenModel:
        """Describe and reach an allowed model by our own means.

        Args:
            asked: As the client described it; only its provider and its name count.

        Raises:
            RefusedError: It is not allowed, or cannot be used for want of a key.
        """
        from pi_agent_kernel.models.catalog import choose_model

        is_demo = (asked.provider, asked.id) == ("demo", "demo")
        spec = "demo" if is_demo else f"{asked.provider}:{asked.id}"
        if not self.allows(spec):
            listing = ", ".join(self.patterns)
            raise RefusedError(
                403, f"The model {spec[:_MAX_NAME]!r} is not allowed here; these are: {listing}."
            )
        if not self._is_ready(asked.provider):
            variable = PROVIDERS[asked.provider].key_variables[0]
            raise RefusedError(
                503,
                f"This server has no key for {spec!r}. Its administrator sets {variable} in the "
                f"environment of the server, or c.PiServer.keys[{asked.provider!r}].",
            )
        try:
            return choose_model(spec, self._environment)
        except ModelError as error:
            raise RefusedError(404, self.without_secrets(str(error))) from None

    def listing(self) -> list[dict[str, object]]:
        """Say for each pattern whether its provider has a key."""
        return [
            {"spec": pattern, "ready": self._is_ready(pattern.partition(":")[0])}
            for pattern in self.patterns
        ]

    def without_secrets(self, text: str) -> str:
        """Take the keys out of a text, also where they are quoted or escaped."""
        return self._secrets.hide(text)

    def hidden(self, value: Any) -> Any:
        """Take the keys out of all texts of a value of JSON."""
        match value:
            case str():
                return self.without_secrets(value)
            case Mapping():
                fields = cast("Mapping[str, Any]", value)
                return {self.without_secrets(k): self.hidden(v) for k, v in fields.items()}
            case list() | tuple():
                return [self.hidden(item) for item in cast("list[Any]", value)]
            case _:
                return value

    def _is_ready(self, provider: str) -> bool:
        known = PROVIDERS.get(provider)
        if known is None or known.keyless or not known.base_url:
            return True  # without an address of its own, its SDK may find credentials elsewhere
        names = (*known.key_variables, *_FURTHER_SECRETS.get(provider, ()), known.url_variable)
        return any(self._environment.get(name) for name in names)


def take_keys(names: frozenset[str], environment: MutableMapping[str, str]) -> dict[str, str]:
    """Take variables out of an environment and return them.

    Of this process's own environment the block it was started with is overwritten too: on Linux
    other processes of the same user can read that for as long as this one runs.
    """
    taken: dict[str, str] = {}
    for name in names:
        if name in environment:
            if environment is os.environ and sys.platform == "linux":
                _overwrite(name)
            taken[name] = environment.pop(name)
    return taken


def _overwrite(name: str) -> None:
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(os.fsencode(name))
    if address:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))


def _check(pattern: str) -> None:
    provider, separator, name = pattern.partition(":")
    if pattern == "demo":
        return
    if not separator or not name.strip() or any(each in provider for each in "*?["):
        raise ValueError(
            f"c.PiServer.models: {pattern!r} is not provider:name, such as 'anthropic:claude-*'; "
            "only the name may have * and ?."
        )
    _check_provider(provider, "models")


def _check_provider(provider: str, setting: str) -> None:
    if provider not in PROVIDERS:
        known = ", ".join(sorted(PROVIDERS))
        raise ValueError(
            f"c.PiServer.{setting}: there is no provider {provider!r}; these are known: {known}."
        )
