"""A running `%%agent` cell in JupyterLab and Notebook 7: notebook.md 3 and 5."""

from __future__ import annotations

import re
import shutil

import pytest
from browser_paths import PICTURES, ROOT
from playwright.sync_api import TimeoutError as NotYet

pytestmark = pytest.mark.browser

SETUP = """
%load_ext pi_notebook
import asyncio
import pi_notebook as pi
from pi_agent_kernel import ResponseBuilder
from pi_agent_kernel.models.catalog import register_model

async def endless(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    opened = response.text_start()
    yield opened
    if len([m for m in context.messages if m.role == "user"]) > 1:
        yield response.text_delta("**heard** you", opened.content_index)
    else:
        for number in range(100_000):
            await asyncio.sleep(0.02)
            yield response.text_delta(f"word{number} ", opened.content_index)
            if done.is_set():
                break
    yield response.text_end(opened.content_index)
    yield response.done()

done = asyncio.Event()
register_model("endless", endless)
pi.agent.set_model("endless");
"""

READY = """print("rea" + "dy")"""


def open_lab(page, jupyter, name):
    """Open a notebook in JupyterLab and run its first cells."""
    page.goto(f"{jupyter.url}/lab/tree/{name}?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")


def open_classic(page, jupyter, name):
    """Open a notebook in Notebook 7."""
    page.goto(f"{jupyter.url}/notebooks/{name}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")


def run(page, number):
    """Run one cell; a page that is still settling may drop the first key."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    for _ in range(10):
        cell.locator(".cm-line").first.click()
        page.keyboard.press("Control+Enter")
        try:
            cell.locator(".jp-InputPrompt").get_by_text(re.compile(r"\[[*\d]+\]")).wait_for(
                timeout=3000
            )
        except NotYet:
            continue
        return
    raise AssertionError(f"cell {number} does not run")


def output(page, number):
    """Return the output of one cell."""
    return page.locator(".jp-Notebook .jp-CodeCell").nth(number).locator(".jp-Cell-outputWrapper")


FRONT_ENDS = pytest.mark.parametrize("open_notebook", [open_lab, open_classic])


@FRONT_ENDS
def test_stop_ends_a_running_cell(page, jupyter, open_notebook):
    """The answer streams; the button ends the cell; what had arrived stays, the next cell runs."""
    name = f"stop-{open_notebook.__name__}.ipynb"
    jupyter.notebook(name, SETUP, "%%agent\ngo", READY)
    open_notebook(page, jupyter, name)
    run(page, 0)
    output(page, 0).get_by_text("pi-notebook:").wait_for()
    run(page, 1)

    output(page, 1).get_by_text(re.compile("word20 ")).wait_for()
    output(page, 1).get_by_role("button", name="Stop").click()

    output(page, 1).get_by_text("agent run aborted").wait_for()
    assert "word20" in output(page, 1).inner_text()
    run(page, 2)
    output(page, 2).get_by_text("ready").wait_for()


@FRONT_ENDS
def test_steering_reaches_a_running_agent(page, jupyter, open_notebook):
    """What is typed below the run is the agent's next message, and the cell shows where it came."""
    name = f"steer-{open_notebook.__name__}.ipynb"
    steered = SETUP.replace("if done.is_set():", "if pi.agent.has_queued_messages():")
    jupyter.notebook(name, steered, "%%agent\ngo")
    open_notebook(page, jupyter, name)
    run(page, 0)
    output(page, 0).get_by_text("pi-notebook:").wait_for()
    run(page, 1)
    output(page, 1).get_by_text(re.compile("word5 ")).wait_for()

    output(page, 1).get_by_label("steer the agent").fill("be brief")
    output(page, 1).get_by_label("steer the agent").press("Enter")

    output(page, 1).get_by_text("done").wait_for()
    assert output(page, 1).locator("strong").get_by_text("heard").count() == 1
    assert "be brief" in output(page, 1).locator(".pi-note").inner_text()


ASKS = """
%load_ext pi_notebook
import pi_notebook as pi
from pi_agent_kernel import ResponseBuilder
from pi_agent_kernel.models.catalog import register_model

async def deletes(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    if context.messages[-1].role == "toolResult":
        opened = response.text_start()
        yield opened
        yield response.text_end(opened.content_index, "The tool said: " + context.messages[-1].text)
    else:
        opened = response.toolcall_start("c1", "delete")
        yield opened
        yield response.toolcall_delta('{"path": "old.csv"}', opened.content_index)
        yield response.toolcall_end(opened.content_index)
    yield response.done()

register_model("deletes", deletes)
pi.agent.set_model("deletes")

@pi.tool(effects="write")
def delete(path: str) -> str:
    "Delete a file."
    return f"deleted {path}"
"""


@FRONT_ENDS
def test_a_call_that_waits_is_approved_by_its_button(page, jupyter, open_notebook, request):
    """The card shows the arguments; edited ones reach the tool; the cell goes on."""
    name = f"approve-{open_notebook.__name__}.ipynb"
    jupyter.notebook(name, ASKS, "%%agent\nclean up")
    open_notebook(page, jupyter, name)
    run(page, 0)
    output(page, 0).get_by_text("pi-notebook:").wait_for()
    run(page, 1)
    card = output(page, 1).get_by_role("group", name="approval of delete")
    card.get_by_text("old.csv").wait_for()
    page.screenshot(path=PICTURES / f"{request.node.name}-waits.png")

    card.get_by_role("button", name="Edit arguments").click()
    card.get_by_label("arguments as JSON").fill('{"path": "new.csv"}')
    card.get_by_role("button", name="Approve").click()

    output(page, 1).get_by_text("The tool said: deleted new.csv").wait_for()
    assert output(page, 1).get_by_role("group", name="approval of delete").count() == 0


def test_a_denied_call_does_not_run(page, jupyter):
    """The reason that was typed reaches the model."""
    jupyter.notebook("deny.ipynb", ASKS, "%%agent\nclean up")
    open_lab(page, jupyter, "deny.ipynb")
    run(page, 0)
    output(page, 0).get_by_text("pi-notebook:").wait_for()
    run(page, 1)
    card = output(page, 1).get_by_role("group", name="approval of delete")

    card.get_by_label("reason for denying").fill("keep it")
    card.get_by_role("button", name="Deny").click()

    output(page, 1).get_by_text("denied this call: keep it").first.wait_for()


def test_the_quickstart_runs(page, jupyter):
    """The tutorial as a person runs it, every cell, in order."""
    shutil.copy(ROOT / "notebooks" / "00_quickstart.ipynb", jupyter.folder / "quickstart.ipynb")
    jupyter.start("quickstart.ipynb")
    open_lab(page, jupyter, "quickstart.ipynb")
    page.get_by_role("menuitem", name="Run").first.click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()

    cells = page.locator(".jp-Notebook .jp-CodeCell")
    cells.last.locator(".jp-InputPrompt").get_by_text(re.compile(r"\[\d+\]")).wait_for()
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")

    assert (
        page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count()
        == 0
    )
    assert page.locator(".pi-state.pi-bad").count() == 0


def test_a_saved_answer_is_read_without_a_kernel(page, jupyter):
    """Saved, kernel gone, opened again: the answer is there, and nothing of the widget."""
    name = "saved.ipynb"
    jupyter.notebook(
        name,
        "%load_ext pi_notebook\nimport pi_notebook as pi",
        '@pi.tool\ndef add(a: int, b: int) -> int:\n    """Add."""\n    return a + b',
        "%%agent\nadd 2 and 40",
    )
    open_lab(page, jupyter, name)
    for number in range(3):
        run(page, number)
    output(page, 2).get_by_text("done").wait_for()
    page.keyboard.press("Control+s")
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")
    jupyter.stop_kernels()

    open_lab(page, jupyter, name)

    assert "42" in output(page, 2).inner_text()
    kinds = [set(out["data"]) for out in jupyter.saved(name)["cells"][2]["outputs"]]
    assert len(kinds) == 1
    assert not any("widget" in kind for kind in kinds[0])
