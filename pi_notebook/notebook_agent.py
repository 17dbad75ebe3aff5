"""An agent in a notebook: the kernel's `Agent`, shown in the cell that prompts it.

Every way to run it (`%%agent`, `await agent.prompt(…)`, `agent.prompt_sync(…)`) shows the run in
the running cell, keeps plain tool functions on the cell's thread, and ends the cell with one line
when the run was aborted or failed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from pi_agent_kernel.agent import Agent
from pi_agent_kernel.awaiting import is_awaitable
from pi_agent_kernel.errors import AgentBusyError
from pi_agent_kernel.hooks import AfterToolCallResult, BeforeToolCallResult, TurnDecision
from pi_agent_kernel.messages import AssistantMessage, TextContent, ToolCall, text_of
from pi_agent_kernel.models.catalog import choose_model
from pi_agent_kernel.models.retry_policy import RetryPolicy
from pi_agent_kernel.notes import name_of

from pi_notebook import frontend
from pi_notebook.approvals import APPROVE_VARIABLE, Approvals, PendingCall
from pi_notebook.branches import Branches
from pi_notebook.cassettes import cassettes
from pi_notebook.cell_hooks import hooks
from pi_notebook.cell_run import set_for_cell
from pi_notebook.errors import AgentUnavailable
from pi_notebook.results import Results
from pi_notebook.runtime import ForegroundRun
from pi_notebook.shown_run import ShownRun, user_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from pi_agent_kernel.abort import AbortSignal
    from pi_agent_kernel.agent import PromptInput
    from pi_agent_kernel.hooks import (
        AfterToolCall,
        AfterToolCallContext,
        BeforeToolCall,
        BeforeToolCallContext,
        FinishTurn,
        TurnContext,
    )
    from pi_agent_kernel.messages import ImageContent
    from pi_agent_kernel.models.catalog import ChosenModel
    from pi_agent_kernel.request import Model, StreamFn, StreamOptions, TranscriptContext
    from pi_agent_kernel.tools import AgentTool

    from pi_notebook.branches import SetAside
    from pi_notebook.budget import Spending
    from pi_notebook.cell_run import CellPlan
    from pi_notebook.cells import CellRequest
    from pi_notebook.snapshot import RunSnapshot

__all__ = ["NotebookAgent"]

#: What asyncio says when a tool uses an object of another loop.
_FOREIGN_LOOP = ("attached to a different loop", "bound to a different event loop")
_FOREIGN_LOOP_HINT = (
    "This tool uses an object of the notebook's own event loop, and the agent was started from "
    "code that cannot await. Run it as a plain %%agent cell, or by `await agent.prompt(...)`."
)


class NotebookAgent(Agent):
    """Be an agent whose runs show in the notebook.

    Args:
        name: How `%%agent --agent` and the outputs call it.
        chosen: Its model.
        tools: Its tools.
        system_prompt: Its system prompt.
    """

    def __init__(
        self,
        name: str,
        chosen: ChosenModel,
        *,
        tools: Sequence[AgentTool] = (),
        system_prompt: str = "",
    ) -> None:
        super().__init__(
            stream_fn=self._ask_chosen,
            model=chosen.model,
            tools=tools,
            system_prompt=system_prompt,
            retry=RetryPolicy(),
            run_sync=self._on_cell_thread,
        )
        self.name = name
        #: Every branch of the conversation; the transcript is the active one.
        self.branches = Branches()
        #: Which tool calls run by themselves, and those that wait for a word.
        self.approvals = Approvals(self._announce_call)
        self.approvals.waiting = lambda call: self.log.notes.waiting(
            "approval", call.name, "%agent approve, or deny", call.call_id
        )
        #: What the active cell has spent, if it has a budget.
        self.spending: Spending | None = None
        try:
            rules = os.environ.get(APPROVE_VARIABLE, "")
            self.approvals.policy = self.approvals.policy.with_rules(rules)
        except ValueError as error:
            raise AgentUnavailable(f"{APPROVE_VARIABLE}: {error}") from None
        #: What its tools returned, as it is.
        self.results = Results("pi.agent" if name == "main" else f"pi.agents[{name!r}]")
        #: The value of the last answer that was asked for by its type.
        self.output: Any = None
        #: What each cell's last run was made from, its picture and its answer: for `--once`.
        self.kept_runs: dict[str, tuple[str, RunSnapshot, str]] = {}
        self._shown: ShownRun | None = None
        self._chosen = chosen
        self._named = False  # whether somebody chose the model
        self._taped: StreamFn | None = None  # while it runs recorded or replayed
        self._foreground: ForegroundRun | None = None

    def __repr__(self) -> str:
        state = "running" if self.state.is_streaming else "idle"
        counts = f"{len(self.state.messages)} messages, {len(self.state.tools)} tools"
        return f"<agent {self.name}: {state}, model {self.state.model.id}, {counts}>"

    # ------------------------------------------------------------------------------- running

    async def prompt(
        self, input: PromptInput, images: Sequence[ImageContent] | None = None
    ) -> None:
        """Run the agent on new input and show it in the running cell.

        Raises:
            AgentBusyError: A run is active.
            AgentAborted: The run was aborted; what had arrived is shown and kept.
            AgentFailed: The run ended in an error; its cause is a `ContextOverflowError` if the
                conversation no longer fits the model.

        Cancellation: As in `Agent.prompt`.
        """
        if not isinstance(input, str) and isinstance(input, Sequence) and not input:
            await self.continue_()
            return
        work = super().prompt
        await self._await_shown(lambda: work(input, images), prompts=user_messages(input))

    async def continue_(self) -> None:
        """Go on without new input; otherwise as `prompt`."""
        await self._await_shown(super().continue_, prompts=0)

    def prompt_sync(self, input: PromptInput, images: Sequence[ImageContent] | None = None) -> None:
        """Do as `prompt` and wait: in a cell, in a script, in a thread."""
        work = super().prompt
        self._wait_shown(lambda: work(input, images), prompts=user_messages(input))

    def continue_sync(self) -> None:
        """Go on where a run was stopped, failed or spent its budget, and wait.

        What a model had answered when it was stopped is set aside: it cannot be gone on from.

        Raises:
            NothingToContinueError: The last answer is complete and nothing is queued.
        """
        self._check_idle()
        messages = list(self.state.messages)
        self.branches.follow(messages)
        while messages and _is_unfinished(messages[-1]):
            messages.pop()
        if len(messages) < len(self.state.messages):
            self.state.messages = messages
            self.branches.follow(messages)
        self._wait_shown(super().continue_, prompts=0)

    async def run_cell(self, request: CellRequest) -> None:
        """Run an `%%agent` cell whose task is the cell's own; otherwise as `prompt`."""
        self._check_idle(request.prompt)
        work = super().prompt
        with set_for_cell(self, request) as plan:
            if plan.kept is not None:
                self._show_again(plan.kept, request)
                return
            go = self._work_of(plan, work)
            run = await self._await_shown(go, request=request, remarks=plan.remarks)
            self._keep(plan, run)

    def run_cell_sync(self, request: CellRequest) -> None:
        """Run an `%%agent` cell from code that cannot await; otherwise as `prompt`."""
        self._check_idle(request.prompt)
        work = super().prompt
        with set_for_cell(self, request) as plan:
            if plan.kept is not None:
                self._show_again(plan.kept, request)
                return
            go = self._work_of(plan, work)
            self._keep(plan, self._wait_shown(go, request=request, remarks=plan.remarks))

    # --------------------------------------------------------------------------------- verbs

    def set_model(self, spec: str) -> ChosenModel:
        """Use another model from the next run on.

        Args:
            spec: `provider:name`, or `demo`.

        Raises:
            ModelError: There is no such model, or it cannot be used.
        """
        self.use_model(choose_model(spec))
        self._named = True
        return self._chosen

    def use_model(self, chosen: ChosenModel) -> None:
        """Use a model that was chosen before."""
        self._chosen = chosen
        self.state.model = chosen.model

    @property
    def answer(self) -> str:
        """The text of the last complete answer; empty if there is none."""
        for message in reversed(self.state.messages):
            if isinstance(message, AssistantMessage) and not _is_unfinished(message):
                return message.text
        return ""

    def undo(self, turns: int = 1) -> SetAside:
        """Go back by some turns; they are set aside, and `switch` brings them back.

        Raises:
            AgentBusyError: A run is active.
            ValueError: There are not so many turns.
        """
        self._check_idle()
        self.branches.follow(self.state.messages)
        aside = self.branches.undo(turns)
        self.state.messages = self.branches.messages()
        return aside

    def fork(self, name: str) -> None:
        """Begin a branch where the conversation is now, and go on in it.

        Raises:
            AgentBusyError: A run is active.
            ValueError: The name is taken, or is none.
        """
        self._check_idle()
        self.branches.follow(self.state.messages)
        self.branches.fork(name)

    def switch(self, branch: str) -> None:
        """Go on in another branch.

        Raises:
            AgentBusyError: A run is active.
            ValueError: There is no such branch.
        """
        self._check_idle()
        self.branches.follow(self.state.messages)
        self.state.messages = self.branches.switch(branch)

    def export(self, file: str | os.PathLike[str]) -> Path:
        """Write the conversation to a `.md`, `.html` or `.ipynb` file.

        Raises:
            ValueError: The file's ending is none of these.
            OSError: It cannot be written.
        """
        from pi_notebook.export import export_conversation

        return export_conversation(self.state.messages, os.fspath(file), agent=self.name)

    @property
    def chosen_model(self) -> ChosenModel:
        """The model and why it was chosen."""
        return self._chosen

    def add_tool(self, tool: AgentTool) -> None:
        """Offer a tool; it takes the place of one with its name."""
        tools = list(self.state.tools)
        names = [known.name for known in tools]
        if tool.name in names:
            tools[names.index(tool.name)] = tool
        else:
            tools.append(tool)
        self.state.tools = tools

    # ------------------------------------------------------------------------ one run, shown

    async def _await_shown(
        self,
        work: Callable[[], Awaitable[None]],
        *,
        prompts: int = 1,
        request: CellRequest | None = None,
        remarks: Sequence[str] = (),
    ) -> RunSnapshot:
        with self._begin_shown(request, prompts, remarks) as (run, shown):
            await run.run_here(lambda: shown.follow(self, work), owns_task=request is not None)
        shown.raise_for_status()
        return shown.snapshot()

    def _wait_shown(
        self,
        work: Callable[[], Awaitable[None]],
        *,
        prompts: int = 1,
        request: CellRequest | None = None,
        remarks: Sequence[str] = (),
    ) -> RunSnapshot:
        with self._begin_shown(request, prompts, remarks) as (run, shown):
            run.run_apart(lambda: shown.follow(self, work))
        shown.raise_for_status()
        return shown.snapshot()

    def _keep(self, plan: CellPlan, run: RunSnapshot) -> None:
        cell = frontend.cell_id()
        if cell is not None and plan.digest:
            self.kept_runs[cell] = (plan.digest, run, self.answer)

    def _work_of(
        self, plan: CellPlan, work: Callable[[Any], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        if plan.typed is None:
            return partial(work, plan.messages)
        return partial(plan.typed.ask, work, plan.messages, self._finished_answer)

    def _finished_answer(self) -> str | None:
        """Return the answer that the run ended with; None if it did not come to one."""
        last = self.state.messages[-1] if self.state.messages else None
        is_complete = isinstance(last, AssistantMessage) and not _is_unfinished(last)
        return self.answer if is_complete else None

    def _show_again(self, run: RunSnapshot, request: CellRequest) -> None:
        from pi_notebook.render.bundle import final_bundle

        if not request.quiet:
            frontend.publish(final_bundle(run))

    @contextlib.contextmanager
    def _begin_shown(
        self, request: CellRequest | None, prompts: int, remarks: Sequence[str]
    ) -> Iterator[tuple[ForegroundRun, ShownRun]]:
        self._check_idle()
        self.approvals.unattended = frontend.is_headless() or frontend.shell() is None
        with self._through_cassette(request):
            run = self._foreground = ForegroundRun(partial(self._abort, "Interrupt"))
            quiet = request is not None and request.quiet
            try:
                self._shown = ShownRun(self, run, prompts=prompts, quiet=quiet, remarks=remarks)
                yield run, self._shown
            finally:
                self._foreground = self._shown = None

    @contextlib.contextmanager
    def _through_cassette(self, request: CellRequest | None) -> Iterator[None]:
        """Record or replay one run, as the cell or the notebook says."""
        if request is not None and request.record is not None:
            use = cassettes.recording(request.record)
        elif request is not None and request.replay is not None:
            use = cassettes.replaying(request.replay)
        else:
            use = cassettes.active
        if use is None:
            yield
            return
        explicit = self._named or (request is not None and request.model is not None)
        model_before = self.state.model
        model, self._taped = use.use_for(model_before, self._chosen.stream_fn, explicit=explicit)
        if model is not model_before:
            self.state.model = model
        try:
            yield
        finally:
            self._taped = None
            if self.state.model is model:
                self.state.model = model_before

    def _check_idle(self, prompt: str | None = None) -> None:
        if self.state.is_streaming or self._foreground is not None:
            if prompt is not None:
                self._refuse("prompt", prompt)
            raise AgentBusyError("prompt")

    # ------------------------------------------------------------------------ for the kernel

    def _ask_chosen(
        self, model: Model, context: TranscriptContext, options: StreamOptions, /
    ) -> Any:
        return (self._taped or self._chosen.stream_fn)(model, context, options)

    # The user's own hooks stand beside those of the notebook, and cannot take them away.

    @property
    def before_tool_call(self) -> BeforeToolCall | None:
        """The hook that is asked before each tool call; approvals come after it."""
        return self._before_tool_call

    @before_tool_call.setter
    def before_tool_call(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, hook: BeforeToolCall | None
    ) -> None:
        self._own_before_tool_call = hook

    @property
    def after_tool_call(self) -> AfterToolCall | None:
        """The hook that is asked after each tool call; those of cells come after it."""
        return self._after_tool_call

    @after_tool_call.setter
    def after_tool_call(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, hook: AfterToolCall | None
    ) -> None:
        self._own_after_tool_call = hook

    @property
    def finish_turn(self) -> FinishTurn | None:
        """The hook that is asked after each turn; a cell's budget comes after it."""
        return self._finish_turn

    @finish_turn.setter
    def finish_turn(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, hook: FinishTurn | None
    ) -> None:
        self._own_finish_turn = hook

    async def _before_tool_call(
        self, context: BeforeToolCallContext, signal: AbortSignal | None
    ) -> BeforeToolCallResult | ToolCall | None:
        own = self._own_before_tool_call
        answer = await _asked(own, context, signal)
        if isinstance(answer, BeforeToolCallResult) and answer.origin is None:
            answer = msgspec.structs.replace(answer, origin=name_of(own))
        for ask in (hooks.before_tool_call, self.approvals.before_tool_call):
            if getattr(answer, "block", False):
                return answer
            args = getattr(answer, "arguments", None)
            asked = context if args is None else msgspec.structs.replace(context, args=dict(args))
            answer = await ask(asked, signal) or answer
        return answer

    async def _after_tool_call(
        self, context: AfterToolCallContext, signal: AbortSignal | None
    ) -> AfterToolCallResult | None:
        answer = await _asked(self._own_after_tool_call, context, signal)
        answer = await hooks.after_tool_call(context, signal) or answer
        return answer or self._explain_foreign_loop(context)

    async def _finish_turn(
        self, turn: TurnContext, signal: AbortSignal | None
    ) -> TurnDecision | None:
        own = self._own_finish_turn
        answer = await _asked(own, turn, signal)
        if isinstance(answer, TurnDecision) and answer.origin is None:
            answer = msgspec.structs.replace(answer, origin=name_of(own))
        spent = None if self.spending is None else self.spending.finish_turn(turn, signal)
        return spent or answer

    async def _announce_call(self, call: PendingCall) -> None:
        if self._shown is not None:
            await self._shown.ask(call)

    def _on_cell_thread(self, call: Callable[[], Any]) -> Any:
        return call() if self._foreground is None else self._foreground.run_sync(call)

    def _explain_foreign_loop(self, context: AfterToolCallContext) -> AfterToolCallResult | None:
        """Say what to do when a tool needs the kernel's loop and the run is not on it."""
        if self._foreground is None or not self._foreground.apart or not context.is_error:
            return None
        text = text_of(context.result.content or ())
        if not any(sign in text for sign in _FOREIGN_LOOP):
            return None
        return AfterToolCallResult(content=[TextContent(text=f"{text}\n{_FOREIGN_LOOP_HINT}")])


def _is_unfinished(message: object) -> bool:
    return isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted")


async def _asked(hook: Callable[..., Any] | None, *given: object) -> Any:
    """Return what a hook of the user's own answers, plain or async; None if there is none."""
    answer = None if hook is None else hook(*given)
    return await answer if is_awaitable(answer) else answer
