"""A Jupyter Server extension: models for the kernels of this server, keys only in the server.

It speaks the proxy protocol of `pi_agent_kernel.models.proxy_protocol` at `<base_url>/pi`. It
does nothing at all until its configuration allows at least one model:

    c.PiServer.models = ["anthropic:claude-*", "openai:gpt-5*"]

Keys come from the configuration or from the server's environment, and are taken out of the
latter before a kernel can inherit them.
"""

from __future__ import annotations

from typing import Any

__all__ = ["load"]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Tell Jupyter Server what to load."""
    return [{"module": "pi_notebook.server"}]


def _load_jupyter_server_extension(serverapp: Any) -> None:
    """Be loaded by Jupyter Server."""
    load(serverapp)


def load(serverapp: Any) -> None:
    """Serve the allowed models, if there are any.

    Args:
        serverapp: The running `ServerApp`.

    Raises:
        ValueError: An entry of `c.PiServer.models`, `keys` or `addresses` names no provider. The
            keys of the others are out of the environment by then.
    """
    from pi_notebook.server.settings import PiServer

    settings = PiServer(parent=serverapp)
    if not settings.models:
        serverapp.log.debug("pi_notebook.server: c.PiServer.models is empty, nothing to serve.")
        return

    from pi_notebook.server.routes import serve

    serve(serverapp, settings)
