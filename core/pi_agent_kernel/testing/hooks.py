"""Try tools and hooks by themselves, stand in for the person who approves, watch a hook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from pi_agent_kernel.agent_tool import AgentTool
from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.hooks import BeforeToolCallContext, BeforeToolCallResult
from pi_agent_kernel.messages import ToolCall
from pi_agent_kernel.tool_call import ToolCallOutcome, run_tool_call

__all__ = ["Answerer", "HookCall", "HookWatch", "answer_calls", "try_call", "watch_hook"]

P = ParamSpec("P")
R = TypeVar("R")


def try_call(tool_call: ToolCall, tools: Sequence[AgentTool], **hooks: Any) -> ToolCallOutcome:
    """Run one call through all steps of a model's call, without a model, and wait for it.

    Args:
        tool_call: Such as `call("add", a=2, b=40)`.
        tools: What may be called.
        **hooks: `before_tool_call`, `after_tool_call` and the other options of `run_tool_call`,
            which is this for async code.

    Returns:
        How it ended: `is_error`, `result`, `raised`, and `message()`, whose `text` is what the
        model would read. A tool's failure is no exception here, as it is none in a run.

    Example:
        >>> from pi_agent_kernel import tool
        >>> from pi_agent_kernel.testing import call
        >>> @tool
        ... def half(number: int) -> float:
        ...     return number / 2
        >>> try_call(call("half", number="7"), [half]).message().text
        '3.5'
        >>> outcome = try_call(call("half", number="seven"), [half])
        >>> outcome.is_error, outcome.duration_ms  # it did not run
        (True, None)
    """
    from pi_agent_kernel.abort import AbortController
    from pi_agent_kernel.blocking import run_blocking

    controller = AbortController()
    options: dict[str, Any] = {"signal": controller.signal, **hooks}
    outcomes: list[ToolCallOutcome] = []

    async def run() -> None:
        outcomes.append(await run_tool_call(tool_call, tools=tools, **options))

    run_blocking(run, controller.abort)
    return outcomes[0]


class HookCall(msgspec.Struct, frozen=True):
    """Be one call of a watched hook: what it got, and its answer or what it raised."""

    arguments: tuple[Any, ...]
    answer: Any = None
    raised: BaseException | None = None


class HookWatch(Generic[P, R]):
    """Be a hook, plain or async, that keeps its calls; `watch_hook` makes one."""

    def __init__(self, hook: Callable[P, R] | None) -> None:
        self._hook = hook
        #: The calls, in the order in which they ended.
        self.calls: list[HookCall] = []

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> Any:
        """Ask the hook, or answer None, which changes nothing."""
        try:
            answer: Any = None if self._hook is None else self._hook(*arguments, **options)
        except Exception as error:
            self.calls.append(HookCall(arguments, raised=error))
            raise
        if is_awaitable(answer):
            return self._later(arguments, answer)
        self.calls.append(HookCall(arguments, answer))
        return answer

    async def _later(self, arguments: tuple[Any, ...], waiting: Any) -> Any:
        try:
            answer = await waiting
        except BaseException as error:
            self.calls.append(HookCall(arguments, raised=error))
            raise
        self.calls.append(HookCall(arguments, answer))
        return answer


def watch_hook(hook: Callable[P, R] | None = None) -> HookWatch[P, R]:
    """Make a hook that keeps every call, with what it got and answered.

    Args:
        hook: The hook, plain or async; without one it answers None, which changes nothing. Not
            for `convert_to_llm`, whose answer is the request.

    Returns:
        What to give to the agent; `calls` has the `arguments`, `answer` and `raised` of each.

    Example:
        >>> from pi_agent_kernel import Agent
        >>> from pi_agent_kernel.testing import scripted_model
        >>> hook = watch_hook(lambda state: state.total_turns == 1)
        >>> agent = Agent(stream_fn=scripted_model("Hello."), should_stop=hook)
        >>> agent.prompt_sync("Hi.")
        >>> [call.answer for call in hook.calls]
        [False]
    """
    return HookWatch(hook)


class Answerer:
    """Be the person who approves tool calls, as a `before_tool_call`; `answer_calls` makes one."""

    def __init__(self, answers: Mapping[str, bool | str]) -> None:
        self._answers = dict(answers)
        #: The calls it was asked about, with their validated arguments.
        self.asked: list[tuple[str, dict[str, Any]]] = []
        #: Tools it had no answer for.
        self.unexpected: list[str] = []

    def __call__(
        self, context: BeforeToolCallContext, _signal: object, /
    ) -> BeforeToolCallResult | None:
        """Answer as scripted.

        Raises:
            AssertionError: There is no answer for this tool; the call fails.
        """
        name = context.tool_call.name
        self.asked.append((name, dict(context.args)))
        answer = self._answers.get(name)
        if answer is None:
            self.unexpected.append(name)
            raise AssertionError(f"there is no answer for a call of {name!r}")
        if answer is True:
            return None
        return BeforeToolCallResult(block=True, reason=answer or None)

    def check(self) -> None:
        """Raise if it was asked about a tool it has no answer for.

        Raises:
            AssertionError: The tools.

        Example:
            >>> answer_calls().check()
        """
        __tracebackhide__ = True
        if self.unexpected:
            raise AssertionError(
                f"Asked about {', '.join(self.unexpected)}; answers are there for: "
                f"{', '.join(self._answers) or 'none'}."
            )


def answer_calls(**answers: bool | str) -> Answerer:
    """Make a `before_tool_call` that answers for the person who would be asked.

    Args:
        **answers: By tool: True lets it run, False blocks it, a text blocks it with this reason.

    Returns:
        The hook, with `asked` and `check()`. A tool without an answer fails its call.

    Example:
        >>> from pi_agent_kernel import tool
        >>> from pi_agent_kernel.testing import call, try_call
        >>> @tool
        ... def delete(path: str) -> str:
        ...     return f"{path} is gone"
        >>> answers = answer_calls(delete="Not the original.")
        >>> try_call(
        ...     call("delete", path="a.csv"), [delete], before_tool_call=answers
        ... ).message().text
        'Not the original.'
        >>> answers.asked
        [('delete', {'path': 'a.csv'})]
    """
    return Answerer(answers)
