"""How long is waited, and how often is asked."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from support.patience import PATIENCE_S

from enricher.worker.runtime.deadlines import Deadline, StopEvent, Wakeup, doubling_pause_s, until


def test_the_time_left_ends_at_zero() -> None:
    """A wait that is given what is left never gets a number below 0."""
    now_s = 100.0
    deadline = Deadline(5.0, lambda: now_s)
    assert (5.0, False) == (deadline.left_s(), deadline.over)
    now_s = 104.0
    assert (1.0, False) == (deadline.left_s(), deadline.over)
    now_s = 105.0
    assert (0.0, True) == (deadline.left_s(), deadline.over)
    now_s = 200.0
    assert (0.0, True) == (deadline.left_s(), deadline.over)


def test_a_passed_deadline_leaves_one_question() -> None:
    """What holds already is found without any time. Before it, one asks until it holds; each question is one call."""
    answers = iter([True, False, False, False, True])
    assert until(lambda: next(answers), Deadline(0.0), pause_s=1.0)
    assert not until(lambda: next(answers), Deadline(0.0), pause_s=1.0)
    assert until(lambda: next(answers), Deadline(60.0), pause_s=0.0)
    assert [] == list(answers)


def test_pauses_double_up_to_the_longest() -> None:
    """There is none before the first failure; the power of two does not overflow."""
    pauses = [doubling_pause_s(failures, first_s=0.5, longest_s=3.0) for failures in (*range(6), 1_000_000)]
    assert [0.0, 0.5, 1.0, 2.0, 3.0, 3.0, 3.0] == pauses


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
    """However often it was set; `clear` forgets all of it. A stop event is set for good: every wait returns at once."""
    wakeup, event = Wakeup(), StopEvent()
    wakeup.set()
    wakeup.set()
    assert wakeup.is_set
    wakeup.wait()
    assert wakeup.is_set, "one wait takes one set"
    wakeup.clear()
    wakeup.wait(0.0)
    assert not wakeup.is_set
    assert not event.wait(0.0)
    event.set()
    assert [True, True, True] == [event.is_set, event.wait(), event.wait()]


@pytest.mark.slow
def test_a_signal_handler_may_ring_at_any_moment() -> None:
    """With `threading.Event` in their place this hangs within seconds: the handler waits for its own thread."""
    ran = subprocess.run(
        [sys.executable, "-c", HAMMERED], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "came through\n" == ran.stdout, ran.stderr


def test_a_short_wait_ends_although_earlier_sets_were_cleared() -> None:
    """The library's queue alone would wait forever at one of some thousand times. At last one waits without a bound."""
    wakeup, waits_for_good = Wakeup(), threading.Event()

    def wait_often() -> None:
        for number in range(20_000):
            wakeup.set()
            wakeup.clear()
            wakeup.wait(1e-6 * (number % 20))
        waits_for_good.set()
        wakeup.wait()

    waiting = threading.Thread(target=wait_often, daemon=True)
    waiting.start()
    assert waits_for_good.wait(PATIENCE_S)
    wakeup.set()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
