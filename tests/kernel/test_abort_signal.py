from __future__ import annotations

import anyio
import pytest
from pi_agent_kernel import AbortController, OperationAborted
from pi_agent_kernel.abort import run_soon
from scripted import LIMIT


def test_a_signal_is_set_once():
    """The first abort counts, with its reason; later ones do nothing (AB-01)."""
    controller = AbortController()
    signal = controller.signal
    signal.raise_if_aborted()
    assert (signal.aborted, signal.reason) == (False, None)

    controller.abort("enough")
    controller.abort("again")

    assert (signal.aborted, signal.reason) == (True, "enough")
    with pytest.raises(OperationAborted, match="enough"):
        signal.raise_if_aborted()


def test_an_empty_reason_aborts_too():
    """Whatever the reason, the flag is set (AB-01)."""
    controller = AbortController()
    controller.abort("")

    assert controller.signal.aborted is True


def test_listeners_hear_it_once():
    """Each is called once; one that raises does not keep the others from hearing it."""
    controller = AbortController()
    heard = []

    def broken():
        raise ValueError

    controller.signal.add_listener(broken)
    controller.signal.add_listener(lambda: heard.append("a"))
    same = lambda: heard.append("b")  # noqa: E731
    controller.signal.add_listener(same)
    controller.signal.add_listener(same)
    off = controller.signal.add_listener(lambda: heard.append("never"))
    off()
    off()
    controller.abort()
    controller.abort()

    assert heard == ["a", "b", "b"]


def test_a_late_listener_is_called_at_once():
    """Whoever comes after the abort hears it immediately."""
    controller = AbortController()
    controller.abort()
    heard = []
    off = controller.signal.add_listener(lambda: heard.append(1))
    off()

    assert heard == [1]


async def test_waiting_for_an_abort():
    """`wait()` ends with an abort from any thread, at once if it was before; nothing is left."""
    controller = AbortController()
    signal = controller.signal
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(signal.wait)
            await anyio.lowlevel.checkpoint()
            await anyio.to_thread.run_sync(controller.abort)
        await signal.wait()

    assert signal._listeners == {}


async def test_a_cancelled_wait_takes_its_listener_off():
    """Waiting in vain leaves no listener behind (E17)."""
    controller = AbortController()
    with anyio.move_on_after(0):
        await controller.signal.wait()

    assert controller.signal._listeners == {}


async def test_an_abort_cancels_a_scope():
    """`cancel_on_abort` binds a scope of the current loop to the signal, until taken off."""
    controller = AbortController()
    with anyio.fail_after(LIMIT):
        with anyio.CancelScope() as first, anyio.CancelScope() as second:
            controller.signal.cancel_on_abort(first)
            controller.signal.cancel_on_abort(second)()
            await anyio.to_thread.run_sync(controller.abort)
            await anyio.sleep_forever()

    assert (first.cancelled_caught, second.cancel_called) == (True, False)


def test_waking_a_loop_that_is_gone_is_harmless():
    """A callback bound to a loop that has ended does nothing."""
    for backend in ("asyncio", "trio"):

        async def bind():
            return run_soon(lambda: None)

        anyio.run(bind, backend=backend)()
