"""`%%agent --output TYPE`: an answer as a value, in a real kernel."""

from dataclasses import dataclass

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from pi_notebook.typed_output import TypedOutput, find_output

SETUP = '''
from pydantic import BaseModel
class Report(BaseModel):
    region: str
    total: int

def answers(*texts):
    """A model that gives these answers, one a turn of the conversation since the cell."""
    left = list(texts)
    async def stream(model, context, options):
        response = ResponseBuilder(api="scripted", provider="scripted", model=model.id)
        asked.append(context.messages[-1].content)
        yield response.start()
        opened = response.text_start()
        yield opened
        yield response.text_end(opened.content_index, left.pop(0))
        yield response.done()
    return stream

asked = []
register_model("right", answers('{"region": "EMEA", "total": 3}'))
register_model("repaired", answers("Three.", '```json\\n{"region": "EMEA", "total": 3}\\n```'))
register_model("wrong", answers('{"region": "EMEA", "total": "many"}', "still no"))
'''


class Point(BaseModel):
    x: int
    y: int


@dataclass
class Pair:
    left: str
    right: str


class Row(TypedDict):
    name: str


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        (Point, '{"x": 1, "y": 2}', Point(x=1, y=2)),
        (Point, 'Sure:\n```json\n{"x": 1, "y": 2}\n```\nDone.', Point(x=1, y=2)),
        (Point, 'The point {"x": 1, "y": 2} it is.', Point(x=1, y=2)),
        (Pair, '{"left": "a", "right": "b"}', Pair("a", "b")),
        (Row, '{"name": "n"}', {"name": "n"}),
        (list[Point], '[{"x": 1, "y": 2}]', [Point(x=1, y=2)]),
        (int, "42", 42),
        (str, "just words", "just words"),
    ],
)
def test_an_answer_is_read(kind, answer, value):
    """JSON is found alone, in a fence and between words; any type of pydantic's can be read."""
    assert TypedOutput(kind).read(answer) == value


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ('{"x": 1, "y": "two"}', "y: Input should be a valid integer"),
        ('{"x": 1}', "y: Field required"),
        ("no JSON at all", "Invalid JSON"),
        ("{" * 5_000, "Invalid JSON"),
        ("", "Invalid JSON"),
    ],
)
def test_what_does_not_fit_is_told_in_a_line(answer, part):
    """An answer that is none says where and why, on one line of bounded length."""
    with pytest.raises(ValueError, match=part) as told:
        TypedOutput(Point).read(answer)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 1_500


@pytest.mark.parametrize(
    ("expression", "part"),
    [("Pont", "did you mean 'Point'"), ("1 +", "SyntaxError"), ("print", "no type"), ("3", "no")],
)
def test_what_is_no_type_is_refused(expression, part):
    """A slip in the name, or what is no type, is told before anything is sent."""
    with pytest.raises(ValueError, match=part):
        find_output(expression, {"Point": Point})


@pytest.mark.kernel
@pytest.mark.parametrize("before", ["", "%%time\n"], ids=["on the loop", "in a portal"])
def test_answer_becomes_a_value(kernel, before):
    """The model is told the schema; the value is in the variable and at pi.agent.output."""
    assert kernel.run(SETUP).error is None
    outcome = kernel.run(f"{before}%%agent --model right --output Report --to report\nhow much?")
    assert outcome.error is None
    assert kernel.run("report, pi.agent.output is report").value == (
        "(Report(region='EMEA', total=3), True)"
    )
    assert kernel.run("'JSON Schema' in str(asked[0]) and 'total' in str(asked[0])").value == "True"


@pytest.mark.kernel
def test_answer_that_does_not_fit_goes_back_once(kernel):
    """One more round quotes what is wrong, in the same output; then the value is there."""
    assert kernel.run(SETUP).error is None
    outcome = kernel.run("%%agent --model repaired --output Report --to report\nhow much?")
    assert outcome.error is None
    assert len(outcome.displays) == 1
    assert "does not fit the JSON Schema" in outcome.displays[0]["data"]["text/plain"]
    assert kernel.run("report.total, len(asked)").value == "(3, 2)"


@pytest.mark.kernel
def test_answer_that_never_fits_fails_the_cell(kernel):
    """After the one repair a line says what is wrong; the text stays, the variable is not made."""
    assert kernel.run(SETUP).error is None
    outcome = kernel.run("%%agent --model wrong --output Report --to never\nhow much?")
    assert outcome.error == "AgentFailed"
    assert outcome.reply["evalue"].startswith("the answer is no Report: Invalid JSON")
    assert kernel.run("pi.agent.answer, len(asked), 'never' in globals()").value == (
        "('still no', 2, False)"
    )


@pytest.mark.kernel
def test_slip_in_the_type_sends_nothing(kernel):
    """An unknown type is a usage error, and nothing is asked."""
    assert kernel.run(SETUP).error is None
    outcome = kernel.run("%%agent --model right --output Reprot\nhow much?")
    assert outcome.error == "UsageError"
    assert "did you mean 'Report'" in outcome.reply["evalue"]
    assert kernel.run("asked").value == "[]"


@pytest.mark.kernel
def test_value_of_an_answer_that_is_shown_again(kernel):
    """With --once the value comes from the answer of before."""
    assert kernel.run(SETUP).error is None
    for _ in range(2):
        outcome = kernel.run(
            "%%agent --once --model right --output Report --to report\nhow much?", cell_id="one"
        )
        assert outcome.error is None
    assert kernel.run("report.total, len(asked)").value == "(3, 1)"
