"""Progress of a command that runs a worker: a line in the log at intervals, and a summary at the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from enricher.worker.stats.counters import Counters

log = logging.getLogger("enricher.worker.commands.run")


def describe(counters: Counters) -> str:
    """The counts in one line."""
    seconds, dropped = counters.working_s, dict(counters.dropped_fields)
    return (
        f"{counters.published} published ({counters.records} enriched, {counters.dead_letters.total()} dead letters, "
        f"{counters.tombstones} tombstones) in {seconds:.1f} s, {counters.published / max(seconds, 1e-9):.1f}/s; "
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
