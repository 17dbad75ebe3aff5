"""Scripted faults, and what `explain` has to say of each."""

from __future__ import annotations


def seq(s, kind, which=-1, **fields):
    """The number of a record: by type, or by a host call's name, and what its event says."""
    found = [
        r.seq
        for r in s.agent.log
        if (r.type == kind or getattr(r.event, "name", None) == kind)
        and all(getattr(r.event, name) == value for name, value in fields.items())
    ]
    return found[which]


def raises(*_):
    """Be any hook or listener, and break."""
    raise RuntimeError("hook broke")


class Faults:
    """Collect faults: for each a function that makes and runs it, and what is asked and told.

    What is told: words of the cause, its row, and the record that the answer has to cite.
    """

    def __init__(self):
        self._all = {}

    def __call__(self, question, words, row, record):
        def keep(function):
            self._all[function.__name__] = (function, question, words, row, record)
            return function

        return keep

    def __iter__(self):
        return iter(self._all)

    def __len__(self):
        return len(self._all)

    async def check(self, name):
        """Make a fault, ask, and compare."""
        make, question, words, row, record = self._all[name]
        s = await make()
        answers = s.agent.explain(question).answers
        told = "\n".join(map(str, answers)) or str(s.agent.explain(question))
        found = [a for a in answers if words in f"{a.text} {a.remedy}" and a.row == row]
        assert found, told
        assert len(answers) <= 8, told
        if record is not None:
            kind, fields = record
            assert seq(s, kind, fields.get("which", -1)) in found[0].events[:3], told
        assert all(s.agent.log.record(n).seq == n for a in answers for n in a.events)
