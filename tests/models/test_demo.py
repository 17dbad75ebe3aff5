from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel.events import StreamDone
from pi_agent_kernel.messages import (
    ImageContent,
    SystemMessage,
    TextContent,
    Tool,
    ToolResultMessage,
    UserMessage,
)
from pi_agent_kernel.models.demo import DEMO_MODEL, DEMO_NOTICE, demo_reply, demo_stream_fn
from pi_agent_kernel.request import StreamOptions, TranscriptContext


def tool(name, description="", required=None, /, **properties):
    """Declare a tool; a property is a schema or the name of its type."""
    fields = {
        key: value if isinstance(value, dict) else {"type": value}
        for key, value in properties.items()
    }
    needed = list(fields) if required is None else required
    schema = {"type": "object", "properties": fields, "required": needed}
    return Tool(name=name, description=description, parameters=schema)


OPTIONAL_TEXT = {"anyOf": [{"type": "string"}, {"type": "null"}]}
NUMBERS = {"type": "array", "items": {"type": "number"}}
TOOLS = (
    tool("add", "Add two numbers.", a="integer", b="integer"),
    tool("multiply", "Multiply two numbers.", a="number", b="number"),
    tool(
        "get_weather",
        "Get the weather in a city.",
        ["city"],
        city="string",
        unit={"enum": ["celsius", "fahrenheit"]},
    ),
    tool("greet", "Greet a person.", name="string"),
    tool("word_count", "Count the words of a text.", text="string"),
    tool("calculate", "Evaluate arithmetic.", expression="string"),
    tool("mean", "Average of numbers.", values=NUMBERS),
    tool("boil", "Boil water.", go="boolean"),
    tool("describe", "Describe a column.", column=OPTIONAL_TEXT),
    tool("save", "Save a record.", record={"$ref": "#/$defs/Record"}),
    tool("pick", "Pick colours.", colours={"type": "array", "items": {"type": "string"}}),
)


def transcript(prompt, tools=TOOLS, *after):
    """Make a transcript that declares tools and ends with a prompt and what came of it."""
    return [SystemMessage(content="x", tools_added=tools), UserMessage(content=prompt), *after]


def reply_to(prompt, tools=TOOLS, *after):
    """Return the demo's reply."""
    return demo_reply(transcript(prompt, tools, *after))


def answered(message, text, *, is_error=False, **block):
    """Return the message and a result for each of its calls."""
    content = [TextContent(text=text)] if not block else [ImageContent(**block)]
    return [
        message,
        *(
            ToolResultMessage(
                tool_call_id=call.id, tool_name=call.name, content=content, is_error=is_error
            )
            for call in message.tool_calls
        ),
    ]


@pytest.mark.parametrize(
    ("prompt", "name", "arguments"),
    [
        ("add 2 and 3", "add", {"a": 2, "b": 3}),
        ("What is 2 plus 3? Use add.", "add", {"a": 2, "b": 3}),
        ("use add to sum two and twelve", "add", {"a": 2, "b": 12}),
        ("add b=-3, a = 7", "add", {"a": 7, "b": -3}),
        ("Please multiply 2.5 by 4.", "multiply", {"a": 2.5, "b": 4}),
        ("What's the weather in Paris?", "get_weather", {"city": "Paris"}),
        ("How is the weather in london today?", "get_weather", {"city": "london"}),
        (
            "The weather of New York in Fahrenheit",
            "get_weather",
            {"city": "New York", "unit": "fahrenheit"},
        ),
        ("Paris weather?", "get_weather", {"city": "Paris"}),
        ("greet ada", "greet", {"name": "ada"}),
        ("Greet Ada Lovelace!", "greet", {"name": "Ada Lovelace"}),
        ("greet name='Grace H.'", "greet", {"name": "Grace H."}),
        ('count the words in "a quick fox"', "word_count", {"text": "a quick fox"}),
        ("Count words: a quick fox", "word_count", {"text": "a quick fox"}),
        ("What is 21 * 2?", "calculate", {"expression": "21 * 2"}),
        ("compute (1+2)*3-4", "calculate", {"expression": "(1+2)*3-4"}),
        ("mean of 1, 2.5 and 10", "mean", {"values": [1, 2.5, 10]}),
        ("mean values=[1, 2]", "mean", {"values": [1, 2]}),
        ("boil without go", "boil", {"go": False}),
        ("boil: true", "boil", {"go": True}),
        ("describe the column age", "describe", {"column": "age"}),
        ("describe `age`", "describe", {"column": "age"}),
        ('save {"id": 1}', "save", {"record": {"id": 1}}),
        ("pick red, green: red, green", "pick", {"colours": ["red", "green"]}),
    ],
)
def test_a_prompt_that_fits_a_tool_calls_it(prompt, name, arguments):
    """The tool is found by name or shared words, its arguments by the documented rules."""
    tools = (*TOOLS[:9], with_record(TOOLS[9]), TOOLS[10])
    (call,) = reply_to(prompt, tools).tool_calls

    assert call.name == name
    assert dict(call.arguments) == arguments


def with_record(saving):
    """Return the tool with the definition that its parameter refers to."""
    record = {"type": "object"}
    return Tool(name="save", parameters={**saving.parameters, "$defs": {"Record": record}})


def test_a_call_thinks_first_and_stops_for_the_tool():
    """The reply with a call has a thinking block that names the rule, and no claim to be an AI."""
    message = reply_to("add 2 and 3")

    assert [block.type for block in message.content] == ["thinking", "toolCall"]
    assert "Demo model, by its rules" in message.content[0].thinking
    assert message.stop_reason == "toolUse"


@pytest.mark.parametrize("prompt", ["hello", "What is your name?", "", "Tell me a joke"])
def test_any_other_prompt_gets_an_explanation(prompt):
    """Without a fitting tool the reply lists the tools and how to call one."""
    message = reply_to(prompt)

    assert message.tool_calls == ()
    assert "- add(a, b)" in message.text
    assert "add a=2 b=2" in message.text
    assert message.text.endswith(f"\n{DEMO_NOTICE}")
    assert "has none yet" in reply_to(prompt, ()).text


def test_a_missing_argument_is_asked_for():
    """A fitting tool is not called with invented values."""
    message = reply_to("add 2")

    assert message.tool_calls == ()
    assert "no value for b" in message.text
    assert "add b=..." in message.text


def test_results_are_quoted():
    """The answer names the tool and what it returned; long results are cut."""
    call = reply_to("add 2 and 3")

    text = reply_to("add 2 and 3", TOOLS, *answered(call, "5")).text
    long = reply_to("add 2 and 3", TOOLS, *answered(call, "x" * 5000)).text
    image = answered(call, "", data="AAAA", mime_type="image/png")

    assert text == f"add returned: 5.\n\n{DEMO_NOTICE}"
    assert "xxx…" in long
    assert len(long) < 1000
    assert "add returned: an image (image/png)." in reply_to("add 2 and 3", TOOLS, *image).text


def test_rows_and_columns_of_a_result_stay_where_they_are():
    """A result of several lines, such as a table, is quoted as code."""
    table = "   a  b\n0  1  2"
    text = reply_to("add 2 and 3", TOOLS, *answered(reply_to("add 2 and 3"), table)).text
    assert text == f"add returned:\n\n```\n{table}\n```\n\n{DEMO_NOTICE}"
    ticks = reply_to("add 2 and 3", TOOLS, *answered(reply_to("add 2 and 3"), "```\nx")).text
    assert "~~~~\n```\nx\n~~~~" in ticks


def test_an_error_is_reported_as_one():
    """A failed tool is not called a success, and the steps after it are not taken."""
    prompt = "add 2 and 3, then greet Ada"
    call = reply_to(prompt)

    message = reply_to(prompt, TOOLS, *answered(call, "overflow", is_error=True))

    assert message.tool_calls == ()
    assert message.text.startswith("add failed: overflow.")


def test_steps_follow_one_another():
    """A "then" makes a further call, which may take the result of the step before."""
    prompt = "Add 2 and 3, then multiply by 4"
    first = answered(reply_to(prompt), "5")
    second = reply_to(prompt, TOOLS, *first)
    last = reply_to(prompt, TOOLS, *first, *answered(second, "20"))

    assert dict(second.tool_calls[0].arguments) == {"a": 5, "b": 4}
    assert second.tool_calls[0].id != first[0].tool_calls[0].id
    assert last.text.startswith("add returned: 5.\nmultiply returned: 20.")


def test_a_later_step_that_lacks_an_argument_is_passed_over():
    """Once there are results, the answer reports them rather than ask."""
    prompt = "add 2 and 3, then boil"
    first = answered(reply_to(prompt), "5")

    assert reply_to(prompt, TOOLS, *first).text.startswith("add returned: 5.")


def test_the_last_user_message_counts():
    """A steering message replaces the plan."""
    call = reply_to("add 2 and 3")
    steered = [*answered(call, "5"), UserMessage(content="greet Ada")]

    assert reply_to("add 2 and 3", TOOLS, *steered).tool_calls[0].name == "greet"


def test_the_same_input_gives_the_same_reply():
    """Nothing in a reply depends on time or chance."""
    assert reply_to("add 2 and 3") == reply_to("add 2 and 3")


def test_the_notice_gives_advice_that_works():
    """The notice says that this is no AI and names the settings the catalog understands."""
    from pi_agent_kernel.models.catalog import choose_model

    assert DEMO_NOTICE.startswith("Demo model: scripted replies, no AI. Set ")
    assert "\n" not in DEMO_NOTICE
    for setting in ("PI_NOTEBOOK_MODEL=openai-chat:NAME", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        assert setting in DEMO_NOTICE
    assert choose_model(env={"PI_NOTEBOOK_MODEL": "openai-chat:NAME"}).model.id == "NAME"


@pytest.mark.parametrize("paced", [True, False])
async def test_it_streams_like_a_model(paced):
    """Thinking, then partial arguments, then done with usage at no cost; within two seconds."""
    with anyio.fail_after(2):
        context = TranscriptContext(messages=transcript("greet Ada Lovelace"))
        stream = demo_stream_fn(paced=paced)(DEMO_MODEL, context, StreamOptions())
        events = [event async for event in stream]
    partial = [
        dict(event.partial.content[1].arguments)
        for event in events
        if event.type == "toolcall_delta"
    ]

    assert isinstance(events[-1], StreamDone)
    assert partial == [{}, {"name": "Ada Lov"}, {"name": "Ada Lovelace"}]
    message = events[-1].message
    assert (message.api, message.provider, message.model) == ("demo", "demo", "demo")
    assert message.usage.input > 0
    assert message.usage.cost.total == 0
