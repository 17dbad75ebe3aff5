"""Traitlets: `c.PiNotebook.model = …` in `ipython_config.py`, or `%config PiNotebook`.

What is more particular wins: a trait, then the environment (`PI_NOTEBOOK_MODEL`), then an option
of the cell or an argument of the call.
"""

from __future__ import annotations

from typing import Any

from traitlets import TraitError, Unicode, validate
from traitlets.config import Configurable

__all__ = ["PiNotebook"]


class PiNotebook(Configurable):
    """Hold the settings of agents that are made from now on."""

    #: Whether a model that does not exist is refused. Not while the file of settings is read: it
    #: may name a model that a later line registers, and a wrong one must not keep the rest out.
    strict = False

    model = Unicode(
        "",
        help="Model of new agents, as provider:name; PI_NOTEBOOK_MODEL goes before it. "
        "Empty: the first one that can be used here, else the built-in demo model.",
    ).tag(config=True)

    gguf = Unicode(
        "",
        help="Path of a GGUF file that llama.cpp runs if nothing else is set up; "
        "PI_NOTEBOOK_GGUF goes before it.",
    ).tag(config=True)

    system_prompt = Unicode("", help="System prompt of new agents.").tag(config=True)

    @validate("model")
    def _check_model(self, proposal: Any) -> str:
        from pi_agent_kernel.errors import ModelError
        from pi_agent_kernel.models.catalog import check_spec

        spec: str = proposal["value"].strip()
        if self.strict and spec:
            try:
                check_spec(spec)
            except ModelError as error:
                raise TraitError(str(error)) from None
        return spec
