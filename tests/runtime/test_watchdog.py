"""The watchdog barks when a guarded call outlives its bound, and only then. In real time, because that is what it guards."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from enricher.errors import Stalled
from enricher.runtime.watchdog import Watchdog

PATIENCE_S = 20.0


class Barks:
    """Hears the watchdog."""

    def __init__(self) -> None:
        self.heard = threading.Event()
        self.message = ""

    def __call__(self, message: str) -> None:
        """Called in the watchdog's thread."""
        self.message = message
        self.heard.set()


def test_it_barks_when_the_bound_is_over() -> None:
    """The message says what hangs and how long the bound was."""
    barks = Barks()
    with Watchdog(barks, check_every_s=0.001) as watchdog, watchdog.guard("asking the broker", 0.01):
        assert barks.heard.wait(PATIENCE_S)
    assert barks.message == "no progress in 'asking the broker' for 0.01 s"


def test_its_thread_ends_with_it() -> None:
    """The end of its block leaves no thread behind."""
    with Watchdog(Barks()) as watchdog:
        assert watchdog._thread.is_alive()
    assert not watchdog._thread.is_alive()


def test_an_inner_guard_replaces_the_outer_one_which_then_starts_afresh() -> None:
    """A long bound inside a short one counts while it is open; afterwards the short one has its whole time again."""
    barks = Barks()
    watchdog = Watchdog(barks, check_every_s=0.001)
    with watchdog.guard("outer", 1.0):
        outer = watchdog._guarded
        with watchdog.guard("inner", 1e9):
            inner = watchdog._guarded
            assert inner is not None
            assert ("inner", 1e9) == (inner.what, inner.limit_s)
        again = watchdog._guarded
        assert outer is not None
        assert again is not None
        assert (outer.what, outer.limit_s) == (again.what, again.limit_s)
        assert outer.began_s <= again.began_s <= time.monotonic() + 1.0
    assert watchdog._guarded is None


def test_the_guard_is_taken_off_when_the_body_fails() -> None:
    """An exception leaves nothing that could bark later."""
    watchdog = Watchdog(Barks())
    with pytest.raises(KeyError), watchdog.guard("failing", 1.0):
        dict[str, int]()["missing"]
    assert watchdog._guarded is None


def test_it_ends_a_process_that_hangs_with_the_code_of_a_stall() -> None:
    """The real thing: a main thread that never comes back dies, says why, and shows where it stood."""
    script = (
        "import threading\n"
        "from enricher.runtime.watchdog import Watchdog\n"
        "with Watchdog(check_every_s=0.01) as watchdog, watchdog.guard('waiting for ever', 0.05):\n"
        "    threading.Event().wait()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False, cwd=_ROOT
    )
    assert ended.returncode == Stalled.exit_code
    assert "no progress in 'waiting for ever'" in ended.stderr
    assert "threading.py" in ended.stderr


def test_it_ends_a_process_whose_log_nobody_reads() -> None:
    """What hangs is the log itself, a full pipe: the last words cannot be said, and the process ends all the same."""
    script = (
        "import sys\n"
        "from enricher.runtime.watchdog import Watchdog\n"
        "with Watchdog(check_every_s=0.01) as watchdog, watchdog.guard('writing to the log', 0.05):\n"
        "    while True:\n"
        "        sys.stderr.write('x' * 1000 + '\\n')\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, cwd=_ROOT) as hanging:
        try:
            assert hanging.wait(timeout=60) == Stalled.exit_code
        finally:
            hanging.kill()


_ROOT = __file__.rpartition("/tests/")[0]
