"""What a random example consists of: plans, and the strategies that draw them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from pi_agent_kernel import TextContent

FOREVER = 60  # seconds; whatever waits so long must have been cut off
BLINK = 0.001  # seconds
EDITED = TextContent(text="edited")

TOOLS = ("t0", "t1", "t2", "t3")

RESPONSE_FAULTS = (
    "raise_call", "raise_mid", "cancelled_mid", "no_terminal", "hang", "hang_start",
    "wait_signal", "not_a_stream", "rubbish_event", "error_event", "error_first", "two_ends",
    "no_start", "abort_mid", "late_push", "swallow_cancel",
)  # fmt: skip
DELIVERIES = ("generator", "pushed", "thread", "awaited", "iterator")
TOOL_ACTIONS = (
    "ok", "none", "dict", "rubbish", "no_content", "flagged", "cyclic", "image", "terminate",
    "raise", "raise_silent", "raise_cancelled", "raise_interrupt", "raise_exit", "raise_stop",
    "raise_stop_async", "raise_generator_exit", "raise_group", "slow", "abort", "abort_slow",
    "hang", "wait_signal", "swallow", "raise_on_cancel", "late_update", "update", "steer",
    "follow_up", "nested_prompt", "wait_idle", "timeout",
)  # fmt: skip
TOOL_PLACES = ("async", "async_deaf", "thread", "inline", "executor")
COMMON = (
    "raise", "raise_cancelled", "abort", "abort_slow", "hang", "slow", "steer", "follow_up",
    "rubbish", "busy",
)  # fmt: skip
HOOK_ACTIONS: dict[str, tuple[str, ...]] = {
    "prepare_request": ("model", "fewer_tools"),
    "transform_context": ("edit",),
    "before_model_request": ("edit",),
    "convert_to_llm": (),
    "get_api_key": ("key",),
    "after_model_response": ("edit",),
    "before_tool_call": ("block", "block_terminate", "edit", "edit_bad", "in_place"),
    "after_tool_call": ("terminate", "flip", "content"),
    "after_tool_result": ("edit", "wrong_id"),
    "finish_turn": ("end", "continue"),
    "should_stop": ("yes",),
    "prepare_next_turn": ("messages", "model"),
    "prepare_next_turn_with_context": ("messages", "fewer_tools"),
}
LISTENER_ACTIONS = (
    "raise", "raise_cancelled", "slow", "unsubscribe", "subscribe", "abort", "steer", "follow_up",
    "cancel", "busy", "thread_abort", "thread_steer", "thread_follow_up", "prompt_on_idle",
)  # fmt: skip
STOPS = ("abort", "thread", "cancel", "cancel_native", "cancel_twice")


@dataclass(frozen=True)
class Block:
    """One block of a response: text, thinking, or a call."""

    kind: str
    text: str = "x"
    tool: str = "t0"
    arguments: str = "{}"
    call_id: int = 0


@dataclass(frozen=True)
class Response:
    """One response of the scripted model, and how it goes wrong, if it does."""

    blocks: tuple[Block, ...]
    stop: str | None
    delivery: str
    fault: str | None
    at: int
    pause: bool


@dataclass(frozen=True)
class ToolPlan:
    """What one tool does when it runs."""

    action: str
    place: str
    sequential: bool
    timeout: bool


@dataclass(frozen=True)
class HookPlan:
    """What one hook does at its nth call."""

    name: str
    action: str
    nth: int
    is_async: bool


@dataclass(frozen=True)
class ListenerPlan:
    """What one listener does from its nth event on, `times` times."""

    action: str
    nth: int
    times: int
    is_async: bool


@dataclass(frozen=True)
class Plan:
    """A whole example."""

    steps: tuple[str, ...]
    responses: tuple[Response, ...]
    tools: tuple[ToolPlan, ...]
    hooks: tuple[HookPlan, ...]
    listeners: tuple[ListenerPlan, ...]
    stop: str
    sequential: bool
    all_at_once: bool
    grace: float
    max_log: int | None


def often(usual: object, *others: object) -> st.SearchStrategy:
    """Draw the usual value three times out of four."""
    return st.sampled_from((*[usual] * 3 * len(others), *others))


texts = st.sampled_from(("a", "hello", "line\n\u2028 end", "😀" * 4))
calls = st.builds(
    Block,
    kind=st.just("call"),
    tool=st.sampled_from((*TOOLS * 3, "unknown")),
    arguments=often("{}", '{"n": "2"}', '{"n": "x"}', '{"n": 1', "[1]", "", "nonsense"),
    call_id=often(0, 0, 1),
)
prose = st.builds(Block, kind=st.sampled_from(("text", "thinking")), text=texts)
responses = st.builds(
    Response,
    blocks=st.lists(st.one_of(calls, calls, prose), min_size=1, max_size=4).map(tuple),
    stop=often(None, "length", "stop", None),
    delivery=st.sampled_from(DELIVERIES),
    fault=often(None, *RESPONSE_FAULTS),
    at=st.integers(0, 9),
    pause=st.booleans(),
)
tools = st.builds(
    ToolPlan,
    action=st.sampled_from(TOOL_ACTIONS),
    place=st.sampled_from(TOOL_PLACES),
    sequential=often(False, False, True),
    timeout=often(False, True),
)
hooks = st.sampled_from(sorted(HOOK_ACTIONS)).flatmap(
    lambda name: st.builds(
        HookPlan,
        name=st.just(name),
        action=st.sampled_from(COMMON + HOOK_ACTIONS[name] * 3),
        nth=st.integers(0, 3),
        is_async=st.booleans(),
    )
)
listeners = st.builds(
    ListenerPlan,
    action=st.sampled_from(LISTENER_ACTIONS),
    nth=st.integers(0, 60),
    times=often(1, 2, 5, 100),
    is_async=st.booleans(),
)
plans = st.builds(
    Plan,
    steps=st.lists(
        often("prompt", "messages", "continue", "queued", "reset", "empty"),
        min_size=1,
        max_size=3,
    ).map(tuple),
    responses=st.lists(responses, min_size=2, max_size=5).map(tuple),
    tools=st.lists(tools, min_size=4, max_size=4).map(tuple),
    hooks=st.lists(hooks, max_size=3, unique_by=lambda plan: plan.name).map(tuple),
    listeners=st.lists(listeners, max_size=2).map(tuple),
    stop=st.sampled_from(STOPS),
    sequential=often(False, True),
    all_at_once=st.booleans(),
    grace=st.sampled_from((0.02, 0.005, 0.0)),
    max_log=often(None, 40, 7, 1),
)
