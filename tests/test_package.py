"""The wheel and the sdist: what is in them, and that the wheel alone does the main job."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PIP = ["-m", "pip", "-qq", "--no-input", "--disable-pip-version-check"]
TUTORIALS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


def call(*command: str | Path, cwd: Path) -> str:
    """Run a program in a folder outside the repository; give what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """Build the sdist, and from it the wheel, so the sdist is known to suffice."""
    folder = tmp_path_factory.mktemp("built")
    build = "import sys; from hatchling import build; print(build.build_sdist(sys.argv[1]))"
    builder = folder / "builder"
    venv.create(builder, with_pip=True)
    python = builder / "bin" / "python"
    call(python, *PIP, "install", "hatchling>=1.26", cwd=folder)
    name = call(python, "-c", build, folder, cwd=ROOT).strip()
    sdist = folder / name
    call(python, *PIP, "wheel", "--no-deps", "--wheel-dir", folder, sdist, cwd=folder)
    return sdist, next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """Install the wheel into an empty environment; give the folder of its programs."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    call(programs / "python", *PIP, "install", built[1], cwd=folder)
    return programs


def test_wheel_has_both_packages_and_nothing_else(built) -> None:
    """The wheel holds both packages, typed, the tutorials, and no test."""
    names = set(zipfile.ZipFile(built[1]).namelist())

    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {
        "pi_agent_kernel",
        "pi_notebook",
    }
    assert [name.partition(".data/")[2] for name in names if ".data/" in name] == [
        "data/etc/jupyter/jupyter_server_config.d/pi_notebook.json"
    ]
    assert {"pi_agent_kernel/py.typed", "pi_notebook/py.typed"} <= names
    assert sorted(name for name in names if name.endswith(".ipynb")) == [
        f"pi_notebook/notebooks/{name}" for name in TUTORIALS
    ]
    assert not [name for name in names if "/test_" in name or "__pycache__" in name]
    assert sum(name.endswith("/licenses/LICENSE") for name in names) == 1


def test_wheel_has_every_module(built) -> None:
    """Each module of the two packages is in the wheel, byte for byte."""
    wheel = zipfile.ZipFile(built[1])
    for package in (ROOT / "core" / "pi_agent_kernel", ROOT / "pi_notebook"):
        for path in package.rglob("*.py"):
            name = path.relative_to(package.parent).as_posix()
            assert wheel.read(name) == path.read_bytes(), name


def test_sdist_has_what_the_wheel_needs_and_no_tests(built) -> None:
    """The sdist holds sources, the tutorials, README and licence, and nothing beside them."""
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"README.md", "LICENSE", "pyproject.toml"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {
        ".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "core", "notebooks",
        "pi_notebook", "pyproject.toml",
    }  # fmt: skip
    assert sorted(name for name in names if name.endswith(".ipynb")) == [
        f"notebooks/{name}" for name in TUTORIALS
    ]


def test_installed_packages_import_from_the_wheel(installed, tmp_path) -> None:
    """Outside the repository both packages come from the environment, and metadata agrees."""
    code = (
        "import sys, pi_agent_kernel, pi_notebook\n"
        "from importlib.metadata import metadata\n"
        "for package in (pi_agent_kernel, pi_notebook):\n"
        "    assert package.__file__.startswith(sys.prefix), package.__file__\n"
        "print(metadata('pi-notebook')['License-Expression'])"
    )

    assert call(installed / "python", "-c", code, cwd=tmp_path) == "MIT\n"


def test_installed_command_helps(installed, tmp_path) -> None:
    """The installed `pi-notebook --help` names its commands."""
    assert "doctor" in call(installed / "pi-notebook", "--help", cwd=tmp_path)


def test_installed_doctor_finds_nothing_wrong(installed, tmp_path) -> None:
    """In an empty environment the wheel brings everything that it needs."""
    assert "FAIL" not in call(installed / "pi-notebook", "doctor", cwd=tmp_path)


def test_installed_demo_answers(installed, tmp_path) -> None:
    """The installed demo runs to its end without a key and leaves no file behind."""
    printed = call(installed / "pi-notebook", "demo", cwd=tmp_path)

    assert "%%agent" in printed
    assert list(tmp_path.iterdir()) == []


def test_this_python_is_supported() -> None:
    """The oldest supported Python is the one that the metadata names."""
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert sys.version_info >= (3, 11)
