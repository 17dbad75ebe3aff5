"""The program that runs llama.cpp's server in a process of its own; `llama_process` starts it.

It reads its settings from one line of standard input, loads the model and writes one line to
standard output: the server's address, or what failed. Then it serves until standard input ends,
which happens when the parent dies, whatever killed it. Loading holds the interpreter's lock, so
on Linux the end of the input is a signal that kills the process even then.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

__all__ = ["main"]

#: MiB of prompts that were answered before; llama.cpp's own 8 GB are a lot beside a notebook.
_PROMPT_CACHE = 512


def main() -> None:
    """Serve one model until standard input ends."""
    # An interrupt of the notebook reaches whole groups of processes; it is not meant for this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    _die_with_input()
    # What the native code prints must not look like the report.
    report = os.dup(1)
    os.dup2(2, 1)
    try:
        llama: Any = import_module("xllamacpp")
    except ModuleNotFoundError as error:
        _fail(report, "missing", error)
    except Exception as error:  # noqa: BLE001 - a broken installation fails in many ways
        _fail(report, "broken", error)
    try:
        server = llama.Server(_parameters(llama, settings))
    except Exception as error:  # noqa: BLE001 - told to the parent
        _fail(report, "load", error)
    _tell(report, {"address": server.listening_address})
    # From here on errors reach the client; a log would hold what the notebook sent.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.stdin.buffer.read()
    os._exit(0)  # not by way of native destructors, which wait for the running reply


def _parameters(llama: Any, settings: dict[str, Any]) -> Any:
    parameters = llama.CommonParams()
    parameters.model.path = settings["path"]
    parameters.n_ctx = settings["n_ctx"]
    parameters.n_parallel = 1
    if settings["threads"]:
        parameters.cpuparams.n_threads = settings["threads"]
    parameters.use_jinja = True
    if settings["chat_template"] is not None:
        parameters.chat_template = settings["chat_template"]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [settings["key"]]
    parameters.ui = False
    parameters.cache_ram_mib = _PROMPT_CACHE
    parameters.verbosity = 1  # errors only
    return parameters


def _die_with_input() -> None:
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
        # It may have ended before the signal was asked for.
        if select.select([0], [], [], 0)[0]:
            os._exit(0)


def _tell(report: int, told: dict[str, str]) -> None:
    os.write(report, json.dumps(told).encode() + b"\n")


def _fail(report: int, kind: str, error: Exception) -> NoReturn:
    sys.stderr.flush()
    _tell(report, {"failed": kind, "detail": str(error) or type(error).__name__})
    os._exit(1)


if __name__ == "__main__":
    main()
