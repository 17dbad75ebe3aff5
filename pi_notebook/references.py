"""Values and functions of the notebook in a prompt: `` $`expr` `` and `` &`name` ``.

`` $`expr` `` stands for what a Python expression is worth now: a text form of bounded size, or a
picture. `` &`name` `` offers a function as a tool for this cell. Everything else of a prompt stays
as it was written. A name that is not there, or an expression that raises, is an error before
anything is sent.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pi_agent_kernel.messages import ImageContent, TextContent
from pi_agent_kernel.tool_results import convert_tool_result
from pi_agent_kernel.tools import AgentTool
from pi_agent_kernel.tools import tool as make_tool

__all__ = ["LONGEST_VALUE", "References", "expand_references", "near", "text_form"]

#: Characters of one value; a longer one is cut, and says so.
LONGEST_VALUE = 8_000
ROWS = 10

_REFERENCE = re.compile(r"([$&])`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class References:
    """Hold a prompt in which every reference has been replaced."""

    content: tuple[TextContent | ImageContent, ...]
    tools: tuple[AgentTool, ...] = ()


def expand_references(prompt: str, namespace: Mapping[str, Any]) -> References:
    """Replace the references of a prompt.

    Args:
        prompt: The text of a cell.
        namespace: The notebook's names.

    Returns:
        Text, cut where a picture stands, and the tools that were named, each once.

    Raises:
        ValueError: A reference cannot be resolved; the message names it and the reason.
    """
    content: list[TextContent | ImageContent] = []
    tools: dict[str, AgentTool] = {}
    text: list[str] = []
    end = 0

    def close() -> None:
        joined = "".join(text)
        if joined:
            content.append(TextContent(text=joined))
        text.clear()

    for found in _REFERENCE.finditer(prompt):
        text.append(prompt[end : found.start()])
        end = found.end()
        kind, what = found[1], found[2].strip()
        if kind == "&":
            offered = _tool(what, namespace)
            tools[offered.name] = offered
            text.append(f"`{offered.name}`")
            continue
        for piece in _value(found[0], what, namespace):
            if isinstance(piece, str):
                text.append(piece)
            else:
                close()
                content.append(piece)
    text.append(prompt[end:])
    close()
    return References(tuple(content), tuple(tools.values()))


def _value(
    written: str, expression: str, namespace: Mapping[str, Any]
) -> Iterator[str | ImageContent]:
    """Give the pieces that stand for an expression."""
    try:
        code = compile(expression, written, "eval")
        value = eval(code, dict(namespace))  # noqa: S307 - the user's own expression
    except NameError as error:
        raise ValueError(f"{written}: {error}{near(error.name, namespace)}") from None
    except SyntaxError as error:
        raise ValueError(
            f"{written} is no Python expression: {error.msg} (--raw sends it as it is written)"
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the expression raises
        raise ValueError(f"{written}: {type(error).__name__}: {error}") from None
    if isinstance(value, str):
        yield _bounded(value)
        return
    try:
        described = text_form(value)
    except Exception:  # noqa: BLE001 - it only looked like a table
        described = None
    if described is not None:
        yield described
        return
    blocks = convert_tool_result(value).content or ()
    pictures = [block for block in blocks if isinstance(block, ImageContent)]
    if pictures:
        yield from pictures
    else:
        yield _bounded(_repr(value))


def text_form(value: Any) -> str | None:
    """Describe a table or an array; None for what is neither.

    A table (pandas, polars) gives its shape, its columns with their types and its first rows; an
    array (numpy) its shape, its type, a summary of its numbers and its first values.
    """
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or isinstance(value, type):
        return None
    size = " x ".join(str(length) for length in shape) or "one value"
    kind = type(value).__name__
    if hasattr(value, "columns") and hasattr(value, "head"):
        return _bounded(f"{kind} of {size} (rows x columns)\n{_columns(value)}\n{_head(value)}")
    if hasattr(value, "head") and hasattr(value, "dtype"):
        return _bounded(f"{kind} of {size} values, {value.dtype}\n{_head(value)}")
    if hasattr(value, "dtype"):
        return _bounded(f"{kind} of {size}, {value.dtype}{_summary(value)}\n{_repr(value)}")
    return None


def _columns(table: Any) -> str:
    types = getattr(table, "dtypes", None)
    kinds = list(types) if types is not None else []
    names = list(table.columns)
    if len(kinds) != len(names):
        return f"columns: {', '.join(map(str, names))}"
    return "columns: " + ", ".join(
        f"{name} ({kind})" for name, kind in zip(names, kinds, strict=True)
    )


def _head(table: Any) -> str:
    head = table.head(ROWS)
    text = getattr(head, "to_string", None)
    shown = str(text()) if callable(text) else str(head)
    more = table.shape[0] - ROWS
    return f"{shown}\n… {more} more rows" if more > 0 else shown


def _summary(array: Any) -> str:
    try:
        if not array.size:
            return ", empty"
        return f", min {array.min():.6g}, mean {array.mean():.6g}, max {array.max():.6g}"
    except (TypeError, ValueError, AttributeError):
        return ""  # no numbers


def _tool(name: str, namespace: Mapping[str, Any]) -> AgentTool:
    value = namespace.get(name)
    if value is None and name not in namespace:
        raise ValueError(f"&`{name}`: there is no function {name!r}{near(name, namespace)}")
    if isinstance(value, AgentTool):
        return value
    if not callable(value) or isinstance(value, type):
        raise ValueError(  # noqa: TRY004 - one error for all references
            f"&`{name}` is {type(value).__name__}, not a function; $`{name}` inserts its value"
        )
    try:
        return make_tool(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"&`{name}` cannot be a tool: {error}") from None


def near(name: str | None, namespace: Mapping[str, Any]) -> str:
    """Return a hint at the name that was meant, if one is close."""
    known = [each for each in namespace if not each.startswith("_")]
    close = difflib.get_close_matches(name or "", known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _repr(value: object) -> str:
    from IPython.lib.pretty import pretty

    try:
        return pretty(value)  # a long sequence is cut
    except Exception as error:  # noqa: BLE001 - the value's own fault, and no reason to stop
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def _bounded(text: str) -> str:
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[:LONGEST_VALUE]}… (cut: {len(text)} characters)"
