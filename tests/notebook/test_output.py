"""What one run sends and saves: notebook.md 5, workloads B2 and B3."""

from itertools import pairwise

import pytest

pytestmark = pytest.mark.kernel

RUN = "application/vnd.pi.run+json"

PACED = '''
async def paced(model, context, options):
    """Stream 20,000 deltas over some two seconds, as a real model would, in many steps."""
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    opened = response.text_start()
    yield opened
    for number in range(20_000):
        if number % 100 == 0:
            await asyncio.sleep(0.01)
        yield response.text_delta("abcd" if number % 20 else "ab\\n\\n", opened.content_index)
    yield response.text_end(opened.content_index)
    yield response.done()
register_model("paced", paced)
'''


def test_long_answer_costs_few_messages_and_bytes(kernel):
    """20,000 deltas are at most 100 messages and 1 MB, however slowly they come."""
    assert kernel.run(PACED).error is None
    for model in ("long", "paced"):
        outcome = kernel.run(f"%%agent --model {model}\ngo")
        assert outcome.error is None
        assert len(outcome.messages) <= 100
        assert outcome.size <= 1_000_000
        assert len(outcome.displays[0]["data"][RUN]["text"]) == 80_000
    assert len(outcome.of("update_display_data")) > 5


def test_live_run_is_one_display_that_is_updated(kernel):
    """A run has one display under one fresh id; the last update is the whole bundle."""
    first, second = (kernel.run("%%agent --model short\ngo") for _ in range(2))
    ids = set()
    for outcome in (first, second):
        (shown,) = outcome.of("display_data")
        updates = outcome.of("update_display_data")
        assert {update["transient"]["display_id"] for update in updates} == {
            shown["transient"]["display_id"]
        }
        ids.add(shown["transient"]["display_id"])
        assert RUN in updates[-1]["data"]
        assert all(RUN not in update["data"] for update in updates[:-1])
    assert len(ids) == 2


def test_live_text_grows(kernel):
    """Each update of a short answer carries the text so far, so a program can follow it."""
    outcome = kernel.run("%%agent\nwhat can you do?")
    kinds = ("display_data", "update_display_data")
    texts = [m["content"]["data"]["text/plain"] for m in outcome.messages if m["msg_type"] in kinds]
    assert len(texts) > 2
    assert all(after.startswith(before) for before, after in pairwise(texts))


@pytest.mark.parametrize("way", ["no input", "variable"])
def test_headless_run_is_one_deterministic_display(start_kernel, scripted_models, way):
    """Headless: exactly one message of output, equal bytes each time, volatile things beside it."""
    environment = {"PI_NOTEBOOK_HEADLESS": "1"} if way == "variable" else {}
    bundles = []
    for _ in range(2):
        kernel = start_kernel(**environment)
        assert kernel.run("%load_ext pi_notebook").error is None
        assert kernel.run(scripted_models).error is None
        outcome = kernel.run("%%agent\nwhat can you do?", stdin=way == "variable")
        assert [m["msg_type"] for m in outcome.messages] == [
            "status",
            "execute_input",
            "display_data",
            "status",
        ]
        (display,) = outcome.displays
        assert set(display["metadata"]["pi"]) == {"startedAt", "durationMs", "toolDurationsMs"}
        bundles.append(display["data"])
    assert bundles[0] == bundles[1]
    usage = bundles[0][RUN]["usage"]
    assert set(usage) == {"input", "output", "cacheRead", "cacheWrite", "totalTokens"}


def test_somebody_who_can_answer_sees_a_live_run(start_kernel):
    """A front end that allows input gets updates; a variable decides otherwise, both ways."""
    kernel = start_kernel()
    assert kernel.run("%load_ext pi_notebook").error is None
    assert kernel.run("%%agent\nhi", stdin=True).of("update_display_data")
    assert not kernel.run("%%agent\nhi", stdin=False).of("update_display_data")


def test_failed_run_is_shown_and_fails_the_cell(kernel):
    """An error of the model is in the output, and the notebook stops."""
    setup = """
async def broken(model, context, options):
    response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
    yield response.start()
    yield response.error("401: the key is\\nnot valid")
register_model("broken", broken)
"""
    assert kernel.run(setup).error is None
    outcome = kernel.run("%%agent --model broken\ngo")
    assert outcome.error == "AgentFailed"
    assert outcome.reply["traceback"] == [
        "agent run failed: 401: the key is not valid (%agent undo takes the prompt back)"
    ]
    (display,) = outcome.displays
    assert display["data"][RUN]["status"] == "error"
    assert "401" in display["data"]["text/html"]
    assert display["data"]["text/plain"] == "[error] 401: the key is\nnot valid"
    assert kernel.run("%%agent --model short\ngo").error is None


def test_failing_tool_does_not_fail_the_cell(kernel):
    """An error of a tool is for the model to read: the run goes on."""
    setup = '''
@pi.tool
def fails() -> str:
    """Raise."""
    raise KeyError("nothing there")
register_model("fails", calls("fails"))
'''
    assert kernel.run(setup).error is None
    outcome = kernel.run("%%agent --model fails\ngo")
    assert outcome.error is None
    (call,) = outcome.displays[0]["data"][RUN]["toolCalls"]
    assert call["status"] == "error"
    assert "nothing there" in call["result"]


def test_hostile_answers_reach_the_front_end(kernel):
    """Texts that no encoder or page takes as they are leave the kernel made harmless."""
    setup = r'''
nasty = "\ud800\x00\x1b[31m\u202e<script>alert(1)</script> ![x](https://e.example/p.png)"
@pi.tool
def hostile() -> str:
    """Return what a bad page would."""
    return nasty
register_model("nasty", says(lambda: [nasty]))
register_model("hostile", calls("hostile"))
'''
    assert kernel.run(setup).error is None
    for model in ("nasty", "hostile"):
        outcome = kernel.run(f"%%agent --model {model}\ngo")
        assert outcome.error is None
        page = outcome.displays[0]["data"]["text/html"]
        assert "<script" not in page
        assert "<img" not in page
        assert "\x00" not in page
        assert "&lt;script&gt;" in page
