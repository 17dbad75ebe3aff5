"""Examine an installation: one line per check, each with its remedy, never a traceback."""

from __future__ import annotations

import importlib.metadata
import sys
import time
from typing import TYPE_CHECKING, TextIO

from pi_notebook.kernel_compat import why_unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CheckFailedError", "examine", "require_supported_kernel"]

PACKAGES = (
    "pi-notebook",
    "ipython",
    "jupyter-client",
    "traitlets",
    "pydantic-ai-slim",
    "pydantic",
    "anyio",
    "msgspec",
)
KERNEL_SECONDS = 60.0


class CheckFailedError(Exception):
    """Say what is wrong and what to do about it."""


def examine(out: TextIO) -> int:
    """Run every check and print one line for each.

    Args:
        out: Where to print.

    Returns:
        0 when every check passed, else 1.
    """
    status = 0
    for check in (_python, _ipykernel, _packages, _jupyterlab, _kernel, _providers, _model):
        for passed, line in _lines(check):
            status = status if passed else 1
            out.write(f"{'ok  ' if passed else 'FAIL'}  {line}\n")
            out.flush()
    return status


def require_supported_kernel(version: str) -> None:
    """Refuse the versions of ipykernel that lose a cell's output.

    Args:
        version: As the package says it.

    Raises:
        CheckFailedError: With the remedy.
    """
    reason = why_unsupported(version)
    if reason is not None:
        raise CheckFailedError(reason)


def _lines(check: Callable[[], Iterator[str]]) -> Iterator[tuple[bool, str]]:
    """Turn whatever goes wrong in a check into its line."""
    try:
        for line in check():
            yield True, line
    except CheckFailedError as error:
        yield False, str(error)
    except Exception as error:  # noqa: BLE001 - a doctor reports, whatever it is
        name = check.__name__.strip("_")
        text = " ".join(str(error).split())
        yield False, f"{name}: {type(error).__name__}: {text}"


def _python() -> Iterator[str]:
    yield f"Python {sys.version.split()[0]} ({sys.executable})"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        text = f"{package} is not installed: pip install {package}"
        raise CheckFailedError(text) from None


def _ipykernel() -> Iterator[str]:
    version = _version("ipykernel")
    require_supported_kernel(version)
    yield f"ipykernel {version}"


def _packages() -> Iterator[str]:
    for package in PACKAGES:
        yield f"{package} {_version(package)}"


def _jupyterlab() -> Iterator[str]:
    try:
        yield f"jupyterlab {_version('jupyterlab')}"
    except CheckFailedError:
        yield "jupyterlab is not installed, `lab` needs it: pip install 'pi-notebook[lab]'"


def _kernel() -> Iterator[str]:
    from pi_notebook.kernel_process import KernelProcess

    began = time.monotonic()
    with KernelProcess(timeout=KERNEL_SECONDS) as kernel:
        printed = ""
        for message in kernel.run("print(6 * 7)"):
            if message["msg_type"] == "stream":
                printed += message["content"]["text"]
        if printed.strip() != "42":
            text = f"a kernel starts but answers {printed!r} to print(6 * 7)"
            raise CheckFailedError(text)
        yield f"a kernel starts and answers ({time.monotonic() - began:.1f} s)"
        for message in kernel.run("%load_ext pi_notebook"):
            if message["msg_type"] == "error":
                content = message["content"]
                text = f"%load_ext pi_notebook: {content['ename']}: {content['evalue']}"
                raise CheckFailedError(text)
        yield "%load_ext pi_notebook works"


def _providers() -> Iterator[str]:
    import os

    from pi_agent_kernel.models.probes import find_servers
    from pi_agent_kernel.models.providers import PROVIDERS, missing_package
    from pi_agent_kernel.secrecy import shown_address

    keys = {row.key(os.environ): row.id for row in PROVIDERS.values() if row.key(os.environ)}
    yield f"keys: {', '.join(keys) or 'none in the environment'}"
    servers = [
        f"{PROVIDERS[server.provider].name if server.identified else 'something unknown'} at "
        f"{shown_address(server.base_url)} with "
        f"{', '.join(server.models[:5]) or 'no model that can chat'}"
        for server in find_servers(os.environ)
    ]
    yield f"servers: {'; '.join(servers) or 'none on this machine'}"
    missing = {missing_package(row.api): row.id for row in PROVIDERS.values()}
    for requirement, provider in missing.items():
        if requirement:
            yield f"{provider} needs a package: pip install '{requirement}'"


def _model() -> Iterator[str]:
    from pi_agent_kernel.models.catalog import choose_model

    chosen = choose_model()
    if chosen.missing:
        raise CheckFailedError(f"model: {chosen.reason}")
    yield f"model: {chosen.reason}"
