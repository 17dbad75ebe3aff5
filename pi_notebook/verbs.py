"""The verbs of `%agent`: words in, a call of a method out, a small table shown."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeVar, cast

from IPython.core.error import UsageError
from pi_agent_kernel.errors import AgentBusyError, PiAgentError
from pi_agent_kernel.messages import AssistantMessage, ThinkingLevel, text_of

from pi_notebook import frontend
from pi_notebook.budget import cost_is_known
from pi_notebook.cassettes import cassettes
from pi_notebook.cell_options import THINKING_LEVELS
from pi_notebook.errors import AgentUnavailable
from pi_notebook.explain_verb import show_explanation
from pi_notebook.inspect_verb import show_inspector
from pi_notebook.model_verbs import show_model, show_models
from pi_notebook.registry import agents
from pi_notebook.render.status import columns_bundle, table_bundle
from pi_notebook.render.untrusted import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from pi_agent_kernel.messages import AgentMessage

    from pi_notebook.approvals import PendingCall
    from pi_notebook.notebook_agent import NotebookAgent

__all__ = ["run_verb", "verb_names"]

T = TypeVar("T")


def run_verb(line: str) -> None:
    """Run one line of `%agent`.

    Raises:
        UsageError: There is no such verb, or it takes something else.
        AgentUnavailable: The agent is busy, or its model cannot be used.
    """
    verb, _, text = line.strip().partition(" ")
    known = _VERBS.get(verb or "status")
    if known is None:
        close = difflib.get_close_matches(verb, _VERBS, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"%agent: unknown verb {verb!r} ({', '.join(_VERBS)}){hint}; "
            "to send a prompt, write it below %%agent"
        )
    try:
        known(text.strip())
    except AgentBusyError:
        raise AgentUnavailable("the agent is busy: %agent abort stops it") from None
    except PiAgentError as error:
        raise AgentUnavailable(str(error)) from None


def _status(text: str) -> None:
    _no_text("status", text)
    agent = agents.current
    roles = [message.role for message in agent.state.messages]
    rows = [
        ("agent", agent.name),
        ("state", "running" if agent.state.is_streaming else "idle"),
        ("model", agent.state.model.id),
        ("tools", ", ".join(tool.name for tool in agent.state.tools) or "none"),
        ("messages", f"{len(roles)} {_counted(roles)}".strip()),
    ]
    waiting = ", ".join(f"{n} {call.name}" for n, call in agent.approvals.items())
    if waiting:
        rows.append(("waits for you", waiting))
    if len(agent.branches) > 1:
        rows.append(("branch", f"{agent.branches.active} of {len(agent.branches)}"))
    queued = agent.peek_queued_messages()
    if queued:
        rows.append(("queued next", first_line(_message_text(queued[0]), 80)))
    if agent.state.error_message:
        rows.append(("last error", agent.state.error_message))
    if cassettes.active is not None:
        rows.append(("cassette", repr(cassettes.active)))
    others = [name for name in agents if name != agent.name]
    if others:
        rows.append(("other agents", ", ".join(others)))
    frontend.publish(table_bundle(rows))


def _models(text: str) -> None:
    _no_text("models", text)
    try:
        current = agents.prepare()
    except PiAgentError:  # the list is what helps then
        current = None
    show_models(agents.gguf, current)


def _tools(text: str) -> None:
    _no_text("tools", text)
    tools = agents.current.state.tools
    rows = [(tool.name, tool.description.split("\n", 1)[0]) for tool in tools]
    frontend.publish(table_bundle(rows or [("tools", "none: put @pi.tool on a function")]))


def _reset(text: str) -> None:
    _no_text("reset", text)
    agent = agents.current
    agent.branches.follow(agent.state.messages)
    agent.reset()
    asides = len(agent.branches)
    agent.branches.follow(agent.state.messages)
    kept = (
        f"; the former one is {list(agent.branches)[-1].name}"
        if len(agent.branches) > asides
        else ""
    )
    _confirm("reset", f"the conversation begins anew; model and tools stay{kept}")


def _abort(text: str) -> None:
    _no_text("abort", text)
    agent = agents.current
    active = agent.state.is_streaming
    agent.abort()
    _confirm("abort", "the run is told to stop" if active else "no run is active")


def _steer(text: str) -> None:
    agent = agents.current
    agent.steer(_some_text("steer", text))
    _confirm("steer", _queued(agent, "reaches the model after the current turn"))


def _follow(text: str) -> None:
    agent = agents.current
    agent.follow_up(_some_text("follow", text))
    _confirm("follow", _queued(agent, "reaches the model when it would stop"))


def _queued(agent: NotebookAgent, when: str) -> str:
    if agent.state.is_streaming:
        return f"queued; it {when}"
    return "queued; no run is active, so it goes with the next prompt (%agent clear drops it)"


def _clear(text: str) -> None:
    _no_text("clear", text)
    agent = agents.current
    had = agent.has_queued_messages()
    agent.clear_all_queues()
    _confirm("clear", "the queued messages are dropped" if had else "nothing was queued")


def _queue(text: str) -> None:
    agent = agents.current
    if text == "clear":
        _clear("")
        return
    _no_text("queue", text)
    rows = [
        (f"{kind} {number}", first_line(_message_text(message), 120))
        for kind, messages in agent.queued_messages().items()
        for number, message in enumerate(messages, 1)
    ]
    frontend.publish(table_bundle(rows or [("queue", "nothing is queued")]))


def _new(text: str) -> None:
    name, _, spec = _some_text("new", text, "critic").partition(" ")
    if name in agents:
        raise UsageError(f"%agent new: there is an agent {name!r} already; %agent use {name}")
    agent = agents.get_or_make(name)
    if spec.strip():
        agent.set_model(spec.strip())
    agents.use(name)
    _confirm("new", f"{name}, with {agent.state.model.id}; plain %%agent cells prompt it now")


def _use(text: str) -> None:
    name = _some_text("use", text, "main")
    if name not in agents:
        have = ", ".join(agents) or "none yet"
        raise UsageError(f"%agent use: no agent is named {name!r} (there is: {have})")
    agents.use(name)
    _confirm("use", f"plain %%agent cells prompt {name} now")


def _list(text: str) -> None:
    _no_text("list", text)
    current = agents.current.name
    rows = [
        (
            name,
            "current" if name == current else "",
            "running" if agent.state.is_streaming else "idle",
            agent.state.model.id,
            str(len(agent.state.messages)),
        )
        for name, agent in agents.items()
    ]
    frontend.publish(columns_bundle(("agent", "", "state", "model", "messages"), rows))


def _thinking(text: str) -> None:
    state = agents.current.state
    if text and text not in THINKING_LEVELS:
        raise UsageError(f"%agent thinking takes one of {', '.join(THINKING_LEVELS)}, not {text!r}")
    if text:
        state.thinking_level = cast("ThinkingLevel", text)
    _confirm("thinking", state.thinking_level)


def _approve(text: str) -> None:
    call, _ = _pending("approve", text)
    call.approve()
    _confirm("approve", f"{call.name} runs")


def _deny(text: str) -> None:
    call, reason = _pending("deny", text)
    call.deny(reason)
    _confirm("deny", f"{call.name} does not run")


def _pending(verb: str, text: str) -> tuple[PendingCall, str]:
    """Find the call that is meant, by its number or as the only one; the rest is the reason."""
    waiting = {n: call for agent in agents.values() for n, call in agent.approvals.items()}
    first, _, rest = text.partition(" ")
    if first.isdecimal():
        if int(first) not in waiting:
            have = ", ".join(map(str, waiting)) or "none"
            raise UsageError(f"%agent {verb}: no call {first} waits (there is: {have})")
        return waiting[int(first)], rest
    if len(waiting) != 1:
        have = ", ".join(f"{n} {call.name}" for n, call in waiting.items()) or "none"
        raise UsageError(f"%agent {verb}: say which call, by its number (waiting: {have})")
    return next(iter(waiting.values())), text


def _continue(text: str) -> None:
    _no_text("continue", text)
    agents.current.continue_sync()


def _undo(text: str) -> None:
    if text and not text.isdecimal():
        raise UsageError(f"%agent undo takes a number of turns, not {text!r}")
    aside = _checked("undo", lambda: agents.current.undo(int(text or "1")))
    count = "1 turn" if aside.turns == 1 else f"{aside.turns} turns"
    _confirm("undo", f"{count} set aside; %agent switch {aside.branch} brings back")


def _fork(text: str) -> None:
    name = _some_text("fork", text, "idea")
    _checked("fork", lambda: agents.current.fork(name))
    _confirm("fork", f"{name} begins here; %agent tree shows all branches")


def _switch(text: str) -> None:
    name = _some_text("switch", text, "main")
    agent = agents.current
    _checked("switch", lambda: agent.switch(name))
    _confirm("switch", f"{name}, {len(agent.state.messages)} messages")


def _tree(text: str) -> None:
    _no_text("tree", text)
    agent = agents.current
    agent.branches.follow(agent.state.messages)
    rows = [
        (
            branch.name,
            "active" if branch.is_active else "",
            str(branch.turns),
            str(branch.messages),
            "" if branch.is_active else str(branch.shared),
        )
        for branch in agent.branches
    ]
    header = ("branch", "", "turns", "messages", "shared with the active one")
    frontend.publish(columns_bundle(header, rows))


def _export(text: str) -> None:
    file = _some_text("export", text, "talk.md")
    try:
        path = _checked("export", lambda: agents.current.export(file))
    except OSError as error:
        raise UsageError(f"%agent export: {error}") from None
    _confirm("export", f"written to {path}")


def _cost(text: str) -> None:
    _no_text("cost", text)
    agent = agents.current
    replies = [m for m in agent.state.messages if isinstance(m, AssistantMessage)]
    usage = [message.usage for message in replies]
    rows = [
        ("responses", str(len(usage))),
        ("input", f"{sum(u.input + u.cache_read + u.cache_write for u in usage):,} tokens"),
        ("of it cached", f"{sum(u.cache_read for u in usage):,} tokens"),
        ("output", f"{sum(u.output for u in usage):,} tokens"),
    ]
    known = [u.cost.total for u in usage if cost_is_known(u.cost)]
    unknown = len(usage) - len(known)
    total = f"${sum(known):.4f}" + (f", and {unknown} of unknown price" if unknown else "")
    frontend.publish(table_bundle([*rows, ("cost", total)]))


def _checked(verb: str, call: Callable[[], T]) -> T:
    """Call a method; what it refuses is a usage error."""
    try:
        return call()
    except ValueError as error:
        raise UsageError(f"%agent {verb}: {error}") from None


def _confirm(verb: str, done: str) -> None:
    frontend.publish(table_bundle([(verb, done)]))


def _help(text: str) -> None:
    _no_text("help", text)
    frontend.publish(
        table_bundle(
            [
                ("%%agent", "prompt the agent with the text of the cell (%%agent? has options)"),
                ("%agent", "show the agent: state, model, tools, messages"),
                ("%agent model [SPEC]", "show the model, or use another one from now on"),
                ("%agent models", "list what can be used now, and what the others need"),
                ("%agent tools", "list the tools; @pi.tool on a function adds one"),
                ("%agent thinking [LEVEL]", "show the thinking level, or set it"),
                ("%agent new NAME [SPEC]", "make another agent and go on with it"),
                ("%agent use NAME", "go on with an agent; %agent list names them"),
                ("%agent approve [N]", "let a call run that waits; deny [N] [REASON] does not"),
                ("%agent continue", "go on where a run was stopped, failed or spent its budget"),
                ("%agent undo [N]", "take back the last turns; they are set aside"),
                ("%agent fork NAME", "begin a branch here; switch NAME changes, tree shows all"),
                ("%agent export FILE", "write the conversation to .md, .html or .ipynb"),
                ("%agent cost", "show tokens and cost of the conversation"),
                ("%agent explain [QUESTION]", "say why: why did sql not run? why is it stuck?"),
                ("%agent reset", "forget the conversation, keep model and tools"),
                ("%agent abort", "stop a run that goes on while other cells run"),
                ("%agent steer TEXT", "tell it something after its current turn"),
                ("%agent follow TEXT", "tell it something when it would stop"),
                ("%agent queue [clear]", "show what steer and follow have queued, or drop it"),
                ("%agent inspect [EVENT]", "look inside: state, transcript, events, requests"),
                ("%agent help", "show this"),
            ]
        )
    )


_VERBS: dict[str, Callable[[str], None]] = {
    "status": _status,
    "model": lambda text: show_model(agents.current, text),
    "models": _models,
    "tools": _tools,
    "reset": _reset,
    "abort": _abort,
    "steer": _steer,
    "follow": _follow,
    "queue": _queue,
    "clear": _clear,
    "thinking": _thinking,
    "new": _new,
    "use": _use,
    "list": _list,
    "approve": _approve,
    "deny": _deny,
    "continue": _continue,
    "undo": _undo,
    "fork": _fork,
    "tree": _tree,
    "switch": _switch,
    "export": _export,
    "cost": _cost,
    "explain": show_explanation,
    "inspect": show_inspector,
    "help": _help,
}


def verb_names() -> list[str]:
    """Return what may stand after `%agent`."""
    return list(_VERBS)


def _no_text(verb: str, text: str) -> None:
    if text:
        raise UsageError(f"%agent {verb} takes nothing more, not {text!r}")


def _some_text(verb: str, text: str, example: str = "be brief") -> str:
    if not text:
        raise UsageError(f"%agent {verb}: say what, for example: %agent {verb} {example}")
    return text


def _message_text(message: AgentMessage) -> str:
    return text_of(getattr(message, "content", None) or ())


def _counted(roles: list[Any]) -> str:
    counts = {role: roles.count(role) for role in roles}
    inside = ", ".join(f"{count} {role}" for role, count in counts.items())
    return f"({inside})" if inside else ""
