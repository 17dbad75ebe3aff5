"""What a question is about: the subjects it names, and the topics its words belong to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pi_agent_kernel.explain.fields import FIELD_ROWS
from pi_agent_kernel.explain.story import Story

__all__ = ["TOPICS", "Question", "read_question"]

#: Topic, what it answers, and the beginnings of words that belong to it.
TOPICS: dict[str, tuple[str, ...]] = {
    "waiting": (
        "why is it stuck?",
        "stuck|hang|hung|wait|await|still (?:stream|run|busy|go)|streaming|froze|freez|slow",
        "(?:not|never) (?:finish|return|end)|takes? (?:so|too) long|nothing happen",
    ),
    "twice": (
        "why is a message twice?",
        "twice|duplicat|doubl|repeat|two times|2x|again and again|three times|multiple times",
    ),
    "stopped": (
        "why did it stop?",
        "stop|end(?:ed)?\\b|finish|quit|terminat|abort|cancel|gave up|interrupt|budget",
    ),
    "on": (
        "why did it go on?",
        "go(?:es|ing)? on|went on|continu|another (?:turn|request)|not stop|n.t (?:it )?stop",
        "keep|loop|next turn|more turns",
    ),
    "failed": (
        "what failed?",
        "fail|error|wrong|exception|rais(?:e|ed|ing)|crash|broke|problem|traceback",
    ),
    "knows": (
        "why does the model not know tool X?",
        "know|aware|announc|declar|visible|told|offer|available|sees? (?:the|my) tool",
    ),
    "blocked": (
        "who blocked the call?",
        "block|den(?:y|ied)|approv|polic|permission|allow|forbid|reject",
    ),
    "prompt": (
        "why does my prompt or section not apply?",
        "prompt|system|section|instruction|appl(?:y|ied|ies)|ignor|effect|overr|collaps|patch",
    ),
    "message": (
        "what became of my message?",
        "message|queue|steer|follow|reach|arriv|deliver|lost|dropp|disappear|missing|transform",
    ),
    "busy": ("why was my prompt refused?", "refus|busy|already running|rejected"),
    "changed": (
        "who changed messages (or another field), and when?",
        "chang|wrote|writ|sets?\\b|modif|assign|updated?\\b|last writer",
    ),
    "request": (
        "what did request 3 contain?",
        "request|sent to|(?:model|it) (?:see|saw|get|got|read)|contain|context\\b|diff",
    ),
    "retry": ("was a request made again?", "retr(?:y|ies|ied)|attempt|tried again|asked again"),
    "overflow": (
        "did the conversation fit?",
        "overflow|context (?:window|length)|too (?:long|large|big)|fit",
    ),
    "ids": (
        "are call ids used twice?",
        "(?:same|duplicate|double|equal)\\b.{0,12}\\bids?\\b|ids? .{0,20}twice",
    ),
    "tool": (
        "why did (not) tool X run?",
        "tool|call(?:ed|s)?\\b|run\\b|ran\\b|execut|invok|not work|n.t work|invalid|argument",
        "truncat",
    ),
}

_COMMON = frozenset(
    """a about again agent all am an and any are argument arguments as at be because been before
    but by call called calls can cant contain could did didnt do does doesnt dont error event
    events ever executed explain fail failed field for from get go had happen happened has have how
    i id if in is isnt it its just kernel know known last listener me message messages model more my
    never new no not now of off on one or out request requests run running section see so still stop
    stopped system that the then there they this time to tool tools turn turns twice up use used
    user was wasnt were what when where which who why will with work wont would you your prompt
    execute ran change changed said saw show tell give please find""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Question:
    """Hold what a question names."""

    words: tuple[str, ...]
    topics: frozenset[str]
    tools: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    requests: tuple[int, ...] = ()
    records: tuple[int, ...] = ()
    #: Words that may be a tool nobody has heard of.
    unknown: tuple[str, ...] = ()

    @property
    def is_understood(self) -> bool:
        """Whether it names anything the rules know."""
        named = self.tools or self.calls or self.fields or self.requests or self.records
        return bool(self.topics or named)


def read_question(text: str, story: Story) -> Question:
    """Find what a question names, generously."""
    low = text.lower()
    tools = _named(low, story.tool_names())
    calls = _named(low, {call.call.id for call in story.calls})
    requests = tuple(int(n) for n in re.findall(r"request\s*(?:no\.?|number|#)?\s*(\d+)", low))
    numbers = (int(n) for n in re.findall(r"(?:#|event\s+|record\s+|step\s+)(\d+)", low))
    # A tool's name is no word of a topic: a tool may be called "stop".
    bare = low
    for name in (*tools, *calls):
        bare = re.sub(_alone(name), " ", bare)
    topics = {
        topic
        for topic, (_, *words) in TOPICS.items()
        if re.search(rf"\b(?:{'|'.join(words)})", bare)
    }
    if "ids" in topics:
        topics.discard("twice")
    plain = [token.strip(".:-") for token in re.findall(r"[\w.:-]+", low)]
    return Question(
        words=tuple(word for word in plain if word and word not in _COMMON),
        topics=frozenset(topics),
        tools=tools,
        calls=calls,
        fields=_fields(low, is_asked="changed" in topics),
        requests=requests,
        records=tuple(number for number in numbers if number not in requests),
        unknown=_unknown(bare),
    )


def _fields(text: str, *, is_asked: bool) -> tuple[str, ...]:
    """Find fields of the state; those that are plain words only where fields are asked about."""
    is_asked = is_asked or re.search(r"\bfields?\b|\bstate\b", text) is not None
    return tuple(
        name
        for name in FIELD_ROWS
        if ("_" in name and name in text)
        or text.strip(" ?.!") == name
        or (is_asked and re.search(_alone(name.replace("_", " ")), text))
        or (is_asked and re.search(_alone(name), text))
    )


def _unknown(text: str) -> tuple[str, ...]:
    """Find words that stand where a tool's name stands."""
    named: list[str] = []
    for pattern in (
        r"[`\"']([\w.-]+)[`\"']",
        r"\btool\s+([\w.-]+)",
        r"\b(?:did|does|is|was)(?:n't)?\s+(?:not\s+)?([\w-]+)\s+(?:not|never|run|work|fail|exec)",
        r"\bknow\w*\s+(?:about\s+|of\s+|my\s+|the\s+)?([\w-]+)",
    ):
        named += re.findall(pattern, text)
    return tuple(word for word in dict.fromkeys(named) if word not in _COMMON)


def _named(text: str, names: set[str]) -> tuple[str, ...]:
    found = [name for name in names if name and re.search(_alone(name), text)]
    return tuple(sorted(found, key=lambda name: text.index(name.lower())))


def _alone(name: str) -> str:
    return rf"(?<!\w){re.escape(name.lower())}(?!\w)"
