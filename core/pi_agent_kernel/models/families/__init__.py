"""The wire formats, one module each; `FAMILIES` is the table of them, by `Model.api`.

A family says which modules to load, what to install, how to build pydantic-ai's model and which
settings are its own. Nothing outside this package knows which one a request uses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model as ProviderModel

    from pi_agent_kernel.models.thinking import Thinking
    from pi_agent_kernel.request import Model, StreamOptions

__all__ = ["FAMILIES", "Family", "Reach", "load_modules", "refined", "warm_up"]

S = TypeVar("S")


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Say how a model is reached: what building it needs."""

    #: Id of the model at the provider.
    name: str
    #: Provider id, as `Model.provider`.
    provider: str
    #: Without a slash at the end; may be empty for a provider that finds its address itself.
    base_url: str
    #: The provider's own address, to tell its server from others that speak its format.
    own_url: str
    key: str | None
    env: Mapping[str, str]
    #: This event loop's HTTP client.
    client: httpx2.AsyncClient
    #: Seconds without a byte from the server after which a request fails.
    idle_timeout: float

    @property
    def is_own_server(self) -> bool:
        """Whether the request goes to the provider itself, not to another server."""
        return self.base_url == self.own_url


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Describe one wire format: how to reach it and how to build pydantic-ai's model."""

    #: The module of this package with `build_model`, `settings_for` and `thinking_settings`.
    module: str
    #: Loaded, in a worker thread, before the first request.
    loads: tuple[str, ...]
    #: What to install.
    requirement: str
    #: Whether every complete reply has a finish reason; some chat-completions gateways send
    #: usage only (trap 2).
    always_says_why: bool = True
    #: Whether a model that is said to reason is told how hard, also if it is not known.
    tells_unknown_models: bool = False
    #: Whether a request must say how long the answer may get.
    needs_limit: bool = False
    #: Whether system messages may stand anywhere, at providers' own servers.
    system_anywhere: bool = False
    #: Whether a tool result has a place for images.
    images_in_results: bool = True
    #: Which thinking a reply that is sent back has a place for; other would become its text.
    thinking_goes_back: Literal["all", "signed", "none"] = "signed"
    #: Whose HTTP client its SDK takes; see `provider_http.shared_client`.
    http_library: str = "httpx2"
    #: How an address of this format ends, for a hint; empty if it has no path.
    address_end: str = ""
    #: Environment variables that a model is built from, beside key and address.
    variables: tuple[str, ...] = ()
    #: Whether its SDK runs on trio.
    trio: bool = True

    @property
    def modules(self) -> tuple[str, ...]:
        """Everything that a request needs to be loaded."""
        return (f"{__name__}.{self.module}", *self.loads, *_SHARED)

    def build(self, reach: Reach) -> ProviderModel:
        """Build pydantic-ai's model."""
        return cast("Callable[[Reach], ProviderModel]", self._member("build_model"))(reach)

    def settings(self, model: Model, options: StreamOptions, reach: Reach) -> dict[str, Any]:
        """Return the settings of one request that only this family knows."""
        return cast("Callable[..., dict[str, Any]]", self._member("settings_for"))(
            model, options, reach
        )

    def thinking(self, thinking: Thinking, profile: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that make a model think so hard; empty if it cannot.

        Args:
            thinking: How hard.
            profile: What pydantic-ai knows of the model.
        """
        return cast("Callable[..., dict[str, Any]]", self._member("thinking_settings"))(
            thinking, profile
        )

    def _member(self, name: str) -> object:
        return getattr(import_module(f"{__name__}.{self.module}"), name)


#: By `Model.api`.
FAMILIES: Mapping[str, Family] = {
    "anthropic-messages": Family(
        module="anthropic_messages",
        loads=("pydantic_ai.models.anthropic",),
        requirement="pydantic-ai-slim[anthropic]",
        needs_limit=True,
        system_anywhere=True,
    ),
    "openai-responses": Family(
        module="openai_responses",
        system_anywhere=True,
        loads=("pydantic_ai.models.openai",),
        requirement="pydantic-ai-slim[openai]",
        address_end="/v1",
    ),
    "openai-completions": Family(
        module="openai_chat",
        loads=("pydantic_ai.models.openai",),
        requirement="pydantic-ai-slim[openai]",
        always_says_why=False,
        address_end="/v1",
        tells_unknown_models=True,
        system_anywhere=True,
        images_in_results=False,
        thinking_goes_back="all",  # in its field, or in the tags it came in
    ),
    "google-generative-ai": Family(
        module="google_genai",
        loads=("pydantic_ai.models.google",),
        requirement="pydantic-ai-slim[google]",
        thinking_goes_back="all",
    ),
    "bedrock-converse-stream": Family(
        module="bedrock_converse",
        loads=("pydantic_ai.models.bedrock",),
        requirement="pydantic-ai-slim[bedrock]",
        variables=(
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_PROFILE",
            "AWS_REGION",
            "AWS_DEFAULT_REGION",
        ),
        needs_limit=True,
    ),
    "mistral-conversations": Family(
        module="mistral_chat",
        loads=("pydantic_ai.models.mistral",),
        requirement="pydantic-ai-slim[mistral]",
        trio=False,
        images_in_results=False,
        thinking_goes_back="all",
    ),
    "groq-completions": Family(
        module="groq_chat",
        loads=("pydantic_ai.models.groq",),
        requirement="pydantic-ai-slim[groq]",
        http_library="httpx",
        system_anywhere=True,
        images_in_results=False,
        thinking_goes_back="none",
    ),
}

_SHARED = ("pydantic_ai.direct", "genai_prices")
_loading = threading.Lock()


def load_modules(modules: Iterable[str]) -> None:
    """Import modules, one thread at a time: large packages import each other in circles."""
    with _loading:
        for name in modules:
            import_module(name)


def warm_up(apis: Iterable[str]) -> None:
    """Import what requests will need, so that the first one does not wait for it.

    Meant for a thread in the background; a package that is missing is told by the request.

    Args:
        apis: Wire formats, as `Model.api`; unknown ones are left out.
    """
    for api in apis:
        family = FAMILIES.get(api)
        if family is not None:
            with suppress(ImportError):
                load_modules(family.modules)


def refined(kind: type[S], response: object) -> S:
    """Return a response as one of a class derived from its own."""
    copy = kind.__new__(kind)
    vars(copy).update(vars(response))
    return copy
