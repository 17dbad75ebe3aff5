from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack

import pytest
from loopback import Loopback, answer, json_answer, lm_studio, ollama
from pi_agent_kernel.models.probes import PROBE_SECONDS, Server, find_servers, server_address


def find(server: Loopback, provider: str = "ollama") -> list[Server]:
    return find_servers({f"{provider.upper()}_BASE_URL": server.url}, [provider])


def test_ollama_is_recognised_by_its_list():
    """The models of Ollama come in its order, and it is known to be Ollama."""
    with Loopback(ollama("qwen3:8b", "llama3.2:3b")) as server:
        found = find(server)

    assert found == [
        Server(
            provider="ollama",
            base_url=server.url,
            identified=True,
            models=("qwen3:8b", "llama3.2:3b"),
        )
    ]
    assert [request.split("\r\n")[0] for request in server.requests] == ["GET /api/tags HTTP/1.0"]


def test_lm_studio_is_recognised_by_its_list():
    """LM Studio's list tells it from other servers that speak chat completions."""
    with Loopback(lm_studio("qwen2.5-7b", "text-embedding-nomic")) as server:
        assert find(server, "lmstudio")[0] == Server(
            provider="lmstudio", base_url=server.url, identified=True, models=("qwen2.5-7b",)
        )
    with Loopback(lm_studio("x", owner="vllm")) as server:
        assert not find(server, "lmstudio")[0].identified


@pytest.mark.parametrize("provider", ["llamacpp", "vllm"])
def test_other_servers_are_never_identified(provider):
    """Whatever answers on the common ports is listed but never taken for somebody known."""
    with Loopback(lm_studio("m", owner=provider)) as server:
        (found,) = find(server, provider)

    assert (found.identified, found.models) == (False, ("m",))


def test_models_that_cannot_chat_here_are_left_out():
    """Embedding models, models that run elsewhere and unshowable names are no choice."""
    entries = [
        {"name": "nomic-embed-text:latest", "model": "a", "details": {"family": "nomic-bert"}},
        {"name": "vectors:1", "model": "b", "details": {}, "capabilities": ["embedding"]},
        {"name": "gpt-oss:120b-cloud", "model": "c", "details": {}},
        {"name": "far:1", "model": "d", "details": {}, "remote_host": "https://ollama.com"},
        {"name": "bad\u202ename", "model": "e", "details": {}},
        {"name": "two words", "model": "f", "details": {}},
        {"name": "x" * 500, "model": "g", "details": {}},
        {"name": 7, "model": "h", "details": {}},
        {"name": "good:7b", "model": "i", "details": {}, "capabilities": ["completion", "tools"]},
    ]
    with Loopback(json_answer({"models": entries})) as server:
        assert find(server)[0].models == ("good:7b",)


@pytest.mark.parametrize(
    "reply",
    [
        answer(b"<html>hello</html>", kind="text/html"),
        answer(b'{"models": []}', status="500 Internal Server Error"),
        answer(b'{"models": [{"name": "x"', kind="application/json"),
        answer(b"[" * 100_000),
        json_answer(["models"]),
        json_answer({"models": 7}),
        json_answer({"models": ["x"]}),
        json_answer({"models": None}),
        json_answer({"data": []}),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00\xff" * 500,
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=range(13),
)
def test_an_answer_of_another_kind_is_no_server(reply):
    """A page, an error, half an answer and a foreign protocol count as nothing."""
    with Loopback(reply) as server:
        assert find(server) == []
    assert len(server.requests) == 1


def test_a_redirect_is_not_followed():
    """A server that sends the question elsewhere is no server, and elsewhere hears nothing."""
    with Loopback(ollama("x:1")) as elsewhere:
        location = f"HTTP/1.1 302 Found\r\nLocation: http://{elsewhere.address}/api/tags\r\n"
        with Loopback(f"{location}Content-Length: 0\r\n\r\n".encode()) as server:
            assert find(server) == []

    assert elsewhere.requests == []


def test_a_huge_answer_is_cut_off():
    """A body without end is not read to its end."""
    body = json.dumps({"models": [], "more": "x" * 3_000_000}).encode()
    with Loopback(answer(body)) as server:
        assert find(server) == []


def test_servers_that_hang_cost_one_time_limit_together():
    """All probes share one limit; a server that answered is found although the others hang."""
    with ExitStack() as stack:
        silent = [stack.enter_context(Loopback(ending="hang")) for _ in range(3)]
        good = stack.enter_context(Loopback(ollama("x:1"), ending="hang"))
        env = {
            "OLLAMA_BASE_URL": good.url,
            "LMSTUDIO_BASE_URL": silent[0].url,
            "LLAMACPP_BASE_URL": silent[1].url,
            "VLLM_BASE_URL": silent[2].url,
        }
        began = time.monotonic()
        found = find_servers(env)
        elapsed = time.monotonic() - began

    assert [server.provider for server in found] == ["ollama"]
    assert elapsed < PROBE_SECONDS * 10  # not one limit after the other, on however busy a machine


def test_an_answer_in_pieces_is_read_whole():
    """A server that closes instead of giving a length is read to the end."""
    body = json.dumps({"models": [{"name": "x:1", "model": "x:1", "p": "y" * 200_000}]})
    with Loopback(f"HTTP/1.1 200 OK\r\n\r\n{body}".encode()) as server:
        assert find(server)[0].models == ("x:1",)


def test_a_closed_port_is_no_server():
    """Where nothing listens nothing is found."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        assert find_servers({"OLLAMA_BASE_URL": url}, ["ollama"]) == []


def test_proxy_variables_do_not_count(monkeypatch):
    """A question to this machine never goes through a proxy."""
    with Loopback(ollama("x:1")) as server, Loopback() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{proxy.address}")
        assert find(server)[0].models == ("x:1",)

    assert proxy.requests == []


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1:1", "http://127.0.0.1:1/v1"),
        ("localhost:99", "http://127.0.0.1:99/v1"),
        ("http://127.0.0.2:5/", "http://127.0.0.2:5/v1"),
        (":77", "http://127.0.0.1:77/v1"),
        ("[::1]:3", "http://[::1]:3/v1"),
        ("192.168.1.2", "http://127.0.0.1:11434/v1"),
        ("evil.example:80", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1.evil.example", "http://127.0.0.1:11434/v1"),
        ("localhost:port", "http://127.0.0.1:11434/v1"),
    ],
)
def test_ollama_host_counts_if_it_is_this_machine(host, url):
    """`OLLAMA_HOST` moves the probe only within loopback; `OLLAMA_BASE_URL` goes before it."""
    assert server_address("ollama", {"OLLAMA_HOST": host}) == url
    both = {"OLLAMA_HOST": host, "OLLAMA_BASE_URL": "http://other:1/v1/"}
    assert server_address("ollama", both) == "http://other:1/v1"


@pytest.mark.parametrize("url", ["http://example.com/v1", "https://127.0.0.1/v1", "ftp://x", "::"])
def test_other_machines_are_not_probed(url, monkeypatch):
    """An address that is not this machine's, or not plain HTTP, gets no connection."""

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert find_servers({"OLLAMA_BASE_URL": url}, ["ollama"]) == []


def test_ipv6_loopback_works():
    """A server on ::1 is found and its address can be used as it is."""
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with Loopback(ollama("x:1"), host="::1") as server:
        (found,) = find_servers({"OLLAMA_HOST": f"[::1]:{server.port}"}, ["ollama"])

    assert found.base_url == f"http://[::1]:{server.port}/v1"
