"""Choosing a model that a proxy serves: models.md 2.3, issue of the hub."""

import pytest
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.models.catalog import check_spec, choose_model

ENV = {
    "PI_NOTEBOOK_PROXY_URL": "http://127.0.0.1:1/pi",
    "PI_NOTEBOOK_PROXY_TOKEN": "secret-token",
}


@pytest.mark.parametrize(
    "spec", ["proxy:anthropic:claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"]
)
def test_a_model_without_a_key_here_goes_through_the_proxy(spec):
    """Named so, or because only the proxy has the key; what is known of the model stays."""
    chosen = choose_model(spec, ENV)

    assert chosen.spec == "proxy:anthropic:claude-sonnet-4-5"
    assert (chosen.model.provider, chosen.model.api) == ("anthropic", "anthropic-messages")
    assert (chosen.model.base_url, chosen.model.headers) == ("", None)
    assert chosen.model.context_window > 100_000
    assert chosen.missing == ""
    assert "through the proxy at http://127.0.0.1:1/pi" in chosen.reason
    assert "secret-token" not in chosen.reason


def test_a_key_of_ones_own_goes_before_the_proxy():
    """The proxy is for those who have none."""
    chosen = choose_model("anthropic:claude-sonnet-4-5", {**ENV, "ANTHROPIC_API_KEY": "k"})
    assert chosen.spec == "anthropic:claude-sonnet-4-5"


def test_without_a_proxy_the_choice_is_refused():
    """The message says which variable is missing and who sets it."""
    with pytest.raises(ModelError, match="PI_NOTEBOOK_PROXY_URL is not set"):
        choose_model("proxy:openai:gpt-5", {})


@pytest.mark.parametrize(
    "spec", ["proxy:", "proxy:nobody:x", "proxy:local:/x.gguf", "proxy:proxy:a:b"]
)
def test_what_no_proxy_serves_is_refused(spec):
    """Bad names behind the prefix are as bad as without it."""
    with pytest.raises(ModelError):
        choose_model(spec, ENV)


def test_a_proxied_spec_may_be_configured():
    """`%config PiNotebook.model` checks the name behind the prefix."""
    check_spec("proxy:openai:gpt-5-mini")
    with pytest.raises(ModelError):
        check_spec("proxy:opnai:gpt-5-mini")


def test_the_demo_tells_of_the_proxy():
    """Where nothing is chosen, the line that says so names the proxy and how to use it."""
    nothing = {
        f"{name}_BASE_URL": "http://127.0.0.1:9/v1"
        for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")
    }
    chosen = choose_model(None, {**ENV, **nothing})

    assert chosen.spec == "demo"
    assert "http://127.0.0.1:1/pi" in chosen.summary
    assert "PI_NOTEBOOK_MODEL=proxy:PROVIDER:NAME" in chosen.summary
    assert "secret-token" not in chosen.summary
