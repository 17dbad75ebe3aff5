"""The append-only record of one model response while it streams.

A provider reports what arrives to a `ResponseBuilder` and sends on the stream event it gets
back. The builder keeps the pieces in one list; an event holds only its position in that list,
so a delta costs O(1) whatever the length of the message, and `message_at(n)` rebuilds the
message as it was then. Reading in order is incremental; reading back starts over.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Literal, cast

from pi_agent_kernel.events import (
    StreamDone,
    StreamError,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from pi_agent_kernel.json_stream import StreamingJsonParser, parse_tool_call_arguments
from pi_agent_kernel.messages import (
    ZERO_USAGE,
    AssistantBlock,
    AssistantMessage,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
    now_ms,
)

__all__ = ["ResponseBuilder"]

# Partials are read rarely and from any thread; one lock for all keeps a builder small.
_reading = threading.Lock()


class _Fold:
    """One block as far as the record has been read."""

    __slots__ = ("block", "parser", "pieces")

    def __init__(self, block: AssistantBlock) -> None:
        self.block = block
        self.pieces: list[str] = []
        self.parser: StreamingJsonParser | None = None


class ResponseBuilder:
    """Record a response piece by piece and make its stream events.

    Args:
        api: Wire format, as the final message names it.
        provider: Provider id.
        model: Model id.
        timestamp: Milliseconds since the epoch; now by default.

    Every method that reports a piece returns the event to send on. Blocks may interleave: pass
    the index that the start event carried (MD-04).

    Source: MD-02, MD-03, MD-05, MD-06.
    """

    __slots__ = (
        "_api",
        "_block_at",
        "_fields",
        "_final",
        "_folded",
        "_folds",
        "_model",
        "_provider",
        "_starts",
        "_steps",
        "_timestamp",
    )

    def __init__(
        self, *, api: str, provider: str, model: str, timestamp: int | None = None
    ) -> None:
        self._api = api
        self._provider = provider
        self._model = model
        self._timestamp = now_ms() if timestamp is None else timestamp
        self._fields: dict[str, Any] | None = None
        # Two columns: what happened (a piece of text, or a block replacing the block so far)
        # and to which block. A row of its own per delta would cost twice the memory.
        self._steps: list[str | AssistantBlock] = []
        self._block_at: list[int] = []
        self._starts: list[int] = []  # where each block began
        self._final: list[AssistantBlock | None] = []  # each block once it is complete
        self._folds: list[_Fold] = []
        self._folded = 0

    @property
    def fields(self) -> dict[str, Any]:
        """Further fields of the message by name, as they get known: `usage`, `response_id`."""
        if self._fields is None:
            self._fields = {}
        return self._fields

    # ------------------------------------------------------------------------ reporting

    def start(self) -> StreamStart:
        """Report that the response has begun."""
        return StreamStart(origin=self, at=0)

    def text_start(self) -> TextStart:
        """Report a new text block."""
        index = self._open(TextContent(text=""))
        return TextStart(content_index=index, origin=self, at=len(self._steps))

    def text_delta(self, delta: str, index: int) -> TextDelta:
        """Report the next piece of a text block."""
        steps = self._steps
        steps.append(delta)
        self._block_at.append(index)
        return TextDelta(content_index=index, delta=delta, origin=self, at=len(steps))

    def text_end(
        self, index: int, content: str | None = None, *, signature: str | None = None
    ) -> TextEnd:
        """Report that a text block is complete; `content` overrides the pieces."""
        text = self._pieces_of(index) if content is None else content
        self._close(index, TextContent(text=text, text_signature=signature))
        return TextEnd(content_index=index, content=text, origin=self, at=len(self._steps))

    def thinking_start(self) -> ThinkingStart:
        """Report a new thinking block."""
        index = self._open(ThinkingContent(thinking=""))
        return ThinkingStart(content_index=index, origin=self, at=len(self._steps))

    def thinking_delta(self, delta: str, index: int) -> ThinkingDelta:
        """Report the next piece of a thinking block."""
        steps = self._steps
        steps.append(delta)
        self._block_at.append(index)
        return ThinkingDelta(content_index=index, delta=delta, origin=self, at=len(steps))

    def thinking_end(
        self,
        index: int,
        content: str | None = None,
        *,
        signature: str | None = None,
        redacted: bool | None = None,
    ) -> ThinkingEnd:
        """Report that a thinking block is complete; `content` overrides the pieces."""
        text = self._pieces_of(index) if content is None else content
        block = ThinkingContent(thinking=text, thinking_signature=signature, redacted=redacted)
        self._close(index, block)
        return ThinkingEnd(content_index=index, content=text, origin=self, at=len(self._steps))

    def toolcall_start(self, tool_call_id: str, name: str) -> ToolCallStart:
        """Report a new tool call."""
        index = self._open(ToolCall(id=tool_call_id, name=name))
        return ToolCallStart(content_index=index, origin=self, at=len(self._steps))

    def toolcall_delta(self, delta: str, index: int) -> ToolCallDelta:
        """Report the next piece of a tool call's argument text."""
        steps = self._steps
        steps.append(delta)
        self._block_at.append(index)
        return ToolCallDelta(content_index=index, delta=delta, origin=self, at=len(steps))

    def toolcall_end(self, index: int, call: ToolCall | None = None) -> ToolCallEnd:
        """Report that a tool call is complete.

        Args:
            index: The index its start event carried.
            call: The complete call; by default the argument text is parsed, strictly but for
                the repairs of MD-08. Text that is not a JSON object gives a call with
                `arguments_error`, which is never executed (TL-06). No text at all means no
                arguments (B13).
        """
        if call is None:
            opened = self._opened_call(index)
            text = self._pieces_of(index)
            arguments: Mapping[str, Any] = {}
            problem: str | None = None
            if text.strip():
                arguments, problem = parse_tool_call_arguments(text)
            call = ToolCall(
                id=opened.id, name=opened.name, arguments=arguments, arguments_error=problem
            )
        self._close(index, call)
        return ToolCallEnd(content_index=index, tool_call=call, origin=self, at=len(self._steps))

    def done(
        self,
        reason: Literal["stop", "length", "toolUse", "deferred"] | None = None,
        *,
        usage: Usage | None = None,
    ) -> StreamDone:
        """End the response.

        Args:
            reason: The stop reason; "toolUse" when the message has tool calls, else "stop".
            usage: Tokens of the request; zero by default.

        A call whose end was not reported is complete only if its text is a JSON object, read as
        `toolcall_end` reads it; anything less gives a call with `arguments_error` (MD-08).
        """
        self._end_calls()
        content = self._whole()
        if reason is None:
            calls = any(isinstance(block, ToolCall) for block in content)
            reason = "toolUse" if calls else "stop"
        self._forget()
        return StreamDone(reason=reason, message=self._message(content, reason, None, usage))

    def error(
        self, message: str, *, aborted: bool = False, usage: Usage | None = None
    ) -> StreamError:
        """End the response with an error or an abort; what arrived is kept (AB-02, FL-01).

        Calls that were open show their arguments as far as they came: none of them runs.
        """
        reason: StopReason = "aborted" if aborted else "error"
        content = self._whole()
        self._forget()
        return StreamError(reason=reason, error=self._message(content, reason, message, usage))

    # -------------------------------------------------------------------------- reading

    def message_at(self, at: int) -> AssistantMessage:
        """Build the message as it was after the first `at` steps (MD-05)."""
        return self._message(self._content(at) if at else (), "pending", None, None)

    def event_at(self, at: int) -> StreamEvent:
        """Make the event of step `at` again; equal to the one that was sent."""
        if at == 0:
            return self.start()
        step, index = self._steps[at - 1], self._block_at[at - 1]
        opened = self._steps[self._starts[index]]
        first = self._starts[index] == at - 1
        place: Any = {"content_index": index, "origin": self, "at": at}
        if isinstance(step, str):
            kind = _DELTAS[type(opened)]
            return kind(delta=step, **place)
        if first:
            return _STARTS[type(opened)](**place)
        match step:
            case TextContent():
                return TextEnd(content=step.text, **place)
            case ThinkingContent():
                return ThinkingEnd(content=step.thinking, **place)
            case ToolCall():
                return ToolCallEnd(tool_call=step, **place)

    def _message(
        self,
        content: tuple[AssistantBlock, ...],
        reason: StopReason,
        error: str | None,
        usage: Usage | None,
    ) -> AssistantMessage:
        known = self._fields or {}
        return AssistantMessage(
            content=content,
            api=self._api,
            provider=self._provider,
            model=self._model,
            timestamp=self._timestamp,
            stop_reason=reason,
            error_message=error,
            usage=known.get("usage", ZERO_USAGE) if usage is None else usage,
            **{name: value for name, value in known.items() if name != "usage"},
        )

    def _content(self, at: int) -> tuple[AssistantBlock, ...]:
        with _reading:
            if at < self._folded:
                self._folds = []
                self._folded = 0
            folds, steps, block_at = self._folds, self._steps, self._block_at
            for position in range(self._folded, at):
                step, index = steps[position], block_at[position]
                if isinstance(step, str):
                    folds[index].pieces.append(step)
                elif index == len(folds):
                    folds.append(_Fold(step))
                else:
                    folds[index].block = step
                    folds[index].pieces.clear()
            self._folded = at
            return tuple(map(_current, folds))

    def _whole(self) -> tuple[AssistantBlock, ...]:
        """Return all blocks, complete or as far as they came."""
        if all(block is not None for block in self._final):
            return tuple(cast("list[AssistantBlock]", self._final))
        came = self._content(len(self._steps))
        pairs = zip(self._final, came, strict=True)
        return tuple(block if final is None else final for final, block in pairs)

    def _end_calls(self) -> None:
        """Read the open calls for good: what stands in the message may be executed (TL-06)."""
        pieces: dict[int, list[str]] = {
            index: []
            for index, block in enumerate(self._final)
            if block is None and isinstance(self._steps[self._starts[index]], ToolCall)
        }
        if not pieces:
            return
        for step, index in zip(self._steps, self._block_at, strict=True):
            if index in pieces and isinstance(step, str):
                pieces[index].append(step)
        for index, texts in pieces.items():
            opened, text = self._opened_call(index), "".join(texts)
            arguments, problem = parse_tool_call_arguments(text)
            if not text.strip():  # it may have been cut before its first argument
                problem = "Tool arguments are missing: the call was not completed"
            self._final[index] = ToolCall(
                id=opened.id, name=opened.name, arguments=arguments, arguments_error=problem
            )

    def _forget(self) -> None:
        """Keep the record alone; whoever reads a partial again folds it again."""
        if self._folds:
            with _reading:
                self._folds = []
                self._folded = 0

    def _open(self, block: AssistantBlock) -> int:
        index = len(self._starts)
        self._starts.append(len(self._steps))
        self._final.append(None)
        self._steps.append(block)
        self._block_at.append(index)
        return index

    def _close(self, index: int, block: AssistantBlock) -> None:
        self._final[index] = block
        self._steps.append(block)
        self._block_at.append(index)

    def _pieces_of(self, index: int) -> str:
        start = self._starts[index]
        steps = zip(self._steps[start:], self._block_at[start:], strict=True)
        return "".join([step for step, owner in steps if owner == index and isinstance(step, str)])

    def _opened_call(self, index: int) -> ToolCall:
        block = self._steps[self._starts[index]]
        if not isinstance(block, ToolCall):
            raise TypeError(f"Block {index} of this response is not a tool call.")
        return block


_DELTAS: dict[type[Any], Any] = {
    TextContent: TextDelta,
    ThinkingContent: ThinkingDelta,
    ToolCall: ToolCallDelta,
}
_STARTS: dict[type[Any], Any] = {
    TextContent: TextStart,
    ThinkingContent: ThinkingStart,
    ToolCall: ToolCallStart,
}


def _current(fold: _Fold) -> AssistantBlock:
    """Bring a block up to the pieces read so far."""
    block, pieces = fold.block, fold.pieces
    if not pieces:
        return block
    added = "".join(pieces)
    pieces.clear()
    match block:
        case TextContent():
            block = TextContent(text=block.text + added, text_signature=block.text_signature)
        case ThinkingContent():
            block = ThinkingContent(
                thinking=block.thinking + added, thinking_signature=block.thinking_signature
            )
        case ToolCall():
            parser = fold.parser = fold.parser or StreamingJsonParser()
            parser.append(added)
            value = parser.snapshot()
            block = ToolCall(
                id=block.id,
                name=block.name,
                arguments=value if isinstance(value, dict) else {},
            )
    fold.block = block
    return block
