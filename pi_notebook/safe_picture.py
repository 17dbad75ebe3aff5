"""Pictures without secrets, in all their texts."""

from __future__ import annotations

from dataclasses import replace

from pi_notebook.picture import Discarded, Note, Part, Retry, Text, Thinking
from pi_notebook.shown_text import without_secrets, without_secrets_json
from pi_notebook.tool_view import Output

__all__ = ["safe_output", "safe_part"]


def safe_part(part: Part, *, growing: bool = False) -> Part:
    """Take the secrets out of a part.

    Args:
        part: The part.
        growing: Whether the texts in it may be beginnings of longer ones.
    """
    if isinstance(part, Text | Thinking | Note | Discarded):
        return replace(part, text=without_secrets(part.text))
    if isinstance(part, Retry):
        return replace(part, reason=without_secrets(part.reason))
    progress = part.progress
    return replace(
        part,
        name=without_secrets(part.name),
        arguments=without_secrets_json(part.arguments, growing=growing),
        progress=progress and replace(progress, text=without_secrets(progress.text)),
        result=without_secrets(part.result),
        raised=part.raised and without_secrets(part.raised),
    )


def safe_output(output: Output, *, growing: bool = False) -> Output:
    """Take the secrets out of what a tool printed, displayed and returned.

    Args:
        output: The output.
        growing: Whether more may be printed.
    """
    value = output.value
    if value is not None:
        table = value.table
        if table is not None:
            table = replace(
                table,
                header=tuple(map(without_secrets, table.header)),
                rows=tuple(tuple(map(without_secrets, row)) for row in table.rows),
            )
        value = replace(value, kind=without_secrets(value.kind), table=table)
    return replace(
        output,
        printed=without_secrets(output.printed, growing=growing),
        displays=tuple(replace(one, text=without_secrets(one.text)) for one in output.displays),
        value=value,
    )
