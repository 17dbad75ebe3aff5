"""One run of an agent as the cell shows it: events become pictures, pictures an output."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.abort import run_soon
from pi_agent_kernel.backend import current_backend
from pi_agent_kernel.errors import ContextOverflowError
from pi_agent_kernel.events import ALL_EVENTS, AgentStart
from pi_agent_kernel.tool_context import around_tools

from pi_notebook import frontend
from pi_notebook.cell_hooks import hooks
from pi_notebook.errors import AgentAborted, AgentFailed
from pi_notebook.render.untrusted import bound, json_text, signature
from pi_notebook.shown_text import without_secrets_json
from pi_notebook.snapshot import RunReducer
from pi_notebook.tool_cards import ToolCards
from pi_notebook.tool_output import capturing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pi_agent_kernel.abort import AbortSignal
    from pi_agent_kernel.agent import PromptInput
    from pi_agent_kernel.events import AgentEvent

    from pi_notebook.approvals import PendingCall
    from pi_notebook.notebook_agent import NotebookAgent
    from pi_notebook.runtime import ForegroundRun
    from pi_notebook.snapshot import RunSnapshot

__all__ = ["ShownRun", "user_messages"]

_DIFF = "\n--- "
#: How often what a plain tool prints is shown at once: so often, and again so often a second.
MOST_AT_ONCE = 10
AT_ONCE_PER_SECOND = 4


class ShownRun:
    """Follow one run: its events become pictures, the pictures an output."""

    def __init__(
        self,
        agent: NotebookAgent,
        run: ForegroundRun,
        *,
        prompts: int,
        quiet: bool,
        remarks: Sequence[str] = (),
    ) -> None:
        self._reducer = RunReducer(agent.name, agent.state.model.id, prompts=prompts)
        for remark in remarks:
            self._reducer.remark(remark)
        self._run = run
        self._post = run.post
        # Both are asked for here: on a thread of its own the run would find no cell.
        self._view = frontend.view(
            run.post, agent=agent.name, controls=_Controls(agent), quiet=quiet
        )
        self._cell_id = frontend.cell_id()
        #: Elsewhere what a tool prints goes where other prints go.
        self._has_cards = frontend.is_kernel()

    async def follow(self, agent: NotebookAgent, work: Callable[[], Awaitable[None]]) -> None:
        """Await the work and show what it does."""
        began, started = time.monotonic(), datetime.now(UTC)
        reducer, view = self._reducer, self._view
        cards = ToolCards(
            reducer.hold,
            agent.results,
            changed=self._changing(),
            show=partial(view.refresh, asked=True),
            flush=frontend.flush_figures,
            show_live=lambda value: self._post(partial(frontend.show_widget, value)),
        )

        def listen(event: AgentEvent, _signal: AbortSignal) -> None:
            if isinstance(event, AgentStart) and self._run.interrupted:
                agent.abort()  # an interrupt before this found no run that it could abort
            reducer.apply(event)
            view.changed()

        view.open(reducer.snapshot, current_backend().later)
        unsubscribe = [agent.subscribe(listen, events=ALL_EVENTS)]
        if hooks.listens:
            unsubscribe.append(agent.subscribe(hooks.hear, events=ALL_EVENTS))
        try:
            with self._cards_for(cards):
                await work()
        except Exception as error:
            reducer.fail(f"{type(error).__name__}: {error}")
            raise
        finally:
            for stop in unsubscribe:
                stop()
            reducer.let_go()
            if reducer.status == "running":
                reducer.abort()
            if agent.spending is not None and agent.spending.reason:
                reducer.remark(f"stopped: {agent.spending.reason}; %agent continue goes on")
            if reducer.status != "ok" and agent.has_queued_messages():
                reducer.remark(
                    "something is still queued: %agent queue shows it, queue clear drops it"
                )
            run = reducer.snapshot()
            view.close(run, _metadata(run, started, time.monotonic() - began, self._cell_id))

    def _changing(self) -> Callable[[bool], None]:
        """Return what shows the run soon when a card has changed; on any thread, many times."""
        loop_thread, told = threading.get_ident(), threading.Event()
        at_once = Allowance(MOST_AT_ONCE, AT_ONCE_PER_SECOND)

        def show() -> None:
            told.clear()
            self._view.changed()

        wake = run_soon(show)

        def changed(thread_is_kept: bool) -> None:  # noqa: FBT001
            here = threading.get_ident()
            serves = here == loop_thread or self._run.serves(here)
            if thread_is_kept and serves:
                # Nothing is sent later from here, so it is sent now or with what comes next.
                if at_once.take():
                    self._view.refresh()
            elif here == loop_thread:
                self._view.changed()
            elif not told.is_set():
                told.set()
                wake()

        return changed

    @contextlib.contextmanager
    def _cards_for(self, cards: ToolCards) -> Iterator[None]:
        """Have what tools print and show go to their cards, where there are any."""
        with contextlib.ExitStack() as stack:
            if self._has_cards:
                self._post(frontend.flush_figures)  # those of the cell itself
                stack.enter_context(capturing(frontend.shell()))
            token = around_tools.set(cards.around if self._has_cards else cards.keep_only)
            try:
                yield
            finally:
                cards.close()
                around_tools.reset(token)

    def snapshot(self) -> RunSnapshot:
        """Take the picture of the run as it is now."""
        return self._reducer.snapshot()

    async def ask(self, call: PendingCall) -> None:
        """Show that a call waits, and ask in the cell where the page has no buttons."""
        self._reducer.ask(call.call_id, call.number)
        self._view.changed()
        if not await self._view.can_ask() and not call.is_answered:
            question = _question(call)
            try:
                answer = self._run.run_sync(lambda: input(question))
                _take(call, answer if isinstance(answer, str) else await answer)
            except (EOFError, RuntimeError):
                return  # nobody is at this cell any more: `%agent approve` answers

    def answered(self, call: PendingCall) -> None:
        """Show that a call no longer waits."""
        self._reducer.answered(call.call_id)
        self._view.changed()

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
            line = f"agent run failed: {line} (%agent undo takes the prompt back)"
            raise AgentFailed(line, details=details) from cause


class Allowance:
    """Allow something often at first, then at a rate.

    Args:
        most: How often at once.
        per_second: How much comes back in a second.
        clock: Seconds that only go forward.
    """

    def __init__(
        self, most: float, per_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._left = most, most
        self._per_second = per_second
        self._clock = clock
        self._at = clock()

    def take(self) -> bool:
        """Take one, if one is left."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


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
        return [
            {"number": number, "name": call.name, "args": json_text(_shown(call))}
            for number, call in self._agent.approvals.items()
            if not call.is_answered
        ]

    def approve(self, number: int, args: str | None, *, always: bool) -> None:
        call = self._agent.approvals.get(number)
        if call is None:
            return
        arguments = None
        if args is not None:
            try:
                arguments = json.loads(args)
            except ValueError:
                return  # the page says so and keeps the question
            if not isinstance(arguments, dict):
                return
            arguments = _with_secrets(arguments, _shown(call), call.args)
        call.approve(None if arguments == call.args else arguments, always=always)

    def deny(self, number: int, reason: str) -> None:
        call = self._agent.approvals.get(number)
        if call is not None:
            call.deny(reason)


def _question(call: PendingCall) -> str:
    shown = f"{call.name}({signature(_shown(call))})"
    return f"Let {shown} run? [y]es, [a]lways, or [n]o and why: "


def _shown(call: PendingCall) -> dict[str, Any]:
    return without_secrets_json(call.args)


def _with_secrets(edited: Any, shown: Any, real: Any) -> Any:
    """Put what was not shown back where an edit has left it alone."""
    if edited == shown:
        return real
    if isinstance(edited, dict) and isinstance(shown, dict) and len(shown) == len(real):
        places = dict(zip(shown, real, strict=True))
        return {
            places.get(name, name): _with_secrets(item, shown[name], real[places[name]])
            if name in places
            else item
            for name, item in edited.items()
        }
    return edited


def _take(call: PendingCall, answer: str) -> None:
    """Answer a call by what was typed."""
    word, _, rest = answer.strip().partition(" ")
    if word.lower() in ("y", "yes"):
        call.approve()
    elif word.lower() in ("a", "always"):
        call.approve(always=True)
    else:
        call.deny(rest if word.lower() in ("n", "no") else answer)


def user_messages(input: PromptInput) -> int:
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
