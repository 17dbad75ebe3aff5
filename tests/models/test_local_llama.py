"""A model file of one's own, with a package in the place of xllamacpp that behaves as told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from pi_agent_kernel.abort import AbortController
from pi_agent_kernel.models.local_llama import local_model, local_stream_fn
from pi_agent_kernel.request import StreamOptions, TranscriptContext
from processes import is_running, until
from provider import GO, LIMIT

# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
    ),
    pytest.mark.skipif(os.name != "posix", reason="the stand-in is killed by POSIX signals"),
]

# What the real package looks like from `llama_program`. The model file says how it behaves:
# "load" as it is loaded, "ask" when a request has come, each followed by Python.
STAND_IN = """
import json, os, signal, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

def CommonParams():
    return SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace())

def log(line):
    os.write(2, f"0.00.000.001 E {line}\\n".encode())

class Server:
    def __init__(self, params):
        self.script = json.load(open(params.model.path))
        with open(params.model.path + ".pids", "a") as pids:
            pids.write(f"{os.getpid()}\\n")
        exec(self.script.get("load", ""), {**globals(), "params": params})
        server = self
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args): pass
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["authorization"] == "Bearer " + params.api_keys[0]
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self.say({"role": "assistant", "content": str(os.getpid())})
                exec(server.script.get("ask", ""), globals())
                self.say({}, "stop")
                self.wfile.write(b"data: [DONE]\\n\\n")
            def say(self, delta, reason=None):
                choice = {"index": 0, "delta": delta, "finish_reason": reason}
                chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1,
                         "model": "m", "choices": [choice]}
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\\n\\n")
        http = ThreadingHTTPServer((params.hostnames[0], params.port), Handler)
        threading.Thread(target=http.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{http.server_port}"
"""

HELD = "import ctypes; ctypes.PyDLL(None).sleep(600)"  # native code that keeps Python's lock


@pytest.fixture
def model_file(tmp_path, monkeypatch):
    """Make files that the stand-in serves."""
    package = tmp_path / "packages" / "xllamacpp.py"
    package.parent.mkdir()
    package.write_text(STAND_IN)
    inherited = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}{os.pathsep}{inherited}")

    def make(load="", ask="", package_source=STAND_IN):
        package.write_text(package_source)
        path = tmp_path / "model file ü.gguf"
        path.write_text(json.dumps({"load": load, "ask": ask}))
        return path

    return make


async def ask(stream_fn, path, **options):
    """Return the final message of one request."""
    context = TranscriptContext(messages=GO)
    with anyio.fail_after(LIMIT):
        stream = stream_fn(local_model(path), context, StreamOptions(**options))
        return [event async for event in stream][-1].message


def pids(path):
    """Return the servers that began to load the file, in order."""
    try:
        return [int(line) for line in Path(f"{path}.pids").read_text().split()]
    except FileNotFoundError:
        return []


def test_a_model_is_named_after_its_file():
    """The id is the file's name without its ending, the provider "local", with no address yet."""
    model = local_model("~/models/Small-1B.Q4_0.gguf")

    assert (model.id, model.provider, model.api) == (
        "Small-1B.Q4_0",
        "local",
        "openai-completions",
    )
    assert model.base_url == ""


@pytest.mark.parametrize("options", [{"n_ctx": 0}, {"threads": 0}])
def test_settings_must_be_positive(options):
    """A context or thread count below one is refused at once."""
    with pytest.raises(ValueError, match="must be positive, not"):
        local_stream_fn("a.gguf", **options)


async def test_nothing_is_started_before_the_first_request(model_file):
    """Making the stream function starts nothing; requests with equal settings share one server."""
    path = model_file()
    first, second = local_stream_fn(path), local_stream_fn(str(path))
    assert pids(path) == []

    replies = [await ask(first, path), await ask(second, path), await ask(first, path)]

    assert [reply.error_message for reply in replies] == [None] * 3
    assert len({reply.text for reply in replies}) == 1
    assert [str(pid) for pid in pids(path)] == [replies[0].text]
    assert (await ask(local_stream_fn(path, n_ctx=512), path)).text != replies[0].text


def test_threads_and_loops_share_the_server(model_file):
    """Requests at the same time from several threads, each with its loop, start one server."""
    path = model_file()
    stream_fn = local_stream_fn(path)
    replies = []

    def work(backend):
        replies.append(anyio.run(ask, stream_fn, path, backend=backend))

    backends = ("asyncio", "trio", "asyncio", "trio")
    threads = [threading.Thread(target=work, args=(backend,)) for backend in backends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)

    assert [reply.error_message for reply in replies] == [None] * 4
    assert len(pids(path)) == 1


async def test_a_missing_package_is_an_error_message(model_file):
    """Without xllamacpp the reply says how to install it."""
    path = model_file(package_source="raise ModuleNotFoundError('No module named xllamacpp')")

    reply = await ask(local_stream_fn(path), path)

    assert reply.stop_reason == "error"
    assert "pip install 'pi-notebook[local]'" in reply.error_message
    assert reply.diagnostics[0]["details"]["kind"] == "setup"


async def test_a_broken_package_is_an_error_message(model_file):
    """A package that cannot be loaded is told apart from one that is not there."""
    path = model_file(package_source="raise ImportError('libgomp.so.1: cannot open')")

    reply = await ask(local_stream_fn(path), path)

    assert "libgomp.so.1" in reply.error_message
    assert "--force-reinstall xllamacpp" in reply.error_message


async def test_a_missing_file_is_an_error_message(tmp_path):
    """A path without a file, or to a folder, is named."""
    for path, why in ((tmp_path / "no.gguf", "No such file"), (tmp_path, "Is a directory")):
        reply = await ask(local_stream_fn(path), path)

        assert reply.stop_reason == "error"
        assert str(path) in reply.error_message
        assert why in reply.error_message


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ('raise RuntimeError("Failed to init")', ("Failed to init", "complete GGUF file")),
        ('log("x: error loading model: is corrupted"); raise RuntimeError()', ("is corrupted",)),
        ('log("insufficient memory"); raise RuntimeError()', ("smaller model", "n_ctx")),
        ('log("chat template parsing error"); raise RuntimeError()', ("Check chat_template",)),
        ("os.kill(os.getpid(), signal.SIGILL)", ("SIGILL", "pip install -U xllamacpp")),
        ("os.kill(os.getpid(), signal.SIGKILL)", ("SIGKILL", "smaller model")),
        ("os._exit(3)", ("exit code 3",)),
    ],
)
async def test_a_failure_to_load_is_an_error_message(model_file, load, words):
    """The cause is named with a remedy, and the next request tries again."""
    path = model_file(load=load)
    stream_fn = local_stream_fn(path)

    replies = [await ask(stream_fn, path) for _ in range(2)]

    for word in words:
        assert word in replies[0].error_message
    assert replies[1].error_message == replies[0].error_message
    assert len(pids(path)) == 2


async def test_a_server_that_dies_in_the_middle_is_started_again(model_file):
    """A death in mid-reply keeps what arrived and says so; the next request has a new server."""
    path = model_file(ask="os.kill(os.getpid(), signal.SIGKILL)")
    stream_fn = local_stream_fn(path)

    broken = await ask(stream_fn, path)
    model_file()
    healed = await ask(stream_fn, path)

    assert (broken.stop_reason, broken.text) == ("error", str(pids(path)[0]))
    assert "was ended by SIGKILL" in broken.error_message
    assert "starts the server again" in broken.error_message
    assert broken.diagnostics[0]["details"]["kind"] == "connection"
    assert (healed.stop_reason, healed.text) == ("stop", str(pids(path)[1]))


async def test_a_server_that_died_between_requests_is_replaced(model_file):
    """A server that is gone is not asked again."""
    path = model_file()
    stream_fn = local_stream_fn(path)
    await ask(stream_fn, path)
    os.kill(pids(path)[0], signal.SIGKILL)
    await until(lambda: not is_running(pids(path)[0]))

    replies = [await ask(stream_fn, path) for _ in range(2)]

    assert replies[-1].text == str(pids(path)[1])


async def test_an_abort_stops_the_loading(model_file):
    """An abort while the file loads ends the request as aborted and the process with it."""
    path = model_file(load=HELD)
    controller = AbortController()

    async with anyio.create_task_group() as tasks:

        async def abort_when_loading():
            await until(lambda: pids(path))
            controller.abort()

        tasks.start_soon(abort_when_loading)
        reply = await ask(local_stream_fn(path), path, signal=controller.signal)

    assert reply.stop_reason == "aborted"
    await until(lambda: not is_running(pids(path)[0]))


async def test_a_cancelled_request_stops_the_loading(model_file):
    """Cancelling the task that waits for the file leaves no process behind."""
    path = model_file(load=HELD)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, local_stream_fn(path), path)
        await until(lambda: pids(path))
        tasks.cancel_scope.cancel()

    await until(lambda: not is_running(pids(path)[0]))


async def test_loading_goes_on_for_those_who_wait(model_file):
    """One of two requests that wait is aborted; the other gets its reply from the same process."""
    path = model_file(load="while not os.path.exists(params.model.path + '.go'): time.sleep(0.01)")
    go = Path(f"{path}.go")
    controller = AbortController()
    stream_fn, replies = local_stream_fn(path), {}

    async with anyio.create_task_group() as tasks:

        async def request(name, signal):
            replies[name] = await ask(stream_fn, path, signal=signal)
            await anyio.Path(go).touch()

        tasks.start_soon(request, "patient", None)
        tasks.start_soon(request, "impatient", controller.signal)
        await until(lambda: pids(path))
        controller.abort()

    assert replies["impatient"].stop_reason == "aborted"
    assert replies["patient"].text == str(pids(path)[0])
    assert len(pids(path)) == 1


async def test_leaving_the_stream_closes_the_request(model_file):
    """A consumer that goes after the first piece leaves the server running for the next one."""
    path = model_file(ask="time.sleep(600)")
    stream_fn = local_stream_fn(path)

    with anyio.fail_after(LIMIT):
        stream = stream_fn(local_model(path), TranscriptContext(messages=GO), StreamOptions())
        async with aclosing(stream):
            async for event in stream:
                if event.type == "text_delta":
                    break
    model_file()

    assert is_running(pids(path)[0])
    assert len(pids(path)) == 1


PARENT = """
import os, sys, threading, time
import anyio
from pi_agent_kernel.messages import UserMessage
from pi_agent_kernel.models.local_llama import local_model, local_stream_fn
from pi_agent_kernel.request import StreamOptions, TranscriptContext

path, ending = sys.argv[1:]

async def ask():
    context = TranscriptContext(messages=[UserMessage(content="go")])
    stream = local_stream_fn(path)(local_model(path), context, StreamOptions())
    return [event async for event in stream][-1].message.text

if ending == "loading":
    anyio.run(ask)
pid = anyio.run(ask)
if ending == "fork":
    child = os.fork()
    if child == 0:
        again = anyio.run(ask)  # a server of its own
        os.write(1, f"{again}\\n".encode())
        time.sleep(600)
    os.write(1, f"{child}\\n".encode())
    time.sleep(600)
if ending == "killed":
    os.write(1, b"ready\\n")
    time.sleep(600)
"""


def parent(path, ending):
    """Start a program that has a server."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PARENT, str(path), ending], stdout=subprocess.PIPE
    )


async def test_the_server_ends_with_the_interpreter(model_file):
    """A program that simply ends leaves no server behind and nothing to say."""
    path = model_file()

    with parent(path, "exit") as program:
        assert program.wait(LIMIT) == 0

    await until(lambda: not is_running(pids(path)[0]))


async def test_no_orphan_is_left_by_a_killed_program(model_file):
    """The server ends when its parent is killed, which runs no code of the parent's."""
    path = model_file()

    with parent(path, "killed") as program:
        program.stdout.readline()
        assert is_running(pids(path)[0])
        program.kill()

    await until(lambda: not is_running(pids(path)[0]))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it ends once the file is loaded")
async def test_no_orphan_is_left_while_loading(model_file):
    """The server ends with its parent even while native code holds Python's lock."""
    path = model_file(load=HELD)

    with parent(path, "loading") as program:
        await until(lambda: pids(path))
        program.kill()

    await until(lambda: not is_running(pids(path)[0]))


async def test_a_fork_has_a_server_of_its_own_and_keeps_no_other_alive(model_file):
    """A forked process starts its own server, and that of its killed parent ends nevertheless."""
    path = model_file()

    with parent(path, "fork") as program:
        told = {int(program.stdout.readline()) for _ in range(2)}
        own, forked = pids(path)
        (child,) = told - {forked}
        program.kill()
        program.wait()
        await until(lambda: not is_running(own))
        assert is_running(forked)
        os.kill(child, signal.SIGKILL)

    await until(lambda: not is_running(forked))
