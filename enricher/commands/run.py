"""`enricher run`: the worker between two Kafka topics."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import orjson
import typer

from enricher.app import kafka_worker, load_model
from enricher.settings import load_settings
from enricher.tally import Tally
from enricher.worker import Worker

log = logging.getLogger(__name__)


def run(
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="End when everything that was in the input topic at the start is published (for backfills and tests).",
        ),
    ] = False,
    summary: Annotated[Path | None, typer.Option(help="Write the counts as JSON to this file at the end.")] = None,
    report_every_s: Annotated[float, typer.Option(min=0.1, help="Seconds between two lines of progress.")] = 10.0,
) -> None:
    """Read articles from Kafka, enrich them, write the records and commit, exactly once."""
    with stopped_by_signals() as signals:
        settings = load_settings()
        model = load_model(settings)
        worker = kafka_worker(settings, model, until_caught_up=until_caught_up)
        signals.stop(worker)
        _run(worker, summary, report_every_s)


def _run(worker: Worker, summary: Path | None, report_every_s: float) -> None:
    try:
        with progress_lines(worker.tally, report_every_s):
            worker.run()
    finally:
        if summary:
            summary.write_bytes(orjson.dumps(worker.tally.as_dict()))
    log.info("done: %s", describe(worker.tally))


def describe(tally: Tally) -> str:
    """The counts in a line for people."""
    seconds = tally.working_s
    return (
        f"{tally.published} published ({tally.records} enriched, {tally.dead_letters.total()} dead letters, "
        f"{tally.tombstones} tombstones) in {seconds:.1f} s, {tally.published / max(seconds, 1e-9):.1f}/s; "
        f"{tally.windows} windows in {tally.batches} batches, {100 * tally.padding_share:.1f} % padding; "
        f"{tally.transactions} transactions, {tally.recoveries} recoveries"
    )


class Signals:
    """What SIGTERM and SIGINT do: end the process while it starts, ask the worker to stop once there is one."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def stop(self, worker: Worker) -> None:
        """From now on signals are for this worker."""
        self._worker = worker

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        if self._worker is None:
            log.info("%s: leaving before anything was read", signal.Signals(number).name)
            raise SystemExit(0)
        log.info("%s: finishing what is on the device, then leaving", signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        self._worker.stop()


@contextmanager
def stopped_by_signals() -> Iterator[Signals]:
    """SIGTERM and SIGINT end things in good order; a second one of them takes its usual way."""
    signals = Signals()
    usual = {number: signal.signal(number, signals) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


@contextmanager
def progress_lines(tally: Tally, every_s: float) -> Iterator[None]:
    """A line of progress now and then, from a thread of its own that only reads counts."""
    over = threading.Event()

    def report() -> None:
        before, before_s = tally.published, time.monotonic()
        while not over.wait(every_s):
            now, now_s = tally.published, time.monotonic()
            rate = (now - before) / (now_s - before_s)
            log.info("%d read, %d published, %.1f/s, %.1f %% padding", tally.read, now, rate, 100 * tally.padding_share)
            before, before_s = now, now_s

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
