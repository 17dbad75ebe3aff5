from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import anyio
import pytest
from pi_agent_kernel import AgentBusyError, tool
from scripted import Scripted, call, make_tool, ok


def plain(*_):
    return threading.current_thread().name


@tool
def shout(text: str) -> str:
    """Shout."""
    return text.upper()


def test_in_a_plain_script():
    """Without a running loop prompt_sync makes one (api.md)."""
    s = Scripted(call("shout", text="hi"), "end", tools=[shout])
    s.agent.prompt_sync("go")

    assert s.outcomes == [("HI", False)]
    assert s.last.text == "end"
    s.check()


def test_several_in_a_row():
    """Each call has a loop of its own; the agent carries on."""
    s = Scripted("one", "two", "three")
    for _ in range(3):
        s.agent.prompt_sync("go")

    assert s.roles == ["user", "assistant"] * 3


def test_it_takes_what_prompt_takes():
    """Messages, images, and an empty list to continue."""
    s = Scripted("one", "two")
    s.agent.prompt_sync([{"role": "user", "content": "a"}])
    s.agent.steer("b")
    s.agent.prompt_sync([])

    assert s.roles == ["user", "assistant"] * 2
    with pytest.raises(TypeError, match="42"):
        s.agent.prompt_sync(42)


async def test_inside_a_running_loop():
    """The run gets a loop of its own in another thread; this one waits (api.md)."""
    s = Scripted(call("shout", text="hi"), "end", tools=[shout])
    s.agent.prompt_sync("go")

    assert s.outcomes == [("HI", False)]
    s.check()
    s.faux.append_responses([s.last])
    await s.prompt()
    assert s.last.text == "end"


async def test_in_a_thread_beside_a_loop():
    """A worker thread may block on a run of its own (api.md)."""
    s = Scripted("one")
    await anyio.to_thread.run_sync(s.agent.prompt_sync, "go")

    assert s.last.text == "one"


def test_in_plain_threads():
    """Two threads, two agents, at the same time."""
    both = [Scripted(call("t", x="1"), "end", tools=[make_tool(plain)]) for _ in range(2)]
    threads = [threading.Thread(target=s.agent.prompt_sync, args=["go"]) for s in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [s.last.text for s in both] == ["end", "end"]


def test_from_a_tool_of_the_same_agent():
    """It is busy, and says so; the run goes on (LP-16)."""

    def again(*_):
        s.agent.prompt_sync("more")

    s = Scripted(call(), "end", tools=[make_tool(again)])
    s.agent.prompt_sync("go")

    text, is_error = s.outcomes[0]
    assert is_error
    assert "already running" in text
    assert s.last.text == "end"


@pytest.mark.parametrize("thread", [None, False])
def test_from_a_tool_of_another_agent(thread):
    """A tool may block on another agent, in a thread or on the loop itself."""
    child = Scripted("from the child")

    def ask(*_):
        child.agent.prompt_sync("sub")
        return child.last.text

    s = Scripted(call(), "end", tools=[make_tool(ask, thread=thread)])
    s.agent.prompt_sync("go")

    assert s.outcomes == [("from the child", False)]


async def test_busy_is_raised_here():
    """While another task's run is active prompt_sync raises at once (LP-16)."""
    s = Scripted(call(), "end", tools=[make_tool(ok)])
    raised = []

    def listener(event, signal):
        with pytest.raises(AgentBusyError):
            s.agent.prompt_sync("x")
        raised.append(1)

    s.agent.subscribe(listener, events="turn_start")
    await s.prompt()

    assert raised


def test_failures_are_messages_here_too():
    """What fails inside the run is not raised (FL-01)."""
    s = Scripted()
    s.agent.prompt_sync("go")

    assert s.last.stop_reason == "error"


@pytest.mark.parametrize("inside", ["script", "asyncio", "trio"])
def test_ctrl_c_aborts(inside, tmp_path):
    """An interrupt aborts the run, waits for its end, and goes on as KeyboardInterrupt (P4)."""
    script = tmp_path / "script.py"
    runner = {
        "script": "main()",
        "asyncio": "import anyio\nasync def m(): main()\nanyio.run(m)",
        "trio": "import anyio\nasync def m(): main()\nanyio.run(m, backend='trio')",
    }[inside]
    script.write_text(
        "import _thread, anyio, os, signal, threading\n"
        "from pi_agent_kernel import *\n"
        "async def hang(*_):\n"
        "    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
        "    await anyio.sleep(30)\n"
        "faux = faux_provider()\n"
        "faux.set_responses([faux_assistant_message(faux_tool_call('t', {}))])\n"
        "tools = [AgentTool(name='t', execute=hang)]\n"
        "agent = Agent(stream_fn=faux.stream_fn, tools=tools, abort_grace=0.01)\n"
        "def main():\n"
        "    try:\n"
        "        agent.prompt_sync('go')\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', agent.state.messages[-1].stop_reason)\n"
        f"{runner}\n"
    )
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=15, check=False
    )

    assert ended.stdout.strip() == "interrupted aborted", ended.stderr
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_blocked_loop_is_left_alone(anyio_backend):
    """Tasks of the outer loop go on afterwards."""
    done = []

    async def other():
        await asyncio.sleep(0)
        done.append(1)

    task = asyncio.ensure_future(other())
    s = Scripted("one")
    s.agent.prompt_sync("go")
    await task

    assert done == [1]
    assert s.last.text == "one"


def test_aborted_from_a_thread():
    """A thread may abort a run that blocks another (api.md)."""
    started = threading.Event()

    async def hang(*_):
        started.set()
        await anyio.sleep_forever()

    s = Scripted(call(), tools=[make_tool(hang)], abort_grace=0.01)

    def stop():
        started.wait(5)
        s.agent.abort()

    thread = threading.Thread(target=stop)
    thread.start()
    s.agent.prompt_sync("go")
    thread.join()

    assert s.last.stop_reason == "aborted"
    s.check()
