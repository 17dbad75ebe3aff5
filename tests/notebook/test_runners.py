"""Other programs that run notebooks, and IPython without one."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "notebooks" / "00_quickstart.ipynb"
NOTEBOOKS = sorted(path.name for path in QUICKSTART.parent.glob("*.ipynb"))
ADD = '''
import pi_notebook as pi
@pi.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
CELLS = ["%load_ext pi_notebook", ADD, "%%agent\nadd 2 and 40", "%agent"]


def run(*command, **options):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=55, check=False, cwd=ROOT, **options
    )


@pytest.mark.kernel
@pytest.mark.timeout(300)  # a kernel for each of them
def test_tutorials_validate_strictly(tmp_path):
    """Each saved tutorial is what executing it gives, output by output, and leaves no file."""
    for name in NOTEBOOKS:
        shutil.copy(ROOT / "notebooks" / name, tmp_path)
    (tmp_path / "tmp").mkdir()
    changed = {"PI_NOTEBOOK_DEMO_UNPACED": "1", "TMPDIR": str(tmp_path / "tmp")}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "."],
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
        cwd=tmp_path,
        env=os.environ | changed,
    )
    assert result.returncode == 0, result.stdout[-4000:]
    assert sorted(path.name for path in tmp_path.rglob("*")) == [*NOTEBOOKS, "tmp"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_tutorial_is_saved_whole(name):
    """A saved tutorial was run whole, without an error, and its links lead somewhere."""
    cells = json.loads((ROOT / "notebooks" / name).read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    prose = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")

    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert [output for output in outputs if output["output_type"] == "error"] == []
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", prose)
    assert [link for link in links if not (ROOT / "notebooks" / link).exists()] == []


@pytest.mark.kernel
def test_quickstart_shows_the_main_job():
    """The saved quickstart holds a run that called a Python function, once, with its answer."""
    notebook = json.loads(QUICKSTART.read_text("utf-8"))
    runs = [
        output["data"]["application/vnd.pi.run+json"]
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if "application/vnd.pi.run+json" in output.get("data", {})
    ]
    assert runs
    assert all(found["status"] == "ok" for found in runs)
    assert any(found["toolCalls"] for found in runs)


@pytest.mark.kernel
def test_nbclient_stores_one_output_a_run():
    """A runner that keeps every message keeps one output, and a failed run fails the notebook."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=50, kernel_name="python3").execute()
    (output,) = notebook.cells[2].outputs
    assert output.output_type == "display_data"
    assert output.data["application/vnd.pi.run+json"]["status"] == "ok"

    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(CELLS[0]),
            nbformat.v4.new_code_cell("%%agent --model nope:x\nhi"),
        ]
    )
    with pytest.raises(CellExecutionError) as caught:
        NotebookClient(notebook, timeout=50, kernel_name="python3").execute()
    assert caught.value.ename == "AgentUnavailable"


def test_terminal_shows_the_answer_as_text(tmp_path):
    """IPython in a terminal awaits the cell and writes plain text, once."""
    script = tmp_path / "cells.ipy"
    script.write_text(
        "%load_ext pi_notebook\n"
        + CELLS[1]
        + "\nget_ipython().run_cell('%%agent\\nadd 2 and 40')\n%agent\n"
    )
    result = run(
        sys.executable,
        "-m",
        "IPython",
        "--no-banner",
        "--colors=NoColor",
        "--HistoryManager.enabled=False",
        str(script),
        env={**os.environ, "TERM": "dumb"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("▸ add(a=2, b=40) → 42") == 1
    assert "add returned: 42." in result.stdout
    assert "Markdown object" not in result.stdout
    assert "messages  5" in result.stdout


def test_terminal_cell_typed_at_the_prompt_is_awaited(tmp_path):
    """A cell that reaches the shell from outside goes through the transformer."""
    code = (
        "from IPython.testing.globalipapp import start_ipython\n"
        "ip = start_ipython()\n"
        "ip.run_line_magic('load_ext', 'pi_notebook')\n"
        "result = ip.run_cell('%%agent\\nhello')\n"
        "assert result.success, result\n"
        "bad = ip.run_cell('%%agent --model nope:x\\nhello')\n"
        "assert type(bad.error_in_exec).__name__ == 'AgentUnavailable', bad\n"
    )
    result = run(sys.executable, "-c", code, env={**os.environ, "TERM": "dumb"})
    assert result.returncode == 0, result.stderr
    assert "Demo model" in result.stdout


def test_script_without_ipython_runs_an_agent():
    """`pi.agent` works in a plain script and shows nothing."""
    code = (
        "import sys, pi_notebook as pi\n"
        "pi.agent.prompt_sync('hello')\n"
        "assert 'IPython' not in sys.modules\n"
        "print(pi.agent.state.messages[-1].stop_reason)\n"
    )
    result = run(sys.executable, "-c", code)
    assert (result.returncode, result.stdout) == (0, "stop\n"), result.stderr


def test_import_is_light():
    """Importing the package imports no IPython, no pydantic, no provider and no traitlets."""
    code = (
        "import sys, pi_notebook; print([name for name in "
        "('IPython', 'pydantic', 'pydantic_ai', 'openai', 'traitlets', 'markdown_it', 'anyio', "
        "'asyncio', 'argparse') if name in sys.modules])"
    )
    assert run(sys.executable, "-c", code).stdout == "[]\n"


def test_loading_the_extension_imports_no_provider():
    """`%load_ext` imports neither a provider's SDK nor pydantic nor a Markdown parser."""
    code = (
        "import sys\nfrom IPython.testing.globalipapp import start_ipython\n"
        "ip = start_ipython()\nbefore = set(sys.modules)\n"
        "ip.run_line_magic('load_ext', 'pi_notebook')\n"
        "print([name for name in ('pydantic', 'pydantic_ai', 'openai', 'jsonschema', "
        "'markdown_it', 'httpx') if name in set(sys.modules) - before])"
    )
    assert run(sys.executable, "-c", code).stdout.endswith("\n[]\n")


def test_kernel_that_loses_output_is_refused(monkeypatch):
    """Version 7.0 of ipykernel is refused by one line that says what to install."""
    from types import SimpleNamespace

    from pi_notebook.errors import CellError
    from pi_notebook.extension import load

    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace(__version__="7.0.1"))
    with pytest.raises(CellError, match=r"7\.0\.1 loses output: pip install") as caught:
        load(None)
    assert caught.value._render_traceback_() == [str(caught.value)]
