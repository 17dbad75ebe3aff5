"""The built-in demo model: a script, no AI, so that everything can be tried without a key.

It streams like a real model and really calls tools, and it says in every answer what it is. The
same transcript and tools give the same reply, byte for byte. Its rules, all of them:

| the transcript ends with | the reply |
| --- | --- |
| a prompt that fits a tool | thinking, one call |
| a prompt that fits a tool but lacks a required argument | what is missing and how to give it |
| results, and the prompt goes on ("..., then ...") | one call for its next step |
| results | one sentence per result, errors named as errors |
| anything else | what it is and which tools it could call |

A step of a prompt fits the tool it names, else the one that shares most words with it: names
count 3, values of an enum 2, parameters and description 1, and 2 are needed. `demo_arguments`
says how arguments are found.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING

from pi_agent_kernel.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from pi_agent_kernel.models.demo_arguments import (
    expression_in,
    find_arguments,
    parameters_of,
    steps_of,
    takes_expression,
    words_of,
)
from pi_agent_kernel.models.faux import FauxState, faux_assistant_message, faux_provider
from pi_agent_kernel.request import Model, StreamOptions, TranscriptContext
from pi_agent_kernel.transcript import get_current_tools

if TYPE_CHECKING:
    from pi_agent_kernel.events import AssistantMessageEvent
    from pi_agent_kernel.request import StreamFn

__all__ = ["DEMO_MODEL", "DEMO_NOTICE", "UNPACED_VARIABLE", "demo_reply", "demo_stream_fn"]

#: The last line of every answer.
DEMO_NOTICE = (
    "Demo model: scripted replies, no AI. Set PI_NOTEBOOK_MODEL=openai-chat:NAME with "
    "OPENAI_API_KEY, or with OPENAI_BASE_URL for a server of your own such as Ollama."
)

#: Set it to anything to have the demo model stream as fast as possible.
UNPACED_VARIABLE = "PI_NOTEBOOK_DEMO_UNPACED"

DEMO_MODEL = Model(
    id="demo",
    name="Demo (scripted, no AI)",
    api="demo",
    provider="demo",
    context_window=128_000,
    max_tokens=16_384,
)

_TOKENS_PER_SECOND = 250.0
_MAX_QUOTE = 400  # characters of one result


def demo_stream_fn(*, paced: bool = True) -> StreamFn:
    """Make the demo model's stream function.

    Args:
        paced: Stream at a speed a person can watch; False streams as fast as possible.
    """
    player = faux_provider(
        [DEMO_MODEL],
        tokens_per_second=_TOKENS_PER_SECOND if paced else None,
        token_size=2,
        api="demo",
        provider="demo",
    )

    def stream(
        model: Model, context: TranscriptContext, options: StreamOptions | None = None
    ) -> AsyncGenerator[AssistantMessageEvent, None]:
        player.set_responses([_respond])
        return player.stream_fn(model, context, options)

    return stream


def _respond(
    context: TranscriptContext, _options: StreamOptions, _state: FauxState, _model: Model
) -> AssistantMessage:
    return demo_reply(context.messages)


def demo_reply(messages: Sequence[Message]) -> AssistantMessage:
    """Return the demo model's reply to a transcript, by the rules of this module."""
    position = max(
        (i for i, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1
    )
    prompt = messages[position] if position >= 0 else None
    text = text_of(prompt.content) if isinstance(prompt, UserMessage) else ""
    since = messages[position + 1 :]
    results = [message for message in since if isinstance(message, ToolResultMessage)]
    done = sum(1 for message in since if isinstance(message, AssistantMessage) and results)
    tools = get_current_tools(messages)
    steps = steps_of(text)

    if not results or (done < len(steps) and not results[-1].is_error):
        for step in steps[done:]:
            tool = _best_tool(step, tools)
            if tool is None:
                continue
            before = results[-1].text if results else None
            arguments, missing = find_arguments(step, tool, before)
            if not missing:
                call_id = f"demo_{len(messages)}"
                return _call(ToolCall(id=call_id, name=tool.name, arguments=arguments))
            if not results:
                return _say(_ask_for(tool, missing))
    if results:
        return _say("\n".join(map(_report, results)))
    return _say(_introduction(tools))


def _best_tool(step: str, tools: Sequence[Tool]) -> Tool | None:
    lowered = step.lower()
    best, most = None, 1
    for tool in tools:
        names = {tool.name.lower(), tool.name.lower().replace("_", " ")}
        if any(re.search(rf"\b{re.escape(name)}\b", lowered) for name in names):
            score = 1000 + len(tool.name)
        else:
            score = _overlap(step, tool)
        if score > most:
            best, most = tool, score
    return best


def _overlap(step: str, tool: Tool) -> int:
    words = words_of(step)
    schema = parameters_of(tool)
    score = 3 * len(words & words_of(tool.name.replace("_", " ")))
    score += len(words & words_of(tool.description))
    score += len(words & words_of(" ".join(schema)))
    score += 2 * sum(
        1
        for field in schema.values()
        for value in field.get("enum", ())
        if str(value).lower() in step.lower()
    )
    if any(map(takes_expression, schema)) and expression_in(step):
        score += 3
    return score


def _call(call: ToolCall) -> AssistantMessage:
    given = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    thought = f"Demo model, by its rules: the prompt fits the tool {call.name}({given})."
    blocks: list[AssistantBlock] = [ThinkingContent(thinking=thought), call]
    return faux_assistant_message(blocks, timestamp=0)


def _say(text: str) -> AssistantMessage:
    return faux_assistant_message(f"{text}\n\n{DEMO_NOTICE}", timestamp=0)


def _report(result: ToolResultMessage) -> str:
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    images = [block.mime_type for block in result.content if isinstance(block, ImageContent)]
    said = "\n".join(texts).strip("\n").rstrip()
    if len(said) > _MAX_QUOTE:
        said = said[: _MAX_QUOTE - 1] + "…"
    seen = ", ".join(f"an image ({kind})" for kind in images)
    verb = f"{result.tool_name} {'failed' if result.is_error else 'returned'}:"
    if "\n" in said:  # rows and columns stay where they are
        fence = "~~~~" if "```" in said else "```"
        after = f"\n\nand {seen}." if seen else ""
        return f"{verb}\n\n{fence}\n{said}\n{fence}{after}"
    said = ", ".join(filter(None, [said.strip(), seen])) or "nothing"
    ending = "" if said.endswith((".", "!", "?", "…")) else "."
    return f"{verb} {said}{ending}"


def _ask_for(tool: Tool, missing: Sequence[str]) -> str:
    wanted = ", ".join(missing)
    example = " ".join(f"{name}=..." for name in missing)
    return (
        f"The tool {tool.name} fits, but the prompt gives no value for {wanted}. "
        f"Write, for example: {tool.name} {example}"
    )


def _introduction(tools: Sequence[Tool]) -> str:
    if not tools:
        return (
            "I can show how an agent calls a tool, but it has none yet. Give it a Python function "
            "as a tool and name it in the prompt."
        )
    names = "\n".join(f"- {tool.name}({', '.join(parameters_of(tool))})" for tool in tools)
    return (
        "I understand only prompts that fit one of the agent's tools. These are there:\n"
        f"{names}\n"
        f"Name one and its arguments, for example: {_example(tools[0])}"
    )


def _example(tool: Tool) -> str:
    samples: Mapping[str, str] = {"integer": "2", "number": "2.5", "boolean": "true"}
    given = [
        f"{name}={samples.get(str(field.get('type')), '...')}"
        for name, field in parameters_of(tool).items()
    ]
    return " ".join([tool.name, *given])
