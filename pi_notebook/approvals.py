"""Which tool calls run by themselves, which wait for a person's word, and which never run.

A tool may declare effects; a policy gives each effect an answer: `allow`, `ask` or `deny`. The
strictest answer of a tool's effects holds. A function that declares nothing is allowed: offering
it is the consent. A call that has to wait is one `PendingCall`, answered once, from anywhere: a
question in the cell, `%agent approve`, Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio
from pi_agent_kernel.abort import run_soon
from pi_agent_kernel.hooks import BeforeToolCallResult
from pi_agent_kernel.tools import AgentTool

if TYPE_CHECKING:
    from pi_agent_kernel.abort import AbortSignal
    from pi_agent_kernel.hooks import BeforeToolCallContext

__all__ = ["APPROVE_VARIABLE", "Answer", "Approvals", "PendingCall", "Policy"]

APPROVE_VARIABLE = "PI_NOTEBOOK_APPROVE"

Answer = Literal["allow", "ask", "deny"]

#: From mild to strict.
_ANSWERS: tuple[Answer, ...] = ("allow", "ask", "deny")
#: By what a tool may declare; the first is the name for declaring nothing.
_DEFAULT: Mapping[str, Answer] = {
    "undeclared": "allow",
    "read": "allow",
    "write": "ask",
    "execute": "ask",
    "network": "ask",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """Hold the answers: one for each effect, and those that single tools have."""

    effects: Mapping[str, Answer] = field(default_factory=lambda: _DEFAULT)
    tools: Mapping[str, Answer] = field(default_factory=dict[str, Answer])

    def answer(self, tool: AgentTool) -> Answer:
        """Return what holds for a tool: its own answer, else the strictest of its effects."""
        if tool.name in self.tools:
            return self.tools[tool.name]
        answers: list[Answer] = [self.effects[effect] for effect in tool.effects or ("undeclared",)]
        return max(answers, key=_ANSWERS.index)

    def with_tool(self, name: str, answer: Answer) -> Policy:
        """Return this policy with the answer of one tool replaced."""
        return Policy(self.effects, {**self.tools, name: answer})

    def with_rules(self, text: str) -> Policy:
        """Return this policy with some answers replaced.

        Args:
            text: `allow`, `ask` or `deny` for everything, or rules such as
                `write=allow, network=deny, sql=ask`: an effect or the name of a tool, and its
                answer. `tool:read=deny` means a tool whose name is an effect's.

        Raises:
            ValueError: A rule is none; the message says which.
        """
        effects: dict[str, Answer] = dict(self.effects)
        tools: dict[str, Answer] = dict(self.tools)
        for rule in filter(None, (part.strip() for part in text.split(","))):
            name, equals, given = (part.strip() for part in rule.partition("="))
            if not equals:
                effects = dict.fromkeys(_DEFAULT, _answer(name, rule))
                tools = {}
            elif name in _DEFAULT:
                effects[name] = _answer(given, rule)
            else:
                tools[name.removeprefix("tool:")] = _answer(given, rule)
        return Policy(effects, tools)

    def __str__(self) -> str:
        rules = [f"{name}={answer}" for name, answer in {**self.effects, **self.tools}.items()]
        return ", ".join(rules)


def _answer(text: str, rule: str) -> Answer:
    if text not in _ANSWERS:
        raise ValueError(
            f"{rule!r} is no rule for approvals: use allow, ask or deny, or NAME=ANSWER with the "
            f"name of a tool or of an effect ({', '.join(_DEFAULT)})"
        )
    return cast("Answer", text)


class PendingCall:
    """Wait for a person's word on one tool call; the first answer counts.

    Every method may be called from any thread.
    """

    def __init__(
        self, number: int, tool: AgentTool, args: Mapping[str, Any], call_id: str = ""
    ) -> None:
        self.number = number
        self.call_id = call_id
        self.tool = tool
        self.args = dict(args)
        self._lock = threading.Lock()
        self._result: BeforeToolCallResult | None = None
        self._answered = False
        self._wake: Callable[[], None] | None = None
        #: Whether the answer holds for this tool from now on.
        self.always = False

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    @property
    def is_answered(self) -> bool:
        """Whether somebody has answered."""
        return self._answered

    def approve(self, arguments: Mapping[str, Any] | None = None, *, always: bool = False) -> bool:
        """Let it run.

        Args:
            arguments: Run it with these instead; they are validated again.
            always: Let this tool run without asking from now on.

        Returns:
            Whether this was the answer; False when there was one already.
        """
        result = None if arguments is None else BeforeToolCallResult(arguments=arguments)
        return self._settle(result, always=always)

    def deny(self, reason: str = "", *, always: bool = False) -> bool:
        """Keep it from running; the model reads the reason. Otherwise as `approve`."""
        said = reason.strip() or "no reason given"
        blocked = BeforeToolCallResult(
            block=True, reason=f"The user denied this call: {said}", origin="a person's denial"
        )
        return self._settle(blocked, always=always)

    async def wait(self) -> BeforeToolCallResult | None:
        """Wait for the answer.

        Cancellation: Raises; the call counts as not answered.
        """
        answered = anyio.Event()
        with self._lock:
            if self._answered:
                return self._result
            self._wake = run_soon(answered.set)
        await answered.wait()
        return self._result

    def _settle(self, result: BeforeToolCallResult | None, *, always: bool) -> bool:
        with self._lock:
            if self._answered:
                return False
            self._answered, self._result, self.always = True, result, always
            wake = self._wake
        if wake is not None:
            wake()
        return True

    def __repr__(self) -> str:
        state = "answered" if self._answered else "waiting"
        return f"<call {self.number}: {self.name}, {state}>"


class Approvals(Mapping[int, PendingCall]):
    """Ask for an agent: its policy, and the calls that wait, by number.

    Args:
        announce: Called, on the run's own loop, with each call that has to wait; plain or async.
            It may answer itself.
    """

    def __init__(self, announce: Callable[[PendingCall], Any] | None = None) -> None:
        self.policy = Policy()
        #: A policy that holds for one run.
        self.for_run: Policy | None = None
        #: Whether nobody can answer, so that what has to be asked is denied.
        self.unattended = False
        #: Makes the block within which a call waits for its answer.
        self.waiting: Callable[[PendingCall], AbstractContextManager[object]] = nullcontext
        self._announce = announce
        self._pending: dict[int, PendingCall] = {}
        self._count = 0

    def __getitem__(self, number: int) -> PendingCall:
        return self._pending[number]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._pending))

    def __len__(self) -> int:
        return len(self._pending)

    def __repr__(self) -> str:
        waiting = ", ".join(f"{number} {call.name}" for number, call in self._pending.items())
        return f"<approvals: {self.policy}; waiting: {waiting or 'none'}>"

    async def before_tool_call(
        self, context: BeforeToolCallContext, signal: AbortSignal | None
    ) -> BeforeToolCallResult | None:
        """Answer for one call: a `before_tool_call` hook."""
        del signal  # an abort cancels the wait
        name = context.tool_call.name
        tool = next((tool for tool in context.context.tools if tool.name == name), None)
        if tool is None:
            return None
        match (self.for_run or self.policy).answer(tool):
            case "allow":
                return None
            case "deny":
                return _blocked(tool, "is not allowed here")
            case _ if self.unattended:
                return _blocked(tool, "needs an approval, and nobody can give one here")
            case _:
                return await self._ask(tool, context.args, context.tool_call.id)

    async def _ask(
        self, tool: AgentTool, args: Mapping[str, Any], call_id: str
    ) -> BeforeToolCallResult | None:
        self._count += 1
        call = self._pending[self._count] = PendingCall(self._count, tool, args, call_id)
        try:
            with self.waiting(call):
                if self._announce is not None:
                    announced = self._announce(call)
                    if announced is not None:
                        await announced
                result = await call.wait()
        finally:
            del self._pending[call.number]
        if call.always:
            answer: Answer = "deny" if result is not None and result.block else "allow"
            self.policy = self.policy.with_tool(tool.name, answer)
            if self.for_run is not None:
                self.for_run = self.for_run.with_tool(tool.name, answer)
        return result


def _blocked(tool: AgentTool, why: str) -> BeforeToolCallResult:
    effects = " and ".join(sorted(tool.effects or ())) or "undeclared"
    return BeforeToolCallResult(
        block=True,
        reason=f"{tool.name} ({effects}) {why}. The user can allow it with "
        f"%%agent --approve {tool.name}=allow, or by {APPROVE_VARIABLE}={tool.name}=allow.",
        origin="the approval policy",
    )
