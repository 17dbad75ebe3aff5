"""What tools print, show and return, in real kernels: notebook.md 3.4 and 5."""

import base64

import pytest

pytestmark = pytest.mark.kernel

RUN = "application/vnd.pi.run+json"

TOOLS = '''
import asyncio, contextlib, io, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from IPython.display import HTML, clear_output, display
pool = ThreadPoolExecutor(1)
both = threading.Barrier(2, timeout=20)

@pi.tool
def plain() -> str:
    """Print in every way."""
    print("plain out")
    print("plain err", file=sys.stderr)
    started = threading.Thread(target=lambda: print("plain thread"))
    started.start(); started.join()
    pool.submit(print, "plain pool").result()
    with contextlib.redirect_stdout(io.StringIO()) as own:
        print("kept by the tool")
    return own.getvalue()

@pi.tool(thread=True)
def threaded() -> str:
    """Print while the other one does."""
    for number in range(20):
        print("threaded", number)
        both.wait()
    pool.submit(print, "threaded pool").result()
    return "ok"

@pi.tool
async def on_loop() -> str:
    """Print while the other one does."""
    for number in range(20):
        print("on_loop", number)
        await asyncio.to_thread(both.wait)
    await asyncio.get_running_loop().run_in_executor(pool, print, "on_loop pool")
    return "ok"

register_model("printing", calls("plain", "threaded", "on_loop"))
'''


def tools_of(outcome):
    """Return the tool calls of a run by name, as the saved output has them."""
    return {tool["name"]: tool for tool in outcome.displays[0]["data"][RUN]["toolCalls"]}


def same(name):
    return "".join(f"{name} {number}\n" for number in range(20))


@pytest.mark.parametrize("before", ["", "%%time\n"], ids=["on the loop", "in a portal"])
def test_each_card_has_what_its_tool_printed(kernel, before):
    """Threads, pools and tools at the same time print into their own card, and nowhere else."""
    assert kernel.run(TOOLS).error is None
    outcome = kernel.run(f"{before}%%agent --model printing\ngo")
    assert outcome.error is None
    shown = tools_of(outcome)
    assert shown["plain"]["printed"] == "plain out\nplain err\nplain thread\nplain pool\n"
    assert shown["plain"]["result"] == "kept by the tool\n"
    assert shown["threaded"]["printed"] == same("threaded") + "threaded pool\n"
    assert shown["on_loop"]["printed"] == same("on_loop") + "on_loop pool\n"
    assert outcome.printed.partition("CPU")[0] == ""
    assert "plain thread" in outcome.displays[0]["data"]["text/html"]


def test_two_agents_at_the_same_time_do_not_mix(kernel):
    """Tools of two runs in one cell print into the output of their own run."""
    assert kernel.run(TOOLS).error is None
    outcome = kernel.run(
        """
register_model("one", calls("threaded"))
register_model("two", calls("on_loop"))
first, second = pi.agents.get_or_make("first"), pi.agents.get_or_make("second")
first.set_model("one"); second.set_model("two")
print("before")
await asyncio.gather(first.prompt("go"), second.prompt("go"))
print("after")
"""
    )
    assert outcome.error is None
    assert outcome.printed == "before\nafter\n"
    runs = {one["data"][RUN]["agent"]: one["data"][RUN] for one in outcome.displays}
    assert runs["first"]["toolCalls"][0]["printed"] == same("threaded") + "threaded pool\n"
    assert runs["second"]["toolCalls"][0]["printed"] == same("on_loop") + "on_loop pool\n"


def test_the_process_is_as_before_when_no_run_goes_on(kernel):
    """Streams, displays and threads are patched for runs only; prints of cells are untouched."""
    look = (
        "[sys.stdout.write.__qualname__, threading.Thread.start.__module__,"
        " ThreadPoolExecutor.submit.__module__, 'publish' in vars(get_ipython().display_pub)]"
    )
    assert kernel.run(TOOLS).error is None
    before = kernel.run(look).value
    assert kernel.run("%%agent --model printing\ngo").error is None
    assert kernel.run(look).value == before
    assert kernel.run("print('mine')").printed == "mine\n"


def test_what_is_printed_is_bounded(kernel):
    """Much text is kept by its two ends, with a count; a progress bar by its last state."""
    assert (
        kernel.run(
            '''
@pi.tool
def much() -> str:
    """Print."""
    for number in range(60_000):
        print(f"line {number:06}")
    return "ok"
@pi.tool
def bar() -> str:
    """Print."""
    for number in range(101):
        sys.stderr.write(f"\\r{number} %")
    return "ok"
import sys
register_model("much", calls("much", "bar"))
'''
        ).error
        is None
    )
    outcome = kernel.run("%%agent --model much\ngo")
    shown = tools_of(outcome)
    printed = shown["much"]["printed"]
    assert printed.startswith("line 000000\n")
    assert printed.endswith("line 059999\n")
    assert "characters left out" in printed
    assert len(printed) < 10_000
    assert shown["bar"]["printed"] == "100 %"
    assert outcome.size < 200_000


def test_displays_go_to_the_card_as_image_or_text(kernel):
    """No HTML of a display is shown; ids update in the card; clearing leaves the run alone."""
    assert (
        kernel.run(
            '''
from IPython.display import HTML, clear_output, display
handle = display("of the cell", display_id="of-the-cell")
@pi.tool
def shows() -> str:
    """Show."""
    display("gone")
    clear_output()
    display(HTML("<script>alert(1)</script>"), {"a": 1})
    step = display("step 1", display_id=True)
    step.update("step 2")
    display("new", display_id="of-the-cell", update=True)
    for number in range(30):
        display(number)
    return "ok"
register_model("shows", calls("shows"))
'''
        ).error
        is None
    )
    outcome = kernel.run("%%agent --model shows\ngo")
    assert not outcome.of("clear_output")
    shown = [one["text"] for one in tools_of(outcome)["shows"]["displays"]]
    assert shown[:3] == ["<IPython.core.display.HTML object>", "{'a': 1}", "'step 2'"]
    assert shown[-1] == "29"
    assert len(shown) == 8
    assert "25 displays left out" in outcome.displays[0]["data"]["text/html"]
    assert "<script" not in outcome.displays[0]["data"]["text/html"]
    updates = outcome.of("update_display_data")
    assert "'new'" in [update["data"]["text/plain"] for update in updates]


def test_a_figure_is_shown_once(kernel):
    """A drawn figure is in the card of its tool; a returned one is not shown twice."""
    assert (
        kernel.run(
            '''
import matplotlib.pyplot as plt
@pi.tool
def drawn() -> str:
    """Draw."""
    plt.plot([1, 2])
    return "ok"
@pi.tool
def returned() -> object:
    """Draw."""
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    return figure
register_model("drawing", calls("drawn", "returned"))
'''
        ).error
        is None
    )
    for before in ("", "%%time\n"):
        outcome = kernel.run(f"{before}%%agent --model drawing\ngo")
        assert outcome.error is None
        assert len(outcome.displays) == 1
        shown = tools_of(outcome)
        assert shown["drawn"]["displays"] == [{"image": "image/png"}]
        assert shown["returned"]["images"] == 1
        assert "displays" not in shown["returned"]
        assert outcome.displays[0]["data"]["text/html"].count("<img") == 2
    assert kernel.run("plt.get_fignums()").value == "[]"


def test_objects_are_kept_and_shown(kernel):
    """A table is a table in its card, named, and stays whole; the id of its call finds it, too."""
    assert (
        kernel.run(
            '''
import pandas as pd
@pi.tool
def sales() -> object:
    """Sell."""
    return pd.DataFrame({"<b>region</b>": ["EMEA"] * 1500, "n": range(1500)})
register_model("selling", calls("sales"))
'''
        ).error
        is None
    )
    outcome = kernel.run("%%agent --model selling\ngo")
    page = outcome.displays[0]["data"]["text/html"]
    assert "<table>" in page
    assert "&lt;b&gt;region&lt;/b&gt;" in page
    assert "1\u202f490 more rows" in page
    assert "pi.agent.results[&quot;c1&quot;]" in page
    assert tools_of(outcome)["sales"]["object"] == {
        "type": "DataFrame 1500 \u00d7 2",
        "at": 'pi.agent.results["c1"]',
    }
    assert kernel.run('pi.agent.results["c1"].shape').value == "(1500, 2)"
    assert kernel.run('pi.agent.results["call_0"] is pi.agent.results.last').value == "True"
    assert len(kernel.run("pi.agent.state.messages[-2].content[0].text").value) < 25_000


def test_returned_widget_is_live_in_the_cell(kernel):
    """A widget is shown by its own view; what the model reads is its text."""
    assert (
        kernel.run(
            '''
import ipywidgets
@pi.tool
def slider() -> object:
    """Make."""
    return ipywidgets.IntSlider(value=3)
register_model("sliding", calls("slider"))
'''
        ).error
        is None
    )
    outcome = kernel.run("%%agent --model sliding\ngo")
    views = [one for one in outcome.displays if RUN not in one["data"]]
    assert ["application/vnd.jupyter.widget-view+json" in one["data"] for one in views] == [True]
    assert kernel.run("pi.agent.results.last.value").value == "3"


def test_a_tool_may_ask_and_what_it_printed_before_is_seen(kernel):
    """`input()` in a tool shows its question, after what the tool printed is on the page."""
    assert (
        kernel.run(
            '''
@pi.tool
def asks() -> str:
    """Ask."""
    print("there are two files")
    return input("which one? ")
register_model("asking", calls("asks"))
'''
        ).error
        is None
    )
    outcome = kernel.run("%%agent --model asking\ngo", stdin=True, typed=["second"])
    assert outcome.error is None
    assert outcome.asked == ["which one? "]
    kinds = ("display_data", "update_display_data")
    pages = [m["content"]["data"] for m in outcome.messages if m["msg_type"] in kinds]
    early = [page for page in pages if RUN not in page]
    assert any("there are two files" in page["text/html"] for page in early if "text/html" in page)
    assert not any("second" in str(page) for page in early)
    assert tools_of(outcome)["asks"]["result"] == "second"


@pytest.mark.parametrize("before", ["", "%%time\n"], ids=["on the loop", "in a portal"])
def test_a_running_tool_is_seen_to_print(kernel, before):
    """A plain tool that keeps the loop from turning is shown while it prints."""
    assert (
        kernel.run(
            '''
import time
@pi.tool
def works() -> str:
    """Work."""
    for number in range(8):
        print("step", number)
        time.sleep(0.06)
    return "ok"
register_model("working", calls("works"))
'''
        ).error
        is None
    )
    outcome = kernel.run(f"{before}%%agent --model working\ngo")
    kinds = ("display_data", "update_display_data")
    pages = [m["content"]["data"] for m in outcome.messages if m["msg_type"] in kinds]
    seen = [page for page in pages if "step 0" in str(page) and "step 7" not in str(page)]
    assert seen


def test_headless_outputs_are_equal(start_kernel, scripted_models):
    """What tools print, draw and return is the same in each headless execution."""
    bundles = []
    for _ in range(2):
        kernel = start_kernel(PI_NOTEBOOK_HEADLESS="1")
        for cell in ("%load_ext pi_notebook", scripted_models, TOOLS):
            assert kernel.run(cell).error is None
        outcome = kernel.run("%%agent --model printing\ngo")
        assert outcome.printed == ""
        (display,) = outcome.displays
        bundles.append(display["data"])
    assert bundles[0] == bundles[1]


def test_images_that_a_display_brings_are_shown(kernel):
    """A PNG of a display is inline in the card."""
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
    assert (
        kernel.run(
            f'''
from IPython.display import publish_display_data
@pi.tool
def picture() -> str:
    """Show."""
    publish_display_data({{"image/png": "{png}", "text/html": "<script>1</script>"}})
    return "ok"
register_model("picturing", calls("picture"))
'''
        ).error
        is None
    )
    page = kernel.run("%%agent --model picturing\ngo").displays[0]["data"]["text/html"]
    assert f'src="data:image/png;base64,{png}"' in page
    assert "<script" not in page
