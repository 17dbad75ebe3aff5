"""Names that shipped code does not use; each ban has its reason in `source_rules`."""

from __future__ import annotations

import pytest
import source_rules as rules


def test_shipped_code_uses_nothing_banned() -> None:
    """Neither package uses a banned name or holds unfinished code."""
    assert rules.banned(rules.shipped_sources()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import nest_asyncio",
        "def f():\n    import nest_asyncio2 as n",
        "from nest_asyncio import apply",
        "import importlib\nimportlib.import_module('nest_asyncio')",
        "async def f(kernel):\n    await kernel.do_one_iteration()",
        "from IPython.display import clear_output",
        "import IPython.display\nIPython.display.clear_output()",
        "import ipywidgets\nipywidgets.Output()",
        "import ipywidgets as widgets\nbox = widgets.Output()",
        "from ipywidgets import Output",
        "from IPython.display import Markdown as M",
        "from IPython import display\ndisplay.Markdown('x')",
        "import IPython\nIPython.display.Markdown('x')",
        "# TODO: later",
        "x = 1  # FIXME",
        "def f():\n    raise NotImplementedError",
    ],
)
def test_ban_holds_in_both_packages(source) -> None:
    """A module with one banned thing is named, whichever package it is in."""
    for name in ("pi_agent_kernel.x", "pi_notebook.x"):
        found = rules.banned({name: source})

        assert found
        assert all(complaint.startswith(f"{name}:") for complaint in found)


@pytest.mark.parametrize("call", ["print('x')", "eval('1')", "exec('x = 1')"])
def test_kernel_neither_prints_nor_evaluates(call) -> None:
    """`print`, `eval` and `exec` are banned in the kernel."""
    assert len(rules.banned({"pi_agent_kernel.x": call})) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from IPython.display import display, update_display",
        "import ipywidgets\nipywidgets.HTML()",
        "class Markdown: pass\nMarkdown()",
        "class Output: pass\nOutput()",
        "connection.exec('x')",
        "text = 'nothing to do'",
    ],
)
def test_like_names_are_allowed(source) -> None:
    """Names that only look like a banned one are not touched."""
    assert rules.banned({"pi_agent_kernel.x": source, "pi_notebook.x": source}) == []
