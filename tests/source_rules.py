"""What `test_layout.py` and `test_banned.py` hold the sources to.

Each rule is a function from a source tree to complaints. A source tree is a mapping of dotted
module name to text, so that the rules can be proved on made-up trees. A complaint is one line that
names the module, what it does and the rule.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
KERNEL = "pi_agent_kernel"
NOTEBOOK = "pi_notebook"

# The direction: a module may import modules of its own row and of earlier rows, never of a later
# one; cycles are forbidden everywhere. A package stands for all of its modules. "" is the package
# itself, what its users see.
LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    KERNEL: (
        ("errors", "json_value", "awaiting", "messages", "worker_threads", "secrecy"),
        ("tool_results", "events", "backend", "abort", "json_strict", "json_prefix", "json_stream"),
        ("schema_text_rules", "schema_references", "schema_checks", "schema_errors"),
        ("coercion", "schema"),
        ("request", "response", "message_checks"),
        ("transcript", "streams", "wire", "blocking"),
        ("tool_context", "agent_tool", "signature", "tools"),
        ("hooks", "abort_watch", "invocation", "notes"),
        ("loop_config", "tool_call", "execution", "run", "model_request", "loop", "models"),
        ("message_chain", "request_log"),
        ("queues", "log", "explain", "subscriptions", "prompt_input", "option_checks"),
        ("state_lists", "state", "failure"),
        ("active_run",),
        ("agent",),
        ("",),
        ("testing", "conformance"),
    ),
    NOTEBOOK: (
        (
            "errors",
            "config",
            "transformer",
            "kernel_compat",
            "interrupts",
            "shown_text",
            "tool_view",
            "picture",
            "safe_picture",
            "tool_output",
            "tool_cards",
            "results",
            "snapshot",
            "cells",
            "cassettes",
            "cell_hooks",
            "references",
            "approvals",
            "server",
            "branches",
            "budget",
        ),
        ("render", "typed_output", "frontend", "runtime", "tools", "export"),
        ("cell_options", "cell_run", "shown_run"),
        ("notebook_agent", "registry"),
        ("inspector",),
        ("inspect_verb", "model_verbs", "explain_verb", "verbs", "magics", "completion"),
        ("extension",),
        ("",),
        ("kernel_process",),
        ("demo", "doctor"),
        ("command",),
    ),
}

# Beside the direction: what a module may import of its own package, and nothing else of it.
ONLY: dict[str, tuple[str, ...]] = {
    f"{KERNEL}.models": (
        "errors", "json_value", "messages", "events", "transcript", "json_stream", "json_prefix",
        "response", "streams", "abort", "request", "wire", "secrecy",
    ),
    f"{KERNEL}.explain": (
        "log", "events", "messages", "notes", "request_log", "transcript", "models",
    ),
    f"{NOTEBOOK}.server": ("errors",),  # it runs where no notebook and no shell is
}  # fmt: skip

JUPYTER = frozenset(
    {
        "IPython", "anywidget", "comm", "ipykernel", "ipywidgets", "jupyter_client",
        "jupyter_core", "jupyterlab", "matplotlib_inline", "nbclient", "nbconvert", "nbformat",
        "pi_notebook", "tornado", "traitlets", "zmq",
    }
)  # fmt: skip
KERNEL_AT_IMPORT = frozenset({"anyio", "msgspec", KERNEL})
# Modules that themselves load on first use, and the package they are there for.
LOADED_LATE = {
    f"{KERNEL}.models.pydantic_ai": frozenset({"pydantic_ai"}),
    f"{KERNEL}.schema_errors": frozenset({"jsonschema", "referencing"}),
}

LONGEST_MODULE = 500
TOP_LEVEL = frozenset(
    {
        ".ci", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md",
        "bench", "core", "notebooks", "pi_notebook", "pyproject.toml", "tests",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import of one module, as the statement or the call names it."""

    target: str
    line: int
    at_import: bool  # runs when the module is imported
    types_only: bool  # under `if TYPE_CHECKING`


def read_sources(*packages: Path) -> dict[str, str]:
    """Read the modules of packages by dotted name; an `__init__` has its package's name."""
    sources = {}
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            sources[".".join(parts).removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return sources


def shipped_sources() -> dict[str, str]:
    """Read both packages of this repository."""
    return read_sources(ROOT / "core" / KERNEL, ROOT / NOTEBOOK)


def imports(name: str, source: str, sources: Mapping[str, str]) -> Iterator[Import]:
    """Find what a module imports, relative and dynamic imports included."""
    is_package = any(other.startswith(f"{name}.") for other in sources)
    tree = ast.parse(source)
    types_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    late = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, base] if base else parts)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                targets.append(inner if inner in sources else base)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                targets = [node.args[0].value]
        for target in dict.fromkeys(targets):
            yield Import(
                target=target,
                line=node.lineno,
                at_import=node not in late and node not in types_only,
                types_only=node in types_only,
            )


def _layer(name: str) -> tuple[str, str, int]:
    """Find a module's package, its own first name in it, and its row in the table (-1: none)."""
    package, _, inner = name.partition(".")
    own = inner.split(".", maxsplit=1)[0]
    rows = [index for index, row in enumerate(LAYERS[package]) if own in row]
    return package, own, rows[0] if rows else -1


def direction(sources: Mapping[str, str]) -> list[str]:
    """Complain about modules outside the table, imports going up, and those that `ONLY` forbids."""
    complaints = []
    for name, source in sources.items():
        package, own, row = _layer(name)
        if row < 0:
            complaints.append(f"{name} is in no row of LAYERS in tests/source_rules.py")
            continue
        for found in imports(name, source, sources):
            if found.types_only or found.target.partition(".")[0] not in LAYERS:
                continue
            where = f"{name}:{found.line} imports {found.target}"
            other_package, other, other_row = _layer(found.target)
            if other_package != package:
                if package == KERNEL:
                    complaints.append(f"{where}: the kernel does not know the notebook")
                continue
            allowed = ONLY.get(f"{package}.{own}")
            if other_row > row:
                complaints.append(f"{where}: that is upward")
            elif allowed is not None and other not in allowed and other != own:
                complaints.append(f"{where}: {own} may import only {', '.join(allowed)}")
    return complaints


def cycles(sources: Mapping[str, str]) -> list[str]:
    """Complain about modules that import each other, at import or later."""
    graph = {
        name: {
            found.target
            for found in imports(name, source, sources)
            if found.target in sources and not found.types_only and found.target != name
        }
        for name, source in sources.items()
    }
    done: set[str] = set()
    complaints = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            complaints.append(f"cycle: {' -> '.join([*path[path.index(name) :], name])}")
        elif name not in done:
            for target in sorted(graph[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())
    return complaints


def foreign(sources: Mapping[str, str]) -> list[str]:
    """Complain about Jupyter anywhere in the kernel, and about other packages loaded at import."""
    complaints = []
    for name, source in sources.items():
        if name.partition(".")[0] != KERNEL:
            continue
        allowed = KERNEL_AT_IMPORT | LOADED_LATE.get(name, frozenset())
        for found in imports(name, source, sources):
            top = found.target.partition(".")[0]
            where = f"{name}:{found.line} imports {top}"
            if top in JUPYTER:
                complaints.append(f"{where}: no Jupyter in the kernel")
            elif found.at_import and top not in allowed and top not in sys.stdlib_module_names:
                complaints.append(f"{where} at module level: load it on first use")
    return complaints


def too_long(sources: Mapping[str, str]) -> list[str]:
    """Complain about modules that should be split."""
    lengths = {name: len(source.splitlines()) for name, source in sources.items()}
    return [
        f"{name} has {length} lines: split it at {LONGEST_MODULE}"
        for name, length in lengths.items()
        if length > LONGEST_MODULE
    ]


BANNED_NAMES = {
    "nest_asyncio": "it drops queued cells and interrupts kill the kernel",
    "nest_asyncio2": "it drops queued cells and interrupts kill the kernel",
    "do_one_iteration": "it runs the kernel inside a cell",
    "clear_output": "agent output is one display that is updated",
}
BANNED_MEMBERS = {
    "ipywidgets.Output": "a stream through it sends every earlier token again",
    "IPython.display.Markdown": "it opens files and addresses that a model's text names",
}
BANNED_IN_KERNEL = {
    "print": "the kernel returns, it does not print",
    "eval": "no text becomes code",
    "exec": "no text becomes code",
}
UNFINISHED = re.compile(r"\b(TODO|FIXME|NotImplementedError)\b")


def banned(sources: Mapping[str, str]) -> list[str]:
    """Complain about names that shipped code does not use, each for its reason."""
    complaints = []
    for name, source in sources.items():
        tree = ast.parse(source)
        known = dict(_known_names(tree))
        for node in ast.walk(tree):
            for used in _used(node, known):
                last = used.rpartition(".")[2]
                reason = BANNED_MEMBERS.get(used) or BANNED_NAMES.get(last)
                reason = reason or BANNED_NAMES.get(used.partition(".")[0])
                if reason:
                    complaints.append(f"{name}:{node.lineno} uses {used}: {reason}")
            if (
                name.partition(".")[0] == KERNEL
                and isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in BANNED_IN_KERNEL
            ):
                reason = BANNED_IN_KERNEL[node.func.id]
                complaints.append(f"{name}:{node.lineno} calls {node.func.id}: {reason}")
        for number, line in enumerate(source.splitlines(), 1):
            if found := UNFINISHED.search(line):
                complaints.append(f"{name}:{number} has {found[0]}: finish it or leave it out")
    return complaints


def _known_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Tell which local name stands for which imported module or member."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _used(node: ast.AST, known: Mapping[str, str]) -> Iterator[str]:
    """Give the full names that a node imports or uses."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Name):
        if node.id not in known:  # an imported name is counted at its import
            yield node.id
    elif isinstance(node, ast.Attribute):
        text = ast.unparse(node)
        first, _, rest = text.partition(".")
        yield f"{known.get(first, first)}.{rest}"
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in {"import_module", "__import__"}:
            yield str(node.args[0].value)
