"""A real browser on a real JupyterLab: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser_paths import PICTURES

try:
    import playwright  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_*.py"]  # `make test-all` installs it

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE = 60_000  # milliseconds for what must come soon on any machine


class Server:
    """A Jupyter server on loopback with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = (folder / "server.log").open("wb")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyterlab",
                "--no-browser",
                "--allow-root",
                f"--ServerApp.port={port}",
                "--ServerApp.port_retries=0",
                f"--ServerApp.root_dir={folder}",
                "--IdentityProvider.token=",
                "--ServerApp.password=",
                "--ServerApp.disable_check_xsrf=True",
                "--LabApp.news_url=None",
            ],
            env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Return once it answers."""
        deadline = time.monotonic() + PATIENCE / 1000
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/api", timeout=1):
                    return
            except (urllib.error.URLError, OSError):
                self._process.poll()
        raise TimeoutError((self.folder / "server.log").read_text(errors="replace"))

    def close(self) -> None:
        """Stop it and its kernels; one that does not go by itself is killed, kernels too."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
        self._log.close()

    def notebook(self, name: str, *cells: str) -> None:
        """Write a notebook into its folder and start its kernel."""
        made = {
            "cells": [
                {
                    "cell_type": "code",
                    "id": f"cell-{number}",
                    "metadata": {},
                    "execution_count": None,
                    "outputs": [],
                    "source": cell,
                }
                for number, cell in enumerate(cells)
            ],
            "metadata": {
                "kernelspec": {
                    "name": "python3",
                    "display_name": "Python 3 (ipykernel)",
                    "language": "python",
                }
            },
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (self.folder / name).write_text(json.dumps(made), encoding="utf-8")
        self.start(name)

    def start(self, name: str) -> None:
        """Start the kernel of a notebook, and stop every other one."""
        self.stop_kernels()
        session = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        self._ask("POST", "/api/sessions", session)

    def saved(self, name: str) -> dict[str, Any]:
        """Read a notebook as the server saved it."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def stop_kernels(self) -> None:
        """Shut every kernel down."""
        for session in self._ask("GET", "/api/sessions"):
            self._ask("DELETE", f"/api/sessions/{session['id']}")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read() or b"null")


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that all browser tests share."""
    server = Server(tmp_path_factory.mktemp("lab"))
    try:
        server.wait()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's chromium; its path may be given in PI_CHROMIUM."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("PI_CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    assert path, "no chromium on PATH: `make test-all` installs Debian's"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of its own; its last sight is kept as a picture."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    made = context.new_page()
    made.set_default_timeout(PATIENCE)
    yield made
    PICTURES.mkdir(parents=True, exist_ok=True)
    made.screenshot(path=PICTURES / f"{request.node.name}.png")
    context.close()
