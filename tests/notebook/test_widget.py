"""The live view in a front end that runs widgets, played by the test: notebook.md 5, facts 2."""

import pytest

from pi_notebook.render.bundle import RUN_MIME

pytestmark = pytest.mark.kernel

VIEW = "application/vnd.jupyter.widget-view+json"

#: 20,000 deltas, 80 KB, over a second.
PACED = """
import asyncio
async def paced(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    opened = response.text_start()
    yield opened
    for count in range(20_000):
        if count % 200 == 0:
            await asyncio.sleep(0.01)
        yield response.text_delta("abc " if count % 150 else "d\\n\\n", opened.content_index)
    yield response.text_end(opened.content_index)
    yield response.done()
register_model("paced", paced)
pi.agent.set_model("paced");
"""


class FrontEnd:
    """Be the page's half of the widget: say ready, and the replies once it has the picture."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.heard = []
        self.model = None

    def __call__(self, message):
        content = message["content"]
        if message["msg_type"] == "comm_open" and "_esm" in content["data"].get("state", {}):
            self.model = content["comm_id"]
            return [{"t": "ready"}]
        if message["msg_type"] != "comm_msg" or content.get("comm_id") != self.model:
            return []
        if content["data"].get("method") != "custom":
            return []
        self.heard.append(content["data"]["content"])
        said, self.replies = self.replies, []
        return said

    @property
    def text(self):
        """The text as the page has it: finished blocks stay HTML."""
        page, tail = {}, ""
        for said in self.heard:
            if said["t"] == "full":
                page = {}
            for place, html, _ in said.get("parts", ()):
                page[place] = html
            for place, html in said.get("add", ()):
                page[place] += html
            tail = said.get("tail", tail) + said.get("more", "")
        return "".join(page[place] for place in sorted(page)) + tail


def test_a_long_answer_is_sent_in_small_numbered_messages(kernel):
    """Messages and bytes stay within the budget, numbers have no gap, nothing is missing."""
    kernel.run(PACED)
    front_end = FrontEnd()

    outcome = kernel.run("%%agent\ngo", answer=front_end)

    assert outcome.error is None
    numbers = [said["n"] for said in front_end.heard]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert 5 < len(numbers) <= 700
    assert outcome.size <= 12 * 80_000
    run = outcome.displays[-1]["data"][RUN_MIME]
    plain = front_end.text.replace("<p>", "").replace("</p>", "").replace("\n", " ")
    assert "".join(plain.split()) == "".join(run["text"].split())[: len("".join(plain.split()))]
    assert len(front_end.text) > 40_000


def test_nothing_of_the_widget_stays(kernel):
    """The static bundle takes its place, its comms are closed, its models forgotten."""
    kernel.run(PACED)

    outcome = kernel.run("%%agent\ngo", answer=FrontEnd())

    assert len(outcome.displays) == 1
    assert VIEW not in outcome.displays[0]["data"]
    opened = {content["comm_id"] for content in outcome.of("comm_open")}
    closed = {content["comm_id"] for content in outcome.of("comm_close")}
    assert opened
    assert opened == closed
    left = kernel.run("import comm; len(comm.get_comm_manager().comms)")
    assert left.value == "0"


def test_where_no_widget_answers_whole_answers_are_sent(kernel):
    """Without a word from the page within its time the output goes on as HTML."""
    kernel.run('pi.agent.set_model("breathing");')
    updates = []

    def waits(message):
        if message["msg_type"] == "update_display_data":
            updates.append(set(message["content"]["data"]))
        return len(updates) > 3

    outcome = kernel.run("%%agent\ngo", interrupt_when=waits)

    assert outcome.error == "AgentAborted"
    assert any(VIEW in kinds for kinds in updates)
    assert "text/html" in updates[-1]
    assert VIEW not in outcome.displays[0]["data"]


def test_stop_in_a_running_cell(kernel):
    """The button aborts the run; the cell ends as an interrupted one does, the next one works."""
    kernel.run('pi.agent.set_model("stalled");')

    outcome = kernel.run("%%agent\ngo", answer=FrontEnd({"t": "stop"}))

    assert outcome.error == "AgentAborted"
    assert outcome.displays[-1]["data"][RUN_MIME]["status"] == "aborted"
    assert kernel.run("1 + 1").value == "2"


def test_steering_in_a_running_cell(kernel):
    """What is typed into the box reaches the agent's queue."""
    kernel.run('pi.agent.set_model("stalled");')

    kernel.run(
        "%%agent\ngo",
        answer=FrontEnd({"t": "steer", "text": "be brief"}, {"t": "stop"}),
    )

    queued = kernel.run("[m.content[0].text for m in pi.agent.peek_queued_messages()]").value
    assert queued == "['be brief']"


@pytest.mark.parametrize(
    "said", [None, 3, {}, {"t": "what"}, {"t": "steer"}, {"t": "approve", "number": "x"}]
)
def test_what_a_page_should_not_say_is_ignored(kernel, said):
    """A strange message changes nothing."""
    kernel.run('pi.agent.set_model("stalled");')

    outcome = kernel.run("%%agent\ngo", answer=FrontEnd(said, {"t": "stop"}))

    assert outcome.error == "AgentAborted"
    assert kernel.run("pi.agent.has_queued_messages()").value == "False"
