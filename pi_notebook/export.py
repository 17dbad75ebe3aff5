"""A conversation as a file to read or to run again: Markdown, a web page, a notebook.

.md      prompts as quotes, answers as they are, tool calls as code
.html    one page, light and dark, nothing loaded from elsewhere
.ipynb   one `%%agent` cell a prompt, with its output
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pi_agent_kernel.events import (
    AgentEnd,
    MessageEnd,
    ModelRequestStart,
    ToolExecutionEnd,
    TurnStart,
)
from pi_agent_kernel.messages import (
    AgentMessage,
    AssistantMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.tools import AgentToolResult

from pi_notebook.render.bundle import final_bundle, run_markdown
from pi_notebook.render.html import run_html, style
from pi_notebook.render.untrusted import clean
from pi_notebook.shown_text import without_secrets
from pi_notebook.snapshot import RunReducer, RunSnapshot

__all__ = ["export_conversation", "turns_of"]


@dataclass(frozen=True, slots=True)
class _Turn:
    prompt: str
    run: RunSnapshot


def export_conversation(messages: Sequence[AgentMessage], path: str | Path, *, agent: str) -> Path:
    """Write a conversation to a file.

    Args:
        messages: The transcript.
        path: Where to; the ending chooses the form. A file that is there is replaced.
        agent: Name of the agent.

    Returns:
        The absolute path.

    Raises:
        ValueError: The ending is none of those known.
        OSError: The file cannot be written.
    """
    file = Path(path).expanduser()
    write = _FORMS.get(file.suffix.lower())
    if write is None:
        raise ValueError(f"export writes {', '.join(_FORMS)}, not {file.suffix or file.name!r}")
    text = write(list(turns_of(messages, agent)), agent)
    file.write_text(text.encode("utf-8", "replace").decode(), encoding="utf-8", newline="\n")
    return file.resolve()


def turns_of(messages: Sequence[AgentMessage], agent: str) -> Iterator[_Turn]:
    """Divide a transcript at its prompts, each with the picture of what followed."""
    prompt, begun, reducer = "", False, RunReducer(agent, prompts=0)
    for message in messages:
        match message:
            case UserMessage():
                if begun:
                    yield _closed(prompt, reducer)
                prompt, begun = _written(message), True
                reducer = RunReducer(agent, prompts=0)
            case AssistantMessage():
                begun = True
                reducer.apply(TurnStart())
                reducer.apply(ModelRequestStart(model=message.model, message_count=0))
                reducer.apply(MessageEnd(message=message))
            case ToolResultMessage():
                reducer.apply(
                    ToolExecutionEnd(
                        tool_call_id=message.tool_call_id,
                        tool_name=message.tool_name,
                        result=AgentToolResult(content=tuple(message.content)),
                        is_error=message.is_error,
                        duration_ms=message.duration_ms,
                    )
                )
            case _:
                continue
    if begun:
        yield _closed(prompt, reducer)


def _written(message: UserMessage) -> str:
    """Return what a prompt says; its pictures are only named."""
    if isinstance(message.content, str):
        return message.content
    texts = [
        block.text if isinstance(block, TextContent) else "[image]" for block in message.content
    ]
    return "\n".join(texts)


def _closed(prompt: str, reducer: RunReducer) -> _Turn:
    reducer.apply(AgentEnd(messages=()))
    return _Turn(without_secrets(prompt), reducer.snapshot())


def _markdown(turns: Sequence[_Turn], agent: str) -> str:
    pieces = [f"# Conversation with {clean(agent)}"]
    for turn in turns:
        if turn.prompt:
            pieces.append("\n".join(f"> {line}".rstrip() for line in turn.prompt.split("\n")))
        pieces.append(run_markdown(turn.run))
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def _page(turns: Sequence[_Turn], agent: str) -> str:
    pieces: list[str] = []
    for turn in turns:
        if turn.prompt:
            prompt = f'<div class="pi-note" dir="auto">{html.escape(turn.prompt)}</div>'
            pieces.append(
                f'<div class="pi pi-run"><style>{style(prompt)}</style>\n{prompt}\n</div>'
            )
        pieces.append(run_html(turn.run))
    title = html.escape(f"Conversation with {clean(agent)}")
    return (
        '<!doctype html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_PAGE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(pieces)
        + "\n</main>\n</body>\n</html>\n"
    )


_PAGE = (
    ":root{color-scheme:light dark}body{margin:24px 16px}main{max-width:52rem;margin:0 auto}"
    "@media (prefers-color-scheme:dark){body{background:#0f1318}}"
)


def _notebook(turns: Sequence[_Turn], agent: str) -> str:
    import nbformat
    from nbformat import v4

    notebook = v4.new_notebook()
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    notebook.cells.append(v4.new_code_cell("%load_ext pi_notebook"))
    magic = "%%agent" if agent == "main" else f"%%agent --agent {agent}"
    for number, turn in enumerate(turns, 1):
        output = v4.new_output("display_data", data=final_bundle(turn.run))
        cell = v4.new_code_cell(f"{magic}\n{turn.prompt}", outputs=[output])
        cell.id = f"turn-{number}"  # the same conversation gives the same file
        notebook.cells.append(cell)
    notebook.cells[0].id = "load"
    return nbformat.writes(notebook) + "\n"


_FORMS: Mapping[str, Callable[[Sequence[_Turn], str], str]] = {
    ".md": _markdown,
    ".html": _page,
    ".ipynb": _notebook,
}
