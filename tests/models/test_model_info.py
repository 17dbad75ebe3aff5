from __future__ import annotations

import pytest
from pi_agent_kernel.models.model_info import describe_model, known_models
from pi_agent_kernel.models.providers import PROVIDERS


def describe(spec: str):
    provider, _, name = spec.partition(":")
    return describe_model(PROVIDERS[provider], name, "")


@pytest.mark.parametrize(
    ("spec", "reasons", "images"),
    [
        ("anthropic:claude-sonnet-5-5", True, True),
        ("anthropic:claude-3-haiku", False, True),
        ("anthropic:claude-3-7-sonnet-latest", True, True),
        ("bedrock:global.anthropic.claude-sonnet-5-5", True, True),
        ("openai:gpt-6.1-sol", True, True),
        ("openai:gpt-4.1", False, True),
        ("openai:gpt-4o", False, True),
        ("openai:gpt-4", False, False),
        ("openai:gpt-3.5-turbo", False, False),
        ("openai:o3-mini", True, False),
        ("openai:o3", True, True),
        ("google:gemini-3.8-flash", True, True),
        ("google:gemini-2.0-flash", False, True),
        ("mistral:mistral-medium-3-5", True, True),
        ("mistral:codestral-2508", False, False),
        ("groq:openai/gpt-oss-120b", True, False),
        ("groq:llama-3.3-70b-versatile", False, False),
        ("deepseek:deepseek-reasoner", True, False),
        ("deepseek:deepseek-chat", False, False),
        ("xai:grok-4.7", True, True),
        ("xai:grok-4-fast-non-reasoning", False, True),
        ("moonshotai:kimi-k2-thinking", True, False),
        ("moonshotai:kimi-k3.1-pro", True, True),
        ("zai:glm-5.3", True, False),
        ("zai:glm-4.5v", True, True),
        ("ollama:llama3.2:3b", False, True),
        ("ollama:something-new", False, True),
    ],
)
def test_abilities_go_by_the_name(spec, reasons, images):
    """Whether a model thinks and takes images is known for the families in use."""
    model = describe(spec)

    assert (model.reasoning, "image" in model.input) == (reasons, images)
    assert model.input[0] == "text"


@pytest.mark.parametrize(
    "provider", ["anthropic", "openai", "google", "mistral", "deepseek", "moonshotai", "zai"]
)
def test_abilities_agree_with_the_adapter(provider):
    """Nearly all names that the price table lists get the answer that pydantic-ai's tables give."""
    from importlib import import_module

    classes = {
        "anthropic": "AnthropicProvider",
        "openai": "OpenAIProvider",
        "google": "GoogleProvider",
        "mistral": "MistralProvider",
        "deepseek": "DeepSeekProvider",
        "moonshotai": "MoonshotAIProvider",
        "zai": "ZaiProvider",
    }
    module = import_module(f"pydantic_ai.providers.{provider}")
    profile_of = getattr(module, classes[provider]).model_profile
    names = known_models(PROVIDERS[provider])

    different = [
        name
        for name in names
        if describe(f"{provider}:{name}").reasoning
        != bool((profile_of(name.lower()) or {}).get("supports_thinking"))
    ]

    # Theirs say of every Claude and every unknown Gemini that it thinks.
    assert len(different) <= len(names) / 3, different


def test_limits_and_rates_come_from_the_tables():
    """A known model has its window, longest answer and rates; an unknown one has zeros."""
    known, unknown = describe("anthropic:claude-sonnet-5-5"), describe("anthropic:zzz")

    assert known.name == "Claude Sonnet 5.5"
    assert known.context_window == 1_000_000
    assert known.max_tokens == 128_000
    assert known.cost.output > known.cost.input > known.cost.cache_read > 0
    assert known.cost.cache_write > known.cost.input
    assert (unknown.name, unknown.context_window, unknown.cost.input) == ("zzz", 0, 0)


def test_tiered_rates_are_those_of_a_short_prompt():
    """Where long prompts cost more, the rate is the one to start with."""
    assert 0 < describe("openai:gpt-6.1-sol").cost.input < 5


def test_known_models_are_for_chat():
    """Names of models that speak, draw or embed are not offered; own servers list none here."""
    names = known_models(PROVIDERS["openai"])

    assert "gpt-5" in names
    assert [name for name in names if "embed" in name or "tts" in name or "whisper" in name] == []
    assert known_models(PROVIDERS["ollama"]) == []
