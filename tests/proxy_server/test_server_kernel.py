from __future__ import annotations

import json
import queue
import time

import anyio
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from pi_agent_kernel.messages import UserMessage
from pi_agent_kernel.models.proxy import stream_proxy
from pi_agent_kernel.request import Model, TranscriptContext
from server import Reply, recorded

pytestmark = pytest.mark.kernel

PATIENCE = 45.0  # seconds for a kernel to start or to answer
LIMIT = 30  # seconds for what must end soon on any machine
KEY = "sk-key-of-the-server"
MODELS = 'c.PiServer.models = ["openai-chat:test-*"]'
FURTHER = "the-words-of-the-cell"

AGENT = f"""
from pi_agent_kernel import Agent, AgentTool
from pi_agent_kernel.models.proxy import proxied_model

def look(_id, params, *_):
    return "seen"

model, stream_fn = proxied_model("openai-chat:test-1")
agent = Agent(
    stream_fn=stream_fn,
    model=model,
    tools=[AgentTool(name=name, execute=look) for name in ("get_weather", "look", "lookup")],
)

async def ask(text="{FURTHER}"):
    await agent.prompt(text)
    return agent.state.messages[-1]
"""


@pytest.fixture(scope="module")
def jupyter(start_server):
    return start_server(
        MODELS,
        "c.PiServer.requests_per_minute = 5",
        'c.PiServer.default_model = "openai-chat:test-1"',
    )


@pytest.fixture
def kernel_of(jupyter):
    """Start kernels through the REST interface, as a user; give what runs cells in them."""
    cells = []

    def start(user):
        with jupyter.client(user) as client:
            answer = client.post("api/kernels", json={"name": "python3"})
        assert answer.status_code == 201, answer.text
        kernel_id = answer.json()["id"]
        cells.append((user, Cells(kernel_id, jupyter.runtime / f"kernel-{kernel_id}.json")))
        return cells[-1][1]

    yield start
    for user, each in cells:
        each.client.stop_channels()
        with jupyter.client(user) as http:
            http.delete(f"api/kernels/{each.kernel_id}")


class Cells:
    """Run cells in a kernel; each gives what it printed."""

    def __init__(self, kernel_id, file):
        self.kernel_id = kernel_id
        self.file = file
        self.connect()

    def connect(self):
        deadline = time.monotonic() + PATIENCE
        while not self.file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.client = BlockingKernelClient()
        self.client.load_connection_file(str(self.file))
        self.client.start_channels(hb=False)  # on a busy machine its beats come too late
        while time.monotonic() < deadline:
            self.client.kernel_info()
            try:
                self.client.get_shell_msg(timeout=1)
                self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            return
        pytest.fail("the kernel did not answer")

    def __call__(self, code):
        printed = []

        def hook(message):
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])
            elif message["msg_type"] == "error":
                printed.append("\n".join(message["content"]["traceback"]))

        self.client.execute_interactive(code, output_hook=hook, timeout=PATIENCE)
        return "".join(printed)


def test_an_agent_in_a_kernel_runs_without_a_key(jupyter, kernel_of, upstream):
    """Tools run in the kernel, the model is asked by the server, and the key stays there."""
    cell = kernel_of("ada")
    upstream.play("tool", "text")

    printed = cell(AGENT + "print((await ask()).text, len(agent.state.messages))")

    assert "Hello, wörld 🌍." in printed, printed
    assert [request.header("authorization") for request in upstream.requests] == [
        f"Bearer {KEY}",
        f"Bearer {KEY}",
    ]
    assert upstream.requests[1].payload["messages"][-1]["role"] == "tool"
    jupyter.wait_for_log("user='ada' model=openai-chat:test-1")
    assert FURTHER not in jupyter.log

    # Where a cell could look for it: its own environment, the server's, and its command line.
    looks = """
import os, pathlib
places = [repr(dict(os.environ)), repr(get_ipython().config)]
for pid in ("self", str(os.getppid())):
    for name in ("environ", "cmdline"):
        path = pathlib.Path("/proc", pid, name)
        places.append(path.read_bytes().decode(errors="replace") if path.exists() else "")
print([PART in place for place in places], os.environ["PI_NOTEBOOK_PROXY_URL"])
"""
    printed = cell(looks.replace("PART", repr(KEY[3:])))
    assert printed.strip() == f"{[False] * 6} {jupyter.proxy_url}"


def test_a_kernel_asks_for_the_user_who_started_it(jupyter, kernel_of, upstream):
    """Each kernel's requests count for its user; over the limit the error says when to retry."""
    cell = kernel_of("bob")
    upstream.play("text")
    loop = "for _ in range(6):\n    last = await ask()\n    print(last.stop_reason)\n"

    printed = cell(AGENT + loop + "print(last.error_message)")

    assert printed.split()[:6] == [*["stop"] * 5, "error"], printed
    assert "5 requests a minute" in printed
    assert "user='bob'" in jupyter.wait_for_log("user='bob'")
    with jupyter.client("bob") as client:
        body = {
            "model": {"id": "test-1", "provider": "openai-chat"},
            "context": {"messages": [{"role": "user", "content": "go", "timestamp": 1}]},
        }
        assert client.post("pi/api/stream", json=body).status_code == 429


def test_an_abort_in_a_kernel_reaches_the_provider(kernel_of, upstream):
    """When the agent in the kernel is aborted, the provider's connection is closed."""
    cell = kernel_of("ada")
    upstream.play(Reply(recorded("text").partition(b"rld")[0] + b"\n", ending="hang"))
    watched = """
from pi_agent_kernel import MessageUpdate
agent.subscribe(lambda event, _signal: agent.abort() if isinstance(event, MessageUpdate) else None)
print((await ask()).stop_reason)
"""

    assert cell(AGENT + watched).strip() == "aborted"
    assert upstream.client_left.wait(LIMIT)


def test_a_kernel_that_is_restarted_keeps_its_proxy(jupyter, kernel_of):
    """A restart starts the kernel with the same two variables, and without the key."""
    cell = kernel_of("ada")
    shown = (
        "import os\n"
        "print(sorted(n for n in os.environ if 'PROXY' in n or 'OPENAI' in n))\n"
        "print(os.environ['PI_NOTEBOOK_MODEL'])\n"
    )
    before = cell(shown)
    cell.client.stop_channels()
    with jupyter.client() as client:
        restarted = client.post(f"api/kernels/{cell.kernel_id}/restart")
    cell.connect()

    assert restarted.status_code == 200
    assert before == cell(shown)
    assert "PI_NOTEBOOK_PROXY_TOKEN" in before
    assert "OPENAI_API_KEY" not in before
    assert "proxy:openai-chat:test-1" in before


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_wrong_token_after_a_good_one(start_server, upstream, anyio_backend):
    """A login that the server remembers in a cookie lets no other token in from the same client."""
    server = start_server(MODELS, users=False, JUPYTER_TOKEN="the-token")
    upstream.play("text")
    ends = []
    for token in ("the-token", "wrong-token"):
        stream = stream_proxy(
            Model(id="test-1", provider="openai-chat", api="openai-completions"),
            TranscriptContext(messages=[UserMessage(content="go")]),
            auth_token=token,
            proxy_url=server.proxy_url,
        )
        with anyio.fail_after(PATIENCE):
            ends.append([event async for event in stream][-1])

    assert [end.type for end in ends] == ["done", "error"]
    assert ends[1].error.diagnostics[0]["details"]["kind"] == "auth"
    assert len(upstream.requests) == 1


def test_jupyters_own_token_and_cookie(start_server, upstream):
    """The server's token is taken as a bearer; with a cookie alone a page must prove its origin."""
    server = start_server(MODELS, users=False, JUPYTER_TOKEN="the-token")
    upstream.play("text")
    body = {
        "model": {"id": "test-1", "provider": "openai-chat"},
        "context": {"messages": [{"role": "user", "content": "go", "timestamp": 1}]},
    }
    with server.client(None) as client:
        by_token = client.post(
            "pi/api/stream", json=body, headers={"Authorization": "Bearer the-token"}
        )
        client.get("tree?token=the-token")
        client.get("lab?token=the-token")
        client.get("login?token=the-token")
        by_address = client.post("pi/api/stream?token=the-token", json=body)
        by_cookie = client.post("pi/api/stream", json=body)
        listing = client.get("pi/api/models")
        xsrf = client.cookies.get("_xsrf")
        proved = xsrf and client.post("pi/api/stream", json=body, headers={"X-XSRFToken": xsrf})

    assert json.loads(by_token.text.split("\n\n")[-2][6:])["type"] == "done"
    assert (by_address.status_code, by_cookie.status_code) == (403, 403)
    assert "xsrf" in by_cookie.json()["error"].lower()
    assert listing.status_code == 200
    assert proved.status_code == 200
    assert "user='owner'" in server.wait_for_log("user=")


def test_without_models_nothing_is_served(start_server):
    """An installed extension that nobody configured has no address and keeps its hands off."""
    server = start_server()

    with server.client() as client:
        assert client.get("pi/api/models").status_code == 404
        assert client.get("api/status").status_code == 200
    assert "pi_notebook.server: models" not in server.log


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ('c.PiServer.models = ["openai-chta:test-*"]', "there is no provider 'openai-chta'"),
        (f'{MODELS}; c.PiServer.default_model = "openai-chat:x"', "c.PiServer.default_model"),
    ],
)
def test_a_misspelt_setting_is_said_in_the_log(start_server, setting, told):
    """A bad entry stops the extension, not the server, and the log says which it is."""
    server = start_server(setting)

    server.wait_for_log(told)
    with server.client() as client:
        assert client.get("pi/api/models").status_code == 404
