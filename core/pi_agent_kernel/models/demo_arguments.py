"""How the demo model finds the arguments of a tool call in a prompt.

Parameters are filled in the order of the schema, each by the first rule that gives a value of
its type; a value is used once. Optional parameters without a value are left to their defaults.

| value | taken for |
| --- | --- |
| `name=value`, `name: value` | the parameter of that name |
| a value of the enum that the prompt mentions | a parameter with an enum |
| `true`, `false`, or the parameter's name ("without NAME" is false) | boolean |
| numbers, also "two" to "twelve"; the result of the step before | integer, number |
| all numbers, all quoted texts, all capitalised names, a list with commas | array |
| an object in JSON | object |
| quoted text | string |
| an arithmetic expression | a string parameter called expression, code, formula ... |
| capitalised words that do not begin a sentence | string |
| words after a colon, after "in", "for", "of" ..., after the tool's name | a required string |
| the result of the step before; a capitalised first word | a required string |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pi_agent_kernel.messages import Tool

__all__ = [
    "expression_in",
    "find_arguments",
    "parameters_of",
    "steps_of",
    "takes_expression",
    "words_of",
]

Schema = Mapping[str, Any]

# Two numbers with an operator between, and what continues it.
_EXPRESSION = re.compile(r"[(\d][\d\s().]*(?:(?:\*\*|//|[-+*/%^])\s*[\d\s().]*\d[\d\s().]*)+")

_STOP_WORD = re.compile(
    "a|an|and|are|as|at|be|by|call|can|could|do|does|for|from|get|give|given|has|have|how|i|if|in"
    "|into|is|it|its|let|me|my|now|of|on|or|our|please|run|show|so|some|tell|than|that|the|their"
    "|them|then|there|these|this|to|tool|up|us|use|using|value|was|we|what|when|where|which|who"
    "|will|with|would|you|your"
)
_NUMBER_WORDS = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
}
_MAX_PROMPT = 20_000  # characters that are looked at
_MAX_EXPRESSION = 500
_BETWEEN_STEPS = re.compile(r"[,;.]?\s+(?:and\s+)?then\s+|;\s+", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w])")
_QUOTED = re.compile(r'"([^"]*)"|`([^`]*)`|(?<!\w)\'([^\']*)\'(?!\w)')
_CAPITALISED = re.compile(r"\b[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*")
_AFTER = re.compile(
    r"\b(?:in|for|of|at|about|to|on|from|with)\s+(?:the\s+)?([^,;.?!]+)", re.IGNORECASE
)
_EXPRESSION_NAMES = ("expression", "expr", "code", "formula", "source", "python")


def parameters_of(tool: Tool) -> dict[str, Schema]:
    """Return the schema of each parameter, references and unions with null resolved."""
    fields: Mapping[str, Any] = tool.parameters.get("properties") or {}
    return {name: _resolved(field, tool.parameters) for name, field in fields.items()}


def expression_in(text: str) -> str | None:
    """Return the arithmetic expression near the beginning of a text, if there is one."""
    match = _EXPRESSION.search(text[:_MAX_EXPRESSION])
    return match.group().strip() if match else None


def steps_of(prompt: str) -> list[str]:
    """Split a prompt at "then" and ";" outside quotes."""
    prompt = prompt[:_MAX_PROMPT].replace("“", '"').replace("”", '"')
    quoted = [match.span() for match in _QUOTED.finditer(prompt)]
    steps: list[str] = []
    start = 0
    for match in _BETWEEN_STEPS.finditer(prompt):
        if not any(begin < match.start() < end for begin, end in quoted):
            steps.append(prompt[start : match.start()])
            start = match.end()
    return [step for step in (*steps, prompt[start:]) if step.strip()]


def takes_expression(parameter: str) -> bool:
    """Say whether a parameter of this name is for an expression."""
    return any(name in parameter.lower() for name in _EXPRESSION_NAMES)


def words_of(text: str) -> set[str]:
    """Return the words that say something, without common endings."""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
    return {_stem(word) for word in words if len(word) > 1 and not _STOP_WORD.fullmatch(word)}


def find_arguments(
    step: str, tool: Tool, before: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Find a call's arguments in one step of a prompt.

    Args:
        step: The prompt, or the part of it that asks for this call.
        tool: The tool to call.
        before: The result of the step before.

    Returns:
        The arguments, and the required parameters that got none.
    """
    search = _Search(step, tool, before)
    return search.arguments, search.missing


class _Search:
    def __init__(self, step: str, tool: Tool, before: str | None) -> None:
        self._tool = tool
        self._before = before
        self._fields = parameters_of(tool)
        self._required: set[str] = set(tool.parameters.get("required") or ())
        self.arguments: dict[str, Any] = {}
        self._text = self._take_named(step)
        self._quoted = [
            next(group for group in match.groups() if group is not None)
            for match in _QUOTED.finditer(self._text)
        ]
        self._bare = _QUOTED.sub(" ", self._text)
        self._numbers = self._find_numbers()
        self._own_words = words_of(f"{tool.name.replace('_', ' ')} {tool.description}")
        self._names, self._doubtful = self._find_names()
        for name, field in self._fields.items():
            if name not in self.arguments:
                found, value = self._find(name, field)
                if found:
                    self.arguments[name] = value
        # In the schema's order, whichever rule found them.
        self.arguments = {n: self.arguments[n] for n in self._fields if n in self.arguments}
        self.missing = [
            name for name in self._fields if name in self._required - self.arguments.keys()
        ]

    def _take_named(self, step: str) -> str:
        """Take `name=value` pairs out of the text."""
        for name, field in self._fields.items():
            value = r"\"[^\"]*\"|'[^']*'|`[^`]*`|\[[^\]]*\]|\{.*\}|[^\s,;]+"
            pattern = rf"\b{re.escape(name)}\s*(?:=|:)\s*({value})"
            match = re.search(pattern, step, re.IGNORECASE)
            if match is not None:
                found, read = _read(match.group(1), field)
                if found:
                    self.arguments[name] = read
                    step = step[: match.start()] + " " + step[match.end() :]
        return step

    def _find_numbers(self) -> list[float | int]:
        numbers: list[tuple[int, float | int]] = [
            (match.start(), _number(match.group())) for match in _NUMBER.finditer(self._bare)
        ]
        numbers.extend(
            (match.start(), _NUMBER_WORDS[match.group()])
            for match in re.finditer(r"[a-z]+", self._bare.lower())
            if match.group() in _NUMBER_WORDS
        )
        found = [number for _, number in sorted(numbers)]
        if self._before is not None:
            wanted = [f for n, f in self._fields.items() if n in self._required and _numeric(f)]
            result = _NUMBER.findall(self._before)
            if result and len(found) < len(wanted):
                found.insert(0, _number(result[-1]))
        return found

    def _find_names(self) -> tuple[list[str], list[str]]:
        """Find capitalised words; those that may only begin a sentence come apart."""
        names: list[str] = []
        doubtful: list[str] = []
        for match in _CAPITALISED.finditer(self._bare):
            words = match.group().split()
            begins = self._bare[: match.start()].rstrip()[-1:] in ("", *".!?:\n")
            if begins and not _STOP_WORD.fullmatch(words[0].lower()):
                doubtful.append(words[0])
            if begins or _STOP_WORD.fullmatch(words[0].lower()):
                del words[0]
            if words:
                names.append(" ".join(words))
        return names, [word for word in doubtful if not words_of(word) <= self._own_words]

    def _find(self, name: str, field: Schema) -> tuple[bool, Any]:
        if "const" in field:
            return True, field["const"]
        if "enum" in field:
            return self._find_choice(field)
        finders: dict[Any, Callable[[str, Schema], tuple[bool, Any]]] = {
            "boolean": self._find_boolean,
            "integer": self._find_number,
            "number": self._find_number,
            "array": self._find_list,
            "object": self._find_object,
        }
        return finders.get(field.get("type"), self._find_string)(name, field)

    def _find_choice(self, field: Schema) -> tuple[bool, Any]:
        for value in field["enum"]:
            if re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", self._text, re.IGNORECASE):
                return True, value
        return False, None

    def _find_boolean(self, name: str, _field: Schema) -> tuple[bool, Any]:
        spoken = name.replace("_", " ")
        if re.search(rf"\b(?:no|not|without)\s+{re.escape(spoken)}\b", self._bare, re.IGNORECASE):
            return True, False
        if re.search(rf"\b{re.escape(spoken)}\b", self._bare, re.IGNORECASE):
            return True, True
        said = re.search(r"\b(true|false)\b", self._bare, re.IGNORECASE)
        return (True, said.group().lower() == "true") if said else (False, None)

    def _find_number(self, _name: str, field: Schema) -> tuple[bool, Any]:
        whole = field.get("type") == "integer"
        for index, number in enumerate(self._numbers):
            if not whole or number == int(number):
                del self._numbers[index]
                return True, int(number) if whole else number
        return False, None

    def _find_list(self, _name: str, field: Schema) -> tuple[bool, Any]:
        items = _resolved(field.get("items") or {}, self._tool.parameters)
        found: list[Any] = []
        if _numeric(items):
            found, self._numbers = list(self._numbers), []
        elif self._quoted:
            found, self._quoted = list(self._quoted), []
        elif self._names:
            found, self._names = list(self._names), []
        elif (after := re.search(r":\s*(.+)$", self._bare)) and "," in after.group(1):
            found = [part.strip(" .") for part in after.group(1).split(",")]
        elif self._numbers and items.get("type") != "string":
            found, self._numbers = list(self._numbers), []
        return bool(found), found

    def _find_object(self, _name: str, _field: Schema) -> tuple[bool, Any]:
        start = self._text.find("{")
        if start < 0:
            return False, None
        try:
            return True, json.JSONDecoder().raw_decode(self._text[start:])[0]
        except ValueError:
            return False, None

    def _find_string(self, name: str, field: Schema) -> tuple[bool, Any]:
        if self._quoted:
            return True, self._quoted.pop(0)
        expression = expression_in(self._bare) if takes_expression(name) else None
        if expression:
            return True, expression
        if self._names:
            return True, self._names.pop(0)
        if name not in self._required:
            return False, None
        spoken = re.escape(self._tool.name).replace("_", "[ _]")
        for pattern in (
            re.compile(r":\s*(\S.*)$", re.DOTALL),
            _AFTER,
            re.compile(rf"\b{spoken}\b\s+([^?!]*[^?!.\s])", re.IGNORECASE),
        ):
            if after := pattern.search(self._bare):
                said = re.sub(rf"^(?:the\s+)?(?:{re.escape(name)}\s+)?", "", after.group(1))
                return True, re.sub(r"\s+(?:now|please|today)$", "", said.strip())
        if self._before is not None:
            return True, self._before
        if self._doubtful:
            return True, self._doubtful.pop(0)
        if "type" not in field and self._numbers:
            return True, self._numbers.pop(0)
        return False, None


def _resolved(field: Any, root: Any) -> Schema:
    """Follow a reference, take the first choice that is not null."""
    for _ in range(8):
        schema = _mapping(field)
        reference = schema.get("$ref")
        choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if isinstance(reference, str) and reference.startswith("#/"):
            field = root
            for part in reference[2:].split("/"):
                field = _mapping(field).get(part)
        elif choices:
            field = next((one for one in choices if _mapping(one).get("type") != "null"), None)
        else:
            break
    field = _mapping(field)
    kind = field.get("type")
    if isinstance(kind, list):
        named = [name for name in cast("list[str]", kind) if name != "null"]
        return {**field, "type": named[0] if named else "null"}
    return field


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _read(text: str, field: Schema) -> tuple[bool, Any]:
    """Read a value that was given by name."""
    kind = field.get("type")
    bare = text.strip("\"'`")
    if kind in ("string", None) and not (kind is None and _NUMBER.fullmatch(bare)):
        ending = bare if bare != text else bare.rstrip("?!")
        return True, ending[:-1] if bare == text and ending.endswith(".") else ending
    bare = bare.rstrip(".?!")
    if kind in ("integer", "number", None):
        if not _NUMBER.fullmatch(bare):
            return False, None
        number = _number(bare)
        return True, int(number) if kind == "integer" and number == int(number) else number
    try:
        return True, json.loads(bare.lower() if kind == "boolean" else text)
    except ValueError:
        return False, None


def _number(text: str) -> float | int:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _numeric(field: Schema) -> bool:
    return field.get("type") in ("integer", "number")


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
