"""An agent in a notebook: the kernel's `Agent`, shown in the cell that prompts it.

Every way to run it (`%%agent`, `await agent.prompt(…)`, `agent.prompt_sync(…)`) shows the run in
the running cell, keeps plain tool functions on the cell's thread, and ends the cell with one line
when the run was aborted or failed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.agent import Agent
from pi_agent_kernel.backend import current_backend
from pi_agent_kernel.errors import AgentBusyError, ContextOverflowError
from pi_agent_kernel.events import ALL_EVENTS, AgentStart, ToolExecutionEnd
from pi_agent_kernel.hooks import AfterToolCallResult
from pi_agent_kernel.messages import AgentMessage, SystemMessage, TextContent, UserMessage, text_of
from pi_agent_kernel.models.catalog import choose_model
from pi_agent_kernel.models.retry_policy import RetryPolicy

from pi_notebook import frontend
from pi_notebook.cassettes import cassettes
from pi_notebook.errors import AgentAborted, AgentFailed
from pi_notebook.render.untrusted import bound
from pi_notebook.runtime import ForegroundRun
from pi_notebook.snapshot import RunReducer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pi_agent_kernel.abort import AbortSignal
    from pi_agent_kernel.agent import PromptInput
    from pi_agent_kernel.events import AgentEvent
    from pi_agent_kernel.hooks import AfterToolCallContext
    from pi_agent_kernel.messages import ImageContent
    from pi_agent_kernel.models.catalog import ChosenModel
    from pi_agent_kernel.request import Model, StreamFn, StreamOptions, TranscriptContext
    from pi_agent_kernel.tools import AgentTool

    from pi_notebook.cells import CellRequest
    from pi_notebook.snapshot import RunSnapshot

__all__ = ["NotebookAgent"]

#: The section of the system prompt that `%%agent --system` writes.
SYSTEM_SECTION = "notebook"

#: How a diff in an error text begins.
_DIFF = "\n--- "

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
            after_tool_call=self._explain_foreign_loop,
        )
        self.name = name
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
        await self._await_shown(lambda: work(input, images), prompts=_user_messages(input))

    async def continue_(self) -> None:
        """Go on without new input; otherwise as `prompt`."""
        await self._await_shown(super().continue_, prompts=0)

    def prompt_sync(self, input: PromptInput, images: Sequence[ImageContent] | None = None) -> None:
        """Do as `prompt` and wait: in a cell, in a script, in a thread."""
        work = super().prompt
        self._wait_shown(lambda: work(input, images), prompts=_user_messages(input))

    async def run_cell(self, request: CellRequest) -> None:
        """Run an `%%agent` cell whose task is the cell's own; otherwise as `prompt`."""
        work = super().prompt
        with self._set_for_cell(request) as messages:
            await self._await_shown(lambda: work(messages), request=request)

    def run_cell_sync(self, request: CellRequest) -> None:
        """Run an `%%agent` cell from code that cannot await; otherwise as `prompt`."""
        work = super().prompt
        with self._set_for_cell(request) as messages:
            self._wait_shown(lambda: work(messages), request=request)

    # --------------------------------------------------------------------------------- verbs

    def set_model(self, spec: str) -> ChosenModel:
        """Use another model from the next run on.

        Args:
            spec: `provider:name`, or `demo`.

        Raises:
            ModelError: There is no such model, or it cannot be used.
        """
        self._use(choose_model(spec))
        self._named = True
        return self._chosen

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
    ) -> None:
        with self._begin_shown(request, prompts) as (run, shown):
            await run.run_here(lambda: shown.follow(self, work), owns_task=request is not None)
        shown.raise_for_status()

    def _wait_shown(
        self,
        work: Callable[[], Awaitable[None]],
        *,
        prompts: int = 1,
        request: CellRequest | None = None,
    ) -> None:
        with self._begin_shown(request, prompts) as (run, shown):
            run.run_apart(lambda: shown.follow(self, work))
        shown.raise_for_status()

    @contextlib.contextmanager
    def _begin_shown(
        self, request: CellRequest | None, prompts: int
    ) -> Iterator[tuple[ForegroundRun, _ShownRun]]:
        if self.state.is_streaming or self._foreground is not None:
            raise AgentBusyError("prompt")
        with self._through_cassette(request):
            run = self._foreground = ForegroundRun(self.abort)
            quiet = request is not None and request.quiet
            try:
                yield run, _ShownRun(self, run, prompts=prompts, quiet=quiet)
            finally:
                self._foreground = None

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

    @contextlib.contextmanager
    def _set_for_cell(self, request: CellRequest) -> Iterator[list[AgentMessage]]:
        """Set what holds for one cell, and give the messages that prompt it."""
        if self.state.is_streaming or self._foreground is not None:
            raise AgentBusyError("prompt")
        messages: list[AgentMessage] = [
            UserMessage(content=[TextContent(text=request.prompt)]),
        ]
        if request.system is not None:
            section = {SYSTEM_SECTION: request.system or None}
            messages.insert(0, SystemMessage(sections=section))
        chosen = None if request.model is None else choose_model(request.model)
        tools = None if request.tools is None else self._named_tools(request.tools)
        chosen_before, tools_before = self._chosen, list(self.state.tools)
        if chosen is not None:
            self._use(chosen)
        if tools is not None:
            self.state.tools = tools
        try:
            yield messages
        finally:
            if chosen is not None and self._chosen is chosen:
                self._use(chosen_before)
            if tools is not None:
                self.state.tools = tools_before

    def _named_tools(self, names: Sequence[str]) -> list[AgentTool]:
        known = {tool.name: tool for tool in self.state.tools}
        missing = [name for name in names if name not in known]
        if missing:
            have = ", ".join(known) or "none; put @pi.tool on a function"
            raise ValueError(f"no tool is named {missing[0]!r} (there is: {have})")
        return [known[name] for name in dict.fromkeys(names)]

    def _use(self, chosen: ChosenModel) -> None:
        self._chosen = chosen
        self.state.model = chosen.model

    # ------------------------------------------------------------------------ for the kernel

    def _ask_chosen(
        self, model: Model, context: TranscriptContext, options: StreamOptions, /
    ) -> Any:
        return (self._taped or self._chosen.stream_fn)(model, context, options)

    def _on_cell_thread(self, call: Callable[[], Any]) -> Any:
        return call() if self._foreground is None else self._foreground.run_sync(call)

    def _explain_foreign_loop(
        self, context: AfterToolCallContext, signal: AbortSignal | None
    ) -> AfterToolCallResult | None:
        """Say what to do when a tool needs the kernel's loop and the run is not on it."""
        del signal
        if self._foreground is None or not self._foreground.apart or not context.is_error:
            return None
        text = text_of(context.result.content or ())
        if not any(sign in text for sign in _FOREIGN_LOOP):
            return None
        return AfterToolCallResult(content=[TextContent(text=f"{text}\n{_FOREIGN_LOOP_HINT}")])


class _ShownRun:
    """Follow one run: its events become pictures, the pictures an output."""

    def __init__(
        self, agent: NotebookAgent, run: ForegroundRun, *, prompts: int, quiet: bool
    ) -> None:
        self._reducer = RunReducer(agent.name, agent.state.model.id, prompts=prompts)
        self._run = run
        self._post = run.post
        # Both are asked for here: on a thread of its own the run would find no cell.
        self._view = frontend.view(
            run.post, agent=agent.name, controls=_Controls(agent), quiet=quiet
        )
        self._cell_id = frontend.cell_id()

    async def follow(self, agent: NotebookAgent, work: Callable[[], Awaitable[None]]) -> None:
        """Await the work and show what it does."""
        began, started = time.monotonic(), datetime.now(UTC)
        reducer, view = self._reducer, self._view

        def listen(event: AgentEvent, _signal: AbortSignal) -> None:
            if isinstance(event, AgentStart) and self._run.interrupted:
                agent.abort()  # an interrupt before this found no run that it could abort
            reducer.apply(event)
            view.changed()
            if isinstance(event, ToolExecutionEnd):
                self._post(frontend.flush_figures)

        view.open(reducer.snapshot, current_backend().later)
        unsubscribe = agent.subscribe(listen, events=ALL_EVENTS)
        try:
            await work()
        except Exception as error:
            reducer.fail(f"{type(error).__name__}: {error}")
            raise
        finally:
            unsubscribe()
            if reducer.status == "running":
                reducer.abort()
            run = reducer.snapshot()
            view.close(run, _metadata(run, started, time.monotonic() - began, self._cell_id))

    def raise_for_status(self) -> None:
        """End the cell with one line unless the run ended well."""
        if self._reducer.status == "aborted":
            raise AgentAborted
        if self._reducer.status == "error":
            reason = bound(self._reducer.error or "no reason given")
            cause = ContextOverflowError(reason) if self._reducer.overflowed else None
            # A diff, as of a request that was not recorded, is unreadable in one line.
            line, begins, diff = reason.partition(_DIFF)
            details = f"{begins.lstrip()}{diff}"
            raise AgentFailed(f"agent run failed: {line}", details=details) from cause


class _Controls:
    """Do what the buttons of a run ask for; on any thread."""

    def __init__(self, agent: NotebookAgent) -> None:
        self._agent = agent

    def stop(self) -> None:
        self._agent.abort()

    def steer(self, text: str) -> None:
        self._agent.steer(text)

    def follow(self, text: str) -> None:
        self._agent.follow_up(text)

    def asks(self) -> list[dict[str, Any]]:
        return []

    def approve(self, number: int, args: str | None, *, always: bool) -> None:
        del number, args, always

    def deny(self, number: int, reason: str) -> None:
        del number, reason


def _user_messages(input: PromptInput) -> int:
    """Count the user messages of a prompt; what is no prompt is refused later."""
    if isinstance(input, str):
        return 1
    messages = input if isinstance(input, Sequence) else [input]
    return sum(1 for message in messages if getattr(message, "role", None) == "user")


def _metadata(
    run: RunSnapshot, started: datetime, seconds: float, cell_id: str | None
) -> dict[str, Any]:
    """Collect what differs from one execution to the next; it stands beside the output."""
    about: dict[str, Any] = {
        "startedAt": started.isoformat(timespec="milliseconds"),
        "durationMs": round(seconds * 1000),
        "toolDurationsMs": [tool.duration_ms for tool in run.tool_runs],
    }
    if cell_id is not None:
        about["cell"] = cell_id
    return {"pi": about}
