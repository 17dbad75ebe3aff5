"""The inspector in a real kernel, its page played by the test: notebook.md 7."""

import pytest

pytestmark = pytest.mark.kernel

VIEW = "application/vnd.jupyter.widget-view+json"
#: 20,000 deltas over about a second.
PACED = """
async def paced(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    opened = response.text_start()
    yield opened
    for count in range(20_000):
        if count % 200 == 0:
            await asyncio.sleep(0.01)
        yield response.text_delta("abc ", opened.content_index)
    yield response.text_end(opened.content_index)
    yield response.done()
register_model("paced", paced)
pi.agent.set_model("paced");
"""
LISTENERS = "len(pi.agent._subscriptions._all)"


class Page:
    """Be the page's half of the inspector: in sight as soon as it is there."""

    def __init__(self, *said):
        self.said = [{"t": "watch"}, *said]
        self.model = None
        self.heard = []

    def __call__(self, message):
        content = message["content"]
        if message["msg_type"] == "comm_open" and "mount" in content["data"].get("state", {}):
            self.model = content["comm_id"]
            return self.said
        of_view = message["msg_type"] == "comm_msg" and content.get("comm_id") == self.model
        if of_view and content["data"].get("method") == "custom":
            self.heard.append(content["data"]["content"])
        return []


def test_headless_it_is_one_page_and_no_widget(start_kernel):
    """One display with text and a page, no comm; the same for the last expression of a cell."""
    kernel = start_kernel(PI_NOTEBOOK_HEADLESS="1")
    kernel.run("%load_ext pi_notebook\nimport pi_notebook as pi")
    for code in ("%agent inspect", "pi.agent", "pi.inspect(pi.agent)"):
        outcome = kernel.run(code)
        assert outcome.error is None
        [shown] = outcome.of("display_data")
        assert set(shown["data"]) == {"text/plain", "text/html"}
        assert "data-pi-view" not in shown["data"]["text/html"]
        assert "pending_tool_calls" in shown["data"]["text/plain"]
        assert not outcome.of("comm_open")
    assert kernel.run("%agent inspect 9999").error == "UsageError"


def test_a_plain_agent_is_inspected_too(start_kernel):
    """`pi.inspect` and the last expression take an agent of the kernel itself."""
    kernel = start_kernel(PI_NOTEBOOK_HEADLESS="1")
    kernel.run("%load_ext pi_notebook\nfrom pi_agent_kernel import Agent, faux_provider")
    outcome = kernel.run("Agent(stream_fn=faux_provider().stream_fn)")
    assert "Queues" in outcome.of("display_data")[0]["data"]["text/plain"]


def test_a_run_sends_little_and_no_widget_stays_in_the_output(kernel):
    """20,000 deltas make a few numbered messages; the output itself never has a widget."""
    kernel.run(PACED)
    page = Page({"t": "tab", "tab": "events"})
    opened = kernel.run("%agent inspect", answer=page)
    assert VIEW not in opened.displays[0]["data"]
    ran = kernel.run("%%agent --quiet\ngo", answer=page)
    assert ran.error is None
    kernel.run("import asyncio; await asyncio.sleep(0.4)", answer=page)
    said = [one for one in page.heard if one["t"] in ("full", "d")]
    assert [one["n"] for one in said] == list(range(1, len(said) + 1))
    assert 3 < len(said) < 60
    assert len(repr(said)) < 600_000


def test_a_newer_view_and_a_closed_one_leave_no_listener(kernel):
    """An agent has one live view; after `close` nobody listens and no comm is open."""
    for _ in range(3):
        kernel.run("%agent inspect", answer=Page())
    assert kernel.run(LISTENERS).value == "1"
    closed = kernel.run("%agent inspect", answer=Page({"t": "close"}))
    assert closed.error is None
    assert kernel.run(LISTENERS).value == "0"
    assert kernel.run("import comm; len(comm.get_comm_manager().comms)").value == "0"


def test_the_page_is_renewed_when_the_agent_has_changed(kernel):
    """A cell that changes the agent brings the saved page up to date, under the same display."""
    shown = kernel.run("%agent inspect", answer=Page())
    same = shown.displays[0]["transient"]["display_id"]
    kernel.run('pi.agent.state.thinking_level = "low"')
    while True:  # it comes when the cell has ended
        message = kernel.client.get_iopub_msg(timeout=20)
        if message["msg_type"] == "update_display_data":
            break
    assert message["content"]["transient"]["display_id"] == same
    assert "low" in message["content"]["data"]["text/plain"]


def test_unloading_takes_the_inspector_away(kernel):
    """After `%unload_ext` an agent is shown by its repr, and no view is live."""
    kernel.run("%agent inspect", answer=Page())
    kernel.run("%unload_ext pi_notebook")
    assert kernel.run("pi.agent").value.startswith("<agent main")
    assert kernel.run(LISTENERS).value == "0"
    kernel.run("%load_ext pi_notebook")
