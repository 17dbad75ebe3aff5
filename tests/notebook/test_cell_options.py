"""The options of `%%agent`, and the verbs about turns and approvals: notebook.md 2, 4, 6."""

import json

import pytest

from pi_notebook.render.bundle import RUN_MIME

pytestmark = pytest.mark.kernel

SETUP = '''
import asyncio
said = []

def answers():
    """A model that answers with the number of user messages it was sent."""
    async def stream(model, context, options):
        said.append((context, options))
        users = [m for m in context.messages if m.role == "user"]
        response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
        yield response.start()
        opened = response.text_start()
        yield opened
        yield response.text_end(opened.content_index, f"answer {len(users)}: {users[-1].text}")
        yield response.done()
    return stream

register_model("answers", answers())
register_model("save", calls("save"))
pi.agent.set_model("answers");

@pi.tool(effects="write")
def save() -> str:
    """Save a file."""
    saved.append(1)
    return "saved"

saved = []
'''


@pytest.fixture
def cells(kernel):
    """Run cells of a notebook: `cells(id, text)` runs one as a front end that names its cells."""
    assert kernel.run(SETUP).error is None

    def run(name, code, **more):
        return kernel.run(code, cell_id=name, **more)

    return run


def user_texts(kernel):
    """Return what the user said in the transcript."""
    code = (
        "import json; print(json.dumps([m.text for m in pi.agent.state.messages "
        "if m.role == 'user']))"
    )
    return json.loads(kernel.run(code).printed)


def run_of(outcome):
    """Return the JSON of a run."""
    return outcome.displays[-1]["data"][RUN_MIME]


def test_a_cell_that_runs_again_takes_its_former_turns_place(cells, kernel):
    """The transcript is what a reader sees above; what was set aside is named and comes back."""
    cells("a", "%%agent\none")
    cells("b", "%%agent\ntwo")
    cells("c", "%%agent\nthree")

    again = cells("b", "%%agent\ntwo, better")

    assert user_texts(kernel) == ["one", "two, better"]
    assert run_of(again)["remarks"] == ["2 turns set aside: %agent switch aside-1 brings back"]
    assert "aside-1" in again.displays[-1]["data"]["text/html"]
    cells("d", "%agent switch aside-1")
    assert user_texts(kernel) == ["one", "two", "three"]


def test_append_goes_on_at_the_end(cells, kernel):
    """With the option nothing is set aside."""
    cells("a", "%%agent\none")
    cells("a", "%%agent --append\none more")
    assert user_texts(kernel) == ["one", "one more"]


def test_once_shows_the_answer_of_before(cells, kernel):
    """Nothing is asked while prompt, values, model and tools are the same; else it is."""
    kernel.run("n = 1")
    cell = "%%agent --once --to reply\nthe number is $`n`"
    first = cells("a", cell)
    kernel.run("del reply")
    again = cells("a", cell)

    assert again.displays[-1]["data"] == first.displays[-1]["data"]
    assert kernel.run("len(said), reply").value == "(1, 'answer 1: the number is 1')"
    kernel.run("n = 2")
    assert run_of(cells("a", cell))["text"] == "answer 1: the number is 2"
    kernel.run('@pi.tool\ndef other() -> int:\n    "Other."\n    return 1')
    cells("a", cell)
    assert kernel.run("len(said)").value == "3"
    cells("v", "%agent undo")
    cells("a", cell)
    assert kernel.run("len(said)").value == "4"


def test_front_ends_that_name_no_cell_append(cells, kernel):
    """Headless runners run every cell once."""
    kernel.run("%%agent\none")
    kernel.run("%%agent\none")
    assert user_texts(kernel) == ["one", "one"]


def test_what_tools_did_is_not_undone_and_the_output_says_so(cells, kernel):
    """A set-aside turn whose tools have lasting effects is named."""
    cells("a", "%%agent --model save --approve allow\ngo")
    again = cells("a", "%%agent\nagain")
    assert "what save did is not undone" in run_of(again)["remarks"][0]


def test_undo_fork_and_tree(cells, kernel):
    """The verbs move the transcript between branches."""
    cells("a", "%%agent\none")
    cells("b", "%%agent\ntwo")
    assert "1 turn set aside" in cells("v", "%agent undo").displays[-1]["data"]["text/plain"]
    cells("v", "%agent fork idea")
    cells("c", "%%agent\nthree")

    tree = cells("v", "%agent tree").displays[-1]["data"]["text/plain"]

    assert user_texts(kernel) == ["one", "three"]
    assert [line.split()[0] for line in tree.splitlines()[1:]] == ["main", "aside-1", "idea"]
    assert cells("v", "%agent undo 9").error == "UsageError"
    assert cells("v", "%agent switch nowhere").error == "UsageError"


def test_references_and_to(cells, kernel):
    """A value goes into the prompt, the answer into a variable."""
    kernel.run("n = 42")
    outcome = cells("a", "%%agent --to reply\nthe number is $`n`")
    assert run_of(outcome)["text"] == "answer 1: the number is 42"
    assert kernel.run("reply").value == "'answer 1: the number is 42'"
    assert "$`n`" in run_of(cells("b", "%%agent --raw\nsend $`n`"))["text"]


def test_a_reference_that_cannot_be_resolved_changes_nothing(cells, kernel):
    """The cell ends with one line before anything is sent."""
    cells("a", "%%agent\none")
    outcome = cells("a", "%%agent\nthe number is $`nmu`")
    assert outcome.error == "UsageError"
    assert "name 'nmu' is not defined" in outcome.reply["evalue"]
    assert user_texts(kernel) == ["one"]
    assert kernel.run("len(said)").value == "1"


def test_a_function_is_offered_for_one_cell(cells, kernel):
    """The tool is there for this request and gone after it."""
    kernel.run("def area(side: float) -> float:\n    'Square.'\n    return side * side")
    cells("a", "%%agent\nuse &`area`")
    assert kernel.run("[t.name for t in pi.agent.state.tools]").value == "['save']"
    declared = kernel.run(
        "from pi_agent_kernel import get_current_tools; "
        "[t.name for t in get_current_tools(said[-1][0].messages)]"
    )
    assert "area" in declared.value


def test_thinking_holds_for_one_cell(cells, kernel):
    """The option reaches the request; the verb keeps it."""
    cells("a", "%%agent --thinking high\ngo")
    assert kernel.run("said[-1][1].reasoning, pi.agent.state.thinking_level").value == (
        "('high', 'off')"
    )
    cells("v", "%agent thinking low")
    cells("b", "%%agent\ngo")
    assert kernel.run("said[-1][1].reasoning").value == "'low'"


def test_a_budget_stops_at_a_turn_and_continue_goes_on(cells, kernel):
    """The output says why it stopped, and what goes on."""
    stopped = cells("a", "%%agent --model save --approve allow --max-turns 1\ngo")
    assert stopped.error is None
    assert run_of(stopped)["remarks"] == [
        "stopped: 1 turn used (--max-turns); %agent continue goes on"
    ]
    went_on = cells("v", "%agent continue")
    assert run_of(went_on)["text"].startswith("answer 1")


@pytest.mark.parametrize(
    "options",
    [
        "--thinking hard", "--max-turns 0", "--max-cost x", "--max-seconds -1", "--to 1x",
        "--approve maybe", "--image 1/0", "--image saved", "--max-turns",
    ],
)  # fmt: skip
def test_bad_values_are_one_line_and_nothing_is_sent(cells, kernel, options):
    """Whatever is wrong is found before the model is asked."""
    outcome = cells("a", f"%%agent {options}\ngo")
    assert outcome.error == "UsageError"
    assert kernel.run("len(said)").value == "0"


def test_a_call_that_needs_approval_is_asked_for_in_the_cell(cells, kernel):
    """Where no page answers, the question is put by input(); yes lets it run."""
    outcome = cells("a", "%%agent --model save\ngo", stdin=True, typed=["y"])
    assert outcome.error is None
    assert outcome.asked == ["Let save() run? [y]es, [a]lways, or [n]o and why: "]
    assert kernel.run("len(saved)").value == "1"


def test_a_denied_call_does_not_run(cells, kernel):
    """The model reads the reason."""
    outcome = cells("a", "%%agent --model save\ngo", stdin=True, typed=["no not today"])
    assert "denied this call: not today" in run_of(outcome)["toolCalls"][0]["result"]
    assert kernel.run("len(saved)").value == "0"


def test_interrupt_while_waiting_for_approval(cells, kernel):
    """The wait ends, nothing runs, the next cell works."""
    outcome = cells("a", "%%agent --model save\ngo", stdin=True, interrupt_when=is_question)
    assert outcome.error == "AgentAborted"
    assert kernel.run("len(saved)").value == "0"


def is_question(message):
    """Tell whether a live output says that a call waits."""
    data = message["content"].get("data") or {}
    return "waits for you" in str(data.get("text/html", ""))


def test_export_writes_files(cells, kernel, tmp_path):
    """The conversation as Markdown, page and notebook."""
    cells("a", "%%agent\none")
    for name in ("talk.md", "talk.html", "talk.ipynb"):
        outcome = cells("v", f"%agent export {tmp_path / name}")
        assert outcome.error is None
        assert "answer 1: one" in (tmp_path / name).read_text()
    assert cells("v", f"%agent export {tmp_path / 'talk.pdf'}").error == "UsageError"
    assert cells("v", f"%agent export {tmp_path / 'no' / 'talk.md'}").error == "UsageError"


def test_agents_are_made_used_and_listed(cells, kernel):
    """`%agent new` and `use` say whom plain cells prompt; each has its own branches."""
    cells("a", "%%agent\nto main")
    cells("v", "%agent new critic answers")
    cells("a", "%%agent\nto critic")
    listed = cells("v", "%agent list").displays[-1]["data"]["text/plain"]

    assert kernel.run("pi.agent.name").value == "'critic'"
    assert user_texts(kernel) == ["to critic"]
    assert {line.split()[0] for line in listed.splitlines()[1:]} == {"main", "critic"}
    cells("v", "%agent use main")
    assert user_texts(kernel) == ["to main"]
    assert cells("v", "%agent use nobody").error == "UsageError"
    assert cells("v", "%agent new critic").error == "UsageError"


def test_continue_after_an_abort_picks_up(cells, kernel):
    """What was being answered is set aside, the prompt is asked again."""
    kernel.run('pi.agent.set_model("endless");')
    cells("a", "%%agent\ngo", interrupt_when=lambda m: m["msg_type"] == "update_display_data")
    kernel.run('pi.agent.set_model("answers");')

    outcome = cells("v", "%agent continue")

    assert run_of(outcome)["text"] == "answer 1: go"
    assert user_texts(kernel) == ["go"]
    assert "aside-1" in cells("v", "%agent tree").displays[-1]["data"]["text/plain"]


def test_queue_shows_what_waits(cells, kernel):
    """Steering and follow-ups, the next one first."""
    cells("v", "%agent steer be brief")
    cells("v", "%agent follow and then what")
    shown = cells("v", "%agent queue").displays[-1]["data"]["text/plain"]
    assert "be brief" in shown
    assert "and then what" in shown
    cells("v", "%agent queue clear")
    assert "nothing is queued" in cells("v", "%agent queue").displays[-1]["data"]["text/plain"]


def test_cost_adds_up(cells, kernel):
    """Responses, tokens and dollars of the conversation."""
    cells("a", "%%agent\none")
    shown = cells("v", "%agent cost").displays[-1]["data"]["text/plain"]
    assert "responses" in shown
    assert "$0.0000" in shown
