"""Test an agent without a model: doubles, recorders and checkers for plain asserts or pytest.

| name | for |
| --- | --- |
| `scripted_model(*replies)`, `call(name, **arguments)` | a model that says what it was told, and is strict |
| `EventRecorder(agent)`, `expect(event, **fields)` | keep the events, and say what they had to be |
| `answered_calls(messages)` | the tool calls of a transcript, each with its result |
| `try_call(call, tools)` | one tool call by itself, with all its steps and hooks |
| `answer_calls(**answers)`, `watch_hook(hook)` | stand in for who approves; see what a hook was asked |
| `check_transcript`, `check_request`, `check_events` | what holds for every run, as functions |
| `strict_faux(stream_fn)` | the strictness alone, around a stream function of your own |

What is wrong raises an `AssertionError` that names the rule and the place. Everything works in a
notebook, in a script and in any test runner, under asyncio and trio.

`pytest_plugins = ["pi_agent_kernel.testing.pytest_plugin"]` in a `conftest.py` adds fixtures that
check themselves at the end of each test. Nothing here imports pytest, and nothing of this is
loaded into a pytest that did not ask for it.
"""  # noqa: E501 - a table row is one line

from __future__ import annotations

from pi_agent_kernel.testing.events import check_events
from pi_agent_kernel.testing.expectations import Expected, expect
from pi_agent_kernel.testing.hooks import (
    Answerer,
    HookCall,
    HookWatch,
    answer_calls,
    try_call,
    watch_hook,
)
from pi_agent_kernel.testing.recorder import EventRecorder
from pi_agent_kernel.testing.scripted import (
    Reply,
    ReplyFunction,
    ScriptedModel,
    call,
    scripted_model,
)
from pi_agent_kernel.testing.transcripts import (
    StrictFaux,
    answered_calls,
    check_request,
    check_transcript,
    strict_faux,
)

__all__ = [
    "Answerer",
    "EventRecorder",
    "Expected",
    "HookCall",
    "HookWatch",
    "Reply",
    "ReplyFunction",
    "ScriptedModel",
    "StrictFaux",
    "answer_calls",
    "answered_calls",
    "call",
    "check_events",
    "check_request",
    "check_transcript",
    "expect",
    "scripted_model",
    "strict_faux",
    "try_call",
    "watch_hook",
]
