"""AWS's event-stream frames, made from readable lines."""

from __future__ import annotations

import json
import struct
from zlib import crc32


def frames(lines):
    """Return the frames of a stream written as one JSON object a line: {event type: payload}."""
    return b"".join(frame(*json.loads(line).popitem()) for line in lines.splitlines())


def frame(kind, payload):
    """Return one frame; a type that ends in "Exception" makes an exception."""
    if kind.endswith("Exception"):
        headers = {":message-type": "exception", ":exception-type": kind}
    else:
        headers = {":message-type": "event", ":event-type": kind}
    headers[":content-type"] = "application/json"
    head = b"".join(_header(name, value) for name, value in headers.items())
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(head) + len(body), len(head))
    message = prelude + struct.pack(">I", crc32(prelude)) + head + body
    return message + struct.pack(">I", crc32(message))


def _header(name, value):
    name, value = name.encode(), value.encode()
    return bytes([len(name)]) + name + b"\x07" + struct.pack(">H", len(value)) + value
