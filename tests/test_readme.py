"""The README and the pages beside it are true: code runs, commands exist, links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for folder in ("", "core", "pi_notebook")
    for path in sorted((ROOT / folder).glob("**/*.md" if folder else "*.md"))
    if path.name != "CHANGELOG.md"
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

RUN_CELLS = """
import sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in sys.stdin.read().split("\\n\\0\\n"):
    shell.run_cell(cell, store_history=False).raise_error()
"""


def blocks(language: str, text: str = README) -> list[str]:
    """Give the code blocks of a page, by default the README, in one language."""
    return [code for found, code in FENCE.findall(text) if found == language]


def run(code: str, stdin: str, folder: Path) -> None:
    """Run a program in its own process and folder, without keys."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        input=stdin,
        cwd=folder,
        env=os.environ | {"IPYTHONDIR": str(folder), "PI_NOTEBOOK_MODEL": "demo"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=f"{name}:{number}")
        for name, text in PAGES.items()
        for number, code in enumerate(blocks("python", text), 1)
    ],
)
def test_script_blocks_run(code, tmp_path) -> None:
    """Every ```python block is a whole program that ends without error or warning."""
    run(code, "", tmp_path)


@pytest.mark.kernel
def test_notebook_cells_run(tmp_path) -> None:
    """The ```ipython blocks are cells that run one after another in one shell."""
    cells = [code.rstrip("\n") for code in blocks("ipython")]
    assert cells

    run(RUN_CELLS, "\n\0\n".join(cells), tmp_path)


def test_there_is_code_to_run() -> None:
    """The README shows at least one program, and every fence names its language."""
    assert blocks("python")
    assert [name for name, text in PAGES.items() if blocks("", text)] == []


def missing_targets(text: str, makefile: str) -> list[str]:
    """List the `make` targets that a text names and the Makefile lacks."""
    fenced = "\n".join(code for _, code in FENCE.findall(text))
    named = set(re.findall(r"`make ([a-z][a-z-]*)", text))
    named |= set(re.findall(r"^make ([a-z][a-z-]*)", fenced, re.MULTILINE))
    return sorted(named - set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)))


def test_named_make_targets_exist() -> None:
    """Every `make` target that README or CONTRIBUTING names is in the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    assert missing_targets(README, makefile) == []
    assert missing_targets(contributing, makefile) == []


def test_missing_target_is_found() -> None:
    """A target that only the text knows is named, in a line of prose and in a block."""
    text = "Say `make a`.\n```sh\nmake b  # comment\n```\nThey make cakes."

    assert missing_targets(text, "a: x\n") == ["b"]
    assert missing_targets(text, "b:\n") == ["a"]


def test_every_target_helps_itself() -> None:
    """Each phony target of the Makefile has a line in `make help`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    targets = set(phony[1].split()) - {"FORCE"}

    assert targets == set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))


def test_ci_runs_the_printed_test_command() -> None:
    """The README prints `make test` on its own line, and CI takes its command from there."""
    assert any("make test" in block.splitlines() for block in blocks("sh"))
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "grep -m 1 -x 'make test' README.md" in script
    assert 'bash -c "$test_command"' in script


def broken_links(name: str) -> list[str]:
    """List the links of a page whose file, or whose heading in a page, is not there."""
    broken = []
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", PAGES[name]):
        path = (ROOT / name).parent / target if target else ROOT / name
        page = PAGES.get(os.path.relpath(path, ROOT)) if anchor else None
        if not path.exists() or (page is not None and anchor not in anchors(page)):
            broken.append(f"{target}#{anchor}")
    return broken


def anchors(text: str) -> set[str]:
    """Give the anchors that a code host makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_relative_links_lead_somewhere(name) -> None:
    """Every link of a page to a file of the repository has that file, and the heading it names."""
    assert broken_links(name) == []


def test_a_broken_link_is_found(monkeypatch) -> None:
    """A link without its file, and one without its heading, are named."""
    monkeypatch.setitem(PAGES, "README.md", "# One two\n[a](b.md) [c](#one-two) [d](#three)")

    assert broken_links("README.md") == ["b.md#", "#three"]
