"""A real Jupyter Server with the extension, and a model provider on loopback behind it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "models"))

from server import ProviderServer  # noqa: E402 - found by the line above

KEY = "sk-key-of-the-server"
TOKENS = {"ada": "token-of-ada", "bob": "token-of-bob"}
PATIENCE = 45.0  # seconds for a server to start or a kernel to answer

# Two people, told apart by their tokens; the other extensions only cost time.
USERS = f"""
from jupyter_server.auth import IdentityProvider, User

class People(IdentityProvider):
    def get_user(self, handler):
        for name, token in {TOKENS!r}.items():
            if handler.request.headers.get("Authorization") == f"Bearer {{token}}":
                handler._token_authenticated = True
                return User(username=name)
        return None

c.ServerApp.identity_provider_class = People
"""
OTHERS = ("jupyterlab", "notebook", "notebook_shim", "jupyter_lsp", "jupyter_server_terminals")


class JupyterServer:
    """A Jupyter Server in a process of its own."""

    def __init__(self, folder: Path, config: str, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.runtime = folder / "runtime"
        enabled = folder / "config" / "jupyter_server_config.d"
        enabled.mkdir(parents=True)
        shipped = ROOT / "pi_notebook" / "server" / "pi_notebook.json"
        (enabled / "pi_notebook.json").write_text(shipped.read_text(encoding="utf-8"))
        (folder / "config" / "jupyter_server_config.py").write_text(config)
        own = {
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
                    *("--ServerApp.ip=127.0.0.1", "--port=0", "--ServerApp.base_url=/base/"),
                    f"--ServerApp.root_dir={folder}",
                ],
                env={**os.environ, **own, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.url = self._address()

    def _address(self) -> str:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := re.search(r"http://127\.0\.0\.1:\d+/base/", self.log):
                return found[0]
            time.sleep(0.05)
        pytest.fail(f"the server did not start:\n{self.log}")

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_for_log(self, text: str) -> str:
        """Wait until the log has a text; give the last line that does."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if lines := [line for line in self.log.splitlines() if text in line]:
                return lines[-1]
            time.sleep(0.02)
        pytest.fail(f"the log has no {text!r}:\n{self.log}")

    @property
    def proxy_url(self) -> str:
        return f"{self.url}pi"

    def client(self, user: str | None = "ada") -> httpx2.Client:
        headers = {"Authorization": f"Bearer {TOKENS[user]}"} if user else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE)

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._process.send_signal(number)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                continue
            return


@pytest.fixture(scope="module")
def provider():
    """The provider behind the servers of a file of tests."""
    with ProviderServer() as running:
        yield running


@pytest.fixture
def upstream(provider):
    """That provider, with nothing seen yet."""
    provider.requests.clear()
    provider.asked.clear()
    provider.client_left.clear()
    return provider


@pytest.fixture(scope="module")
def start_server(provider, tmp_path_factory):
    """Start servers with these lines of configuration; they end with the file of tests."""
    servers: list[JupyterServer] = []

    def start(*lines: str, users: bool = True, **environment: str) -> JupyterServer:
        others = f"c.ServerApp.jpserver_extensions = {dict.fromkeys(OTHERS, False)}"
        config = "\n".join(["c = get_config()", others, USERS if users else "", *lines])
        variables = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": provider.url, **environment}
        servers.append(JupyterServer(tmp_path_factory.mktemp("server"), config, **variables))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
