"""The errors a caller can act on.

    PiAgentError
    ├── AgentStateError            the call does not fit the agent's present state
    │   ├── AgentBusyError         a run is active (also a RuntimeError)
    │   └── NothingToContinueError `continue_()` has nothing to go on from (also a ValueError)
    ├── ToolError                  a tool call could not be carried out
    │   ├── ToolNotFoundError      no tool of that name is executable
    │   └── ToolArgumentsError     the arguments do not fit the schema (also a ValueError)
    ├── ModelError                 a provider failed; status and retry delay where known
    │   └── ContextOverflowError   the request does not fit the model's context window
    └── SessionError               a stored session cannot be used
        └── SessionFormatError     ... because of the named line of its file

Misuse raises one of these. What fails inside a run becomes a message with
``stop_reason`` "error" or "aborted" instead (FL-01, FL-02).
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "CARRIERS",
    "AgentBusyError",
    "AgentStateError",
    "ContextOverflowError",
    "ModelError",
    "NothingToContinueError",
    "PiAgentError",
    "SessionError",
    "SessionFormatError",
    "ToolArgumentsError",
    "ToolError",
    "ToolNotFoundError",
    "error_text",
    "raised_at",
]


def error_text(error: BaseException) -> str:
    """Return what an exception says, or its class's name if it says nothing."""
    name = type(error).__name__
    try:
        return str(error) or name
    except Exception:  # noqa: BLE001 - a __str__ that raises must not hide the failure itself
        return f"{name} (its text cannot be shown)"


#: Packages whose frames lead to a tool or hook, or from one, and say nothing of it.
CARRIERS = frozenset(
    {
        "IPython", "anyio", "asyncio", "concurrent", "contextlib", "ipykernel", "pi_agent_kernel",
        "pi_notebook", "runpy", "threading", "tornado", "traitlets", "trio",
    }
)  # fmt: skip


def raised_at(error: BaseException) -> str | None:
    """Say what was raised and where: first in the tool or hook, then where that led.

    Args:
        error: What was raised.

    Returns:
        Such as "KeyError at line 3 in load (line 88 in pandas.core.frame.__getitem__)"; a line of
        a notebook's function counts from the top of its cell. None if no code but ours raised.
    """
    places: list[str] = []
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in CARRIERS:
            name = frame.f_code.co_name
            within = name if module in ("__main__", "builtins") else f"{module}.{name}"
            places.append(f"line {step.tb_lineno} in {within}")
        step = step.tb_next
    if not places:
        return None
    deepest = f" ({places[-1]})" if len(places) > 1 else ""
    return f"{type(error).__name__} at {places[0]}{deepest}"


class PiAgentError(Exception):
    """Be the root of every error this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By its fields: an error builds its text, and must not build it from its text.
        return (_rebuild, (type(self), self.args, dict(vars(self))))


class AgentStateError(PiAgentError):
    """Say that a call does not fit the agent's present state; nothing was changed."""


class AgentBusyError(AgentStateError, RuntimeError):
    """Say that a run is active.

    Args:
        action: What was tried: "prompt", "continue" or "reset".

    Source: LP-16, AB-06.
    """

    def __init__(self, action: str) -> None:
        self.action = action
        remedy = (
            "use steer() or follow_up() to queue a message, or await wait_for_idle()"
            if action in ("prompt", "continue")
            else "await wait_for_idle() or abort() first"
        )
        super().__init__(f"The agent is already running, so it cannot {action} now: {remedy}.")


class NothingToContinueError(AgentStateError, ValueError):
    """Say that the transcript has nothing a model could answer.

    Args:
        role: Role of the last message, or None when there is no message to go on from.

    Source: LP-14, LL-04, FL-08.
    """

    def __init__(self, role: str | None = None) -> None:
        self.role = role
        super().__init__(
            "There is no message to continue from: prompt() the agent first."
            if role is None
            else f"Cannot continue from a last message of role {role!r}: prompt(), steer() or "
            "follow_up() with a new message, or remove the last one."
        )


class ToolError(PiAgentError):
    """Say that a tool call could not be carried out."""


class ToolNotFoundError(ToolError):
    """Say that no executable tool has the requested name.

    Args:
        name: The requested name.

    Source: TL-04.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"Tool {name} not found")


class ToolArgumentsError(ToolError, ValueError):
    """Say what is wrong with the arguments of a tool call, in words a model can act on.

    Args:
        message: The whole text, as the model will read it.
        paths: Dotted paths of the offending values; "root" for the whole object.

    Source: TL-05, TL-06.
    """

    def __init__(self, message: str, paths: tuple[str, ...] = ()) -> None:
        self.paths = paths
        super().__init__(message)


class ModelError(PiAgentError):
    """Describe a failed model request.

    Args:
        message: What happened and what to do.
        provider: Provider id, when known.
        status: HTTP status, when there was one.
        retry_after: Seconds the provider asked to wait, when it said so.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        super().__init__(message)


class ContextOverflowError(ModelError):
    """Say that the request does not fit the model's context window; trying again does not help."""


class SessionError(PiAgentError):
    """Say that a stored session cannot be used."""


class SessionFormatError(SessionError):
    """Say that a session file is not valid.

    Args:
        message: What is wrong.
        line: Number of the offending line, from 1.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(message if line is None else f"line {line}: {message}")


def _rebuild(kind: type[PiAgentError], args: tuple[Any, ...], fields: dict[str, Any]) -> Exception:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(fields)
    return error
