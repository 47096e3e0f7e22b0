"""Signals, progress and the summary at the end, for the commands that run a worker."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from enricher.worker.stats import Counters

log = logging.getLogger("enricher.worker.commands.run")


def interrupt_code(number: int) -> int:
    """The exit code if a signal ends a command before its work is done; the convention of shells."""
    return 128 + number


class Signals:
    """The handler of SIGTERM and SIGINT: ends a process that is still starting, stops what it runs afterwards.

    `early_code`: the exit code of a process that is still starting, by the signal's number.
    """

    def __init__(self, early_code: Callable[[int], int]) -> None:
        self._early_code = early_code
        self.stop: Callable[[], None] | None = None
        """Asks the running work to end; None while the process is starting. It must not block the handler."""
        self.received: int | None = None
        """The number of the latest signal; None before the first."""

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        self.received = number
        if self.stop is None:
            log.info("%s: ending before anything was read", signal.Signals(number).name)
            raise SystemExit(self._early_code(number))
        log.info("%s: finishing the work in progress, then ending", signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        self.stop()


@contextmanager
def stopped_by_signals(early_code: Callable[[int], int] = lambda _number: 0) -> Iterator[Signals]:
    """Let SIGTERM and SIGINT end the body gracefully; a second signal of a kind has its usual effect.

    A worker that is asked to stop has not failed, so `early_code` is 0 unless a command says otherwise.
    """
    signals = Signals(early_code)
    usual = {number: signal.signal(number, signals) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def describe(counters: Counters) -> str:
    """The counts in one line. What is in parentheses adds up to what was published."""
    seconds, dropped = counters.working_s, dict(counters.dropped_fields)
    return (
        f"{counters.published} published ({counters.records} enriched, {counters.dead_letters.total()} dead letters, "
        f"{counters.tombstones} tombstones, {counters.skipped} skipped) in {seconds:.1f} s, "
        f"{counters.published / max(seconds, 1e-9):.1f}/s; "
        f"{counters.windows} windows in {counters.batches} batches, {100 * counters.padding_share:.1f} % padding; "
        f"{counters.transactions} transactions, {counters.recoveries} recoveries"
        + (f"; optional fields dropped: {', '.join(f'{n} {name}' for name, n in dropped.items())}" if dropped else "")
    )


@contextmanager
def progress_lines(counters: Counters, every_s: float) -> Iterator[None]:
    """Log a line of progress every `every_s` seconds while the body runs."""
    before, before_s = counters.published, time.monotonic()

    def report() -> None:
        nonlocal before, before_s
        now, now_s = counters.published, time.monotonic()
        rate = (now - before) / (now_s - before_s)
        log.info(
            "%d read, %d published, %.1f/s, %.1f %% padding", counters.read, now, rate, 100 * counters.padding_share
        )
        before, before_s = now, now_s

    with repeating(report, every_s):
        yield


@contextmanager
def repeating(report: Callable[[], object], every_s: float) -> Iterator[None]:
    """Call `report` every `every_s` seconds on another thread while the body runs."""
    over = threading.Event()

    def keep_reporting() -> None:
        while not over.wait(every_s):
            report()

    thread = threading.Thread(target=keep_reporting, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
