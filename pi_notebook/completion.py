"""Tab completion after `%agent`: verbs, and specs of models after `%agent model`."""

from __future__ import annotations

from typing import Any

from pi_notebook.verbs import verb_names

__all__ = ["install_completions", "remove_completions"]

_KEY = "%agent"
_HOOK = "complete_command"


def install_completions(shell: Any) -> None:
    """Offer completions in a shell."""
    shell.set_hook(_HOOK, _complete, str_key=_KEY)


def remove_completions(shell: Any) -> None:
    """Undo `install_completions`; IPython itself has no way back."""
    shell.strdispatchers[_HOOK].strs.pop(_KEY, None)


def _complete(_shell: object, event: Any) -> list[str]:
    line: str = getattr(event, "text_until_cursor", event.line)
    words = line.split()
    word = "" if line[-1:].isspace() else words[-1]
    before = words[1:] if not word else words[1:-1]
    if not before:
        found = verb_names()
    elif before == ["model"]:
        found = _specs(word)
    else:
        return []
    # The front end replaces only what follows the last colon or slash.
    done = len(word) - len(event.symbol)
    return [text[done:] for text in found if text.startswith(word)]


def _specs(word: str) -> list[str]:
    from pi_agent_kernel.models.catalog import registered_names
    from pi_agent_kernel.models.model_specs import DEMO, LOCAL
    from pi_agent_kernel.models.providers import PROVIDERS

    provider, colon, _ = word.partition(":")
    row = PROVIDERS.get(provider)
    if not colon or row is None:
        return [DEMO, *registered_names(), *(f"{each}:" for each in (*PROVIDERS, LOCAL))]
    if row.keyless:
        import os

        from pi_agent_kernel.models.probes import find_servers

        names = [name for server in find_servers(os.environ, [row.id]) for name in server.models]
    else:
        from pi_agent_kernel.models.model_info import known_models

        names = known_models(row)
    return [f"{row.id}:{name}" for name in names]
