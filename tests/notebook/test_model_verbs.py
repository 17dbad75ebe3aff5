"""`%agent models`, completion of specs, settings that are refused: in a real kernel."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.kernel


def complete(kernel, code):
    """Return what a front end would offer at the end of a line: whole words."""
    request = kernel.client.complete(code, len(code))
    while True:
        reply = kernel.client.get_shell_msg(timeout=30)
        if reply["parent_header"].get("msg_id") == request:
            break
    content = reply["content"]
    done = code[: content["cursor_start"]].split(" ")[-1]
    return [done + match for match in content["matches"]]


def test_models_lists_what_can_be_used(kernel):
    """One table says what works now, what the rest needs, windows and prices; no key shows."""
    assert kernel.run("import os; os.environ['GROQ_API_KEY'] = 'gsk-secret'").error is None
    (shown,) = kernel.run("%agent models").displays
    assert kernel.run("del os.environ['GROQ_API_KEY']").error is None

    text = shown["data"]["text/plain"]
    assert "groq:openai/gpt-oss-120b" in text.split("demo")[0]
    assert "GROQ_API_KEY is set" in text
    assert "needs ANTHROPIC_API_KEY" in text
    assert "1M" in text
    assert "2 / 10" in text
    assert max(map(len, text.split("\n"))) <= 110
    assert "secret" not in str(shown)
    assert "<th scope=" in shown["data"]["text/html"]
    assert shown["data"]["text/markdown"].startswith("| spec | state |")
    assert kernel.run("%agent models x").error == "UsageError"


def test_the_model_in_use_is_always_listed(kernel):
    """A model that no list has is the first row as long as it is the one that is asked."""
    assert kernel.run("%agent model anthropic:claude-opus-4-8").error is None
    (shown,) = kernel.run("%agent models").displays
    assert kernel.run("%agent model demo").error is None

    first = shown["data"]["text/markdown"].split("\n")[2]
    assert "anthropic:claude-opus-4-8 | in use" in first
    assert "needs ANTHROPIC" in first


def test_model_tells_window_and_price(kernel):
    """`%agent model` shows what is known of the model and what it lacks."""
    (shown,) = kernel.run("%agent model anthropic:claude-sonnet-5-5").displays
    text = shown["data"]["text/plain"]
    assert "1M tokens" in text
    assert "2 / 10 dollars per million" in text
    assert "set ANTHROPIC_API_KEY" in text

    (typo,) = kernel.run("%agent model anthropic:claude-sonet-5-5").displays
    assert "did you mean anthropic:claude-sonnet-5-5?" in " ".join(
        typo["data"]["text/plain"].split()
    )


def test_a_wrong_setting_is_refused_at_once(kernel):
    """`%config PiNotebook.model` with a slip says what was meant and leaves the setting alone."""
    said = kernel.run("%config PiNotebook.model = 'gpt-5'")
    text = said.printed + str([reply for reply in (said.reply,) if reply["status"] == "error"])
    assert "Did you mean 'openai:gpt-5'?" in text
    assert kernel.run("%config PiNotebook.model").value == "''"
    assert kernel.run("%config PiNotebook.model = 'demo'").error is None
    assert kernel.run("%config PiNotebook.model = ''").error is None


def test_tab_completes_verbs_and_specs(kernel):
    """Verbs after `%agent`, specs after `%agent model`; nothing of it after unloading."""
    assert {"model", "models"} <= set(complete(kernel, "%agent mo"))
    assert "%agent" not in complete(kernel, "%agent ")
    assert {"reset", "steer", "help"} <= set(complete(kernel, "%agent "))
    assert complete(kernel, "%agent model anth") == ["anthropic:"]
    assert {"demo", "short", "openai:"} <= set(complete(kernel, "%agent model "))
    assert "anthropic:claude-opus-5-5" in complete(kernel, "%agent model anthropic:claude-op")
    assert "groq:openai/gpt-oss-120b" in complete(kernel, "%agent model groq:openai/gpt-")

    assert kernel.run("%unload_ext pi_notebook").error is None
    assert complete(kernel, "%agent mode") == []


def test_loading_warms_the_chosen_provider(start_kernel):
    """After `%load_ext` the provider's packages are imported without a request."""
    kernel = start_kernel(OPENAI_API_KEY="sk-secret", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    loaded = kernel.run("%load_ext pi_notebook")

    assert "Model openai-chat:" in loaded.printed
    assert "OPENAI_API_KEY is set" in loaded.printed
    assert "secret" not in loaded.printed
    waited = kernel.run(
        "import threading, sys\n"
        "for thread in threading.enumerate():\n"
        "    if thread.name == 'pi-notebook-warm-up':\n"
        "        thread.join(40)\n"
        "print('pydantic_ai.models.openai' in sys.modules, 'anthropic' in sys.modules)"
    )
    assert waited.printed == "True False\n"


def test_the_line_of_loading_holds_for_the_first_cell(start_kernel):
    """The model that the line named is the one the first agent gets, though a key came since."""
    kernel = start_kernel()
    assert "Model demo" in kernel.run("%load_ext pi_notebook").printed
    assert kernel.run("import os; os.environ['ANTHROPIC_API_KEY'] = 'k'").error is None
    assert kernel.run("import pi_notebook as pi; pi.agent.state.model.id").value == "'demo'"
