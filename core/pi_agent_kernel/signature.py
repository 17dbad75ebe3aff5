"""Derive a tool's JSON Schema from a Python function, and its arguments from JSON.

Simple annotations (`str`, `int`, `float`, `bool`, `None`, `Any`, lists, dicts, unions and
literals of these) are translated here, without pydantic. All others are left to pydantic, in two
steps: it gives the schema, and, after the shared coercion and validation, turns plain JSON into
the annotated type (Enum, dataclass, model, datetime, Path, ...). Docstrings in Google, NumPy or
reST style give the description and those of the parameters; a `Field(description=)` wins.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
import typing
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Union, cast, get_args, get_origin

from pi_agent_kernel.tool_context import ToolContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FunctionSignature", "derive_signature", "without_titles"]

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    list: {"type": "array", "items": {}},
    dict: {"type": "object"},
    Any: {},
    object: {},
    inspect.Parameter.empty: {},
}
_LITERAL_TYPES = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
_Parameter = inspect.Parameter
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_CALL = "__call__"


class FunctionSignature:
    """Hold what a function's signature means for a tool.

    Attributes:
        name: The tool's name.
        description: The docstring without its sections.
        parameters: JSON Schema of the arguments.
        context: Name of the `ToolContext` parameter, if there is one.
    """

    __slots__ = (
        "_adapters",
        "_annotations",
        "_positional",
        "context",
        "description",
        "name",
        "parameters",
    )

    def __init__(
        self,
        *,
        name: str,
        description: str,
        parameters: dict[str, Any],
        context: str | None,
        positional: list[_Parameter],
        annotations: dict[str, Any],
    ) -> None:
        self.name: str = name
        self.description: str = description
        self.parameters: dict[str, Any] = parameters
        self.context: str | None = context
        self._positional = positional
        self._annotations = annotations
        self._adapters: dict[str, Any] | None = None

    def bind(self, tool_name: str, params: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments for a call of the function.

        Args:
            tool_name: For the text of an error.
            params: Validated arguments. Those that are missing get the function's defaults.

        Raises:
            ToolArgumentsError: A value does not fit the annotated type beyond its schema.
        """
        kwargs = dict(params)
        if self._annotations:
            self._convert(tool_name, kwargs, params)
        args: list[Any] = []
        missing: list[Any] = []
        for parameter in self._positional:
            if parameter.name in kwargs:
                args += [*missing, kwargs.pop(parameter.name)]
                missing = []
            else:
                missing.append(parameter.default)
        return args, kwargs

    def _convert(self, tool_name: str, kwargs: dict[str, Any], params: Mapping[str, Any]) -> None:
        """Turn plain JSON values into the annotated types, in place."""
        from pydantic import TypeAdapter, ValidationError

        if self._adapters is None:
            self._adapters = {
                name: TypeAdapter(annotation) for name, annotation in self._annotations.items()
            }
        problems: list[tuple[str, str]] = []
        for name, adapter in self._adapters.items():
            if name not in kwargs:
                continue
            try:
                kwargs[name] = adapter.validate_python(kwargs[name])
            except ValidationError as error:
                for problem in error.errors(include_url=False, include_context=False):
                    path = ".".join([name, *map(str, problem["loc"])])
                    problems.append((path, problem["msg"]))
        if problems:
            from pi_agent_kernel.schema import arguments_error

            raise arguments_error(tool_name, params, problems)


def derive_signature(function: Callable[..., Any], name: str | None = None) -> FunctionSignature:
    """Read a function as a tool.

    Args:
        function: A function, bound method, `functools.partial` or callable object.
        name: The tool's name; by default the function's.

    Raises:
        TypeError: It cannot be a tool; the text says why and what to change.
    """
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"A tool is made from a function, not from {function!r}.")
    tool_name = name if name is not None else _name_of(function)
    target = inspect.unwrap(cast("Any", getattr(function, "func", function)))
    called = function if inspect.isroutine(function) else _call_method(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        _refuse(tool_name, "it is a generator: report with ctx.update(...) and return the result")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{tool_name}() cannot be a tool: Python does not know its signature ({error}). "
            "Wrap it in a function of your own."
        ) from error
    hints = _Annotations(target, tool_name)
    documented, description = _read_docstring(function)
    properties: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    additional: Any = False
    context: str | None = None
    rich: dict[str, Any] = {}
    for position, parameter in enumerate(parameters):
        if position == 0 and parameter.name in ("self", "cls"):
            _refuse(tool_name, "it is a method without its object: use tool(obj.method)")
        if parameter.kind is _Parameter.VAR_POSITIONAL:
            _refuse(tool_name, f"*{parameter.name} has no names: use a list parameter instead")
        if parameter.annotation is _Parameter.empty and parameter.kind is not _VAR_KEYWORD:
            _refuse(tool_name, _says_no_type(parameter))
        annotation = hints.resolve(parameter)
        if _is_context(annotation):
            if parameter.kind is _Parameter.POSITIONAL_ONLY:
                _refuse(tool_name, f"{parameter.name} is positional only: move it behind '*'")
            context = parameter.name
            continue
        schema = _simple_schema(annotation)
        if parameter.kind is _VAR_KEYWORD:
            additional = schema or True
            continue
        properties[parameter.name] = {} if schema is None else dict(schema)
        if schema is None:
            rich[parameter.name] = annotation
        if parameter.default is not _Parameter.empty:
            defaults[parameter.name] = parameter.default
    definitions = _fill_rich(tool_name, properties, rich)
    for key, schema in properties.items():
        if key in defaults:
            _add_default(schema, defaults[key])
        if key in documented:
            schema.setdefault("description", documented[key])
    required = [name for name in properties if name not in defaults]
    return FunctionSignature(
        name=tool_name,
        description=description,
        parameters={
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": additional,
            **({"$defs": definitions} if definitions else {}),
        },
        context=context,
        positional=[item for item in parameters if item.kind is _Parameter.POSITIONAL_ONLY],
        annotations=rich,
    )


def _says_no_type(parameter: _Parameter) -> str:
    """Tell how to annotate, by the default's type if there is one."""
    name, default = parameter.name, parameter.default
    likely = "str" if default is _Parameter.empty or default is None else type(default).__name__
    return (
        f"the model is not told what {name!r} may be: write its type, such as {name}: {likely}, "
        f"or {name}: Any to take every value"
    )


def _call_method(instance: object) -> Any:
    """Return the plain function behind a callable object; a partial stands for itself."""
    method: Any = getattr(cast("object", type(instance)), _CALL, instance)
    return getattr(method, "__func__", method)


def _name_of(function: Any) -> str:
    found: Any = getattr(function, "__name__", None)
    if found is None and hasattr(function, "func"):
        found = getattr(function.func, "__name__", None)
    if not isinstance(found, str) or found == "<lambda>":
        raise TypeError(f"{function!r} has no name a model could use: pass tool(..., name=...).")
    return found


def _refuse(name: str, reason: str) -> NoReturn:
    raise TypeError(f"{name}() cannot be a tool: {reason}.")


def _is_context(annotation: Any) -> bool:
    if annotation is ToolContext:
        return True
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_context(item) for item in get_args(annotation))
    return False


class _Annotations:
    """Resolve annotations, also those written as text and those local to a function."""

    def __init__(self, target: Any, name: str) -> None:
        owner = getattr(target, "__func__", target)
        if not hasattr(owner, "__globals__"):
            owner = _call_method(target)
        self._name = name
        self._globals: dict[str, Any] = getattr(owner, "__globals__", {})
        self._locals = _callers_names()
        code = getattr(owner, "__code__", None)
        for variable, cell in zip(
            getattr(code, "co_freevars", ()),
            getattr(owner, "__closure__", None) or (),
            strict=False,
        ):
            try:
                self._locals[variable] = cell.cell_contents
            except ValueError:  # not yet assigned
                continue

    def resolve(self, parameter: _Parameter) -> Any:
        annotation = parameter.annotation
        if not _has_forward_references(annotation):
            return annotation
        text: object = annotation if isinstance(annotation, str) else None
        try:
            holder = types.SimpleNamespace(__annotations__={"value": annotation})
            hints = typing.get_type_hints(
                holder, globalns=self._globals, localns=self._locals, include_extras=True
            )
        except Exception as error:
            if isinstance(text, str) and re.search(r"\bToolContext\b", text):
                return ToolContext  # imported for type checkers only
            raise TypeError(
                f"{self._name}() cannot be a tool: the annotation {annotation!r} of "
                f"{parameter.name!r} cannot be resolved ({error}). Define or import the type "
                "before the function, at module level or in the same cell."
            ) from error
        return hints["value"]


def _has_forward_references(annotation: Any) -> bool:
    if isinstance(annotation, (str, typing.ForwardRef)):
        return True
    return get_origin(annotation) is not Literal and any(
        _has_forward_references(item) for item in get_args(annotation)
    )


def _callers_names() -> dict[str, Any]:
    """Return the local names where the tool is being made, outside this package."""
    frame = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - inspect.currentframe is the same, and optional
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(
        "pi_agent_kernel."
    ):
        frame = frame.f_back
    return dict(frame.f_locals)


def _simple_schema(annotation: Any) -> dict[str, Any] | None:
    """Return the schema of a simple annotation; None leaves it to pydantic."""
    try:
        known = _SIMPLE.get(annotation)
    except TypeError:  # not hashable
        return None
    if known is not None:
        return known
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is list:
        items = _simple_schema(args[0])
        return None if items is None else {"type": "array", "items": items}
    if origin is dict and args[0] is str:
        values = _simple_schema(args[1])
        if values is None:
            return None
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if origin in (Union, types.UnionType):
        branches = [_simple_schema(item) for item in args]
        return None if None in branches else {"anyOf": branches}
    if origin is Literal and all(type(item) in _LITERAL_TYPES for item in args):
        return _literal_schema(args)
    return None


def _literal_schema(members: tuple[Any, ...]) -> dict[str, Any]:
    kinds = {_LITERAL_TYPES[type(member)] for member in members}
    schema: dict[str, Any] = {"const": members[0]} if len(members) == 1 else {"enum": list(members)}
    if len(kinds) == 1:
        schema["type"] = kinds.pop()
    return schema


def _fill_rich(
    tool_name: str, properties: dict[str, Any], annotations: dict[str, Any]
) -> dict[str, Any]:
    """Fill in the schemas of the annotations left to pydantic; return their definitions."""
    if not annotations:
        return {}
    from pydantic import Field, PydanticUserError, TypeAdapter, create_model

    fields: dict[str, Any] = {}
    for index, (name, annotation) in enumerate(annotations.items()):
        try:
            TypeAdapter(annotation).json_schema()
        except (PydanticUserError, TypeError) as error:
            raise TypeError(
                f"{tool_name}() cannot be a tool: the type of {name!r} ({annotation!r}) has no "
                f"JSON form ({_first_line(error)}). Take a name, path or key instead and look "
                "the object up inside the function."
            ) from error
        # Not the parameter's own name: pydantic reserves some.
        fields[f"p{index}"] = (annotation, Field(alias=name))
    model = create_model("Arguments", **fields)
    schema = without_titles(model.model_json_schema(by_alias=True))
    for name in annotations:
        properties[name] = schema["properties"][name]
    return schema.get("$defs", {})


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _add_default(schema: dict[str, Any], default: Any) -> None:
    """Show a default in the schema, if JSON can say it; validation does not insert it."""
    pydantic_core = sys.modules.get("pydantic_core")  # loaded where types need it
    convert = getattr(pydantic_core, "to_jsonable_python", None)
    try:
        schema["default"] = json.loads(json.dumps(default, allow_nan=False, default=convert))
    except Exception:  # noqa: BLE001 - a default of any type; showing it is a courtesy
        schema.pop("default", None)


def without_titles(schema: Any) -> Any:
    """Return a schema without the `title`s pydantic makes from names: they only cost tokens."""
    if isinstance(schema, list):
        return [without_titles(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for keyword, value in cast("dict[str, Any]", schema).items():
        if keyword == "title" and isinstance(value, str):
            continue
        if keyword in ("const", "default", "enum", "examples"):
            result[keyword] = value
        elif keyword in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            members = cast("dict[str, Any]", value).items()
            result[keyword] = {name: without_titles(item) for name, item in members}
        else:
            result[keyword] = without_titles(value)
    return result


def _read_docstring(function: Any) -> tuple[dict[str, str], str]:
    """Return the descriptions of the parameters, and the text without its sections."""
    source = getattr(function, "func", function)
    raw = getattr(source, "__doc__", None)
    if not isinstance(raw, str) or (not inspect.isroutine(source) and raw == type(source).__doc__):
        return {}, ""
    text = inspect.cleandoc(raw)
    if "\n" not in text:
        return {}, text
    try:
        import docstring_parser

        parsed = docstring_parser.parse(text)
    except Exception:  # noqa: BLE001 - a docstring is free text; then all of it is the description
        return {}, text
    described = {
        item.arg_name.lstrip("*"): item.description.strip()
        for item in parsed.params
        if item.description
    }
    parts = [part.strip() for part in (parsed.short_description, parsed.long_description) if part]
    separator = "\n\n" if parsed.blank_after_short_description else "\n"
    return described, separator.join(parts)
