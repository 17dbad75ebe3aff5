"""What a prompt may be: text with images, a message, or several (LP-13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pi_agent_kernel.messages import (
    AgentMessage,
    ImageContent,
    TextContent,
    UserMessage,
    text_of,
)
from pi_agent_kernel.wire import coerce_message

__all__ = ["PromptInput", "as_messages", "summary_of"]

PromptInput = str | AgentMessage | Sequence[AgentMessage]


def as_messages(given: object, images: Sequence[object] | None) -> list[AgentMessage]:
    """Return the messages that a prompt stands for.

    Raises:
        TypeError: It is none of what a prompt may be, or an image is no `ImageContent`.
    """
    if isinstance(given, str):
        return [UserMessage(content=(TextContent(text=given), *map(_image, images or ())))]
    if images:
        raise TypeError("Images go with a text; with messages, put them into the message.")
    if isinstance(given, (list, tuple)):
        return [coerce_message(message) for message in cast("Sequence[Any]", given)]
    return [coerce_message(given)]


def _image(given: object) -> ImageContent:
    if isinstance(given, ImageContent):
        return given
    raise TypeError(
        f"An image is an ImageContent(data=<base64>, mime_type=...), not {type(given).__name__}."
    )


def summary_of(messages: Sequence[AgentMessage], limit: int = 80) -> str:
    """Return the last of some messages in a few words, for the log."""
    last = messages[-1]
    text = text_of(last.content) if isinstance(last, UserMessage) else f"a {last.role} message"
    return text if len(text) <= limit else text[: limit - 1] + "…"
