"""Play a scenario of the kind `functions`: call pure functions, record values or exceptions.

Source: FORMAT.md, section 13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any, cast

import anyio

from pi_agent_kernel import (
    AgentMessage,
    AgentTool,
    EventStream,
    Message,
    StreamingJsonParser,
    SystemMessage,
    Tool,
    ToolCall,
    ToolCallArgumentsStream,
    TranscriptContext,
    from_json,
    merge_client_identity,
    parse_streaming_json,
    parse_tool_call_arguments,
    to_tool_declaration,
    transcript,
    validate_tool_arguments,
    validate_tool_call,
)
from pi_agent_kernel.conformance.script import Json, ScenarioError, is_array, is_object, snake_case
from pi_agent_kernel.conformance.stage import Stage
from pi_agent_kernel.conformance.trace import plain
from pi_agent_kernel.json_stream import UNDEFINED, ParsedArguments

__all__ = ["play_functions"]

_UNDEFINED: Json = {"$undefined": True}


async def play_functions(stage: Stage) -> Json:
    """Call the function of each case.

    Args:
        stage: The running scenario.

    Raises:
        ScenarioError: A case names an unknown function.
    """
    results: list[Json] = []
    for case in stage.scenario.get("cases", ()):
        name: str = case["fn"]
        if name not in _FUNCTIONS:
            raise ScenarioError(f"unknown function {name!r}")
        entry: Json = {"fn": name}
        try:
            value = _FUNCTIONS[name](*case.get("args", ()))
            entry["value"] = _shown(await value if isawaitable(value) else value)
        except ScenarioError:
            raise
        except Exception as error:  # noqa: BLE001 - a call that fails is a result
            entry["throws"] = {"message": str(error)}
        results.append(entry)
    return {"results": results}


def _shown(value: Any) -> Any:
    """Return a value as JSON, with a mark for undefined ones."""
    if value is UNDEFINED:
        return _UNDEFINED
    if is_object(value):
        return {key: _shown(item) for key, item in value.items()}
    if is_array(value):
        return [_shown(item) for item in value]
    return plain(value)


# -------------------------------------------------------------------------- transcripts


class _AsGiven:
    """Stand for a message that lacks what a real one must have; written back as it came."""

    def __init__(self, data: Json) -> None:
        self._data = data
        self.role: str = data["role"]
        self.timestamp: int = data.get("timestamp", 0)

    def to_json(self) -> Json:
        return self._data


def _message(data: Json) -> AgentMessage:
    if data["role"] == "system":
        return cast("AgentMessage", from_json({"content": "", "timestamp": 0, **data}))
    try:
        return cast("AgentMessage", from_json(data))
    except ValueError:
        return _AsGiven(data)


def _system(data: Json) -> SystemMessage:
    return cast("SystemMessage", _message({"role": "system", **data}))


def _messages(data: Sequence[Json]) -> list[AgentMessage]:
    return [_message(message) for message in data]


def _context(data: Json) -> TranscriptContext:
    return TranscriptContext(messages=cast("list[Message]", _messages(data["messages"])))


def _tool(data: Json) -> Tool:
    return Tool(
        name=data["name"],
        description=data.get("description", ""),
        parameters=data.get("parameters", {}),
        constrained_sampling=data.get("constrainedSampling"),
    )


def _tools(data: Sequence[Json] | None) -> list[Tool] | None:
    return None if data is None else [_tool(tool) for tool in data]


def _to_tool_declaration(data: Json) -> Tool:
    async def execute(*_arguments: Any) -> None:
        """Do nothing; only the declaration counts."""

    options = {snake_case(name): value for name, value in data.items()}
    return to_tool_declaration(AgentTool(execute=execute, **options))


def _tool_state_changes(previous: Sequence[Json], current: Sequence[Json]) -> Json:
    changes = transcript.get_tool_state_changes(_tools(previous) or [], _tools(current) or [])
    return {
        "toolsAdded": list(changes.tools_added),
        "toolsRemoved": list(changes.tools_removed),
    }


def _normalize_context(data: Json) -> Json:
    context = transcript.normalize_context(
        _context(data).messages,
        system_prompt=data.get("systemPrompt"),
        tools=_tools(data.get("tools")),
    )
    return _context_value(context)


def _resolve_transcript(data: Json, accepts: bool) -> Json:  # noqa: FBT001 - positional in cases
    context = transcript.resolve_transcript(
        _context(data), supports_mid_conversation_system_messages=accepts
    )
    return _context_value(context)


def _context_value(context: TranscriptContext) -> Json:
    return {"messages": list(context.messages)}


def _resolve_transcript_tools(messages: Sequence[Json], support: Any) -> Json:
    resolved = transcript.resolve_transcript_tools(_messages(messages), support)
    return {
        "requestTools": list(resolved.request_tools),
        "foldedSystemMessages": resolved.folded_system_messages,
    }


def _content_text(content: str | Sequence[Json]) -> str:
    blocks = content if isinstance(content, str) else [from_json(block) for block in content]
    return transcript.content_text(blocks)


# ---------------------------------------------------------------------------- arguments


def _call(data: Json, name: str) -> ToolCall:
    return ToolCall(
        id="call",
        name=name,
        arguments=data.get("arguments", {}),
        arguments_error=data.get("argumentsError"),
    )


def _validate_tool_arguments(tool: Json, call: Json) -> Json:
    return validate_tool_arguments(_tool(tool), _call(call, tool["name"]))


def _validate_tool_call(tools: Sequence[Json], call: Json) -> Json:
    return validate_tool_call(_tools(tools) or [], _call(call, call["name"]))


def _validate_keeps_input(tool: Json, arguments: Json) -> Json:
    call = _call({"arguments": arguments}, tool["name"])
    return {"validated": validate_tool_arguments(_tool(tool), call), "input": call.arguments}


def _parsed(parsed: ParsedArguments) -> Json:
    value: Json = {"arguments": parsed.arguments}
    if parsed.arguments_error is not None:
        received = parsed.arguments_error.partition("Received arguments:\n")[2]
        value["argumentsError"] = {"received": received}
    return value


def _streaming_json_snapshots(pieces: Sequence[str]) -> list[Any]:
    parser = StreamingJsonParser()
    snapshots: list[Any] = []
    for piece in pieces:
        parser.append(piece)
        snapshots.append(parser.snapshot())
    return snapshots


def _streaming_json_prefixes(text: str) -> list[Any]:
    """Return the value at each prefix; where the two ways to get it differ, both values."""
    units = text.encode("utf-16-le", "surrogatepass")
    ends = range(2, len(units) + 1, 2)
    grown = _streaming_json_snapshots([_decoded(units[end - 2 : end]) for end in ends])
    fresh = [_streaming_json_snapshots([_decoded(units[:end])])[0] for end in ends]
    return [
        one if one == other else {"grown": one, "fresh": other}
        for one, other in zip(grown, fresh, strict=True)
    ]


def _decoded(units: bytes) -> str:
    return units.decode("utf-16-le", "surrogatepass")


def _tool_call_arguments_stream(operations: Sequence[Json]) -> list[Any]:
    stream = ToolCallArgumentsStream()
    values: list[Any] = []
    for operation in operations:
        if "append" in operation:
            values.append(stream.append(operation["append"]))
        elif "replace" in operation:
            replaced = stream.replace(operation["replace"])
            delta: Json = {} if replaced.delta is None else {"delta": replaced.delta}
            values.append({**delta, "arguments": replaced.arguments})
        elif "finish" in operation:
            values.append(_parsed(stream.finish()))
        else:
            raise ScenarioError(f"unknown operation {next(iter(operation), '')!r}")
    return values


# -------------------------------------------------------------------------- event stream


async def _event_stream(operations: Sequence[Json], mode: str) -> Json:
    stream = EventStream[Json, Any](
        lambda event: event["type"] == "done", lambda event: event.get("result")
    )
    seen: list[Json] = []
    outcome: Json = {"seen": seen, "finished": False, "result": {"pending": True}}

    async def consume() -> None:
        async for event in stream:
            seen.append(event)  # noqa: PERF401 - what was seen counts even if it never ends
        outcome["finished"] = True

    async def await_result() -> None:
        try:
            outcome["result"] = {"value": await stream.result()}
        except Exception as error:  # noqa: BLE001 - a call that fails is a result
            outcome["result"] = {"throws": {"message": str(error)}}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await anyio.sleep(0.001)
        for operation in operations:
            if mode == "interleaved":
                await anyio.sleep(0.001)
            if "push" in operation:
                stream.push(operation["push"])
            else:
                stream.end(operation.get("end"))
        tasks.start_soon(await_result)
        await anyio.sleep(0.04)
        tasks.cancel_scope.cancel()
    return outcome


# ---------------------------------------------------------------------------- the table


def _of_messages(function: Callable[[list[AgentMessage]], Any]) -> Callable[..., Any]:
    def call(data: Sequence[Json]) -> Any:
        return function(_messages(data))

    return call


def _maybe(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function whose None is the reference's undefined."""

    def call(*arguments: Any) -> Any:
        value = function(*arguments)
        return UNDEFINED if value is None else value

    return call


def _create_initial_system_message(
    prompt: str | None, tools: Sequence[Json] | None
) -> SystemMessage | None:
    return transcript.create_initial_system_message(prompt, _tools(tools))


def _declarations_equal(left: Json, right: Json) -> bool:
    return transcript.declarations_equal(_tool(left), _tool(right))


def _collapse_system_messages(data: Json) -> Json:
    return _context_value(transcript.collapse_system_messages(_context(data)))


def _system_message_text(data: Json) -> str:
    return transcript.get_system_message_text(_system(data))


def _system_message_update(data: Json) -> str:
    return transcript.render_system_message_update(_system(data))


def _parse_tool_call_arguments(text: str) -> Json:
    return _parsed(parse_tool_call_arguments(text))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "createInitialSystemMessage": _maybe(_create_initial_system_message),
    "getInitialSystemMessage": _maybe(_of_messages(transcript.get_initial_system_message)),
    "withoutInitialSystemMessage": _of_messages(transcript.without_initial_system_message),
    "getCurrentTools": _of_messages(transcript.get_current_tools),
    "getDeclaredTools": _of_messages(transcript.get_declared_tools),
    "getCurrentSystemMessage": _maybe(_of_messages(transcript.get_current_system_message)),
    "getCurrentSystemPrompt": _of_messages(transcript.get_current_system_prompt),
    "hasNonAdditiveToolChanges": _of_messages(transcript.has_non_additive_tool_changes),
    "getToolStateChanges": _tool_state_changes,
    "declarationsEqual": _declarations_equal,
    "toToolDeclaration": _to_tool_declaration,
    "normalizeContext": _normalize_context,
    "collapseSystemMessages": _collapse_system_messages,
    "resolveTranscript": _resolve_transcript,
    "resolveTranscriptTools": _resolve_transcript_tools,
    "contentText": _content_text,
    "getSystemMessageText": _system_message_text,
    "renderSystemMessageUpdate": _system_message_update,
    "mergeClientIdentity": _maybe(merge_client_identity),
    "validateToolArguments": _validate_tool_arguments,
    "validateToolCall": _validate_tool_call,
    "validateKeepsInput": _validate_keeps_input,
    "parseToolCallArguments": _parse_tool_call_arguments,
    "parseStreamingJson": parse_streaming_json,
    "streamingJsonSnapshots": _streaming_json_snapshots,
    "streamingJsonPrefixes": _streaming_json_prefixes,
    "toolCallArgumentsStream": _tool_call_arguments_stream,
    "eventStream": _event_stream,
}
