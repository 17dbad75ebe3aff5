"""The file of a cassette while it is written: begun anew, added to, and never anybody else's."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.errors import ModelError

if TYPE_CHECKING:
    from io import FileIO

__all__ = ["HEADER", "CassetteFile", "header_of", "parse_line"]

HEADER: dict[str, Any] = {"type": "cassette", "version": 1}


class CassetteFile:
    """Append lines to a file, as long as nobody else has changed or replaced it.

    The first lines start the file; a recording that was there is kept as `FILE.bak`, or as
    `FILE.bak2` and so on if that is taken.

    Args:
        path: The file. Its folder must exist.

    Raises:
        ModelError: It cannot be written, or is there and is no cassette.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path).absolute()
        #: Where the recording is that was there before, once there is one.
        self.backup: Path | None = None
        self._forget()
        self._check()

    @property
    def begun(self) -> bool:
        """Whether the first lines were written."""
        return self._size > 0

    def begin_again(self) -> bool:
        """Begin anew if somebody deleted what was written; tells whether."""
        if not self.begun or self.path.exists():
            return False
        self._forget()
        return True

    def append(self, lines: Sequence[str]) -> None:
        """Write lines to the end: all of them or none.

        Raises:
            OSError: They cannot be written.
            ModelError: As for the class; somebody else has changed the file.
        """
        added = "".join(f"{line}\n" for line in lines).encode()
        if not self.begun:
            self._check()
            self._keep_earlier()
        try:
            # Never a file that another recorder has begun in the meantime.
            file = self.path.open("r+b" if self.begun else "xb", buffering=0)
        except FileExistsError:
            raise self._changed() from None
        except FileNotFoundError:
            if self.begun:
                raise self._changed() from None
            raise
        with file:
            if self.begun and not self._is_ours(file):
                raise self._changed()
            self._write(file, added)

    def _changed(self) -> ModelError:
        return ModelError(
            f"{self.path} was changed by somebody else while it was recorded, perhaps by another "
            "recording into it: record into another file, or delete it to start over."
        )

    def _write(self, file: FileIO, added: bytes) -> None:
        file.seek(self._size)
        left = memoryview(added)
        try:
            while left:
                left = left[file.write(left) :]
        except BaseException:
            # What was written of it would make the file unreadable.
            file.truncate(self._size)
            raise
        self._size += len(added)
        self._content.update(added)
        self._left = _state(file)

    def _is_ours(self, file: FileIO) -> bool:
        if _state(file) == self._left:
            return True
        return hashlib.file_digest(file, "sha256").digest() == self._content.digest()

    def _forget(self) -> None:
        self._size = 0
        self._content = hashlib.sha256()
        self._left: tuple[int, ...] = ()  # how the last write left the file

    def _check(self) -> None:
        path = self.path
        if path.is_dir():
            raise ModelError(f"{path} is a folder: name a file in it, such as {path}/demo.jsonl.")
        if not path.parent.is_dir():
            raise ModelError(f"There is no folder {path.parent}: make it, then record into {path}.")
        if path.exists() and not path.is_file():
            raise ModelError(f"{path} is no ordinary file: record into another one.")
        for place in (path, path.parent):
            if place.exists() and not os.access(place, os.W_OK):
                raise ModelError(f"{place} cannot be written: record into another file.")
        if path.exists() and path.stat().st_size and not _is_cassette(path):
            raise ModelError(
                f"{path} is there and is no cassette: choose another name, or delete it first."
            )

    def _keep_earlier(self) -> None:
        if not self.path.exists():
            return
        if not _has_response(self.path):
            self.path.unlink()
            return
        number = 1
        while True:
            backup = self.path.with_name(f"{self.path.name}.bak{'' if number == 1 else number}")
            try:
                backup.open("xb").close()  # the name is ours: no other recorder takes it, too
            except FileExistsError:
                number += 1
                continue
            try:
                self.path.replace(backup)
            except OSError:
                backup.unlink()
                raise
            self.backup = backup
            return


def header_of(line: bytes) -> dict[str, Any]:
    """Return the first line of a cassette of any version; empty for one of anything else."""
    try:
        value = parse_line(line)
    except ValueError:
        return {}
    known = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return known if known.get("type") == HEADER["type"] else {}


def parse_line(line: bytes) -> Any:
    """Return the JSON value of a line.

    Raises:
        ValueError: It is no JSON, no UTF-8, or nested too deeply.
    """
    try:
        return json.loads(line.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _state(file: FileIO) -> tuple[int, ...]:
    state = os.fstat(file.fileno())
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _is_cassette(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(header_of(file.readline(1000)))


def _has_response(path: Path) -> bool:
    """Tell whether a cassette holds anything worth keeping."""
    with path.open("rb") as file:
        return any(line.startswith(b'{"type": "response"') for line in file)
