"""Find model servers on this machine: one GET to each known port, all at once, 0.3 s in all.

A server is `identified` if its answer is of a shape that only that product gives. Others are told
to the user and never used by themselves: nobody knows what listens there. Only loopback addresses
are connected to, without a proxy, and a redirect is not followed. The answers are read by one
selector and not by a client library, because that has no limit for the whole.
"""

from __future__ import annotations

import errno
import json
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from pi_agent_kernel.models.providers import PROVIDERS

__all__ = ["Server", "find_servers", "server_address"]

PROBE_SECONDS = 0.3
LARGEST_ANSWER = 1_000_000
LONGEST_NAME = 200

#: What Ollama listens on, if not on its usual port.
_OLLAMA_HOST = "OLLAMA_HOST"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a model server that answered."""

    #: The provider whose port it has.
    provider: str
    #: Up to and with `/v1`.
    base_url: str
    #: Whether the answer shows that it is that product.
    identified: bool
    #: Names of models that can chat and run on this machine, as the server orders them.
    models: tuple[str, ...]


class _Probe:
    """One request on its way."""

    def __init__(self, provider: str, host: str, port: int) -> None:
        self.provider = provider
        self.path, self.read = _QUESTIONS[provider]
        self.host, self.port = host, port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(0)
        self.received = bytearray()

    def connect(self) -> bool:
        code = self.socket.connect_ex((self.host, self.port))
        return code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN)

    def send(self) -> bool:
        """Send the request once connected; it is small enough to go at once."""
        if self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return False
        shown = f"[{self.host}]" if ":" in self.host else self.host
        # HTTP/1.0: the answer comes in one piece and the server closes.
        request = (
            f"GET {self.path} HTTP/1.0\r\nHost: {shown}:{self.port}\r\n"
            "Accept: application/json\r\nConnection: close\r\n\r\n"
        )
        self.socket.send(request.encode())
        return True

    def receive(self) -> bool:
        """Read what came; returns whether more is to come."""
        piece = self.socket.recv(65536)
        self.received += piece
        if not piece or len(self.received) > LARGEST_ANSWER:
            return False
        return not _is_complete(bytes(self.received))

    def server(self) -> Server | None:
        """Read the answer; None if it is none."""
        answer = _json_of(bytes(self.received))
        if answer is None:
            return None
        try:
            identified, models = self.read(answer)
        except (KeyError, TypeError, AttributeError):
            return None
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return Server(
            provider=self.provider,
            base_url=f"http://{shown}:{self.port}/v1",
            identified=identified,
            models=tuple(models),
        )


def find_servers(
    env: Mapping[str, str],
    providers: Iterable[str] = ("ollama", "lmstudio", "llamacpp", "vllm"),
) -> list[Server]:
    """Ask the known ports of this machine for a list of models.

    Blocks the calling thread for `PROBE_SECONDS` at most; a closed port answers at once.

    Args:
        env: Environment variables; they may give another loopback address.
        providers: Which to look for.

    Returns:
        The servers that answered with a list, in the order asked for.
    """
    probes: list[_Probe] = []
    try:
        with selectors.DefaultSelector() as selector:
            for provider in providers:
                address = _loopback(server_address(provider, env))
                if address is None:
                    continue
                try:
                    probe = _Probe(provider, *address)
                except OSError:  # no IPv6 here
                    continue
                probes.append(probe)
                if probe.connect():
                    selector.register(probe.socket, selectors.EVENT_WRITE, probe)
            _wait(selector)
        return [server for probe in probes if (server := probe.server()) is not None]
    finally:
        for probe in probes:
            probe.socket.close()


def server_address(provider: str, env: Mapping[str, str]) -> str:
    """Return the address of a provider's API; Ollama's own variable counts if it is loopback."""
    row = PROVIDERS[provider]
    if provider == "ollama" and not env.get(row.url_variable, "").strip():
        host = env.get(_OLLAMA_HOST, "").strip()
        address = _loopback(host if "://" in host else f"http://{host}", 11434) if host else None
        if address is not None:
            shown = f"[{address[0]}]" if ":" in address[0] else address[0]
            return f"http://{shown}:{address[1]}/v1"
    return row.address(env)


def _wait(selector: selectors.BaseSelector) -> None:
    deadline = time.monotonic() + PROBE_SECONDS
    while selector.get_map() and (left := deadline - time.monotonic()) > 0:
        for key, events in selector.select(left):
            probe = cast("_Probe", key.data)
            try:
                if events & selectors.EVENT_WRITE:
                    if probe.send():
                        selector.modify(probe.socket, selectors.EVENT_READ, probe)
                        continue
                elif probe.receive():
                    continue
            except BlockingIOError:
                continue
            except OSError:
                probe.received.clear()
            selector.unregister(probe.socket)


def _loopback(url: str, port: int = 80) -> tuple[str, int] | None:
    """Return where to connect to for an address on this machine; None for any other.

    No name is looked up: what `localhost` or a bind address means is known.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or port
    except ValueError:
        return None
    host = (parts.hostname or "").lower()
    if parts.scheme != "http":
        return None
    if host in ("", "localhost", "0.0.0.0"):  # noqa: S104 - what a server binds to, not we
        return "127.0.0.1", port
    if host in ("::", "::1"):
        return "::1", port
    octets = host.split(".")
    if octets[0] == "127" and len(octets) == 4 and all(part.isdecimal() for part in octets):
        return host, port
    return None


def _is_complete(received: bytes) -> bool:
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
    return False


def _json_of(received: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a plain 200 answer; a redirect, a page or half of one is None."""
    head, _, body = received.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split()
    if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or status[1] != b"200":
        return None
    if len(received) > LARGEST_ANSWER:
        return None
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


_Answer = tuple[bool, list[str]]


def _ollama(answer: dict[str, Any]) -> _Answer:
    """Read `/api/tags`, which only Ollama has: `models`, each with a name and what it is."""
    entries: list[dict[str, Any]] = list(answer["models"])
    ours = all({"model", "digest", "details"} & entry.keys() for entry in entries)
    # What Ollama passes on to its makers' servers would leave this machine.
    local = [entry for entry in entries if not _is_remote(entry)]
    return ours, [
        name
        for entry in local
        if _can_chat(name := _name(entry["name"]), entry.get("capabilities"))
        and "bert" not in str(entry.get("details"))
    ]


def _is_remote(entry: dict[str, Any]) -> bool:
    tag = str(entry.get("name")).rpartition(":")[2]
    return bool(entry.get("remote_host")) or tag == "cloud" or tag.endswith("-cloud")


def _lm_studio(answer: dict[str, Any]) -> _Answer:
    """Read `/v1/models`; LM Studio gives every model the same odd owner."""
    entries: list[dict[str, Any]] = list(answer["data"])
    ours = all(
        entry.get("owned_by") == "organization_owner" or "compatibility_type" in entry
        for entry in entries
    )
    return ours, _chat_models(entries)


def _other(answer: dict[str, Any]) -> _Answer:
    """Read `/v1/models` of whatever it is."""
    return False, _chat_models(list(answer["data"]))


def _chat_models(entries: list[dict[str, Any]]) -> list[str]:
    names = [_name(entry["id"]) for entry in entries if entry.get("type") != "embeddings"]
    return [name for name in names if _can_chat(name)]


def _name(value: object) -> str:
    """Return a name that is safe to show and to send back; a strange one counts as none."""
    text = value if isinstance(value, str) else ""
    fine = text.isprintable() and not any(character.isspace() for character in text)
    return text if fine and len(text) <= LONGEST_NAME else ""


def _can_chat(name: str, capabilities: object = None) -> bool:
    if isinstance(capabilities, list):
        return bool(name) and "completion" in capabilities
    words = ("embed", "rerank", "whisper", "tts", "bge-", "minilm")
    return bool(name) and not any(word in name.lower() for word in words)


_QUESTIONS: Mapping[str, tuple[str, Callable[[dict[str, Any]], _Answer]]] = {
    "ollama": ("/api/tags", _ollama),
    "lmstudio": ("/v1/models", _lm_studio),
    "llamacpp": ("/v1/models", _other),
    "vllm": ("/v1/models", _other),
}
