from __future__ import annotations

import builtins

import pytest
from pi_agent_kernel.schema_text_rules import has_format, matches_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("(", "anything", True),
        ("^a$", "a\n", False),
        ("^(?<n>a)[$]$", "a$", True),
        (r"^\d$", "٣", False),
        (r"^(a+)+$", "a" * 60 + "!", None),
        (r"^(a|a)*$", "a" * 60 + "!", None),
        (r"a*a*a*a*b", "a" * 5000, None),
        (r"^(\w+\s?)*$", "word " * 40 + "!", None),
    ],
)
def test_patterns_from_outside_are_harmless(pattern, text, matches):
    """A pattern that does not compile is absent; one that could explode ends soon anyway."""
    valid = matches_pattern(pattern, text)

    assert matches is None or matches is valid


def test_without_a_time_limit_risky_text_is_accepted(monkeypatch):
    """Where `regex` is not installed, only short text is tried against a risky pattern."""
    real_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "regex":
            raise ImportError
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)

    assert matches_pattern(r"^(b+)+$", "b" * 60 + "!") is True
    assert matches_pattern(r"^(b+)+$", "bb!") is False
    assert matches_pattern(r"^\p{Lu}$", "anything") is True


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2024-02-29T23:59:60.5+01:00", "2024-02-29 10:00:00Z"),
        ("date", "2024-02-29", "2024-02-30"),
        ("date", "2024-02-28", "24-2-3"),
        ("ipv6", "fe80::1", "fe80::1%eth0"),
        ("time", "10:00:00Z", "25:00:00Z"),
        ("duration", "P1DT2H", "P"),
        ("email", "a.b@example.com", "a@b@c"),
        ("hostname", "a-b.example", "-a.example"),
        ("ipv4", "127.0.0.1", "127.0.0.256"),
        ("ipv6", "::1", "::g"),
        ("uri", "https://e.com/a?b#c", "e.com/a b"),
        ("uri-reference", "../a", "a b"),
        ("url", "https://e.com", "mailto:a@e.com"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ("json-pointer", "/a~1b", "a"),
        ("regex", "^a+$", "("),
        ("of-my-own", "anything", None),
    ],
)
def test_formats_are_checked(name, good, bad):
    """The formats of draft 2020-12 are assertions; unknown ones accept everything."""
    assert has_format(name, good)
    assert bad is None or not has_format(name, bad)


@pytest.mark.parametrize("name", ["date", "time", "date-time", "duration"])
@pytest.mark.parametrize("text", ["20240102", "1700000000", "12.5", "-5", "1e9", " 7 "])
def test_a_number_is_no_date_and_no_time(name, text):
    """Pydantic would count seconds since 1970; a tool wants what the model meant."""
    assert not has_format(name, text, python=True)
