"""Read a model's spec, `provider:name`, and say what was probably meant where it is none."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

import msgspec

from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.models.providers import PROVIDERS

__all__ = ["DEMO", "LOCAL", "PROXY", "Spec", "proxied", "read_spec"]

DEMO = "demo"
#: Before the path of a GGUF file.
LOCAL = "local"
#: Before the spec of a model that a proxy serves.
PROXY = "proxy"

#: How providers are also called.
_ALIASES = {
    "amazon": "bedrock",
    "aws": "bedrock",
    "chatgpt": "openai",
    "claude": "anthropic",
    "gemini": "google",
    "gguf": LOCAL,
    "glm": "zai",
    "gpt": "openai",
    "grok": "xai",
    "hf": "huggingface",
    "kimi": "moonshotai",
    "llama-cpp": "llamacpp",
    "llama.cpp": "llamacpp",
    "lm-studio": "lmstudio",
    "moonshot": "moonshotai",
    "openai-completions": "openai-chat",
    "openai-responses": "openai",
    "x-ai": "xai",
    "z-ai": "zai",
    "z.ai": "zai",
}
#: Whose model a bare name is, by its beginning.
_OWNERS = (
    (re.compile(r"gpt-oss"), "groq"),
    (re.compile(r"gpt|chatgpt|codex|o\d(?![a-z])"), "openai"),
    (re.compile(r"claude|opus|sonnet|haiku"), "anthropic"),
    (re.compile(r"gemini"), "google"),
    (re.compile(r"[a-z]*stral|mixtral"), "mistral"),
    (re.compile(r"deepseek"), "deepseek"),
    (re.compile(r"grok"), "xai"),
    (re.compile(r"kimi|moonshot"), "moonshotai"),
    (re.compile(r"glm"), "zai"),
    (re.compile(r"llama|qwen|gemma|phi|smollm"), "ollama"),
    (re.compile(r"(?:global|us|eu)\.|amazon\.|anthropic\."), "bedrock"),
)


class Spec(msgspec.Struct, frozen=True):
    """Name a provider and one of its models."""

    provider: str
    #: Empty for the provider's default.
    name: str = ""


def proxied(text: str) -> str:
    """Return the spec behind `proxy:`; nothing if the text does not begin so."""
    head, colon, rest = text.strip().partition(":")
    return rest.strip() if colon and head.strip().lower() == PROXY else ""


def read_spec(text: str, registered: Collection[str] = ()) -> Spec:
    """Read a spec.

    Args:
        text: `provider:name`, a provider alone, `demo`, `local:PATH` or a registered name. Spaces
            around either part and the case of the provider do not count.
        registered: Names that stand for themselves.

    Returns:
        A spec; a registered name is its provider.

    Raises:
        ModelError: It is none; the message says what was probably meant and lists what works.
    """
    wanted = text.strip()
    if wanted in registered:
        return Spec(wanted)
    provider, colon, name = (part.strip() for part in wanted.partition(":"))
    provider = provider.lower()
    if provider == DEMO and not name:
        return Spec(DEMO)
    if (provider in PROVIDERS or provider == LOCAL) and (name or not colon):
        if name and (provider == LOCAL or not re.search(r"\s|^:", name)):
            return Spec(provider, name)
        if not colon and provider != LOCAL:
            return Spec(provider)
    raise ModelError(_explain(wanted, registered))


def _explain(wanted: str, registered: Collection[str]) -> str:
    """Say what was wrong with a spec, what was probably meant, and what there is."""
    listing = (
        f"These work: {', '.join([DEMO, *sorted(registered)])}, {LOCAL}:PATH.gguf, and "
        f"PROVIDER:NAME with {', '.join(PROVIDERS)}."
    )
    shown = wanted if len(wanted) <= 100 else f"{wanted[:100]}…"
    if not wanted:
        return f"The name of the model is empty. {listing}"
    provider, colon, name = (part.strip() for part in wanted.partition(":"))
    known = provider.lower()
    if known == LOCAL:
        return f"The model {shown!r} lacks the path of a GGUF file, as in {LOCAL}:~/qwen.gguf."
    if known in PROVIDERS and not name:
        default = PROVIDERS[known].default_model
        example = f"{known}:{default}" if default else f"{known}:NAME"
        return f"The model {shown!r} lacks a name after the colon, as in {example}. {listing}"
    if known in PROVIDERS:
        meant = f"{known}:{'-'.join(name.split()).lstrip(':')}"
        return f"{shown!r} is no name of a model. Did you mean {meant!r}?"
    meant = _meant(wanted, known, name if colon else "", registered)
    suggestion = f" Did you mean {meant!r}?" if meant else ""
    return f"There is no model {shown!r}.{suggestion} {listing}"


def _meant(wanted: str, provider: str, name: str, registered: Collection[str]) -> str:
    """Guess the spec that was meant; nothing if none is near."""
    if wanted.lower().endswith(".gguf"):
        return f"{LOCAL}:{wanted}"
    head, slash, tail = wanted.partition("/")
    for_slash = _provider_of(head.strip().lower()) if slash else ""
    if for_slash and tail.strip():
        return f"{for_slash}:{tail.strip()}"
    slip = difflib.get_close_matches(provider, PROVIDERS, n=1, cutoff=0.8) if name else []
    if slip:
        return f"{slip[0]}:{name}"
    swapped = _provider_of(name.lower()) if name else ""
    owner = next((owner for names, owner in _OWNERS if names.match(provider)), "")
    if swapped and (owner or provider not in _ALIASES):
        return f"{swapped}:{wanted.partition(':')[0].strip()}"
    alias = _ALIASES.get(provider, "")
    if name and alias:
        return f"{alias}:{name}"
    words = wanted.split()
    if not name and len(words) > 1 and words[0].lower() in PROVIDERS:
        return f"{words[0].lower()}:{'-'.join(words[1:])}"
    if owner and not name:
        return f"{owner}:{'-'.join(words).lower()}"
    # A bare "qwen3:8b" is how Ollama writes names.
    tag = re.fullmatch(r"latest|[ex]?\d+(?:\.\d+)?[bm][\w.-]*", name.lower()) if name else None
    if tag and re.search(r"\d|llama|qwen|gemma|phi|mistral", provider):
        return f"ollama:{wanted}"
    near = {each.lower(): each for each in (DEMO, LOCAL, *PROVIDERS, *registered)}
    close = difflib.get_close_matches(provider, near, n=1, cutoff=0.7)
    if not close:
        by_name = next((owner for names, owner in _OWNERS if names.match(name.lower())), "")
        return f"{by_name}:{name}" if by_name else f"ollama:{wanted}" if tag else ""
    found = near[close[0]]
    if found == DEMO or found in registered:
        return found
    if name:
        return f"{found}:{name}"
    return f"{found}:{PROVIDERS[found].default_model or 'NAME'}" if found in PROVIDERS else ""


def _provider_of(word: str) -> str:
    return word if word in PROVIDERS else _ALIASES.get(word, "")
