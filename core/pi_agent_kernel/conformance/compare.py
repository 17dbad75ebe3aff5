"""Compare two traces: exact equality but for the exceptions of FORMAT.md, section 12.

A text object of a golden trace (`$validation`, `$argumentsError`, `$engineText`) describes a text
whose wording is free; a `throws` with a code compares the code only; a null equals a missing key
outside the parts that came from a scenario. Requests that the reference still makes after an
abort count on neither side (DEVIATIONS 1).
"""

from __future__ import annotations

import json
from typing import Any

from pi_agent_kernel.conformance.script import Json, is_array, is_object

__all__ = ["differences"]

#: Below these keys a null is a value of its own.
_STRICT_KEYS = frozenset({"sections", "args", "raw", "arguments", "details", "received", "value"})

#: Hooks that prepare a request (DEVIATIONS 1).
_REQUEST_HOOKS = frozenset(
    {
        "prepareNextTurn",
        "prepareNextTurnWithContext",
        "prepareRequest",
        "transformContext",
        "convertToLlm",
        "getApiKey",
    }
)

_RECEIVED = "Received arguments:\n"
_SHOWN = 300


def differences(golden: Json, actual: Json, limit: int = 20) -> list[str]:
    """Say where two traces differ.

    Of a log, only the first entry that differs is described: the rest usually follows from it.

    Args:
        golden: The trace to be equal to.
        actual: The trace to judge.
        limit: How many differences to describe at most.

    Returns:
        One line each, "PATH: what was expected and what there is"; empty if the traces agree.

    Source: FORMAT.md, section 12.
    """
    found: list[str] = []
    _walk(_without_dead_requests(golden), _without_dead_requests(actual), "", found, strict=False)
    return found[:limit]


def _without_dead_requests(trace: Json) -> Json:
    """Drop requests, and the hooks and callbacks around them, between an abort and its end."""
    if "log" not in trace:
        return trace
    entries: list[Json] = trace["log"]
    kept: list[Json] = []
    aborted = False
    requests = 0
    for entry in entries:
        if entry.get("action") == "abort":
            aborted = True
        elif entry.get("event") == "agent_end":
            aborted = False
        elif aborted and _belongs_to_request(entry):
            continue
        if "request" in entry:
            requests += 1
            kept.append({**entry, "request": requests})
        else:
            kept.append(entry)
    return {**trace, "log": kept}


def _belongs_to_request(entry: Json) -> bool:
    return "request" in entry or "callback" in entry or entry.get("hook") in _REQUEST_HOOKS


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _walk(golden: Any, actual: Any, path: str, found: list[str], *, strict: bool) -> None:
    if is_object(golden):
        if not _walk_text(golden, actual, path, found):
            _walk_object(golden, actual, path, found, strict=strict)
    elif is_array(golden):
        _walk_list(golden, actual, path, found, strict=strict)
    else:
        by_identity = isinstance(golden, bool) or isinstance(actual, bool)
        by_identity = by_identity or golden is None or actual is None
        if not (golden is actual if by_identity else golden == actual):
            found.append(f"{path}: expected {_show(golden)}, got {_show(actual)}")


def _walk_text(golden: Json, actual: Any, path: str, found: list[str]) -> bool:
    """Compare a text object; false if the golden value is not one."""
    if "$validation" in golden:
        if not _is_validation(golden["$validation"], actual):
            found.append(
                f"{path}: expected a validation error like {_show(golden)}, got {_show(actual)}"
            )
        return True
    if "$argumentsError" in golden:
        expected: Json = golden["$argumentsError"]
        same = isinstance(actual, str) and (
            actual.startswith(expected["header"])
            and actual.endswith(_RECEIVED + expected["received"])
        )
        if not same and actual != golden:
            found.append(f"{path}: expected an invalid-arguments error, got {_show(actual)}")
        return True
    if "$engineText" in golden:
        if not (isinstance(actual, str) and actual) and actual != golden:
            found.append(f"{path}: expected some error text, got {_show(actual)}")
        return True
    return False


def _walk_object(golden: Json, actual: Any, path: str, found: list[str], *, strict: bool) -> None:
    if not is_object(actual):
        found.append(f"{path}: expected {_show(golden)}, got {_show(actual)}")
        return
    if path.endswith(".throws") and "code" in golden:
        if golden["code"] != actual.get("code"):
            found.append(f"{path}: expected code {golden['code']}, got {_show(actual)}")
        return
    for key in [*golden, *(key for key in actual if key not in golden)]:
        here = f"{path}.{key}"
        if key in golden and key in actual:
            if strict or key != "durationMs":
                inside = strict or key in _STRICT_KEYS
                _walk(golden[key], actual[key], here, found, strict=inside)
        elif key in golden:
            if strict or golden[key] is not None:
                found.append(f"{here}: missing, expected {_show(golden[key])}")
        elif strict or actual[key] is not None:
            found.append(f"{here}: unexpected {_show(actual[key])}")


def _walk_list(
    golden: list[Any], actual: Any, path: str, found: list[str], *, strict: bool
) -> None:
    if not is_array(actual):
        found.append(f"{path}: expected {_show(golden)}, got {_show(actual)}")
        return
    for index, (left, right) in enumerate(zip(golden, actual, strict=False)):
        before = len(found)
        _walk(left, right, f"{path}[{index}]", found, strict=strict)
        if path == ".log" and len(found) > before:
            return
    if len(golden) > len(actual):
        found.append(f"{path}[{len(actual)}]: missing, expected {_show(golden[len(actual)])}")
    elif len(actual) > len(golden):
        found.append(f"{path}[{len(golden)}]: unexpected {_show(actual[len(golden)])}")


def _is_validation(expected: Json, actual: Any) -> bool:
    """Say whether a text, or the text object of another golden, is this validation error."""
    if is_object(actual):
        other: Any = actual.get("$validation")
        return (
            is_object(other)
            and other["header"] == expected["header"]
            and other["received"] == expected["received"]
            and set(expected["paths"]) <= set(other["paths"])
        )
    if not isinstance(actual, str):
        return False
    head, separator, received = actual.partition("\n\n" + _RECEIVED)
    lines = head.split("\n")
    if not separator or lines[0] != expected["header"]:
        return False
    paths = {line[4:].split(": ")[0] for line in lines[1:] if line.startswith("  - ")}
    if not set(expected["paths"]) <= paths:
        return False
    try:
        value: Any = json.loads(received)
    except ValueError:
        return False
    laid_out = value in ({}, []) or received == json.dumps(value, indent=2, ensure_ascii=False)
    return laid_out and value == expected["received"]
