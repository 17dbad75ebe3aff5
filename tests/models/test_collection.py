from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest
from pi_agent_kernel import (
    AbortController,
    Agent,
    MemoryCredentials,
    Model,
    ProviderAuth,
    StreamOptions,
    TranscriptContext,
    UserMessage,
    create_models,
    create_provider,
    faux_assistant_message,
    faux_provider,
    lazy_stream,
)
from pi_agent_kernel.models.headers import merge_headers
from pi_agent_kernel.models.providers import PROVIDERS
from provider import LIMIT
from server import Reply, recorded

ASK = TranscriptContext(messages=[UserMessage(content="go")])
BIG = Model(id="big", provider="mine", api="faux")


@pytest.fixture
def faux():
    """A scripted provider that remembers the options it was asked with."""
    scripted = faux_provider(provider="mine")
    seen = []

    def answer(_context, options, *_):
        seen.append(options)
        return faux_assistant_message("hello")

    scripted.set_responses([answer] * 10)
    scripted.seen = seen
    return scripted


async def test_a_collection_asks_the_model_s_provider(faux):
    """`stream` and `complete` reach the provider that the model names; `stream` is a stream fn."""
    models = create_models()
    models.set_provider(create_provider("mine", models=[BIG], api=faux.stream_fn))

    events = [event async for event in models.stream(BIG, ASK)]
    message = await models.complete(BIG, ASK)
    agent = Agent(stream_fn=models.stream, model=models.get_model("mine", "big"))
    await agent.prompt("hi")

    assert events[0].type == "start"
    assert events[-1].message.text == message.text == "hello"
    assert agent.state.messages[-1].text == "hello"
    assert agent.state.error_message is None


async def test_the_simple_calls_take_text(faux):
    """`complete_simple` takes text and keeps the thinking level from models that do not think."""
    models = create_models()
    models.set_provider(create_provider("mine", api=faux.stream_fn))
    thinker = Model(id="t", provider="mine", api="faux", reasoning=True)

    assert (await models.complete_simple(BIG, "hi", reasoning="high")).text == "hello"
    assert (await models.complete_simple(thinker, [UserMessage(content="hi")])).text == "hello"
    events = [e async for e in models.stream_simple(thinker, "hi", reasoning="high", max_tokens=7)]

    assert events[-1].type == "done"
    assert [options.reasoning for options in faux.seen] == [None, None, "high"]
    assert faux.seen[-1].max_tokens == 7


def test_providers_come_and_go(faux):
    """Providers are replaced by id, listed in order and taken out; models are listed by them."""
    models = create_models()
    other = Model(id="small", provider="other", api="faux")
    models.set_provider(create_provider("mine", models=[BIG], api=faux.stream_fn))
    models.set_provider(create_provider("other", models=[other], api=faux.stream_fn))
    replaced = create_provider("mine", api=faux.stream_fn)

    assert models.get_models() == [BIG, other]
    assert models.get_models("other") == [other]
    assert models.get_model("mine", "small") is None
    models.set_provider(replaced)
    assert models.get_provider("mine") is replaced
    assert [provider.id for provider in models.get_providers()] == ["mine", "other"]
    models.delete_provider("mine")
    models.delete_provider("mine")
    assert models.get_provider("mine") is None
    assert repr(models) == "<models of other>"
    models.clear_providers()
    assert models.get_models() == []


def test_a_wrong_provider_is_refused():
    """A provider has an id, and lists only models of its own."""
    with pytest.raises(ValueError, match="needs an id"):
        create_provider(" ")
    with pytest.raises(ValueError, match="'big' has provider 'mine'"):
        create_provider("other", models=[BIG])


async def test_what_cannot_be_asked_is_an_error_message(faux):
    """An unknown provider, an unknown format and a missing key end the stream, none is raised."""
    models = create_models(env={})
    nobody = await models.complete(BIG, ASK)
    models.set_provider(create_provider("mine", api={"other-format": faux.stream_fn}))
    unspoken = await models.complete(BIG, ASK)
    auth = ProviderAuth(variables=("MINE_KEY",))
    models.set_provider(create_provider("mine", auth, api={"faux": faux.stream_fn}))
    keyless = await models.complete(BIG, ASK)

    for message, text in (
        (nobody, "There is no provider 'mine'"),
        (unspoken, "does not speak 'faux', only: other-format"),
        (keyless, "There is no API key for mine. Set MINE_KEY."),
    ):
        assert message.stop_reason == "error"
        assert text in message.error_message
        assert (message.provider, message.model) == ("mine", "big")
    assert faux.seen == []


async def test_keys_come_from_request_store_environment(faux):
    """The request's key goes before the stored one, that before the environment's."""
    store = MemoryCredentials({"mine": "stored"})
    models = create_models(credentials=store, env={"MINE_KEY": "environment"})
    auth = ProviderAuth(variables=("OTHER_KEY", "MINE_KEY"))
    models.set_provider(create_provider("mine", auth, api=faux.stream_fn))

    await models.complete(BIG, ASK, StreamOptions(api_key="given"))
    await models.complete(BIG, ASK)
    store.delete("mine")
    await models.complete(BIG, ASK)

    assert [options.api_key for options in faux.seen] == ["given", "stored", "environment"]
    assert "stored" not in repr(MemoryCredentials({"mine": "stored"}))


async def test_a_void_stored_credential_is_not_passed_over(faux):
    """A stored credential owns its provider: if it is void no other key is used."""
    store = MemoryCredentials()
    store.write("mine", "")
    models = create_models(credentials=store, env={"MINE_KEY": "environment"})
    auth = ProviderAuth(variables=("MINE_KEY",))
    models.set_provider(create_provider("mine", auth, api=faux.stream_fn))

    message = await models.complete(BIG, ASK)

    assert message.stop_reason == "error"
    assert "stored credential for mine is empty" in message.error_message
    assert faux.seen == []


async def test_a_store_may_be_slow_or_fail(faux):
    """A store may be async; what it raises is an error message."""

    class Slow:
        async def read(self, provider):
            await anyio.lowlevel.checkpoint()
            return f"key of {provider}"

    class Broken:
        def read(self, provider):
            raise OSError("the keyring is locked")

    for store in (Slow(), Broken()):
        models = create_models(credentials=store, env={})
        models.set_provider(create_provider("mine", api=faux.stream_fn))
        message = await models.complete(BIG, ASK)

    assert faux.seen[0].api_key == "key of mine"
    assert message.error_message == "the keyring is locked"


async def test_headers_are_merged_whatever_their_case(faux):
    """Provider, model, request, then a transform: a later one wins, None takes a header out."""
    models = create_models(transform_headers=lambda headers: {**headers, "X-Last": "t"})
    models.set_provider(
        create_provider("mine", api=faux.stream_fn, headers={"X-A": "1", "X-B": "1", "X-C": "1"})
    )
    model = Model(id="m", provider="mine", api="faux", headers={"x-a": "2", "x-c": "2"})

    await models.complete(model, ASK, StreamOptions(headers={"X-a": "3", "x-B": None}))

    assert faux.seen[0].headers == {"X-a": "3", "x-B": None, "x-c": "2", "X-Last": "t"}
    assert merge_headers(None, {}) == {}


async def test_an_abort_during_the_setup_is_an_abort():
    """A slow key and an abort end the stream at once as aborted, not as an error."""
    asked, controller = anyio.Event(), AbortController()

    class Stuck:
        async def read(self, _provider):
            asked.set()
            await anyio.sleep_forever()

    models = create_models(credentials=Stuck())
    models.set_provider(create_provider("mine", api=faux_provider().stream_fn))
    ended = []

    async def ask():
        ended.append(await models.complete(BIG, ASK, StreamOptions(signal=controller.signal)))

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked.wait()
            controller.abort()

    assert ended[0].stop_reason == "aborted"
    assert controller.signal._listeners == {}


async def test_an_aborted_signal_opens_nothing():
    """With a signal that was set off before, the setup does not run."""
    controller, opened = AbortController(), []
    controller.abort()

    events = [
        event async for event in lazy_stream(BIG, lambda: opened.append(1), controller.signal)
    ]

    assert [event.type for event in events] == ["error"]
    assert events[0].reason == "aborted"
    assert opened == []


@pytest.mark.parametrize("made", [None, 7, "text"])
async def test_a_setup_that_makes_no_stream_is_an_error(made):
    """What is no stream ends as an error message."""

    async def open_stream():
        return made

    (event,) = [event async for event in lazy_stream(BIG, open_stream)]

    assert event.reason == "error"
    assert "returns a stream" in event.error.error_message


async def test_a_stream_without_an_end_gets_one():
    """A stream that just stops is an error, as is one that raises; both are closed."""
    closed = []

    async def stops():
        try:
            for event in ():
                yield event
        finally:
            closed.append("stops")

    async def raises():
        try:
            raise ConnectionError("gone")
            yield
        finally:
            closed.append("raises")

    ends = [[event async for event in lazy_stream(BIG, stream)][-1] for stream in (stops, raises)]

    assert "without a final event" in ends[0].error.error_message
    assert ends[1].error.error_message == "gone"
    assert closed == ["stops", "raises"]


async def test_leaving_early_closes_the_stream(faux):
    """A reader that stops leaves nothing open."""
    closed = []

    async def endless():
        try:
            async with aclosing(faux.stream_fn(BIG, ASK)) as stream:
                async for event in stream:
                    yield event
        finally:
            closed.append(True)

    stream = lazy_stream(BIG, endless)
    assert (await anext(stream)).type == "start"
    await stream.aclose()

    assert closed == [True]


# On trio the openai SDK leaves its inner generators to the loop, which closes them and says so.
@pytest.mark.filterwarnings(
    "ignore:Async generator '(openai|anthropic|google|groq|http):ResourceWarning"
)
async def test_a_collection_starts_with_the_known_providers(server):
    """With `builtin` every row of the table is a provider, and a request reaches its server."""
    server.play(Reply(recorded("text")))
    models = create_models(builtin=True, env={"OPENAI_API_KEY": "k"})
    listed = models.get_model("openai-chat", PROVIDERS["openai-chat"].default_model)
    here = Model(id="m", provider="openai-chat", api=listed.api, base_url=server.url)

    with anyio.fail_after(LIMIT):
        message = await models.complete(here, ASK)

    assert [provider.id for provider in models.get_providers()] == list(PROVIDERS)
    assert listed.context_window > 0
    assert message.stop_reason == "stop", message.error_message
    assert server.requests[0].header("authorization") == "Bearer k"
