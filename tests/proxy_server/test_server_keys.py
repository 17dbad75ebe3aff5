from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from pi_agent_kernel.request import Model

from pi_notebook.server.allowed import AllowedModels, RefusedError, take_keys
from pi_notebook.server.kernels import OWNER, KernelTokens, user_name

KEY = "sk-key-of-the-server"


def test_keys_of_allowed_providers_leave_the_environment():
    """The keys of the providers that are served are taken out, and no other variable."""
    environment = {
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_API_KEY": "a",
        "GOOGLE_API_KEY": "b",
        "AWS_SECRET_ACCESS_KEY": "c",
        "OPENAI_API_KEY": "of the users",
        "HOME": "/home",
    }

    allowed = AllowedModels(["anthropic:claude-*", "google:*", "bedrock:*"], {}, {}, environment)

    assert environment == {"OPENAI_API_KEY": "of the users", "HOME": "/home"}
    assert [each["ready"] for each in allowed.listing()] == [True, True, True]
    assert {"ANTHROPIC_API_KEY", "GOOGLE_API_KEY"} <= allowed.secret_variables


@pytest.mark.parametrize(
    ("models", "keys", "addresses", "told"),
    [
        (["claude-x"], {}, {}, "provider:name"),
        (["*:claude"], {}, {}, "only the name"),
        (["anthropic:"], {}, {}, "provider:name"),
        (["anthropik:claude"], {}, {}, "'anthropik'.*anthropic"),
        (["anthropic:*"], {"anthropik": "x"}, {}, "c.PiServer.keys"),
        (["anthropic:*"], {}, {"anthropik": "x"}, "c.PiServer.addresses"),
    ],
)
def test_a_bad_setting_is_refused_after_the_keys_are_out(models, keys, addresses, told):
    """A misspelt setting is named, and does not leave keys for kernels to inherit."""
    environment = {"ANTHROPIC_API_KEY": KEY}

    with pytest.raises(ValueError, match=told):
        AllowedModels([*models, "anthropic:x"], keys, addresses, environment)

    assert environment == {}


def test_configured_keys_and_addresses_win():
    """A configured key takes the place of all variables of its provider, an address likewise."""
    environment = {"OPENAI_API_KEY": "other", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}

    allowed = AllowedModels(
        ["openai-chat:m"],
        {"openai-chat": KEY},
        {"openai-chat": "http://127.0.0.1:2/v1"},
        environment,
    )
    chosen = allowed.choose(Model(id="m", provider="openai-chat", base_url="http://evil"))

    assert chosen.model.base_url == "http://127.0.0.1:2/v1"
    assert allowed.without_secrets(f"Bad key {KEY}") == "Bad key …"


@pytest.mark.parametrize("end", ["\n", "\r\n", "  "])
def test_keys_lose_the_blanks_around_them(end):
    """A newline that a file or a secret store left is no part of a key, and blanks are no key."""
    environment = {"OPENAI_API_KEY": KEY + end, "ANTHROPIC_API_KEY": end}

    allowed = AllowedModels(
        ["openai-chat:m", "anthropic:m", "groq:m"],
        {"groq": "gsk-" + KEY + end},
        {"openai-chat": "http://127.0.0.1:2/v1" + end},
        environment,
    )

    assert [each["ready"] for each in allowed.listing()] == [True, False, True]
    assert allowed._environment["OPENAI_API_KEY"] == KEY
    assert allowed._environment["GROQ_API_KEY"] == "gsk-" + KEY
    model = allowed.choose(Model(id="m", provider="openai-chat")).model
    assert model.base_url == "http://127.0.0.1:2/v1"


@pytest.mark.parametrize(
    "key", ["sk-SERVER/KEY+0123456789==", "sk-SERVERKEY\r\nx: 0123456789", "ключ-0123456789"]
)
@pytest.mark.parametrize("shown", [str, repr, json.dumps, quote, lambda key: repr(key.encode())])
def test_no_form_of_a_key_remains(key, shown):
    """Raw, quoted, escaped or percent-encoded: neither text nor diagnostics give it away."""
    allowed = AllowedModels(["openai-chat:m"], {}, {}, {"OPENAI_API_KEY": key})

    text = f"Illegal header value {shown('Bearer ' + key)}"
    hidden = allowed.hidden([{"details": {"text": text, text: (text, 3, None)}}])

    for given in (allowed.without_secrets(text), json.dumps(hidden, ensure_ascii=False)):
        assert "SERVER" not in given
        assert "0123456789" not in given
    assert json.dumps(hidden).count("Illegal header value") == 3


def test_a_missing_key_is_not_hidden_by_the_proxys_own_variables():
    """A server that is itself a kernel's child does not ask the proxy of its parent."""
    environment = {"PI_NOTEBOOK_PROXY_URL": "http://x", "PI_NOTEBOOK_PROXY_TOKEN": "t"}

    with pytest.raises(RefusedError, match="ANTHROPIC_API_KEY"):
        AllowedModels(["anthropic:*"], {}, {}, environment).choose(
            Model(id="claude-x", provider="anthropic")
        )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows it to other processes")
def test_the_block_of_the_process_loses_the_key():
    """After the keys are taken, the environment that Linux shows of the process has none."""
    code = (
        "import os, pathlib\n"
        "from pi_notebook.server.allowed import take_keys\n"
        "shown = lambda: pathlib.Path('/proc/self/environ').read_bytes()\n"
        "before = os.environ['THE_KEY'].encode() in shown()\n"
        "taken = take_keys(frozenset({'THE_KEY', 'NOT_SET'}), os.environ)\n"
        "after = taken['THE_KEY'].encode() in shown()\n"
        "print(before, after, taken, 'THE_KEY' in os.environ, os.environ['OTHER'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "THE_KEY": "ключ-" + KEY, "OTHER": "stays"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == f"True False {{'THE_KEY': 'ключ-{KEY}'}} False stays"


def test_keys_of_a_mapping_are_taken():
    """Variables that are not set are not there; the others are returned and gone."""
    environment = {"A": "1", "B": "2"}

    assert take_keys(frozenset({"A", "C"}), environment) == {"A": "1"}
    assert environment == {"B": "2"}


@pytest.mark.parametrize("name", ["ada", "", "Ада 🌍", "a.b", "x" * 500, "\ud800"])
def test_a_token_stands_for_its_user(name):
    """A token names its user, and only the server that made it takes it."""
    tokens = KernelTokens()
    token = tokens.issue(name)

    assert tokens.user_of(token) == name
    assert KernelTokens().user_of(token) is None
    assert token.isascii()
    assert " " not in token


def test_a_changed_token_is_none_of_ours():
    """Another name, signature or kind makes a token worthless."""
    tokens = KernelTokens()
    kind, name, signature = tokens.issue("ada").split(".")
    other = tokens.issue("bob").split(".")[1]

    for changed in (
        f"{kind}.{other}.{signature}", f"{kind}.{name}.", f"x.{name}.{signature}", name,
        f"{kind}.{name}.{signature}.x", "", "....", "pi.é.é",
    ):  # fmt: skip
        assert tokens.user_of(changed) is None


def test_people_that_jupyter_makes_up_are_one():
    """With a token or password for all, every visitor is the owner; a hub's users have names."""
    from jupyter_server.auth import IdentityProvider, User
    from jupyter_server.auth.identity import PasswordIdentityProvider

    class Hub(IdentityProvider):
        def get_user(self, handler):
            return User(username="ada")

    def asks(provider):
        return SimpleNamespace(identity_provider=provider(), current_user=User(username="ada"))

    assert user_name(asks(IdentityProvider)) == OWNER
    assert user_name(asks(PasswordIdentityProvider)) == OWNER
    assert user_name(asks(Hub)) == "ada"
