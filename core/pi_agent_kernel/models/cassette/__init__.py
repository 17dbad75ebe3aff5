"""Cassettes: record what an agent and its model say to each other, replay it without the model.

`record_stream_fn` and `replay_stream_fn` stand at the one seam to a model, so everything else —
the loop, tools, hooks, the notebook — runs as ever.

A cassette is UTF-8 text, one JSON value a line, in camelCase:

    {"type": "cassette", "version": 1}
    {"type": "model", "id": "gpt-5-mini", "name": …, "api": …, "provider": "openai-chat", …}
    {"type": "request", "request": 1, "model": "openai-chat:gpt-5-mini", "thinking": "off"}
    {"type": "message", "role": "system", "content": …, "toolsAdded": […]}
    {"type": "message", "role": "user", "content": "How many words …"}
    {"type": "response", "request": 1}
    {"type": "text", "block": 0, "text": "I count them.", "chunks": [2, 6, 5]}
    {"type": "toolCall", "block": 1, "id": "call_1", "name": "word_count", "text": "{…}"}
    {"type": "done", "stopReason": "toolUse", "usage": {…}}
    {"type": "request", "request": 2, "model": …, "thinking": "off", "after": 1}
    {"type": "message", "role": "toolResult", "toolCallId": "call_1", …}

- A `request` is followed by its `message` lines: only those that are new. `after` names the
  request whose messages and reply come before them; `keep` says that only so many of its messages
  do. So the file grows with the conversation, a further turn only adds lines, and a changed
  prompt changes its line and what the model then says.
- A message holds what a model sees: no time, duration, usage, or details of a tool's result.
  Replies that failed or were aborted are in no request, as in what providers get.
- A `response` has a line for each run of pieces of a block: `chunks` are their lengths in
  characters, absent for one piece. `open` says that the block goes on in a later line, or was
  never ended. What an end event carries beside the text stands in the same line (signatures;
  `content` or `call` where it is not what the pieces amount to).
- A `retry` line before the blocks is an attempt that failed and that the provider's adapter made
  again; replay announces it and does not wait.
- A response ends with `done`, with `error` (`stopReason`: failed or aborted), or with `cut` if
  the stream just ended. `started` is false if nothing came before an error.
- Nothing in it is a time, a duration or an address, so the same conversation gives the same file.
  Ids made up here for providers that send none are numbered. Ids that a provider sent stay.
- Secrets are `[redacted]`: keys given to the request or in variables named like `*_API_KEY`,
  `*_TOKEN`, `*_SECRET`, `*_PASSWORD`, headers that authorize, and whatever looks like a key
  (`sk-…`, `AIza…`, `AKIA…`, `ghp_…`, JSON web tokens, private keys), as JSON escapes them, too.
  In replay `[redacted]` in a message of a request stands for any text. The text of prompts and
  tool results is kept.

A request line is written before the request is sent, its response in one piece when it has ended.
A program that dies leaves a valid file; a last line that it was writing is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pi_agent_kernel.models.cassette.player import CassettePlayer
from pi_agent_kernel.models.cassette.recorder import CassetteRecorder

if TYPE_CHECKING:
    from os import PathLike

    from pi_agent_kernel.request import StreamFn

__all__ = ["CassettePlayer", "CassetteRecorder", "record_stream_fn", "replay_stream_fn"]


def record_stream_fn(stream_fn: StreamFn, path: str | PathLike[str] | CassetteRecorder) -> StreamFn:
    """Record everything that passes through a stream function.

    Args:
        stream_fn: What is asked.
        path: The file, which a first request starts anew (a recording that is there is kept as
            `FILE.bak`, `FILE.bak2` and so on); or a recorder, which several stream functions may
            share.

    Returns:
        A stream function that gives the same events. If the file cannot be written any more, a
        request is not sent and ends in an error.

    Raises:
        ModelError: The file cannot be written, or is there and is no cassette.

    Source: MD-01 to MD-06.
    """
    recorder = path if isinstance(path, CassetteRecorder) else CassetteRecorder(path)
    return recorder.wrap(stream_fn)


def replay_stream_fn(
    path: str | PathLike[str], *, chunks_per_second: float | None = None
) -> CassettePlayer:
    """Answer requests from a cassette.

    A request is matched by what the model sees: model, messages, tools, thinking level. Equal
    requests get their responses in the order they were asked, then the last one again. A request
    that was not recorded ends in an error that shows how it differs from the nearest one.

    Args:
        path: The file.
        chunks_per_second: Pace; as fast as possible by default.

    Returns:
        A stream function; its `models` are the recorded ones.

    Raises:
        ModelError: The file cannot be read, or is no cassette.
        ValueError: The pace is not positive.

    Source: MD-01 to MD-06.
    """
    return CassettePlayer(path, chunks_per_second=chunks_per_second)
