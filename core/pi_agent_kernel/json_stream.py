"""Read the JSON text of a tool call while it streams and when it is complete.

Three readers, from lenient to strict. `StreamingJsonParser` takes text piece by piece: `append`
only stores the piece, `snapshot` reads what is new with one state machine and returns the value
so far. A snapshot copies the containers that are still open and shares the closed ones, which
never change again; copying is paid from a credit that every piece earns, so the total work stays
linear in the text and the preview of a very large open container lags a little instead.
`parse_streaming_json` (in `json_prefix`) reads one incomplete text. `parse_tool_call_arguments`
is the only one whose result may be executed: strict, except for two repairs inside strings.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pi_agent_kernel.json_prefix import read_prefix
from pi_agent_kernel.json_strict import ESCAPES, JsonValue, parse_strict_json, repair_json

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "UNDEFINED",
    "JsonValue",
    "ParsedArguments",
    "ReplacedArguments",
    "StreamingJsonParser",
    "ToolCallArgumentsStream",
    "Undefined",
    "join_surrogates",
    "parse_streaming_json",
    "parse_strict_json",
    "parse_tool_call_arguments",
    "repair_json",
]


class Undefined(Enum):
    """Type the absence of a value, where None would mean JSON null."""

    UNDEFINED = "undefined"


#: What a parser shows before a value has begun.
UNDEFINED: Final[Literal[Undefined.UNDEFINED]] = Undefined.UNDEFINED

_SEGMENT = re.compile(rf'[^"\\]*(?:{ESCAPES}[^"\\]*)*')
_UNFINISHED_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_BLANK = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r'[^ \t\n\r,:\[\]{}"]+')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_UNFINISHED_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)[eE][+-]?")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}

# Copy credit: members and elements a piece of text may copy, and characters copied for one unit.
_CREDIT_PER_PIECE = 1024
_CREDIT_PER_CHARACTER = 16
_CHARACTERS_PER_CREDIT = 64


def join_surrogates(text: str) -> str:
    r"""Return `text` with adjacent surrogate halves, as `\ud83d\ude00` leaves them, joined."""
    if text.isascii() or not _SURROGATE_PAIR.search(text):
        return text
    return _SURROGATE_PAIR.sub(
        lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text
    )


def _number(text: str) -> int | float | None:
    """Return the number `text` spells; None when it is too large for a float."""
    match = _NUMBER.fullmatch(text)
    if match is not None and match[1] is None and match[2] is None:
        try:
            return int(text)
        except ValueError:  # more digits than Python converts
            return None
    number = float(text)
    return number if abs(number) != float("inf") else None


def _word_value(word: str) -> JsonValue | Undefined:
    """Return the value of a finished bare word, or UNDEFINED when it is none."""
    if word in _LITERALS:
        return _LITERALS[word]
    return _number(word) if _NUMBER.fullmatch(word) else UNDEFINED


def _word_preview(word: str) -> JsonValue | Undefined:
    """Return what an unfinished bare word shows: `tr` true, `12e` 12, `-` nothing."""
    for literal, value in _LITERALS.items():
        if literal.startswith(word):
            return value
    unfinished = _UNFINISHED_NUMBER.fullmatch(word)
    return _word_value(word if unfinished is None else unfinished[1])


class _Open:
    """Describe a container whose end has not been read."""

    __slots__ = ("child_key", "key", "shown", "value")

    def __init__(self, value: dict[str, Any] | list[Any], *, shown: bool) -> None:
        self.value = value
        self.shown = shown
        self.key: str | None = None
        self.child_key: str | int = -1

    def expects_key(self) -> bool:
        return self.key is None and type(self.value) is dict

    def put(self, value: JsonValue) -> None:
        """Add a value at the present position; the position is never a key's."""
        container = self.value
        if isinstance(container, list):
            container.append(value)
            return
        key: Any = self.key  # never None here
        container[key] = value
        self.child_key = key
        self.key = None


class StreamingJsonParser:
    """Parse JSON text that arrives in pieces.

    The text read so far shows as follows (MD-07). An open string shows its characters, trailing
    blanks included; an unfinished escape is held back. A key without a value is omitted. An
    unfinished `true`, `false` or `null` shows its value; an unfinished number shows the digits
    that are a number. Malformed text is read leniently: raw control characters and unknown
    escapes stay as text, missing or extra commas and colons do not matter, any closing bracket
    closes the innermost container, unknown words are dropped, and so is text after the root value.
    A number outside the range of a float shows as null. Nothing raises.

    Source: pi-ai 1.6.0, `StreamingJsonParser`; MD-06, MD-07.
    """

    __slots__ = (
        "_changed",
        "_credit",
        "_done",
        "_held",
        "_pieces",
        "_root",
        "_snapshot",
        "_stack",
        "_string",
        "_word",
        "copied",
    )

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""
        self._stack: list[_Open] = []
        self._string: list[str] | None = None
        self._word: list[str] = []
        self._root: JsonValue | Undefined = UNDEFINED
        self._snapshot: JsonValue | Undefined = UNDEFINED
        self._done = False
        self._changed = False
        self._credit = 0
        #: Units of copying done by snapshots so far; grows no faster than the text.
        self.copied: int = 0

    def append(self, text: str) -> None:
        """Take the next piece of text; it is read when a snapshot is asked for."""
        if not self._done:
            self._pieces.append(text)

    def snapshot(self) -> JsonValue | Undefined:
        """Return the value of the text so far, a plain JSON value that never changes later.

        Returns:
            UNDEFINED before a value has begun. The previous object while the value has not
            changed, and while a copy of large open containers is not yet paid for.
        """
        if self._pieces:
            self._read_pieces()
        if self._changed:
            self._refresh()
        return self._snapshot

    def _refresh(self) -> None:
        if not self._stack and self._string is None and not self._word:
            self._snapshot = self._root
            self._changed = False
            return
        cost = sum(len(opened.value) for opened in self._stack if opened.shown)
        for pieces in (self._string, self._word):
            if pieces:
                # One piece again, so that the next snapshot does not join them all once more.
                pieces[:] = ["".join(pieces)]
                cost += len(pieces[0]) // _CHARACTERS_PER_CREDIT
        if cost > self._credit and self._snapshot is not UNDEFINED:
            return
        self._credit -= cost
        self.copied += cost
        self._snapshot = self._build()
        self._changed = False

    def _build(self) -> JsonValue | Undefined:
        """Copy the open path and complete it by what the unfinished token shows."""
        tail: JsonValue | Undefined = UNDEFINED
        if self._string is not None:
            tail = join_surrogates("".join(self._string))
        elif self._word:
            tail = _word_preview(self._word[0])
        if not self._stack:
            return tail
        child: dict[str, Any] | list[Any] | None = None
        innermost = True
        for opened in reversed(self._stack):
            if opened.shown:
                copy = opened.value.copy()
                if child is not None:
                    copy[opened.child_key] = child  # type: ignore[index]
                elif innermost and tail is not UNDEFINED:
                    if isinstance(copy, list):
                        copy.append(tail)
                    elif opened.key is not None:
                        copy[opened.key] = tail
                child = copy
            innermost = False
        return child

    def _read_pieces(self) -> None:
        text = self._held + "".join(self._pieces)
        self._credit += _CREDIT_PER_PIECE * len(self._pieces) + _CREDIT_PER_CHARACTER * len(text)
        self._pieces.clear()
        self._held = ""
        self._changed |= bool(self._word)
        position = 0
        end = len(text)
        while position < end and not self._done:
            if self._string is not None:
                position = self._read_string(text, position, self._string)
            elif self._word:
                position = self._read_word(text, position)
            else:
                position = self._read_token(text, position)
        self._changed |= bool(self._word)

    def _read_string(self, text: str, position: int, pieces: list[str]) -> int:
        """Read on in an open string; return the position after what was read."""
        match = _SEGMENT.match(text, position)
        end = position if match is None else match.end()
        if end > position:
            segment = text[position:end]
            pieces.append(json.loads(f'"{segment}"', strict=False) if "\\" in segment else segment)
            self._changed = True
        if end == len(text):
            return end
        if text[end] == '"':
            self._string = None
            value = join_surrogates("".join(pieces))
            if self._stack and self._stack[-1].expects_key():
                self._stack[-1].key = value
            else:
                self._put(value)
        elif _UNFINISHED_ESCAPE.match(text, end):
            self._held = text[end:]
            return len(text)
        else:
            pieces.append("\\")
            self._changed = True
        return end + 1

    def _read_word(self, text: str, position: int) -> int:
        """Read on in a bare word: a literal, a number or something to drop."""
        match = _WORD.match(text, position)
        if match is not None:
            self._word.append(match[0])
            if match.end() == len(text):
                return match.end()
            position = match.end()
        value = _word_value("".join(self._word))
        self._word = []
        if value is UNDEFINED:
            # What was dropped has used up its place: the next string is a key again.
            if self._stack:
                self._stack[-1].key = None
        elif not (self._stack and self._stack[-1].expects_key()):
            self._put(value)
        return position

    def _read_token(self, text: str, position: int) -> int:
        blank = _BLANK.match(text, position)
        position = position if blank is None else blank.end()
        if position == len(text):
            return position
        character = text[position]
        if character == '"':
            self._string = []
            self._changed = True
        elif character == "{":
            self._open({})
        elif character == "[":
            self._open([])
        elif character in "}]":
            if self._stack:
                self._changed = True
                self._stack.pop()
                self._done = not self._stack and self._root is not UNDEFINED
        elif character == ",":
            if self._stack:
                self._stack[-1].key = None
        elif character != ":":
            return self._read_word(text, position)
        return position + 1

    def _open(self, container: dict[str, Any] | list[Any]) -> None:
        shown = True
        if not self._stack:
            self._root = container
            self._changed = True
        else:
            # A container where a key belongs is read to its end and dropped.
            parent = self._stack[-1]
            shown = parent.shown and not parent.expects_key()
            if shown:
                self._put(container)
        self._stack.append(_Open(container, shown=shown))

    def _put(self, value: JsonValue) -> None:
        self._changed = True
        if self._stack:
            self._stack[-1].put(value)
        else:
            self._root = value
            self._done = True


class ParsedArguments(NamedTuple):
    """Hold the arguments of a finished tool call, and why they are empty if they were wrong."""

    arguments: dict[str, Any]
    arguments_error: str | None = None


def parse_tool_call_arguments(text: str | Mapping[str, Any] | None) -> ParsedArguments:
    """Parse the complete argument text of a finished tool call.

    Strict JSON, apart from `repair_json`. A prefix is never accepted: text that is not one JSON
    object gives empty arguments and an error that ends with the text received, for the model to
    correct (MD-08, TL-06).

    Args:
        text: The text. None and blank text are an empty object (B13). A mapping, from providers
            that send arguments as an object, is taken as it is (B10).
    """
    if text is None:
        return ParsedArguments({})
    if not isinstance(text, str):
        return ParsedArguments(dict(text))
    if not text.strip(" \t\n\r"):
        return ParsedArguments({})
    try:
        value = parse_strict_json(text)
    except ValueError as error:
        problem = str(error)
        try:
            value = parse_strict_json(repair_json(text))
        except ValueError:
            return ParsedArguments({}, f"{problem}\n\nReceived arguments:\n{text}")
    if not isinstance(value, dict):
        problem = "Tool arguments must be a JSON object"
        return ParsedArguments({}, f"{problem}\n\nReceived arguments:\n{text}")
    return ParsedArguments(value)


class ReplacedArguments(NamedTuple):
    """Hold what `ToolCallArgumentsStream.replace` found.

    `delta` is the piece by which the text continued the text before, or None when it did not.
    """

    delta: str | None
    arguments: dict[str, Any]


class ToolCallArgumentsStream:
    """Collect the argument text of one streaming tool call.

    Keeps the raw text for the one full parse at the end, outside any message, and shows the
    partial arguments in between: always an object, a new one whenever they changed (MD-06).

    Source: pi-ai 1.6.0, `ToolCallArgumentsStream`.
    """

    __slots__ = ("_parser", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._parser = StreamingJsonParser()

    @property
    def text(self) -> str:
        """The raw argument text so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def arguments(self) -> dict[str, Any]:
        """The partial arguments of the text so far; empty while its root is not an object."""
        value = self._parser.snapshot()
        return value if isinstance(value, dict) else {}

    def feed(self, delta: str) -> None:
        """Take a piece of text without building the partial arguments."""
        self._pieces.append(delta)
        self._parser.append(delta)

    def append(self, delta: str) -> dict[str, Any]:
        """Take a piece of text; return the partial arguments."""
        self.feed(delta)
        return self.arguments

    def replace(self, text: str) -> ReplacedArguments:
        """Take the provider's complete text, which may continue or contradict the pieces."""
        before = self.text
        if text.startswith(before):
            delta = text[len(before) :]
            return ReplacedArguments(delta, self.append(delta) if delta else self.arguments)
        self._pieces = []
        self._parser = StreamingJsonParser()
        return ReplacedArguments(None, self.append(text))

    def finish(self) -> ParsedArguments:
        """Parse the complete text, as `parse_tool_call_arguments` does."""
        return parse_tool_call_arguments(self.text)


def parse_streaming_json(text: str | None) -> JsonValue:
    """Return the value of one possibly incomplete JSON text; `{}` when nothing can be read.

    Complete text is read strictly, with `repair_json`. Incomplete text is read up to the first
    thing that is not JSON, and every container holds what was read before that; trailing blanks
    of the text are dropped. For text that arrives in pieces use `StreamingJsonParser`.

    Source: pi-ai 1.6.0, `parseStreamingJson`; MD-07, B09.
    """
    if text is None or not text.strip():
        return {}
    for attempt in (text, repair_json(text)):
        try:
            return parse_strict_json(attempt)
        except ValueError:
            continue
    for attempt in (text, repair_json(text)):
        try:
            value = read_prefix(attempt)
        except ValueError:
            continue
        return {} if value is None else value
    return {}
