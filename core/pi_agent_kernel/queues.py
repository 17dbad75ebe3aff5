"""The two queues of messages that wait for their moment in a run (QU-01, QU-02)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Literal

from pi_agent_kernel.messages import AgentMessage

__all__ = ["MessageQueue", "QueueMode", "Queues"]

# No operation takes long enough for queues to get in each other's way.
_lock = threading.RLock()  # a signal handler may steer

QueueMode = Literal["one-at-a-time", "all"]


class MessageQueue:
    """Be a FIFO of messages; every method may be called from any thread.

    Args:
        mode: "one-at-a-time" delivers the oldest per drain, "all" delivers everything. It may
            be changed at any time and counts from the next drain (A23).
    """

    __slots__ = ("_messages", "_mode")

    def __init__(self, mode: QueueMode) -> None:
        self._messages: list[AgentMessage] = []
        self.mode = mode

    @property
    def mode(self) -> QueueMode:
        """How much one drain delivers."""
        return self._mode

    @mode.setter
    def mode(self, mode: QueueMode) -> None:
        if mode not in ("one-at-a-time", "all"):
            raise ValueError(f'A queue mode is "one-at-a-time" or "all", not {mode!r}.')
        self._mode: QueueMode = mode

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: AgentMessage) -> None:
        """Add a message at the end."""
        with _lock:
            self._messages.append(message)

    def peek(self) -> list[AgentMessage]:
        """Return what the next drain would deliver, without taking it (QU-05)."""
        with _lock:
            return self._messages[: self._batch()]

    def messages(self) -> list[AgentMessage]:
        """Return all messages, the next one first."""
        with _lock:
            return list(self._messages)

    def drain(self) -> list[AgentMessage]:
        """Take the next batch out."""
        if not self._messages:
            return []
        with _lock:
            batch = self._batch()
            taken, self._messages = self._messages[:batch], self._messages[batch:]
            return taken

    def put_back(self, messages: list[AgentMessage]) -> None:
        """Return messages that could not be used, to the front (A02)."""
        with _lock:
            self._messages[:0] = messages

    def clear(self) -> None:
        """Drop every message (QU-06)."""
        with _lock:
            self._messages.clear()

    def _batch(self) -> int:
        return len(self._messages) if self._mode == "all" else 1


class Queues:
    """Hold an agent's two queues."""

    __slots__ = ("_drained", "follow_up", "steering")

    def __init__(self, steering_mode: QueueMode, follow_up_mode: QueueMode) -> None:
        self.steering: MessageQueue = MessageQueue(steering_mode)
        self.follow_up: MessageQueue = MessageQueue(follow_up_mode)
        self._drained = self.steering

    def __len__(self) -> int:
        return len(self.steering) + len(self.follow_up)

    def peek(self) -> list[AgentMessage]:
        """Return what would be delivered next: steering if any, else follow-up (QU-05)."""
        return self.steering.peek() or self.follow_up.peek()

    def messages(self) -> dict[str, list[AgentMessage]]:
        """Return all that is queued: under "steer" and "follow", the next one first."""
        return {"steer": self.steering.messages(), "follow": self.follow_up.messages()}

    def drain_steering(self) -> list[AgentMessage]:
        """Take the next batch of steering messages."""
        self._drained = self.steering
        return self.steering.drain()

    def drain_follow_up(self) -> list[AgentMessage]:
        """Take the next batch of follow-ups."""
        self._drained = self.follow_up
        return self.follow_up.drain()

    def put_back(self, messages: Sequence[AgentMessage]) -> None:
        """Return the batch drained last, which could not be used (A02)."""
        self._drained.put_back(list(messages))
