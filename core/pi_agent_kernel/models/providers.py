"""The providers known by name: where they are, what they speak, which variables they read.

A provider is one row here; how its wire format is spoken is in `families`. A server that is not
listed is reached as `openai-chat` with its address in `OPENAI_BASE_URL`, or by any row's address
variable.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["PROVIDERS", "Provider"]


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Describe one provider."""

    id: str
    #: Its name as people write it.
    name: str
    #: The wire format: a key of `families.FAMILIES`.
    api: str
    #: The API's address; empty when only a variable or the SDK's own rules can give it.
    base_url: str = ""
    #: Environment variables that may hold the key, the first that is set wins.
    key_variables: tuple[str, ...] = ()
    #: The environment variable that may hold another address.
    url_variable: str = ""
    #: Whether it can run without a key: a server of one's own.
    keyless: bool = False


def _compatible(id: str, name: str, base_url: str, variable: str = "") -> Provider:
    """Describe a provider that speaks chat completions."""
    stem = (variable or id).upper().replace("-", "_")
    return Provider(
        id=id,
        name=name,
        api="openai-completions",
        base_url=base_url,
        key_variables=(f"{stem}_API_KEY",),
        url_variable=f"{stem}_BASE_URL",
    )


_ALL = (
    Provider(
        id="anthropic",
        name="Anthropic",
        api="anthropic-messages",
        base_url="https://api.anthropic.com",
        key_variables=("ANTHROPIC_API_KEY",),
        url_variable="ANTHROPIC_BASE_URL",
    ),
    Provider(
        id="openai",
        name="OpenAI",
        api="openai-responses",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        url_variable="OPENAI_BASE_URL",
    ),
    Provider(
        id="openai-chat",
        name="OpenAI chat completions, or a server that speaks them",
        api="openai-completions",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        url_variable="OPENAI_BASE_URL",
    ),
    Provider(
        id="google",
        name="Google Gemini",
        api="google-generative-ai",
        base_url="https://generativelanguage.googleapis.com",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_variable="GOOGLE_GEMINI_BASE_URL",
    ),
    Provider(
        id="bedrock",
        name="Amazon Bedrock",
        api="bedrock-converse-stream",
        key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
        url_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    ),
    Provider(
        id="mistral",
        name="Mistral",
        api="mistral-conversations",
        base_url="https://api.mistral.ai",
        key_variables=("MISTRAL_API_KEY",),
        url_variable="MISTRAL_BASE_URL",
    ),
    Provider(
        id="groq",
        name="Groq",
        api="groq-completions",
        base_url="https://api.groq.com",
        key_variables=("GROQ_API_KEY",),
        url_variable="GROQ_BASE_URL",
    ),
    _compatible("openrouter", "OpenRouter", "https://openrouter.ai/api/v1"),
    _compatible("deepseek", "DeepSeek", "https://api.deepseek.com"),
    _compatible("xai", "xAI", "https://api.x.ai/v1"),
    _compatible("together", "Together", "https://api.together.xyz/v1"),
    _compatible("fireworks", "Fireworks", "https://api.fireworks.ai/inference/v1"),
    _compatible("cerebras", "Cerebras", "https://api.cerebras.ai/v1"),
    _compatible("moonshotai", "Moonshot", "https://api.moonshot.ai/v1"),
    _compatible("zai", "Z.ai", "https://api.z.ai/api/paas/v4"),
    Provider(
        id="ollama",
        name="Ollama",
        api="openai-completions",
        base_url="http://127.0.0.1:11434/v1",
        key_variables=("OLLAMA_API_KEY",),
        url_variable="OLLAMA_BASE_URL",
        keyless=True,
    ),
    Provider(
        id="lmstudio",
        name="LM Studio",
        api="openai-completions",
        base_url="http://127.0.0.1:1234/v1",
        key_variables=("LMSTUDIO_API_KEY",),
        url_variable="LMSTUDIO_BASE_URL",
        keyless=True,
    ),
)

#: By id.
PROVIDERS: Mapping[str, Provider] = {provider.id: provider for provider in _ALL}
