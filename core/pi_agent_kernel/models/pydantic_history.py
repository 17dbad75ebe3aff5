"""Our transcript in pydantic-ai's words, and its opaque parts in ours.

What a provider wants back unchanged (ids, signatures, encrypted reasoning) is kept as one opaque
string per block, `thinking_signature`, `text_signature` or `thought_signature`, and unpacked
again for the model it came from.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

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

__all__ = ["Places", "signature_of", "to_history", "to_tool_definitions"]

# First key of our own signatures, to tell them from those of other writers of the format.
_MARK = "pydantic_ai"
#: What such a signature is made of.
_KEPT: dict[str, type] = {"id": str, "signature": str, "provider": str, "details": dict}


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Say what a format has a place for."""

    #: System messages anywhere; else all of them are folded into one prompt at the start (TR-13).
    system_anywhere: bool = False
    #: Images in tool results; else they follow in a user message (trap 8).
    images_in_results: bool = True
    #: Thinking apart from text: all, what is signed, or none; the rest stays here.
    thinking: Literal["all", "signed", "none"] = "all"


def to_history(
    messages: Sequence[Message], *, model: str, system: str, places: Places
) -> list[ModelMessage]:
    """Map a transcript to pydantic-ai's history.

    Args:
        messages: From `replayable`, so that every call has its result.
        model: Model id, for messages of the same model.
        system: The name pydantic-ai gives the provider; what it recognises as its own.
        places: What the format has a place for.

    Raises:
        ModelError: An image is not base64.
    """
    from pydantic_ai.messages import ModelRequest, ModelResponse

    history: list[ModelMessage] = []
    turn = _Turn(places)
    start = 0
    if places.system_anywhere:
        while start < len(messages) and isinstance(messages[start], SystemMessage):
            start += 1
    turn.add_system(get_current_system_prompt(messages[: start or None]))
    for message in messages[start:]:
        match message:
            case SystemMessage():
                if places.system_anywhere:
                    turn.add_system(render_system_message_update(message))
            case UserMessage():
                turn.add_user(message)
            case ToolResultMessage():
                turn.add_result(message)
            case _:
                if parts := turn.take():
                    history.append(ModelRequest(parts=parts))
                blocks = [
                    _response_part(block, system)
                    for block in message.content
                    if not isinstance(block, ThinkingContent)
                    or places.thinking == "all"
                    or (places.thinking == "signed" and block.thinking_signature)
                ]
                if blocks:
                    history.append(
                        ModelResponse(parts=blocks, model_name=model, provider_name=system)
                    )
    if parts := turn.take():
        history.append(ModelRequest(parts=parts))
    return history


class _Turn:
    """What the other side says between two replies of the model."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._parts: list[ModelRequestPart] = []
        #: Images that follow the results of the turn.
        self._moved: list[UserContent] = []
        self._users = 0

    def take(self) -> list[ModelRequestPart]:
        """Return the turn and begin the next."""
        self._end_results()
        parts, self._parts = self._parts, []
        return parts

    def add_system(self, text: str) -> None:
        from pydantic_ai.messages import SystemPromptPart

        self._end_results()
        if text.strip():
            self._parts.append(SystemPromptPart(content=_clean(text)))

    def add_user(self, message: UserMessage) -> None:
        self._end_results()
        self._users += 1
        if isinstance(message.content, str) or not any(
            isinstance(block, ImageContent) for block in message.content
        ):
            self._say(_clean(text_of(message.content)))
            return
        place = f"user message {self._users}"
        self._say(
            [
                _clean(block.text) if isinstance(block, TextContent) else _image(block, place)
                for block in message.content
                if isinstance(block, ImageContent) or block.text.strip()
            ]
        )

    def add_result(self, message: ToolResultMessage) -> None:
        from pydantic_ai.messages import ToolReturnPart

        name, call_id = _clean(message.tool_name), message.tool_call_id
        place = f"the result of {name!r}, call {call_id!r}"
        images: list[UserContent] = [
            _image(block, place) for block in message.content if isinstance(block, ImageContent)
        ]
        # No provider takes images in the result of a call that failed (E12).
        if images and (message.is_error or not self._places.images_in_results):
            self._moved.extend((f"Images of the result of {name} ({call_id}):", *images))
            images = []
        text = _clean(message.text)  # one text: several would become a JSON array (trap 8)
        self._parts.append(
            ToolReturnPart(
                tool_name=name,
                content=[text, *images] if images else text,
                tool_call_id=call_id,
                outcome="failed" if message.is_error else "success",
            )
        )

    def _end_results(self) -> None:
        moved, self._moved = self._moved, []
        if moved:
            self._say(moved)

    def _say(self, content: str | list[UserContent]) -> None:
        """Add user content, to the message before if there is one: some servers want turns."""
        from pydantic_ai.messages import UserPromptPart

        before = self._parts[-1] if self._parts else None
        if isinstance(before, UserPromptPart):
            self._parts.pop()
            if isinstance(before.content, str) and isinstance(content, str):
                content = f"{before.content}\n\n{content}"
            else:
                content = [*_listed(before.content), *_listed(content)]
        self._parts.append(UserPromptPart(content=content))


def _listed(content: str | Sequence[UserContent]) -> list[UserContent]:
    return [content] if isinstance(content, str) else list(content)


def to_tool_definitions(tools: Sequence[Tool]) -> list[ToolDefinition]:
    """Map tool declarations; schemas go out unchanged, `strict=False` (trap 7)."""
    from pydantic_ai.tools import ToolDefinition

    return [
        ToolDefinition(
            name=_clean(tool.name),
            description=_clean(tool.description),
            parameters_json_schema=_clean_json(thaw(tool.parameters))
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
        try:
            read: object = json.loads(signature)
        except (ValueError, RecursionError):
            return {}  # cut or changed: nobody can use it
        kept = cast("dict[str, Any]", read if isinstance(read, dict) else {})
        return {
            name: _clean_json(kept[name])
            for name, kind in _KEPT.items()
            if isinstance(kept.get(name), kind)
        }
    return {"signature": _clean(signature)}


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
                tool_name=_clean(block.name),
                args=_clean_json(thaw(block.arguments)),
                tool_call_id=block.id,
                id=kept.get("id"),
                provider_name=kept.get("provider"),
                provider_details=kept.get("details"),
            )


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


def _clean_json(value: Any) -> Any:
    """Replace lone surrogates in JSON, keys included."""
    match value:
        case str():
            return _clean(value)
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {_clean(key): _clean_json(item) for key, item in items}
        case list():
            return [_clean_json(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _clean(text: str) -> str:
    """Replace lone surrogates, which no request body can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
