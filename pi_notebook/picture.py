"""The picture of a run: plain, immutable, in the order a reader sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pi_notebook.tool_view import NO_OUTPUT, Image, Output

__all__ = [
    "Discarded",
    "Note",
    "Part",
    "Progress",
    "Retry",
    "RunSnapshot",
    "RunStatus",
    "Text",
    "Thinking",
    "Tokens",
    "ToolRun",
    "ToolState",
]

RunStatus = Literal["running", "ok", "aborted", "error"]
ToolState = Literal["announced", "running", "waiting", "ok", "error"]


@dataclass(frozen=True, slots=True)
class Text:
    """Hold one block of the answer, as Markdown."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Hold one block of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """Hold a message that reached the model beside the prompt: a steer or a follow-up."""

    text: str


@dataclass(frozen=True, slots=True)
class Discarded:
    """Hold what a request that failed had answered by then; it is no part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Hold that a request failed and is made again; `wait_ms` is None once that has begun."""

    reason: str
    attempt: int
    max_attempts: int
    wait_ms: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """Hold what a running tool last reported; `fraction` is None unless it named a total."""

    text: str
    fraction: float | None


@dataclass(frozen=True, slots=True)
class ToolRun:
    """Hold one tool call: what was asked, how far it is, what came back."""

    name: str
    arguments: Mapping[str, Any]
    state: ToolState
    progress: Progress | None = None
    result: str = ""
    images: tuple[Image, ...] = ()
    duration_ms: int | None = None
    raised: str | None = None
    #: Number of the approval it waits for.
    approval: int | None = None
    #: What the tool printed, displayed and returned.
    output: Output = NO_OUTPUT


Part = Text | Thinking | Note | Discarded | Retry | ToolRun


@dataclass(frozen=True, slots=True)
class Tokens:
    """Count the tokens of a run; `input` excludes what the cache served."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """Hold a whole run as it is at one moment, in the order a reader sees it."""

    agent: str
    model: str
    status: RunStatus
    turns: int
    parts: tuple[Part, ...]
    tokens: Tokens
    stop_reason: str | None
    error: str | None
    #: What a reader has to know beside the run: what was set aside, why it stopped.
    remarks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The answer: all its text blocks, a blank line between two."""
        return "\n\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_runs(self) -> tuple[ToolRun, ...]:
        """The tool calls, in the order the model made them."""
        return tuple(part for part in self.parts if isinstance(part, ToolRun))
