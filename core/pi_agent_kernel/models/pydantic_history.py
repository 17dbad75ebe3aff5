"""Our transcript in pydantic-ai's words, and its opaque parts in ours.

What a provider wants back unchanged (ids, signatures, encrypted reasoning) is kept as one opaque
string per block, `thinking_signature`, `text_signature` or `thought_signature`, and unpacked
again for the model it came from.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.json_value import thaw
from pi_agent_kernel.messages import (
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from pi_agent_kernel.transcript import get_current_system_prompt, render_system_message_update

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai.messages import (
        BinaryContent,
        ModelMessage,
        ModelRequestPart,
        ModelResponsePart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        UserContent,
    )
    from pydantic_ai.tools import ToolDefinition

__all__ = ["signature_of", "to_history", "to_tool_definitions"]

# First key of our own signatures, to tell them from those of other writers of the format.
_MARK = "pydantic_ai"


def to_history(
    messages: Sequence[Message], *, model: str, system: str, in_place: bool = False
) -> list[ModelMessage]:
    """Map a transcript to pydantic-ai's history.

    Args:
        messages: From `replayable`, so that every call has its result.
        model: Model id, for messages of the same model.
        system: The name pydantic-ai gives the provider; what it recognises as its own.
        in_place: Whether later system messages stay where they are; else all of them are folded
            into one prompt at the start (TR-13).

    Raises:
        ModelError: An image is not base64.
    """
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        ToolReturnPart,
        UserPromptPart,
    )

    history: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    moved: list[UserContent] = []
    users = 0

    def close() -> None:
        if moved:
            parts.append(UserPromptPart(content=list(moved)))
            moved.clear()
        if parts:
            history.append(ModelRequest(parts=list(parts)))
            parts.clear()

    start = 0
    if in_place:
        while start < len(messages) and isinstance(messages[start], SystemMessage):
            start += 1
    prompt = _clean(get_current_system_prompt(messages[:start] if in_place else messages))
    if prompt:
        parts.append(SystemPromptPart(content=prompt))
    for message in messages[start:]:
        results_end = parts and isinstance(parts[-1], ToolReturnPart)
        if results_end and not isinstance(message, ToolResultMessage):
            close()  # images of tool results go to the end of their request (trap 8)
        match message:
            case SystemMessage():
                update = _clean(render_system_message_update(message)) if in_place else ""
                if update:
                    parts.append(SystemPromptPart(content=update))
            case UserMessage():
                users += 1
                parts.append(UserPromptPart(content=_user_content(message, users)))
            case ToolResultMessage():
                text, images = _result_content(message)
                if message.is_error:
                    # Providers refuse images in failed results (E12).
                    if images:
                        moved.extend((f"Images of the failed {message.tool_name}:", *images))
                    images = []
                parts.append(
                    ToolReturnPart(
                        tool_name=message.tool_name,
                        content=[text, *images] if images else text,
                        tool_call_id=message.tool_call_id,
                        outcome="failed" if message.is_error else "success",
                    )
                )
            case _:
                close()
                history.append(
                    ModelResponse(
                        parts=[_response_part(block, system) for block in message.content],
                        model_name=model,
                        provider_name=system,
                    )
                )
    close()
    return history


def to_tool_definitions(tools: Sequence[Tool]) -> list[ToolDefinition]:
    """Map tool declarations; schemas go out unchanged, `strict=False` (trap 7)."""
    from pydantic_ai.tools import ToolDefinition

    return [
        ToolDefinition(
            name=tool.name,
            description=_clean(tool.description),
            parameters_json_schema=thaw(tool.parameters)
            or {"type": "object", "properties": dict[str, Any]()},
            strict=False,
        )
        for tool in tools
    ]


def signature_of(part: TextPart | ThinkingPart | ToolCallPart) -> str | None:
    """Return what the provider wants back with a part, as one string; None if nothing."""
    kept = {
        "id": part.id,
        "signature": getattr(part, "signature", None),
        "provider": part.provider_name,
        "details": part.provider_details,
    }
    kept = {name: value for name, value in kept.items() if value}
    if not kept.keys() - {"provider"}:
        return None
    try:
        return json.dumps({_MARK: 1, **kept}, separators=(",", ":"))
    except (TypeError, ValueError):
        return None  # details that are no JSON cannot be stored


def _opened(signature: str | None) -> dict[str, Any]:
    """Return the fields a signature was made from."""
    if not signature:
        return {}
    if signature.startswith(f'{{"{_MARK}":'):
        kept: dict[str, Any] = json.loads(signature)
        return kept
    return {"signature": signature}


def _response_part(
    block: TextContent | ThinkingContent | ToolCall, system: str
) -> ModelResponsePart:
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    match block:
        case TextContent():
            kept = _opened(block.text_signature)
            return TextPart(
                content=_clean(block.text),
                id=kept.get("id"),
                provider_name=kept.get("provider"),
                provider_details=kept.get("details"),
            )
        case ThinkingContent():
            kept = _opened(block.thinking_signature)
            return ThinkingPart(
                content=_clean(block.thinking),
                id=kept.get("id"),
                signature=kept.get("signature"),
                provider_name=kept.get("provider", system),
                provider_details=kept.get("details"),
            )
        case _:
            kept = _opened(block.thought_signature)
            return ToolCallPart(
                tool_name=block.name,
                args=thaw(block.arguments),
                tool_call_id=block.id,
                id=kept.get("id"),
                provider_name=kept.get("provider"),
                provider_details=kept.get("details"),
            )


def _user_content(message: UserMessage, number: int) -> str | list[UserContent]:
    if isinstance(message.content, str):
        return _clean(message.content)
    if not any(isinstance(block, ImageContent) for block in message.content):
        return _clean(text_of(message.content))
    return [
        _clean(block.text)
        if isinstance(block, TextContent)
        else _image(block, f"user message {number}")
        for block in message.content
    ]


def _result_content(message: ToolResultMessage) -> tuple[str, list[UserContent]]:
    """Return the text, as one: several would become a JSON array (trap 8); and the images."""
    place = f"the result of {message.tool_name!r}, call {message.tool_call_id!r}"
    images: list[UserContent] = [
        _image(block, place) for block in message.content if isinstance(block, ImageContent)
    ]
    return _clean(message.text), images


def _image(block: ImageContent, place: str) -> BinaryContent:
    from pydantic_ai.messages import BinaryContent

    try:
        data = base64.b64decode(block.data, validate=True)
    except ValueError as error:
        raise ModelError(_bad_image(place, str(error))) from error
    if not data:
        raise ModelError(_bad_image(place, "it is empty"))
    return BinaryContent(data=data, media_type=block.mime_type)


def _bad_image(place: str, problem: str) -> str:
    return (
        f"An image in {place} is not base64 ({problem}): ImageContent.data holds the encoded "
        "bytes, without a data: prefix or line breaks."
    )


def _clean(text: str) -> str:
    """Replace lone surrogates, which no request body can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
