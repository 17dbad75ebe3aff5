"""What holds for the events of every response, whatever the provider sent (MD-02 to MD-06)."""

from __future__ import annotations

import json

from pi_agent_kernel.messages import TextContent, ThinkingContent, ToolCall

KINDS = {"text": TextContent, "thinking": ThinkingContent, "toolcall": ToolCall}


def check_protocol(events):
    """Check one response's events and return its final message."""
    assert events, "a response has at least its terminal event"
    last = events[-1]
    assert last.type in ("done", "error"), f"the last event is terminal, not {last.type}"
    message = last.message if last.type == "done" else last.error
    if events[0].type != "start":
        assert [event.type for event in events] == ["error"], "only an error comes without a start"
        assert not message.content
    blocks = _Blocks()
    for event in events[1:-1]:
        blocks.take(event)
    _check_end(last, message, blocks)
    return message


def _check_end(last, message, blocks):
    if last.type == "done":
        assert last.reason in ("stop", "length", "toolUse", "deferred")
        assert blocks.ended == set(range(len(blocks.kinds))), "done ends with every block ended"
        assert message.error_message is None
    else:
        assert last.reason in ("error", "aborted")
        assert message.error_message, "an error says something"
    assert message.stop_reason == last.reason
    assert len(message.content) == len(blocks.kinds), "the message has the blocks that began"
    for index, block in enumerate(message.content):
        kind, text = blocks.kinds[index], "".join(blocks.pieces[index])
        assert isinstance(block, KINDS[kind])
        if index in blocks.ended:
            assert block == blocks.final[index], "the message has what the end event told"
        match kind:
            case "text":
                assert block.text == text
            case "thinking":
                assert block.thinking == text
            case _:
                check_arguments(block, text, ended=index in blocks.ended)


def check_arguments(call, text, *, ended):
    """Check a call against the text its arguments came as."""
    assert isinstance(dict(call.arguments), dict)
    try:
        whole = json.loads(text) if text.strip() else {}
    except ValueError:
        assert not ended or call.arguments_error, "half an object is an error of the call (TL-06)"
        return
    if isinstance(whole, dict):
        assert dict(call.arguments) == whole


class _Blocks:
    """Follow the blocks of a response."""

    def __init__(self):
        self.kinds = []
        self.pieces = []
        self.ended = set()
        self.final = {}
        self.seen = 0

    def take(self, event):
        """Check the next event between the start and the end."""
        kind, _, what = event.type.rpartition("_")
        assert kind in KINDS, f"unexpected {event.type}"
        index = event.content_index
        if what == "start":
            assert index == len(self.kinds), "blocks are numbered in the order they begin"
            self.kinds.append(kind)
            self.pieces.append([])
        else:
            assert index < len(self.kinds), f"{event.type} of a block that has not begun"
            assert self.kinds[index] == kind, f"{event.type} of a {self.kinds[index]} block"
            assert index not in self.ended, f"{event.type} after the block's end"
            if what == "delta":
                assert isinstance(event.delta, str)
                assert event.delta, "a delta adds something"
                self.pieces[index].append(event.delta)
            else:
                self._end(event, kind, index)
        self._look_at_partial(event)

    def _end(self, event, kind, index):
        self.ended.add(index)
        text = "".join(self.pieces[index])
        if kind == "toolcall":
            self.final[index] = event.tool_call
            assert event.tool_call.id
            assert event.tool_call.name
        else:
            self.final[index] = event.partial.content[index]
            assert event.content == text, "the end tells what the deltas told"

    def _look_at_partial(self, event):
        self.seen += 1
        if self.seen > 200 and self.seen % 97:
            return  # on long replies now and then: each look is a message
        partial = event.partial
        assert partial.stop_reason == "pending"
        assert len(partial.content) == len(self.kinds)
        index = event.content_index
        block, text = partial.content[index], "".join(self.pieces[index])
        match self.kinds[index]:
            case "text":
                assert block.text == text
            case "thinking":
                assert block.thinking == text
            case _:
                assert isinstance(dict(block.arguments), dict)
