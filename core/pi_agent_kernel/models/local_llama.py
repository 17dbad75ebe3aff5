"""A model file of the user's own, run by llama.cpp on this machine.

The file is served by llama.cpp's own server in a process beside this one (`llama_process`); a
request goes to it as to any other server that speaks chat completions.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import cast

import anyio
import msgspec

from pi_agent_kernel.abort import OperationAborted
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.events import AssistantMessageEvent, StreamError
from pi_agent_kernel.models.llama_process import LESS_MEMORY, Launch, LlamaProcess, running, settled
from pi_agent_kernel.models.provider_errors import Failure
from pi_agent_kernel.models.pydantic_ai import provider_stream_fn
from pi_agent_kernel.request import Model, StreamFn, StreamOptions, TranscriptContext
from pi_agent_kernel.response import ResponseBuilder

__all__ = ["local_model", "local_stream_fn"]

_API = "openai-completions"
_LAST_BREATH = 2.0  # seconds between a broken connection and the report that the process ended


def local_model(path: str | os.PathLike[str]) -> Model:
    """Describe a model file: a GGUF file that `local_stream_fn` runs.

    Args:
        path: The file; it is not read. Its name without the ending becomes the model's id.

    Returns:
        A model of provider "local"; `base_url` is empty, since each request finds the server.
    """
    stem = Path(path).stem
    return Model(id=stem, name=stem, api=_API, provider="local")


def local_stream_fn(
    path: str | os.PathLike[str],
    *,
    chat_template: str | None = None,
    n_ctx: int = 8192,
    threads: int | None = None,
) -> StreamFn:
    """Make the stream function for a model file.

    The first request loads the file, which can take a minute; aborting every request that waits
    for it stops the loading. Equal settings share one server in this process. It runs until this
    process ends.

    Args:
        path: A GGUF file. `~` stands for the home directory.
        chat_template: Jinja text that turns messages and tools into the prompt; by default the
            one in the file. Those of many small models know no tools.
        n_ctx: Tokens of prompt and answer together; memory grows with it.
        threads: Processor threads; by default one per physical core. They wait for each other, so
            beside other work fewer are faster, and where a container may use less than it sees.

    Returns:
        An async generator function. It never raises for a failed request (MD-01): a missing
        package, an unusable file, too little memory or a server that died are error messages,
        and the next request tries again.

    Raises:
        ValueError: `n_ctx` or `threads` is not positive.

    Source: MD-01, CO-08.
    """
    if n_ctx < 1 or (threads is not None and threads < 1):
        raise ValueError(f"n_ctx and threads must be positive, not {n_ctx!r} and {threads!r}.")
    launch = Launch(
        path=os.path.abspath(os.path.expanduser(path)),  # noqa: PTH100, PTH111 - reads no file
        chat_template=chat_template,
        n_ctx=n_ctx,
        threads=threads,
    )
    ask = provider_stream_fn(env={})

    async def stream(
        model: Model, context: TranscriptContext, options: StreamOptions | None = None
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        options = options or StreamOptions()
        builder = ResponseBuilder(api=_API, provider=model.provider, model=model.id)
        try:
            server, address = await running(launch, options.signal)
        except OperationAborted:
            yield builder.error("Request was aborted", aborted=True)
            return
        except ModelError as error:
            failure = Failure(text=str(error), kind="setup")
            builder.fields["diagnostics"] = [failure.diagnostic()]
            yield builder.error(failure.text)
            return
        events = ask(
            msgspec.structs.replace(model, api=_API, base_url=f"{address}/v1"),
            context,
            msgspec.structs.replace(options, api_key=server.key),
        )
        async with aclosing(cast("AsyncGenerator[AssistantMessageEvent, None]", events)) as replies:
            async for event in replies:
                if isinstance(event, StreamError) and event.reason == "error":
                    yield await _explained(event, server)
                else:
                    yield event

    return stream


async def _explained(event: StreamError, server: LlamaProcess) -> StreamError:
    """Say so if the server's end was the reason of an error."""
    with anyio.move_on_after(_LAST_BREATH):
        how = await settled(server.ended)
        text = (
            f"The local model server {how} before the reply was complete. {LESS_MEMORY} if the "
            "machine ran out of memory. The next request starts the server again."
        )
        failure = Failure(text=text, kind="connection")  # so that it may be tried again
        message = msgspec.structs.replace(
            event.error, error_message=text, diagnostics=[failure.diagnostic()]
        )
        return msgspec.structs.replace(event, error=message)
    return event
