"""The verbs about models: `%agent model` and `%agent models`; and loading one ahead of its use."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from pi_notebook import frontend
from pi_notebook.render.status import columns_bundle, table_bundle

if TYPE_CHECKING:
    from pi_agent_kernel.models.catalog import ChosenModel
    from pi_agent_kernel.request import Model

    from pi_notebook.notebook_agent import NotebookAgent

__all__ = ["show_model", "show_models", "warm_in_background"]


def show_model(agent: NotebookAgent, spec: str) -> None:
    """Show the agent's model; change it first if a spec is given.

    Raises:
        ModelError: There is no such model.
    """
    chosen = agent.set_model(spec) if spec else agent.chosen_model
    rows = [("model", chosen.model.id), ("chosen", chosen.reason)]
    known = _window(chosen.model), _price(chosen.model)
    rows += [
        (name, f"{value} {unit}")
        for name, value, unit in (
            ("context", known[0], "tokens"),
            ("price", known[1], "dollars per million tokens in / out"),
        )
        if value
    ]
    frontend.publish(table_bundle(rows))
    if spec:
        warm_in_background(chosen)


def show_models(gguf: str, current: ChosenModel | None) -> None:
    """Show what can be used now and what the others need.

    Args:
        gguf: The configured model file, if any.
        current: The agent's own model, if there is one.
    """
    from pi_agent_kernel.models.survey import survey_models

    rows: list[tuple[str, ...]] = []
    states = survey_models(gguf=gguf)
    used = "" if current is None else current.spec
    if current is not None and all(state.spec != used for state in states):
        why = f"needs {current.missing}" if current.missing else "chosen for this notebook"
        rows.append((used, "in use", _window(current.model), _price(current.model), why))
    for state in states:
        model = state.model
        rows.append(
            (
                state.spec,
                "in use" if state.spec == used else "usable" if state.usable else "no",
                "" if model is None else _window(model),
                "" if model is None else _price(model),
                state.why,
            )
        )
    frontend.publish(columns_bundle(("spec", "state", "context", "$ in / out", "why"), rows))


def warm_in_background(chosen: ChosenModel) -> None:
    """Start importing what the model's first request needs, and return at once."""
    threading.Thread(target=_warm, args=(chosen,), name="pi-notebook-warm-up", daemon=True).start()


def _warm(chosen: ChosenModel) -> None:
    from pi_agent_kernel.models.survey import warm_up

    with contextlib.suppress(Exception):  # a package that is broken is told by the request
        warm_up(chosen)


def _window(model: Model) -> str:
    size = model.context_window
    if not size:
        return ""
    return f"{size / 1e6:.3g}M" if size >= 1_000_000 else f"{size / 1000:.0f}k"


def _price(model: Model) -> str:
    rates = model.cost
    return f"{rates.input:g} / {rates.output:g}" if rates.input or rates.output else ""
