"""From events to pictures, without a kernel."""

from pi_agent_kernel import (
    Agent,
    AgentEnd,
    AgentToolResult,
    AssistantMessage,
    ImageContent,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ResponseBuilder,
    TextContent,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnStart,
    Usage,
    UserMessage,
    faux_assistant_message,
    faux_provider,
    faux_tool_call,
    tool,
)
from pi_agent_kernel.events import ALL_EVENTS

from pi_notebook.snapshot import Image, Note, Progress, RunReducer, Text, Tokens, ToolRun


def reduced(*events, agent="main"):
    reducer = RunReducer(agent)
    for event in events:
        reducer.apply(event)
    return reducer


def said(*content, **fields):
    message = AssistantMessage(content=content, **fields)
    return [MessageStart(message=message), MessageEnd(message=message)]


def test_new_run_is_empty_and_running():
    """Before its first event a run has nothing to show."""
    run = RunReducer("main", "demo").snapshot()
    assert (run.status, run.parts, run.text, run.turns, run.model) == ("running", (), "", 0, "demo")


def test_streaming_text_is_seen_before_its_end():
    """A picture between deltas has the text so far, and an older picture never changes."""
    response = ResponseBuilder(api="a", provider="p", model="m")
    reducer = reduced(MessageStart(message=response.start().partial))
    opened = response.text_start()
    pictures = []
    for event in (opened, *(response.text_delta(piece, 0) for piece in ("Sun", "rise"))):
        reducer.apply(MessageUpdate(assistant_message_event=event))
        pictures.append(reducer.snapshot())
    assert [picture.text for picture in pictures] == ["", "Sun", "Sunrise"]


def test_final_message_replaces_the_streamed_one():
    """What message_end carries is the truth, whatever the deltas said."""
    response = ResponseBuilder(api="a", provider="p", model="m")
    reducer = reduced(MessageStart(message=response.start().partial))
    response.text_start()
    reducer.apply(MessageUpdate(assistant_message_event=response.text_delta("draft", 0)))
    reducer.apply(MessageEnd(message=AssistantMessage(content=[TextContent(text="final")])))
    assert reducer.snapshot().parts == (Text("final"),)


def test_tool_call_goes_through_its_states():
    """A call is announced, runs, reports and ends; results stand where the call was made."""
    call = ToolCall(id="c1", name="add", arguments={"a": 1})
    reducer = reduced(*said(TextContent(text="Let me see."), call))
    seen = [reducer.snapshot().tool_runs[0].state]
    name = {"tool_call_id": "c1", "tool_name": "add"}
    partial = AgentToolResult(
        content=[TextContent(text="half")], details={"progress": {"done": 1, "total": 2}}
    )
    reducer.apply(ToolExecutionStart(**name, args={"a": 1}))
    seen.append(reducer.snapshot().tool_runs[0].state)
    reducer.apply(ToolExecutionUpdate(**name, args={"a": 1}, partial_result=partial))
    assert reducer.snapshot().tool_runs[0].progress == Progress("half", 0.5)
    result = AgentToolResult(
        content=[TextContent(text="2"), ImageContent(data="AAAA", mime_type="image/png")]
    )
    reducer.apply(ToolExecutionEnd(**name, result=result, is_error=False, duration_ms=3))
    reducer.apply(*said(TextContent(text="It is 2."))[1:])
    assert seen == ["announced", "running"]
    assert reducer.snapshot().parts == (
        Text("Let me see."),
        ToolRun("add", {"a": 1}, "ok", None, "2", (Image("AAAA", "image/png"),), 3),
        Text("It is 2."),
    )


def test_ids_may_repeat_in_a_later_turn():
    """A provider that numbers its calls anew each turn does not overwrite earlier results."""
    reducer = RunReducer("main")
    for result in ("first", "second"):
        for event in said(ToolCall(id="call_0", name="f")):
            reducer.apply(event)
        name = {"tool_call_id": "call_0", "tool_name": "f"}
        reducer.apply(ToolExecutionStart(**name, args={}))
        reducer.apply(
            ToolExecutionEnd(**name, result=AgentToolResult(content=result), is_error=False)
        )
    assert [tool.result for tool in reducer.snapshot().tool_runs] == ["first", "second"]


def test_only_messages_that_came_while_it_ran_are_notes():
    """The prompt stands in the cell; a steer is shown where it reached the model."""
    prompt, steer = UserMessage(content="hi"), UserMessage(content="be brief")
    run = reduced(
        MessageEnd(message=prompt), *said(TextContent(text="a")), MessageEnd(message=steer)
    ).snapshot()
    assert run.parts == (Text("a"), Note("be brief"))


def test_a_queued_message_before_the_first_answer_is_a_note():
    """Only the prompt's own messages are left out, however many they are."""
    prompt, steer = UserMessage(content="hi"), UserMessage(content="be brief")
    events = [MessageEnd(message=prompt), MessageEnd(message=steer), *said(TextContent(text="a"))]
    assert reduced(*events).snapshot().parts == (Note("be brief"), Text("a"))
    for prompts, notes in [(0, ("hi", "be brief")), (2, ())]:
        reducer = RunReducer("main", prompts=prompts)
        for event in events:
            reducer.apply(event)
        parts = reducer.snapshot().parts
        assert parts == (*map(Note, notes), Text("a"))


def test_tokens_add_up_and_the_last_message_decides():
    """Usage is the sum over requests; status and error are those of the last message."""
    usage = Usage(input=1, output=2, cache_read=3, cache_write=4, total_tokens=10)
    events = [TurnStart(), *said(TextContent(text="x"), usage=usage)] * 2
    reducer = reduced(*events)
    assert reducer.snapshot().tokens == Tokens(2, 4, 6, 8, 20)
    for event in said(stop_reason="error", error_message="no"):
        reducer.apply(event)
    reducer.apply(AgentEnd(messages=()))
    run = reducer.snapshot()
    assert (run.status, run.error, run.turns) == ("error", "no", 2)


def test_status_follows_the_stop_reason():
    """Only aborted and error end a run badly; a length stop is a stop."""
    for reason, status in [
        ("stop", "ok"),
        ("length", "ok"),
        ("aborted", "aborted"),
        ("error", "error"),
    ]:
        run = reduced(*said(stop_reason=reason), AgentEnd(messages=())).snapshot()
        assert (run.status, run.stop_reason) == (status, reason)


def test_empty_blocks_show_nothing():
    """Empty text and redacted thinking have no part."""
    message = faux_assistant_message("")
    assert reduced(MessageEnd(message=message)).snapshot().parts == ()


async def test_events_of_a_real_run_give_the_same_picture_each_time():
    """The reducer is pure: replaying the same events gives an equal picture."""

    @tool
    def slow(ctx: ToolContext) -> str:
        """Report, then answer."""
        ctx.progress(1, 4, "quarter")
        return "slept"

    faux = faux_provider()
    faux.set_responses(
        [
            faux_assistant_message([faux_tool_call("slow", {}, id="a")]),
            faux_assistant_message("Good morning."),
        ]
    )
    agent = Agent(stream_fn=faux.stream_fn, model=faux.model(), tools=[slow])
    events = []
    progress = []
    live = RunReducer("main")

    def listen(event, signal):
        events.append(event)
        live.apply(event)
        if isinstance(event, ToolExecutionUpdate):
            progress.append(live.snapshot().tool_runs[0].progress)

    agent.subscribe(listen, events=ALL_EVENTS)
    await agent.prompt("sleep")

    assert progress
    assert progress[0].fraction == 0.25
    picture = live.snapshot()
    assert picture == reduced(*events).snapshot()
    assert (picture.status, picture.turns, picture.text) == ("ok", 2, "Good morning.")
    assert [type(part) for part in picture.parts] == [ToolRun, Text]
