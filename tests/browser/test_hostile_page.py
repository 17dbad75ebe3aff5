"""Hostile texts and long streams in a real browser: nothing runs and nothing is loaded."""

from __future__ import annotations

import json

import pytest
from browser_paths import PICTURES
from test_running_cell import READY, open_lab, output, run

pytestmark = pytest.mark.browser

SETUP = r'''
%load_ext pi_notebook
import asyncio
import pi_notebook as pi
from pi_agent_kernel import ResponseBuilder
from pi_agent_kernel.models.catalog import register_model

nasty = """<script>window.attacked = 1</script> <img src=x onerror="window.attacked = 2">
<svg onload="window.attacked = 3"></svg> <iframe src="javascript:parent.attacked = 4"></iframe>
![pixel](http://remote.example/pixel.png) [click](javascript:window.attacked=5)
[data](data:text/html,<script>window.attacked=6</script>) <http://remote.example/>
![ref][r] <style>@import url(http://remote.example/s.css);</style>
<p style="background: url(http://remote.example/b)">p</p>

[r]: http://remote.example/ref.png

| <img src=x onerror="window.attacked = 7"> | b |
|---|---|
| </td></table></div><script>window.attacked = 8</script> | c |

</div></details></style><link rel=stylesheet href=http://remote.example/l.css>

```html
<script>window.attacked = 9</script>
"""

@pi.tool
def hostile(text: str = "") -> str:
    """Be hostile."""
    print(nasty)
    display({"text/html": nasty, "text/plain": nasty}, raw=True)
    return nasty

async def evil(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    opened = response.text_start()
    yield opened
    for place in range(0, len(nasty), 3):
        yield response.text_delta(nasty[place:place + 3], opened.content_index)
        await asyncio.sleep(0.01)
    yield response.text_end(opened.content_index)
    if context.messages[-1].role != "toolResult":
        opened = response.toolcall_start("call_0", "hostile")
        yield opened
        yield response.toolcall_end(opened.content_index)
    yield response.done()

async def much(model, context, options):
    """Stream 20,000 deltas of ordinary Markdown over some five seconds."""
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    opened = response.text_start()
    yield opened
    for number in range(20_000):
        if number % 40 == 0:
            await asyncio.sleep(0.01)
        yield response.text_delta("word " if number % 25 else "`c`\n\n", opened.content_index)
    yield response.text_end(opened.content_index)
    yield response.done()

register_model("evil", evil)
register_model("much", much)
'''

WATCH = """() => {
  window.tasks = [];
  new PerformanceObserver((list) => {
    for (const task of list.getEntries()) {
      window.tasks.push([Math.round(task.startTime), Math.round(task.duration)]);
    }
  }).observe({ entryTypes: ["longtask"] });
}"""


def test_hostile_texts_run_and_load_nothing(page, jupyter):
    """An answer, a print, a display and a result full of markup stay text, live and saved."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    jupyter.notebook("hostile.ipynb", SETUP, READY, "%%agent --model evil\ngo")
    open_lab(page, jupyter, "hostile.ipynb")
    run(page, 0)
    run(page, 1)
    output(page, 1).get_by_text("ready").wait_for()
    run(page, 2)
    output(page, 2).locator(".pi-state.pi-ok").wait_for()
    assert page.evaluate("window.attacked") is None
    cell = output(page, 2)
    assert cell.locator(".pi").locator("script, iframe, img, svg, link").count() == 0
    cell.locator("summary").first.click()
    for link in cell.locator("a").all():
        assert link.get_attribute("href").startswith("http://remote.example/")
    assert cell.get_by_text("window.attacked = 1").count() >= 3
    page.wait_for_timeout(500)
    assert page.evaluate("window.attacked") is None
    assert [url for url in asked if "remote.example" in url] == []


def test_a_long_stream_keeps_the_page_quick(page, jupyter):
    """20,000 deltas arrive whole; the page's long tasks are written down beside the pictures."""
    jupyter.notebook("long.ipynb", SETUP, READY, "%%agent --model much\ngo")
    open_lab(page, jupyter, "long.ipynb")
    run(page, 0)
    run(page, 1)
    output(page, 1).get_by_text("ready").wait_for()
    page.evaluate(WATCH)
    run(page, 2)
    output(page, 2).locator(".pi-state.pi-ok").wait_for()
    assert output(page, 2).locator(".pi-answer code").count() == 800
    tasks = page.evaluate("window.tasks")
    # A busy machine makes any task long, so the figures are kept and not judged.
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / "long_tasks.json").write_text(json.dumps(tasks), encoding="utf-8")
