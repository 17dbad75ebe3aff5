"""What a model sees of a transcript, as text, and the tree that all requests of a cassette form.

A request is a path from the root, a message a step. A conversation that grows is one path, so its
messages are kept once, however many requests repeat them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pi_agent_kernel.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextContent,
    UserMessage,
)
from pi_agent_kernel.models.cassette.redaction import REDACTED
from pi_agent_kernel.wire import to_json

if TYPE_CHECKING:
    from pi_agent_kernel.models.cassette.redaction import Redactor
    from pi_agent_kernel.request import Model

__all__ = ["Node", "Seen", "follow", "is_failed", "json_line", "model_spec", "path_to", "seen_of"]

T = TypeVar("T")

# The fields a model sees, in the order they are written. No time, duration, usage or details.
_SEEN = {
    "system": ("content", "sections", "toolsAdded", "toolsRemoved"),
    "user": ("content",),
    "assistant": ("content", "provider", "api", "model"),
    "toolResult": ("toolCallId", "toolName", "content", "isError"),
}
_KEEP_AT_MOST = 50_000
# Valid in JSON, but lines or directions to an editor, or no Unicode text at all.
_ODD = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def json_line(value: Any) -> str:
    """Write a JSON value as one line of readable text that every editor shows as one line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _ODD.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def model_spec(model: Model) -> str:
    """Return what a cassette calls a model."""
    return f"{model.provider}:{model.id}"


class Seen:
    """Turn messages into the text of what a model sees; remembers the ones it has met."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        # By identity: messages never change, and a transcript brings the same ones every time.
        self._known: dict[int, tuple[Message, str]] = {}

    def forget(self) -> None:
        """Start over, because the redactor knows more now."""
        self._known.clear()

    def texts(self, messages: Iterable[Message]) -> list[str]:
        """Return the messages as text. Failed replies are left out: no model gets them (E09).

        Raises:
            TypeError: Something in a message has no JSON form.
            ValueError: As before; a number that is not finite, or what is nested too deeply.
        """
        return [self.text(message) for message in messages if not is_failed(message)]

    def text(self, message: Message) -> str:
        """Return one message as text."""
        known = self._known.get(id(message))
        if known is not None:
            return known[1]
        text = json_line(self._redactor.json(_seen(message)))
        if len(self._known) >= _KEEP_AT_MOST:
            self._known.clear()
        self._known[id(message)] = (message, text)
        return text


def is_failed(message: Message) -> bool:
    """Tell whether a message is a reply that never goes back to a model."""
    return isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted")


def _seen(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = to_json(message)
    role = wire["role"]
    shown = {"role": role}
    for name in _SEEN.get(role, tuple(wire)):
        if wire.get(name) not in (None, False):
            shown[name] = wire[name]
    if isinstance(message, SystemMessage | UserMessage) and len(message.content) == 1:
        only = message.content[0]
        if isinstance(only, TextContent) and only == TextContent(text=only.text):
            shown["content"] = only.text  # the same to every model, and easier to read
    return shown


class Node(Generic[T]):
    """Be one message of one conversation, or the root.

    `request` is the number of the first request that has it; `answered` says that it is the
    response to that request. `requests` holds what ends here, by model and thinking level.
    """

    __slots__ = ("answered", "children", "depth", "parent", "request", "requests", "text")

    def __init__(self, parent: Node[T] | None = None, text: str = "") -> None:
        self.parent: Node[T] | None = parent
        self.text: str = text
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[str, Node[T]] = {}
        self.request: int = 0
        self.answered: bool = False
        self.requests: dict[tuple[str, str], list[T]] = {}

    def add(self, text: str, request: int, *, answered: bool = False) -> Node[T]:
        """Return the child with this text; make it if there is none."""
        child = self.children.get(text)
        if child is None:
            child = self.children[text] = Node(self, text)
            child.request, child.answered = request, answered
        return child

    def child(self, text: str) -> Node[T] | None:
        """Return the child with this text; a redacted one stands for any secret."""
        exact = self.children.get(text)
        if exact is not None:
            return exact
        for known, child in self.children.items():
            if REDACTED in known and _fits(known.split(REDACTED), text):
                return child
        return None


def _fits(pieces: Sequence[str], text: str) -> bool:
    """Tell whether a text is these pieces with something between each and the next.

    A piece is best where it comes first, so one way through the text decides.
    """
    first, *between, last = pieces
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in between:
        found = text.find(piece, at + 1)
        if found < 0:
            return False
        at = found + len(piece)
    return at < len(text) - len(last) and text.endswith(last)


def follow(root: Node[T], texts: Sequence[str], *, exact: bool = False) -> tuple[Node[T], int]:
    """Go along the messages as far as the tree knows them; tells how many that were."""
    node = root
    for count, text in enumerate(texts):
        child = node.children.get(text) if exact else node.child(text)
        if child is None:
            return node, count
        node = child
    return node, len(texts)


def path_to(node: Node[Any]) -> list[str]:
    """Return the messages from the root to a node."""
    texts: list[str] = []
    while node.parent is not None:
        texts.append(node.text)
        node = node.parent
    return texts[::-1]


def seen_of(fields: Mapping[str, Any]) -> str:
    """Return the text of a message as a cassette's line holds it."""
    return json_line({name: value for name, value in fields.items() if name != "type"})
