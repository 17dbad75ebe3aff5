"""Failing requests in cells of a real kernel, against a server on loopback."""

import pytest
from models.server import ProviderServer, Reply, recorded

pytestmark = pytest.mark.kernel

TEXT = Reply(recorded("text"))
CUT = Reply(recorded("cut"))
RUN = "application/vnd.pi.run+json"


def busy(wait):
    name, _, value = wait.partition("=")
    return Reply(b"{}", status=503, content_type="application/json", headers={name: value})


@pytest.fixture
def server(kernel):
    """A provider on loopback that the kernel's agent asks."""
    with ProviderServer() as running:
        set_up = f"""
import os
from pi_agent_kernel import RetryPolicy
os.environ.update(OPENAI_BASE_URL={running.url!r}, OPENAI_API_KEY="sk-test")
pi.agent.retry = RetryPolicy(base_delay_ms=1)
"""
        assert kernel.run(set_up).error is None
        yield running


def test_a_cell_tries_again_and_says_so(kernel, server):
    """Refused, cut off, answered: the cell ends well, and shows each attempt."""
    server.play(busy("retry-after-ms=1"), CUT, TEXT)

    outcome = kernel.run("%%agent --model openai-chat:test-1\ngo")

    assert outcome.error is None
    (display,) = outcome.displays
    run = display["data"][RUN]
    assert (run["status"], run["text"]) == ("ok", "Hello, wörld 🌍.")
    assert [(one["reason"], one["attempt"]) for one in run["retries"]] == [
        ("overloaded", 2),
        ("reply cut off", 3),
    ]
    assert display["data"]["text/plain"] == (
        "[overloaded, trying again (2 of 3)]\n\n"
        "Half an answer\n\n"
        "[reply cut off, the text above is dropped, trying again (3 of 3)]\n\n"
        "Hello, wörld 🌍."
    )


def test_an_interrupt_ends_the_wait(kernel, server):
    """The live output says how long the wait is; an interrupt ends it before its fifty seconds."""
    server.play(busy("retry-after=50"), TEXT)

    outcome = kernel.run(
        "%%agent --model openai-chat:test-1\ngo",
        interrupt_when=lambda message: "trying again in 50 s (2 of 3)" in str(message["content"]),
    )

    assert (outcome.error, len(server.requests)) == ("AgentAborted", 1)
    (display,) = outcome.displays
    assert display["data"]["text/plain"] == "[overloaded, trying again (2 of 3)]\n\n[aborted]"
    assert kernel.run("%%agent --model openai-chat:test-1\ngo").error is None


def test_a_cell_that_gives_up_says_how_often_it_tried(kernel, server):
    """The cell fails with one line: what happened, what to do, how many attempts."""
    server.play(busy("retry-after-ms=1"))

    outcome = kernel.run("%%agent --model openai-chat:test-1\ngo")

    assert (outcome.error, len(server.requests)) == ("AgentFailed", 3)
    assert "overloaded (HTTP 503)" in outcome.reply["evalue"]
    assert "Gave up after 3 attempts." in outcome.reply["evalue"]
