"""Read a cassette: its lines as requests with their responses.

Every line is checked, so that what is wrong with a file is said with the number of its line. A
last line that is cut off was being written when the program ended; it is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.models.cassette.conversation import Node, Seen, is_failed, seen_of
from pi_agent_kernel.models.cassette.file import HEADER, header_of, parse_line
from pi_agent_kernel.models.cassette.redaction import Redactor
from pi_agent_kernel.models.cassette.response import BLOCKS, ENDINGS, RETRY, Played
from pi_agent_kernel.request import Model
from pi_agent_kernel.wire import from_json

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["Exchange", "Recorded", "read_cassette"]


class Exchange:
    """Be a recorded request, and its response unless the recording broke off before it."""

    def __init__(self, number: int, model: str, thinking: str) -> None:
        self.number = number
        self.model = model
        self.thinking = thinking
        self.response: Played | None = None


class Recorded:
    """Hold what a cassette holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.models: dict[str, Model] = {}
        self.exchanges: list[Exchange] = []
        self.root: Node[Exchange] = Node()

    @property
    def responses(self) -> int:
        """How many requests have a response."""
        return sum(1 for exchange in self.exchanges if exchange.response is not None)


class _Request(msgspec.Struct):
    request: int
    model: str
    thinking: str = "off"
    after: int | None = None
    keep: int | None = None


class _Response(msgspec.Struct):
    request: int


class _Retry(msgspec.Struct, rename="camel"):
    attempt: int
    max_attempts: int
    kind: str
    error_message: str


class _Step(msgspec.Struct, rename="camel"):
    block: int
    id: str | None = None
    name: str | None = None
    text: str = ""
    chunks: list[int] = []
    open: bool = False
    content: str = ""
    redacted: bool = False
    call: dict[str, Any] = {}


def read_cassette(path: str | PathLike[str]) -> Recorded:
    """Read a file.

    Raises:
        ModelError: There is no such file, or it is no cassette of this version, or a line of it
            is not what such a line must be.
    """
    place = Path(path).absolute()
    if not place.exists():
        raise ModelError(f"There is no cassette {place}: record it first, or check the path.")
    if not place.is_file():
        what = "a folder" if place.is_dir() else "no ordinary file"
        raise ModelError(f"{place} is {what}: name the file of a recording.")
    try:
        raw = place.read_bytes()
    except OSError as error:
        raise ModelError(f"The cassette {place} cannot be read: {error.strerror}.") from None
    return _Reader(place, raw).read()


class _Reader:
    def __init__(self, path: Path, raw: bytes) -> None:
        self._path = path
        self._lines = raw.split(b"\n")
        self._at = 0  # number of the line that was read last, from 1
        self._recorded = Recorded(path)
        self._seen = Seen(Redactor())
        self._exchanges: dict[int, Exchange] = {}
        self._ends: dict[int, Node[Exchange]] = {}
        self._replies: dict[int, Node[Exchange]] = {}
        # The response that is being read: to which request, its lines, their numbers.
        self._number = 0
        self._response: list[dict[str, Any]] | None = None
        self._begun: dict[int, str] = {}

    def read(self) -> Recorded:
        self._read_header()
        for line in self._lines[1:]:
            self._at += 1
            if not line.strip():
                continue
            # Without a newline it was being written when the recording program ended.
            is_last = self._at == len(self._lines)
            try:
                value = parse_line(line)
            except ValueError as error:
                if is_last:
                    break
                raise self._bad(f"is no JSON: {error}") from None
            try:
                self._read_line(value)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                if is_last:
                    break
                said = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                raise self._bad(f"cannot be used: {said}") from None
        self._end_request()
        return self._recorded

    def _bad(self, text: str) -> ModelError:
        return ModelError(
            f"Line {self._at} of the cassette {self._path} {text}. Repair it, or record again."
        )

    def _read_header(self) -> None:
        self._at = 1
        if not any(line.strip() for line in self._lines):
            raise ModelError(f"The cassette {self._path} is empty: record it first.")
        version = header_of(self._lines[0]).get("version")
        if type(version) is not int or version < 1:
            raise ModelError(
                f"{self._path} is no cassette: its first line is not {json.dumps(HEADER)}."
            )
        if version > HEADER["version"]:
            raise ModelError(
                f"The cassette {self._path} is of version {version}, this program reads "
                f"{HEADER['version']}: update pi-notebook, or record again."
            )

    def _read_line(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise TypeError("expected an object")
        line = cast("dict[str, Any]", value)
        kind = line.get("type")
        if self._response is not None:
            if kind not in (RETRY, *BLOCKS, *ENDINGS):
                raise ValueError(f"the response to request {self._number} is not over before it")
            self._read_step(self._response, line)
            return
        if kind != "message":
            self._end_request()
        match kind:
            case "model":
                described = {name: item for name, item in line.items() if name != "type"}
                model: Model = from_json(described, Model)
                self._recorded.models[f"{model.provider}:{model.id}"] = model
            case "request":
                self._read_request(msgspec.convert(line, _Request))
            case "message":
                self._read_message(line)
            case "response":
                number = msgspec.convert(line, _Response).request
                if number not in self._ends:
                    raise ValueError(f"there is no request {number} before it")
                self._number, self._response, self._begun = number, [], {}
            case _:
                raise ValueError(f"no line of a cassette has the type {kind!r}")

    def _read_request(self, line: _Request) -> None:
        if line.model not in self._recorded.models:
            raise ValueError(f"no model line before it describes {line.model!r}")
        if line.request in self._ends:
            raise ValueError(f"there are two requests {line.request}")
        node = self._recorded.root
        if line.after is not None:
            known = self._replies if line.keep is None else self._ends
            if line.after not in known:
                raise ValueError(f"request {line.after} must come before it, with its response")
            node = known[line.after]
            while line.keep is not None and node.depth > line.keep and node.parent is not None:
                node = node.parent
        exchange = Exchange(line.request, line.model, line.thinking)
        self._recorded.exchanges.append(exchange)
        self._exchanges[line.request] = exchange
        self._ends[line.request] = node

    def _read_message(self, line: Mapping[str, Any]) -> None:
        if not self._recorded.exchanges or not isinstance(line["role"], str):
            raise ValueError("a message with a role follows a request")
        number = self._recorded.exchanges[-1].number
        self._ends[number] = self._ends[number].add(seen_of(line), number)

    def _end_request(self) -> None:
        """Put the last request where its last message is."""
        if self._recorded.exchanges:
            exchange = self._recorded.exchanges[-1]
            ending = self._ends[exchange.number].requests
            same = ending.setdefault((exchange.model, exchange.thinking), [])
            if exchange not in same:
                same.append(exchange)

    def _read_step(self, lines: list[dict[str, Any]], line: dict[str, Any]) -> None:
        if line["type"] == RETRY:
            msgspec.convert(line, _Retry)
            lines.append(line)
            return
        if line["type"] in BLOCKS:
            step = msgspec.convert(line, _Step)
            kind = line["type"]
            begins = step.block not in self._begun
            if self._begun.setdefault(step.block, kind) != kind:
                raise ValueError(f"block {step.block} began as {self._begun[step.block]}")
            if kind == "toolCall" and begins and (step.id is None or step.name is None):
                raise ValueError("a tool call begins with an id and a name")
            length = len(step.text)
            negative = any(chunk < 0 for chunk in step.chunks)
            if "chunks" in line and (negative or sum(step.chunks) != length):
                raise ValueError(
                    f"its chunks add up to {sum(step.chunks)}, its text has {length} characters: "
                    "leave the chunks out to have it in one piece"
                )
            lines.append(line)
            return
        exchange = self._exchanges[self._number]
        if exchange.response is not None:
            raise ValueError(f"there are two responses to request {self._number}")
        reasons = ENDINGS[line["type"]]
        if reasons and line.get("stopReason") not in reasons:
            raise ValueError(
                f"the stopReason of {line['type']!r} is one of {', '.join(reasons)}, "
                f"not {line.get('stopReason')!r}"
            )
        played = Played(self._recorded.models[exchange.model], [*lines, line])
        message = played.message()  # also proves that it can be played
        exchange.response, self._response = played, None
        if message is not None and not is_failed(message):
            end = self._ends[self._number]
            text = self._seen.text(message)
            self._replies[self._number] = end.add(text, self._number, answered=True)
