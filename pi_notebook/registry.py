"""The agents of this process, by name, and the tools that all of them have.

It outlives `%reload_ext`: agents keep their conversations.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pi_agent_kernel.models.catalog import MODEL_VARIABLE, choose_model
from pi_agent_kernel.tools import AgentTool
from pi_agent_kernel.tools import tool as make_tool

if TYPE_CHECKING:
    from pi_agent_kernel.models.catalog import ChosenModel

    from pi_notebook.notebook_agent import NotebookAgent

__all__ = ["Agents", "agents"]

DEFAULT_NAME = "main"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")


class Agents(Mapping[str, "NotebookAgent"]):
    """Hold the agents; asking for `current` makes the first one."""

    def __init__(self) -> None:
        self._agents: dict[str, NotebookAgent] = {}
        self._tools: dict[str, AgentTool] = {}
        self._current = DEFAULT_NAME
        #: Defaults of new agents, from the configuration.
        self.model = ""
        self.gguf = ""
        self.system_prompt = ""
        #: What the first agent will have, chosen ahead of it.
        self._prepared: ChosenModel | None = None

    def __getitem__(self, name: str) -> NotebookAgent:
        try:
            return self._agents[name]
        except KeyError:
            have = ", ".join(self._agents) or "none yet"
            raise KeyError(
                f"no agent is named {name!r} (there is: {have}); %%agent --agent NAME makes one"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._agents))

    def __len__(self) -> int:
        return len(self._agents)

    def __repr__(self) -> str:
        return f"<agents: {', '.join(self._agents) or 'none yet'}>"

    @property
    def current(self) -> NotebookAgent:
        """The agent that `%%agent` prompts.

        Raises:
            ModelError: It has to be made, and the configured model cannot be used.
        """
        return self.get_or_make(self._current)

    def use(self, name: str) -> None:
        """Have plain `%%agent` cells and `pi.agent` mean another agent from now on.

        Raises:
            KeyError: No agent has that name.
        """
        self._current = self[name].name

    def get_or_make(self, name: str) -> NotebookAgent:
        """Return the agent of a name; make it if there is none.

        Raises:
            ValueError: The name is not one.
            ModelError: The configured model cannot be used.
        """
        from pi_notebook.notebook_agent import NotebookAgent

        agent = self._agents.get(name)
        if agent is None:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is no name for an agent: use letters, digits, - and _, 40 at most."
                )
            prepared = self._prepared if name == DEFAULT_NAME else None
            agent = self._agents[name] = NotebookAgent(
                name,
                prepared or self.default_model(),
                tools=list(self._tools.values()),
                system_prompt=self.system_prompt,
            )
        return agent

    def default_model(self) -> ChosenModel:
        """Choose the model of a new agent: the environment, the configuration, what there is.

        Raises:
            ModelError: The named model cannot be used.
        """
        from_variable = os.environ.get(MODEL_VARIABLE, "").strip()
        return choose_model(
            None if from_variable else self.model.strip() or None,
            source="from the setting PiNotebook.model",
            gguf=self.gguf,
        )

    def prepare(self) -> ChosenModel:
        """Choose the model of the current agent and keep it; the agent itself is made on use.

        Raises:
            ModelError: The configured model cannot be used.
        """
        if DEFAULT_NAME in self._agents:
            return self._agents[DEFAULT_NAME].chosen_model
        self._prepared = None
        self._prepared = self.default_model()
        return self._prepared

    def set_default(self, name: str, value: str) -> None:
        """Set one of `model`, `gguf` and `system_prompt` for agents made from now on."""
        setattr(self, name, value)
        if name != "system_prompt":
            self._prepared = None

    def add_tool(self, tool: AgentTool) -> None:
        """Give a tool to every agent, now and later; one of its name makes room for it.

        A run that is active goes on with the tools it started with.
        """
        self._tools[tool.name] = tool
        for agent in self._agents.values():
            agent.add_tool(tool)

    def tool(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a function a tool of this notebook's agents: `@pi.tool` or `@pi.tool(…)`.

        Running the cell again replaces the tool. The result can still be called as the function.

        Args:
            function: A function, or a tool made elsewhere.
            **options: As for `pi_agent_kernel.tool`.
        """
        if function is None:
            return lambda wrapped: self.tool(wrapped, **options)
        made = function if isinstance(function, AgentTool) else make_tool(function, **options)
        self.add_tool(made)
        return made


agents = Agents()
