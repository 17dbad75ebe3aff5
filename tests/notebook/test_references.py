"""Values and functions of the notebook in a prompt: notebook.md 2."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from pi_agent_kernel.messages import ImageContent
from pi_agent_kernel.tools import tool

from pi_notebook.references import LONGEST_VALUE, expand_references

mpl.use("agg")


def text_of(prompt, **namespace):
    """Return the text a prompt becomes."""
    (block,) = expand_references(prompt, namespace).content
    return block.text


def test_text_without_a_reference_stays_as_it_was():
    """Braces, dollars, percents, quotes, back-slashes and lone backticks are text."""
    prompt = 'a {b} $c $(d) %e ?f !g "h" \\i `j` ``$k`` & l 🌍'
    assert text_of(prompt) == prompt


def test_a_value_stands_where_it_was_named():
    """An expression is worked out in the notebook's names."""
    assert text_of("x is $`x`, twice is $`2 * x`.", x=21) == "x is 21, twice is 42."


def test_a_text_is_inserted_without_quotes():
    """A string is inserted as the text it is, a reference inside it is not followed."""
    assert text_of("Say: $`s`", s="it's $`s`") == "Say: it's $`s`"


def test_a_table_gives_shape_types_and_first_rows():
    """A DataFrame is described, not dumped."""
    table = pd.DataFrame({"city": [f"c{i}" for i in range(500)], "n": range(500)})

    text = text_of("$`table`", table=table)

    assert "DataFrame of 500 x 2" in text
    assert "n (int64)" in text
    assert "c9" in text
    assert "c10" not in text
    assert "490 more rows" in text


def test_a_series_and_an_array_are_described():
    """Shape, type and a summary of the numbers."""
    series = pd.Series(range(30), name="n")
    array = np.arange(100_000, dtype="float64").reshape(1000, 100)

    assert "Series of 30 values, int64" in text_of("$`s`", s=series)
    text = text_of("$`a`", a=array)
    assert "ndarray of 1000 x 100, float64, min 0, mean 49999.5, max 99999" in text
    assert len(text) < 1000
    assert "empty" in text_of("$`a`", a=np.zeros((0, 3)))
    assert "ndarray of 2, object" in text_of("$`a`", a=np.array([object, "x"], dtype=object))


def test_a_figure_becomes_a_picture_between_the_texts():
    """A figure is an image block at its place."""
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2, 3])

    before, picture, after = expand_references("Look: $`f` What is it?", {"f": figure}).content

    assert (before.text, after.text) == ("Look: ", " What is it?")
    assert isinstance(picture, ImageContent)
    assert picture.mime_type == "image/png"


def test_a_long_value_is_cut_and_says_so():
    """Nothing of unbounded size goes out."""
    text = text_of("$`x`", x="y" * 1_000_000)
    assert len(text) < LONGEST_VALUE + 100
    assert "1000000 characters" in text
    assert len(text_of("$`x`", x=list(range(10_000_000)))) < LONGEST_VALUE + 100


def test_a_function_is_offered():
    """A function becomes a tool, once; its name stays in the text."""

    def area(width: float, height: float) -> float:
        """Multiply."""
        return width * height

    made = tool(area)
    found = expand_references("Use &`area` and &`area`, or &`made`.", {"area": area, "made": made})

    assert found.content[0].text == "Use `area` and `area`, or `area`."
    assert [each.name for each in found.tools] == ["area"]
    assert found.tools[0] is made


class Unprintable:
    """Its repr raises."""

    def __repr__(self):
        raise RuntimeError("no")


class LooksLikeATable:
    """It has the names of a table and none of its ways."""

    shape = ()
    columns = None
    head = None


class RaisesShape:
    """Asking for its shape raises."""

    @property
    def shape(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("kind", [LooksLikeATable, RaisesShape])
def test_what_only_looks_like_a_table_is_told_by_its_repr(kind):
    """A strange object does not stop the prompt."""
    assert kind.__name__ in text_of("$`x`", x=kind())


def test_a_value_whose_repr_raises_does_not_stop_the_prompt():
    """The type is named instead."""
    assert "Unprintable" in text_of("$`u`", u=Unprintable())


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("$`tabel`", r"\$`tabel`: name 'tabel' is not defined; did you mean 'table'\?"),
        ("$`1 +`", "no Python expression"),
        ("$`x = 1`", "no Python expression"),
        ("$`1 / 0`", "ZeroDivisionError: division by zero"),
        ("$`exit(3)`", "SystemExit: 3"),
        ("&`aera`", "there is no function 'aera'; did you mean 'area'"),
        ("&`table`", r"is int, not a function; \$`table` inserts its value"),
        ("&`int`", "there is no function 'int'"),
        ("&`untyped`", "cannot be a tool"),
        ("&`a.b`", "there is no function"),
    ],
)
def test_what_cannot_be_resolved_is_an_error(prompt, said):
    """The error names the reference, what is wrong and what was meant."""

    def area(side: float) -> float:
        """Square."""
        return side * side

    def untyped(x):
        return x

    namespace = {"table": 1, "area": area, "untyped": untyped}
    with pytest.raises(ValueError, match=said):
        expand_references(prompt, namespace)
