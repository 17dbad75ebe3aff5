"""What can be used now, and what keeps the rest from it; and what a request will import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pi_agent_kernel.models.catalog import (
    GGUF_VARIABLE,
    PROXY_URL_VARIABLE,
    ChosenModel,
    choose_model,
    registered_names,
    why_no_local,
)
from pi_agent_kernel.models.model_specs import DEMO, LOCAL, PROXY
from pi_agent_kernel.models.probes import Server, find_servers, server_address
from pi_agent_kernel.models.providers import PROVIDERS, Provider, missing_package
from pi_agent_kernel.request import Model
from pi_agent_kernel.secrecy import shown_address

__all__ = ["ModelState", "survey_models", "warm_up"]

#: Models shown of one server.
_MOST = 8
_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """Tell whether a model can be used now."""

    #: What to choose it by.
    spec: str
    usable: bool
    #: Why it can be used, or what it needs.
    why: str
    #: What is known of it; None where nobody asked.
    model: Model | None = None


def survey_models(env: Mapping[str, str] | None = None, *, gguf: str = "") -> list[ModelState]:
    """Look at every provider, server on this machine, model file and registered name.

    Takes 0.3 s at most, and needs no network.

    Args:
        env: Environment variables; the process's own by default.
        gguf: Path of a configured GGUF file; the variable `PI_NOTEBOOK_GGUF` goes before it.

    Returns:
        One entry a provider, with its default model, and one for each model of a server that
        answered; those that can be used come first. Where there is a proxy it has a line.
    """
    variables = os.environ if env is None else env
    servers = {server.provider: server for server in find_servers(variables)}
    states = [ModelState(spec=name, usable=True, why="registered") for name in registered_names()]
    for row in PROVIDERS.values():
        if row.keyless:
            states += _served(row, servers.get(row.id), variables)
        else:
            states.append(_hosted(row, variables))
    path = variables.get(GGUF_VARIABLE, "").strip() or gguf.strip()
    states.append(_local(path))
    states.append(ModelState(spec=DEMO, usable=True, why="scripted, no AI"))
    proxy = variables.get(PROXY_URL_VARIABLE, "").strip()
    if proxy:
        why = f"the proxy at {proxy} has the keys"
        states.append(ModelState(spec=f"{PROXY}:PROVIDER:NAME", usable=True, why=why))
    return sorted(states, key=lambda state: not state.usable)


def warm_up(chosen: ChosenModel) -> None:
    """Import what a model's first request needs; meant for a thread in the background.

    What cannot be imported is told by the request.
    """
    provider = chosen.spec.partition(":")[0]
    if provider not in PROVIDERS and provider != LOCAL:
        return
    from pi_agent_kernel.models import families

    families.warm_up([chosen.model.api])


def _hosted(row: Provider, env: Mapping[str, str]) -> ModelState:
    key, where, package = row.key(env), row.address(env), missing_package(row.api)
    if not package and row.prices == "openai" and where != row.base_url:
        # Nobody knows which models another server has, and few speak the newer format.
        elsewhere = f"{row.url_variable} is {shown_address(where)}"
        why = f"{elsewhere}: name one of its models"
        if row.id == "openai":
            why = f"{elsewhere}: openai-chat:NAME if it speaks chat completions"
        return ModelState(spec=f"{row.id}:NAME", usable=False, why=why)
    chosen = choose_model(f"{row.id}:{row.default_model}", env)
    usable = not chosen.missing
    if package:
        why = f"pip install '{package}'"
    elif chosen.missing:
        why = f"needs {chosen.missing}"
    elif key:
        why = f"{key} is set"
    elif where:
        why = f"at {shown_address(where)}"
    else:  # Bedrock looks for credentials itself
        usable = _has_aws_credentials(env)
        why = "AWS credentials are set up" if usable else "needs AWS credentials"
    return ModelState(spec=chosen.spec, usable=usable, why=why, model=chosen.model)


def _has_aws_credentials(env: Mapping[str, str]) -> bool:
    """Say whether there is a sign of credentials; a role of the machine itself shows none."""
    if any(env.get(name) for name in _AWS_VARIABLES):
        return True
    files = [env.get("AWS_SHARED_CREDENTIALS_FILE"), env.get("AWS_CONFIG_FILE")]
    home = env.get("HOME") or env.get("USERPROFILE")
    if home:
        files += [f"{home}/.aws/credentials", f"{home}/.aws/config"]
    return any(Path(name).is_file() for name in files if name)


def _served(row: Provider, server: Server | None, env: Mapping[str, str]) -> list[ModelState]:
    where = shown_address(server_address(row.id, env))
    if server is None:
        why = f"no server at {where}"
        return [ModelState(spec=f"{row.id}:NAME", usable=False, why=why)]
    if not server.models:
        why = f"the server at {where} has no model that can chat"
        return [ModelState(spec=f"{row.id}:NAME", usable=False, why=why)]
    why = f"{row.name} is running" if server.identified else f"something answers at {where}"
    return [
        ModelState(
            spec=f"{row.id}:{name}",
            usable=True,
            why=why,
            model=choose_model(f"{row.id}:{name}", env).model,
        )
        for name in server.models[:_MOST]
    ]


def _local(path: str) -> ModelState:
    if not path:
        why = f"set {GGUF_VARIABLE} to a GGUF file"
        return ModelState(spec=f"{LOCAL}:PATH.gguf", usable=False, why=why)
    problem = why_no_local(path)
    return ModelState(
        spec=f"{LOCAL}:{path}",
        usable=not problem,
        why=problem or f"{Path(path).name} is there",
    )
