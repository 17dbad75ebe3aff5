"""Fixtures for tests of agents; pytest is imported when the first one is registered.

    # conftest.py
    pytest_plugins = ["pi_agent_kernel.testing.pytest_plugin"]

| fixture | gives |
| --- | --- |
| `scripted_model` | the function of this name; each model it made is checked at the end |
| `watch_agent` | from an agent to its `EventRecorder`; events and transcript are checked |
| `faux` | a faux provider |
| `strict_faux` | the strict form of `faux`; a refused request fails the test |

It is no entry point: a pytest that does not name it does not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.testing.recorder import EventRecorder
from pi_agent_kernel.testing.scripted import Reply, ScriptedModel
from pi_agent_kernel.testing.scripted import scripted_model as make_model
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
        def scripted_model(self) -> Iterator[Callable[..., ScriptedModel]]:
            """Give a function that makes scripted models; each is checked at the end."""
            made: list[ScriptedModel] = []

            def make(*replies: Reply, **options: bool) -> ScriptedModel:
                made.append(make_model(*replies, **options))
                return made[-1]

            yield make
            for model in made:
                model.check()

        @pytest.fixture
        def faux(self) -> FauxProvider:
            """Give a faux provider."""
            return faux_provider()

        @pytest.fixture
        def strict_faux(self, faux: FauxProvider) -> Iterator[StrictFaux]:
            """Give the strict form of `faux`; a refused request fails the test."""
            strict = StrictFaux(faux.stream_fn)
            yield strict
            strict.check()

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
                recorder.check()
                check_transcript(agent.state.messages)

    config.pluginmanager.register(Fixtures(), "pi-agent-kernel-fixtures")
