"""The watchdog barks when a guarded call outlives its bound, and only then. In real time, because that is what it guards."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from support.patience import PATIENCE_S, wait_until

from enricher.errors import Stalled
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog


class Barks:
    """Hears the watchdog."""

    def __init__(self) -> None:
        self.heard = threading.Event()
        self.message = ""

    def __call__(self, message: str) -> None:
        """Called in the watchdog's thread."""
        self.message = message
        self.heard.set()


_ROOT = __file__.rpartition("/tests/")[0]


def ran(script: str) -> subprocess.CompletedProcess[str]:
    """A process that ran this and has ended."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=_ROOT)


def exit_code_with_a_full_pipe(script: str) -> int:
    """How a process ends of which nobody reads the log."""
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, cwd=_ROOT) as hanging:
        try:
            return hanging.wait(timeout=PATIENCE_S)
        finally:
            hanging.kill()


def test_it_barks_when_the_bound_is_over() -> None:
    """The message says what hangs and how long the bound was."""
    barks = Barks()
    with Watchdog(barks, check_every_s=0.001) as watchdog, watchdog.guard("asking the broker", 0.01):
        assert barks.heard.wait(PATIENCE_S)
    assert barks.message == "no progress in 'asking the broker' for 0.01 s"


def test_its_thread_ends_with_it() -> None:
    """The end of its block leaves no thread behind."""
    before = set(threading.enumerate())
    with Watchdog(Barks()):
        [thread] = set(threading.enumerate()) - before
    assert not thread.is_alive()


def test_an_inner_guard_replaces_the_outer_one_which_then_starts_afresh() -> None:
    """A long bound inside a short one counts while it is open; afterwards the short one has its whole time again."""
    barks = Barks()
    watchdog = Watchdog(barks, check_every_s=0.001)
    with watchdog.guard("outer", 1.0):
        with watchdog.guard("inner", 1e9):
            inner = watchdog.call_in_progress()
            assert inner is not None
            assert ("inner", 1e9) == (inner.what, inner.limit_s)
            inside_s = time.monotonic()
        again = watchdog.call_in_progress()
        assert again is not None
        assert ("outer", 1.0) == (again.what, again.limit_s)
        assert again.since_s <= time.monotonic() - inside_s
    assert watchdog.call_in_progress() is None


def test_the_guard_is_taken_off_when_the_body_fails() -> None:
    """An exception leaves nothing that could bark later."""
    watchdog = Watchdog(Barks())
    with pytest.raises(KeyError), watchdog.guard("failing", 1.0):
        dict[str, int]()["missing"]
    assert watchdog.call_in_progress() is None


def test_it_ends_a_process_that_hangs_with_the_code_of_a_stall() -> None:
    """The real thing: a main thread that never comes back dies, says why, and shows where it stood."""
    script = (
        "import threading\n"
        "from enricher.worker.runtime.watchdog import Watchdog\n"
        "with Watchdog(check_every_s=0.01) as watchdog, watchdog.guard('waiting for ever', 0.05):\n"
        "    threading.Event().wait()\n"
    )
    ended = ran(script)
    assert ended.returncode == Stalled.exit_code
    assert "no progress in 'waiting for ever'" in ended.stderr
    assert "threading.py" in ended.stderr


@pytest.mark.slow
def test_it_ends_a_process_whose_log_nobody_reads() -> None:
    """What hangs is the log itself, a full pipe: the last words cannot be said, and the process ends all the same."""
    script = (
        "import sys\n"
        "from enricher.worker.runtime.watchdog import Watchdog\n"
        "with Watchdog(check_every_s=0.01) as watchdog, watchdog.guard('writing to the log', 0.05):\n"
        "    while True:\n"
        "        sys.stderr.write('x' * 1000 + '\\n')\n"
    )
    assert Stalled.exit_code == exit_code_with_a_full_pipe(script)


LOOKED_AT = (
    "import ctypes, os, threading\n"
    "from enricher.worker.runtime import watchdog\n"
    "watchdog.TIMER_MARGIN_S, looked = 0.5, threading.Event()\n"
    "class Timer(watchdog.ProcessTimer):\n"
    "    def set(self, limit_s):\n"
    "        super().set(limit_s)\n"
    "        if limit_s < 3:\n"
    "            looked.set()\n"
)
HOLDS_THE_LOCK = (
    "with watchdog.Watchdog(timer=Timer()) as dog, dog.guard('computing', 2.0):\n"
    "    looked.wait()\n"
    "    ctypes.PyDLL(None).sleep(600)\n"
)
"""C code that does not give the interpreter's lock back, once the watchdog has looked."""


@pytest.mark.slow
def test_it_ends_a_process_whose_c_code_holds_the_interpreters_lock() -> None:
    """No thread of Python's can run, so a timer in C ends the process, with code 1 and the stack of the guilty call."""
    ended = ran(LOOKED_AT + HOLDS_THE_LOCK)
    assert 1 == ended.returncode
    assert ended.stderr.startswith("Timeout (0:00:0")
    assert 'File "<string>", line 11 in <module>' in ended.stderr


@pytest.mark.slow
def test_it_ends_such_a_process_although_nobody_reads_its_log() -> None:
    """The stacks do not fit into a full pipe, and are not waited for."""
    script = (
        f"{LOOKED_AT}"
        "os.set_blocking(2, False)\n"
        "try:\n"
        "    while os.write(2, b'x' * 1000): pass\n"
        "except BlockingIOError:\n"
        "    os.set_blocking(2, True)\n"
        f"{HOLDS_THE_LOCK}"
    )
    assert 1 == exit_code_with_a_full_pipe(script)


@pytest.mark.slow
def test_it_ends_an_interpreter_that_does_not_end() -> None:
    """A library whose clean-up hangs does not keep the process."""
    script = (
        "import atexit, threading\n"
        "from enricher.worker.runtime import watchdog\n"
        "watchdog._EXIT_S = 0.5\n"
        "atexit.register(threading.Event().wait)\n"
        "with watchdog.Watchdog(timer=watchdog.ProcessTimer()):\n"
        "    pass\n"
    )
    ended = ran(script)
    assert 1 == ended.returncode
    assert "Timeout (0:00:00.5" in ended.stderr


def test_the_timer_leaves_a_process_alone_whose_watchdog_looks() -> None:
    """It is set again at each look, also to a longer inner bound, and once more for the interpreter's end."""
    timer = Timer()
    with Watchdog(Barks(), check_every_s=0.001, timer=timer) as watchdog:
        with watchdog.guard("outer", 50.0):
            timer.until(lambda limit_s: 50.0 < limit_s <= 55.0)
            with watchdog.guard("inner", 500.0):
                timer.until(lambda limit_s: 500.0 < limit_s <= 505.0)
            timer.until(lambda limit_s: 50.0 < limit_s <= 55.0)
        timer.until(lambda limit_s: limit_s == 125.0)
    assert 60.0 == timer.limit_s


class Timer(ProcessTimer):
    """Remembers its limit instead of ending the process."""

    def __init__(self) -> None:
        self.limit_s = 0.0

    def set(self, limit_s: float) -> None:
        """Remember it."""
        self.limit_s = limit_s

    def until(self, holds: Callable[[float], bool]) -> None:
        """Wait until it is set to such a limit."""
        wait_until(lambda: holds(self.limit_s), PATIENCE_S, "the timer is set to such a limit", 0.001)
