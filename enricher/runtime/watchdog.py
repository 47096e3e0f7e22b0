"""The watchdog: ends the process when a guarded call does not come back within its bound.

A call into the Kafka client can outlive its own timeout, one of them for ever (librdkafka issues 5511 and 5456), and no
exception can be raised in a thread that is stuck in C. Dying is always safe here: nothing is committed that was not
published, and the successor starts at the committed offsets.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from enricher.errors import Stalled

Guard = Callable[[str, float], AbstractContextManager[None]]
"""`with guard("what we do", limit_s):` bounds the time that the body may take."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What is under way inside a guard, for how long it may be, and how long it has been."""

    what: str
    limit_s: float
    since_s: float


log = logging.getLogger(__name__)

_TELL_S = 2.0
"""For the last words: what hangs may be the log itself, a full pipe that nobody reads."""


def end_process(message: str) -> None:
    """Say what hangs, show where every thread stands, and exit with the code of `Stalled`, heard or not."""
    telling = threading.Thread(target=_tell, args=(message,), name="last-words", daemon=True)
    telling.start()
    telling.join(_TELL_S)
    os._exit(Stalled.exit_code)


def _tell(message: str) -> None:
    log.critical("%s; ending the process, its successor starts at the committed offsets", message)
    faulthandler.dump_traceback(all_threads=True)


class Watchdog:
    """One daemon thread that looks at one deadline.

    Guards nest: while an inner one is open it replaces the outer one, whose clock starts afresh when the inner closes.
    """

    def __init__(self, on_stall: Callable[[str], None] = end_process, *, check_every_s: float = 0.5) -> None:
        self._on_stall = on_stall
        self._check_every_s = check_every_s
        self._watched: tuple[str, float, float] | None = None
        """What, its limit, and when it began."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def watched(self) -> Watched | None:
        """What is guarded now. May be asked from any thread."""
        watched = self._watched
        return watched and Watched(watched[0], watched[1], time.monotonic() - watched[2])

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    @contextmanager
    def guard(self, what: str, limit_s: float) -> Iterator[None]:
        """Bound the body: `on_stall` is called, in the watchdog's thread, when it takes longer than `limit_s`."""
        outer = self._watched
        self._watched = (what, limit_s, time.monotonic())
        try:
            yield
        finally:
            self._watched = outer and (outer[0], outer[1], time.monotonic())

    def _watch(self) -> None:
        while not self._closed.wait(self._check_every_s):
            watched = self._watched
            if watched and time.monotonic() - watched[2] > watched[1]:
                self._on_stall(f"no progress in '{watched[0]}' for {watched[1]:g} s")
                return
