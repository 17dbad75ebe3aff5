"""Users' configurations, for type checkers only: nothing here is ever run.

Each function is something a user writes. pyright strict accepts all of it without a cast.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import assert_never, assert_type

from pi_agent_kernel import (
    ALL_EVENTS,
    AbortController,
    AbortSignal,
    AfterToolCallContext,
    AfterToolCallResult,
    Agent,
    AgentBusyError,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentIdle,
    AgentLoopConfig,
    AgentMessage,
    AgentRequestUpdate,
    AgentStart,
    AgentState,
    AgentTurnUpdate,
    AssistantMessage,
    AssistantMessageEvent,
    AssistantMessageEventStream,
    BeforeToolCallContext,
    BeforeToolCallResult,
    CustomMessage,
    Explanation,
    ImageContent,
    Message,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Model,
    ModelRequestStart,
    ModelResponse,
    ModelRetry,
    PrepareRequestContext,
    ResponseBuilder,
    StreamDone,
    StreamError,
    StreamOptions,
    StreamStart,
    SystemMessage,
    TextContent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingContent,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolBatchEnd,
    ToolBatchStart,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallOutcome,
    ToolCallStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TranscriptContext,
    TurnContext,
    TurnDecision,
    TurnEnd,
    TurnStart,
    Usage,
    UserMessage,
    agent_loop,
    agent_loop_continue,
    faux_assistant_message,
    faux_provider,
    faux_text,
    faux_thinking,
    faux_tool_call,
    from_json,
    run_agent_loop,
    run_agent_loop_continue,
    run_tool_call,
    set_default_stream_fn,
    to_json,
    tool,
)
from pi_agent_kernel.models.faux import FauxState


def show(*values: object) -> None:
    """Stand for whatever a user does with values."""
    del values


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


# ------------------------------------------------------------------------- plain hooks


def transform_context(
    messages: Sequence[AgentMessage], signal: AbortSignal | None
) -> Sequence[AgentMessage]:
    """Send the last twenty messages only."""
    del signal
    return messages[-20:]


def convert_to_llm(messages: Sequence[AgentMessage]) -> Sequence[Message]:
    """Map a role of one's own."""
    known = (SystemMessage, UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)
    return [
        UserMessage(content=str(message.fields["text"]))
        if isinstance(message, CustomMessage)
        else message
        for message in messages
        if isinstance(message, known)
    ]


def prepare_request(
    request: PrepareRequestContext, signal: AbortSignal | None
) -> AgentRequestUpdate | None:
    """Think harder about long transcripts."""
    del signal
    if len(request.context.messages) < 40 or request.thinking_level == "high":
        return None
    return AgentRequestUpdate(model=request.model, thinking_level="high")


def finish_turn(turn: TurnContext, signal: AbortSignal | None) -> TurnDecision | None:
    """Stop at a word."""
    del signal
    return TurnDecision(action="end") if "DONE" in turn.message.text else None


def prepare_next_turn(signal: AbortSignal | None) -> AgentTurnUpdate | None:
    """Put a reminder into the next turn."""
    del signal
    return AgentTurnUpdate(messages=[UserMessage(content="Keep going.")])


def before_tool_call(
    context: BeforeToolCallContext, signal: AbortSignal | None
) -> BeforeToolCallResult | ToolCall | None:
    """Block, replace, allow."""
    del signal
    match context.tool_call.name:
        case "delete":
            return BeforeToolCallResult(block=True, reason="No.", terminate=True)
        case "search":
            return BeforeToolCallResult(arguments={**context.args, "limit": 1})
        case _:
            return context.tool_call


def after_tool_call(
    context: AfterToolCallContext, signal: AbortSignal | None
) -> AfterToolCallResult | None:
    """Shorten a long result."""
    del signal
    content = context.result.content or ()
    return AfterToolCallResult(content=content[:1], is_error=False) if len(content) > 1 else None


def should_stop(state: AgentState) -> bool:
    """Stop after ten turns."""
    return state.turn_index >= 10


def get_api_key(provider: str) -> str | None:
    """Look a key up."""
    return {"example": "key"}.get(provider)


# ------------------------------------------------------------------------- async hooks


async def before_model_request(
    messages: Sequence[AgentMessage], signal: AbortSignal | None
) -> Sequence[AgentMessage]:
    """Add what is true right now."""
    del signal
    return [*messages, UserMessage(content="It is noon.")]


async def after_model_response(
    message: AssistantMessage, signal: AbortSignal | None
) -> AssistantMessage | None:
    """Look at a response."""
    assert_type(message.tool_calls, tuple[ToolCall, ...])
    return None if signal is None or signal.aborted else message


async def after_tool_result(
    message: ToolResultMessage, signal: AbortSignal | None
) -> ToolResultMessage | None:
    """Look at a result."""
    del signal
    return message if message.is_error else None


async def prepare_next_turn_with_context(
    turn: TurnContext, signal: AbortSignal | None
) -> AgentTurnUpdate | None:
    """Change the model in the middle of a run."""
    del signal
    return AgentTurnUpdate(model=Model(id="larger"), context=turn.context)


async def should_stop_async(state: AgentState) -> bool:
    """Stop on an error."""
    return state.error_message is not None


# ----------------------------------------------------------------------------- listeners


def print_event(event: AgentEvent, signal: AbortSignal) -> None:
    """Match every event; a new one is an error here until it is handled."""
    match event:
        case AgentStart() | TurnStart() | AgentIdle():
            show(event.type, signal.aborted)
        case AgentEnd(messages=messages):
            show(len(messages))
        case TurnEnd(message=message, tool_results=results):
            show(message.stop_reason, [result.is_error for result in results])
        case MessageStart(message=message) | MessageEnd(message=message):
            show(message.role)
        case MessageUpdate():
            match event.assistant_message_event:
                case TextDelta(delta=delta):
                    show(delta)
                case _:
                    pass
            show(event.message.text)
        case ToolExecutionStart(tool_name=name, args=arguments):
            show(name, dict(arguments))
        case ToolExecutionUpdate(partial_result=partial):
            show(partial.content)
        case ToolExecutionEnd(result=result, is_error=is_error, duration_ms=duration_ms):
            show(result.details, is_error, duration_ms)
        case ModelResponse(usage=usage):
            show(usage.total_tokens)
        case ModelRequestStart(attempt=number) | ModelRetry(delay_ms=number):
            show(number)
        case ToolBatchStart() | ToolBatchEnd():
            show(event.count)
        case _:
            assert_never(event)


def print_step(step: AssistantMessageEvent) -> None:
    """Match every stream event."""
    match step:
        case StreamStart():
            show(step.partial.model)
        case TextStart() | ThinkingStart() | ToolCallStart():
            show(step.content_index)
        case TextDelta(delta=delta) | ThinkingDelta(delta=delta) | ToolCallDelta(delta=delta):
            show(delta)
        case TextEnd(content=content) | ThinkingEnd(content=content):
            show(content)
        case ToolCallEnd(tool_call=call):
            show(call.arguments)
        case StreamDone() | StreamError():
            show(step.message.usage)
        case _:
            assert_never(step)


async def print_message(event: MessageEnd, signal: AbortSignal) -> None:
    """Listen to one kind of event, async."""
    del signal
    match event.message:
        case UserMessage(content=content) | SystemMessage(content=content):
            show(content)
        case AssistantMessage() as message:
            for block in message.content:
                match block:
                    case TextContent(text=text) | ThinkingContent(thinking=text):
                        show(text)
                    case ToolCall(name=name):
                        show(name)
                    case _:
                        assert_never(block)
        case ToolResultMessage(text=text):
            show(text)
        case _:
            show(event.message.role)


# --------------------------------------------------------------------- stream functions


async def echo(
    model: Model, context: TranscriptContext, options: StreamOptions
) -> AsyncGenerator[AssistantMessageEvent, None]:
    """Ask a model, as an async generator."""
    builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
    yield builder.start()
    yield builder.thinking_start()
    yield builder.thinking_delta(str(options.reasoning), 0)
    yield builder.thinking_end(0, signature="opaque")
    yield builder.text_start()
    yield builder.text_delta(str(len(context.messages)), 1)
    yield builder.text_end(1)
    yield builder.toolcall_start("call-1", "add")
    yield builder.toolcall_delta('{"a": 1}', 2)
    yield builder.toolcall_end(2)
    if options.signal is not None and options.signal.aborted:
        yield builder.error("Request was aborted", aborted=True)
    else:
        yield builder.done(usage=Usage(input=1, output=1, total_tokens=2))


def queued(
    model: Model, context: TranscriptContext, options: StreamOptions
) -> AssistantMessageEventStream:
    """Ask a model whose client calls back, from any thread."""
    del context, options
    stream = AssistantMessageEventStream()
    builder = ResponseBuilder(api=model.api, provider=model.provider, model=model.id)
    stream.push(builder.start())
    stream.push(builder.done("stop"))
    return stream


async def read_by_itself() -> None:
    """Read a stream without a loop around it."""
    context = TranscriptContext(messages=[UserMessage(content="Hello.")])
    async for step in echo(Model(id="echo-1"), context, StreamOptions(reasoning="low")):
        print_step(step)


async def opened_later(
    model: Model, context: TranscriptContext, options: StreamOptions
) -> AssistantMessageEventStream:
    """Ask a model that has to be connected first."""
    return queued(model, context, options)


# --------------------------------------------------------------------------------- agents


def every_option() -> Agent:
    """Give every option of an agent."""
    return Agent(
        stream_fn=echo,
        system_prompt="Be brief.",
        model=Model(id="echo-1", reasoning=True, input=("text", "image"), context_window=8_000),
        thinking_level="low",
        tools=[add],
        messages=[UserMessage(content="Hello."), CustomMessage(role="note", text="seen")],
        convert_to_llm=convert_to_llm,
        transform_context=transform_context,
        prepare_request=prepare_request,
        finish_turn=finish_turn,
        prepare_next_turn=prepare_next_turn,
        prepare_next_turn_with_context=prepare_next_turn_with_context,
        before_tool_call=before_tool_call,
        after_tool_call=after_tool_call,
        before_model_request=before_model_request,
        after_model_response=after_model_response,
        after_tool_result=after_tool_result,
        should_stop=should_stop,
        get_api_key=get_api_key,
        session_id="session-1",
        thinking_budgets={"low": 1_000},
        transport="sse",
        max_retry_delay_ms=10_000,
        identity={"version": "1"},
        steering_mode="all",
        follow_up_mode="one-at-a-time",
        tool_execution="sequential",
        abort_grace=1,
        run_sync=lambda call: call(),
        on_payload=show,
        on_response=show,
        on_provider_stream_event=show,
        max_log_events=None,
    )


async def use(agent: Agent) -> None:
    """Do with an agent what there is to do."""
    unsubscribe = agent.subscribe(print_event)
    agent.subscribe(print_event, events=ALL_EVENTS)
    agent.subscribe(print_message, events=[MessageEnd])
    agent.subscribe(lambda event, signal: None, events=["turn_end", "agent_idle"])
    unsubscribe()
    agent.steer("Be brief.")
    agent.follow_up(UserMessage(content="And then?"))
    await agent.prompt("Hello.", images=[ImageContent(data="", mime_type="image/png")])
    await agent.prompt(UserMessage(content=[TextContent(text="Hello.")]))
    await agent.prompt([SystemMessage(sections={"tone": None}), UserMessage(content="Hello.")])
    try:
        await agent.continue_()
    except AgentBusyError as error:
        show(error.action)
    agent.prompt_sync("Hello.")
    agent.abort()
    await agent.wait_for_idle()
    if agent.signal is not None:
        assert_type(agent.signal.aborted, bool)
    assert_type(agent.peek_queued_messages(), list[AgentMessage])
    agent.should_stop = should_stop_async
    agent.steering_mode = "one-at-a-time"
    agent.state.model = Model(id="other")
    agent.state.thinking_level = "high"
    agent.state.tools = [add]
    agent.state.tools.append(tool(max, name="largest"))
    agent.state.messages.append(UserMessage(content="Hello."))
    agent.state.messages = list(agent.state.messages[:2])
    assert_type(agent.state.system_prompt, str)
    assert_type(agent.state.pending_tool_calls, frozenset[str])
    assert_type(agent.state.streaming_message, AgentMessage | None)
    for record in agent.log:
        for change in record.changes:
            show(record.seq, record.time, record.type, change.field, change.before, change.after)
    found = agent.log.last_change("messages")
    if found is not None:
        show(found[0].seq, found[1].after)
    assert_type(agent.explain("add"), Explanation)
    agent.reset()


def scripted() -> Agent:
    """Script a model."""

    def answer(
        context: TranscriptContext, options: StreamOptions, state: FauxState, model: Model
    ) -> AssistantMessage:
        text = f"{len(context.messages)} {options.session_id} {state.call_count} {model.id}"
        return faux_assistant_message(text)

    async def answer_later(
        context: TranscriptContext, options: StreamOptions, state: FauxState, model: Model
    ) -> AssistantMessage:
        return answer(context, options, state, model)

    faux = faux_provider(models=("faux-1", "faux-2"), tokens_per_second=50, token_size=(3, 5))
    faux.set_responses(
        [
            faux_assistant_message(
                [faux_thinking("Hm."), faux_text("So."), faux_tool_call("add", {"a": 1}, id="c1")]
            ),
            answer,
        ]
    )
    faux.append_responses([answer_later, faux_assistant_message("", error_message="down")])
    set_default_stream_fn(faux.stream_fn)
    return Agent(model=faux.model("faux-2"))


async def loop_by_itself() -> None:
    """Run the loop without an agent."""
    controller = AbortController()
    config = AgentLoopConfig(
        model=Model(id="echo-1"),
        convert_to_llm=convert_to_llm,
        transform_context=transform_context,
        before_tool_call=before_tool_call,
        get_steering_messages=lambda: [UserMessage(content="Be brief.")],
        should_stop=lambda: True,
        lifecycle_events=True,
    )
    context = AgentContext(messages=[UserMessage(content="Hello.")], tools=[add])
    prompts = [UserMessage(content="Go on.")]
    stream = agent_loop(prompts, context, config, controller.signal, echo)
    async for event in stream:
        assert_type(event, AgentEvent)
    assert_type(await stream.result(), list[AgentMessage])
    agent_loop_continue(context, config, None, opened_later)

    async def emit(event: AgentEvent) -> None:
        print_event(event, controller.signal)

    assert_type(
        await run_agent_loop(prompts, context, config, emit, controller.signal, queued),
        list[AgentMessage],
    )
    await run_agent_loop_continue(context, config, lambda event: None, None, echo)
    outcome = await run_tool_call(ToolCall(id="1", name="add"), tools=[add])
    assert_type(outcome, ToolCallOutcome)
    controller.abort("enough")


def write_and_read(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    """Keep a transcript as JSON."""
    return from_json(to_json(messages))
