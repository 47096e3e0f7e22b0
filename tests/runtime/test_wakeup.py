"""The wakeup and the event: a `set` is not lost, and a signal handler may call it at any moment."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from support.patience import PATIENCE_S

from enricher.worker.runtime.deadlines import StopEvent, Wakeup

HAMMERED = """
import signal
from enricher.worker.runtime.deadlines import Wakeup, StopEvent

wakeup, event, handled = Wakeup(), StopEvent(), 0

def handler(*_):
    global handled
    handled += 1
    wakeup.set()
    event.set()
    signal.setitimer(signal.ITIMER_REAL, 0.00005)

signal.signal(signal.SIGALRM, handler)
handler()
while handled < 20_000:
    wakeup.clear()
    wakeup.wait(0.0)
    event.is_set = False
    event.wait(0.0)
signal.setitimer(signal.ITIMER_REAL, 0)
print("came through")
"""


def test_a_wakeup_that_was_set_before_is_not_waited_for() -> None:
    """However often it was set; `clear` forgets all of it."""
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    assert wakeup.is_set
    wakeup.wait()
    assert wakeup.is_set, "one wait takes one set"
    wakeup.clear()
    assert not wakeup.is_set
    wakeup.wait(0.0)
    assert not wakeup.is_set


def test_a_wakeup_wakes_another_thread() -> None:
    """One that waits without a bound."""
    wakeup = Wakeup()
    waiting = threading.Thread(target=wakeup.wait, daemon=True)
    waiting.start()
    wakeup.set()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_a_stop_event_is_set_for_good() -> None:
    """Every wait after the first returns at once."""
    event = StopEvent()
    assert not event.wait(0.0)
    event.set()
    assert event.is_set
    assert event.wait()
    assert event.wait()


@pytest.mark.slow
def test_a_signal_handler_may_ring_at_any_moment() -> None:
    """With `threading.Event` in their place this hangs within seconds: the handler waits for its own thread."""
    ran = subprocess.run(
        [sys.executable, "-c", HAMMERED], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "came through\n" == ran.stdout, ran.stderr


def test_a_short_wait_ends_although_earlier_sets_were_cleared() -> None:
    """The library's queue alone would wait forever at one of some thousand times."""
    wakeup = Wakeup()

    def wait_often() -> None:
        for number in range(20_000):
            wakeup.set()
            wakeup.clear()
            wakeup.wait(1e-6 * (number % 20))

    waiting = threading.Thread(target=wait_often, daemon=True)
    waiting.start()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
