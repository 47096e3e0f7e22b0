"""The watchdog: ends the process when a guarded call does not return within its bound.

A call into the Kafka client can outlive its own timeout, one of them forever (librdkafka issues 5511 and 5456), and no
exception can be raised in a thread that is stuck in C. Ending the process is always safe: nothing is committed that was not
published, and the next process starts at the committed offsets.

The watchdog is a Python thread, so it cannot run while C code holds the interpreter's lock. Then `ProcessTimer` ends the
process.

Every guard, and its bound (tests/test_structure.py compares them with the code):

    starting                                   600 s, in an indexer beyond 2 x index.give_up_s
    connecting, recovering, rewinding          a request to each URL of the registry, 20 s, and 5 s,
                                               3 x kafka.transaction_timeout_s, 6 x kafka.request_timeout_s
    one turn of the loop                       worker.stall_timeout_s
    a transaction                              3 x kafka.transaction_timeout_s
    asking for partitions                      4 x kafka.request_timeout_s
    draining                                   worker.drain_timeout_s + worker.stall_timeout_s
    closing                                    worker.stall_timeout_s
    ending all processes                       30 s beyond what children may take to drain
    opening or closing health and telemetry    90 s
    reading an article                         worker.stall_timeout_s
    a redrive's transaction                    4 x kafka.transaction_timeout_s
    writing to the search index                180 s
    asking the search index                    330 s
    waiting for the search index               the pause + worker.stall_timeout_s
    writing dead letters                       worker.recovery_timeout_s + 30 s
    connecting with the brokers                worker.recovery_timeout_s + 30 s
    leaving the group                          worker.drain_timeout_s + 30 s
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

CHECK_EVERY_S = 0.5
START_TIMEOUT_S = 600.0
"""The bound of checking topics and rights and of loading the model."""
_REPORT_S = 2.0
"""How long to wait for the report. The log itself may hang, for example on a full pipe that nobody reads."""
TIMER_MARGIN_S = 5.0
"""The process timer ends the process this long after the bound: enough for the watchdog to do it, if its thread runs."""
_UNGUARDED_S = 120.0
"""How long the watchdog's thread may be unable to run while nothing is guarded."""
_EXIT_S = 60.0
"""How long the interpreter may take to end after the watchdog has ended."""


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


class ProcessTimer:
    """Ends the process with code 1, with the stack of every thread on standard error, unless it is set again in time.

    It is the timer of `faulthandler`, a thread in C that needs no lock of the interpreter. A process has only one, so only a
    program that owns its process may use it.
    """

    def __init__(self) -> None:
        self._errors = _errors_that_never_block()

    def set(self, limit_s: float) -> None:
        """End the process in `limit_s` seconds. Replaces the time of an earlier call."""
        faulthandler.dump_traceback_later(limit_s, exit=True, file=self._errors)


def _errors_that_never_block() -> int:
    """A descriptor of standard error. Where the system allows it, a write that a full pipe would block is dropped."""
    try:
        # Opening it again, unlike `dup`, leaves the descriptor that everything else writes to as it is.
        return os.open("/proc/self/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):  # a socket, another user's terminal, or no Linux
        return 2


@dataclass(frozen=True, slots=True)
class _Guarded:
    what: str
    limit_s: float
    began_s: float


class Watchdog:
    """A daemon thread that watches one deadline, from `__enter__` to `__exit__`.

    Guards nest: an open inner guard replaces the outer one, whose time starts again when the inner guard closes.

    `timer`: bounds the watchdog's own thread, which sets it at each check to the bound of the guarded call plus
    `TIMER_MARGIN_S`: it ends the process if the thread does not run until then. After `__exit__` it bounds the end of the
    interpreter.
    """

    def __init__(
        self,
        on_stall: Callable[[str], None] = end_process,
        *,
        check_every_s: float = CHECK_EVERY_S,
        timer: ProcessTimer | None = None,
    ) -> None:
        self._on_stall = on_stall
        self._check_every_s = check_every_s
        self._timer = timer
        self._guarded: _Guarded | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._set_timer(None)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closed.set()
        self._thread.join()
        if self._timer:
            self._timer.set(_EXIT_S)

    def call_in_progress(self) -> Watched | None:
        """The guarded call in progress, or None. Safe in any thread."""
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
            self._set_timer(guarded)

    def _set_timer(self, guarded: _Guarded | None) -> None:
        if self._timer is None:
            return
        left_s = guarded.began_s + guarded.limit_s - time.monotonic() if guarded else _UNGUARDED_S
        self._timer.set(max(0.0, left_s) + TIMER_MARGIN_S)
