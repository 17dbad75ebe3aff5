from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import (
    AgentContext,
    AgentRequestUpdate,
    AgentTurnUpdate,
    CustomMessage,
    Model,
    SystemMessage,
    TurnDecision,
    UserMessage,
    faux_assistant_message,
)
from pi_agent_kernel.request import merge_client_identity
from scripted import Scripted, call, make_tool, ok, user

FORMS = ["plain", "async"]


def in_form(form, hook):
    """The hook as it is, or as a coroutine function."""
    if form == "plain":
        return hook

    async def hook_async(*arguments):
        await anyio.lowlevel.checkpoint()
        return hook(*arguments)

    return hook_async


# --------------------------------------------------------------------- before a request


@pytest.mark.parametrize("form", FORMS)
async def test_the_order_of_the_request_hooks(form):
    """prepare, transform, before_model_request, convert, key; once per request (CO-07, S4-06)."""
    seen = []

    def make(name, answer=lambda *_: None):
        def hook(*arguments):
            seen.append(name)
            return answer(*arguments)

        return in_form(form, hook)

    s = Scripted(
        call(),
        "end",
        tools=[make_tool(ok)],
        get_api_key=make("key"),
        convert_to_llm=make("convert", lambda messages: messages),
        before_model_request=make("before", lambda messages, _: messages),
        transform_context=make("transform", lambda messages, _: messages),
        prepare_request=make("prepare"),
    )
    await s.prompt()

    assert seen == ["prepare", "transform", "before", "convert", "key"] * 2


@pytest.mark.parametrize("hook", ["transform_context", "before_model_request"])
@pytest.mark.parametrize("form", FORMS)
async def test_transformed_messages_are_for_one_request(hook, form):
    """The model sees them; the transcript does not change, whatever is done to the list (CO-07)."""

    def transform(messages, signal):
        messages.append(user("extra"))
        return messages[-2:]

    s = Scripted("one", "two", **{hook: in_form(form, transform)})
    await s.prompt(user("a"))
    await s.prompt(user("b"))

    assert [[m.content for m in request] for request in s.requests] == [
        ["a", "extra"],
        ["b", "extra"],
    ]
    assert s.roles == ["user", "assistant"] * 2


async def test_a_hook_that_returns_none_changes_nothing():
    """None keeps the messages (hooks)."""
    s = Scripted("one", transform_context=lambda *_: None, before_model_request=lambda *_: None)
    await s.prompt(user("a"))

    assert [m.content for m in s.requests[0]] == ["a"]


async def test_the_default_conversion_drops_custom_roles():
    """Four roles reach the model, in order (CO-06)."""
    s = Scripted("one")
    await s.prompt([CustomMessage(role="note"), SystemMessage(content="p"), user("a")])

    assert [m.role for m in s.requests[0]] == ["system", "user"]
    assert s.roles == ["note", "system", "user", "assistant"]


@pytest.mark.parametrize("form", FORMS)
async def test_a_conversion_of_ones_own(form):
    """convert_to_llm maps custom messages to what the model understands (MS-05)."""

    def convert(messages):
        return [user(m.text) if m.role == "note" else m for m in messages]

    s = Scripted("one", convert_to_llm=in_form(form, convert))
    await s.prompt([CustomMessage(role="note", text="n")])

    assert [m.content for m in s.requests[0]] == ["n"]
    assert s.roles == ["note", "assistant"]


@pytest.mark.parametrize("form", FORMS)
async def test_the_key_is_asked_for_each_request(form):
    """With the provider's id; a falsy answer is no key (CO-08)."""
    keys = iter(["k1", ""])
    asked = []

    def key(provider):
        asked.append(provider)
        return next(keys)

    s = Scripted(call(), "end", tools=[make_tool(ok)], get_api_key=in_form(form, key))
    await s.prompt()

    assert asked == ["faux", "faux"]
    assert [options.api_key for options in s.options] == ["k1", None]


async def test_options_are_handed_on():
    """They reach the stream function on every request; they may change later (CO-09, CO-10)."""
    given = {
        "session_id": "s",
        "thinking_budgets": {"low": 5},
        "transport": "sse",
        "max_retry_delay_ms": 7,
        "on_payload": lambda *_: None,
        "on_response": lambda *_: None,
        "on_provider_stream_event": lambda *_: None,
    }
    s = Scripted("one", "two", **given)
    await s.prompt()
    s.agent.session_id = "other"
    await s.prompt()

    first, second = s.options
    assert {name: getattr(first, name) for name in given} == given
    assert (first.session_id, second.session_id) == ("s", "other")
    assert first.identity["attribution"]["name"] == "pi"


async def test_identity_is_merged_field_by_field():
    """The caller's fields win over the default ones; None means send none (CO-14)."""
    s = Scripted("one", identity={"attribution": None, "version": "2"})
    await s.prompt()

    assert s.options[0].identity == {"attribution": None, "version": "2"}
    assert merge_client_identity(None, {}) is None
    assert merge_client_identity({"a": 1, "b": 1}, None, {"b": 2}) == {"a": 1, "b": 2}


@pytest.mark.parametrize("form", FORMS)
async def test_prepare_request_sees_the_request(form):
    """It runs after the prompt was appended, gets context, model and level (LP-05)."""
    seen = []

    def prepare(request, signal):
        seen.append(
            ([m.role for m in request.context.messages], request.model.id, request.thinking_level)
        )

    s = Scripted("x", prepare_request=in_form(form, prepare), thinking_level="low")
    await s.prompt()

    assert seen == [(["user"], "faux-1", "low")]


async def test_prepare_request_replaces_the_context():
    """For this and later requests of the run; the state keeps what was said (LP-05, ST-09)."""
    replaced = []

    def prepare(request, signal):
        if not replaced:
            replaced.append(1)
            return AgentRequestUpdate(context=AgentContext(messages=[user("short")]))
        return None

    s = Scripted("one", "two", prepare_request=prepare, tools=[])
    s.agent.follow_up(user("more"))
    await s.prompt(user("a long story"))

    assert [[m.role for m in request] for request in s.requests] == [
        ["user"],
        ["user", "assistant", "user"],
    ]
    assert s.requests[0][0].content == "short"
    assert s.state.messages[0].content == "a long story"


async def test_tools_added_by_prepare_request():
    """They can run at once and are declared before the following request (TR-09)."""
    added = make_tool(ok, "added")

    def prepare(request, signal):
        if len(s.requests) == 0:
            context = AgentContext(messages=request.context.messages, tools=[added])
            return AgentRequestUpdate(context=context)
        return None

    s = Scripted(call("added"), "end", prepare_request=prepare)
    await s.prompt()

    assert s.outcomes == [("ok", False)]
    assert [m.role for m in s.requests[0]] == ["user"]
    declared = [m for m in s.requests[1] if isinstance(m, SystemMessage)]
    assert [one.name for one in declared[0].tools_added] == ["added"]


async def test_turning_thinking_off():
    """Level "off" from a hook is passed as absent and stamped as off (CO-11, ST-12)."""
    s = Scripted(
        "x",
        thinking_level="high",
        prepare_request=lambda *_: AgentRequestUpdate(thinking_level="off"),
    )
    await s.prompt()

    assert s.options[0].reasoning is None
    assert s.last.thinking_level == "off"


# ---------------------------------------------------------------------- after a response


@pytest.mark.parametrize("form", FORMS)
async def test_a_response_may_be_replaced(form):
    """State, events and tool dispatch see the replacement (S4-07)."""

    def replace(message, signal):
        if message.tool_calls:
            return faux_assistant_message(call("t", "other"), timestamp=1)
        return None

    s = Scripted(
        call("nope"), "end", tools=[make_tool(ok)], after_model_response=in_form(form, replace)
    )
    await s.prompt()

    assert [r.tool_call_id for r in s.results] == ["other"]
    assert s.of("model_response")[0].message.tool_calls[0].id == "other"
    assert s.state.messages[2].timestamp == 1
    s.check()


@pytest.mark.parametrize("form", FORMS)
async def test_finish_turn_sees_the_finished_turn(form):
    """Message, results, context and what the run produced, before turn_end (LP-06)."""
    seen = []

    def finish(turn, signal):
        seen.append(
            (
                turn.message.stop_reason,
                [r.text for r in turn.tool_results],
                [m.role for m in turn.new_messages],
                [m.role for m in turn.context.messages],
                s.types[-1],
            )
        )

    s = Scripted(call(), "end", tools=[make_tool(ok)], finish_turn=in_form(form, finish))
    await s.prompt()

    roles = ["user", "assistant", "toolResult"]
    assert seen == [
        ("toolUse", ["ok"], roles, ["system", *roles], "tool_batch_end"),
        ("stop", [], [*roles, "assistant"], ["system", *roles, "assistant"], "model_response"),
    ]


async def test_what_a_hook_was_shown_does_not_grow():
    """A turn kept by a hook stays as it was (D7)."""
    kept = []
    s = Scripted(call(), "end", tools=[make_tool(ok)], finish_turn=lambda t, _: kept.append(t))
    await s.prompt()

    assert [len(turn.new_messages) for turn in kept] == [3, 4]
    assert [len(turn.context.messages) for turn in kept] == [4, 5]
    assert kept[0].new_messages == kept[1].new_messages[:3]
    assert kept[0].new_messages[-1].role == "toolResult"
    with pytest.raises(IndexError):
        kept[0].new_messages[3]


@pytest.mark.parametrize("decision", ["end", "should_stop"])
async def test_ending_after_a_turn(decision):
    """Right after turn_end, without another request or poll (LP-07, S4-10)."""
    asked = []

    def stop(state):
        asked.append(state.turn_index)
        return decision == "should_stop"

    s = Scripted(
        call(),
        "never",
        tools=[make_tool(ok)],
        finish_turn=lambda *_: TurnDecision(action="end") if decision == "end" else None,
        should_stop=stop,
    )
    s.agent.steer("later")
    s.agent.clear_all_queues()
    s.agent.follow_up("queued")
    await s.prompt()

    assert asked == [1]
    assert len(s.requests) == 1
    assert s.agent.has_queued_messages()
    assert s.core[-3:] == ["turn_end", "agent_end", "agent_idle"]
    s.check()


@pytest.mark.parametrize("form", FORMS)
async def test_going_on_after_a_turn(form):
    """One more request with the unchanged context, if nothing else causes one (LP-08)."""
    decisions = iter([TurnDecision(action="continue"), None])
    s = Scripted("one", "two", finish_turn=in_form(form, lambda *_: next(decisions)))
    await s.prompt()

    assert s.roles == ["user", "assistant", "assistant"]
    assert [m.role for m in s.requests[1]] == ["user", "assistant"]


@pytest.mark.parametrize("why", ["tools", "steering", "follow-up"])
async def test_going_on_adds_no_second_request(why):
    """If a request follows anyway, none is added (LP-08)."""
    decisions = iter([TurnDecision(action="continue")])
    s = Scripted(
        call() if why == "tools" else "one",
        "two",
        tools=[make_tool(ok)],
        finish_turn=lambda *_: next(decisions, None),
    )
    if why == "follow-up":
        s.agent.follow_up("more")
    if why == "steering":
        s.agent.subscribe(
            lambda e, _: s.agent.steer("more") if len(s.requests) == 1 else None,
            events="model_response",
        )
    await s.prompt()

    assert len(s.requests) == 2


async def test_a_decision_on_a_failed_turn_is_ignored():
    """finish_turn is asked, but an error ends the run (LP-04, LP-08)."""
    asked = []

    def finish(turn, signal):
        asked.append(turn.message.stop_reason)
        return TurnDecision(action="continue")

    s = Scripted(faux_assistant_message("", error_message="no"), "never", finish_turn=finish)
    await s.prompt()

    assert asked == ["error"]
    assert len(s.requests) == 1


@pytest.mark.parametrize("form", FORMS)
async def test_should_stop_may_be_async(form):
    """It gets the state; false goes on (S4-10)."""
    seen = []

    def stop(state):
        seen.append(state is s.state)
        return len(seen) == 2

    s = Scripted(call(), call("t", "2"), "never", tools=[make_tool(ok)])
    s.agent.should_stop = in_form(form, stop)
    await s.prompt()

    assert seen == [True, True]
    assert len(s.requests) == 2


# --------------------------------------------------------------------- before a next turn


@pytest.mark.parametrize("form", FORMS)
async def test_prepare_next_turn_runs_between_turns(form):
    """After turn_end, before the next turn_start; not before the first turn (LP-09)."""
    seen = []

    def prepare(signal):
        seen.append(s.types[-1])

    s = Scripted(call(), "end", tools=[make_tool(ok)], prepare_next_turn=in_form(form, prepare))
    await s.prompt()

    assert seen == ["turn_end"]
    kinds = s.core
    assert kinds[kinds.index("turn_end") + 1] == "turn_start"


async def test_the_hook_with_context_wins():
    """With both set the one that gets the finished turn is asked (LP-09)."""
    seen = []
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(ok)],
        prepare_next_turn=lambda *_: seen.append("plain"),
        prepare_next_turn_with_context=lambda turn, _: seen.append(turn.message.stop_reason),
    )
    await s.prompt()

    assert seen == ["toolUse"]


async def test_a_next_turn_may_be_changed():
    """Model, level and messages for the rest of the run; the messages have events (LP-09)."""
    update = AgentTurnUpdate(
        model=Model(id="m2", provider="p2"),
        thinking_level="max",
        messages=[{"role": "user", "content": "reminder"}],
    )
    s = Scripted(call(), "end", tools=[make_tool(ok)], prepare_next_turn=lambda _: update)
    await s.prompt()

    assert [model.id for model in s.models] == ["faux-1", "m2"]
    assert s.options[1].reasoning == "max"
    assert s.requests[1][-1].content == "reminder"
    assert s.state.messages[-2].content == "reminder"
    assert (s.state.model.id, s.state.thinking_level) == ("faux-1", "off")
    s.check()


async def test_tools_added_by_prepare_next_turn():
    """They are declared before the next request (TR-09)."""
    added = make_tool(ok, "added")

    def prepare(turn, signal):
        context = AgentContext(messages=turn.context.messages, tools=[*turn.context.tools, added])
        return AgentTurnUpdate(context=context)

    s = Scripted(
        call(), call("added", "2"), "end", tools=[make_tool(ok)],
        prepare_next_turn_with_context=prepare,
    )  # fmt: skip
    await s.prompt()

    declared = [m for m in s.requests[1] if isinstance(m, SystemMessage)]
    assert [one.name for one in declared[-1].tools_added] == ["added"]
    assert s.outcomes == [("ok", False)] * 2


async def test_a_message_of_a_hook_must_be_one():
    """What prepare_next_turn returns is checked like a prompt (LP-09)."""
    s = Scripted(
        call(), "never", tools=[make_tool(ok)],
        prepare_next_turn=lambda _: AgentTurnUpdate(messages=["text"]),
    )  # fmt: skip
    await s.prompt()

    assert "text" in s.last.error_message
    assert all(not isinstance(m, str) for m in s.state.messages)


async def test_user_messages_from_hooks_are_kept_as_they_are():
    """The objects are the caller's own (TR-08)."""
    mine = UserMessage(content="mine", timestamp=5)
    s = Scripted(call(), "end", prepare_next_turn=lambda _: AgentTurnUpdate(messages=[mine]))
    await s.prompt()

    assert s.state.messages[-2] is mine
