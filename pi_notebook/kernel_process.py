"""A Jupyter kernel in its own process, for the console command.

The kernel runs on this very interpreter, whatever kernel specifications the user has installed. Its
sockets stand in a temporary folder (on Windows they are loopback ports) and its input history in
memory, so nothing is left behind. It is dead when the `with` block ends, however that ends; if this
process is killed, ipykernel notices.
"""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

__all__ = ["KernelFailedError", "KernelProcess"]

POLL_SECONDS = 0.5  # how soon the death of the kernel is noticed
LONGEST_FOLDER = 80  # a Unix socket's path has some 100 characters
ARGUMENTS = ("--HistoryManager.hist_file=:memory:",)


class KernelFailedError(RuntimeError):
    """Say that the kernel did not start, died, or did not finish in time."""


class _ThisPython(KernelSpecManager):
    """Know one kernel: ipykernel on the running interpreter."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002 - there is one
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


class KernelProcess:
    """Start a kernel, run cells in it, end it.

    Args:
        timeout: Seconds for everything from the start of the kernel to its last cell.
        environment: Variables that the kernel gets besides those of this process.

    Raises:
        KernelFailedError: On entering, when the kernel does not start or answer.
    """

    def __init__(self, *, timeout: float, environment: Mapping[str, str] | None = None) -> None:
        self._timeout = timeout
        self._environment = {
            **os.environ,
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # no debugger is used, so no warning about one
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + self._timeout
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = self._folder.name
        self._manager = KernelManager(
            connection_file=str(Path(folder) / "kernel.json"),
            kernel_spec_manager=_ThisPython(),
            transport="ipc" if os.name == "posix" and len(folder) < LONGEST_FOLDER else "tcp",
        )
        self._client = None
        try:
            self._manager.start_kernel(env=self._environment, extra_arguments=list(ARGUMENTS))
            self._client = self._manager.client()
            self._client.start_channels()
            self._client.wait_for_ready(timeout=self._timeout)
        except BaseException as error:
            self._end()
            if isinstance(error, RuntimeError | OSError):
                raise KernelFailedError(f"The kernel did not start: {error}") from None
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        try:
            if self._client is not None:
                self._client.stop_channels()
        finally:
            if self._manager.has_kernel:
                self._manager.shutdown_kernel(now=True)
            self._manager.cleanup_resources()
            self._folder.cleanup()

    def run(self, code: str) -> Iterator[dict[str, Any]]:
        """Run one cell and give each message of its output as it comes.

        Args:
            code: The cell.

        Yields:
            Messages of the Jupyter protocol's iopub channel, in order. Updates of earlier displays
            are among them whichever cell sent them. When the cell fails without an `error`
            message, one is made up, so every failed cell has one.

        Raises:
            KernelFailedError: The kernel died, or the time is over.
        """
        client = self._client
        if client is None:
            raise KernelFailedError("The kernel is not running.")
        request = client.execute(code, allow_stdin=False, stop_on_error=True)
        failed = False
        while True:
            message = self._wait(client.get_iopub_msg)
            kind = message["msg_type"]
            if kind == "update_display_data":
                yield message
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "status" and message["content"]["execution_state"] == "idle":
                break
            failed = failed or kind == "error"
            yield message
        while (reply := self._wait(client.get_shell_msg))["parent_header"].get("msg_id") != request:
            pass
        content = reply["content"]
        if content["status"] != "ok" and not failed:
            made_up = {"ename": content["status"], "evalue": "", "traceback": []}
            yield {"msg_type": "error", "content": made_up}

    def _wait(self, get: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise KernelFailedError(f"Not finished after {self._timeout:g} s.")
            try:
                return get(timeout=min(left, POLL_SECONDS))
            except queue.Empty:
                if not self._manager.is_alive():
                    raise KernelFailedError("The kernel died while the cell ran.") from None
