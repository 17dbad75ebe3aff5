"""Tokens of a prompt, estimated: for models that have no tokenizer, and to fit an output limit.

One token is four characters. A prompt is the texts of its messages joined by blank lines; the
estimator remembers the prompt before, so a transcript that only grows is measured in O(new
messages).
"""

from __future__ import annotations

import json
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    Usage,
    UserMessage,
    text_of,
)
from pi_agent_kernel.request import Model, Prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CHARACTERS_PER_TOKEN",
    "PromptEstimator",
    "clamp_max_tokens_to_context",
    "compact_json",
    "estimate_prompt_tokens",
    "estimate_tokens",
]

CHARACTERS_PER_TOKEN = 4
#: Tokens an image counts for: what providers take for one of about a million pixels. Its bytes
#: say nothing, they are compressed.
_IMAGE_TOKENS = 1200
# Of the output limit, in tokens: what an estimate may be wrong by, and the limit of a full window.
_MARGIN = 4096
_SMALL_LIMIT = 32768


def estimate_prompt_tokens(messages: Sequence[Message]) -> int:
    """Estimate the tokens of a request, declarations of tools and images included."""
    return sum(_prompt_tokens(message) for message in messages)


def clamp_max_tokens_to_context(model: Model, messages: Sequence[Message], max_tokens: int) -> int:
    """Fit an output limit into what the prompt leaves of the context window.

    Args:
        model: Its `context_window`, in tokens; 0 is unknown and fits everything.
        messages: The prompt, whose size is estimated.
        max_tokens: The limit asked for.

    Returns:
        The limit, at least 1. 15 percent of the prompt, at least 4096 tokens, are kept free
        because the estimate may be wrong; when that leaves less than 32768, only 4096 are.

    Source: MD-26.
    """
    if model.context_window <= 0:
        return max(1, max_tokens)
    size = estimate_prompt_tokens(messages)
    left = model.context_window - size
    room = left - max(_MARGIN, -(-size * 15 // 100))
    if room < _SMALL_LIMIT:
        room = min(_SMALL_LIMIT, left - _MARGIN)
    return max(1, min(max_tokens, room))


class PromptEstimator:
    """Estimate the usage of requests, with the prompt cache that a session id switches on.

    Source: MD-18.
    """

    def __init__(self) -> None:
        self._previous: dict[str | None, _Prompt] = {}

    def usage(
        self,
        messages: Sequence[Message],
        reply: Sequence[AssistantBlock],
        session_id: str | None = None,
    ) -> Usage:
        """Estimate the usage of one request.

        Args:
            messages: The prompt.
            reply: The blocks of the response.
            session_id: With one, what the prompt shares with the session's previous prompt
                counts as cache read, the rest as cache write, and plain input is 0.

        Returns:
            The usage, at no cost.
        """
        session_id = session_id or None
        previous = self._previous.get(session_id)
        if previous is not None and previous.is_start_of(messages):
            shared = previous.length
            length = shared + _length(messages, previous.count)
        else:
            length = _length(messages)
            shared = previous.shared_with(messages) if previous is not None and session_id else 0
        self._previous[session_id] = _Prompt(messages, length)
        prompt = _tokens(length)
        output = estimate_tokens(_reply_text(reply))
        if session_id is None:
            return Usage(input=prompt, output=output, total_tokens=prompt + output)
        read = _tokens(shared)
        write = max(0, prompt - read)
        return Usage(
            output=output, cache_read=read, cache_write=write, total_tokens=read + write + output
        )


class _Prompt:
    """One prompt as it was measured."""

    __slots__ = ("count", "length", "messages")

    def __init__(self, messages: Sequence[Message], length: int) -> None:
        # The view keeps its messages whatever happens to the list; a plain list must be copied.
        self.messages = messages if isinstance(messages, Prefix) else list(messages)
        self.count = len(messages)
        self.length = length

    def is_start_of(self, messages: Sequence[Message]) -> bool:
        if len(messages) < self.count:
            return False
        if isinstance(messages, Prefix) and messages.views_same_list(self.messages):
            return True  # views of one list, which only grows
        return list(messages[: self.count]) == list(self.messages)

    def shared_with(self, messages: Sequence[Message]) -> int:
        """Count the characters both prompts begin with."""
        mine = [_text(message) for message in self.messages]
        other = [_text(message) for message in messages]
        texts = ["\n\n".join(mine), "\n\n".join(other)]
        return len(commonprefix(texts))  # noqa: RUF071 - they are no paths


def estimate_tokens(text: str) -> int:
    """Return the number of tokens of a text, rounded up."""
    return _tokens(len(text))


def compact_json(value: Any) -> str:
    """Return JSON without spaces, other scripts than Latin kept as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _tokens(length: int) -> int:
    return -(-length // CHARACTERS_PER_TOKEN)


def _length(messages: Sequence[Message], start: int = 0) -> int:
    """Count the characters that the messages from `start` on add to the prompt."""
    added = messages[start:] if start else messages
    length = sum(len(_text(message)) + 2 for message in added)
    return length if start else max(0, length - 2)


def _prompt_tokens(message: Message) -> int:
    if isinstance(message, (SystemMessage, AssistantMessage)) or isinstance(message.content, str):
        return estimate_tokens(_text(message))
    images = [block for block in message.content if isinstance(block, ImageContent)]
    return estimate_tokens(text_of(message.content)) + _IMAGE_TOKENS * len(images)


def _text(message: Message) -> str:
    match message:
        case SystemMessage():
            text = _system_text(message)
        case UserMessage():
            content = message.content
            text = content if isinstance(content, str) else "\n".join(map(_block_text, content))
        case AssistantMessage():
            text = _reply_text(message.content)
        case _:
            text = "\n".join([message.tool_name, *map(_block_text, message.content)])
    return f"{message.role}:{text}"


def _system_text(message: SystemMessage) -> str:
    sections = (message.sections or {}).values()
    prompt = "\n\n".join(part for part in (text_of(message.content), *sections) if part)
    removed = [compact_json({"name": tool.name}) for tool in message.tools_removed or ()]
    added = [compact_json(_declaration(tool)) for tool in message.tools_added or ()]
    parts = (prompt, *(f"tool-:{tool}" for tool in removed), *(f"tool+:{tool}" for tool in added))
    return "\n".join(part for part in parts if part)


def _declaration(tool: Tool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    if tool.constrained_sampling is not None:
        shown["constrainedSampling"] = tool.constrained_sampling
    return shown


def _block_text(block: TextContent | ImageContent) -> str:
    if isinstance(block, TextContent):
        return block.text
    return f"[image:{block.mime_type}:{len(block.data)}]"


def _reply_text(blocks: Sequence[AssistantBlock]) -> str:
    texts: list[str] = []
    for block in blocks:
        match block:
            case TextContent():
                texts.append(block.text)
            case ThinkingContent():
                texts.append(block.thinking)
            case _:
                texts.append(f"{block.name}:{compact_json(block.arguments)}")
    return "\n".join(texts)
