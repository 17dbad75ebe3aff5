"""The branches of a notebook agent's conversation, and where each left the active one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pi_agent_kernel.messages import UserMessage

from pi_notebook.inspector.panel import Layout, Listing, Note, Panel, Row, Table, Tag

if TYPE_CHECKING:
    from pi_notebook.inspector.panel import Block
    from pi_notebook.inspector.scene import Scene

__all__ = ["tree_details", "tree_panel"]

LAYOUT = Layout("tree", (("branch", "k"), ("where", "v"), ("turns", "n"), ("messages", "n")))
MOST = 200


def tree_panel(scene: Scene) -> Panel:
    """Show each branch; what a re-run or an undo set aside is one, too."""
    branches: Any = scene.in_notebook("branches")
    known = list(branches)
    rows: list[Row] = []
    for place, branch in enumerate(known[:MOST]):
        active = branch.is_active
        # The transcript is what the active branch is, also before the tree has taken it in.
        messages = len(scene.agent.state.messages) if active else branch.messages
        where = (
            "the transcript"
            if active
            else f"leaves the transcript after {branch.shared} shared messages"
        )
        tags = (Tag("active", "live"),) if active else ()
        if branch.name.startswith("aside-"):
            tags = (*tags, Tag("set aside"))
        rows.append(
            Row(
                (scene.words.line(branch.name, 60), where, str(branch.turns), str(messages)),
                tags=tags,
                tone="live" if active else "",
                ref=place,
                more="\n".join(_prompts(scene, branch.name)),
            )
        )
    hint = Note("%agent switch NAME", "goes on in another branch; fork NAME begins one.")
    blocks = (Table(LAYOUT, tuple(rows)), hint)
    return Panel("tree", "Tree", blocks=blocks)


def tree_details(scene: Scene, ref: int) -> tuple[Block, ...]:
    """Show the prompts of one branch."""
    branches: Any = scene.in_notebook("branches")
    known = list(branches)
    if not 0 <= ref < len(known):
        return ()
    name = known[ref].name
    said = "\n".join(_prompts(scene, name)) or "no prompts"
    return (Listing(f"prompts of {scene.words.line(name, 60)}", said),)


def _prompts(scene: Scene, name: str) -> list[str]:
    branches: Any = scene.in_notebook("branches")
    return [
        f"{at}  {scene.words.message(message, 100)}"
        for at, message in enumerate(branches.messages(name))
        if isinstance(message, UserMessage)
    ][-40:]
