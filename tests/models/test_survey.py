from __future__ import annotations

import subprocess
import sys

import pytest
from loopback import Loopback, lm_studio, ollama
from pi_agent_kernel.models.catalog import choose_model, register_model, unregister_model
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.models.survey import survey_models, warm_up

NOTHING = {
    f"{name}_BASE_URL": "http://127.0.0.1:9/v1"
    for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")
}


def survey(env=(), **settings):
    return {state.spec: state for state in survey_models({**NOTHING, **dict(env)}, **settings)}


def test_every_provider_has_a_line():
    """Each provider is listed once with what it needs; nothing but the demo is usable as it is."""
    states = survey()

    assert {spec.partition(":")[0] for spec in states} == {*PROVIDERS, "local", "demo"}
    assert [spec for spec, state in states.items() if state.usable] == ["demo"]
    assert states["anthropic:claude-sonnet-5-5"].why == "needs ANTHROPIC_API_KEY"
    assert states["ollama:NAME"].why == "no server at http://127.0.0.1:9/v1"
    assert states["bedrock:global.anthropic.claude-sonnet-5-5"].why == "needs AWS credentials"
    assert "PI_NOTEBOOK_GGUF" in states["local:PATH.gguf"].why


def test_what_can_be_used_comes_first():
    """A key, a server, a registered name or AWS credentials make a usable line."""
    register_model("mine", print)
    try:
        with Loopback(ollama("a:1", "b:2")) as known, Loopback(lm_studio("c", owner="x")) as other:
            env = {
                "OPENAI_API_KEY": "secret",
                "AWS_PROFILE": "secret",
                "OLLAMA_BASE_URL": known.url,
                "VLLM_BASE_URL": other.url,
            }
            states = survey(env)
    finally:
        unregister_model("mine")

    usable = [spec for spec, state in states.items() if state.usable]
    assert usable == list(states)[: len(usable)]
    assert {"mine", "openai:gpt-6.1-sol", "ollama:a:1", "ollama:b:2", "vllm:c"} <= set(usable)
    assert states["openai:gpt-6.1-sol"].why == "OPENAI_API_KEY is set"
    assert states["ollama:a:1"].why == "Ollama is running"
    assert states["vllm:c"].why == f"something answers at {other.url}"
    assert states["ollama:a:1"].model.base_url == known.url
    assert not any("secret" in repr(state) for state in states.values())


def test_another_server_in_openais_place_has_no_models_of_openai():
    """What a server at OPENAI_BASE_URL serves nobody knows: no name is said to work there."""
    env = {"OPENAI_API_KEY": "secret", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1/"}
    states = survey(env)

    assert not any(spec.startswith(("openai:gpt", "openai-chat:gpt")) for spec in states)
    for spec in ("openai:NAME", "openai-chat:NAME"):
        assert states[spec].usable is False
        assert "OPENAI_BASE_URL is http://127.0.0.1:9/v1" in states[spec].why
    own = {"OPENAI_API_KEY": "secret", "OPENAI_BASE_URL": "https://api.openai.com/v1/"}
    assert survey(own)["openai:gpt-6.1-sol"].usable is True


def test_a_proxy_is_listed():
    """Where a proxy has the keys, a usable line says how its models are named."""
    assert "proxy:PROVIDER:NAME" not in survey()
    url = "http://127.0.0.1:1/pi"
    states = survey({"PI_NOTEBOOK_PROXY_URL": url, "PI_NOTEBOOK_PROXY_TOKEN": "secret"})

    state = states["proxy:PROVIDER:NAME"]
    assert state.usable
    assert url in state.why
    assert not any("secret" in repr(state) for state in states.values())


def test_a_model_file_is_listed(tmp_path):
    """A configured file shows whether it is there."""
    there = tmp_path / "small.gguf"
    there.write_bytes(b"GGUF")

    assert survey(gguf=str(tmp_path / "none"))[f"local:{tmp_path}/none"].usable is False
    pytest.importorskip("xllamacpp", reason="[local] is not installed")
    assert survey({"PI_NOTEBOOK_GGUF": str(there)}, gguf="x")[f"local:{there}"].usable is True


def test_warming_up_loads_the_chosen_provider_only():
    """What a request needs is imported, nothing for the demo and nothing of other providers."""
    code = (
        "import sys\n"
        "from pi_agent_kernel.models.catalog import choose_model\n"
        "from pi_agent_kernel.models.survey import warm_up\n"
        "warm_up(choose_model('demo', {}))\n"
        "print('pydantic_ai' in sys.modules)\n"
        "warm_up(choose_model('openai:gpt-5', {}))\n"
        "print('pydantic_ai.models.openai' in sys.modules, 'anthropic' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.split("\n")[:2] == ["False", "True False"]


def test_warming_up_registered_models_does_nothing():
    """A model of one's own has nothing to import."""
    register_model("mine", print)
    try:
        assert warm_up(choose_model("mine", {})) is None
    finally:
        unregister_model("mine")
