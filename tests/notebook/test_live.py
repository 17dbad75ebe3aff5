"""The four views of a run, with a clock and a loop of the test's own."""

import json

from pi_notebook.render.bundle import RUN_MIME
from pi_notebook.render.live import INTERVAL, LiveView, SilentView, StaticView, TerminalView
from pi_notebook.snapshot import RunSnapshot, Text, Tokens, ToolRun


class Stage:
    """Drive a view: hold the run's text, the time and the timers, and what was sent."""

    def __init__(self, make):
        self.now = 0.0
        self.timers = []
        self.parts = ()
        self.status = "running"
        self.sent = []
        self.view = make(self)
        self.view.open(
            self.take, lambda seconds, call: self.timers.append((self.now + seconds, call))
        )

    @classmethod
    def live(cls):
        return cls(lambda stage: LiveView(stage.publish, lambda: stage.now))

    def publish(self, data, metadata, *, update):
        self.sent.append((data, metadata, update))

    def take(self):
        return RunSnapshot("main", "m", self.status, 1, self.parts, Tokens(), None, None)

    def say(self, *parts, after=0.0):
        self.now += after
        self.parts = parts
        self.view.changed()

    def ring(self):
        """Let the time of the first timer come."""
        self.now, call = self.timers.pop(0)
        call()

    def close(self):
        self.status = "ok"
        self.view.close(self.take(), {"pi": {}})

    @property
    def texts(self):
        return [data["text/plain"] for data, _, _ in self.sent]


def test_live_view_shows_at_once_and_updates_in_place():
    """The first message makes the output, the others update it, the last is the whole bundle."""
    stage = Stage.live()
    stage.say(Text("a"), after=INTERVAL)
    stage.close()
    assert [update for _, _, update in stage.sent] == [False, True, True]
    assert [RUN_MIME in data for data, _, _ in stage.sent] == [False, False, True]
    assert stage.texts == ["", "a", "a"]


def test_live_view_holds_its_pace():
    """Changes within a tenth of a second are one update, and the last one is never lost."""
    stage = Stage.live()
    for count in range(1, 1000):
        stage.say(Text("x" * count), after=INTERVAL / 10_000)
    assert stage.texts == [""]
    assert len(stage.timers) == 1
    stage.ring()
    assert stage.texts[-1] == "x" * 999


def test_live_view_needs_no_loop_that_turns():
    """A stream that never lets a timer ring is shown all the same."""
    stage = Stage.live()
    for count in range(1, 40):
        stage.say(Text("x" * count), after=INTERVAL / 10)
    assert 3 <= len(stage.sent) <= 5


def test_live_view_is_silent_after_its_end():
    """A timer that rings late sends nothing."""
    stage = Stage.live()
    stage.say(Text("a"))
    stage.close()
    before = len(stage.sent)
    stage.ring()
    assert len(stage.sent) == before


def test_live_view_keeps_to_its_bytes():
    """Before the final bundle all messages together stay under 6 bytes a character and 64 KB."""
    stage = Stage.live()
    text = ""
    sent = 0
    for _ in range(2000):
        text += "word " * 10
        stage.say(Text(text), after=INTERVAL)
        sent = sum(len(json.dumps(data).encode()) for data, _, _ in stage.sent)
        assert sent <= 6 * len(text) + 64 * 1024
    assert len(stage.sent) < 100
    assert sent > 3 * len(text)


def test_static_view_sends_one_message():
    """Nobody watches, so there is one output, at the end."""
    stage = Stage(lambda stage: StaticView(stage.publish))
    stage.say(Text("a"), after=1)
    stage.close()
    ((data, metadata, update),) = stage.sent
    assert (data["text/plain"], metadata, update) == ("a", {"pi": {}}, False)


def test_terminal_view_writes_what_is_new():
    """A terminal gets a text that grows; a late result is written again from its line on."""
    written = []
    stage = Stage(lambda stage: TerminalView(written.append, lambda: stage.now))
    stage.say(Text("Sun"), after=1)
    stage.say(Text("Sunrise"), after=1)
    one, two = ToolRun("one", {}, "running"), ToolRun("two", {}, "running")
    stage.say(Text("Sunrise"), one, two, after=1)
    stage.say(Text("Sunrise"), ToolRun("one", {}, "ok", result="1"), two, after=1)
    stage.close()
    assert "".join(written) == "Sunrise\n\n▸ one()\n▸ two()\n▸ one() → 1\n▸ two()\n"


def test_silent_view_does_nothing():
    """A quiet cell has no output."""
    stage = Stage(lambda stage: SilentView())
    stage.say(Text("a"), after=1)
    stage.close()
    assert stage.sent == []
