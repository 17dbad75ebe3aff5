"""Fixtures for tests of agents; pytest is imported when the first one is registered.

# conftest.py
pytest_plugins = ["pi_agent_kernel.testing.pytest_plugin"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.testing.events import EventRecorder, check_events
from pi_agent_kernel.testing.transcripts import StrictFaux, check_transcript

if TYPE_CHECKING:
    from pi_agent_kernel.agent import Agent

__all__ = ["pytest_configure"]


def pytest_configure(config: Any) -> None:
    """Add the fixtures; pytest calls this when the module is one of its plugins."""
    import pytest

    from pi_agent_kernel.models.faux import FauxProvider, faux_provider

    class Fixtures:
        @pytest.fixture
        def faux(self) -> FauxProvider:
            """Give a scripted model."""
            return faux_provider()

        @pytest.fixture
        def strict_faux(self, faux: FauxProvider) -> Iterator[StrictFaux]:
            """Give the strict form of `faux`; a refused request fails the test."""
            strict = StrictFaux(faux.stream_fn)
            yield strict
            if strict.refusals:
                pytest.fail("; ".join(strict.refusals))

        @pytest.fixture
        def watch_agent(self) -> Iterator[Callable[[Agent], EventRecorder]]:
            """Give a function from an agent to its recorder; both are checked at the end."""
            watched: list[tuple[Agent, EventRecorder]] = []

            def watch(agent: Agent) -> EventRecorder:
                recorder = EventRecorder(agent)
                watched.append((agent, recorder))
                return recorder

            yield watch
            for agent, recorder in watched:
                check_events(recorder.events)
                check_transcript(agent.state.messages)

    config.pluginmanager.register(Fixtures(), "pi-agent-kernel-fixtures")
