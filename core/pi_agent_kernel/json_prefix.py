"""Read the longest sensible beginning of one JSON text.

The reader is recursive and gives up where the text stops being JSON; each container around that
place then ends with what it holds and reading goes on behind it. Only `parse_streaming_json`
uses it: text that arrives in pieces is read by `json_stream.StreamingJsonParser`, which is
linear and shows more of malformed text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pi_agent_kernel.json_strict import parse_strict_json

if TYPE_CHECKING:
    from pi_agent_kernel.json_strict import JsonValue

__all__ = ["read_prefix"]

_BLANK = " \t\n\r"
#: What JavaScript's trim() removes; str.strip() alone differs in the control characters.
_TRIMMED = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
# Words for numbers that JSON does not have show as null (P6).
_WORDS: dict[str, bool | None] = {
    "null": None,
    "true": True,
    "false": False,
    "Infinity": None,
    "-Infinity": None,
    "NaN": None,
}


def read_prefix(text: str) -> JsonValue:
    """Return the value at the beginning of `text`.

    Raises:
        ValueError: No value begins there.
    """
    try:
        return _PrefixReader(text.strip(_TRIMMED)).value()
    except RecursionError:
        message = "the value is nested too deeply"
        raise ValueError(message) from None


def _give_up() -> NoReturn:
    message = "no JSON value here"
    raise ValueError(message)


class _PrefixReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def value(self) -> JsonValue:
        self._skip_blanks()
        text, start = self.text, self.position
        left = len(text) - start
        if left <= 0:
            _give_up()
        match text[start]:
            case '"':
                return self._string()
            case "{":
                return self._object()
            case "[":
                return self._array()
            case _:
                pass
        for word, value in _WORDS.items():
            unfinished = 0 < left < len(word) and word.startswith(text[start:])
            if text.startswith(word, start) or (unfinished and text[start:] != "-"):
                self.position += len(word)
                return value
        return self._number()

    def _skip_blanks(self) -> None:
        text = self.text
        while self.position < len(text) and text[self.position] in _BLANK:
            self.position += 1

    def _at(self, character: str) -> bool:
        return self.text.startswith(character, self.position)

    def _skip_comma(self) -> None:
        self._skip_blanks()
        if self._at(","):
            self.position += 1

    def _string(self) -> str:
        """Read a string literal; the first character is not looked at, as it may be a key's."""
        text, start = self.text, self.position
        end = start + 1
        escaped = False
        while end < len(text) and (text[end] != '"' or escaped):
            escaped = text[end] == "\\" and not escaped
            end += 1
        self.position = end
        if end < len(text):
            self.position += 1
            return self._literal(text[start : end + 1])
        try:
            return self._literal(text[start : end - escaped] + '"')
        except ValueError:  # it ends within an escape
            return self._literal(text[start : max(text.rfind("\\"), 0)] + '"')

    @staticmethod
    def _literal(text: str) -> str:
        value = parse_strict_json(text)
        return value if isinstance(value, str) else _give_up()

    def _object(self) -> dict[str, Any]:
        self.position += 1
        result: dict[str, Any] = {}
        self._skip_blanks()
        try:
            while not self._at("}"):
                self._skip_blanks()
                if self.position >= len(self.text):
                    return result
                key = self._string()
                self._skip_blanks()
                self.position += 1  # the colon
                result[key] = self.value()
                self._skip_comma()
                self._skip_blanks()
        except ValueError:
            return result
        self.position += 1
        return result

    def _array(self) -> list[Any]:
        self.position += 1
        result: list[Any] = []
        try:
            while not self._at("]"):
                result.append(self.value())
                self._skip_comma()
        except ValueError:
            return result
        self.position += 1
        return result

    def _number(self) -> JsonValue:
        text, start = self.text, self.position
        end = start
        while start and end < len(text) and text[end] not in ",]}":
            end += 1
        end = end if start else len(text)
        self.position = end
        try:
            return parse_strict_json(text[start:end])
        except ValueError:
            exponent = text.rfind("e")
            return parse_strict_json(text[start:exponent]) if exponent > start else _give_up()
