"""What a prompt may be: text with images, a message, or several (LP-13)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from pi_agent_kernel.message_checks import check_block
from pi_agent_kernel.messages import (
    AgentMessage,
    ImageContent,
    TextContent,
    UserMessage,
    text_of,
)
from pi_agent_kernel.wire import coerce_message

__all__ = ["PromptInput", "as_message", "as_messages", "summary_of"]

PromptInput = str | AgentMessage | Sequence[AgentMessage]


def as_message(given: object, images: object = None) -> AgentMessage:
    """Return the message that a text, with its images, or a message stands for.

    A text becomes blocks wherever it is given, so that a transcript has one form of it (LP-13).

    Raises:
        TypeError: It is neither, or a field of it is of a wrong type.
    """
    if isinstance(given, str):
        return UserMessage(content=(TextContent(text=given), *_images(images)))
    return coerce_message(given)


def as_messages(given: object, images: object = None) -> list[AgentMessage]:
    """Return the messages that a prompt stands for.

    Raises:
        TypeError: It is none of what a prompt may be, or an image is no `ImageContent`.
    """
    if isinstance(given, str):
        return [as_message(given, images)]
    if images:
        raise TypeError("Images go with a text; with messages, put them into the message.")
    if isinstance(given, (list, tuple)):
        return [coerce_message(message) for message in cast("Sequence[Any]", given)]
    return [coerce_message(given)]


def _images(given: object) -> Iterator[ImageContent]:
    if given is None:
        return
    if isinstance(given, ImageContent) or not isinstance(given, Iterable):
        raise TypeError(f"images is a list of ImageContent, not {type(given).__name__}.")
    for index, image in enumerate(cast("Iterable[object]", given)):
        if not isinstance(image, ImageContent):
            raise TypeError(
                "An image is an ImageContent(data=<base64>, mime_type=...), not "
                f"{type(image).__name__}."
            )
        check_block(image, f"images[{index}]")
        yield image


def summary_of(messages: Sequence[AgentMessage], limit: int = 80) -> str:
    """Return the last of some messages in a few words, for the log."""
    last = messages[-1]
    text = text_of(last.content) if isinstance(last, UserMessage) else f"a {last.role} message"
    return text if len(text) <= limit else text[: limit - 1] + "…"
