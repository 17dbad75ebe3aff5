"""What an administrator configures, as `c.PiServer.…` in `jupyter_server_config.py`."""

from __future__ import annotations

from traitlets import Dict, Int, List, Unicode
from traitlets.config import LoggingConfigurable

__all__ = ["PiServer"]


class PiServer(LoggingConfigurable):
    """Say which models the kernels of this server may use, and how much of them."""

    models = List(
        Unicode(),
        config=True,
        help="The models that may be used, as provider:name; * and ? in the name stand for any "
        "characters. Without an entry the extension does nothing.",
    )
    default_model = Unicode(
        config=True,
        help="The one that kernels use unless told otherwise: PI_NOTEBOOK_MODEL in their "
        "environment, where it is not set already.",
    )
    keys = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        config=True,
        help="API keys by provider. Without one, the provider's variable in the environment of "
        "the server (ANTHROPIC_API_KEY ...) is used and taken out of it, so that no kernel "
        "inherits it. Do not give keys on a command line, which others can read.",
    )
    addresses = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        config=True,
        help="Addresses by provider, for a server or gateway other than the provider's own.",
    )
    requests_per_minute = Int(60, min=0, config=True, help="For each user; 0 is no limit.")
    tokens_per_day = Int(
        5_000_000,
        min=0,
        config=True,
        help="For each user, input and output, from midnight UTC; 0 is no limit. Counted after "
        "each response and kept in memory: a restart of the server begins at zero.",
    )
    concurrent_streams = Int(4, min=0, config=True, help="For each user; 0 is no limit.")
    max_body_bytes = Int(
        32 * 1024 * 1024, min=1024, config=True, help="The largest request, images included."
    )
    url = Unicode(
        config=True,
        help="Where kernels find this server, up to and including /pi; needed if that is not "
        "where it listens: behind TLS with a name of its own, or for kernels on other machines.",
    )
