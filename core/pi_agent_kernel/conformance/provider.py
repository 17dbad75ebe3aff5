"""The scripted model: a stream function that answers with a scenario's responses.

Each response streams from a task of its own, so its steps and its last event come even when the
loop no longer listens (FORMAT.md, section 4).
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from pi_agent_kernel import (
    AssistantMessage,
    AssistantMessageEventStream,
    Model,
    ResponseBuilder,
    StreamDone,
    StreamError,
    StreamFn,
    StreamOptions,
    TextContent,
    ThinkingContent,
    ToolCall,
    TranscriptContext,
    Usage,
    UserMessage,
    get_current_tools,
)
from pi_agent_kernel.conformance.inputs import assistant_message, stream_event_from
from pi_agent_kernel.conformance.script import Json, ScriptedError, chunks, compact_json
from pi_agent_kernel.conformance.stage import Callee, Stage
from pi_agent_kernel.conformance.steps import run_steps
from pi_agent_kernel.conformance.trace import aborted_state, messages_trace, plain
from pi_agent_kernel.messages import text_of

__all__ = ["scripted_stream_fn"]

_ABORTED = "Request was aborted"
_EXHAUSTED = "No more faux responses queued"
_OPTIONS = {
    "reasoning": "reasoning",
    "apiKey": "api_key",
    "sessionId": "session_id",
    "transport": "transport",
    "thinkingBudgets": "thinking_budgets",
    "maxRetryDelayMs": "max_retry_delay_ms",
}
_CALLBACKS = {
    "onPayload": "on_payload",
    "onResponse": "on_response",
    "onProviderStreamEvent": "on_provider_stream_event",
}
# The reference's provider estimates usage, so what it streams never has a zero one.
_SOME_USAGE = Usage(input=1, output=1, total_tokens=2)


def scripted_stream_fn(stage: Stage) -> StreamFn:
    """Make the stream function of a scenario.

    Args:
        stage: Gives the responses, gets the request entries and runs the producing tasks.

    Returns:
        The function; it raises only where a response says so.

    Source: FORMAT.md, section 4.
    """

    async def stream_fn(
        model: Model, context: TranscriptContext, options: StreamOptions
    ) -> AssistantMessageEventStream:
        _log_request(stage, model, context, options)
        stream = AssistantMessageEventStream()
        if options.signal is not None and options.signal.aborted:
            stream.push(_failure(model, _ABORTED, aborted=True))
        elif not stage.responses:
            stream.push(_failure(model, _EXHAUSTED))
        else:
            response = stage.responses.popleft()
            if "streamFn" in response:
                raise ScriptedError(next(iter(response["streamFn"].values())))
            stage.order_calls(_call_ids(response))
            request = _Request(model=model, context=context, options=options)
            stage.tasks.start_soon(_Response(stage, response, stream, request).run)
        return stream

    return stream_fn


def _log_request(
    stage: Stage, model: Model, context: TranscriptContext, options: StreamOptions
) -> None:
    stage.requests += 1
    shown: Json = {
        name: plain(getattr(options, field))
        for name, field in _OPTIONS.items()
        if getattr(options, field) is not None
    }
    if stage.scenario.get("recordIdentity") and options.identity is not None:
        shown["identity"] = plain(options.identity)
    callbacks = [name for name, field in _CALLBACKS.items() if getattr(options, field)]
    if callbacks:
        shown["callbacks"] = callbacks
    entry: Json = {
        "request": stage.requests,
        "model": model.id,
        "messages": messages_trace(context.messages),
        "tools": [tool.name for tool in get_current_tools(context.messages)],
        "options": shown,
        "aborted": aborted_state(options.signal),
    }
    others = [field.name for field in msgspec.structs.fields(context) if field.name != "messages"]
    if others:
        entry["contextKeys"] = ["messages", *others]
    stage.log.add(entry)


def _call_ids(response: Json) -> list[str]:
    """Return the ids of a response's tool calls; a script's last message counts."""
    messages: list[Json] = [response]
    for entry in response.get("script", ()):
        pushed: Json = entry.get("push") or {}
        messages.append(pushed.get("message") or pushed.get("error") or entry.get("end") or {})
    blocks: list[Any] = [block for message in messages for block in message.get("content", ())]
    return [block["id"] for block in blocks if block.get("type") == "toolCall"]


def _failure(model: Model, text: str, *, aborted: bool = False) -> StreamError:
    reason = "aborted" if aborted else "error"
    data: Json = {"content": [], "stopReason": reason, "errorMessage": text}
    return StreamError(reason=reason, error=assistant_message(data, model.id))


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    model: Model
    context: TranscriptContext
    options: StreamOptions


class _Response:
    """Stream one response."""

    def __init__(
        self,
        stage: Stage,
        response: Json,
        stream: AssistantMessageEventStream,
        request: _Request,
    ) -> None:
        self._stage = stage
        self._response = response
        self._stream = stream
        self._model = request.model
        self._messages = request.context.messages
        self._options = request.options
        self._builder = ResponseBuilder(api="faux", provider="faux", model=request.model.id)
        self._builder.fields["usage"] = _SOME_USAGE

    async def run(self) -> None:
        """Produce all events; whatever fails becomes the stream's last event."""
        try:
            if "script" in self._response:
                await self._run_script()
            else:
                await self._call_back()
                await self._run_steps(self._response.get("before", ()))
                await self._stream_message(self._message())
        except Exception as error:  # noqa: BLE001 - a provider that fails sends an error event
            self._stream.push(_failure(self._model, str(error)))
        finally:
            self._stream.end()

    async def _run_steps(self, steps: list[Json]) -> None:
        callee = Callee(
            where="response",
            signal=self._options.signal,
            push=lambda event: self._stream.push(stream_event_from(event)),
            end=self._end,
        )
        await run_steps(self._stage, steps, callee)

    async def _run_script(self) -> None:
        await self._run_steps(self._response["script"])

    def _end(self, message: Json | None) -> None:
        self._stream.end(None if message is None else assistant_message(message))

    async def _call_back(self) -> None:
        if self._options.on_response is not None:
            answer = self._options.on_response({"status": 200, "headers": {}}, self._model)
            if isawaitable(answer):
                await answer

    def _message(self) -> AssistantMessage:
        response = self._response
        messages = self._messages
        if "throw" in response:
            raise ScriptedError(response["throw"])
        if "echoLastUser" in response:
            users = [message for message in messages if isinstance(message, UserMessage)]
            text = response["echoLastUser"] + (text_of(users[-1].content) if users else "")
        elif "reportTools" in response:
            text = "tools: " + ", ".join(tool.name for tool in get_current_tools(messages))
        else:
            text = response.get("text")
        fields = {
            name: response[name]
            for name in ("content", "stopReason", "errorMessage")
            if name in response
        }
        if text is not None:
            fields["content"] = [{"type": "text", "text": text}]
        message = assistant_message(fields, self._model.id)
        return msgspec.structs.replace(message, usage=_SOME_USAGE)

    async def _stream_message(self, message: AssistantMessage) -> None:
        if self._aborted():
            return
        self._stream.push(self._builder.start())
        for block in message.content:
            if self._aborted() or not await self._stream_block(block):
                return
        if message.stop_reason in {"error", "aborted"}:
            self._stream.push(StreamError(reason=message.stop_reason, error=message))
        else:
            self._stream.push(StreamDone(reason=message.stop_reason, message=message))

    async def _stream_block(self, block: TextContent | ThinkingContent | ToolCall) -> bool:
        """Stream one block; false if an abort has ended the stream."""
        push, builder = self._stream.push, self._builder
        match block:
            case TextContent():
                started, text = builder.text_start(), block.text
                report, finish = builder.text_delta, builder.text_end
            case ThinkingContent():
                started, text = builder.thinking_start(), block.thinking
                report, finish = builder.thinking_delta, builder.thinking_end
            case ToolCall():
                started = builder.toolcall_start(block.id, block.name)
                text = compact_json(block.arguments)
                report, finish = builder.toolcall_delta, None
        push(started)
        index = started.content_index
        for chunk in chunks(text):
            await self._pause(chunk)
            if self._aborted():
                return False
            push(report(chunk, index))
        if isinstance(block, ToolCall):
            push(builder.toolcall_end(index, block))
        elif finish is not None:
            push(finish(index, text))
        return True

    async def _pause(self, chunk: str) -> None:
        rate: float | None = self._response.get("tokensPerSecond")
        if not rate:
            await anyio.lowlevel.checkpoint()
            return
        units = len(chunk.encode("utf-16-le", "surrogatepass")) // 2
        await anyio.sleep(-(-units // 4) / rate)

    def _aborted(self) -> bool:
        """End the stream if the request was aborted; say whether it was."""
        signal = self._options.signal
        if signal is None or not signal.aborted:
            return False
        self._stream.push(self._builder.error(_ABORTED, aborted=True))
        return True
