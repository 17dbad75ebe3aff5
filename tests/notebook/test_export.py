"""A conversation as a file: notebook.md 2."""

import nbformat
import pytest
from pi_agent_kernel.messages import (
    AssistantMessage,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

from pi_notebook.export import export_conversation

CONVERSATION = [
    SystemMessage(content="Be brief."),
    UserMessage(content="Add 2 and 40.\nPlease <b>now</b>."),
    AssistantMessage(
        content=[ToolCall(id="c1", name="add", arguments={"a": 2, "b": 40})],
        model="test-1",
        stop_reason="toolUse",
    ),
    ToolResultMessage(tool_call_id="c1", tool_name="add", content=[TextContent(text="42")]),
    AssistantMessage(content=[TextContent(text="It is **42**. <script>x</script>")]),
    UserMessage(content="Thanks \ud800"),
    AssistantMessage(stop_reason="error", error_message="No luck"),
]


def written(tmp_path, name):
    """Return the text of an export."""
    path = export_conversation(CONVERSATION, tmp_path / name, agent="main")
    return path.read_text(encoding="utf-8")


def test_markdown_has_prompts_as_quotes_and_answers_as_they_are(tmp_path):
    """What a code host shows."""
    text = written(tmp_path, "a.md")

    assert "> Add 2 and 40.\n> Please <b>now</b>." in text
    assert "It is **42**." in text
    assert "add" in text
    assert "No luck" in text
    assert "Be brief." not in text


def test_a_page_runs_and_loads_nothing(tmp_path):
    """Prompts and answers are escaped, the page is whole."""
    text = written(tmp_path, "a.HTML")

    assert "<strong>42</strong>" in text
    assert "<script" not in text
    assert "&lt;b&gt;now&lt;/b&gt;" in text
    assert "http" not in text.replace("http-equiv", "")
    assert text.startswith("<!doctype html>")


def test_a_notebook_is_valid_and_can_be_run_again(tmp_path):
    """One cell a prompt, with its output; the same conversation gives the same file."""
    text = written(tmp_path, "a.ipynb")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)

    sources = [cell.source for cell in notebook.cells]
    assert sources[0] == "%load_ext pi_notebook"
    assert sources[1] == "%%agent\nAdd 2 and 40.\nPlease <b>now</b>."
    run = notebook.cells[1].outputs[0].data["application/vnd.pi.run+json"]
    assert run["toolCalls"][0]["result"] == "42"
    assert notebook.cells[2].outputs[0].data["application/vnd.pi.run+json"]["status"] == "error"
    assert text == written(tmp_path, "b.ipynb")


@pytest.mark.parametrize("name", ["a.docx", "a"])
def test_another_ending_is_an_error_that_lists_those_known(tmp_path, name):
    """Nothing is written."""
    with pytest.raises(ValueError, match=r"\.md, \.html, \.ipynb"):
        written(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_conversation_is_a_file_all_the_same(tmp_path):
    """There is nothing to lose."""
    path = export_conversation([], tmp_path / "a.md", agent="main")
    assert path.read_text() == "# Conversation with main\n"
