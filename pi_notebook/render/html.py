"""The HTML of a run: the answer is the page, tools and thinking are quiet folds, one footer.

Folds are `<details>`, so they work without script, also in a saved file. The style sheet's
sections that this very output needs come with it; without them the page still reads well, since
front ends strip styles from notebooks they do not trust.
"""

from __future__ import annotations

import html
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Protocol

from pi_notebook.render.markdown import markdown_html
from pi_notebook.render.untrusted import (
    LONGEST_ANSWER,
    bound,
    clean,
    first_line,
    json_text,
    signature,
)
from pi_notebook.snapshot import Discarded, Note, Retry, Text, Thinking, ToolRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pi_notebook.snapshot import Image, Output, Part, RunSnapshot, Table, Tokens

__all__ = ["Rendering", "footer_html", "part_html", "run_html", "style", "whole_style"]

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LONGEST_IMAGE = 4_000_000
#: A result up to this size is told by the summary alone.
LONGEST_SUMMARY = 72

PREFIX = ".pi.pi-run "

#: A rule, or a query with rules in it.
_RULE = re.compile(r"[^{}]+\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
#: What in the page asks for a section of the style sheet.
_SECTIONS = {
    "heading": re.compile("<h[1-6]"),
    "link": re.compile("<a "),
    "code": re.compile("<code|<pre"),
    "colors": re.compile('<span class="pi-(?:[ksmc][a-z0-9]?|n[fc])"'),
    "table": re.compile("<table"),
    "quote": re.compile("<blockquote"),
    "fold": re.compile("<details"),
    "label": re.compile('class="pi-label"'),
    "thought": re.compile('class="pi-thought"'),
    "image": re.compile("<img"),
    "again": re.compile('class="pi-again"'),
    "note": re.compile('class="pi-note"'),
    "problem": re.compile('class="pi-problem"'),
    "rows": re.compile('class="pi-rows"'),
    "live": re.compile('class="pi-(?:caret|bar)"|pi-live|pi-ask'),
}


class Rendering(Protocol):
    """**Protocol:** renders the Markdown of the part at a position."""

    def __call__(self, position: int, text: str, /) -> str:
        """Return the HTML."""
        ...


def run_html(run: RunSnapshot, *, render: Rendering | None = None) -> str:
    """Write a run as a piece of HTML with its style.

    Args:
        run: While its status is "running" the page has a caret, and durations of finished tools;
            a finished run's page holds nothing that differs from one execution to the next.
        render: How to render Markdown; afresh by default.
    """
    live = run.status == "running"
    pieces = [
        part_html(part, position, live=live, render=render)
        for position, part in enumerate(run.parts)
    ]
    if live:
        last = run.parts[-1] if run.parts else None
        if last is None or isinstance(last, Text):
            pieces[-1:] = [_with_caret(pieces[-1] if pieces else "")]
    if run.status == "error":
        pieces.append(
            f'<div class="pi-problem">{_text(bound(run.error or "the run failed"))}</div>'
        )
    pieces.append(footer_html(run))
    body = "\n".join(piece for piece in pieces if piece)
    # A reader that speaks hears a live answer as it grows, when it pauses.
    spoken = ' aria-live="polite"' if live else ""
    label = _text(f"agent {first_line(run.agent, 60)}")
    return (
        f'<div class="pi pi-run" role="group" aria-label="{label}"{spoken}>\n'
        f"<style>{style(body)}</style>\n{body}\n</div>"
    )


def whole_style() -> str:
    """Return all sections of the style sheet, for a page that changes."""
    return _joined(_sheet())


def style(body: str) -> str:
    """Return the sections of the style sheet that a page needs."""
    needed = [name for name, pattern in _SECTIONS.items() if pattern.search(body)]
    return _joined(["base", *needed])


def _joined(names: Iterable[str]) -> str:
    """Join sections, with the prefix that most of their rules have written once."""
    rules = [rule for name in names for rule in _RULE.findall(_sheet()[name])]
    inner = [rule.replace(PREFIX, "") for rule in rules if rule.startswith(PREFIX)]
    outer = [rule for rule in rules if not rule.startswith(PREFIX)]
    return f"{''.join(outer)}{PREFIX.strip()}{{{''.join(inner)}}}"


@cache
def _sheet() -> Mapping[str, str]:
    source = resources.files("pi_notebook.render").joinpath("style.css").read_text("utf-8")
    sections: dict[str, str] = {}
    for section in source.split("/*@")[1:]:
        name, _, rules = section.partition("*/")
        rules = re.sub(r"/\*.*?\*/", "", rules, flags=re.DOTALL)
        rules = re.sub(r"\s*([{};,>])\s*", r"\1", re.sub(r"\s+", " ", rules))
        sections[name] = re.sub(r": (?=[^{}]*[;}])", ":", rules).replace(";}", "}").strip()
    return sections


def _text(text: str) -> str:
    """Escape a clean text."""
    return html.escape(text)


def part_html(part: Part, position: int, *, live: bool, render: Rendering | None = None) -> str:
    """Write one part of a run."""
    match part:
        case Text(text=text):
            text = bound(text, LONGEST_ANSWER)
            answer = markdown_html(text) if render is None else render(position, text)
            return f'<div class="pi-answer" dir="auto">{answer.strip()}</div>'
        case Thinking(text=text):
            return (
                '<details class="pi-fold"><summary>thinking</summary>\n'
                f'<div class="pi-thought" dir="auto">{_text(bound(text).strip())}</div></details>'
            )
        case Note(text=text):
            return f'<div class="pi-note" dir="auto">{_text(bound(text).strip())}</div>'
        case Discarded(text=""):
            return ""
        case Discarded(text=text):
            return (
                '<details class="pi-fold"><summary>text of the attempt that failed</summary>\n'
                f'<div class="pi-thought" dir="auto">{_text(bound(text).strip())}</div></details>'
            )
        case Retry():
            return _retry_html(part, live=live)
        case ToolRun():
            return _tool_html(part, live=live)


def _retry_html(retry: Retry, *, live: bool) -> str:
    wait = retry.wait_ms if live else None
    soon = f" in {max(1, round(wait / 1000))} s" if wait is not None else ""
    line = f"{retry.reason}, trying again{soon} ({retry.attempt} of {retry.max_attempts})"
    return f'<div class="pi-again">{_text(line)}</div>'


def _tool_html(tool: ToolRun, *, live: bool) -> str:
    name = _text(first_line(tool.name, 60)) or "tool"
    short = signature(tool.arguments)
    result = bound(tool.result.strip("\n"))
    head = f"<b>{name}</b>"
    if short:
        head += f' <span class="pi-sig">{_text(short)}</span>'
    state, end, body, is_open = "", "", "", False
    match tool.state:
        case "announced":
            state = "live" if live else ""
            end = "writes its arguments" if live else "not run"
        case "running":
            state = "live" if live else ""
            end, body, is_open = _progress_html(tool, live=live)
        case "waiting":
            state = "ask"
            end = f"waits for you: %agent approve {tool.approval}" if live else "was not approved"
        case "ok":
            state = "ok"
            end = f"✓ {first_line(result, LONGEST_SUMMARY)}".strip()
        case "error":
            state = "bad"
            end = f"✗ {first_line(result)}".strip()
    if "…" in short and not live:
        body += (
            f'\n<div class="pi-label">arguments</div><pre>{_text(json_text(tool.arguments))}</pre>'
        )
    output = tool.output
    body += _output_html(output, live=live)
    is_open = is_open or any(one.image for one in output.displays)
    value = output.value
    if value is not None and value.table is not None and tool.state == "ok":
        end, is_open = f"✓ {first_line(value.kind, LONGEST_SUMMARY)}", True
        body += _table_html(value.table)
    elif result and ("\n" in result or len(result) > LONGEST_SUMMARY):
        body += f"\n<pre>{_text(result)}</pre>"
    if tool.raised:
        body += f'\n<div class="pi-label">{_text(first_line(tool.raised, 300))}</div>'
    body += "".join(_image_html(image, live=live) for image in tool.images)
    if value is not None:
        body += f'\n<div class="pi-label">whole object: <code>{_text(value.name)}</code></div>'
    if tool.images and not result:
        end += " image" if len(tool.images) == 1 else f" {len(tool.images)} images"
        is_open = True
    if live and tool.duration_ms is not None:
        end += f" · {tool.duration_ms / 1000:.2f} s"
    classes = f"pi-fold pi-{state}" if state else "pi-fold"
    return (
        f'<details class="{classes}"{" open" if is_open else ""}>'
        f'<summary>{head} <span class="pi-end">{_text(end)}</span></summary>{body}</details>'
    )


def _output_html(output: Output, *, live: bool) -> str:
    """Show what a tool printed and displayed."""
    printed = bound(output.printed.rstrip("\n"))
    body = f"\n<pre>{_text(printed)}</pre>" if printed else ""
    for place, one in enumerate(output.displays):
        if output.left_out and 2 * place == len(output.displays):
            body += f'\n<div class="pi-label">… {output.left_out} displays left out …</div>'
        if one.image is not None:
            body += _image_html(one.image, live=live)
        elif one.text.strip():
            body += f"\n<pre>{_text(bound(one.text))}</pre>"
    return body


def _table_html(table: Table) -> str:
    head = "".join(f'<th scope="col">{_text(clean(name))}</th>' for name in table.header)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_text(clean(cell))}</td>' for cell in row)}</tr>"
        for row in table.rows
    )
    more = [
        f"{count:,} more {what}".replace(",", "\u202f")
        for count, what in ((table.more_rows, "rows"), (table.more_columns, "columns"))
        if count
    ]
    note = f'\n<div class="pi-label">… {", ".join(more)}</div>' if more else ""
    return f"\n<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{note}"


def _progress_html(tool: ToolRun, *, live: bool) -> tuple[str, str, bool]:
    """Show what a tool reported: its last line in the summary, a bar, the text below."""
    if not live:
        return "did not finish", "", False
    progress = tool.progress
    if progress is None:
        last = first_line(tool.output.printed.rstrip("\n").rsplit("\n", 1)[-1], LONGEST_SUMMARY)
        return last or "runs", "", bool(last)
    text = bound(progress.text.strip("\n"))
    body = f"\n<pre>{_text(text)}</pre>" if "\n" in text else ""
    end = first_line(text.rsplit("\n", 1)[-1], LONGEST_SUMMARY) or "runs"
    if progress.fraction is not None:
        percent = round(progress.fraction * 100)
        end = f"{percent} % · {end}" if text else f"{percent} %"
        body = f'<div class="pi-bar"><i style="width:{percent}%"></i></div>{body}'
    return end, body, True


def _image_html(image: Image, *, live: bool) -> str:
    fits = (
        image.mime_type in IMAGE_TYPES
        and len(image.data) <= LONGEST_IMAGE
        and _BASE64.fullmatch(image.data) is not None
    )
    if live or not fits:  # while the run goes on, an image would be sent again and again
        return f'\n<div class="pi-label">{_text(first_line(image.mime_type, 40))}</div>'
    return f'\n<img alt="image of the tool" src="data:{image.mime_type};base64,{image.data}">'


def footer_html(run: RunSnapshot) -> str:
    """Write the line below a run: how it stands, its model, its tokens."""
    match run.status, run.stop_reason:
        case "running", _:
            state, words = "live", f"turn {run.turns}" if run.turns else "starting"
        case "aborted", _:
            state, words = "warn", "aborted"
        case "error", _:
            state, words = "bad", "error"
        case _ if any(remark.startswith("stopped:") for remark in run.remarks):
            state, words = "warn", "paused"
        case _, "stop" | "toolUse" | None:
            state, words = "ok", "done"
        case _, reason:
            state, words = "warn", f"stopped: {reason}"
    items = [f'<span class="pi-state pi-{state}">{_text(words)}</span>']
    if run.model:
        items.append(f"<span>{_text(clean(first_line(run.model, 80)))}</span>")
    if run.turns and run.status != "running":
        items.append(f"<span>{run.turns} turn{'' if run.turns == 1 else 's'}</span>")
    tokens = _tokens(run.tokens)
    if tokens:
        items.append(f"<span>{tokens}</span>")
    items += [f"<span>{_text(clean(remark))}</span>" for remark in run.remarks]
    return f'<div class="pi-foot">{" · ".join(items)}</div>'


def _tokens(tokens: Tokens) -> str:
    if not tokens.input and not tokens.output and not tokens.cache_read:
        return ""
    cached = f" ({_number(tokens.cache_read)} cached)" if tokens.cache_read else ""
    read = tokens.input + tokens.cache_read + tokens.cache_write
    return f"{_number(read)} in{cached} · {_number(tokens.output)} out"


def _number(count: int) -> str:
    return f"{count:,}".replace(",", "\u202f")


def _with_caret(answer: str) -> str:
    caret = '<span class="pi-caret"></span>'
    if answer.endswith("</p></div>"):
        return f"{answer[: -len('</p></div>')]}{caret}</p></div>"
    return answer + caret
