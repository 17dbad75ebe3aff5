"""Processes that run llama.cpp's server, one for each model file and settings.

A crash of native code must not take the kernel along, so `llama_program` runs beside it. The first
request starts it; further ones, from any thread and event loop, share it. A thread per process
starts it, waits for its end and forgets it, so the next request starts another. It listens on
loopback, with a key that only this process knows, and ends when its standard input does: when this
process stops it or dies.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec

from pi_agent_kernel.abort import AbortSignal, OperationAborted, run_soon
from pi_agent_kernel.errors import ModelError

__all__ = ["LESS_MEMORY", "Launch", "LlamaProcess", "running", "settled"]

T = TypeVar("T")

LESS_MEMORY = "Use a smaller model or a smaller n_ctx"
_PROGRAM = Path(__file__).with_name("llama_program.py")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what makes a server: requests with equal ones share it."""

    path: str
    chat_template: str | None
    n_ctx: int
    threads: int | None


class LlamaProcess:
    """Run one server process; made under the lock."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.key: str = secrets.token_urlsafe()
        #: Where it listens, once it does, or the ModelError that says why not.
        self.address: Future[str] = Future()
        #: How it ended.
        self.ended: Future[str] = Future()
        #: Requests that wait for the address.
        self.waiting = 0
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._run, name="pi local model", daemon=True).start()

    def stop(self) -> None:
        """Kill the process and forget it; the caller holds the lock."""
        self._stopped = True
        if _processes.get(self._launch) is self:
            del _processes[self._launch]
        if self._process is not None:
            self._process.kill()

    def disown(self) -> None:
        """Let go of the process in a forked copy of its parent."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()  # this copy would keep it alive
            self._process.returncode = 0  # and it is no child of this one

    def _run(self) -> None:
        how, failure = "was not started", None
        try:
            how = self._serve()
        except ModelError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the address
            failure = ModelError(f"The local model server could not be started: {error}")
        with _lock:
            self.stop()
        if failure is not None:
            self.address.set_exception(failure)
        self.ended.set_result(how)

    def _serve(self) -> str:
        """Start the process and wait for its end; return how it ended."""
        path = self._launch.path
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise ModelError(
                f"The model file {path} cannot be read ({error.strerror}). Give the path of a "
                "GGUF file."
            ) from None
        with tempfile.TemporaryFile() as log:
            with _lock:
                if self._stopped:
                    raise ModelError("Loading was stopped.")
                process = self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-P", str(_PROGRAM)],
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # an interrupt of this group is not for it
                )
            with process:
                told = self._begin(process)
                if "address" in told:
                    self.address.set_result(told["address"])
                how = _outcome(process.wait())
            if "address" not in told:
                log.seek(0)
                raise ModelError(_why_not(path, told, log.read().decode(errors="replace"), how))
        return how

    def _begin(self, process: subprocess.Popen[bytes]) -> dict[str, str]:
        """Send the settings, return the report; it is empty if the process died instead."""
        settings = {**msgspec.to_builtins(self._launch), "key": self.key}
        try:
            if process.stdin is None or process.stdout is None:
                return {}
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            return json.loads(process.stdout.readline() or b"{}")
        except (OSError, ValueError):
            return {}


# A fork waits for the lock, so that a forked process knows of every pipe it inherits.
_lock = threading.Lock()
_processes: dict[Launch, LlamaProcess] = {}


async def running(launch: Launch, abort: AbortSignal | None) -> tuple[LlamaProcess, str]:
    """Return a server that is ready and its address; start one if there is none.

    Raises:
        ModelError: It cannot be started.
        OperationAborted: The signal was set off first.

    Cancellation: Loading stops when nobody waits for it any more.
    """
    with _lock:
        server = _processes.get(launch)
        if server is None:
            server = _processes[launch] = LlamaProcess(launch)
        server.waiting += 1
    try:
        with anyio.CancelScope() as scope:
            unwatch = abort.cancel_on_abort(scope) if abort else None
            try:
                return server, await settled(server.address)
            finally:
                if unwatch is not None:
                    unwatch()
        raise OperationAborted
    finally:
        with _lock:
            server.waiting -= 1
            if not server.waiting and not server.address.done():
                server.stop()


async def settled(future: Future[T]) -> T:
    """Wait for a future of another thread."""
    if not future.done():
        done = anyio.Event()
        wake = run_soon(done.set)
        future.add_done_callback(lambda _: wake())
        await done.wait()
    return future.result()


def _outcome(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _why_not(path: str, told: Mapping[str, str], log: str, how: str) -> str:
    """Say why there is no server and what to do."""
    detail = told.get("detail", "")
    if told.get("failed") == "missing":
        return (
            f"Running a GGUF file needs a package ({detail}). Run: pip install 'pi-notebook[local]'"
        )
    if told.get("failed") == "broken":
        return (
            f"The package xllamacpp cannot be loaded ({detail}). Run: pip install "
            "--force-reinstall xllamacpp"
        )
    # The first error of llama.cpp's log is the cause, the others say that it was one.
    errors = [line.partition(" E ")[2] for line in log.splitlines() if " E " in line]
    reason = errors[0].rpartition("error loading model: ")[2].strip() if errors else detail
    out_of_memory = ("insufficient memory", "failed to allocate", "bad_alloc", "MemoryError")
    if any(words in log for words in out_of_memory) or how.endswith("SIGKILL"):
        remedy = f"{LESS_MEMORY}, or free memory."
    elif told and "chat template" in log.replace("chat_template", "chat template"):
        remedy = "Check chat_template."
    elif not told:
        remedy = "The file may be damaged, or not for this xllamacpp: pip install -U xllamacpp"
    else:
        remedy = (
            "Is it a complete GGUF file? Download it again; a new kind of model needs: pip "
            "install -U xllamacpp"
        )
    if not told:
        reason = f"the server {how}" + (f" ({reason})" if reason else "")
    return f"llama.cpp cannot load {path}: {reason}. {remedy}"


def _stop_all() -> None:
    with _lock:
        for server in list(_processes.values()):
            server.stop()


def _after_fork() -> None:
    for server in _processes.values():
        server.disown()
    _processes.clear()
    _lock.release()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork
    )
