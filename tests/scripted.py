"""A scripted agent for the kernel's tests, and what holds for every run."""

from __future__ import annotations

from collections import Counter

import anyio
from pi_agent_kernel import (
    ALL_EVENTS,
    Agent,
    AgentTool,
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    faux_assistant_message,
    faux_provider,
)

LIMIT = 10  # seconds for anything that must not hang

PAIRS = (
    ("agent_start", "agent_end"),
    ("message_start", "message_end"),
    ("tool_execution_start", "tool_execution_end"),
    ("tool_batch_start", "tool_batch_end"),
    ("model_request_start", "model_response"),
)


def call(name="t", id="c1", /, **arguments):
    """A tool call."""
    return ToolCall(id=id, name=name, arguments=arguments)


def answer(given):
    """A response: text, a call, several blocks, or what the faux provider takes anyway."""
    if isinstance(given, AssistantMessage) or callable(given):
        return given
    return faux_assistant_message(given)


def make_tool(function, name="t", **options):
    """A tool without parameters from `execute`'s four-argument form."""
    return AgentTool(name=name, execute=function, **options)


async def ok(tool_call_id, params, signal, on_update):
    return "ok"


def user(text="hi", **fields):
    return UserMessage(content=text, **fields)


class Scripted:
    """An agent on a faux provider; keeps its events and what the stream function got."""

    def __init__(self, *answers, tools=(), faux_options=None, **options):
        self.faux = faux_provider(**(faux_options or {}))
        self.faux.set_responses([answer(one) for one in answers])
        self.requests = []
        self.options = []
        self.models = []
        options.setdefault("stream_fn", self.stream)
        options.setdefault("model", self.faux.model())
        self.agent = Agent(tools=tools, **options)
        self.events = []
        self.agent.subscribe(lambda event, _signal: self.events.append(event), events=ALL_EVENTS)

    def stream(self, model, context, options):
        self.requests.append(list(context.messages))
        self.options.append(options)
        self.models.append(model)
        return self.faux.stream_fn(model, context, options)

    async def prompt(self, input="go", images=None):
        with anyio.fail_after(LIMIT):
            await self.agent.prompt(input, images)

    async def resume(self):
        with anyio.fail_after(LIMIT):
            await self.agent.continue_()

    @property
    def state(self):
        return self.agent.state

    @property
    def types(self):
        return [event.type for event in self.events]

    @property
    def core(self):
        """The types without updates of messages."""
        return [kind for kind in self.types if kind != "message_update"]

    def count(self, kind):
        return self.types.count(kind)

    def of(self, kind):
        return [event for event in self.events if event.type == kind]

    @property
    def roles(self):
        return [message.role for message in self.state.messages]

    @property
    def results(self):
        return [m for m in self.state.messages if isinstance(m, ToolResultMessage)]

    @property
    def outcomes(self):
        """Text and error flag of every tool result."""
        return [(result.text, result.is_error) for result in self.results]

    @property
    def last(self):
        return self.state.messages[-1]

    def check(self):
        """Assert what holds after every run, however it ended."""
        counts = Counter(self.types)
        for start, end in PAIRS:
            # A failure in a listener of agent_end is announced by another one.
            same = counts[start] == counts[end]
            assert same or (end == "agent_end" and counts[end] > counts[start]), self.core
        assert counts["turn_start"] <= counts["turn_end"], self.core
        assert self.agent.signal is None
        assert not self.state.is_streaming
        assert self.state.streaming_message is None
        assert self.state.pending_tool_calls == frozenset()
        check_transcript(self.state.messages)
        announced = [event.message for event in self.of("message_end")]
        tail = list(self.state.messages)[-len(announced) :] if announced else []
        assert [id(m) for m in tail] == [id(m) for m in announced]


def check_transcript(messages):
    """Assert that every call of a good response has exactly one result, in call order."""
    messages = list(messages)
    for index, message in enumerate(messages):
        if not isinstance(message, AssistantMessage):
            continue
        assert message.stop_reason != "pending"
        if message.stop_reason in ("error", "aborted"):
            continue
        ids = [one.id for one in message.tool_calls]
        found = [
            one.tool_call_id
            for one in messages[index + 1 : index + 1 + len(ids)]
            if isinstance(one, ToolResultMessage)
        ]
        assert found == ids


def problems_of(request):
    """What a strict provider would refuse in a request."""
    found = []
    open_calls = []
    for message in request:
        if isinstance(message, ToolResultMessage):
            if message.tool_call_id in open_calls:
                open_calls.remove(message.tool_call_id)
            else:
                found.append(f"result without call {message.tool_call_id}")
        elif not isinstance(message, SystemMessage):
            found += [f"call without result {one}" for one in open_calls]
            open_calls = []
        if isinstance(message, AssistantMessage):
            if message.stop_reason not in ("error", "aborted"):
                open_calls = [one.id for one in message.tool_calls]
        elif not isinstance(message, ToolResultMessage | SystemMessage) and not message.content:
            found.append("empty message")
    return found + [f"call without result {one}" for one in open_calls]
