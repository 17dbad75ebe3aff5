from __future__ import annotations

import pytest
from pi_agent_kernel.errors import ModelError
from pi_agent_kernel.models.catalog import choose_model, register_model, unregister_model
from pi_agent_kernel.models.faux import faux_assistant_message, faux_provider
from pi_agent_kernel.request import Model, TranscriptContext


@pytest.fixture
def short():
    """A scripted model, registered as "short"."""
    faux = faux_provider()
    register_model("short", faux.stream_fn, faux.model())
    yield faux
    unregister_model("short")


def test_nothing_set_up_is_the_demo():
    """Without a choice the demo model answers, and the reason says how to change it."""
    chosen = choose_model(env={})

    assert chosen.model.id == "demo"
    assert "PI_NOTEBOOK_MODEL=openai-chat:NAME" in chosen.reason
    assert "\n" not in chosen.reason


def test_the_environment_chooses():
    """`PI_NOTEBOOK_MODEL` names the model; the server comes from `OPENAI_BASE_URL`."""
    env = {
        "PI_NOTEBOOK_MODEL": " openai-chat:qwen3:8b ",
        "OPENAI_BASE_URL": "http://127.0.0.1:11434/v1",
    }

    chosen = choose_model(env=env)

    assert chosen.model.id == "qwen3:8b"
    assert chosen.model.provider == "openai-chat"
    assert chosen.model.base_url == "http://127.0.0.1:11434/v1"
    assert "http://127.0.0.1:11434/v1" in chosen.reason
    assert "PI_NOTEBOOK_MODEL" in chosen.reason


def test_the_process_environment_is_the_default(monkeypatch):
    """Without an environment of its own the catalog reads the process's."""
    monkeypatch.setenv("PI_NOTEBOOK_MODEL", "openai-chat:x")

    chosen = choose_model()

    assert chosen.model.id == "x"
    assert chosen.model.base_url == "https://api.openai.com/v1"


def test_an_explicit_choice_wins():
    """A choice in code comes before the environment variable."""
    chosen = choose_model("demo", env={"PI_NOTEBOOK_MODEL": "openai-chat:x"})

    assert chosen.model.id == "demo"
    assert "explicitly" in chosen.reason


async def test_a_registered_model_is_chosen_by_its_name(short):
    """A registered stream function is used as it is, with the model that came with it."""
    short.set_responses([faux_assistant_message("hello")])

    chosen = choose_model("short", env={})
    stream = chosen.stream_fn(chosen.model, TranscriptContext(messages=[]), None)

    assert chosen.model is short.model()
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


@pytest.mark.parametrize(
    ("spec", "suggestion"),
    [
        ("dmeo", "Did you mean 'demo'?"),
        ("shrot", "Did you mean 'short'?"),
        ("openai:gpt-5", "Did you mean 'openai-chat:gpt-5'?"),
        ("opanai-chat:gpt-5", "Did you mean 'openai-chat:gpt-5'?"),
        ("gpt-5", "Did you mean 'openai-chat:gpt-5'?"),
        ("openai-chat:", "lacks a name"),
        ("openai-chat", "lacks a name"),
        ("zzz:gpt-5", "There is no model 'zzz:gpt-5'. These work"),
    ],
)
def test_an_unknown_choice_is_an_error_with_suggestions(short, spec, suggestion):
    """The error says what was probably meant and lists what works."""
    with pytest.raises(ModelError) as caught:
        choose_model(spec, env={})

    assert suggestion in str(caught.value)
    assert "These work: demo, openai-chat:NAME, short." in str(caught.value)


@pytest.mark.parametrize(("name", "function"), [("", print), (" ", print), ("x", "no function")])
def test_a_wrong_registration_is_refused(name, function):
    """A registration needs a name and a function."""
    with pytest.raises((ValueError, TypeError)):
        register_model(name, function)


def test_a_missing_key_is_told_with_the_choice():
    """The line that says which model was chosen also says what it lacks; own servers need none."""
    without = choose_model("openai-chat:gpt-x", {})
    assert without.missing == "OPENAI_API_KEY"
    assert "set OPENAI_API_KEY" in without.reason
    for env in ({"OPENAI_API_KEY": "k"}, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}):
        assert choose_model("openai-chat:gpt-x", env).missing == ""
    assert choose_model("demo", {}).missing == ""
