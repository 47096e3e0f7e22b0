"""What a command that runs a worker tells people: the counts in a line, at the end and now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from enricher.stats.counters import Tally

log = logging.getLogger("enricher.commands.run")


def describe(tally: Tally) -> str:
    """The counts in a line for people."""
    seconds = tally.working_s
    return (
        f"{tally.published} published ({tally.records} enriched, {tally.dead_letters.total()} dead letters, "
        f"{tally.tombstones} tombstones) in {seconds:.1f} s, {tally.published / max(seconds, 1e-9):.1f}/s; "
        f"{tally.windows} windows in {tally.batches} batches, {100 * tally.padding_share:.1f} % padding; "
        f"{tally.transactions} transactions, {tally.recoveries} recoveries"
    )


@contextmanager
def progress_lines(tally: Tally, every_s: float) -> Iterator[None]:
    """A line of progress now and then."""
    before, before_s = tally.published, time.monotonic()

    def report() -> None:
        nonlocal before, before_s
        now, now_s = tally.published, time.monotonic()
        rate = (now - before) / (now_s - before_s)
        log.info("%d read, %d published, %.1f/s, %.1f %% padding", tally.read, now, rate, 100 * tally.padding_share)
        before, before_s = now, now_s

    with repeated(report, every_s):
        yield


@contextmanager
def repeated(report: Callable[[], object], every_s: float) -> Iterator[None]:
    """Call `report` every so often while the body runs, on a thread of its own: it only reads counts."""
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
