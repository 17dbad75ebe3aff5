"""What every test stands on: no keys, no network beyond loopback, no traces left behind."""

from __future__ import annotations

import ipaddress
import os
import socket
import tempfile

import pytest

LIMITS = {
    "browser": 120,
    "llm": 240,
    "kernel": 60,
    "slow": 900,
    "property": 0,
}  # seconds; 0: none of its own

# Before anything of Jupyter is imported: its folders, and what would choose a real model.
for _name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
    os.environ[_name] = tempfile.mkdtemp(prefix="pi-notebook-tests-")
for _name in list(os.environ):
    if _name.startswith("PI_NOTEBOOK_") or _name.endswith(("_API_KEY", "_BASE_URL")):
        del os.environ[_name]
for _name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM"):  # servers that run on this very machine
    os.environ[f"{_name}_BASE_URL"] = "http://127.0.0.1:9/v1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the marked tests their time, unless they set their own."""
    for item in items:
        for marker, seconds in LIMITS.items():
            if item.get_closest_marker(marker) and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(seconds))


def is_local(family: int, address: object) -> bool:
    """Tell whether a socket address is on this machine."""
    if family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(address, tuple):
        return True
    try:
        return ipaddress.ip_address(address[0]).is_loopback
    except ValueError:
        return address[0] == "localhost"


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections beyond this machine, in this process."""
    real = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex")}

    def guard(name: str) -> object:
        def connect(self: socket.socket, address: object) -> object:
            if not is_local(self.family, address):
                pytest.fail(f"a test tried to reach {address!r}")
            return real[name](self, address)

        return connect

    for name in real:
        monkeypatch.setattr(socket.socket, name, guard(name))
