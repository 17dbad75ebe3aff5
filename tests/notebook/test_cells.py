"""`%%agent` cells in a real kernel: notebook.md 2 and 3."""

import json

import pytest

pytestmark = pytest.mark.kernel

RUN = "application/vnd.pi.run+json"

ADD = '''
@pi.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''

IN_A_THREAD = """
import threading
thread = threading.Thread(target=pi.agent.prompt_sync, args=("add 2 and 40",))
thread.start()
thread.join()
"""

REGISTERED = """
magics, events = ip.magics_manager.magics, ip.events.callbacks
print(len(ip.input_transformers_cleanup), len(ip.configurables), "agent" in magics["line"],
      "agent" in magics["cell"], len(events["pre_run_cell"]), len(events["post_run_cell"]))
"""


def prompts(kernel):
    """The user's texts in the transcript of the current agent."""
    code = (
        "import json; print(json.dumps([m.content[0].text for m in pi.agent.state.messages "
        "if m.role == 'user']))"
    )
    return json.loads(kernel.run(code).printed)


def test_a_cell_prompts_an_agent_that_calls_a_function(kernel):
    """The main job: a cell, a Python function, an answer that used it."""
    assert kernel.run(ADD).error is None

    outcome = kernel.run("%%agent\nadd 2 and 40")

    assert outcome.error is None
    (display,) = outcome.displays
    run = display["data"][RUN]
    assert (run["version"], run["agent"], run["status"], run["turns"]) == (1, "main", "ok", 2)
    assert run["toolCalls"] == [
        {"name": "add", "arguments": {"a": 2, "b": 40}, "status": "ok", "result": "42"}
    ]
    assert "42" in run["text"]
    assert set(display["data"]) == {"text/plain", "text/markdown", "text/html", RUN}
    assert outcome.of("execute_result") == []
    roles = kernel.run("' '.join(m.role for m in pi.agent.state.messages)").value
    assert roles == "'system user assistant toolResult assistant'"


@pytest.mark.parametrize(
    "body",
    [
        "{x} {{x}} $x %y !z ?q \\ \\n 'quotes' \"double\" '''triple''' \U0001f600",
        ">>> print(5)\n5",
        "In [1]: x\n   ...: y",
        "    indented\n  less",
        "%lines\n%%magic\n!cmd\nwhat?",
        "no newline at its end",
        "blank lines\n\n\nafter",
        "x" * 100_000,
    ],
    ids=["symbols", "doctest", "ipython", "indented", "magics", "plain", "blank", "100 KB"],
)
def test_body_is_taken_literally(kernel, body):
    """What stands in the cell is what the model gets, character for character."""
    assert kernel.run(f"%%agent --model short\n{body}").error is None
    assert (
        kernel.run(f"get_ipython().run_cell_magic('agent', '--model short', {body!r})").error
        is None
    )
    assert prompts(kernel) == [body, body]


def test_misuse_is_one_line_and_sends_nothing(kernel):
    """Bad options and empty bodies are usage errors without a traceback, before any request."""
    cases = {
        "%%agent": "nothing to send",
        "%%agent\n   \n": "nothing to send",
        "%%agent --nonsense\nhi": "unknown option --nonsense",
        "%%agent explain this\nhi": "the prompt goes below",
        "%%agent --model\nhi": "expected one argument",
        '%%agent --system "open\nhi': "No closing quotation",
        "%%agent --tools nope\nhi": "no tool is named 'nope'",
        "%%agent --agent not/a/name\nhi": "is no name for an agent",
        "%agent nonsense": "unknown verb 'nonsense'",
        "%agent resets": "did you mean reset?",
        "%%agent --models demo\nhi": "did you mean --model?",
        "%%agent --system Be brief\nhi": "a text of several words needs quotes",
        "%agent steer": "say what",
        "%agent status now": "takes nothing more",
    }
    for cell, words in cases.items():
        outcome = kernel.run(cell)
        assert outcome.error == "UsageError", cell
        assert words in outcome.printed
        assert outcome.printed.count("\n") == 1, outcome.printed
        assert outcome.of("error") == []
        assert outcome.displays == []
    assert kernel.run("len(pi.agent.state.messages)").value == "0"


def test_unknown_model_is_one_line_and_sends_nothing(kernel):
    """A model that cannot be used is named, with what works, and the agent stays as it was."""
    for cell in ("%%agent --model nope:x\nhi", "%agent model nope:x"):
        outcome = kernel.run(cell)
        assert outcome.error == "AgentUnavailable"
        assert "nope:x" in outcome.reply["traceback"][0]
        assert len(outcome.reply["traceback"]) == 1
    assert kernel.run("pi.agent.state.model.id").value == "'demo'"
    assert kernel.run("%%agent --model short\nhi").error is None


def test_model_of_a_cell_holds_for_that_cell(kernel):
    """`--model` leaves the agent's model alone; `%agent model` changes it."""
    (display,) = kernel.run("%%agent --model short\nhi").displays
    assert display["data"][RUN]["model"] == "short"
    assert kernel.run("pi.agent.state.model.id").value == "'demo'"

    assert kernel.run("%agent model short").error is None
    assert kernel.run("pi.agent.state.model.id").value == "'short'"


def test_system_text_holds_until_it_is_replaced(kernel):
    """`--system` writes one section of the prompt, which the next one replaces or ends."""
    for option, prompt in [('"Be brief"', "Be brief"), ('"Be long"', "Be long"), ('""', "")]:
        assert kernel.run(f"%%agent --model short --system {option}\nhi").error is None
        assert kernel.run("print(pi.agent.state.system_prompt)").printed == f"{prompt}\n"


def test_tools_of_a_cell_hold_for_that_cell(kernel):
    """`--tools` narrows what is offered in one cell, and says so in the transcript."""
    assert kernel.run(ADD).error is None
    assert kernel.run("%%agent --tools ''\nadd 1 and 2").error is None
    declared = "[t.name for t in pi_agent_kernel.get_current_tools(pi.agent.state.messages)]"
    assert kernel.run("import pi_agent_kernel").error is None
    assert kernel.run(declared).value == "[]"

    assert kernel.run("%%agent --tools add\nadd 1 and 2").error is None
    assert kernel.run(declared).value == "['add']"


def test_quiet_cell_shows_nothing(kernel):
    """`--quiet` leaves the answer to the transcript."""
    outcome = kernel.run("%%agent --quiet --model short\nhi")
    assert (outcome.error, outcome.displays, outcome.printed) == (None, [], "")
    assert kernel.run("pi.agent.state.messages[-1].text").value == repr("abcd" * 10)


def test_agents_do_not_share_a_conversation(kernel):
    """`--agent` names another agent, made when it is first named; tools are common."""
    assert kernel.run(ADD).error is None
    (display,) = kernel.run("%%agent --agent other\nadd 1 and 2").displays
    assert display["data"][RUN]["agent"] == "other"
    assert kernel.run("sorted(pi.agents), len(pi.agent.state.messages)").value == (
        "(['main', 'other'], 0)"
    )


def test_busy_agent_refuses_a_second_cell(kernel):
    """While a run is active another cell gets one line that says how to reach it."""
    background = """
pi.agent.set_model("stalled")
started = asyncio.Event()
forget = pi.agent.subscribe(lambda event, signal: started.set(), events=["message_update"])
run = asyncio.ensure_future(pi.agent.prompt("hi"))
await started.wait()
"""
    assert kernel.run(background).error is None

    for cell in ("%%agent\nhi", "get_ipython().run_cell_magic('agent', '', 'hi')"):
        outcome = kernel.run(cell)
        assert outcome.error == "AgentUnavailable"
        (line,) = outcome.reply["traceback"]
        assert "busy" in line
        assert "%agent abort" in line
    assert kernel.run("%agent reset").error == "AgentUnavailable"

    ended = kernel.run("%agent abort\nawait pi.agent.wait_for_idle()\nawait run")
    assert ended.error == "AgentAborted"
    assert kernel.run("%%agent --model short\nhi").error is None


@pytest.mark.parametrize(
    "cell",
    [
        "%%time\n%%agent\nadd 2 and 40",
        "%%capture seen\n%%agent\nadd 2 and 40",
        "for _ in range(2): get_ipython().run_cell_magic('agent', '', 'add 2 and 40')",
        "get_ipython().run_cell('%%agent\\nadd 2 and 40')",
        "pi.agent.prompt_sync('add 2 and 40')",
        "await pi.agent.prompt('add 2 and 40')",
        IN_A_THREAD,
    ],
    ids=["time", "capture", "loop", "run_cell", "prompt_sync", "prompt", "thread"],
)
def test_every_way_to_run_gives_the_answer(kernel, cell):
    """Where a cell cannot be awaited the run lives apart, and gives the same answer."""
    assert kernel.run(ADD).error is None
    assert kernel.run(cell).error is None
    assert "42" in kernel.run("pi.agent.state.messages[-1].text").value


def test_cell_runs_with_autoawait_off(kernel):
    """Without top-level await the magic runs the cell itself."""
    assert kernel.run(ADD).error is None
    assert kernel.run("%autoawait off").error is None
    (display,) = kernel.run("%%agent\nadd 2 and 40").displays
    assert display["data"][RUN]["status"] == "ok"


def test_cell_runs_under_trio(kernel):
    """With trio as the runner of cells, the agent runs on trio."""
    assert kernel.run(ADD).error is None
    assert kernel.run("%autoawait trio").error is None
    (display,) = kernel.run("%%agent\nadd 2 and 40").displays
    assert display["data"][RUN]["status"] == "ok"


@pytest.mark.parametrize("prefix", ["", "%%time\n"], ids=["awaited", "nested"])
def test_plain_tools_run_on_the_thread_of_the_cell(kernel, prefix):
    """A handle that belongs to the cell's thread works in a tool; `thread=True` opts out."""
    setup = '''
import sqlite3, threading
handle = sqlite3.connect(":memory:")

@pi.tool
def query() -> str:
    """Ask the database."""
    return str(handle.execute("select 42").fetchone()[0])

@pi.tool(thread=True)
def where() -> bool:
    """Tell whether this is the main thread."""
    return threading.current_thread() is threading.main_thread()

register_model("both", calls("query", "where"))
'''
    assert kernel.run(setup).error is None
    (display,) = kernel.run(f"{prefix}%%agent --model both\ngo").displays
    results = [call["result"] for call in display["data"][RUN]["toolCalls"]]
    assert results == ["42", "false"]


def test_tool_of_the_kernels_loop_works_awaited_and_is_explained_nested(kernel):
    """Objects of the kernel's loop work in an awaited cell; nested, the error says what to do."""
    setup = '''
gate = asyncio.get_running_loop().create_future()

@pi.tool
async def bound() -> str:
    """Await a future of the kernel's loop."""
    asyncio.get_running_loop().call_soon(lambda: gate.done() or gate.set_result("here"))
    return await gate

register_model("bound", calls("bound"))
'''
    assert kernel.run(setup).error is None
    (display,) = kernel.run("%%time\n%%agent --model bound\ngo").displays
    (call,) = display["data"][RUN]["toolCalls"]
    assert call["status"] == "error"
    assert "plain %%agent cell" in call["result"]

    (display,) = kernel.run("%%agent --model bound\ngo").displays
    assert display["data"][RUN]["toolCalls"][0]["result"] == "here"


def test_running_the_cell_of_a_tool_again_replaces_it(kernel):
    """A tool is registered by name: never twice, and still callable as the function."""
    assert kernel.run(ADD).error is None
    assert kernel.run(ADD.replace("a + b", "a - b")).error is None
    assert kernel.run("[t.name for t in pi.agent.state.tools], add(1, 2)").value == "(['add'], -1)"

    (display,) = kernel.run("%%agent\nadd 2 and 40").displays
    assert display["data"][RUN]["toolCalls"][0]["result"] == "-38"

    replaced = (
        '@pi.tool(name="add")\ndef plus(a: int, b: int) -> str:\n    "Add."\n    return "new"'
    )
    assert kernel.run(replaced).error is None
    assert kernel.run("[t.name for t in pi.agent.state.tools], plus(1, 2)").value == (
        "(['add'], 'new')"
    )


def test_load_prints_one_line_and_unload_removes_everything(kernel):
    """Loading says which model was found; unloading leaves IPython as it was."""
    assert kernel.run("ip = get_ipython()").error is None
    assert kernel.run("%unload_ext pi_notebook").error is None
    before = kernel.run(REGISTERED).printed

    loaded = kernel.run("%load_ext pi_notebook")
    assert loaded.printed.count("\n") == 1
    assert "demo" in loaded.printed
    assert "PI_NOTEBOOK_MODEL" in loaded.printed
    assert kernel.run(REGISTERED).printed != before

    assert kernel.run("%unload_ext pi_notebook").error is None
    assert kernel.run(REGISTERED).printed == before
    assert "False False" in before
    assert kernel.run("%%agent\nhi").error == "UsageError"


def test_reload_keeps_the_agents(kernel):
    """`%reload_ext` keeps conversations, tools and models."""
    assert kernel.run(ADD).error is None
    assert kernel.run("%%agent --model short\nhi").error is None
    before = kernel.run("id(pi.agent), len(pi.agent.state.messages)").value

    assert kernel.run("%reload_ext pi_notebook").error is None

    assert kernel.run("id(pi.agent), len(pi.agent.state.messages)").value == before
    assert kernel.run("%%agent\nadd 2 and 40").error is None


def test_verbs_show_and_change_the_agent(kernel):
    """Status, tools, model, reset and help answer from the agent's own state."""
    assert kernel.run(ADD).error is None
    assert kernel.run("%%agent\nadd 2 and 40").error is None

    (status,) = kernel.run("%agent").displays
    assert (
        "messages  5 (1 system, 1 user, 2 assistant, 1 toolResult)" in status["data"]["text/plain"]
    )
    assert kernel.run("%agent status").displays[0]["data"] == status["data"]
    assert "Add two numbers." in kernel.run("%agent tools").displays[0]["data"]["text/plain"]
    assert "demo" in kernel.run("%agent model").displays[0]["data"]["text/plain"]
    assert "%agent reset" in kernel.run("%agent help").displays[0]["data"]["text/plain"]

    assert kernel.run("%agent steer more").error is None
    assert kernel.run("%agent follow even more").error is None
    assert kernel.run("pi.agent.has_queued_messages()").value == "True"
    assert kernel.run("%agent reset").error is None
    assert kernel.run("pi.agent.has_queued_messages(), len(pi.agent.state.messages)").value == (
        "(False, 1)"
    )


def test_a_steer_while_idle_says_so_and_is_shown_where_it_arrives(kernel):
    """A queued message is never invisible: not while it waits, not when the model reads it."""
    kernel.run("%agent reset")
    said = kernel.run("%agent steer be brief").displays[0]["data"]["text/plain"]
    assert "no run is active" in said
    assert "be brief" in kernel.run("%agent").displays[0]["data"]["text/plain"]

    outcome = kernel.run("%%agent\nhello")
    assert outcome.displays[0]["data"]["text/plain"].startswith("» be brief\n")
    assert "be brief" not in kernel.run("%agent").displays[0]["data"]["text/plain"]

    kernel.run("%agent follow and this")
    assert "dropped" in kernel.run("%agent clear").displays[0]["data"]["text/plain"]
    assert "nothing was" in kernel.run("%agent clear").displays[0]["data"]["text/plain"]
    assert "»" not in kernel.run("%%agent\nhello").displays[0]["data"]["text/plain"]
    assert "no run" in kernel.run("%agent abort").displays[0]["data"]["text/plain"]


def test_agents_say_what_they_are(kernel):
    """An agent's repr has its name and state; a wrong name is answered with the right ones."""
    kernel.run("%agent reset")
    assert kernel.run("print(repr(pi.agent))").printed.startswith("<agent main: idle, model demo, ")
    outcome = kernel.run("pi.agents['nope']")
    assert outcome.error == "KeyError"
    assert "there is: main" in outcome.reply["evalue"]


def test_help_of_the_magic_lists_its_options(kernel):
    """`%%agent?` shows what the parser knows."""
    (page,) = kernel.run("%%agent?").reply["payload"]
    for option in ("--agent", "--model", "--system", "--tools", "--quiet"):
        assert option in page["data"]["text/plain"]


def test_configuration_names_the_model_of_new_agents(start_kernel):
    """A trait chooses the model of agents that are made later; the environment goes before it."""
    setup = (
        "c = get_ipython().config\nc.PiNotebook.model = 'nope:x'\nc.PiNotebook.system_prompt = 'S'"
    )
    kernel = start_kernel()
    assert kernel.run(setup).error is None
    loaded = kernel.run("%load_ext pi_notebook")
    assert loaded.error is None
    assert "no model yet" in loaded.printed
    assert kernel.run("%%agent\nhi").error == "AgentUnavailable"
    assert kernel.run("%config PiNotebook.model = 'demo'").error is None
    assert kernel.run("%%agent\nhi").error is None
    assert kernel.run("import pi_notebook as pi; pi.agent.state.system_prompt").value == "'S'"

    kernel = start_kernel(PI_NOTEBOOK_MODEL="demo")
    assert kernel.run(setup).error is None
    assert "no model" not in kernel.run("%load_ext pi_notebook").printed
