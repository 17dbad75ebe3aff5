"""The direction of imports, the size of modules, and what stands where."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import source_rules as rules

KERNEL_TREE = {
    "pi_agent_kernel": "from pi_agent_kernel.agent import Agent as Agent",
    "pi_agent_kernel.errors": "import anyio, msgspec, json",
    "pi_agent_kernel.messages": "",
    "pi_agent_kernel.events": "from .messages import Message",
    "pi_agent_kernel.tools": (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from pi_agent_kernel.agent import Agent\n"
        "def schema():\n    import pydantic\n"
    ),
    "pi_agent_kernel.loop": "from pi_agent_kernel import errors, events",
    "pi_agent_kernel.agent": "from pi_agent_kernel.loop import x\nfrom . import tools",
    "pi_agent_kernel.models": "",
    "pi_agent_kernel.models.faux": "from pi_agent_kernel.events import x\nfrom . import catalog",
    "pi_agent_kernel.models.catalog": "",
    "pi_agent_kernel.models.pydantic_ai": "import pydantic_ai",
    "pi_notebook": "",
    "pi_notebook.snapshot": "from pi_agent_kernel import events",
    "pi_notebook.render": "from pi_notebook.snapshot import Snapshot",
}


def test_shipped_imports_go_down() -> None:
    """No shipped module imports a higher layer, and every module has its layer."""
    assert rules.direction(rules.shipped_sources()) == []


def test_shipped_imports_have_no_cycle() -> None:
    """No two shipped modules import each other, not even inside functions."""
    assert rules.cycles(rules.shipped_sources()) == []


def test_kernel_imports_no_jupyter_and_little_else() -> None:
    """The kernel never imports Jupyter, and at module level only stdlib, anyio and msgspec."""
    assert rules.foreign(rules.shipped_sources()) == []


def test_modules_and_tests_are_short() -> None:
    """Every module, test files included, has at most 500 lines."""
    sources = rules.shipped_sources() | rules.read_sources(rules.ROOT / "tests")
    if (rules.ROOT / "bench").is_dir():
        sources |= rules.read_sources(rules.ROOT / "bench")
        del sources["bench.common"]  # kept as the other peers have it, so that figures compare
    assert rules.too_long(sources) == []


def test_good_tree_has_no_complaint() -> None:
    """Downward, late and types-only imports are allowed."""
    for rule in (rules.direction, rules.cycles, rules.foreign, rules.too_long, rules.banned):
        assert rule(KERNEL_TREE) == [], rule.__name__


@pytest.mark.parametrize(
    ("rule", "name", "source", "complaint"),
    [
        (rules.direction, "loop", "from pi_agent_kernel.agent import Agent", "upward"),
        (rules.direction, "loop", "from .agent import Agent", "upward"),
        (rules.direction, "messages", "import pi_agent_kernel.events", "upward"),
        (rules.direction, "messages", "def f():\n    from . import events", "upward"),
        (rules.direction, "messages", "__import__('pi_agent_kernel.agent')", "upward"),
        (rules.direction, "agent", "from pi_agent_kernel import Agent", "upward"),
        (rules.direction, "agent", "import pi_notebook", "does not know the notebook"),
        (rules.direction, "models.faux", "import pi_agent_kernel.tools", "may import only"),
        (rules.direction, "models.faux", "from ..tools import AgentTool", "may import only"),
        (rules.direction, "novelty", "", "no row"),
        (rules.cycles, "messages", "from pi_agent_kernel import errors", "cycle: "),
        (rules.foreign, "agent", "def f():\n    import IPython.display", "no Jupyter"),
        (rules.foreign, "agent", "def f():\n    from traitlets import Int", "no Jupyter"),
        (rules.foreign, "agent", "from importlib import *\nimport_module('zmq')", "no Jupyter"),
        (rules.foreign, "agent", "__import__('IPython')", "no Jupyter"),
        (rules.foreign, "schema", "import pydantic", "module level"),
        (rules.foreign, "schema", "try:\n    import jsonschema\nfinally: pass", "module level"),
        (rules.foreign, "models.faux", "import pydantic_ai", "module level"),
        (rules.too_long, "agent", "pass\n" * 501, "501 lines"),
    ],
)  # fmt: skip
def test_each_rule_finds_its_offence(rule, name, source, complaint) -> None:
    """A made-up tree with one offending module gets one complaint, which names that module."""
    tree = KERNEL_TREE | {f"pi_agent_kernel.{name}": source}
    if rule is rules.cycles:
        tree["pi_agent_kernel.errors"] = "def f():\n    from pi_agent_kernel import messages"

    found = rule(tree)

    assert len(found) == 1
    assert complaint in found[0]
    assert f"pi_agent_kernel.{name}" in found[0]


def test_notebook_direction_is_checked() -> None:
    """A renderer that reaches for the magics is found, too."""
    tree = KERNEL_TREE | {
        "pi_notebook.render.html": "from pi_notebook import magics",
        "pi_notebook.magics": "",
    }

    assert rules.direction(tree) == [
        "pi_notebook.render.html:1 imports pi_notebook.magics: that is upward"
    ]


def test_kernel_loads_nothing_heavy() -> None:
    """Importing the kernel loads none of the packages that are for first use."""
    late = sorted(
        {"pydantic", "pydantic_ai", "jsonschema", "docstring_parser", "trio", *rules.JUPYTER}
    )
    code = f"import sys, pi_agent_kernel; print([name for name in {late} if name in sys.modules])"

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert printed.stdout.strip() == "[]"


def test_top_level_is_fixed() -> None:
    """The repository's top level has the agreed entries and no other tracked one."""
    git = shutil.which("git")
    if git is None or not (rules.ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files are tracked is unknown")
    listing = subprocess.run(
        [git, "-c", f"safe.directory={rules.ROOT}", "ls-files"],
        cwd=rules.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert unexpected_entries(listing.stdout) == []


def test_unexpected_entry_is_found() -> None:
    """A tracked file or folder outside the agreed ones is named."""
    assert unexpected_entries("core/a.py\nsrc/b.py\nsetup.py\nREADME.md\n") == ["setup.py", "src"]


def unexpected_entries(listing: str) -> list[str]:
    """List the first parts of tracked paths that the house has no place for."""
    return sorted({line.partition("/")[0] for line in listing.splitlines()} - rules.TOP_LEVEL)


def test_both_packages_are_typed() -> None:
    """Both packages carry `py.typed`."""
    for package in (Path("core", "pi_agent_kernel"), Path("pi_notebook")):
        assert (rules.ROOT / package / "py.typed").is_file()


def notebook_complaints(name: str, notebook: dict) -> list[str]:
    """List what a saved notebook lacks of having been executed in order, without error."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    complaints = [] if cells else [f"{name} has no code cell"]
    for number, cell in enumerate(cells, 1):
        if cell["execution_count"] != number:
            complaints.append(
                f"{name}: code cell {number} was saved as [{cell['execution_count']}]"
            )
        expected = "raises-exception" in cell["metadata"].get("tags", [])
        if not expected and any(output["output_type"] == "error" for output in cell["outputs"]):
            complaints.append(f"{name}: code cell {number} was saved with an error")
    return complaints


def test_notebooks_are_saved_executed() -> None:
    """Every notebook was saved after a whole run, its cells in order and without error."""
    for path in sorted((rules.ROOT / "notebooks").glob("*.ipynb")):
        assert notebook_complaints(path.name, json.loads(path.read_text(encoding="utf-8"))) == []


def test_notebook_that_was_not_executed_is_found() -> None:
    """An unexecuted cell, a failed cell and an empty notebook are each named."""
    failed = {"output_type": "error"}
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 1}

    assert notebook_complaints("x", {"cells": [cell]}) == []
    assert notebook_complaints("x", {"cells": []}) == ["x has no code cell"]
    assert notebook_complaints("x", {"cells": [cell | {"execution_count": None}]})
    assert notebook_complaints("x", {"cells": [cell | {"outputs": [failed]}]})


def bare_tests(source: str) -> list[str]:
    """List the test functions without a docstring."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]


def test_every_test_states_its_rule() -> None:
    """Every test has a docstring with the rule that it holds."""
    bare = {
        str(path.relative_to(rules.ROOT)): names
        for path in sorted((rules.ROOT / "tests").rglob("*.py"))
        if (names := bare_tests(path.read_text(encoding="utf-8")))
    }

    assert bare == {}


def test_bare_test_is_found() -> None:
    """A test without a docstring is named, in a class as well."""
    assert bare_tests("class TestX:\n    async def test_y(self): pass") == ["test_y"]
    assert bare_tests('def test_z():\n    """Z holds."""') == []
