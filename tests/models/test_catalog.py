from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from loopback import Loopback, answer, lm_studio, ollama
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.models import catalog
from pi_agent_kernel.models.catalog import (
    check_spec,
    choose_model,
    register_model,
    registered_names,
    unregister_model,
)
from pi_agent_kernel.models.faux import faux_assistant_message, faux_provider
from pi_agent_kernel.models.providers import PROVIDERS
from pi_agent_kernel.request import Model, TranscriptContext

#: Addresses at which nothing is: a machine with nothing.
NOTHING = {
    f"{name}_BASE_URL": "http://127.0.0.1:9/v1"
    for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")
}


@pytest.fixture
def short():
    """A scripted model, registered as "short"."""
    faux = faux_provider()
    register_model("short", faux.stream_fn, faux.model())
    yield faux
    unregister_model("short")


@pytest.fixture
def no_sockets(monkeypatch):
    """Opening a socket fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)


# ------------------------------------------------------------------------------------ explicit


def test_an_explicit_choice_wins(no_sockets):
    """A choice in code comes before the environment variable and every key."""
    env = {"PI_NOTEBOOK_MODEL": "openai-chat:x", "ANTHROPIC_API_KEY": "k"}

    chosen = choose_model("demo", env)

    assert (chosen.spec, chosen.model.id) == ("demo", "demo")
    assert "explicitly" in chosen.reason


def test_the_source_of_a_choice_is_told(no_sockets):
    """Whoever passes a spec on can say where it came from."""
    assert "from the sky" in choose_model("demo", {}, source="from the sky").reason


def test_the_environment_chooses(no_sockets):
    """`PI_NOTEBOOK_MODEL` names the model; the server comes from the provider's own variable."""
    env = {
        "PI_NOTEBOOK_MODEL": " openai-chat:qwen3:8b ",
        "OPENAI_BASE_URL": "http://127.0.0.1:11434/v1/",
        "ANTHROPIC_API_KEY": "k",
    }

    chosen = choose_model(env=env)

    assert (chosen.model.provider, chosen.model.id) == ("openai-chat", "qwen3:8b")
    assert chosen.model.base_url == "http://127.0.0.1:11434/v1"
    assert "http://127.0.0.1:11434/v1" in chosen.reason
    assert "PI_NOTEBOOK_MODEL" in chosen.reason


def test_the_process_environment_is_the_default(monkeypatch):
    """Without an environment of its own the catalog reads the process's."""
    monkeypatch.setenv("PI_NOTEBOOK_MODEL", "openai-chat:x")

    chosen = choose_model()

    assert chosen.model.id == "x"
    assert chosen.model.base_url == "https://api.openai.com/v1"


@pytest.mark.parametrize("row", PROVIDERS.values(), ids=PROVIDERS)
def test_every_provider_can_be_named(row, no_sockets):
    """`provider:name` works for every row of the table, whatever the case and the spaces."""
    chosen = choose_model(f" {row.id.upper()} : some-model", {})

    assert chosen.spec == f"{row.id}:some-model"
    assert chosen.model.provider == row.id
    assert chosen.model.api == row.api
    assert chosen.model.base_url == row.base_url
    assert "\n" not in chosen.reason


@pytest.mark.parametrize(
    "row", [row for row in PROVIDERS.values() if row.default_model], ids=lambda row: row.id
)
def test_a_provider_alone_means_its_default_model(row, no_sockets):
    """A provider's name stands for one model, which the price table knows where it lists any."""
    chosen = choose_model(row.id, {})

    assert chosen.spec == f"{row.id}:{row.default_model}"
    assert "did you mean" not in chosen.reason
    if row.prices:
        assert chosen.model.cost.input > 0
        assert chosen.model.context_window >= 100_000


def test_a_server_alone_means_its_first_model():
    """A server of one's own is asked which model it has; one that is off is an error."""
    with Loopback(ollama("embed-x:1", "qwen3:8b")) as server:
        assert choose_model("ollama", {"OLLAMA_BASE_URL": server.url}).spec == "ollama:qwen3:8b"
    with Loopback(ollama()) as server, pytest.raises(ModelError, match="lists no model"):
        choose_model("ollama", {"OLLAMA_BASE_URL": server.url})
    with pytest.raises(ModelError, match=r"vLLM at http://127.0.0.1:9/v1 does not answer"):
        choose_model("vllm", NOTHING)


def test_a_missing_key_is_told_with_the_choice():
    """The line that says which model was chosen also says what it lacks; own servers need none."""
    without = choose_model("openai-chat:gpt-5", {})
    assert without.missing == "OPENAI_API_KEY"
    assert "set OPENAI_API_KEY" in without.reason
    for env in ({"OPENAI_API_KEY": "k"}, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}):
        assert choose_model("openai-chat:gpt-5", env).missing == ""
    assert choose_model("demo", {}).missing == ""
    assert choose_model("ollama:x", {}).missing == ""


def test_a_key_never_shows():
    """Reasons name the variable and never what is in it."""
    env = {"ANTHROPIC_API_KEY": "sk-secret-1", "OPENAI_API_KEY": "sk-secret-2"}

    for spec in (None, "anthropic", "openai:gpt-5"):
        chosen = choose_model(spec, env)
        assert "secret" not in chosen.reason + repr(chosen) + repr(chosen.model)


def test_a_missing_package_is_told(monkeypatch):
    """A provider whose package is not installed says what to install, and no key makes it first."""
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mistralai" else find(name)
    )

    named = choose_model("mistral:x", {"MISTRAL_API_KEY": "k"})
    by_key = choose_model(None, {"MISTRAL_API_KEY": "k", "GROQ_API_KEY": "k"})

    assert named.missing == "pi-notebook[mistral]"
    assert "pip install 'pi-notebook[mistral]'" in named.reason
    assert by_key.model.provider == "groq"
    assert choose_model(None, {"MISTRAL_API_KEY": "k"}).missing == "pi-notebook[mistral]"


# ---------------------------------------------------------------------------------- registered


async def test_a_registered_model_is_chosen_by_its_name(short):
    """A registered stream function is used as it is, with the model that came with it."""
    short.set_responses([faux_assistant_message("hello")])

    chosen = choose_model("short", env={})
    stream = chosen.stream_fn(chosen.model, TranscriptContext(messages=[]), None)

    assert chosen.model is short.model()
    assert registered_names() == ["short"]
    assert [event async for event in stream][-1].message.text == "hello"


def test_a_registered_model_needs_no_description(short):
    """Without a model of its own the name is the id."""
    register_model("bare", short.stream_fn)
    try:
        assert choose_model("bare").model == Model(
            id="bare", name="bare", api="registered", provider="registered"
        )
    finally:
        unregister_model("bare")
    with pytest.raises(ModelError, match="no model 'bare'"):
        choose_model("bare")


@pytest.mark.parametrize(("name", "function"), [("", print), (" ", print), ("x", "no function")])
def test_a_wrong_registration_is_refused(name, function):
    """A registration needs a name and a function."""
    with pytest.raises((ValueError, TypeError)):
        register_model(name, function)


# --------------------------------------------------------------------------------- near misses


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("dmeo", "demo"),
        ("shrot", "short"),
        ("demo:x", "demo"),
        ("opanai-chat:gpt-5", "openai-chat:gpt-5"),
        ("antropic:claude-opus-5", "anthropic:claude-opus-5"),
        ("ope nai:x", "openai:x"),
        ("gpt-5", "openai:gpt-5"),
        ("GPT-5", "openai:gpt-5"),
        ("o3", "openai:o3"),
        ("claude-opus-5", "anthropic:claude-opus-5"),
        ("Claude Opus 5", "anthropic:claude-opus-5"),
        ("gemini-3.8-flash", "google:gemini-3.8-flash"),
        ("mistral-large-4", "mistral:mistral-large-4"),
        ("grok-4.7", "xai:grok-4.7"),
        ("qwen3:8b", "ollama:qwen3:8b"),
        ("llama3.2", "ollama:llama3.2"),
        ("gpt-5:openai", "openai:gpt-5"),
        ("claude-opus-5:anthropic", "anthropic:claude-opus-5"),
        ("openai/gpt-5", "openai:gpt-5"),
        ("ollama/qwen3:8b", "ollama:qwen3:8b"),
        ("openai gpt-5", "openai:gpt-5"),
        ("openai:gpt 5", "openai:gpt-5"),
        ("openai::gpt-5", "openai:gpt-5"),
        ("gemini:gemini-3.8-flash", "google:gemini-3.8-flash"),
        ("x-ai:grok-4.7", "xai:grok-4.7"),
        ("zzz:gpt-5", "openai:gpt-5"),
        ("~/models/qwen.gguf", "local:~/models/qwen.gguf"),
    ],
)
def test_a_near_miss_is_an_error_that_says_what_was_meant(short, spec, meant, no_sockets):
    """A slip in a spec is refused with the spec that was probably meant, and that one is taken."""
    with pytest.raises(ModelError) as caught:
        choose_model(spec, env={})

    assert f"Did you mean {meant!r}?" in str(caught.value)
    check_spec(meant)


@pytest.mark.parametrize("spec", ["nope", "foo:bar", "é:ü", "🤖", ":", ":gpt-5", "a" * 5000])
def test_an_unknown_spec_lists_what_works(short, spec):
    """What is near nothing is refused with the list of what there is, in a bounded text."""
    with pytest.raises(ModelError) as caught:
        check_spec(spec)

    assert "These work: demo, short, local:PATH.gguf, and PROVIDER:NAME" in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("spec", ["openai:", "openai: ", "OPENAI:"])
def test_an_empty_name_is_told(spec):
    """A colon without a name is an error that shows a whole spec."""
    with pytest.raises(
        ModelError, match=r"lacks a name after the colon, as in openai:gpt-6\.1-sol"
    ):
        choose_model(spec, {})


def test_an_empty_spec_is_no_model():
    """A spec of spaces is an error where one is checked, and nothing said where one is chosen."""
    with pytest.raises(ModelError, match="empty"):
        check_spec("  ")
    assert choose_model("  ", NOTHING).spec == "demo"


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("anthropic:claude-sonet-5-5", "anthropic:claude-sonnet-5-5"),
        ("openai:GPT-5", "openai:gpt-5"),
        ("openai:gpt5.1", "openai:gpt-5.1"),
        ("google:gemini-38-flash", "google:gemini-3.8-flash"),
        ("anthropic:claude-sonnet-5-5-20261001", ""),
        ("openai:gpt-7", ""),
        ("zai:GLM-5.3", ""),
        ("openai:quite-something-else", ""),
        ("ollama:claude-sonet-5-5", ""),
    ],
)
def test_a_slip_in_the_name_is_a_hint(spec, hint, no_sockets):
    """A name like a known one is taken with a hint; new versions and foreign names without."""
    chosen = choose_model(spec, {})

    assert chosen.spec == spec
    assert "did you mean" not in chosen.summary
    assert ("did you mean" in chosen.reason) == bool(hint)
    assert hint in chosen.reason


# ----------------------------------------------------------------------------------- first run


def test_keys_are_taken_in_a_fixed_order(no_sockets):
    """The first provider of the table whose key is set is chosen; the others are named."""
    env = {"GROQ_API_KEY": "k", "OPENAI_API_KEY": "k", "GOOGLE_API_KEY": "k", "MISTRAL_API_KEY": ""}

    chosen = choose_model(None, env)

    assert chosen.spec == f"openai:{PROVIDERS['openai'].default_model}"
    assert "OPENAI_API_KEY is set" in chosen.reason
    assert "google by GOOGLE_API_KEY, groq by GROQ_API_KEY" in chosen.reason
    assert "mistral" not in chosen.reason
    assert "PI_NOTEBOOK_MODEL" in chosen.reason
    assert "\n" not in chosen.reason


def test_a_gateway_for_openai_is_spoken_to_in_chat_completions(no_sockets):
    """Where OpenAI's key goes to another server, the format that every server knows is used."""
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://gateway.example/v1"}

    assert choose_model(None, env).model.api == "openai-completions"


@pytest.mark.parametrize("name", ["HF_TOKEN", "GITHUB_TOKEN", "OLLAMA_API_KEY", "AWS_PROFILE"])
def test_a_token_for_something_else_chooses_nothing(name):
    """Tokens that are there for downloads and repositories send no notebook anywhere."""
    assert choose_model(None, {**NOTHING, name: "t"}).spec == "demo"


def test_an_identified_server_is_used():
    """Without spec and key, Ollama on this machine answers with its first chat model."""
    with Loopback(ollama("qwen3:8b", "llama3.2:3b")) as server, Loopback(lm_studio("gem")) as other:
        env = {**NOTHING, "OLLAMA_BASE_URL": server.url, "LMSTUDIO_BASE_URL": other.url}
        chosen = choose_model(None, env)

    assert chosen.spec == "ollama:qwen3:8b"
    assert chosen.model.base_url == server.url
    assert chosen.missing == ""
    assert f"Ollama runs on this machine; {'PI_NOTEBOOK_MODEL'}" in chosen.reason
    assert "ollama:llama3.2:3b, lmstudio:gem" in chosen.reason
    assert len(server.requests) == len(other.requests) == 1


def test_lm_studio_is_used_when_ollama_is_off():
    """The second known server is chosen as the first one is."""
    with Loopback(lm_studio("gem")) as server:
        chosen = choose_model(None, {**NOTHING, "LMSTUDIO_BASE_URL": server.url})

    assert chosen.spec == "lmstudio:gem"


@pytest.mark.parametrize("variable", ["LMSTUDIO", "LLAMACPP", "VLLM"])
def test_an_unidentified_server_is_only_offered(variable):
    """What does not say what it is gets one GET and no notebook; the line says how to use it."""
    with Loopback(lm_studio("mystery", owner="somebody")) as server:
        chosen = choose_model(None, {**NOTHING, f"{variable}_BASE_URL": server.url})

    assert chosen.spec == "demo"
    assert f"PI_NOTEBOOK_MODEL={variable.lower()}:mystery" in chosen.reason
    assert server.url in chosen.reason
    assert [request.split()[0] for request in server.requests] == ["GET"]


@pytest.mark.parametrize("reply", [b"", answer(b"<html>", kind="text/html"), ollama()])
def test_a_server_without_a_model_is_passed_over(reply):
    """A port that says nothing useful leaves the demo, without a word about it."""
    with Loopback(reply, ending="close") as server:
        chosen = choose_model(None, {**NOTHING, "OLLAMA_BASE_URL": server.url})

    assert chosen.spec == "demo"
    assert server.url not in chosen.reason


async def test_servers_are_found_inside_a_running_loop():
    """Choosing works in a cell too, where a loop is running."""
    with Loopback(ollama("x:1")) as server:
        assert choose_model(None, {**NOTHING, "OLLAMA_BASE_URL": server.url}).spec == "ollama:x:1"


def test_nothing_set_up_is_the_demo():
    """With nothing at all the demo answers, says so, and the line tells three ways out."""
    chosen = choose_model(None, NOTHING)

    assert chosen.model.id == "demo"
    for way in ("no AI", "ANTHROPIC_API_KEY", "Ollama", "PI_NOTEBOOK_MODEL=PROVIDER:NAME"):
        assert way in chosen.reason
    assert "\n" not in chosen.reason


def test_a_model_file_that_is_not_there_is_told(tmp_path):
    """A wrong path is an error where it was asked for, and a remark where it was a fallback."""
    path = str(tmp_path / "none.gguf")

    with pytest.raises(ModelError, match="There is no file"):
        choose_model(f"local:{path}", {})
    assert "There is no file" in choose_model(None, {**NOTHING, "PI_NOTEBOOK_GGUF": path}).reason
    assert "There is no file" in choose_model(None, NOTHING, gguf="\0").reason


def test_a_model_file_is_chosen_when_nothing_else_is_set_up(tmp_path, no_sockets, monkeypatch):
    """A file that is there is used as the last resort before the demo; nothing starts yet."""
    pytest.importorskip("xllamacpp", reason="[local] is not installed")
    path = tmp_path / "a small model.gguf"
    path.write_bytes(b"GGUF")

    named = choose_model(f"local:{path}", {})

    assert (named.model.provider, named.model.id) == ("local", "a small model")
    monkeypatch.undo()
    by_variable = choose_model(None, {**NOTHING, "PI_NOTEBOOK_GGUF": str(path)}, gguf="other")
    by_setting = choose_model(None, NOTHING, gguf=str(path))
    assert by_variable.spec == by_setting.spec == f"local:{path}"
    assert "PI_NOTEBOOK_GGUF" in by_variable.summary
    assert "from the configuration" in by_setting.summary
    assert choose_model(None, {"PI_NOTEBOOK_GGUF": str(path), "GROQ_API_KEY": "k"}).spec != (
        by_setting.spec
    )


@pytest.mark.parametrize("spec", ["local", "local:", "local: "])
def test_a_model_file_needs_a_path(spec):
    """`local` alone is an error that shows a path."""
    with pytest.raises(ModelError, match="lacks the path"):
        choose_model(spec, {})


def test_choosing_imports_no_provider():
    """A choice by key loads neither an SDK nor the price table; describing the model loads that."""
    code = (
        "import sys\n"
        "from pi_agent_kernel.models.catalog import choose_model\n"
        "heavy = {'pydantic_ai', 'openai', 'anthropic', 'httpx2', 'genai_prices', 'boto3'}\n"
        "chosen = choose_model(None, {'ANTHROPIC_API_KEY': 'k'})\n"
        "print(sorted(heavy & set(sys.modules)), bool(chosen.model.context_window))\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.split("\n")[:2] == ["[] True", "['genai_prices', 'httpx2']"]


def test_the_variables_are_named_once():
    """The names that messages give are those that are read."""
    assert (catalog.MODEL_VARIABLE, catalog.GGUF_VARIABLE) == (
        "PI_NOTEBOOK_MODEL",
        "PI_NOTEBOOK_GGUF",
    )
