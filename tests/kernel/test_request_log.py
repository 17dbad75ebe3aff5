from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from pi_agent_kernel import RetryPolicy, SystemMessage, UserMessage, faux_assistant_message
from pi_agent_kernel.message_chain import MessageChain
from pi_agent_kernel.request import Prefix
from scripted import Scripted, call, make_tool, ok, user


async def test_each_request_says_what_the_model_saw():
    """The messages equal those the stream function got, at every request (S4-02)."""
    s = Scripted(call(), "end", "more", tools=[make_tool(ok)], system_prompt="p", session_id="s1")
    await s.prompt()
    s.state.tools = []
    s.state.thinking_level = "low"
    await s.prompt("again")
    requests = s.agent.log.requests()

    assert [list(r.messages) for r in requests] == s.requests
    assert [r.number for r in requests] == [1, 2, 3]
    assert [r.seq for r in requests] == [r.seq for r in s.agent.log.of_type("model_request_start")]
    assert [r.response_seq for r in requests] == [
        r.seq for r in s.agent.log.of_type("model_response")
    ]
    assert [r.usage for r in requests] == [e.usage for e in s.of("model_response")]
    assert [[tool.name for tool in r.tools] for r in requests] == [["t"], ["t"], []]
    assert [r.executable for r in requests] == [("t",), ("t",), ()]
    assert [r.thinking_level for r in requests] == ["off", "off", "low"]
    assert [r.transcript_length for r in requests] == [2, 4, 7]
    assert {r.system_prompt for r in requests} == {"p"}
    assert (requests[0].model, requests[0].provider) == ("faux-1", "faux")
    assert requests[0].options["session_id"] == "s1"


async def test_hooks_that_edit_the_messages_are_told_apart():
    """A stage for each hook that is set, the sent messages after all of them (CO-07)."""
    s = Scripted(
        call(),
        "end",
        tools=[make_tool(ok)],
        transform_context=lambda messages, _: messages[1:],
        before_model_request=lambda messages, _: [*messages, user("reminder")],
        convert_to_llm=lambda messages: [user(m.role) for m in messages],
    )
    await s.prompt()
    for request, sent in zip(s.agent.log.requests(), s.requests, strict=True):
        assert list(request.messages) == sent
        assert [name for name, _ in request.stages] == ["transform_context", "before_model_request"]
        first, second = (list(messages) for _, messages in request.stages)
        assert second[:-1] == first
        assert len(first) == request.transcript_length - 1
        assert [m.content for m in sent] == [m.role for m in second]


async def test_a_request_that_runs_has_no_response_yet():
    """Read in its own listener it stands there, without an end."""
    s = Scripted("x")
    seen = []
    s.agent.subscribe(lambda *_: seen.extend(s.agent.log.requests()), events="model_request_start")
    await s.prompt()

    assert [(r.number, r.response, r.response_seq, r.usage) for r in seen] == [
        (1, None, None, None)
    ]


async def test_each_attempt_is_a_request():
    """A request that is made again has the next number and the next attempt (MD-22)."""
    failed = faux_assistant_message("", stop_reason="error", error_message="overloaded")
    s = Scripted(failed, "x", retry=RetryPolicy(base_delay_ms=0))
    await s.prompt()

    assert [(r.number, r.attempt) for r in s.agent.log.requests()] == [(1, 1), (2, 2)]


async def test_no_key_and_no_header_is_kept():
    """Nothing secret is in what can be read of a request."""
    s = Scripted(
        "x",
        get_api_key=lambda _: "sk-secret",
        identity={"attribution": None, "userAgent": "ua-secret"},
    )
    s.state.model = msgspec.structs.replace(s.state.model, headers={"authorization": "h-secret"})
    await s.prompt()

    assert "secret" not in repr(s.agent.log.requests())


async def test_requests_go_with_the_records_of_the_log():
    """What is left after trimming keeps its number, its record and its messages."""
    answers = [call("t", f"c{n}") for n in range(30)]
    s = Scripted(
        *answers,
        "end",
        tools=[make_tool(ok)],
        max_log_events=40,
        transform_context=lambda messages, _: [messages[0], *messages[-4:]],
    )
    await s.prompt()
    requests = s.agent.log.requests()

    assert 0 < len(requests) < 31
    assert [r.number for r in requests] == list(range(32 - len(requests), 32))
    assert [list(r.messages) for r in requests] == s.requests[-len(requests) :]
    assert all(s.agent.log.record(r.seq).type == "model_request_start" for r in requests)


# --------------------------------------------------------------------------- lists that share


@pytest.mark.parametrize(
    "lists",
    [
        ["a", "ab", "abc", "abcd"],
        ["abc", "abd", "abde", "ab", "abf", ""],
        ["ax", "aby", "abcz", "abcdw", "abcde"],
        ["abc", "xyz", "abc", "xbc"],
        ["abcd", "abcd", "abc", "abcd", "abcde"],
    ],
)
@pytest.mark.parametrize("viewed", [False, True])
def test_a_chain_gives_back_what_it_was_given(lists, viewed):
    """Whatever lists follow each other, before and after what is not needed is forgotten."""
    messages = {letter: user(letter) for letter in "abcdefwxyz"}
    given = [[messages[letter] for letter in letters] for letters in lists]
    chain = MessageChain()
    kept = [chain.keep(Prefix(one) if viewed else one) for one in given]

    assert kept == given
    assert [len(one) for one in kept] == [len(one) for one in given]
    half = kept[len(kept) // 2 :]
    chain.keep_only(half)
    assert half == given[len(kept) // 2 :]
    more = [*given[-1], user("more")]
    assert chain.keep(more) == more
    assert half == given[len(kept) // 2 :]
    assert [m.content for one in half for m in one] == [m.content for g in given for m in g][
        -sum(map(len, half)) :
    ]


def test_a_chain_does_not_follow_the_list_it_was_given():
    """Changing a list afterwards changes nothing that is kept."""
    chain = MessageChain()
    given = [user("a"), user("b")]
    kept = chain.keep(given)
    given[0] = user("x")
    given.clear()

    assert [m.content for m in kept] == ["a", "b"]
    assert kept[1].content == "b"


def test_equal_messages_made_anew_are_kept_once():
    """A hook that makes its messages again for every request costs the log no copy."""
    chain = MessageChain()
    first = chain.keep([UserMessage(content="x" * 9, timestamp=1)])
    second = chain.keep(
        [UserMessage(content="x" * 9, timestamp=1), SystemMessage(content="y", timestamp=1)]
    )

    assert second[0] is first[0]


def test_what_requests_cost_grows_with_the_transcript_only():
    """Four times the requests on four times the messages take no more than that."""

    def used(count):
        messages = [user("m")] * (2 * count)
        chain = MessageChain()
        tracemalloc.start()
        kept = [chain.keep([*messages[:n], messages[0]]) for n in range(0, 2 * count, 2)]
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(kept) == count
        return size

    assert used(800) < 8 * used(200)  # all of each list would take sixteen times as much
