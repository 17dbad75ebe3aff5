"""Traitlets: `c.PiNotebook.model = …` in `ipython_config.py`, or `%config PiNotebook`.

What is more particular wins: a trait, then the environment (`PI_NOTEBOOK_MODEL`), then an option
of the cell or an argument of the call.
"""

from __future__ import annotations

from traitlets import Unicode
from traitlets.config import Configurable

__all__ = ["PiNotebook"]


class PiNotebook(Configurable):
    """Hold the settings of agents that are made from now on."""

    model = Unicode(
        "",
        help="Model of new agents, as provider:name; PI_NOTEBOOK_MODEL goes before it. "
        "Empty: the first one that can be used here, else the built-in demo model.",
    ).tag(config=True)

    system_prompt = Unicode("", help="System prompt of new agents.").tag(config=True)
