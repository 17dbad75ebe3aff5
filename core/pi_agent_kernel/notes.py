"""What a run tells whoever keeps its log, beside its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from pi_agent_kernel.messages import AgentMessage, Message, ThinkingLevel
from pi_agent_kernel.request import Model

__all__ = ["Notes", "SentRequest"]


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Be a request that is about to be sent; its lists still belong to the run.

    `stages` holds what each hook made of the messages, `executable` the names of the tools that
    can run, `options` what may be shown of the settings.
    """

    model: Model
    messages: Sequence[Message]
    stages: Sequence[tuple[str, Sequence[AgentMessage]]]
    thinking_level: ThinkingLevel
    options: Mapping[str, Any]
    executable: tuple[str, ...]
    transcript_length: int


class Notes:
    """Take what a run has to tell; what nobody asked for is dropped.

    Args:
        on_request: Gets each request right before its `model_request_start`.
    """

    __slots__ = ("on_request",)

    def __init__(self, on_request: Callable[[SentRequest], None] | None = None) -> None:
        self.on_request: Callable[[SentRequest], None] | None = on_request
