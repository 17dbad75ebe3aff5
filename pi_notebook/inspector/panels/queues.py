"""What waits: messages for the model, and tool calls for a person's word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pi_notebook.inspector.panel import Layout, Listing, Note, Panel, Row, Table, Tag

if TYPE_CHECKING:
    from pi_agent_kernel.messages import AgentMessage

    from pi_notebook.inspector.panel import Block
    from pi_notebook.inspector.scene import Scene

__all__ = ["queue_details", "queues_panel"]

QUEUED = Layout("queues", (("queue", "k"), ("message", "v"), ("delivered", "n")))
CALLS = Layout("queues", (("call", "k"), ("waits for a word", "v"), ("effects", "n")))
RULES = Layout("queues", (("policy", "k"), ("answer", "v"), ("", "n")))
#: Rows of one queue.
MOST = 100


def queues_panel(scene: Scene) -> Panel:
    """Show both queues, the calls that wait for approval, and the policy."""
    agent = scene.agent
    queued = agent.queued_messages()
    rows: list[Row] = []
    for name, mode, when in (
        ("steer", agent.steering_mode, "after the current turn"),
        ("follow", agent.follow_up_mode, "when it would stop"),
    ):
        for place, message in enumerate(queued[name][:MOST]):
            first = place == 0 or mode == "all"
            rows.append(_row(scene, name, place, message, when if first else "later"))
    blocks: list[Block] = []
    if rows:
        blocks.append(Table(QUEUED, tuple(rows)))
    else:
        blocks.append(Note("Nothing is queued", "for the model."))
    left_out = sum(max(0, len(messages) - MOST) for messages in queued.values())
    if left_out:
        blocks.append(Note(f"{left_out} more", "are queued and not shown."))
    modes = f"steering {agent.steering_mode} · follow-up {agent.follow_up_mode}"
    approvals: Any = scene.in_notebook("approvals")
    waiting = [] if approvals is None else list(approvals.items())
    calls = [
        Row(
            (
                str(n),
                scene.words.call(call.name, call.args),
                ", ".join(sorted(call.tool.effects or ())) or "undeclared",
            ),
            tags=(Tag("waits for you", "warn"),),
            tone="warn",
        )
        for n, call in waiting
    ]
    if calls:
        blocks.append(Table(CALLS, tuple(calls)))
        blocks.append(Note("%agent approve N", "or deny N REASON answers.", "warn"))
    elif approvals is not None:
        blocks.append(Note("No call waits", "for your word."))
    if approvals is not None:
        policy = approvals.for_run or approvals.policy
        answers = {**policy.effects, **policy.tools}
        rules = [Row((scene.words.line(name, 60), answer, "")) for name, answer in answers.items()]
        blocks.append(Table(RULES, tuple(rules)))
    blocks.append(Listing("how much one poll delivers", modes))
    title = "Queues & approvals" if approvals is not None else "Queues"
    return Panel("queues", title, blocks=tuple(blocks))


def _row(scene: Scene, name: str, place: int, message: AgentMessage, when: str) -> Row:
    shown = scene.words.message(message)
    ref = place if name == "steer" else MOST + place
    return Row((f"{name} {place + 1}", shown, when), ref=ref)


def queue_details(scene: Scene, ref: int) -> tuple[Block, ...]:
    """Show one queued message."""
    queued = scene.agent.queued_messages()
    messages = queued["steer" if ref < MOST else "follow"]
    place = ref % MOST
    return scene.words.message_parts(messages[place]) if 0 <= place < len(messages) else ()
