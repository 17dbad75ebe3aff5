"""What the model saw at each request: the messages as sent, and the settings that go with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pi_agent_kernel.events import ModelResponse
from pi_agent_kernel.message_chain import KeptMessages, MessageChain
from pi_agent_kernel.messages import AgentMessage, Message, ThinkingLevel, Tool, Usage
from pi_agent_kernel.notes import SentRequest
from pi_agent_kernel.transcript import Replay

__all__ = ["KeptRequest", "LoggedRequest", "RequestKeeper"]


class KeptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Be what the log holds of a request; `EventLog.requests` adds what its records know."""

    number: int
    model: str
    provider: str
    thinking_level: ThinkingLevel
    options: Mapping[str, Any]
    executable: tuple[str, ...]
    transcript_length: int
    messages: KeptMessages
    stages: tuple[tuple[str, KeptMessages], ...]


class LoggedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Say exactly what the model saw at one request, and what it was made from.

    Args:
        number: Which request of the agent it is, from 1.
        seq: Number of its `model_request_start` record.
        time: When it was made, in seconds on the monotonic clock.
        attempt: Which attempt of the same request, from 1.
        model: Id of the model that was asked.
        provider: Its provider.
        thinking_level: What was asked for; "off" for none.
        options: Other settings that were handed on; never a key or a header.
        executable: Names of the tools that could run for its answer.
        transcript_length: How many messages the transcript had.
        messages: What was sent, after every hook: system messages (prompt, sections, declared
            tools) among the others.
        stages: What each hook that edits the messages of a request made of them, by the hook's
            name, in order; only hooks that are set.
        response_seq: Number of the `model_response` record; None while it runs.
        response: That event; None while it runs.
    """

    number: int
    seq: int
    time: float
    attempt: int
    model: str
    provider: str
    thinking_level: ThinkingLevel
    options: Mapping[str, Any]
    executable: tuple[str, ...]
    transcript_length: int
    messages: Sequence[Message]
    stages: tuple[tuple[str, Sequence[AgentMessage]], ...] = ()
    response_seq: int | None = None
    response: ModelResponse | None = None

    @property
    def system_prompt(self) -> str:
        """The prompt that the messages add up to (TR-04)."""
        return Replay(self.messages).prompt

    @property
    def tools(self) -> list[Tool]:
        """The tools that the messages declare (TR-02)."""
        return list(Replay(self.messages).tools.values())

    @property
    def usage(self) -> Usage | None:
        """What the response cost; None while it runs."""
        return None if self.response is None else self.response.usage


class RequestKeeper:
    """Number the requests of one agent and keep what they sent."""

    __slots__ = ("_chains", "_count")

    def __init__(self) -> None:
        self._count = 0
        self._chains: dict[str, MessageChain] = {}

    def keep(self, sent: SentRequest) -> KeptRequest:
        """Return what to keep of a request that is about to be sent."""
        self._count += 1
        return KeptRequest(
            number=self._count,
            model=sent.model.id,
            provider=sent.model.provider,
            thinking_level=sent.thinking_level,
            options=sent.options,
            executable=sent.executable,
            transcript_length=sent.transcript_length,
            messages=self._chain("").keep(sent.messages),
            stages=tuple((name, self._chain(name).keep(made)) for name, made in sent.stages),
        )

    def keep_only(self, requests: Sequence[KeptRequest]) -> None:
        """Forget the messages that only other requests had."""
        kept: dict[str, list[KeptMessages]] = {name: [] for name in self._chains}
        for request in requests:
            kept[""].append(request.messages)
            for name, messages in request.stages:
                kept[name].append(messages)
        for name, chain in self._chains.items():
            chain.keep_only(kept[name])

    def _chain(self, name: str) -> MessageChain:
        chain = self._chains.get(name)
        if chain is None:
            chain = self._chains[name] = MessageChain()
        return chain
