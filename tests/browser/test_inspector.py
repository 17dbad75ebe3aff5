"""The inspector in JupyterLab: notebook.md 7."""

from __future__ import annotations

import json
import re
import time

import pytest
from browser_paths import PICTURES
from test_running_cell import open_lab, output, run

pytestmark = pytest.mark.browser

TABS = ["State", "Transcript", "Tools", "Events", "Requests", "Queues", "Usage", "Tree"]

#: An agent that has called tools, one of which failed, and was given another one since.
TALK = """
%load_ext pi_notebook
import asyncio
import pi_notebook as pi
from pi_agent_kernel import ResponseBuilder
from pi_agent_kernel.models.catalog import register_model

@pi.tool
def sales(region: str, year: int = 2026) -> str:
    "Sum the revenue of a region, month by month."
    return "12 months, 54 310 in all"

@pi.tool
def forecast(horizon: int = 3) -> str:
    "Look some months ahead."
    raise RuntimeError("statsmodels is not installed")

async def scripted(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    results = [m for m in context.messages if m.role == "toolResult"]
    if len(results) < 2:
        opened = response.toolcall_start(f"c{len(results)}", ["sales", "forecast"][len(results)])
        yield opened
        given = ['{"region": "EMEA", "year": 2026}', '{"horizon": 3}'][len(results)]
        await asyncio.sleep(0.05)
        yield response.toolcall_delta(given, opened.content_index)
        yield response.toolcall_end(opened.content_index)
    else:
        opened = response.text_start()
        yield opened
        for word in "Revenue in EMEA grew 7.4 % over the year, but for August.".split():
            await asyncio.sleep(0.01)
            yield response.text_delta(word + " ", opened.content_index)
        yield response.text_end(opened.content_index)
    yield response.done()

register_model("scripted", scripted)
pi.agent.set_model("scripted")
pi.agent.state.messages.insert(0, __import__("pi_agent_kernel").SystemMessage(
    content="You analyse sales. <script>document.title = 'taken'</script>"))
"""

PLOT = '''
@pi.tool
def plot(column: str) -> str:
    """Draw a column."""
    return "drawn"
'''


def inspector(page, number):
    """Return the live inspector of one cell; it is live where it can be seen."""
    output(page, number).locator(".pi-insp").scroll_into_view_if_needed()
    return output(page, number).locator(".pi-insp .pi-view")


def open_tab(page, view, name):
    """Open a panel and wait until it is there."""
    view.get_by_role("tab", name=re.compile(f"^{name}")).click()
    view.locator(f"[role=tab][aria-selected=true]:text-matches('^{name}')").wait_for()


def test_every_panel_opens_and_a_run_shows_while_it_goes_on(page, jupyter):
    """The panels show the run, what its model will be told, and go on with the next run."""
    jupyter.notebook(
        "inspect.ipynb", TALK, "%%agent\nHow did EMEA do?", PLOT, "pi.agent", "%%agent\nAgain"
    )
    open_lab(page, jupyter, "inspect.ipynb")
    for number in range(4):
        run(page, number)
    view = inspector(page, 3)
    view.get_by_text("executable but not yet declared").first.wait_for()
    for name in TABS:
        open_tab(page, view, name)
    open_tab(page, view, "Events")
    view.get_by_text(re.compile("tool_execution_end forecast, error")).click()
    view.get_by_text(re.compile("RuntimeError")).first.wait_for()
    page.set_viewport_size({"width": 1600, "height": 1000})
    for wide in (1600, 400):
        if wide == 400:
            view.locator("xpath=..").evaluate("frame => { frame.style.width = '400px' }")
        for theme in ("Light", "Dark"):
            page.evaluate(
                "theme => document.body.setAttribute('data-jp-theme-light', theme === 'Light')",
                theme,
            )
            for name in TABS:
                open_tab(page, view, name)
                view.locator("..").screenshot(
                    path=PICTURES / f"inspector-{name.lower()}-{wide}-{theme.lower()}.png"
                )
    page.set_viewport_size({"width": 1200, "height": 900})
    page.evaluate("document.body.setAttribute('data-jp-theme-light', 'true')")
    open_tab(page, view, "Transcript")
    before = view.get_by_role("tab", name=re.compile("^Transcript")).inner_text()

    run(page, 4)

    view.locator(f"[role=tab]:text-matches('^Transcript'):not(:text-is('{before}'))").wait_for()
    assert page.title() != "taken"


BIG = """
%load_ext pi_notebook
import pi_notebook as pi
from pi_agent_kernel import AssistantMessage, TextContent, UserMessage
pi.agent.state.messages = [
    UserMessage(content=f"question {n} " + "word " * 40) if n % 2 == 0
    else AssistantMessage(content=[TextContent(text=f"answer {n} " + "word " * 80)])
    for n in range(2000)
]
await pi.agent.prompt("hello")
for n in range(50_000):
    pi.agent.log.note("state", f"field {n}")
"""


def test_two_thousand_messages_and_fifty_thousand_events_stay_responsive(page, jupyter):
    """Every panel opens soon, a list shows what is scrolled to, a filter finds its rows."""
    jupyter.notebook("big.ipynb", BIG, "%agent inspect")
    open_lab(page, jupyter, "big.ipynb")
    run(page, 0)
    run(page, 1)
    view = inspector(page, 1)
    view.get_by_role("tab", name="Transcript").wait_for()
    took = {}
    for name in [*TABS[1:], TABS[0]]:
        began = time.monotonic()
        open_tab(page, view, name)
        took[name] = round(time.monotonic() - began, 3)
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / "inspector-seconds.json").write_text(json.dumps(took))
    open_tab(page, view, "Transcript")
    view.locator(".pi-scroll").evaluate("list => { list.scrollTop = list.scrollHeight / 2 }")
    view.get_by_text("question 1000 ").wait_for()
    assert view.locator(".pi-scroll .pi-r").count() < 200
    open_tab(page, view, "Events")
    view.get_by_label("filter events").fill("field 31415")
    view.get_by_text("1 rows").wait_for()
    view.get_by_text("host assigns field 31415").wait_for()
    assert max(took.values()) < 5, took


def test_keys_move_through_tabs_and_rows(page, jupyter):
    """Arrows change tab and row, Enter opens, Escape closes; the notebook does not take them."""
    jupyter.notebook("keys.ipynb", TALK, "%%agent\nHow did EMEA do?", "%agent inspect")
    open_lab(page, jupyter, "keys.ipynb")
    for number in range(3):
        run(page, number)
    view = inspector(page, 2)
    view.get_by_role("tab", name="State").focus()
    page.keyboard.press("ArrowRight")
    view.locator("[role=tab][aria-selected=true]:text-matches('^Transcript')").wait_for()
    view.locator(".pi-scroll").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    view.locator(".pi-detail").get_by_text("1 system").wait_for()
    page.keyboard.press("Escape")
    view.locator(".pi-detail .pi-x").wait_for(state="detached")


def test_the_saved_notebook_shows_the_page_without_a_kernel(page, jupyter):
    """Saved, kernel gone, opened again: the panels are there as folds, nothing of a widget is."""
    name = "kept.ipynb"
    jupyter.notebook(name, TALK, "%%agent\nHow did EMEA do?", "%agent inspect")
    open_lab(page, jupyter, name)
    for number in range(3):
        run(page, number)
    inspector(page, 2).get_by_role("tab", name="Tree").wait_for()
    page.keyboard.press("Control+s")
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")
    jupyter.stop_kernels()

    open_lab(page, jupyter, name)

    saved = output(page, 2)
    saved.get_by_text("system_prompt", exact=True).wait_for()
    saved.locator("summary", has_text=re.compile("^Events")).click()
    saved.get_by_text(re.compile("tool_execution_end forecast, error")).wait_for()
    assert saved.locator(".pi-view").count() == 0
    [kinds] = [set(out["data"]) for out in jupyter.saved(name)["cells"][2]["outputs"]]
    assert kinds == {"text/plain", "text/html"}


def test_a_view_that_is_closed_leaves_its_page(page, jupyter):
    """The button takes the live view away; the saved page stays and no listener is left."""
    count = "len(pi.agent._subscriptions._all)"
    jupyter.notebook("close.ipynb", TALK, "%agent inspect", count)
    open_lab(page, jupyter, "close.ipynb")
    run(page, 0)
    run(page, 1)
    inspector(page, 1).get_by_role("button", name="keep as it is").click()
    output(page, 1).locator(".pi-twin").get_by_text("system_prompt", exact=True).wait_for()
    assert inspector(page, 1).count() == 0
    run(page, 2)
    output(page, 2).get_by_text("0", exact=True).wait_for()
