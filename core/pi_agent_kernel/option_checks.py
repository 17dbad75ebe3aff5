"""What each option of an agent may be; a wrong one is refused where it is given.

Without this it would fail in the middle of a run, far from its cause and in words that name
neither the option nor the value. One table holds for the constructor and for assignment (CO-12).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import cast, get_args

from pi_agent_kernel.hooks import ToolExecutionMode
from pi_agent_kernel.models.retry_policy import RetryPolicy
from pi_agent_kernel.request import Transport

__all__ = ["check_option"]


def check_option(name: str, value: object) -> None:
    """Refuse a value that an option of this name cannot have; other names pass.

    Raises:
        TypeError: It is of a wrong type; the message names option, value and remedy.
        ValueError: It is of the right type and out of range.
    """
    check = _CHECKS.get(name)
    if check is not None:
        check(name, value)


def _stream_fn(name: str, value: object) -> None:
    if not callable(value):
        raise TypeError(f"{name} is a function of model, context and options, not {value!r}.")


def _function(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} is a function or None, not {value!r}.")


def _one_of(allowed: tuple[str, ...]) -> Callable[[str, object], None]:
    *others, last = (f'"{word}"' for word in allowed)
    words = f"{', '.join(others)} or {last}"

    def check(name: str, value: object) -> None:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"{name} is {words}, not {value!r}.")

    return check


def _seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number of seconds, such as 0.25, not {value!r}.")
    # A whole number may be larger than any float; what is no number compares false.
    if not 0 <= value <= sys.float_info.max:
        raise ValueError(
            f"{name} is a finite number of seconds, 0 or more, not {value!r}; 0 waits for nothing."
        )


def _milliseconds(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"{name} is a whole number of milliseconds, or None to leave it to the provider, "
            f"not {value!r}."
        )
    if value < 0:
        raise ValueError(f"{name} is 0 milliseconds or more, not {value!r}.")


def _text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f'{name} is text, not {value!r}; leave it out, or pass "", for none.')


def _text_or_none(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is text or None, not {value!r}; for another id pass str(...).")


def _budgets(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, Mapping):
        budgets = cast("Mapping[object, object]", value)
        if all(isinstance(n, int) and not isinstance(n, bool) for n in budgets.values()):
            return
    raise TypeError(
        f'{name} is a dict of tokens by thinking level, such as {{"low": 1000}}, or None, '
        f"not {value!r}."
    )


def _identity(name: str, value: object) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f'{name} is a dict, such as {{"version": "1"}}, or None, not {value!r}.')


def _policy(name: str, value: object) -> None:
    if value is not None and not isinstance(value, RetryPolicy):
        raise TypeError(f"{name} is a RetryPolicy, such as RetryPolicy(), or None, not {value!r}.")


_FUNCTIONS = (
    *("convert_to_llm", "transform_context", "prepare_request", "finish_turn"),
    *("prepare_next_turn", "prepare_next_turn_with_context", "before_tool_call"),
    *("after_tool_call", "before_model_request", "after_model_response", "after_tool_result"),
    *("should_stop", "get_api_key", "run_sync", "on_payload", "on_response"),
    "on_provider_stream_event",
)

_CHECKS: dict[str, Callable[[str, object], None]] = {
    **dict.fromkeys(_FUNCTIONS, _function),
    "stream_fn": _stream_fn,
    "system_prompt": _text,
    "session_id": _text_or_none,
    "thinking_budgets": _budgets,
    "transport": _one_of(get_args(Transport)),
    "max_retry_delay_ms": _milliseconds,
    "retry": _policy,
    "identity": _identity,
    "tool_execution": _one_of(get_args(ToolExecutionMode)),
    "abort_grace": _seconds,
}
