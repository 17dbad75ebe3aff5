"""Say how a request differs from the nearest recorded one."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from pi_agent_kernel.models.cassette.conversation import Node, path_to

if TYPE_CHECKING:
    from pi_agent_kernel.models.cassette.reader import Exchange, Recorded

__all__ = ["describe_difference"]

LONGEST_DIFF = 60  # lines
LONGEST_LINE = 300  # characters
_AROUND = 30  # characters shown before the first difference
_SHOWN = 70  # characters shown in all
_COMPARED = 4000  # characters of a message that decide which one is nearest


def describe_difference(
    recorded: Recorded,
    texts: Sequence[str],
    asked: tuple[str, str],
    node: Node[Exchange],
    known: int,
) -> str:
    """Explain why a request has no response.

    Args:
        recorded: The cassette.
        texts: The request's messages, as a model sees them.
        asked: Its model and thinking level.
        node: Where its messages leave the recorded ones.
        known: How many of them were recorded.

    Returns:
        One line for a person in a hurry, then a diff.
    """
    count = len(recorded.exchanges)
    if not count:
        return f"{recorded.path} holds no request: record it first."
    nearest = _nearest(node, texts[known:])
    exchange = min((e[0] for e in nearest.requests.values()), key=lambda e: e.number)
    number, theirs = exchange.number, path_to(nearest)
    settings = (exchange.model, exchange.thinking)
    where = f"{recorded.path.name} has no response to this request"
    nearest_is = f"the nearest of {count} is request {number}"
    same_messages = len(theirs) == known == len(texts)
    if same_messages:
        changed = [
            f"{name} was {then!r} and is {now!r}"
            for name, then, now in zip(("the model", "thinking"), settings, asked, strict=True)
            if then != now
        ]
        what = " and ".join(changed)
    else:
        what = _first_difference(theirs, texts, known)
    before = [*_settings(settings), *_rendered(theirs[known:], known)]
    after = [*_settings(asked), *_rendered(texts[known:], known)]
    diff = list(
        difflib.unified_diff(
            before, after, f"request {number}, recorded", "this request", lineterm="", n=3
        )
    )
    if len(diff) > LONGEST_DIFF:
        left = len(diff) - LONGEST_DIFF
        diff = [*diff[:LONGEST_DIFF], f"… {left} more lines differ"]
    head = f"{where}; {nearest_is}: {what}. Undo the change, or record again."
    return "\n".join([head, *(_cut(line) for line in diff)])


def _nearest(node: Node[Exchange], rest: Sequence[str]) -> Node[Exchange]:
    """Return where the nearest recorded request ends."""
    if rest and node.children:
        wanted = rest[0][:_COMPARED]
        matcher = difflib.SequenceMatcher(b=wanted, autojunk=False)

        def likeness(child: Node[Exchange]) -> float:
            matcher.set_seq1(child.text[:_COMPARED])
            return matcher.quick_ratio()

        # A reply to which no request followed is no step towards one.
        leading = [child for child in node.children.values() if _end_below(child) is not None]
        if leading:
            best = max(leading, key=likeness)
            return _end_below(best) or node
    step: Node[Exchange] | None = node
    while step is not None:
        if step.requests:
            return step
        below = _end_below(step)
        if below is not None:
            return below
        step = step.parent
    return node


def _end_below(node: Node[Exchange]) -> Node[Exchange] | None:
    """Return the nearest node with a request, this one or below it."""
    level = [node]
    while level:
        for each in level:
            if each.requests:
                return each
        level = [child for each in level for child in each.children.values()]
    return None


def _first_difference(theirs: Sequence[str], ours: Sequence[str], known: int) -> str:
    if known >= len(ours):
        return f"it has {len(theirs)} messages, this one only the first {len(ours)} of them"
    role = json.loads(ours[known])["role"]
    place = f"message {known + 1} ({role})"
    if known >= len(theirs):
        now = _cut(_plain(ours[known]), _SHOWN)
        return f"{place} was not in it: {now!r}"
    then, now = _plain(theirs[known]), _plain(ours[known])
    at = next((i for i, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), None)
    at = min(len(then), len(now)) if at is None else at
    start = max(0, at - _AROUND)
    lead = "…" if start else ""
    shown = [_cut(lead + text[start:], _SHOWN) for text in (then, now)]
    return f"{place} was {shown[0]!r} and is {shown[1]!r}"


def _settings(settings: tuple[str, str]) -> list[str]:
    model, thinking = settings
    return [f"model: {model}", f"thinking: {thinking}"]


def _rendered(texts: Sequence[str], known: int) -> list[str]:
    lines = [f"(before: {known} equal message{'' if known == 1 else 's'})"] if known else []
    for text in texts:
        lines.extend(_message(text))
    return lines


def _plain(text: str) -> str:
    return "\n".join(_lines(json.loads(text)))


def _message(text: str) -> list[str]:
    fields: dict[str, Any] = json.loads(text)
    role = fields["role"]
    return [f"{role}: {line}" for line in _lines(fields)]


def _lines(fields: dict[str, Any]) -> list[str]:
    """Show a message as lines: its text line by line, everything else as JSON."""
    fields.pop("role")
    lines: list[str] = []
    for block in _listed(fields.pop("content", "")):
        lines.extend(_block(block))
    for name in ("toolsAdded", "toolsRemoved"):
        for tool in _listed(fields.pop(name, [])):
            shown = json.dumps(tool, ensure_ascii=False)
            lines.append(f"{'tool' if name == 'toolsAdded' else 'no tool'} {shown}")
    if isinstance(fields.get("sections"), dict):
        for name, value in fields.pop("sections").items():
            lines.extend(f"[{name}] {line}" for line in str(value).split("\n"))
    return lines + [f"{name}: {value}" for name, value in fields.items()]


def _listed(value: Any) -> list[Any]:
    """Return what should be a list; a message that was edited by hand may have anything there."""
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _block(block: Any) -> list[str]:
    match block:
        case str(text) | {"type": "text", "text": str(text)}:
            return text.split("\n")
        case {"type": "image", "data": str(data), "mimeType": kind}:
            short = hashlib.sha256(data.encode()).hexdigest()[:12]
            return [f"image {kind}, {len(data)} characters, sha256 {short}"]
        case _:
            return [json.dumps(block, ensure_ascii=False)]


def _cut(text: str, longest: int = LONGEST_LINE) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
