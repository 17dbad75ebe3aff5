"""Which model to use: one rule, one line that says what was chosen and why.

    a spec in code, in the configuration, or in `PI_NOTEBOOK_MODEL`
    └── else a key in the environment, in the order of the table of providers
        └── else Ollama or LM Studio on this machine, if it says that it is that
            └── else a GGUF file that is configured, with xllamacpp installed
                └── else the scripted demo model, which needs nothing

A spec is `provider:name`, a provider alone, `local:PATH`, `proxy:provider:name`, `demo`, or the
name of a model registered here. With a spec or a key no socket is opened; a model that is chosen
and then fails is never replaced. Choosing imports no provider.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.models.model_specs import DEMO, LOCAL, PROXY, proxied, read_spec
from pi_agent_kernel.models.providers import PROVIDERS, Provider, missing_package
from pi_agent_kernel.request import Model, StreamFn
from pi_agent_kernel.secrecy import shown_address

__all__ = [
    "GGUF_VARIABLE",
    "MODEL_VARIABLE",
    "ChosenModel",
    "check_spec",
    "choose_model",
    "register_model",
    "registered_names",
    "unregister_model",
    "why_no_local",
]

MODEL_VARIABLE = "PI_NOTEBOOK_MODEL"
GGUF_VARIABLE = "PI_NOTEBOOK_GGUF"
#: As in `proxy`, which need not be loaded to look.
PROXY_URL_VARIABLE = "PI_NOTEBOOK_PROXY_URL"

_CHANGE = f"{MODEL_VARIABLE}=PROVIDER:NAME chooses another"


class ChosenModel:
    """Hold a model, how to ask it, and why it was chosen.

    Args:
        model: The model, or a function that describes it when it is first needed: the table of
            prices takes a moment to load.
        stream_fn: How to ask it.
        summary: One line: what was chosen and how to change it.
        missing: What this model needs and lacks, an environment variable or a package.
        spec: What to choose it by.
        hint: Looks, when it is first needed, for a known name that was probably meant.
    """

    def __init__(
        self,
        *,
        model: Model | Callable[[], Model],
        stream_fn: StreamFn,
        summary: str,
        missing: str = "",
        spec: str = "",
        hint: Callable[[], str] | None = None,
    ) -> None:
        self._described = model
        self._hint = hint
        self.stream_fn: StreamFn = stream_fn
        self.summary: str = summary
        self.missing: str = missing
        self.spec: str = spec

    def __repr__(self) -> str:
        return f"<chosen model {self.spec or self.model.id}: {self.summary}>"

    @property
    def model(self) -> Model:
        """The model."""
        if not isinstance(self._described, Model):
            self._described = self._described()
        return self._described

    @property
    def reason(self) -> str:
        """The summary, and what was probably meant if the name is in no list."""
        meant = "" if self._hint is None else self._hint()
        if not meant:
            return self.summary
        provider, _, name = self.spec.partition(":")
        return f"{self.summary} {name} is in no list here; did you mean {provider}:{meant}?"


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


def registered_names() -> list[str]:
    """Return the names of the registered models, sorted."""
    return sorted(_registered)


def check_spec(spec: str) -> None:
    """Refuse what names no model; whether it can be used is not looked at.

    Raises:
        ModelError: With what was probably meant.
    """
    if spec not in _registered:
        spec = proxied(spec) or spec
    read_spec(spec, _registered)


def choose_model(
    spec: str | None = None,
    env: Mapping[str, str] | None = None,
    *,
    source: str = "",
    gguf: str = "",
) -> ChosenModel:
    """Choose a model.

    Looks for servers on this machine, at most 0.3 s, only if nothing else decides.

    Args:
        spec: `provider:name`, a provider alone for its default model, `local:PATH`, `demo` or a
            registered name; by default what the environment and this machine offer.
        env: Environment variables; the process's own by default. The chosen model's stream
            function reads its key there too.
        source: Where the spec comes from, for the summary.
        gguf: Path of a GGUF file to run if nothing else is set up; the environment variable
            `PI_NOTEBOOK_GGUF` goes before it.

    Returns:
        The model with its stream function and why it was chosen.

    Raises:
        ModelError: The spec names no model; the message has suggestions and lists what works.
    """
    choice = _Choice(env)
    given = (spec or "").strip()
    if given:
        why = source or f"chosen explicitly; {MODEL_VARIABLE} sets the default"
        return choice.named(given, why)
    from_variable = choice.env.get(MODEL_VARIABLE, "").strip()
    if from_variable:
        return choice.named(from_variable, f"from the environment variable {MODEL_VARIABLE}")
    chosen = choice.by_key()
    if chosen is not None:
        return chosen
    path = choice.env.get(GGUF_VARIABLE, "").strip()
    if path:
        return choice.by_machine(path, f"from the environment variable {GGUF_VARIABLE}")
    return choice.by_machine(gguf.strip(), "from the configuration")


class _Choice:
    """Choose with the variables of one environment."""

    def __init__(self, env: Mapping[str, str] | None) -> None:
        self.env: Mapping[str, str] = os.environ if env is None else env
        self._given = env  # None: the stream function reads the process's own at each request

    def named(self, text: str, why: str) -> ChosenModel:
        """Choose what a spec names."""
        behind = proxied(text)
        if behind and text not in _registered:
            return self._proxied(behind, why)
        spec = read_spec(text, _registered)
        if spec.provider in _registered:
            model, stream_fn = _registered[spec.provider]
            summary = f"Model {spec.provider} ({why})."
            return ChosenModel(
                model=model,
                stream_fn=stream_fn,
                summary=summary,
                spec=spec.provider,
            )
        if spec.provider == DEMO:
            return self._demo(f"Model {DEMO} ({why}).")
        if spec.provider == LOCAL:
            return self._local(spec.name, why)
        provider = PROVIDERS[spec.provider]
        if not spec.name:
            return self._served(provider, self._default_name(provider), why)
        return self._served(provider, spec.name, why, check_name=True)

    def by_key(self) -> ChosenModel | None:
        """Choose the first provider whose key is set; one whose package is there goes first."""
        keyed = [row for row in PROVIDERS.values() if row.chosen_by_key and row.key(self.env)]
        ready = [row for row in keyed if not missing_package(row.api)]
        ordered = [*ready, *(row for row in keyed if row not in ready)]
        if not ordered:
            return None
        first, others = ordered[0], ordered[1:]
        why = f"{first.key(self.env)} is set; {_CHANGE}"
        if others:
            why += f", {', '.join(f'{row.id} by {row.key(self.env)}' for row in others)} is set too"
        if first.id == "openai" and first.address(self.env) != first.base_url:
            # Few servers but OpenAI's own speak its newer format.
            first = PROVIDERS["openai-chat"]
        return self._served(first, first.default_model, why)

    def by_machine(self, path: str, source: str) -> ChosenModel:
        """Choose what runs, or could run, on this machine; else the demo."""
        from pi_agent_kernel.models.probes import find_servers

        servers = find_servers(self.env)
        ours = [server for server in servers if server.identified and server.models]
        if ours:
            first = ours[0]
            row = PROVIDERS[first.provider]
            others = [f"{first.provider}:{name}" for name in first.models[1:4]]
            others += [f"{each.provider}:{each.models[0]}" for each in ours[1:]]
            why = f"{row.name} runs on this machine; {_CHANGE}"
            if others:
                why += f", such as {', '.join(others)}"
            return self._served(row, first.models[0], why)
        if path and not why_no_local(path):
            return self._local(path, f"{source}; {_CHANGE}")
        seen = [server for server in servers if server.models]
        offers = [
            f"Something at {server.base_url} offers {server.models[0]}: "
            f"{MODEL_VARIABLE}={server.provider}:{server.models[0]} uses it."
            for server in seen
        ]
        if path:
            offers.insert(0, why_no_local(path))
        proxy = self.env.get(PROXY_URL_VARIABLE, "").strip()
        if proxy:
            offers.insert(
                0,
                f"The proxy at {proxy} has keys: {MODEL_VARIABLE}={PROXY}:PROVIDER:NAME uses it.",
            )
        return self._demo(
            "Model demo: scripted replies, no AI. Set ANTHROPIC_API_KEY or OPENAI_API_KEY, start "
            f"Ollama, or name a model: {MODEL_VARIABLE}=PROVIDER:NAME. {' '.join(offers)}".strip()
        )

    def _served(
        self, row: Provider, name: str, why: str, *, check_name: bool = False
    ) -> ChosenModel:
        from pi_agent_kernel.models.model_info import describe_model, nearest_name
        from pi_agent_kernel.models.probes import server_address
        from pi_agent_kernel.models.pydantic_ai import provider_stream_fn

        base_url = server_address(row.id, self.env)
        spec = f"{row.id}:{name}"
        is_own = base_url == row.base_url and not row.keyless
        summary = f"Model {spec}{'' if is_own else f' at {shown_address(base_url)}'} ({why})."
        missing = missing_package(row.api)
        lacks_key = is_own and bool(base_url) and not row.key(self.env)
        no_key = not row.keyless and not row.key(self.env)
        if no_key and self.env.get(PROXY_URL_VARIABLE):
            return self._proxied(spec, f"{why}; no key here, so by the proxy")
        if missing:
            summary += f" It needs a package: pip install '{missing}'."
        elif lacks_key:
            missing = row.key_variables[0]
            summary += f" It needs a key: set {missing}."
        return ChosenModel(
            model=partial(describe_model, row, name, base_url),
            stream_fn=provider_stream_fn(env=self._given),
            summary=summary,
            missing=missing,
            spec=spec,
            hint=partial(nearest_name, row, name) if check_name and is_own else None,
        )

    def _proxied(self, text: str, why: str) -> ChosenModel:
        """Choose a model that a proxy serves, with what is known of it here."""
        from pi_agent_kernel.models.model_info import describe_model
        from pi_agent_kernel.models.proxy import proxied_model

        spec = read_spec(text)
        row = PROVIDERS.get(spec.provider)
        if spec.provider == LOCAL or (row is None and spec.provider != DEMO):
            raise ModelError(
                f"A proxy serves no {spec.provider!r} models, only those of providers."
            )
        name = spec.name or (row.default_model if row else "")
        described = describe_model(row, name, "") if row and name else None
        behind = f"{spec.provider}:{name}" if name else spec.provider
        model, stream_fn = proxied_model(behind, self._given, described)
        where = shown_address(self.env[PROXY_URL_VARIABLE])
        return ChosenModel(
            model=model,
            stream_fn=stream_fn,
            summary=f"Model {behind} through the proxy at {where} ({why}).",
            spec=f"{PROXY}:{behind}",
        )

    def _default_name(self, row: Provider) -> str:
        """Return the model that a provider alone stands for; a server of one's own is asked."""
        if row.default_model:
            return row.default_model
        from pi_agent_kernel.models.probes import find_servers, server_address

        found = find_servers(self.env, [row.id])
        if found and found[0].models:
            return found[0].models[0]
        where = shown_address(server_address(row.id, self.env))
        what = "lists no model that can chat" if found else "does not answer"
        raise ModelError(
            f"{row.name} at {where} {what}. Start it with a model, say where it is in "
            f"{row.url_variable}, or name the model: {row.id}:NAME."
        )

    def _local(self, path: str, why: str) -> ChosenModel:
        problem = why_no_local(path)
        if problem:
            raise ModelError(problem)
        from pi_agent_kernel.models.local_llama import local_model, local_stream_fn

        whole = str(Path(path).expanduser().absolute())
        return ChosenModel(
            model=local_model(whole),
            stream_fn=local_stream_fn(whole),
            summary=f"Model {LOCAL}:{path}, run by llama.cpp on this machine ({why}).",
            spec=f"{LOCAL}:{path}",
        )

    def _demo(self, summary: str) -> ChosenModel:
        from pi_agent_kernel.models.demo import DEMO_MODEL, UNPACED_VARIABLE, demo_stream_fn

        stream_fn = demo_stream_fn(paced=not self.env.get(UNPACED_VARIABLE))
        return ChosenModel(model=DEMO_MODEL, stream_fn=stream_fn, summary=summary, spec=DEMO)


def why_no_local(path: str) -> str:
    """Say what keeps a GGUF file from running; nothing if it can.

    Args:
        path: The file; `~` stands for the home directory.
    """
    from importlib.util import find_spec

    try:
        there = Path(path).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # a name no file can have; no home directory
        there = False
    if not there:
        return f"There is no file {path!r}; {LOCAL}:PATH and {GGUF_VARIABLE} name a GGUF file."
    if find_spec("xllamacpp") is None:
        return "Running a GGUF file needs a package: pip install 'pi-notebook[local]'."
    return ""
