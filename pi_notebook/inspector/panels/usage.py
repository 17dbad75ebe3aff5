"""Tokens and cost, answer by answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pi_agent_kernel.messages import AssistantMessage

from pi_notebook.budget import cost_is_known
from pi_notebook.inspector.panel import Layout, Note, Panel, Row, Rows
from pi_notebook.inspector.panels.requests import cached_share
from pi_notebook.inspector.words import number

if TYPE_CHECKING:
    from pi_notebook.inspector.scene import Scene

__all__ = ["usage_panel"]

_TOKENS = (("answer", "k"), ("model", "v"), ("in", "n"), ("cached", "n"), ("out", "n"))
LAYOUT = Layout("usage", (*_TOKENS, ("cost", "n")))
PLAIN_LAYOUT = Layout("usage", _TOKENS)


def usage_panel(scene: Scene) -> Panel:
    """List what each answer took, and the sums."""
    answers = [
        (place, message)
        for place, message in enumerate(scene.agent.state.messages)
        if isinstance(message, AssistantMessage)
    ]
    layout = LAYOUT if scene.exact else PLAIN_LAYOUT

    def read(start: int, stop: int) -> Sequence[Row]:
        return [_row(scene, place, message) for place, message in answers[start:stop]]

    if not answers:
        return Panel("usage", "Usage", blocks=(Note("No answers", "yet, so nothing was used."),))
    used = [message.usage for _, message in answers]
    taken = sum(one.input + one.cache_read + one.cache_write for one in used)
    cached = sum(one.cache_read for one in used)
    written = sum(one.output for one in used)
    said = [f"{number(taken)} tokens in"]
    if taken:
        said[0] += f", {number(cached)} of them cached ({cached / taken:.0%})"
    said.append(f"{number(written)} tokens out")
    if scene.exact:
        known = [one.cost.total for one in used if cost_is_known(one.cost)]
        unknown = len(used) - len(known)
        price = f"${sum(known):.4f}"
        said.append(price + (f", and {unknown} answers of unknown price" if unknown else ""))
    count = f"{len(answers)} answer{'' if len(answers) == 1 else 's'}"
    note = Note(count, " · ".join(said))
    return Panel("usage", "Usage", blocks=(note,), rows=Rows(layout, len(answers), read))


def _row(scene: Scene, place: int, message: AssistantMessage) -> Row:
    usage = message.usage
    taken = usage.input + usage.cache_read + usage.cache_write
    cells = (
        str(place),
        f"{scene.words.line(message.model, 80)} · {message.stop_reason}",
        number(taken),
        cached_share(usage),
        number(usage.output),
    )
    if scene.exact:
        price = f"${usage.cost.total:.4f}" if cost_is_known(usage.cost) else "unknown"
        cells = (*cells, price)
    return Row(cells, tone="bad" if message.stop_reason == "error" else "")
