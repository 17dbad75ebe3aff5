"""Real kernels for the tests of the notebook side."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

#: How long anything in a kernel may take before a test gives up.
PATIENCE = 45.0

SCRIPTED_MODELS = '''
import asyncio, itertools
import pi_notebook as pi
from pi_agent_kernel import ResponseBuilder
from pi_agent_kernel.models.catalog import register_model

def says(pieces, breathe=False):
    """A model that streams the same answer to everything."""
    async def stream(model, context, options):
        response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
        yield response.start()
        opened = response.text_start()
        yield opened
        for piece in pieces():
            if breathe:
                await asyncio.sleep(0)
            yield response.text_delta(piece, opened.content_index)
        yield response.text_end(opened.content_index)
        yield response.done()
    return stream

def calls(*names):
    """A model that calls each of these tools once, then answers."""
    async def stream(model, context, options):
        response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
        yield response.start()
        if context.messages[-1].role == "toolResult":
            opened = response.text_start()
            yield opened
            yield response.text_end(opened.content_index, "done")
        else:
            for number, name in enumerate(names):
                opened = response.toolcall_start(f"call_{number}", name)
                yield opened
                yield response.toolcall_end(opened.content_index)
        yield response.done()
    return stream

async def stalled(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    opened = response.text_start()
    yield opened
    yield response.text_delta("waiting", opened.content_index)
    await asyncio.sleep(3600)

register_model("short", says(lambda: ["abcd"] * 10))
register_model("long", says(lambda: ["abcd"] * 20_000))
register_model("endless", says(lambda: itertools.repeat("abcd ")))
register_model("breathing", says(lambda: itertools.repeat("abcd "), breathe=True))
register_model("stalled", stalled)
'''

FRESH = """
import pi_notebook as pi
pi.agents._agents.clear()
pi.agents._tools.clear()
pi.agents._current = "main"
pi.hooks.clear()
pi.agent;
"""


class Kernel:
    """A kernel and a client that sees every message, and every byte, on iopub."""

    def __init__(self, **environment: str) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel(
            env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1", **environment},
            extra_arguments=["--HistoryManager.hist_file=:memory:"],
        )
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE)
        self.stuck = False  # a cell of it did not end

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def run(
        self,
        code: str,
        *,
        stdin: bool = False,
        interrupt_when: Callable[[dict[str, Any]], bool] | None = None,
        interrupts: int = 1,
        answer: Callable[[dict[str, Any]], list[dict[str, Any]]] | None = None,
        cell_id: str | None = None,
        typed: Sequence[str] = (),
    ) -> "Outcome":
        """Run a cell to its end; send interrupts once a message of it fits.

        `answer` is a front end's part: from a message of the cell to what its widget says then.
        `cell_id` is the name a front end gives the cell, `typed` what a person types when asked.
        """
        while True:
            outcome = self._run(
                code,
                stdin=stdin,
                interrupt_when=interrupt_when,
                interrupts=interrupts,
                answer=answer,
                cell_id=cell_id,
                typed=typed,
            )
            # Older kernels drop what is sent in the moment after an error.
            if outcome.reply["status"] != "aborted":
                return outcome

    def _run(
        self,
        code: str,
        *,
        stdin: bool,
        interrupt_when: Callable[[dict[str, Any]], bool] | None,
        interrupts: int,
        answer: Callable[[dict[str, Any]], list[dict[str, Any]]] | None,
        cell_id: str | None,
        typed: Sequence[str],
    ) -> "Outcome":
        request = self._execute(code, stdin, cell_id)
        left, asked = list(typed), []
        messages, size, began = [], 0, time.monotonic()
        channel = self.client.iopub_channel
        deadline = began + PATIENCE
        interrupted_at = None
        while time.monotonic() < deadline:
            if left and self.client.stdin_channel.msg_ready():
                question = self.client.get_stdin_msg(timeout=PATIENCE)
                asked.append(question["content"]["prompt"])
                self.client.input(left.pop(0))
            if not channel.socket.poll(50 if left else 200):
                continue
            frames = channel.socket.recv_multipart()
            _, rest = channel.session.feed_identities(frames)
            message = channel.session.deserialize(rest)
            # What a widget says in reply to its page has that message as its parent.
            replies = message["msg_type"].startswith("comm_")
            if message["parent_header"].get("msg_id") != request and not replies:
                continue
            messages.append(message)
            size += sum(map(len, frames))
            for said in answer(message) if answer is not None else ():
                self._say(message["content"]["comm_id"], said)
            if interrupt_when is not None and interrupted_at is None and interrupt_when(message):
                interrupted_at = time.monotonic()
                for _ in range(interrupts):
                    self.manager.interrupt_kernel()
            content = message["content"]
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                ended = time.monotonic()
                outcome = Outcome(
                    messages, size, self._reply(request), ended - (interrupted_at or began)
                )
                outcome.asked = asked
                return outcome
        self.stuck = True
        raise TimeoutError(code)

    def _execute(self, code: str, stdin: bool, cell_id: str | None) -> str:
        if cell_id is None:
            return self.client.execute(code, allow_stdin=stdin, store_history=True)
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": stdin,
            "stop_on_error": True,
        }
        request = self.client.session.msg("execute_request", content, metadata={"cellId": cell_id})
        self.client.shell_channel.send(request)
        return request["header"]["msg_id"]

    def _say(self, comm_id: str, content: dict[str, Any]) -> None:
        """Send what the front end's half of a widget sends."""
        data = {"method": "custom", "content": content}
        channel = self.client.shell_channel
        channel.send(self.client.session.msg("comm_msg", {"comm_id": comm_id, "data": data}))

    def _reply(self, request: str) -> dict[str, Any]:
        while True:
            reply = self.client.get_shell_msg(timeout=PATIENCE)
            if reply["parent_header"].get("msg_id") == request:
                return reply["content"]


class Outcome:
    """What one cell sent."""

    def __init__(
        self, messages: list[dict[str, Any]], size: int, reply: dict[str, Any], seconds: float
    ) -> None:
        self.messages = messages
        self.size = size
        self.reply = reply
        self.seconds = seconds
        #: What a person was asked.
        self.asked: list[str] = []

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message["content"] for message in self.messages if message["msg_type"] == kind]

    @property
    def displays(self) -> list[dict[str, Any]]:
        """The outputs as a front end holds them at the end: updates have replaced them."""
        shown: list[dict[str, Any]] = []
        for message in self.messages:
            content = message["content"]
            if message["msg_type"] == "display_data":
                shown.append(content)
            elif message["msg_type"] == "update_display_data":
                same = content["transient"]["display_id"]
                shown = [
                    content if old.get("transient", {}).get("display_id") == same else old
                    for old in shown
                ]
        return shown

    @property
    def printed(self) -> str:
        return "".join(content["text"] for content in self.of("stream"))

    @property
    def value(self) -> str | None:
        results = self.of("execute_result")
        return results[-1]["data"]["text/plain"] if results else None

    @property
    def error(self) -> str | None:
        return self.reply["ename"] if self.reply["status"] == "error" else None


@pytest.fixture
def start_kernel() -> Iterator[Callable[..., Kernel]]:
    kernels: list[Kernel] = []

    def start(**environment: str) -> Kernel:
        kernels.append(Kernel(**environment))
        return kernels[-1]

    yield start
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def scripted_models() -> str:
    """A cell that registers models which say or call what a test wants."""
    return SCRIPTED_MODELS


@pytest.fixture(scope="module")
def _kernels() -> Iterator[list[Kernel]]:
    """Keep one kernel for a file of tests: starting takes longer than most tests do."""
    kernels: list[Kernel] = []
    yield kernels
    for started in kernels:
        started.close()


@pytest.fixture
def kernel(_kernels: list[Kernel]) -> Kernel:
    """A kernel that somebody watches, with new agents and the scripted models."""
    if not _kernels or _kernels[-1].stuck:
        _kernels.append(Kernel(PI_NOTEBOOK_HEADLESS="0"))
        assert _kernels[-1].run("%load_ext pi_notebook").error is None
    for cell in ("%autoawait asyncio", "%reload_ext pi_notebook", FRESH, SCRIPTED_MODELS):
        assert _kernels[-1].run(cell).error is None, cell
    return _kernels[-1]
