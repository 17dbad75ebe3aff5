"""A server on loopback that answers a model server's questions, well or badly."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any, Self

GIVE_UP = 10.0  # seconds a server that says nothing waits for the client to leave


def answer(body: bytes, *, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """Write a whole HTTP answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def json_answer(value: Any) -> bytes:
    """Write a JSON answer."""
    return answer(json.dumps(value).encode())


def ollama(*names: str, **more: Any) -> bytes:
    """Write what Ollama says to `/api/tags`."""
    models = [
        {"name": name, "model": name, "digest": "0" * 64, "details": {"family": "llama"}, **more}
        for name in names
    ]
    return json_answer({"models": models})


def lm_studio(*names: str, owner: str = "organization_owner") -> bytes:
    """Write what LM Studio says to `/v1/models`."""
    models = [{"id": name, "object": "model", "owned_by": owner} for name in names]
    return json_answer({"object": "list", "data": models})


class Loopback:
    """Give every connection the same bytes.

    Args:
        reply: What to send once a request has come; nothing at all if empty.
        ending: "close" after it, or "hang" until the client has left.
        host: The address to listen on.
    """

    def __init__(self, reply: bytes = b"", *, ending: str = "close", host: str = "127.0.0.1"):
        self.requests: list[str] = []
        self._reply, self._ending = reply, ending
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((host, 0))
        self._listener.listen(20)
        self.host, self.port = self._listener.getsockname()[:2]
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/v1"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(GIVE_UP)

    def _start(self, work: Any, *given: Any) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(GIVE_UP)
            try:
                self.requests.append(connection.recv(65536).decode())
                connection.sendall(self._reply)
                if self._ending == "hang":
                    connection.recv(1)
            except OSError:
                return
