"""What stands on the other side of this process: a notebook, a headless runner, a terminal, nobody.

The only module that asks IPython for it. A runner that can answer no question (`allow_stdin` of the
request is false: nbclient, nbconvert, nbval, papermill) is headless; `PI_NOTEBOOK_HEADLESS` decides
otherwise, both ways.
"""

from __future__ import annotations

import os
import sys
import uuid
from typing import TYPE_CHECKING, Any

from pi_notebook.tool_output import outside_cards

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pi_notebook.render.bundle import MimeBundle
    from pi_notebook.render.live import Publish, View
    from pi_notebook.render.widget import RunControls

__all__ = [
    "cell_id",
    "flush_figures",
    "is_headless",
    "is_kernel",
    "is_live",
    "publish",
    "shell",
    "show_widget",
    "updating",
    "view",
]

HEADLESS = "PI_NOTEBOOK_HEADLESS"


def shell() -> Any:
    """Return the running IPython shell, or None in a plain script."""
    core = sys.modules.get("IPython.core.getipython")
    return None if core is None else core.get_ipython()


def is_headless() -> bool:
    """Tell whether nobody watches, or could answer."""
    wish = os.environ.get(HEADLESS, "").strip().lower()
    if wish:
        return wish not in ("0", "false", "no", "off")
    request = _request()
    return request is not None and not request.get("content", {}).get("allow_stdin", True)


def is_kernel() -> bool:
    """Tell whether a kernel runs this, and not a terminal or a script."""
    return getattr(shell(), "kernel", None) is not None


def is_live() -> bool:
    """Tell whether outputs can be updated and somebody watches them: a notebook."""
    ipython = shell()
    return (
        getattr(ipython, "kernel", None) is not None
        and not is_headless()
        and type(ipython.display_pub).__name__ != "CapturingDisplayPublisher"
    )


def updating() -> Publish:
    """Make the sender of one output of the running cell, which may be updated later."""
    return _publisher(lambda send: send())


def cell_id() -> str | None:
    """Return the id that the front end gave the running cell; runners give none."""
    request = _request()
    return None if request is None else request.get("metadata", {}).get("cellId")


def view(
    post: Callable[[Callable[[], None]], None],
    *,
    agent: str,
    controls: RunControls,
    quiet: bool = False,
) -> View:
    """Choose how the next run is shown.

    Args:
        post: Has the cell's own thread call something: what other threads send would land in
            whichever cell runs there.
        agent: Name of the agent.
        controls: What the buttons of the run do.
        quiet: Show nothing.
    """
    from pi_notebook.render.live import SilentView, StaticView, TerminalView
    from pi_notebook.render.widget import WidgetView

    ipython = shell()
    if quiet or ipython is None:
        return SilentView()
    if is_headless() or type(ipython.display_pub).__name__ == "CapturingDisplayPublisher":
        return StaticView(_publisher(post))
    if not is_kernel():
        return TerminalView(lambda text: post(lambda: _write(text)))
    return WidgetView(agent, _publisher(post), controls)


def publish(data: MimeBundle, metadata: Mapping[str, Any] | None = None) -> None:
    """Show a mime bundle in the running cell."""
    from IPython.display import publish_display_data

    with outside_cards():
        publish_display_data(data=data, metadata=dict(metadata or {}))


def show_widget(value: Any) -> None:
    """Show a widget in the cell, if the value is one and somebody can use it."""
    if not hasattr(value, "_model_id") or is_headless():
        return
    from IPython.display import display

    with outside_cards():
        display(value)


def flush_figures() -> None:
    """Show the figures drawn so far; the inline backend itself waits for the end of the cell."""
    inline = sys.modules.get("matplotlib_inline.backend_inline")
    if inline is None:
        return
    configure = getattr(inline, "configure_inline_support", None)
    if configure is not None and not hasattr(configure, "current_backend"):
        # It is in use since this cell, and would know the formats of figures only from the next.
        configure(shell(), "inline")
    inline.flush_figures()


def _publisher(post: Callable[[Callable[[], None]], None]) -> Publish:
    """Make the sender of one run's output: one display, fresh, updated in place."""
    from IPython.display import publish_display_data

    transient = {"display_id": uuid.uuid4().hex}

    def send(data: MimeBundle, metadata: Mapping[str, Any], *, update: bool) -> None:
        def publish_it() -> None:
            with outside_cards():
                publish_display_data(
                    data=data, metadata=dict(metadata), transient=transient, update=update
                )

        post(publish_it)

    return send


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _request() -> dict[str, Any] | None:
    """Return the message that the kernel is answering."""
    kernel = getattr(shell(), "kernel", None)
    if kernel is None:
        return None
    return kernel.get_parent("shell") or None
