"""Interrupts of a real kernel: E28, AB-01, notebook.md 3.2."""

import pytest

pytestmark = pytest.mark.kernel

AWAITED = "%%agent --model {model}\ngo"
NESTED = "get_ipython().run_cell_magic('agent', '--model {model}', 'go')"


def shows_text(message):
    kinds = ("display_data", "update_display_data")
    return message["msg_type"] in kinds and bool(message["content"]["data"]["text/plain"])


def prints(text):
    """Wait until a run shows that its tool printed something."""
    outputs = ("stream", "display_data", "update_display_data", "comm_msg")
    return lambda message: message["msg_type"] in outputs and text in str(message["content"])


def assert_aborted(outcome):
    assert outcome.error == "AgentAborted"
    assert outcome.reply["traceback"] == ["agent run aborted"]


def assert_works(kernel):
    after = kernel.run("6 * 7")
    assert (after.error, after.value) == (None, "42")


@pytest.mark.parametrize("model", ["endless", "breathing", "stalled"])
def test_interrupt_ends_a_streaming_cell_twenty_times(kernel, model):
    """An interrupt ends the cell with one line and keeps kernel and agent usable, every time."""
    for _ in range(20):
        outcome = kernel.run(f"%%agent --model {model}\ngo", interrupt_when=shows_text)
        assert_aborted(outcome)
        (display,) = outcome.displays
        run = display["data"]["application/vnd.pi.run+json"]
        assert run["status"] == "aborted"
        assert run["text"]
        assert_works(kernel)

    assert kernel.run("%%agent --model short\ngo").error is None


TOOLS = '''
import time
@pi.tool
def blocks() -> str:
    """Block the thread that runs it."""
    print("tool runs", flush=True)
    while True:
        time.sleep(3600)

@pi.tool
async def waits() -> str:
    """Wait on the loop."""
    print("tool runs", flush=True)
    await asyncio.sleep(3600)

@pi.tool(thread=True)
def elsewhere(ctx: pi_agent_kernel.ToolContext) -> str:
    """Block a worker thread."""
    print("tool runs", flush=True)
    while not ctx.signal.aborted:
        time.sleep(0.005)
    return "saw it"

register_model("blocks", calls("blocks"))
register_model("waits", calls("waits"))
register_model("elsewhere", calls("elsewhere"))
'''


@pytest.mark.parametrize("cell", [AWAITED, NESTED], ids=["awaited", "nested"])
@pytest.mark.parametrize("tool", ["blocks", "waits", "elsewhere"])
def test_interrupt_reaches_a_running_tool(kernel, tool, cell):
    """Plain, async and threaded tools are interrupted, and every call is answered."""
    assert kernel.run("import pi_agent_kernel").error is None
    assert kernel.run(TOOLS).error is None
    for _ in range(5):
        outcome = kernel.run(cell.format(model=tool), interrupt_when=prints("tool runs"))
        assert_aborted(outcome)
        assert_works(kernel)

    roles = kernel.run("[m.role for m in pi.agent.state.messages if m.role != 'system']").value
    turn = "'user', 'assistant', 'toolResult', 'assistant'"
    assert "".join(roles.split()) == "[" + ",".join([turn] * 5).replace(" ", "") + "]"
    assert kernel.run("%%agent --model short\ngo").error is None


def test_interrupt_reaches_a_nested_run(kernel):
    """A run that the main thread waits for is interrupted like one that is awaited."""
    for _ in range(5):
        outcome = kernel.run(NESTED.format(model="breathing"), interrupt_when=shows_text)
        assert_aborted(outcome)
        assert_works(kernel)


def test_interrupts_in_a_burst_do_not_kill_the_kernel(kernel):
    """A second interrupt is a hard stop; the kernel and its next cell live on."""
    stubborn = '''
@pi.tool
async def stubborn() -> str:
    """Take no notice of a cancellation."""
    print("tool runs", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("asked to stop", flush=True)
register_model("stubborn", calls("stubborn"))
'''
    assert kernel.run(stubborn).error is None
    outcome = kernel.run(
        "%%agent --model stubborn\ngo", interrupt_when=prints("tool runs"), interrupts=3
    )
    assert outcome.error == "AgentAborted"
    assert_works(kernel)


def test_interrupt_stops_run_all(kernel):
    """An aborted cell ends in an error reply, so the cells queued behind it do not run."""
    requests = [
        kernel.client.execute("%%agent --model breathing\ngo"),
        kernel.client.execute("ran = True"),
    ]
    while not shows_text(kernel.client.get_iopub_msg(timeout=60)):
        pass
    kernel.manager.interrupt_kernel()
    statuses = {}
    while len(statuses) < 2:
        reply = kernel.client.get_shell_msg(timeout=60)
        statuses[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
    assert [statuses[request] for request in requests] == ["error", "aborted"]


def test_interrupt_keeps_what_had_arrived(kernel):
    """The output of an aborted run is static and says that it was aborted."""
    outcome = kernel.run("%%agent --model stalled\ngo", interrupt_when=shows_text)
    (display,) = outcome.displays
    assert display["data"]["text/plain"] == "waiting\n\n[aborted]"
    assert "pi-caret" not in display["data"]["text/html"].split("</style>")[1]


def test_abort_from_a_tool_ends_the_cell_as_an_interrupt_does(kernel):
    """Whoever aborts the run, the cell says so and fails."""
    setup = '''
@pi.tool
def stop() -> str:
    """Abort the run."""
    pi.agent.abort()
    return "stopping"
register_model("stop", calls("stop"))
'''
    assert kernel.run(setup).error is None
    assert_aborted(kernel.run("%%agent --model stop\ngo"))
    assert_works(kernel)


def test_kernel_gets_its_own_interrupt_handler_back(kernel):
    """Outside of a run nothing of ours handles the signal."""
    assert kernel.run("import signal, asyncio").error is None
    before = kernel.run("signal.getsignal(signal.SIGINT)").value
    assert kernel.run("%%agent --model short\ngo").error is None
    assert kernel.run("signal.getsignal(signal.SIGINT)").value == before


def test_tool_that_swallows_the_interrupt_is_interrupted_again(kernel):
    """A function that goes on is interrupted until it ends; one that cleans up is left to it."""
    setup = '''
caught = []
@pi.tool
def swallows() -> str:
    """Survive two interrupts."""
    for _ in range(3):
        try:
            print("tool runs", flush=True)
            time.sleep(3600)
        except KeyboardInterrupt:
            caught.append("swallowed")
    return "ended by itself"

@pi.tool
def cleans_up() -> str:
    """Take a while to end."""
    try:
        print("tool runs", flush=True)
        time.sleep(3600)
    finally:
        time.sleep(0.8)
        caught.append("cleaned up")

import time
register_model("swallows", calls("swallows"))
register_model("cleans_up", calls("cleans_up"))
'''
    assert kernel.run(setup).error is None
    for tool, expected in [("swallows", ["swallowed"] * 3), ("cleans_up", ["cleaned up"])]:
        assert kernel.run("caught.clear()").error is None
        cell = AWAITED.format(model=tool)
        assert_aborted(kernel.run(cell, interrupt_when=prints("tool runs")))
        assert kernel.run("caught").value == repr(expected)
        assert_works(kernel)
    threads = """
import threading
watching = [thread for thread in threading.enumerate() if "interrupt" in thread.name]
for thread in watching:
    thread.join(10)
print([thread.is_alive() for thread in watching].count(True))
"""
    assert kernel.run(threads).printed == "0\n"


def test_interrupt_before_the_run_began(kernel):
    """An interrupt while the cell opens its output aborts the run that starts right after."""
    kernel.run(
        "import os, signal\n"
        "publish = type(get_ipython().display_pub).publish\n"
        "def interrupting(self, *args, **kwargs):\n"
        "    type(self).publish = publish\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return publish(self, *args, **kwargs)\n"
        "type(get_ipython().display_pub).publish = interrupting"
    )
    outcome = kernel.run("%%agent --model short\ngo", stdin=True)

    assert_aborted(outcome)
    assert_works(kernel)
