"""The JSON objects in a stream of server-sent events, while its bytes pass by."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

__all__ = ["ServerEvents"]

_LINE_END = re.compile(rb"\r\n|\n|\r")


class ServerEvents:
    """Find the objects in the `data:` lines of a stream that comes in pieces.

    What is not JSON ("[DONE]", comments) is left out: an observer must not fail a request.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[object]:
        """Yield the objects that the next piece completes."""
        rest = self._rest
        seen = max(0, len(rest) - 1)  # nothing before it ended a line
        rest += piece
        ends = [end.span() for end in _LINE_END.finditer(rest, seen)]
        if ends and rest.endswith(b"\r"):
            ends.pop()  # it may be half of a CR LF
        start = 0
        for end, after in ends:
            yield from self._line(bytes(rest[start:end]))
            start = after
        del rest[:start]

    def end(self) -> Iterator[object]:
        """Yield what the end of the stream completes."""
        yield from self._line(bytes(self._rest).rstrip(b"\r"))
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[object]:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            data = b"\n".join(self._data)
            self._data.clear()
            try:
                event = json.loads(data)
            except ValueError:
                return
            yield event
