"""The `pi-notebook` command: `demo`, `lab`, `doctor`."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from pi_notebook import command, demo, doctor

COMMAND = [sys.executable, "-m", "pi_notebook.command"]


def notebook(*cells: str, tags: tuple[str, ...] = ()) -> bytes:
    """Make a notebook file of code cells; a cell that begins with # is text."""
    made = [
        {
            "cell_type": "markdown" if source.startswith("# ") else "code",
            "metadata": {"tags": list(tags)},
            "source": source.splitlines(keepends=True),
        }
        for source in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4}).encode()


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """Run the command as a person would."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, **options
    )


class Screen:
    """Print messages as the demo does, without a kernel."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.screen = demo._Screen(self.out)

    def display(self, text: str, kind: str = "update_display_data", identity: str = "a") -> str:
        """Show a text under a display id; return what was printed for it."""
        before = len(self.out.getvalue())
        content = {"data": {"text/plain": text}, "transient": {"display_id": identity}}
        self.screen.message({"msg_type": kind, "content": content})
        return self.out.getvalue()[before:]

    def stream(self, text: str) -> str:
        """Print a text on the cell's standard output; return what was printed for it."""
        before = len(self.out.getvalue())
        self.screen.message({"msg_type": "stream", "content": {"name": "stdout", "text": text}})
        return self.out.getvalue()[before:]


def test_help_loads_nothing_heavy() -> None:
    """`--help` names the three commands and loads neither Jupyter nor a model library."""
    code = (
        "import sys; from pi_notebook.command import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('IPython', 'jupyter_client', 'traitlets', 'zmq', 'pydantic', 'pydantic_ai')\n"
        "print([name for name in heavy if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.endswith("[]\n")
    assert all(f"    {name} " in done.stdout for name in ("demo", "lab", "doctor"))


def test_version_is_printed() -> None:
    """`--version` prints the version of the distribution."""
    assert re.fullmatch(r"pi-notebook \d+\.\d+\.\d+\S*\n", run("--version").stdout)


@pytest.mark.parametrize("wrong", [[], ["nonsense"], ["demo", "--timeout", "soon"], ["demo", "x"]])
def test_wrong_command_line_is_a_usage_error(wrong, capsys) -> None:
    """A command line that says nothing sensible ends with status 2 and the usage."""
    with pytest.raises(SystemExit) as stopped:
        command.main(wrong)

    assert stopped.value.code == 2
    assert "usage: pi-notebook" in capsys.readouterr().err


def test_growing_text_is_printed_where_it_grew() -> None:
    """An update that begins with the text before it prints only what is new."""
    screen = Screen()

    assert screen.display("He", "display_data") == "He"
    assert screen.display("Hello") == "llo"
    assert screen.display("Hello") == ""
    assert screen.display("Hello\nyou") == "\nyou"


def test_changed_text_is_printed_from_the_changed_line() -> None:
    """An update that changes earlier text prints again from the first line that changed."""
    screen = Screen()
    screen.display("one\ntwo\nthr", "display_data")

    assert screen.display("one\n2\nthree") == "\n2\nthree"
    assert screen.display("other") == "\nother"


def test_outputs_do_not_run_into_each_other() -> None:
    """Text of another output starts a new line, and a display goes on in a new line after it."""
    screen = Screen()
    screen.display("He", "display_data")

    assert screen.stream("out") == "\nout"
    assert screen.stream("put\n") == "put\n"
    assert screen.display("Hello") == "llo"
    assert screen.display("B", "display_data", "b") == "\nB"


def test_new_display_under_an_old_id_starts_anew() -> None:
    """A display that reuses an id prints its whole text."""
    screen = Screen()
    screen.display("Hello", "display_data")

    assert screen.display("Hello", "display_data") == "\nHello"


def test_text_of_a_model_cannot_steer_the_terminal() -> None:
    """Escape sequences and control characters of a display are dropped."""
    assert Screen().display("a\x1b[31mb\x1b]0;x\x07\r\x9bc\td", "display_data") == "ab0;xc\td"


@pytest.mark.kernel
def test_notebook_is_printed_with_its_outputs() -> None:
    """Text, sources, printed lines and results appear in the notebook's order."""
    out = io.StringIO()

    status = demo.play(notebook("# Title", "x = 6\nprint('six')", "x * 7"), out=out)

    assert status == 0
    printed = re.sub(r"\n+", "\n", out.getvalue())
    assert printed == "# Title\nIn [1]: x = 6\n        print('six')\nsix\nIn [2]: x * 7\n42\n"


@pytest.mark.kernel
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
def test_answer_is_printed_while_the_cell_runs(tmp_path) -> None:
    """The first part of a display is printed before the cell makes the second."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    cell = (
        "from IPython.display import display\n"
        "h = display({'text/plain': 'first'}, raw=True, display_id='a')\n"
        f"open({str(gate)!r}).close()\n"  # waits until the other side opens it
        "h.update({'text/plain': 'first, second'}, raw=True)"
    )
    out = io.StringIO()
    write = out.write

    def write_and_open(text: str) -> int:
        if text == "first":
            gate.open("w").close()
        return write(text)

    out.write = write_and_open

    assert demo.play(notebook(cell), out=out) == 0
    assert out.getvalue().endswith("\n\nfirst, second\n")


@pytest.mark.kernel
def test_failing_cell_stops_the_notebook(capsys) -> None:
    """A cell that raises shows its traceback, ends the notebook and makes the status 1."""
    status = demo.play(notebook("1 / 0", "print('not reached')"))

    printed = capsys.readouterr()
    assert status == 1
    assert "ZeroDivisionError" in printed.out
    assert "\nnot reached" not in printed.out
    assert "Cell 1 failed" in printed.err


@pytest.mark.kernel
def test_cell_tagged_raises_exception_may_fail() -> None:
    """A cell with the tag `raises-exception` shows its traceback and the notebook goes on."""
    out = io.StringIO()

    assert demo.play(notebook("1 / 0", "2 + 2", tags=("raises-exception",)), out=out) == 0
    assert out.getvalue().endswith("\n4\n")


@pytest.mark.kernel
def test_time_over_is_said_and_ends_the_kernel(capsys, tmp_path, monkeypatch) -> None:
    """A notebook that takes too long ends with a clear sentence, status 1 and a dead kernel."""
    pid_file = tmp_path / "pid"
    cell = (
        "import os, pathlib, threading\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
        "threading.Event().wait()"
    )
    # The clock jumps once the cell runs, so no test time passes and a slow start does no harm.
    clock = SimpleNamespace(monotonic=lambda: 1000.0 if pid_file.exists() else 0.0)
    monkeypatch.setattr("pi_notebook.kernel_process.time", clock)

    status = demo.play(notebook(cell), timeout=30)

    assert status == 1
    assert "Stopped in cell 1: Not finished after 30 s." in capsys.readouterr().err
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


@pytest.mark.kernel
def test_kernel_that_does_not_start_is_said(capsys, monkeypatch) -> None:
    """A kernel that cannot start ends the demo with a clear sentence and status 1."""
    monkeypatch.setenv("PYTHONHOME", os.devnull)  # no interpreter starts with this

    assert demo.play(notebook("1")) == 1
    assert "The kernel did not start: " in capsys.readouterr().err


def test_incomplete_installation_is_said(capsys, monkeypatch) -> None:
    """A missing quickstart is one line and status 1."""
    monkeypatch.setattr("pi_notebook.demo._tutorials", list)

    assert command.main(["demo"]) == 1
    assert "install pi-notebook again" in capsys.readouterr().err


@pytest.mark.kernel
def test_death_of_the_kernel_is_said(capsys) -> None:
    """A kernel that dies in a cell ends the demo with a clear sentence and status 1."""
    assert demo.play(notebook("import os; os._exit(3)")) == 1
    assert "The kernel died while the cell ran." in capsys.readouterr().err


@pytest.mark.kernel
def test_kernel_is_told_the_model_and_to_stream() -> None:
    """The kernel's environment has the model that was asked for and `PI_NOTEBOOK_HEADLESS=0`."""
    out = io.StringIO()
    cell = "import os; print(os.environ['PI_NOTEBOOK_MODEL'], os.environ['PI_NOTEBOOK_HEADLESS'])"

    assert demo.play(notebook(cell), model="demo", out=out) == 0
    assert out.getvalue().endswith("\ndemo 0\n")


def test_notebook_without_code_is_an_error(capsys, monkeypatch) -> None:
    """A notebook with nothing to run is not a success."""

    class NoKernel:
        def __init__(self, **options: object) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr("pi_notebook.kernel_process.KernelProcess", NoKernel)

    assert demo.play(notebook("# only text")) == 1
    assert "no code cell" in capsys.readouterr().err


@pytest.mark.kernel
@pytest.mark.skipif(os.name != "posix", reason="sends a signal to a process")
def test_interrupt_ends_the_demo_and_its_kernel(tmp_path) -> None:
    """Ctrl-C ends the demo with status 130, without a traceback, and the kernel with it."""
    path = tmp_path / "endless.ipynb"
    path.write_bytes(notebook("import os, time; print('pid', os.getpid())\ntime.sleep(50)"))
    code = (
        "import pathlib, sys; from pi_notebook import command, demo\n"
        f"demo.quickstart = lambda: pathlib.Path({str(path)!r})\n"
        "sys.exit(command.main(['demo']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        pid = next(int(line[4:]) for line in process.stdout if line.startswith("pid "))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()

    assert process.returncode == 130
    assert errors.strip() == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.kernel
def test_demo_answers_with_a_tool() -> None:
    """`pi-notebook demo` runs the quickstart, without a key, to the end."""
    done = run("demo", "--model", "demo")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "%%agent" in done.stdout


def test_tutorials_are_copied_and_changes_kept(tmp_path) -> None:
    """The first copy writes each tutorial; later ones say which changed file they kept."""
    folder = tmp_path / "mine"
    first = list(demo.copy_tutorials(folder))
    changed = folder / demo.QUICKSTART
    assert first
    assert list(demo.copy_tutorials(folder)) == []

    changed.write_text("mine")

    assert list(demo.copy_tutorials(folder)) == [f"kept {changed}: it differs from the tutorial"]
    assert changed.read_text() == "mine"


def test_tutorials_as_we_ship_them_are_trusted_and_changed_ones_are_not(
    tmp_path, monkeypatch
) -> None:
    """JupyterLab strips the styles of outputs it does not trust, so the copies are signed."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "mine"
    list(demo.copy_tutorials(folder))

    def is_trusted(path: Path) -> bool:
        notary = NotebookNotary()
        try:
            return notary.check_signature(nbformat.read(path, as_version=4))
        finally:
            notary.store.close()

    quickstart = folder / demo.QUICKSTART
    assert not is_trusted(quickstart)
    demo.trust_tutorials(folder)
    assert is_trusted(quickstart)

    changed = quickstart.read_text("utf-8").replace("%%agent", "%%agent --quiet", 1)
    quickstart.write_text(changed, "utf-8")
    demo.trust_tutorials(folder)
    assert not is_trusted(quickstart)


def test_lab_without_jupyterlab_says_what_to_install(capsys, monkeypatch) -> None:
    """`lab` without JupyterLab is one line with the command that installs it, status 2."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert command.main(["lab"]) == 2
    assert capsys.readouterr().err == (
        "JupyterLab is not installed: pip install 'pi-notebook[lab]'\n"
    )


def test_lab_opens_the_copied_tutorials(tmp_path) -> None:
    """`lab` starts JupyterLab on the copy, with the arguments after `--`, and has its status."""
    package = tmp_path / "jupyterlab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys; print('LAB', sys.argv[1:]); sys.exit(7)")
    folder = tmp_path / "mine"

    done = run(
        "lab", "--dir", str(folder), "--", "--no-browser",
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip

    assert done.returncode == 7
    assert f"LAB ['{folder}', '--no-browser'" in done.stdout
    assert (folder / demo.QUICKSTART).is_file()


def test_lab_into_a_file_is_a_clear_error(tmp_path, capsys, monkeypatch) -> None:
    """A target that is no folder is one line and status 1, and JupyterLab is not started."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    target = tmp_path / "file"
    target.write_text("")

    assert command.main(["lab", "--dir", str(target)]) == 1
    assert f"Cannot put the tutorials into {target}" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["7.0.0", "7.0.1", "7.0.0rc1", "6.16.2", "5.5", "odd"])
def test_doctor_refuses_kernels_that_lose_output(version) -> None:
    """Kernels 7.0.x and those before 6.17 are refused with the command that helps."""
    with pytest.raises(doctor.CheckFailedError, match="pip install --upgrade ipykernel"):
        doctor.require_supported_kernel(version)


@pytest.mark.parametrize("version", ["6.17.1", "6.31.0", "7.1.0", "7.4.0", "10.0"])
def test_doctor_accepts_supported_kernels(version) -> None:
    """Other versions pass."""
    doctor.require_supported_kernel(version)


@pytest.mark.kernel
def test_doctor_finds_this_installation_sound(capsys) -> None:
    """Here every check passes, each on its line, and the status is 0."""
    status = command.main(["doctor"])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0, lines
    assert all(line.startswith("ok    ") for line in lines)
    for part in (
        "Python 3",
        "ipykernel",
        "pydantic-ai",
        "kernel starts",
        "%load_ext",
        "keys: ",
        "model: ",
    ):
        assert sum(part in line for line in lines) >= 1, part


def test_doctor_reports_each_failure_in_one_line(monkeypatch) -> None:
    """A check that fails, however, is a FAIL line without a traceback, and the others still run."""

    def kernel():
        msg = "no\nkernel"
        raise OSError(msg)
        yield

    def packages():
        yield "one"
        msg = "two is not installed: pip install two"
        raise doctor.CheckFailedError(msg)

    monkeypatch.setattr(doctor, "_packages", packages)
    monkeypatch.setattr(doctor, "_kernel", kernel)
    monkeypatch.setitem(sys.modules, "pi_agent_kernel.models.catalog", None)
    out = io.StringIO()

    assert doctor.examine(out) == 1
    lines = out.getvalue().splitlines()
    assert "ok    one" in lines
    assert "FAIL  two is not installed: pip install two" in lines
    assert "FAIL  kernel: OSError: no kernel" in lines
    assert any(line.startswith("FAIL  model: ") for line in lines)


def test_quickstart_is_found() -> None:
    """The quickstart is a notebook, in the package or in the checkout beside it."""
    found = demo.quickstart()

    assert json.loads(found.read_bytes())["nbformat"] == 4
    assert resources.files("pi_notebook").is_dir()
    assert Path(str(found)).name == "00_quickstart.ipynb"
