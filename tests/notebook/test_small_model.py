"""`%%agent` with a real model in a real kernel: llama.cpp and SmolLM2-135M, never its wording."""

import json
import os
from pathlib import Path

import anyio
import pytest
import small_model
from pi_agent_kernel.models.llama_process import Launch, running
from processes import is_running, until

pytestmark = [pytest.mark.llm, pytest.mark.kernel]

RUN = "application/vnd.pi.run+json"

PREPARE = '''
%load_ext pi_notebook
import pi_notebook as pi
import small_model

@pi.tool
def run_python(code: str) -> str:
    """Run Python code and return its value."""
    return str(eval(code))
'''

# Each question has the same beginning, so that one does not mislead the next.
BEGIN = """
pi.agent.state.messages[:] = [m for m in pi.agent.state.messages if m.role == "system"]
pi.agent.state.messages.extend(small_model.examples())
pi.agent.on_payload = lambda payload, model: {**payload, **small_model.CAREFUL}
"""

ENDLESS = "pi.agent.on_payload = lambda payload, model: {**payload, **small_model.ENDLESS}"

LOCAL = """
from pi_agent_kernel.models import llama_process
from pi_agent_kernel.models.catalog import register_model
from pi_agent_kernel.models.local_llama import local_model

path = small_model.gguf()
register_model("small", small_model.small_stream_fn(), local_model(path))

def servers():
    return [server._process.pid for server in llama_process._processes.values()]
"""


@pytest.fixture
def ask_kernel(start_kernel):
    """Start a kernel that knows the real model's settings; return how to prompt it."""
    here = str(Path(small_model.__file__).parent)
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])

    def start(*cells, **environment):
        kernel = start_kernel(PI_NOTEBOOK_HEADLESS="0", PYTHONPATH=path, **environment)
        for cell in (PREPARE, *cells):
            assert kernel.run(cell).error is None
        return kernel

    return start


def shows_text(message):
    kinds = ("display_data", "update_display_data")
    return message["msg_type"] in kinds and bool(message["content"]["data"]["text/plain"])


def usages(kernel):
    code = (
        "import json; print(json.dumps([[m.usage.input + m.usage.cache_read, m.usage.output] "
        "for m in pi.agent.state.messages[-3:] if m.role == 'assistant']))"
    )
    return json.loads(kernel.run(code).printed)


def assert_calls_the_function(kernel, magic):
    """Hold that one of the questions led through a call and its result to an answer."""
    runs = []
    for question in small_model.QUESTIONS:
        assert kernel.run(BEGIN).error is None
        outcome = kernel.run(f'%%agent {magic} --system "{small_model.SYSTEM}"\n{question}')
        assert outcome.error is None
        (display,) = outcome.displays
        run = display["data"][RUN]
        runs.append(run)
        if [call["status"] for call in run["toolCalls"]] == ["ok"] and run["turns"] == 2:
            break
    else:
        pytest.fail(f"none succeeded: {runs}")
    (call,) = runs[-1]["toolCalls"]
    assert call["name"] == "run_python"
    assert call["result"] == str(eval(call["arguments"]["code"]))
    assert runs[-1]["status"] == "ok"
    assert runs[-1]["text"].strip()
    counts = usages(kernel)
    assert len(counts) == 2
    assert all(tokens > 0 for pair in counts for tokens in pair)


def assert_interrupt_works(kernel, magic):
    """Hold that an interrupt ends a reply that would go on for minutes, and the next is whole."""
    assert kernel.run(ENDLESS).error is None
    outcome = kernel.run(f"%%agent {magic}\n{small_model.STORY}", interrupt_when=shows_text)
    assert outcome.error == "AgentAborted"
    (display,) = outcome.displays
    assert display["data"][RUN]["status"] == "aborted"
    assert display["data"][RUN]["text"]
    assert kernel.run(BEGIN).error is None
    # The server answers one at a time: it would not get to this if it still generated.
    assert kernel.run(f"%%agent {magic}\n{small_model.QUESTIONS[0]}").error is None


def test_a_cell_asks_a_server_by_its_address(ask_kernel):
    """A cell calls a function and can be interrupted, with the model named by the environment."""
    launch = Launch(
        path=str(small_model.gguf()),
        chat_template=small_model.TEMPLATE.read_text(),
        **small_model.SERVER,
    )
    server, address = anyio.run(running, launch, None)
    kernel = ask_kernel(
        PI_NOTEBOOK_MODEL="openai-chat:smollm2",
        OPENAI_BASE_URL=f"{address}/v1",
        OPENAI_API_KEY=server.key,
    )

    assert_calls_the_function(kernel, "")
    assert_interrupt_works(kernel, "")


def test_a_cell_asks_a_model_file(ask_kernel):
    """The kernel's own server survives an interrupt of the cell, and ends with the kernel."""
    kernel = ask_kernel(LOCAL)

    assert_calls_the_function(kernel, "--model small")
    (server,) = json.loads(kernel.run("servers()").value)
    assert_interrupt_works(kernel, "--model small")
    assert json.loads(kernel.run("servers()").value) == [server]
    kernel.close()

    anyio.run(until, lambda: not is_running(server))
