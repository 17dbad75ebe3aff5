"""The signal handler of a run, in a process of its own and without a kernel."""

import subprocess
import sys

import pytest

SETUP = """
import select, signal, threading, time
from pi_agent_kernel.abort import OperationAborted
from pi_notebook.interrupts import UserCode, interrupts

class Run:
    def __init__(self):
        self.user_code, self.interrupted, self.count = UserCode(), False, 0
    def interrupt(self):
        self.interrupted = True
        self.count += 1

def signal_that_the_main_thread_does_not_feel():
    # It goes to this thread, so it ends no system call of the main thread.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

def call(run, function):
    try:
        return run.user_code.call(function, forbidden=lambda: run.interrupted)
    except OperationAborted:
        return "cut off"

run = Run()
before = signal.getsignal(signal.SIGINT)
other = threading.Thread(target=signal_that_the_main_thread_does_not_feel)
"""


def outcome_of(code):
    process = subprocess.run(
        [sys.executable, "-c", SETUP + code],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def test_signal_that_was_missed_is_sent_again_into_a_function():
    """A plain function that sleeps in the kernel of the system is cut off all the same."""
    code = "with interrupts(run): print(call(run, lambda: (other.start(), time.sleep(3600))))"
    assert outcome_of(code) == "cut off"


def test_signal_that_was_missed_is_sent_again_to_a_thread_that_waits():
    """A main thread that waits outside of user code is woken, and nothing is raised there."""
    code = """
class Woken(Exception): pass
def interrupt():
    run.interrupted = True
    raise Woken  # stands for what wakes the loop
run.interrupt = interrupt
with interrupts(run):
    try:
        other.start()
        select.select([], [], [], 3600)
    except Woken:
        print("woken")
"""
    assert outcome_of(code) == "woken"


def test_one_signal_is_one_interrupt():
    """Sending a signal again does not count as the user's second one."""
    code = """
with interrupts(run):
    call(run, lambda: (other.start(), time.sleep(3600)))
    other.join()
print(run.count)
"""
    assert outcome_of(code) == "1"


def test_signal_reaches_all_runs_that_are_nested():
    """Stopping the inner run stops the one it is part of."""
    code = """
inner = Run()
with interrupts(run):
    with interrupts(inner):
        call(inner, lambda: (other.start(), time.sleep(3600)))
print(run.interrupted, inner.interrupted, signal.getsignal(signal.SIGINT) is before)
"""
    assert outcome_of(code) == "True True True"


def test_function_is_not_begun_after_an_interrupt():
    """What would run next does not run."""
    code = """
run.interrupted = True
with interrupts(run):
    print(call(run, lambda: print("began")))
"""
    assert outcome_of(code) == "cut off"


def test_nothing_of_it_stays_behind():
    """Handler, wake-up file and thread are gone after the run."""
    code = """
with interrupts(run):
    pass
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
print(signal.getsignal(signal.SIGINT) is before, signal.set_wakeup_fd(-1))
"""
    assert outcome_of(code) == "True -1"


@pytest.mark.parametrize("where", ["thread", "main"])
def test_only_the_main_thread_takes_the_signal(where):
    """A run in another thread leaves the handler alone."""
    code = f"""
def look():
    with interrupts(run):
        print(signal.getsignal(signal.SIGINT) is before)
thread = threading.Thread(target=look)
{"thread.start(); thread.join()" if where == "thread" else "look()"}
"""
    assert outcome_of(code) == str(where == "thread")
