"""Validate the arguments of a tool call against the tool's JSON Schema.

The way of a call: a plain copy of the arguments is checked by compiled closures
(`schema_checks`), which is all a valid call costs. Otherwise the copy is coerced (`coercion`)
and checked again; what still fails is explained by `schema_errors`, the only module that imports
jsonschema. Compiled schemas are cached by the schema object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from pi_agent_kernel.coercion import coerce
from pi_agent_kernel.errors import ToolArgumentsError, ToolNotFoundError
from pi_agent_kernel.json_value import thaw
from pi_agent_kernel.schema_checks import CheckCompiler, UndecidableSchemaError, json_type

if TYPE_CHECKING:
    from pi_agent_kernel.schema_checks import Check, Schema
    from pi_agent_kernel.schema_errors import SchemaValidator

__all__ = [
    "CheckedCall",
    "CheckedTool",
    "arguments_error",
    "is_valid",
    "validate_tool_arguments",
    "validate_tool_call",
]

_CACHED_SCHEMAS = 512


class CheckedTool(Protocol):
    """Name what validation reads of a tool."""

    @property
    def name(self) -> str:
        """The tool's name."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON Schema of its arguments."""
        ...


class CheckedCall(Protocol):
    """Name what validation reads of a tool call."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments as the model sent them."""
        ...

    @property
    def arguments_error(self) -> str | None:
        """Why the arguments could not be read, if so."""
        ...


class NamedCall(CheckedCall, Protocol):
    """Name what looking up a tool reads of a call."""

    @property
    def name(self) -> str:
        """The name of the tool the model asks for."""
        ...


_Tool = TypeVar("_Tool", bound=CheckedTool)


class _CompiledSchema:
    """Hold the checks of one schema object."""

    __slots__ = ("_compiler", "_python_formats", "_validator", "check", "plain", "source")

    def __init__(self, source: Any, *, python_formats: bool) -> None:
        self.source = source
        self.plain: Schema = thaw(source)
        self._python_formats = python_formats
        self._compiler = CheckCompiler(self.plain, python_formats=python_formats)
        self._validator: SchemaValidator | None = None
        self.check: Check | None = None
        # Otherwise not covered, or malformed in a way the validator describes better.
        with suppress(
            UndecidableSchemaError, RecursionError, TypeError, ValueError, AttributeError
        ):
            self.check = self._compiler.compile(self.plain)

    @property
    def validator(self) -> SchemaValidator:
        if self._validator is None:
            from pi_agent_kernel.schema_errors import (
                SchemaValidator,
            )

            self._validator = SchemaValidator(self.plain, python_formats=self._python_formats)
        return self._validator

    def is_valid(self, schema: Any, value: Any) -> bool:
        """Return whether `value` is valid for a schema that occurs in this one."""
        if self.check is None:
            return self.validator.is_valid(value, schema)
        return self._compiler.compile(schema)(value)


_compiled: dict[tuple[int, bool], _CompiledSchema] = {}


def _compile(schema: Any, *, python_formats: bool = False) -> _CompiledSchema:
    key = (id(schema), python_formats)
    found = _compiled.get(key)
    if found is not None and found.source is schema:
        return found
    while len(_compiled) >= _CACHED_SCHEMAS:
        del _compiled[next(iter(_compiled))]
    compiled = _compiled[key] = _CompiledSchema(schema, python_formats=python_formats)
    return compiled


def is_valid(schema: Mapping[str, Any], value: object) -> bool:
    """Return whether a plain JSON value is valid for a schema, without coercion."""
    compiled = _compile(schema)
    if compiled.check is not None and compiled.check(value):
        return True
    return not compiled.validator.errors(value)


def arguments_error(
    tool_name: str, arguments: object, problems: Iterable[tuple[str, str]]
) -> ToolArgumentsError:
    """Return the error that tells a model what is wrong with its arguments.

    Args:
        tool_name: Name of the tool.
        arguments: The arguments as the model sent them; shown as JSON.
        problems: Pairs of a dotted path ("root" for the whole value) and a message.

    Source: TL-05; the layout is exact, because models read it.
    """
    found = list(problems)
    lines = "\n".join(f"  - {path}: {message}" for path, message in found)
    received = json.dumps(thaw(arguments), indent=2, ensure_ascii=False, default=str)
    return ToolArgumentsError(
        f'Validation failed for tool "{tool_name}":\n{lines}\n\nReceived arguments:\n{received}',
        tuple(dict.fromkeys(path for path, _ in found)),
    )


def validate_tool_arguments(tool: CheckedTool, call: CheckedCall) -> dict[str, Any]:
    """Return the arguments of a call, coerced to the tool's schema and valid for it.

    Args:
        tool: Its `parameters` are a JSON Schema; local references only, nothing is fetched.
            Where it has a true `python_formats`, dates and times are those pydantic takes.
        call: Its `arguments` stay as they are; None counts as an empty object (B13).

    Returns:
        Plain dicts and lists that belong to the caller. Schema defaults are not inserted.

    Raises:
        ToolArgumentsError: The call carries `arguments_error`, or the arguments do not fit.

    Source: pi-ai 1.6.0, `validateToolArguments`; TL-05 to TL-08, DEVIATIONS 10.
    """
    if call.arguments_error is not None:
        message = f'Invalid arguments for tool "{tool.name}": {call.arguments_error}'
        raise ToolArgumentsError(message)
    received: Any = call.arguments
    if received is None:
        received = {}
    try:
        python_formats = getattr(tool, "python_formats", False) is True
        compiled = _compile(tool.parameters, python_formats=python_formats)
        arguments = thaw(received)
        if not isinstance(arguments, dict):
            problem = f"expected object, got {json_type(arguments)}"
            raise arguments_error(tool.name, arguments, [("root", problem)])
        valid = compiled.check is not None and compiled.check(arguments)
        if valid and not _has_whole_float(arguments):
            return cast("dict[str, Any]", arguments)
        return _coerced(tool.name, compiled, cast("dict[str, Any]", arguments))
    except RecursionError:
        message = f'Invalid arguments for tool "{tool.name}": they are nested too deeply'
        raise ToolArgumentsError(message) from None


def _has_whole_float(value: Any) -> bool:
    """Tell whether a valid value may still hold a 3.0 that a tool wants as 3."""
    if isinstance(value, dict):
        return any(map(_has_whole_float, cast("dict[str, Any]", value).values()))
    if isinstance(value, list):
        return any(map(_has_whole_float, cast("list[Any]", value)))
    return type(value) is float and value.is_integer()


def _coerced(name: str, compiled: _CompiledSchema, received: dict[str, Any]) -> dict[str, Any]:
    arguments = received
    # A malformed schema stops coercion; the validator says so.
    with suppress(UndecidableSchemaError, TypeError, ValueError, AttributeError):
        arguments = thaw(coerce(received, compiled.plain, compiled.is_valid))
    if compiled.check is not None and compiled.check(arguments):
        return arguments
    problems = compiled.validator.errors(arguments)
    if problems:
        raise arguments_error(name, received, problems)
    return arguments


def validate_tool_call(tools: Iterable[_Tool], call: NamedCall) -> dict[str, Any]:
    """Return the validated arguments of a call to one of `tools`.

    Raises:
        ToolNotFoundError: None of them has the call's name.
        ToolArgumentsError: As `validate_tool_arguments`.

    Source: pi-ai 1.6.0, `validateToolCall`.
    """
    for tool in tools:
        if tool.name == call.name:
            return validate_tool_arguments(tool, call)
    error = ToolNotFoundError(call.name)
    # This function's text has quotes, unlike the loop's (section 11 of the trace format).
    error.args = (f'Tool "{call.name}" not found',)
    raise error
