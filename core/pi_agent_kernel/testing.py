"""Doubles and checkers for tests of agents, yours and ours.

`strict_faux` wraps a stream function and refuses what a strict provider would refuse.
`EventRecorder` keeps every event. `check_events` and `check_transcript` raise an
`AssertionError` that names the broken rule and the place. Named as a pytest plugin
(`pytest_plugins = ["pi_agent_kernel.testing"]`), the module adds the fixtures `faux`,
`strict_faux` and `watch_agent`; pytest itself is imported only then.

Source: known-failures.md, "Strict faux" and recurring cause 1; A24, B31, FL-04.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from pi_agent_kernel.event_rules import EventRules
from pi_agent_kernel.events import ALL_EVENTS, AgentEvent
from pi_agent_kernel.messages import (
    AssistantMessage,
    CustomMessageLike,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.request import Model, StreamEvents, StreamFn, StreamOptions, TranscriptContext

if TYPE_CHECKING:
    from pi_agent_kernel.agent import Agent
    from pi_agent_kernel.models.faux import FauxProvider
