"""An answer as a value of a type: `%%agent --output TYPE`.

The model is told the JSON Schema of the type with the prompt. What it answers is validated; an
answer that does not fit goes back once, with what is wrong with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from pi_notebook.errors import AgentFailed
from pi_notebook.references import near

__all__ = ["TypedOutput", "find_output"]

#: What is wrong with an answer is told up to here.
PROBLEMS = 5
LONGEST_PROBLEM = 200

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)^ {0,3}\1", re.DOTALL | re.MULTILINE)


class TypedOutput:
    """Ask for an answer of a type, and read it.

    Args:
        kind: A pydantic model, a dataclass, a TypedDict, or any type that pydantic knows.
        name: How errors call it.

    Raises:
        ValueError: pydantic cannot make a JSON Schema of it.
    """

    def __init__(self, kind: Any, name: str = "") -> None:
        self.name = name or getattr(kind, "__name__", None) or str(kind)
        from pydantic import TypeAdapter

        try:
            self._adapter: Any = TypeAdapter(kind)
            self._schema = self._adapter.json_schema()
        except Exception as error:  # noqa: BLE001 - pydantic has many
            reason = str(error).partition("\n")[0]
            raise ValueError(f"--output {self.name} is no type for an answer: {reason}") from None

    @property
    def instruction(self) -> str:
        """What the model is told with the prompt."""
        schema = json.dumps(self._schema, ensure_ascii=False)
        return (
            "(Give your final answer as JSON that fits this JSON Schema, and nothing beside it: "
            f"no explanation, no code fence.)\n{schema}"
        )

    def read(self, answer: str) -> Any:
        """Return the value of an answer.

        Raises:
            ValueError: It does not fit; the message says where.
        """
        from pydantic import ValidationError

        problem: ValidationError | None = None
        for text in _candidates(answer):
            try:
                return self._adapter.validate_json(text)
            except ValidationError as error:
                is_json = error.errors()[0]["type"] != "json_invalid"
                if problem is None or is_json:
                    problem = error
                if is_json:
                    break
        if self._schema.get("type") == "string":
            try:
                return self._adapter.validate_python(answer)
            except ValidationError as error:
                problem = error
        raise ValueError(_told(problem))

    async def ask(
        self, work: Callable[[Any], Awaitable[None]], prompt: Any, answer: Callable[[], str | None]
    ) -> None:
        """Prompt, and once more with what is wrong with the answer.

        Args:
            work: Prompts the agent.
            prompt: What to begin with.
            answer: Returns the answer; None if the run did not come to its end.
        """
        await work(prompt)
        given = answer()
        if given is None:
            return
        try:
            self.read(given)
        except ValueError as error:
            await work(
                f"That answer does not fit the JSON Schema: {error}. Give it again, as JSON."
            )

    def value(self, answer: str) -> Any:
        """Return the value of the last answer.

        Raises:
            AgentFailed: It does not fit.
        """
        try:
            return self.read(answer)
        except ValueError as error:
            raise AgentFailed(
                f"the answer is no {self.name}: {error} (its text is in pi.agent.answer)"
            ) from None


def find_output(expression: str, names: Mapping[str, Any]) -> TypedOutput:
    """Find the type that `--output` names.

    Raises:
        ValueError: There is no such name, or it is no type for an answer.
    """
    try:
        kind = eval(compile(expression, "--output", "eval"), dict(names))  # noqa: S307
    except NameError as error:
        raise ValueError(f"--output {expression}: {error}{near(error.name, names)}") from None
    except Exception as error:  # noqa: BLE001 - whatever the user's expression raises
        raise ValueError(f"--output {expression}: {type(error).__name__}: {error}") from None
    return TypedOutput(kind, expression)


def _candidates(answer: str) -> Iterator[str]:
    """Give what of an answer may be its JSON: all of it, a fence, from bracket to bracket."""
    text = answer.strip()
    yield text
    for found in reversed(_FENCE.findall(text)):
        yield found[1]
    begins = [place for place in (text.find("{"), text.find("[")) if place >= 0]
    ends = max(text.rfind("}"), text.rfind("]"))
    if begins and ends > min(begins):
        yield text[min(begins) : ends + 1]


def _told(problem: Any) -> str:
    """Write what pydantic found in one line."""
    errors = problem.errors(include_url=False, include_context=False)
    told = [
        ": ".join(filter(None, [".".join(map(str, error["loc"])), error["msg"]]))[:LONGEST_PROBLEM]
        for error in errors[:PROBLEMS]
    ]
    if len(errors) > PROBLEMS:
        told.append(f"{len(errors) - PROBLEMS} more")
    return "; ".join(told)
