"""The watchdog: ends the process when a guarded call does not return within its bound.

A call into the Kafka client can outlive its own timeout, one of them forever (librdkafka issues 5511 and 5456), and no
exception can be raised in a thread that is stuck in C. Ending the process is always safe: nothing is committed that was not
published, and the next process starts at the committed offsets.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Self

from enricher.errors import Stalled

Guard = Callable[[str, float], AbstractContextManager[None]]
"""`with guard("what we do", limit_s):` bounds the time that the body may take."""

log = logging.getLogger(__name__)

_REPORT_S = 2.0
"""How long to wait for the report: the log itself may be what hangs, for example a full pipe that nobody reads."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A guarded call in progress. `since_s`: how many seconds it has taken so far."""

    what: str
    limit_s: float
    since_s: float


def end_process(message: str) -> None:
    """Log the message and the stack of every thread, then exit with the code of `Stalled`, even if the log hangs."""
    reporting = threading.Thread(target=_report, args=(message,), name="stall-report", daemon=True)
    reporting.start()
    reporting.join(_REPORT_S)
    os._exit(Stalled.exit_code)


def _report(message: str) -> None:
    log.critical("%s; ending the process, the next one starts at the committed offsets", message)
    faulthandler.dump_traceback(all_threads=True)


@dataclass(frozen=True, slots=True)
class _Guarded:
    what: str
    limit_s: float
    began_s: float


class Watchdog:
    """A daemon thread that watches one deadline, from `__enter__` to `__exit__`.

    Guards nest: an open inner guard replaces the outer one, whose time starts again when the inner guard closes.
    """

    def __init__(self, on_stall: Callable[[str], None] = end_process, *, check_every_s: float = 0.5) -> None:
        self._on_stall = on_stall
        self._check_every_s = check_every_s
        self._guarded: _Guarded | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closed.set()
        self._thread.join()

    def watched(self) -> Watched | None:
        """The guarded call in progress. Safe in any thread."""
        if (guarded := self._guarded) is None:
            return None
        return Watched(guarded.what, guarded.limit_s, time.monotonic() - guarded.began_s)

    @contextmanager
    def guard(self, what: str, limit_s: float) -> Iterator[None]:
        """Bound the body: if it takes longer than `limit_s`, `on_stall` is called in the watchdog's thread."""
        outer = self._guarded
        self._guarded = _Guarded(what, limit_s, time.monotonic())
        try:
            yield
        finally:
            self._guarded = outer and replace(outer, began_s=time.monotonic())

    def _watch(self) -> None:
        while not self._closed.wait(self._check_every_s):
            guarded = self._guarded
            if guarded and time.monotonic() - guarded.began_s > guarded.limit_s:
                self._on_stall(f"no progress in '{guarded.what}' for {guarded.limit_s:g} s")
                return
