"""Which model to use: one rule, one line that says what was chosen and why.

An explicit choice wins, then the environment variable `PI_NOTEBOOK_MODEL`, then the built-in demo
model, which needs nothing. A choice is `provider:name`, or the name of a model registered here.
Choosing does not touch the network and imports no provider; a missing key or server shows in the
first reply.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping

import msgspec

from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.request import Model, StreamFn

__all__ = ["MODEL_VARIABLE", "ChosenModel", "choose_model", "register_model", "unregister_model"]

MODEL_VARIABLE = "PI_NOTEBOOK_MODEL"


class ChosenModel(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a model, how to ask it, and why it was chosen."""

    model: Model
    stream_fn: StreamFn
    #: One line: what was chosen and how to change it.
    reason: str
    #: The environment variable that this model needs and that is not set; usually empty.
    missing: str = ""


_registered: dict[str, tuple[Model, StreamFn]] = {}


def register_model(name: str, stream_fn: StreamFn, model: Model | None = None) -> None:
    """Make a model of your own selectable by name, for instance a scripted one in a test.

    Args:
        name: What to choose it by. Registering a name again replaces it; a built-in name
            (`demo`) is hidden until it is unregistered.
        stream_fn: How to ask it.
        model: What it is; by default a model with that id and provider "registered".

    Raises:
        ValueError: The name is empty.
        TypeError: The stream function is not callable.
    """
    if not name.strip():
        raise ValueError("A registered model needs a name.")
    if not callable(stream_fn):
        raise TypeError(
            f"stream_fn must be a function (model, context, options), not {stream_fn!r}."
        )
    described = model or Model(id=name, name=name, api="registered", provider="registered")
    _registered[name] = (described, stream_fn)


def unregister_model(name: str) -> None:
    """Forget a registered model; unknown names are ignored."""
    _registered.pop(name, None)


def choose_model(spec: str | None = None, env: Mapping[str, str] | None = None) -> ChosenModel:
    """Choose a model.

    Args:
        spec: `demo`, `openai-chat:NAME` or a registered name; by default the environment variable
            `PI_NOTEBOOK_MODEL`, else `demo`.
        env: Environment variables; the process's own by default. The chosen model's stream
            function reads its key and address there too.

    Returns:
        The model with its stream function and the reason.

    Raises:
        ModelError: The choice is not known; the message has suggestions and lists what works.
    """
    variables = os.environ if env is None else env
    from_variable = variables.get(MODEL_VARIABLE, "").strip()
    given = (spec or "").strip()
    wanted = given or from_variable or "demo"
    if given:
        why = f"chosen explicitly; {MODEL_VARIABLE} sets the default"
    elif from_variable:
        why = f"from the environment variable {MODEL_VARIABLE}"
    else:
        why = (
            f"nothing else is set up; {MODEL_VARIABLE}=openai-chat:NAME chooses a real one, with "
            "OPENAI_API_KEY or OPENAI_BASE_URL"
        )
    model, stream_fn = _find(wanted, env, variables)
    where = f" at {model.base_url}" if model.base_url else ""
    reason = f"Model {wanted}{where} ({why})."
    missing = ""
    own_server = variables.get("OPENAI_BASE_URL")  # such a server may need no key
    if model.provider == "openai-chat" and not own_server and not variables.get("OPENAI_API_KEY"):
        missing = "OPENAI_API_KEY"
        reason += f" It needs a key: set {missing}."
    return ChosenModel(model=model, stream_fn=stream_fn, reason=reason, missing=missing)


def _find(
    wanted: str, env: Mapping[str, str] | None, variables: Mapping[str, str]
) -> tuple[Model, StreamFn]:
    if wanted in _registered:
        return _registered[wanted]
    if wanted == "demo":
        return _demo(variables)
    provider, separator, name = wanted.partition(":")
    build = _PROVIDERS.get(provider.strip())
    if build is None or not separator or not name.strip():
        raise ModelError(_unknown(wanted))
    return build(name.strip(), env, variables)


def _demo(variables: Mapping[str, str]) -> tuple[Model, StreamFn]:
    from pi_agent_kernel.models.demo import DEMO_MODEL, UNPACED_VARIABLE, demo_stream_fn

    return DEMO_MODEL, demo_stream_fn(paced=not variables.get(UNPACED_VARIABLE))


def _openai_chat(
    name: str, env: Mapping[str, str] | None, variables: Mapping[str, str]
) -> tuple[Model, StreamFn]:
    from pi_agent_kernel.models.providers import PROVIDERS
    from pi_agent_kernel.models.pydantic_ai import provider_stream_fn

    model = Model(
        id=name,
        name=name,
        api="openai-completions",
        provider="openai-chat",
        base_url=variables.get("OPENAI_BASE_URL") or PROVIDERS["openai-chat"].base_url,
        input=("text", "image"),
    )
    return model, provider_stream_fn(env=env)


_Build = Callable[[str, Mapping[str, str] | None, Mapping[str, str]], tuple[Model, StreamFn]]

_PROVIDERS: Mapping[str, _Build] = {"openai-chat": _openai_chat}


def _unknown(wanted: str) -> str:
    """Say what was wrong with a choice, what was probably meant, and what there is."""
    provider, separator, name = wanted.partition(":")
    works = ["demo", *(f"{known}:NAME" for known in _PROVIDERS), *sorted(_registered)]
    listing = f"These work: {', '.join(works)}."
    if provider in _PROVIDERS:
        return (
            f"The model {wanted!r} lacks a name after the colon, as in {provider}:NAME. {listing}"
        )
    known = {"demo": "demo", **{name: name for name in _registered}}
    known.update({each: f"{each}:{name or 'NAME'}" for each in _PROVIDERS})
    # "openai:gpt-5" and a bare "gpt-5" are meant for the provider there is.
    close = difflib.get_close_matches(provider.lower(), list(known), n=1, cutoff=0.6)
    close = close or [each for each in _PROVIDERS if each.startswith(f"{provider.lower()}-")]
    meant = known[close[0]] if close else None if separator else f"openai-chat:{wanted}"
    suggestion = f" Did you mean {meant!r}?" if meant else ""
    return f"There is no model {wanted!r}.{suggestion} {listing}"
