"""The providers known by name: where they are, what they speak, which variables they read.

A provider is one row here; how its wire format is spoken is in `families`. A server that is not
listed is reached as `openai-chat` with its address in `OPENAI_BASE_URL`, or by any row's address
variable. The order of the rows is the order in which keys in the environment are looked for.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["PROVIDERS", "Provider", "missing_package"]

#: What speaks a wire format: the module to look for, and the extra that brings it.
_PACKAGES: Mapping[str, tuple[str, str]] = {
    "anthropic-messages": ("anthropic", "pi-notebook"),
    "openai-responses": ("openai", "pi-notebook"),
    "openai-completions": ("openai", "pi-notebook"),
    "google-generative-ai": ("google.genai", "pi-notebook[google]"),
    "bedrock-converse-stream": ("boto3", "pi-notebook[bedrock]"),
    "mistral-conversations": ("mistralai", "pi-notebook[mistral]"),
    "groq-completions": ("groq", "pi-notebook[groq]"),
}


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
    #: The model that the provider's name alone stands for; empty when only its server knows.
    default_model: str = ""
    #: Whether a key in the environment is reason enough to choose it. Not where the key is
    #: usually there for something else.
    chosen_by_key: bool = True
    #: Its id in the price table; empty when its models cost nothing or are not listed.
    prices: str = ""

    def key(self, env: Mapping[str, str]) -> str:
        """Return the name of the variable that holds the key, or nothing if none does."""
        return next((name for name in self.key_variables if env.get(name, "").strip()), "")

    def secret(self, env: Mapping[str, str]) -> str:
        """Return the key itself, without the line break that files end with, or nothing."""
        return env.get(self.key(env), "").strip()

    def address(self, env: Mapping[str, str]) -> str:
        """Return where it is reached, without a slash at the end."""
        return (env.get(self.url_variable, "").strip() or self.base_url).rstrip("/")


def missing_package(api: str) -> str:
    """Return what to install before a wire format can be spoken; nothing if it is there.

    Args:
        api: A key of `families.FAMILIES`. Looking imports nothing heavy.
    """
    from importlib.util import find_spec

    module, requirement = _PACKAGES[api]
    try:
        return "" if find_spec(module) is not None else requirement
    except ModuleNotFoundError:  # not even the package around it
        return requirement


def _compatible(
    id: str,
    name: str,
    base_url: str,
    default_model: str,
    *,
    prices: str = "",
    other_keys: tuple[str, ...] = (),
) -> Provider:
    """Describe a provider that speaks chat completions."""
    stem = id.upper().replace("-", "_")
    return Provider(
        id=id,
        name=name,
        api="openai-completions",
        base_url=base_url,
        key_variables=(f"{stem}_API_KEY", *other_keys),
        url_variable=f"{stem}_BASE_URL",
        default_model=default_model,
        prices=prices or id,
    )


def _own_server(id: str, name: str, port: int) -> Provider:
    """Describe a server that people run on their own machine."""
    stem = id.upper()
    return Provider(
        id=id,
        name=name,
        api="openai-completions",
        base_url=f"http://127.0.0.1:{port}/v1",
        key_variables=(f"{stem}_API_KEY",),
        url_variable=f"{stem}_BASE_URL",
        keyless=True,
        chosen_by_key=False,
    )


_ALL = (
    Provider(
        id="anthropic",
        name="Anthropic",
        api="anthropic-messages",
        base_url="https://api.anthropic.com",
        key_variables=("ANTHROPIC_API_KEY",),
        url_variable="ANTHROPIC_BASE_URL",
        default_model="claude-sonnet-5-5",
        prices="anthropic",
    ),
    Provider(
        id="openai",
        name="OpenAI",
        api="openai-responses",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        url_variable="OPENAI_BASE_URL",
        default_model="gpt-6.1-sol",
        prices="openai",
    ),
    Provider(
        id="openai-chat",
        name="OpenAI chat completions, or a server that speaks them",
        api="openai-completions",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        url_variable="OPENAI_BASE_URL",
        default_model="gpt-6.1-sol",
        chosen_by_key=False,  # the row above has the same key
        prices="openai",
    ),
    Provider(
        id="google",
        name="Google Gemini",
        api="google-generative-ai",
        base_url="https://generativelanguage.googleapis.com",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_variable="GOOGLE_GEMINI_BASE_URL",
        default_model="gemini-3.8-flash",
        prices="google",
    ),
    Provider(
        id="bedrock",
        name="Amazon Bedrock",
        api="bedrock-converse-stream",
        key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
        url_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        default_model="global.anthropic.claude-sonnet-5-5",
        prices="aws",
    ),
    Provider(
        id="mistral",
        name="Mistral",
        api="mistral-conversations",
        base_url="https://api.mistral.ai",
        key_variables=("MISTRAL_API_KEY",),
        url_variable="MISTRAL_BASE_URL",
        default_model="mistral-medium-3-5",
        prices="mistral",
    ),
    Provider(
        id="groq",
        name="Groq",
        api="groq-completions",
        base_url="https://api.groq.com",
        key_variables=("GROQ_API_KEY",),
        url_variable="GROQ_BASE_URL",
        default_model="openai/gpt-oss-120b",
        prices="groq",
    ),
    _compatible(
        "openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "anthropic/claude-sonnet-5.5"
    ),
    _compatible("deepseek", "DeepSeek", "https://api.deepseek.com", "deepseek-v4-pro"),
    _compatible("xai", "xAI", "https://api.x.ai/v1", "grok-4.7", prices="x-ai"),
    _compatible("together", "Together", "https://api.together.xyz/v1", "zai-org/GLM-5.3"),
    _compatible(
        "fireworks",
        "Fireworks",
        "https://api.fireworks.ai/inference/v1",
        "accounts/fireworks/models/kimi-k3",
    ),
    _compatible("cerebras", "Cerebras", "https://api.cerebras.ai/v1", "gpt-oss-120b"),
    _compatible(
        "moonshotai",
        "Moonshot",
        "https://api.moonshot.ai/v1",
        "kimi-k3.1-pro",
        other_keys=("MOONSHOT_API_KEY",),
    ),
    _compatible("zai", "Z.ai", "https://api.z.ai/api/paas/v4", "glm-5.3"),
    Provider(
        id="vercel",
        name="Vercel AI Gateway",
        api="openai-completions",
        base_url="https://ai-gateway.vercel.sh/v1",
        key_variables=("AI_GATEWAY_API_KEY", "VERCEL_AI_GATEWAY_API_KEY"),
        url_variable="AI_GATEWAY_BASE_URL",
        default_model="anthropic/claude-sonnet-5.5",
    ),
    Provider(
        id="huggingface",
        name="Hugging Face",
        api="openai-completions",
        base_url="https://router.huggingface.co/v1",
        key_variables=("HF_TOKEN",),
        url_variable="HF_BASE_URL",
        default_model="openai/gpt-oss-120b",
        chosen_by_key=False,  # the token is there for downloads
    ),
    Provider(
        id="github",
        name="GitHub Models",
        api="openai-completions",
        base_url="https://models.github.ai/inference",
        key_variables=("GITHUB_API_KEY", "GITHUB_TOKEN"),
        url_variable="GITHUB_MODELS_BASE_URL",
        default_model="openai/gpt-4.1",
        chosen_by_key=False,  # the token is there for repositories
    ),
    _own_server("ollama", "Ollama", 11434),
    _own_server("lmstudio", "LM Studio", 1234),
    _own_server("llamacpp", "llama.cpp", 8080),
    _own_server("vllm", "vLLM", 8000),
)

#: By id.
PROVIDERS: Mapping[str, Provider] = {provider.id: provider for provider in _ALL}
