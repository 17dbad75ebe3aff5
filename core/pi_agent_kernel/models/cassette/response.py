"""One streamed response as lines of a cassette, and the lines as a stream again.

Consecutive pieces of a block are one line: the text for people, `chunks` for how it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.events import (
    AssistantMessageEvent,
    ModelRetry,
    StreamDone,
    StreamError,
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
from pi_agent_kernel.json_stream import parse_tool_call_arguments
from pi_agent_kernel.messages import AssistantMessage, ToolCall, now_ms
from pi_agent_kernel.response import ResponseBuilder
from pi_agent_kernel.wire import from_json, to_json

if TYPE_CHECKING:
    from pi_agent_kernel.models.cassette.redaction import Redactor
    from pi_agent_kernel.request import Model

__all__ = ["BLOCKS", "ENDINGS", "RETRY", "Played", "ResponseNotes", "final_diagnostics"]

BLOCKS = ("text", "thinking", "toolCall")
#: What may come before the blocks: an attempt that failed and was made again.
RETRY = "retry"
#: What the last line of a response may be, and which reasons it may give.
ENDINGS: dict[str, tuple[str, ...]] = {
    "done": ("stop", "length", "toolUse", "deferred"),
    "error": ("error", "aborted"),
    "cut": (),
}

_KINDS: dict[type[Any], str] = {
    TextStart: "text",
    TextDelta: "text",
    TextEnd: "text",
    ThinkingStart: "thinking",
    ThinkingDelta: "thinking",
    ThinkingEnd: "thinking",
    ToolCallStart: "toolCall",
    ToolCallDelta: "toolCall",
    ToolCallEnd: "toolCall",
}
_STARTS = (TextStart, ThinkingStart, ToolCallStart)
_DELTAS = (TextDelta, ThinkingDelta, ToolCallDelta)
# Of an ended block: what its line has beside the text, from the block's wire form.
_BESIDE = {
    "text": ("textSignature",),
    "thinking": ("thinkingSignature", "redacted"),
    "toolCall": ("thoughtSignature", "namespace"),
}
# Fields of a last line that are not the message's.
_MARKS = ("type", "started")
# Fields of the message that the lines before tell, or that replay makes anew.
_TOLD = ("role", "content", "stopReason", "timestamp", "durationMs", *_MARKS)


class _Part:
    """Be a run of events of one block."""

    __slots__ = ("block", "call", "end", "kind", "pieces")

    def __init__(self, block: int, kind: str) -> None:
        self.block = block
        self.kind = kind
        self.call: ToolCall | None = None
        self.pieces: list[str] = []
        self.end: dict[str, Any] | None = None


class ResponseNotes:
    """Note the events of one response and write them as lines."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._started = False
        self._parts: list[_Part] = []
        self._retries: list[ModelRetry] = []
        self._last: AssistantMessageEvent | None = None

    def add(self, event: AssistantMessageEvent) -> None:
        """Note one event that is not the last."""
        if isinstance(event, StreamStart):
            self._started = True
        elif not isinstance(event, StreamDone | StreamError):
            self._add_step(event)
        self._last = event

    def add_retry(self, retry: ModelRetry) -> None:
        """Note that the request is made again; how long that waits is left to chance."""
        self._retries.append(retry)

    def partial(self) -> AssistantMessage:
        """Return the message as far as it came."""
        last = self._last
        if last is None or isinstance(last, StreamDone | StreamError):
            model = self._model
            return AssistantMessage(api=model.api, provider=model.provider, model=model.id)
        return last.partial

    def lines(
        self, kind: str, message: AssistantMessage | None, redactor: Redactor
    ) -> list[dict[str, Any]]:
        """Return the lines of the response.

        Args:
            kind: One of `ENDINGS`.
            message: The final message; None for a stream that just ended.
            redactor: What takes the secrets out.

        Raises:
            TypeError: Something in the message has no JSON form.
            ValueError: The message could not be read back; the error names its field.
        """
        steps = [*(redactor.json(_retry_line(one)) for one in self._retries)]
        steps += self._steps(redactor)
        if message is None:
            return [*steps, {"type": kind}]
        wire: dict[str, Any] = redactor.json(to_json(message))
        last: dict[str, Any] = {"type": kind, "stopReason": wire["stopReason"]}
        if not self._started:
            last["started"] = False
        own = {"api": self._model.api, "provider": self._model.provider, "model": self._model.id}
        for name, value in wire.items():
            if name not in _TOLD and own.get(name) != value:
                last[name] = _untimed(value) if name == "diagnostics" else value
        if Played(self._model, [*steps, last]).content() != wire["content"]:
            last["content"] = wire["content"]
        Played(self._model, [*steps, last]).message()  # what cannot be read is not written
        return [*steps, last]

    def _add_step(self, event: Any) -> None:
        kind = _KINDS.get(cast("type[Any]", type(event)))
        if kind is None:
            return  # the loop refuses it
        index = event.content_index
        part = self._parts[-1] if self._parts else None
        if part is None or part.block != index or part.end is not None:
            part = _Part(index, kind)
            self._parts.append(part)
        if isinstance(event, _STARTS):
            if kind == "toolCall":
                part.call = event.partial.content[index]
        elif isinstance(event, _DELTAS):
            part.pieces.append(event.delta)
        else:
            ended: Any = event.tool_call if kind == "toolCall" else event.partial.content[index]
            part.end = to_json(ended)

    def _steps(self, redactor: Redactor) -> list[dict[str, Any]]:
        pieces: dict[int, list[str]] = {}
        for part in self._parts:
            pieces.setdefault(part.block, []).extend(part.pieces)
        clean = {block: redactor.pieces(texts) for block, texts in pieces.items()}
        used = dict.fromkeys(clean, 0)
        calls: dict[int, dict[str, Any]] = {}
        lines: list[dict[str, Any]] = []
        for part in self._parts:
            whole = clean[part.block]
            start = used[part.block]
            used[part.block] += len(part.pieces)
            line: dict[str, Any] = {"type": part.kind, "block": part.block}
            if part.call is not None:
                begun = {"id": part.call.id, "name": part.call.name}
                calls[part.block] = redactor.json(begun)
                line.update(calls[part.block])
            if part.pieces:
                mine = whole[start : used[part.block]]
                line["text"] = "".join(mine)
                if len(mine) > 1:
                    line["chunks"] = [len(piece) for piece in mine]
            if part.end is None:
                line["open"] = True
            else:
                end, text = redactor.json(part.end), "".join(whole)
                line.update(_ending_of(part, calls.get(part.block, {}), end, text))
            lines.append(line)
        return lines


class Played:
    """Be a recorded response, ready to be streamed any number of times.

    Args:
        model: The model that gave it.
        lines: Its lines, the last one of `ENDINGS`.
    """

    def __init__(self, model: Model, lines: Sequence[Mapping[str, Any]]) -> None:
        self._model = model
        self._steps = [line for line in lines[:-1] if line["type"] != RETRY]
        self._last = lines[-1]
        #: The attempts that failed before; nobody waits for the next one.
        self.retries: list[ModelRetry] = [
            _retry_of(line) for line in lines[:-1] if line["type"] == RETRY
        ]

    def content(self) -> list[Any]:
        """Return the blocks of the final message in their wire form."""
        return self._content(self.builder(), play=True)

    def message(self) -> AssistantMessage | None:
        """Return the final message; None if the stream ended without one."""
        if self._last["type"] == "cut":
            return None
        builder = self.builder()
        return self._message(builder, self._content(builder, play=True))

    def builder(self) -> ResponseBuilder:
        """Return what a stream of it is built with."""
        last, model = self._last, self._model
        return ResponseBuilder(
            api=last.get("api", model.api),
            provider=last.get("provider", model.provider),
            model=last.get("model", model.id),
        )

    def events(self, builder: ResponseBuilder) -> Iterator[AssistantMessageEvent]:
        """Stream it again, as it came."""
        last = self._last
        started = last.get("started", True)
        if started:
            yield builder.start()
            yield from self._updates(builder)
        if last["type"] == "cut":
            return
        message = self._message(builder, self._content(builder, play=not started))
        if last["type"] == "done":
            yield StreamDone(reason=message.stop_reason, message=message)
        else:
            yield StreamError(reason=message.stop_reason, error=message)

    def _content(self, builder: ResponseBuilder, *, play: bool = False) -> list[Any]:
        if "content" in self._last:
            return self._last["content"]
        if play:
            for _event in self._updates(builder):
                pass
        return to_json(builder.error("").message)["content"]

    def _message(self, builder: ResponseBuilder, content: list[Any]) -> AssistantMessage:
        fields: dict[str, Any] = {
            **to_json(builder.message_at(0)),
            **{name: value for name, value in self._last.items() if name not in _MARKS},
            "content": content,
        }
        if isinstance(fields.get("diagnostics"), list):
            now = fields["timestamp"]
            fields["diagnostics"] = [
                {**entry, "timestamp": now} if _is_timed(entry) else entry
                for entry in fields["diagnostics"]
            ]
        return from_json(fields)

    def _updates(self, builder: ResponseBuilder) -> Iterator[AssistantMessageEvent]:
        opened: dict[int, _Opened] = {}
        for line in self._steps:
            kind, block = line["type"], line["block"]
            if block not in opened:
                match kind:
                    case "text":
                        begun = builder.text_start()
                    case "thinking":
                        begun = builder.thinking_start()
                    case _:
                        begun = builder.toolcall_start(line["id"], line["name"])
                opened[block] = _Opened(begun.content_index, line)
                yield begun
            known = opened[block]
            index = known.index
            for piece in _pieces(line):
                known.pieces.append(piece)
                match kind:
                    case "text":
                        yield builder.text_delta(piece, index)
                    case "thinking":
                        yield builder.thinking_delta(piece, index)
                    case _:
                        yield builder.toolcall_delta(piece, index)
            if line.get("open"):
                continue
            text = "".join(known.pieces)
            content = line.get("content", text)
            match kind:
                case "text":
                    yield builder.text_end(index, content, signature=line.get("textSignature"))
                case "thinking":
                    yield builder.thinking_end(
                        index,
                        content,
                        signature=line.get("thinkingSignature"),
                        redacted=line.get("redacted"),
                    )
                case _:
                    call = line.get("call") or _call(known.id, known.name, text, line)
                    yield builder.toolcall_end(index, from_json(call, ToolCall))


class _Opened:
    """Be a block that has begun."""

    __slots__ = ("id", "index", "name", "pieces")

    def __init__(self, index: int, line: Mapping[str, Any]) -> None:
        self.index = index
        self.id: str = line.get("id", "")
        self.name: str = line.get("name", "")
        self.pieces: list[str] = []


def _call(id: str, name: str, text: str, beside: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wire form of the call that a model's text amounts to."""
    arguments: Mapping[str, Any] = {}
    problem: str | None = None
    if text.strip():
        arguments, problem = parse_tool_call_arguments(text)
    call: dict[str, Any] = to_json(
        ToolCall(id=id, name=name, arguments=arguments, arguments_error=problem)
    )
    return call | {field: beside[field] for field in _BESIDE["toolCall"] if field in beside}


def _ending_of(
    part: _Part, call: Mapping[str, Any], block: Mapping[str, Any], text: str
) -> dict[str, Any]:
    """Return what the line of an ended block says beside its text."""
    beside = {name: block[name] for name in _BESIDE[part.kind] if name in block}
    if part.kind != "toolCall":
        whole = block[part.kind]
        return beside if whole == text else {"content": whole, **beside}
    expected = _call(call.get("id", ""), call.get("name", ""), text, beside)
    return beside if expected == block else {"call": dict(block)}


def _pieces(line: Mapping[str, Any]) -> Iterator[str]:
    if "text" not in line:
        return
    text, at = line["text"], 0
    for length in line.get("chunks", (len(text),)):
        yield text[at : at + length]
        at += length


def _retry_line(retry: ModelRetry) -> dict[str, Any]:
    return {
        "type": RETRY,
        "attempt": retry.attempt,
        "maxAttempts": retry.max_attempts,
        "kind": retry.kind,
        "errorMessage": retry.error_message,
    }


def _retry_of(line: Mapping[str, Any]) -> ModelRetry:
    return ModelRetry(
        attempt=line["attempt"],
        max_attempts=line["maxAttempts"],
        delay_ms=0,
        error_message=line["errorMessage"],
        kind=line["kind"],
    )


def _is_timed(entry: object) -> bool:
    return isinstance(entry, Mapping) and "timestamp" in entry


def _untimed(entries: Sequence[Any]) -> list[Any]:
    """Return diagnostics without the time they were made."""
    return [{**entry, "timestamp": 0} if _is_timed(entry) else entry for entry in entries]


def final_diagnostics() -> list[dict[str, Any]]:
    """Mark an error of the cassette's own: it may quote anything, so no retry shall read it."""
    details = {"kind": "invalid", "shouldRetry": False}
    return [{"type": "provider_error", "timestamp": now_ms(), "details": details}]
