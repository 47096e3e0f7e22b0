"""The bell and the latch: what was rung is not lost, and a signal handler may ring at any moment."""

from __future__ import annotations

import subprocess
import sys
import threading

from enricher.runtime.wakeup import Bell, Latch

HAMMERED = """
import signal
from enricher.runtime.wakeup import Bell, Latch

bell, latch, handled = Bell(), Latch(), 0

def rings(*_):
    global handled
    handled += 1
    bell.ring()
    latch.set()
    signal.setitimer(signal.ITIMER_REAL, 0.00005)

signal.signal(signal.SIGALRM, rings)
rings()
while handled < 20_000:
    bell.hush()
    bell.wait(0.0)
    latch.is_set = False
    latch.wait(0.0)
signal.setitimer(signal.ITIMER_REAL, 0)
print("came through")
"""


def test_a_bell_that_rang_before_is_not_waited_for() -> None:
    """However often it rang; `hush` forgets all of it."""
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.rung
    bell.wait()
    assert bell.rung, "one wait takes one ring"
    bell.hush()
    assert not bell.rung
    bell.wait(0.0)
    assert not bell.rung


def test_a_bell_wakes_another_thread() -> None:
    """One that waits without a bound."""
    bell = Bell()
    waiting = threading.Thread(target=bell.wait, daemon=True)
    waiting.start()
    bell.ring()
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_latch_is_set_for_good() -> None:
    """Every wait after the first returns at once."""
    latch = Latch()
    assert not latch.wait(0.0)
    latch.set()
    assert latch.is_set
    assert latch.wait()
    assert latch.wait()


def test_a_signal_handler_may_ring_at_any_moment() -> None:
    """With `threading.Event` in their place this hangs within seconds: the handler waits for its own thread."""
    ran = subprocess.run([sys.executable, "-c", HAMMERED], capture_output=True, text=True, timeout=120, check=False)
    assert "came through\n" == ran.stdout, ran.stderr
