"""Defects that an acceptance run found in the kernel; each test states the rule."""

import json

import pytest
from pi_agent_kernel import (
    Agent,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    ResponseBuilder,
    StreamDone,
    StreamingJsonParser,
    ToolCall,
    TurnDecision,
    faux_assistant_message,
    faux_provider,
    faux_tool_call,
    from_json,
    parse_tool_call_arguments,
    to_json,
    validate_tool_arguments,
)
from pi_agent_kernel.errors import error_text
from pi_agent_kernel.log import EventLog
from scripted import Scripted, call, make_tool, ok

DEPTHS = (250, 600, 990, 3000)
TOO_DEEP = 'Invalid arguments for tool "t": the value is nested too deeply'


def nested(depth):
    value = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def text_of_depth(depth):
    return '{"a":' * depth + "1" + "}" * depth


class WordlessError(Exception):
    def __str__(self):
        raise RuntimeError("in __str__")


# ------------------------------------------------------------------------- nested too deeply


@pytest.mark.parametrize("depth", DEPTHS)
async def test_streamed_arguments_nested_too_deeply_fail_their_call(depth):
    """The call has an error result and the run goes on, whoever reads the partials."""

    async def stream(model, context, options):
        builder = ResponseBuilder(api="x", provider="x", model="x")
        yield builder.start()
        if context.messages[-1].role == "toolResult":
            yield builder.done()
            return
        yield builder.toolcall_start("c1", "t")
        text = text_of_depth(depth)
        for start in range(0, len(text), 500):
            yield builder.toolcall_delta(text[start : start + 500], 0)
        yield builder.toolcall_end(0)
        yield builder.done()

    s = Scripted(tools=[make_tool(ok)], stream_fn=stream)
    partials = []
    s.agent.subscribe(lambda event, _: partials.append(event.message), events="message_update")
    await s.prompt()

    [(text, is_error)] = s.outcomes
    assert is_error
    assert text.startswith(TOO_DEEP)
    assert s.state.error_message is None
    assert s.last.stop_reason == "stop"
    assert partials
    for record in s.agent.log:
        assert record.changes is not None
        assert record.event == record.event
    assert to_json(list(s.state.messages))
    assert all(to_json(partial) for partial in partials)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("way", ["a message", "toolcall_end", "faux"])
async def test_given_arguments_nested_too_deeply_fail_their_call(depth, way):
    """A call that a stream function built from a dict fails as one that came as text."""

    async def stream(model, context, options):
        builder = ResponseBuilder(api="x", provider="x", model="x")
        yield builder.start()
        if context.messages[-1].role == "toolResult":
            yield builder.done()
        elif way == "a message":
            made = AssistantMessage(content=[call("t", "c1", **nested(depth))])
            yield StreamDone(reason="toolUse", message=made)
        else:
            yield builder.toolcall_start("c1", "t")
            yield builder.toolcall_end(0, call("t", "c1", **nested(depth)))
            yield builder.done()

    options = {} if way == "faux" else {"stream_fn": stream}
    s = Scripted(call("t", "c1", **nested(depth)), "end", tools=[make_tool(ok)], **options)
    await s.prompt()

    assert s.outcomes == [(TOO_DEEP, True)]
    assert s.state.error_message is None


@pytest.mark.parametrize("where", ["details", "structured_content"])
@pytest.mark.parametrize("depth", DEPTHS)
async def test_a_result_nested_too_deeply_fails_its_call(depth, where):
    """What cannot be frozen fails the call that returned it, not the run."""

    def deep(*_):
        return AgentToolResult(content="done", **{where: nested(depth)})

    s = Scripted(call(), "end", tools=[make_tool(deep)])
    await s.prompt()

    text = "The result of tool t cannot be kept: the value is nested too deeply"
    assert s.outcomes == [(text, True)]
    assert s.state.error_message is None


@pytest.mark.parametrize("depth", DEPTHS)
async def test_a_progress_report_nested_too_deeply_fails_its_call(depth):
    """The tool that reports it gets the error."""

    def deep(tool_call_id, params, signal, on_update):
        on_update(AgentToolResult(content="half", details=nested(depth)))

    s = Scripted(call(), "end", tools=[make_tool(deep)])
    await s.prompt()

    assert s.outcomes == [("the value is nested too deeply", True)]
    assert s.state.error_message is None


async def test_data_nested_deeply_is_text_all_the_same():
    """A returned dict too deep for structured content succeeds with its JSON text."""
    s = Scripted(call(), "end", tools=[make_tool(lambda *_: nested(250))])
    await s.prompt()

    assert s.outcomes == [(text_of_depth(250).replace(":", ": "), False)]


@pytest.mark.parametrize("hook", ["prepare", "before", "after"])
async def test_a_hook_that_nests_too_deeply_fails_its_call(hook):
    """Arguments and details that a hook replaced are held to the same limit."""
    from pi_agent_kernel import AfterToolCallResult, BeforeToolCallResult

    prepare = {"prepare_arguments": lambda _: nested(600)} if hook == "prepare" else {}
    hooks = {
        "prepare": {},
        "before": {"before_tool_call": lambda *_: BeforeToolCallResult(arguments=nested(600))},
        "after": {"after_tool_call": lambda *_: AfterToolCallResult(details=nested(600))},
    }
    s = Scripted(call(), "end", tools=[make_tool(ok, **prepare)], **hooks[hook])
    await s.prompt()

    [(text, is_error)] = s.outcomes
    assert is_error
    assert text.endswith("the value is nested too deeply")
    assert s.state.error_message is None


def test_the_limits_of_text_and_of_values_agree():
    """Arguments that the strict reader takes are arguments that a call holds and shows."""
    text = text_of_depth(199)
    parsed = parse_tool_call_arguments(text)
    parser = StreamingJsonParser()
    parser.append(text)
    made = ToolCall(id="c", name="t", arguments=parsed.arguments)

    assert parsed.arguments_error is None
    assert made.arguments == nested(199) == parser.snapshot()
    assert to_json(made)["arguments"] == nested(199)


def test_arguments_that_contain_themselves_are_an_error_of_the_call():
    """A call is always made and says why it has none; stored data is refused (TL-06)."""
    loop = {}
    loop["a"] = loop

    made = ToolCall(id="c", name="t", arguments=loop)

    assert made.arguments == {}
    assert made.arguments_error == "the value is nested too deeply"
    with pytest.raises(ValueError, match="value: the value is nested too deeply"):
        from_json({"type": "toolCall", "id": "c", "name": "t", "arguments": nested(250)})


def test_writing_a_value_nested_too_deeply_says_so():
    """No RecursionError leaves `to_json`."""
    with pytest.raises(ValueError, match="nested too deeply to be written"):
        to_json(nested(3000))


# ------------------------------------------------------------------ an exception without text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("said"), "said"),
        (ValueError(), "ValueError"),
        (WordlessError(), "WordlessError (its text cannot be shown)"),
    ],
)
def test_the_text_of_an_exception(error, text):
    """It is what the exception says, else its class's name."""
    assert error_text(error) == text


async def test_an_exception_whose_text_raises_fails_its_call():
    """The result names the class and the run goes on (TL-13)."""

    def breaks(*_):
        raise WordlessError

    s = Scripted(call(), "end", tools=[make_tool(breaks)])
    await s.prompt()

    assert s.outcomes == [("WordlessError (its text cannot be shown)", True)]
    assert s.state.error_message is None


async def test_a_response_function_whose_exception_has_no_text_fails_the_response():
    """The faux provider reports the class."""

    def breaks(*_):
        raise WordlessError

    s = Scripted(breaks)
    await s.prompt()

    assert s.state.error_message == "WordlessError (its text cannot be shown)"


async def test_a_listener_whose_exception_has_no_text_fails_the_run():
    """The failure message names the class (FL-02)."""

    def breaks(event, signal):
        unsubscribe()
        raise WordlessError

    s = Scripted("end")
    unsubscribe = s.agent.subscribe(breaks, events="turn_start")
    await s.prompt()

    assert s.state.error_message == "WordlessError (its text cannot be shown)"


# ----------------------------------------------------------------------- a log that was cut

CUT = "The earlier steps are no longer kept (max_log_events=20)."


async def test_a_run_whose_start_is_dropped_is_told_as_far_as_it_is_kept():
    """The first line says that there was more."""
    answers = [call("t", f"c{n}") for n in range(20)]
    s = Scripted(*answers, "end", tools=[make_tool(ok)], max_log_events=20)
    await s.prompt()
    first, *lines = s.agent.explain().splitlines()

    assert first == CUT
    assert lines[-1].endswith("the run ended")
    assert any("tool t (call c19)" in line for line in lines)
    assert s.agent.explain("c19").startswith(f"{CUT}\nTool t (call c19) ran for")
    assert s.agent.explain("absent").splitlines()[:2] == [
        CUT,
        "Nothing in the log mentions any word of 'absent'.",
    ]


async def test_a_run_that_is_kept_whole_is_told_without_a_remark():
    """What an earlier run lost does not matter to the last one."""
    answers = [call("t", f"c{n}") for n in range(20)]
    s = Scripted(*answers, "end", "again", tools=[make_tool(ok)], max_log_events=20)
    await s.prompt()
    await s.prompt("more")

    assert s.agent.explain().splitlines()[0].endswith("the host called prompt: more")


def test_a_log_cut_before_any_run_says_that_there_was_none():
    """Calls of the host alone are no run, however many were dropped."""
    from pi_agent_kernel.explain import explain

    log = EventLog(max_events=3)
    for _ in range(20):
        log.note("state", "model")

    assert explain(log) == "The agent has not run yet."


def _first_then_deeper(text: str) -> int:
    return len(json.loads(text))


def test_a_failed_tool_says_where_it_failed():
    """`raised` names class, own line and deepest line; the model sees the text."""

    async def boom(call_id, params, signal, on_update):
        return 1 // 0

    def deep(call_id, params, signal, on_update):
        return _first_then_deeper("{")

    faux = faux_provider()
    faux.set_responses(
        [
            faux_assistant_message([faux_tool_call(name, {}) for name in ("boom", "deep", "none")]),
            faux_assistant_message("fin"),
        ]
    )
    tools = [AgentTool(name="boom", execute=boom), AgentTool(name="deep", execute=deep)]
    agent = Agent(stream_fn=faux.stream_fn, model=faux.model(), tools=tools)
    ends = {}
    agent.subscribe(
        lambda event, _: (
            ends.update({event.tool_name: event}) if event.type == "tool_execution_end" else None
        )
    )

    agent.prompt_sync("go")

    line = boom.__code__.co_firstlineno + 1
    at = f"ZeroDivisionError at line {line} in {__name__}.boom"
    assert ends["boom"].raised == at
    assert ends["boom"].result.content[0].text == "integer division or modulo by zero"
    assert f"[{at}]" in agent.explain("boom")
    line = deep.__code__.co_firstlineno + 1
    start = f"JSONDecodeError at line {line} in {__name__}.deep (line "
    assert ends["deep"].raised.startswith(start)
    assert ends["deep"].raised.endswith(" in json.decoder.raw_decode)")
    assert ends["none"].raised is None


def test_explain_finds_a_tool_with_a_short_name():
    """A question of short words finds them where they stand alone, not inside other words."""
    faux = faux_provider()
    faux.set_responses(
        [faux_assistant_message(faux_tool_call("is", {})), faux_assistant_message("x")]
    )
    tools = [AgentTool(name="is", execute=lambda *_: "yes")]
    agent = Agent(stream_fn=faux.stream_fn, model=faux.model(), tools=tools)
    agent.prompt_sync("this")

    lines = agent.explain("is").splitlines()
    assert any("tool is (call " in line for line in lines)
    assert all(" this" not in line for line in lines)
    assert agent.explain("?").startswith("Nothing in the log mentions")


def test_a_wrong_turn_decision_is_refused_where_it_is_made():
    """`action` has two values; a third would be ignored silently."""
    with pytest.raises(ValueError, match='"continue" or "end", not \'stop\''):
        TurnDecision(action="stop")


def test_an_agent_says_what_it_is():
    """The repr has state, model and counts."""
    agent = Agent(stream_fn=lambda *_: None)
    assert repr(agent) == f"<Agent: idle, model {agent.state.model.id}, 0 messages, 0 tools>"


def test_a_whole_float_reaches_the_tool_as_an_int():
    """`range(4.0)` fails: an integer parameter gets an int, whatever the model wrote."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    made = AgentTool(name="t", parameters=schema, execute=lambda *_: None)
    value = validate_tool_arguments(made, ToolCall(id="1", name="t", arguments={"x": 4.0}))["x"]
    assert (value, type(value)) == (4, int)
