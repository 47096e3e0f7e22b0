"""One worker process from its settings to its end: checks, model, telemetry, health, the loop, the counts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import orjson

from enricher.worker.commands.run.health import view_of, worker_health
from enricher.worker.commands.run.parent import RunOptions
from enricher.worker.commands.running import Signals, describe, progress_lines
from enricher.worker.health.worker_health import LOADING
from enricher.worker.kafka.precheck import check_start
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from enricher.worker.stats import Counters
from enricher.worker.telemetry.instruments import INSTRUMENTS
from enricher.worker.telemetry.otlp import export_metrics, export_spans
from enricher.worker.wiring.formats import check_formats, check_record_schema
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.wiring.loaded_tasks import load_tasks
from enricher.worker.wiring.workers import kafka_worker, observe, worker_facts

log = logging.getLogger("enricher.worker.commands.run")

AROUND_S = 90.0
"""The bound of opening and closing health and telemetry, outside other guards: the last export of spans may take 30 s."""

Progress = Callable[[Counters, float], AbstractContextManager[None]]
"""Reports the counts at intervals of that many seconds."""


def work(
    settings: Settings,
    options: RunOptions,
    signals: Signals,
    watchdog: Watchdog,
    *,
    replay: str = "",
    progress: Progress = progress_lines,
) -> None:
    """Build a worker and run it. Until it has connected, health reports it as starting.

    `replay`: the name of the range that the group replays.
    """
    with (
        watchdog,
        watchdog.guard("opening or closing health and telemetry", AROUND_S),
        export_spans(worker_facts(settings)) as spans,
        ExitStack() as exports,
        worker_health(settings) as health,
    ):
        with watchdog.guard("starting", settings.worker.start_timeout_s):
            health.note_step("checking topics and rights")
            check_formats(settings)
            check_start(kafka_config(settings))
            check_record_schema(settings)
            health.note_step(LOADING)
            tasks = load_tasks(settings)
            health.note_step("connecting with the brokers")
            worker = kafka_worker(
                settings,
                tasks,
                guard=watchdog.guard,
                until_caught_up=options.until_caught_up,
                replay=replay,
                tracing=spans,
            )

        def on_connected() -> None:
            seen = observe(settings, tasks, worker)
            exports.enter_context(export_metrics(seen, INSTRUMENTS))
            health.show(view_of(worker, watchdog, seen))
            reporting.enter_context(progress(worker.counters, options.report_every_s))

        signals.stop = worker.stop
        try:
            with ExitStack() as reporting:
                worker.run(on_connected)
        finally:
            if options.summary:
                _write(options.summary, orjson.dumps(worker.counters.as_dict()))
        log.info("done: %s", describe(worker.counters))


def _write(summary: Path, counts: bytes) -> None:
    """Log a failure instead of raising it: it must not replace the error that ended the run."""
    try:
        summary.write_bytes(counts)
    except OSError as error:
        log.error("cannot write the summary %s: %s", summary, error.strerror)  # noqa: TRY400  the reason is enough
