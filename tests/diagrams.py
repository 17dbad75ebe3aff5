"""The diagrams of the documentation, drawn from what real runs do.

`python tests/diagrams.py` writes each into its place: between `<!-- diagram: NAME -->` and
`<!-- end of diagram -->` of the pages in `PAGES`. `tests/kernel/test_diagrams.py` fails when one
is out of date. Nothing here knows the order of events: agents run with a scripted model, and the
drawings are their logs.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from pi_agent_kernel import (
    ALL_EVENTS,
    Agent,
    AgentTool,
    BeforeToolCallResult,
    CustomMessage,
    faux_assistant_message,
)
from pi_agent_kernel.loop_config import default_convert_to_llm
from pi_agent_kernel.state import FIELDS
from pi_agent_kernel.testing import answered_calls, call, scripted_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pi_agent_kernel import LogRecord

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "core" / "README.md", ROOT / "core" / "docs" / "how-a-run-works.md")
PLACE = re.compile(r"(<!-- diagram: ([\w-]+) -->\n).*?(<!-- end of diagram -->)", re.DOTALL)

OPENING = {"agent_start", "turn_start", "tool_batch_start"}
CLOSING = {"agent_end", "turn_end", "tool_batch_end"}

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


async def add(
    _id: str, params: Mapping[str, Any], _signal: object, on_update: Callable[..., object]
) -> str:
    """Report once and answer; async, so that calls at the same time always end in one order."""
    on_update("adding")
    await anyio.lowlevel.checkpoint()
    return str(params["a"] + params["b"])


def adder(**options: Any) -> AgentTool:
    """Make the tool that all drawings use."""
    return AgentTool(
        **{"name": "add", "description": "Add.", "parameters": ADD, "execute": add, **options}
    )


# ---------------------------------------------------------------------------- event trees


def plain_answer() -> Agent:
    """Run an agent that answers at once."""
    agent = Agent(stream_fn=scripted_model("It is the sum of two numbers."))
    agent.prompt_sync("What is addition?")
    return agent


def answer_with_tools() -> Agent:
    """Run an agent that calls a tool twice, in parallel, and answers."""
    calls = [call("add", a=2, b=40), call("add", a=1, b=1)]
    agent = Agent(stream_fn=scripted_model(calls, "42 and 2."), tools=[adder()])
    agent.prompt_sync("Add 2 and 40, and 1 and 1.")
    return agent


def event_tree(records: Iterable[LogRecord]) -> str:
    """Draw a log: a line for each event, updates in a row being one, with what it changed."""
    rows: list[tuple[str, str, str]] = []
    for number, row in _nested(list(_folded(records))):
        first, last = row[0], row[-1]
        seq = f"#{first.seq}" if first is last else f"#{first.seq}-{last.seq}"
        rows.append((seq, f"{number}{_told(row)}", _changes(row)))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(
        f"{seq:<{widths[0]}}  {line:<{widths[1]}}  {changes}".rstrip()
        for seq, line, changes in rows
    )


def _folded(records: Iterable[LogRecord]) -> Iterator[list[LogRecord]]:
    row: list[LogRecord] = []
    for record in records:
        if row and record.type == row[0].type == "message_update":
            row.append(record)
            continue
        if row:
            yield row
        row = [record]
    yield row


def _nested(rows: Sequence[list[LogRecord]]) -> Iterator[tuple[str, list[LogRecord]]]:
    """Give each row the branches that stand before it."""
    depths: list[int] = []
    depth = 0
    for row in rows:
        depths.append(depth)
        depth += (row[0].type in OPENING) - (row[0].type in CLOSING)
    for at, (depth, row) in enumerate(zip(depths, rows, strict=True)):
        later = depths[at + 1 :]
        lines = ["│   " if _goes_on(later, level) else "    " for level in range(1, depth)]
        own = [] if not depth else ["├── " if _goes_on(later, depth) else "└── "]
        yield "".join(lines + own), row


def _goes_on(later: Sequence[int], level: int) -> bool:
    """Whether another row of this level follows before one further out."""
    return next((depth == level for depth in later if depth <= level), False)


def _told(row: Sequence[LogRecord]) -> str:
    event: Any = row[0].event
    match event.type:
        case "host_call":
            return f"you call {event.name}()"
        case "message_start" | "message_end":
            return f"{event.type}: {event.message.role}"
        case "message_update":
            return "message_update ..."
        case kind if kind.startswith("tool_execution"):
            return f"{kind}: {event.tool_call_id}"
        case kind:
            return kind


def _changes(row: Sequence[LogRecord]) -> str:
    if row[0].type == "message_update":
        return "streaming_message grows"
    shown = []
    for change in row[0].changes:
        before, after = _value(change.before), _value(change.after)
        shown.append(f"{change.field} {before} → {after}")
    return ", ".join(shown)


def _value(value: Any) -> str:
    if hasattr(value, "role"):
        return value.role
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(value)) + "}"
    return str(value)


# ---------------------------------------------------------------------------- request, tools


class Steps(list[tuple[str, str, str]]):
    """Note hooks and events in the order they come: hook, event, what it is about."""

    def hook(self, name: str, answer: Any = None) -> Callable[..., Any]:
        """Make a hook that notes its call; its answer is a value, or a function."""

        def hook(*arguments: Any, **_options: Any) -> Any:
            self.append((name, "", _about(arguments)))
            return answer(*arguments) if callable(answer) else answer

        return hook

    def tool(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Make the function of a tool that notes its call; async, so that it starts at once."""

        async def noted(*arguments: Any) -> Any:
            self.append(("execute", "", ""))
            return await execute(*arguments)

        return noted

    def listen(self, event: Any, _signal: object) -> None:
        """Note an event; updates in a row are one."""
        message = getattr(event, "message", None)
        kind = f"{event.type} ..." if event.type == "message_update" else event.type
        about = message.role if event.type in ("message_start", "message_end") else ""
        if event.type == "model_request_start":
            about = f"message_count={event.message_count}"
        if not self or self[-1][1] != "message_update ..." or kind != "message_update ...":
            self.append(("", kind, about))


def _about(arguments: Sequence[Any]) -> str:
    """Say what the first argument of a hook is."""
    first = arguments[0]
    if isinstance(first, str):
        return f"provider: {first}"
    if hasattr(first, "role"):
        return f"message: {first.role}"
    context = getattr(first, "context", first)
    messages = getattr(context, "messages", context)
    if not isinstance(messages, Sequence):
        return ""
    return "messages: " + ", ".join(message.role for message in messages)


def request_pipeline() -> str:
    """Draw the two turns of a run whose hooks are all there, up to the second request."""
    steps = Steps()
    model = scripted_model(call("add", a=2, b=40), "42.")

    def stream_fn(model_: Any, context: Any, options: Any) -> Any:
        steps.append(("stream_fn", "", _about([context])))
        return model(model_, context, options)

    names = (
        *("prepare_request", "transform_context", "before_model_request", "get_api_key"),
        *("after_model_response", "finish_turn", "should_stop", "prepare_next_turn"),
    )
    agent = Agent(
        stream_fn=stream_fn,
        tools=[adder()],
        messages=[CustomMessage(role="note")],
        convert_to_llm=steps.hook("convert_to_llm", default_convert_to_llm),
        **{name: steps.hook(name) for name in names},
    )
    agent.subscribe(steps.listen, events=ALL_EVENTS)
    agent.prompt_sync("Add 2 and 40.")
    second = [at for at, step in enumerate(steps) if step[1] == "model_request_start"][1]
    rows = [("hook", "event", "what it gets"), *steps[: second + 1]]
    return _columns(row for row in rows if not row[1].startswith("tool_execution_update"))


def _columns(rows: Iterable[Sequence[str]]) -> str:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


async def _wait_for_ever(*_arguments: Any) -> None:
    await anyio.sleep_forever()


async def _refuse(*_arguments: Any) -> None:
    raise ValueError("no")


async def _abort(*_arguments: Any) -> None:
    current[0].abort()
    await anyio.sleep_forever()


#: The agent of the case that runs, for a tool that aborts it.
current: list[Agent] = []

#: What becomes of a call: the reply, the tool's options, what `before_tool_call` answers.
CASES: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "it runs": (call("add", a=2, b=40), {}, None),
    "no such tool": (call("sum", a=2, b=40), {}, None),
    "bad arguments": (call("add", a="two", b=40), {}, None),
    "blocked": (
        call("add", a=2, b=40), {}, BeforeToolCallResult(block=True, reason="Ask first.")
    ),
    "it raises": (call("add", a=2, b=40), {"execute": _refuse}, None),
    "timeout": (call("add", a=2, b=40), {"execute": _wait_for_ever, "timeout": 0.01}, None),
    "abort": (call("add", a=2, b=40), {"execute": _abort}, None),
    "reply cut off": (
        faux_assistant_message([call("add", a=2, b=40)], stop_reason="length"), {}, None
    ),
}  # fmt: skip


def tool_path() -> str:
    """Draw which steps a call takes, by what becomes of it, and what the model reads."""
    columns: dict[str, list[str]] = {}
    read: dict[str, str] = {}
    for case, (reply, options, answer) in CASES.items():
        steps = Steps()
        prepare = steps.hook("prepare_arguments", lambda arguments: arguments)
        execute = steps.tool(options.get("execute", add))
        tool = adder(**{**options, "execute": execute, "prepare_arguments": prepare})
        agent = Agent(
            stream_fn=scripted_model(reply, "Done.", undeclared_calls=True),
            tools=[tool],
            before_tool_call=steps.hook("before_tool_call", answer),
            after_tool_call=steps.hook("after_tool_call"),
            after_tool_result=steps.hook("after_tool_result"),
        )
        agent.subscribe(steps.listen, events=ALL_EVENTS)
        current[:] = [agent]
        agent.prompt_sync("Add 2 and 40.")
        kinds = [hook or event for hook, event, _about in steps]
        start, end = kinds.index("tool_batch_start"), kinds.index("tool_batch_end")
        columns[case] = list(dict.fromkeys(map(_of_call, kinds[start + 1 : end])))
        [(_call, result)] = answered_calls(agent.state.messages)
        first, *more = result.text.split("\n")
        read[case] = first + " ..." * bool(more)
    order = columns["it runs"]
    for case, steps_of_case in columns.items():
        if steps_of_case != [step for step in order if step in steps_of_case]:
            raise AssertionError(f"{case} takes its steps in another order: {steps_of_case}")
    lines = ["| step | " + " | ".join(columns) + " |", "| --- |" + " :-: |" * len(columns)]
    for step in order:
        marks = ["●" if step in taken else "" for taken in columns.values()]
        lines.append(f"| {step} | " + " | ".join(marks) + " |")
    told = [f"- {case}: `{text}`" for case, text in read.items()]
    return "\n".join([*lines, "", "What the model reads as the result:", "", *told])


def _of_call(kind: str) -> str:
    ofs = {"message_start", "message_end"}
    return "the result's `message_start` and `message_end`" if kind in ofs else f"`{kind}`"


# ---------------------------------------------------------------------------- state


def written(logs: Iterable[Iterable[LogRecord]]) -> dict[str, list[str]]:
    """Say which events changed each field, in the order they did first; "you" is the host."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for records in logs:
        for record in records:
            for field in record.flat[::3]:
                found[field]["you" if record.type == "host_call" else record.type] = None
    return {field: list(writers) for field, writers in found.items()}


def state_table() -> str:
    """Draw who writes each field of the state, as documented and as seen."""
    seen = written([state_log()])
    lines = ["| field | writer | moment | seen in a log | row |", "| --- | --- | --- | --- | --- |"]
    for field in FIELDS:
        owner = field.owner.replace("host", "you").replace("runtime", "the run")
        owner = "nobody" if field.written.startswith("never") else owner
        moment = re.sub(
            r"\b(\w+_(?:start|end|update|idle))\b|(reset\(\))", r"`\1\2`", field.written
        )
        moment = moment.replace("by the host", "by you")
        names = ", ".join(
            name if name == "you" else f"`{name}`" for name in seen.get(field.name, ())
        )
        lines.append(f"| `{field.name}` | {owner} | {moment} | {names or '—'} | {field.source} |")
    return "\n".join(lines)


def state_log() -> Iterable[LogRecord]:
    """Run an agent in which every field changes, by you and by the run."""
    failure = ValueError("overloaded")
    model = scripted_model(call("add", a=2, b=40), "42.", failure, "Hello.", failure)
    agent = Agent(stream_fn=model)
    agent.state.tools = [adder()]
    agent.state.model = model.model
    agent.state.thinking_level = "low"
    for prompt in ("Add 2 and 40.", "Fail.", "Hello.", "Fail."):
        agent.prompt_sync(prompt)
    agent.reset()
    return agent.log


# ---------------------------------------------------------------------------- pages


def drawings() -> dict[str, str]:
    """Draw all of them, each as the Markdown that stands in its place."""

    def block(text: str) -> str:
        return f"```text\n{text}\n```"

    return {
        "plain-answer": block(event_tree(plain_answer().log)),
        "answer-with-tools": block(event_tree(answer_with_tools().log)),
        "request-pipeline": block(request_pipeline()),
        "tool-path": tool_path(),
        "state": state_table(),
    }


def redrawn(text: str, drawn: Mapping[str, str]) -> str:
    """Put drawings into their places.

    Raises:
        KeyError: A place is for a drawing that does not exist.
    """
    return PLACE.sub(lambda found: f"{found[1]}{drawn[found[2]]}\n{found[3]}", text)


def main() -> None:
    """Write every page that is out of date."""
    drawn = drawings()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := redrawn(text, drawn)) != text:
            page.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)} is drawn anew\n")


if __name__ == "__main__":
    main()
