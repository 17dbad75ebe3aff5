"""A real HTTP server on loopback that plays a model provider's part, badly if asked to."""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from frames import frames

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAMS = Path(__file__).parent / "streams"
GIVE_UP = 10.0  # seconds a hanging reply waits for the client to leave


@dataclass
class Reply:
    """What to answer one request with."""

    body: bytes = b""
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)
    #: Bytes of each piece put on the wire.
    piece: int = 65536
    #: After the body: end well, close or reset the connection, say nothing until the client left,
    #: or (silent) send headers one byte at a time until then, or the body so.
    ending: Literal["end", "cut", "reset", "hang", "trickle", "drip"] = "end"
    #: Say nothing at all, not even a status, before that ending.
    silent: bool = False


@dataclass
class Request:
    """What the client sent."""

    path: str
    headers: dict[str, str]
    payload: dict[str, Any]

    def header(self, name: str) -> str | None:
        """Return a header, whatever its case."""
        return next((v for k, v in self.headers.items() if k.lower() == name), None)


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 50


class ProviderServer:
    """Answer each request with the next reply of a queue; the last one is repeated."""

    def __init__(self, certificate: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        #: Set when a request has arrived.
        self.asked = threading.Event()
        #: Set when a client left while a reply was hanging.
        self.client_left = threading.Event()
        self._replies: deque[Reply] = deque()
        self._http = _Threads(("127.0.0.1", 0), self._handler())
        self._scheme = "https" if certificate else "http"
        if certificate:
            self._http.socket = certificate.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_port}/v1"

    def play(self, *replies: Reply | str) -> None:
        """Queue replies; a string is the name of a file in `streams`."""
        self._replies = deque(
            reply if isinstance(reply, Reply) else Reply(recorded(reply)) for reply in replies
        )

    def _take(self) -> Reply:
        return self._replies.popleft() if len(self._replies) > 1 else self._replies[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server.connections += 1

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    self.close_connection = True

            def finish(self) -> None:
                try:
                    super().finish()
                except OSError:
                    return

            def log_message(self, format: str, *args: object) -> None:
                return

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                payload = json.loads(self.rfile.read(length))
                server.requests.append(Request(self.path, dict(self.headers.items()), payload))
                server.asked.set()
                reply = server._take()
                if not reply.silent:
                    self._send(reply)
                self._end(reply)

            def _send(self, reply: Reply) -> None:
                self.send_response(reply.status)
                self.send_header("content-type", reply.content_type)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for start in range(0, len(reply.body), reply.piece):
                    piece = reply.body[start : start + reply.piece]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

            def _end(self, reply: Reply) -> None:
                match reply.ending:
                    case "end":
                        self.wfile.write(b"0\r\n\r\n")
                    case "cut":
                        self.close_connection = True
                    case "reset":
                        reset = struct.pack("ii", 1, 0)
                        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                        self.close_connection = True
                    case "hang":
                        self._hang()
                    case "trickle":
                        self.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
                        self._trickle(b"z")
                    case "drip":
                        self._trickle(b"1\r\nz\r\n")

            def _hang(self) -> None:
                self.close_connection = True
                readable, _, _ = select.select([self.connection], [], [], GIVE_UP)
                if readable:
                    server.client_left.set()

            def _trickle(self, piece: bytes) -> None:
                self.close_connection = True
                for _ in range(int(GIVE_UP / 0.05)):
                    self.wfile.write(piece)
                    if select.select([self.connection], [], [], 0.05)[0]:
                        server.client_left.set()
                        return

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def recorded(name: str) -> bytes:
    """Return a stream written by hand."""
    lines = STREAMS / f"{name}.jsonl"
    return frames(lines.read_text()) if lines.exists() else (STREAMS / f"{name}.sse").read_bytes()


@contextmanager
def unused_url() -> Iterator[str]:
    """Give an address on which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/v1"
