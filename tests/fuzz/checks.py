"""What must hold after every run, whatever the plan did."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pi_agent_kernel import HostCall, UserMessage
from pi_agent_kernel.testing import check_events, check_transcript

if TYPE_CHECKING:
    from fuzz.world import World


def check_agent(world: World) -> None:
    """Check an agent at rest: its state, its transcript, its events, its queues, its tasks."""
    agent = world.agent
    state = agent.state
    assert not state.is_streaming
    assert state.streaming_message is None
    assert state.pending_tool_calls == frozenset()
    assert agent.signal is None
    check_events(world.recorder.events)
    check_transcript(state.messages)
    assert world.strict.refusals == []
    _check_queues(world)
    if world.asyncio:
        mine = {asyncio.current_task(), *world.script.producers}
        left = [task for task in asyncio.all_tasks() if task not in mine]
        assert left == [], "no task outlives its run (DEVIATIONS 2)"


def _check_queues(world: World) -> None:
    """Every queued message is in the transcript or still queued, once; no message is doubled."""
    agent = world.agent
    queued = [*agent._queues.steering._messages, *agent._queues.follow_up._messages]
    texts = Counter(
        message.content
        for message in (*agent.state.messages, *queued)
        if isinstance(message, UserMessage)
    )
    assert texts <= Counter(world.said), "a message was doubled (A02)"
    lost = {text for text in world.said if text[0] in "sft"} - set(texts)
    assert lost == set(), "a queued message was lost (A02)"


def check_log(world: World) -> None:
    """The log has every event under contiguous numbers, and replays to the state."""
    agent = world.agent
    records = list(agent.log)
    assert [record.seq for record in records] == list(
        range(records[0].seq, records[0].seq + len(records))
    )
    # Records of calls from other threads may lie between by microseconds.
    of_run = [record.time for record in records if not isinstance(record.event, HostCall)]
    assert all(before <= after for before, after in pairwise(of_run))
    logged = [record.event for record in records if not isinstance(record.event, HostCall)]
    seen = world.recorder.events[-len(logged) :]
    assert all(a is b or a == b for a, b in zip(logged, seen, strict=True))
    fields: dict[str, Any] = {}
    for record in records:
        if isinstance(record.event, HostCall) and record.event.name in ("reset", "state"):
            fields.clear()
        for change in record.changes:
            place = f"record {record.seq} ({record.type}), {change.field}"
            known = fields.get(change.field, change.before)
            assert known == change.before, f"{place}: was {known!r}, not {change.before!r}"
            fields[change.field] = change.after
    state = agent.state
    now = {name: getattr(state, name) for name in fields if name != "messages"}
    if "messages" in fields:
        now["messages"] = len(state.messages)
    assert fields == now
