"""Keep the events of an agent and say in a test what they had to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from pi_agent_kernel.events import ALL_EVENTS, AgentEvent, MessageUpdate
from pi_agent_kernel.testing.events import check_events
from pi_agent_kernel.testing.expectations import Expected, Seen, difference, expected_of, listing

if TYPE_CHECKING:
    from pi_agent_kernel.agent import Agent

__all__ = ["EventRecorder"]

E = TypeVar("E")


class EventRecorder:
    """Keep every event of an agent, from now on, and compare it with what a test expects.

    Register it before other listeners: a listener that raises keeps the event from those after
    it. What an assertion says has the numbers of `agent.log`, as `agent.explain()` has. As a
    context manager it takes itself off at the end.

    Args:
        agent: The agent to subscribe to.
        events: Classes or wire strings of the events to keep; by default all, those of the
            lifecycle included.

    Example:
        >>> from pi_agent_kernel import Agent
        >>> from pi_agent_kernel.testing import scripted_model
        >>> agent = Agent(stream_fn=scripted_model("Hello."))
        >>> seen = EventRecorder(agent)
        >>> agent.prompt_sync("Hi.")
        >>> seen.types[:2], seen.types[-2:]
        (['agent_start', 'turn_start'], ['agent_end', 'agent_idle'])
    """

    def __init__(self, agent: Agent, events: Iterable[type[Any] | str] = ALL_EVENTS) -> None:
        self.events: list[AgentEvent] = []
        self._log = agent.log
        #: Takes the recorder off again.
        self.unsubscribe: Callable[[], None] = agent.subscribe(self._record, events=events)

    def _record(self, event: AgentEvent, _signal: object) -> None:
        self.events.append(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.unsubscribe()

    def __str__(self) -> str:
        return listing(list(self._seen()))

    @property
    def types(self) -> list[str]:
        """The events' wire strings, in order."""
        return [event.type for event in self.events]

    def of_type(self, kind: type[E]) -> list[E]:
        """Return the events of one class, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def find(self, expected: str | type[Any] | Expected) -> list[AgentEvent]:
        """Return the events that are as expected, in order.

        Example:
            >>> from pi_agent_kernel import Agent
            >>> from pi_agent_kernel.testing import expect, scripted_model
            >>> agent = Agent(stream_fn=scripted_model("Hello."))
            >>> seen = EventRecorder(agent)
            >>> agent.prompt_sync("Hi.")
            >>> [event.message.text for event in seen.find(expect("message_end", role="user"))]
            ['Hi.']
        """
        (wanted,) = expected_of([expected])
        return [event for event in self.events if wanted.fault(event) is None]

    def clear(self) -> None:
        """Forget what came so far: what follows is about the next run alone.

        Example:
            >>> from pi_agent_kernel import Agent
            >>> from pi_agent_kernel.testing import scripted_model
            >>> agent = Agent(stream_fn=scripted_model("Hello.", "Again."))
            >>> seen = EventRecorder(agent)
            >>> agent.prompt_sync("Hi.")
            >>> seen.clear()
            >>> agent.prompt_sync("Hi again.")
            >>> seen.types.count("agent_start")
            1
        """
        self.events.clear()

    # ------------------------------------------------------------------------- assertions

    def assert_order(self, *expected: str | type[Any] | Expected) -> None:
        """Require that these events came in this order, whatever came between them.

        Args:
            *expected: Wire strings, classes, or `expect(...)`.

        Raises:
            AssertionError: The first that did not come, what was nearest to it, and what came.

        Example:
            >>> from pi_agent_kernel import Agent, tool
            >>> from pi_agent_kernel.testing import call, expect, scripted_model
            >>> @tool
            ... def add(a: int, b: int) -> int:
            ...     return a + b
            >>> model = scripted_model(call("add", a=2, b=40), "42.")
            >>> agent = Agent(stream_fn=model, tools=[add])
            >>> seen = EventRecorder(agent, events=["tool_execution_end", "agent_end"])
            >>> agent.prompt_sync("Add 2 and 40.")
            >>> seen.assert_order(expect("tool_execution_end", text="42"), "agent_end")
            >>> seen.assert_order("agent_end", expect("tool_execution_end", text="41"))
            Traceback (most recent call last):
            AssertionError: tool_execution_end(text='41') did not come after #29 agent_end.
            Expected, in this order:
                1. agent_end                                #29
                2. tool_execution_end(text='41')            missing
            It came otherwise: #15 tool_execution_end: text is '42', expected '41'
            Seen:
                #15   tool_execution_end     tool_name='add' is_error=False text='42'
                #29   agent_end
        """
        __tracebackhide__ = True
        wanted = expected_of(expected)
        rest = self._seen()
        found: list[Seen] = []
        for one in wanted:
            seen = next((seen for seen in rest if one.fault(seen.event) is None), None)
            if seen is None:
                self._fail_order(wanted, found)
            found.append(seen)

    def assert_exactly(self, *expected: str | type[Any] | Expected) -> None:
        """Require these events and no others; updates in a row count as one.

        Args:
            *expected: Wire strings, classes, or `expect(...)`, for every event that the recorder
                keeps.

        Raises:
            AssertionError: A comparison, line by line.

        Example:
            >>> from pi_agent_kernel import Agent
            >>> from pi_agent_kernel.testing import expect, scripted_model
            >>> agent = Agent(stream_fn=scripted_model("Hello."))
            >>> seen = EventRecorder(agent, events=["agent_start", "message_end", "agent_end"])
            >>> agent.prompt_sync("Hi.")
            >>> seen.assert_exactly(
            ...     "agent_start", "message_end", expect("message_end", text="Bye."), "turn_end"
            ... )
            Traceback (most recent call last):
            AssertionError: The events are not as expected (- missing, + came instead, ! differs):
                #2    agent_start
                #5    message_end            role='user' text='Hi.'
              ! #11   message_end            role='assistant' stop_reason='stop' text='Hello.'
                  text is 'Hello.', expected 'Bye.'
              -       turn_end
              + #14   agent_end
        """
        __tracebackhide__ = True
        found = difference(expected_of(expected), list(self._seen()))
        if found:
            raise AssertionError(
                "The events are not as expected (- missing, + came instead, ! differs):\n" + found
            )

    def assert_never(self, *unwanted: str | type[Any] | Expected) -> None:
        """Require that none of these came.

        Args:
            *unwanted: Wire strings, classes, or `expect(...)`.

        Raises:
            AssertionError: Those that came.

        Example:
            >>> from pi_agent_kernel import Agent
            >>> from pi_agent_kernel.testing import scripted_model
            >>> agent = Agent(stream_fn=scripted_model("Hello."))
            >>> seen = EventRecorder(agent)
            >>> agent.prompt_sync("Hi.")
            >>> seen.assert_never("tool_execution_start", "turn_end")
            Traceback (most recent call last):
            AssertionError: These must not come:
                #13   turn_end               role='assistant' stop_reason='stop' text='Hello.'
        """
        __tracebackhide__ = True
        kinds = expected_of(unwanted)
        came = [
            seen for seen in self._seen() if any(one.fault(seen.event) is None for one in kinds)
        ]
        if came:
            raise AssertionError("These must not come:\n" + listing(came))

    def assert_no_event_after(
        self, event: str | type[Any] | Expected, *unwanted: str | type[Any] | Expected
    ) -> None:
        """Require that in its run nothing comes after an event, and that the event came.

        Args:
            event: The event: a wire string, a class, or `expect(...)`.
            *unwanted: What must not come after it; by default anything but `agent_idle`.

        Raises:
            AssertionError: What came after it, or that it never came.

        Example:
            >>> from pi_agent_kernel import Agent
            >>> from pi_agent_kernel.testing import expect, scripted_model
            >>> agent = Agent(stream_fn=scripted_model("Hello.", "Again."))
            >>> seen = EventRecorder(agent)
            >>> agent.prompt_sync("Hi.")
            >>> agent.prompt_sync("Hi again.")
            >>> seen.assert_no_event_after("agent_end")
            >>> seen.assert_no_event_after(expect("message_end", text="Hello."), "turn_end")
            Traceback (most recent call last):
            AssertionError: After #11 message_end(text='Hello.') must not come:
                #13   turn_end               role='assistant' stop_reason='stop' text='Hello.'
        """
        __tracebackhide__ = True
        (last,) = expected_of([event])
        kinds = expected_of(unwanted)
        came = False
        for run in _runs(self._seen()):
            fits = [last.fault(seen.event) is None for seen in run]
            if True not in fits:
                continue
            came, at = True, fits.index(True)
            late = [
                seen
                for seen, again in zip(run[at + 1 :], fits[at + 1 :], strict=True)
                if (
                    any(one.fault(seen.event) is None for one in kinds)
                    if kinds
                    else not again and seen.event.type != "agent_idle"
                )
            ]
            if late:
                raise AssertionError(
                    f"After {run[at].place} {last} must not come:\n" + listing(late)
                )
        if not came:
            raise AssertionError(f"{last} never came. Seen:\n{self}")

    def check(self) -> None:
        """Check the rules of `check_events`, for a recorder that was there for whole runs.

        Raises:
            AssertionError: The rule that is broken, and the place.

        Example:
            >>> from pi_agent_kernel import Agent
            >>> from pi_agent_kernel.testing import scripted_model
            >>> agent = Agent(stream_fn=scripted_model("Hello."))
            >>> seen = EventRecorder(agent)
            >>> agent.prompt_sync("Hi.")
            >>> seen.check()
        """
        __tracebackhide__ = True
        check_events(self.events)

    # ---------------------------------------------------------------------------- numbers

    def _seen(self) -> Iterator[Seen]:
        """Give the events their numbers in the log."""
        numbers = {_identity(record.event): record.seq for record in self._log}
        return (Seen(numbers.get(_identity(event)), event) for event in self.events)

    def _fail_order(self, wanted: list[Expected], found: list[Seen]) -> NoReturn:
        __tracebackhide__ = True
        missing = wanted[len(found)]
        after = f" after {found[-1].place} {found[-1].event.type}" if found else ""
        lines = [f"{missing} did not come{after}.", "Expected, in this order:"]
        for index, one in enumerate(wanted):
            place = found[index].place if index < len(found) else "missing" * (index == len(found))
            lines.append(f"    {index + 1}. {one!s:<40} {place}".rstrip())
        near = [seen for seen in self._seen() if seen.event.type == missing.type]
        for seen in near[:3]:
            fault = missing.fault(seen.event) or "before its turn"
            lines.append(f"It came otherwise: {seen.place} {seen.event.type}: {fault}")
        raise AssertionError("\n".join([*lines, "Seen:", str(self)]))


def _identity(event: object) -> object:
    """Tell an event from others; the log makes an update anew whenever it is read."""
    if isinstance(event, MessageUpdate):
        step = event.assistant_message_event
        return id(step.origin), step.at
    return id(event)


def _runs(seen: Iterable[Seen]) -> list[list[Seen]]:
    runs: list[list[Seen]] = [[]]
    for one in seen:
        if one.event.type == "agent_start":
            runs.append([])
        runs[-1].append(one)
    return runs
