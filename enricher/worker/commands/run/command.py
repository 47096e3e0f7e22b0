"""The command `run`: a worker; with `--processes` the parent of several workers; with `--process` one of its children."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import orjson
import typer

from enricher.errors import SettingsError
from enricher.worker.build.building import kafka_worker
from enricher.worker.build.kafka import kafka_config
from enricher.worker.build.observing import label_baseline, observed, worker_facts
from enricher.worker.build.record_schema import check_record_schema
from enricher.worker.build.registry import check_registry
from enricher.worker.build.tasks import load_tasks
from enricher.worker.commands.progress import describe, progress_lines
from enricher.worker.commands.run.health import parent_health, view_of, worker_health
from enricher.worker.commands.run.parent import RunOptions, supervisor
from enricher.worker.commands.run.share import Share
from enricher.worker.commands.signals import Signals, stopped_by_signals
from enricher.worker.health.processes import TURN_LIMIT_S
from enricher.worker.health.subject import LOADING
from enricher.worker.kafka.shared.precheck import check_start
from enricher.worker.processes import ParentLink, ProcessState
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.settings import Settings, load_settings, log_files, variable_name
from enricher.worker.telemetry import logs
from enricher.worker.telemetry.otlp import exported_metrics, exported_spans

log = logging.getLogger("enricher.worker.commands.run")

_AROUND_S = 90.0
"""The bound of what is done around a worker, outside all other guards: the last export of spans may take 30 s."""


def run(
    context: typer.Context,
    *,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="End once everything that was in the input topic at the start is published (for backfills and tests).",
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Worker processes on this machine, under a parent that restarts those that die; for models too small for "
            "one process to keep the device busy. Each is a member of the group, named INSTANCE-0, INSTANCE-1, ...",
        ),
    ] = 1,
    summary: Annotated[
        Path | None,
        typer.Option(
            help="Write the counts as JSON to this file at the end; with --processes to NAME-0.json, NAME-1.json, ..."
        ),
    ] = None,
    report_every_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two progress lines in the log.")
    ] = 10.0,
    process: Annotated[
        str | None, typer.Option(hidden=True, help="INDEX/COUNT: run as a child of --processes.")
    ] = None,
) -> None:
    """Read articles from Kafka, enrich them, write the records and commit, exactly once."""
    # From the environment alone, because reading the settings may fail.
    form = os.environ.get(variable_name("log", "format"))
    logs.set_form("json" if form == "json" else "text" if form == "text" else "auto")
    options = RunOptions(until_caught_up, summary, report_every_s)
    watchdog = Watchdog(timer=context.find_object(ProcessTimer))
    _require_writable(summary)
    if process:
        _run_child(Share.parse(process), options, watchdog)
    elif processes > 1:
        _run_parent(processes, options, watchdog)
    else:
        settings = _settings()
        with stopped_by_signals() as signals:
            _work(settings, options, signals, watchdog)


def _settings(process: int | None = None) -> Settings:
    """Load the settings and set up the log; logs which files they come from, also if they are invalid.

    A child, which has the number of its process, does not: its parent has logged them.
    """
    try:
        settings = load_settings(tell_files=False)
    except SettingsError:
        with suppress(SettingsError, OSError):  # an unreadable file: the error that is raised already says so
            log_files()
        raise
    logs.set_up(settings.log.format, repeats_per_minute=settings.log.repeats_per_minute, process=process)
    if process is None:
        log_files()
    return settings


def _require_writable(summary: Path | None) -> None:
    """Raise SettingsError at the start instead of at the end of a long run."""
    if summary and (summary.is_dir() or not os.access(summary.parent, os.W_OK)):
        raise SettingsError(f"--summary: {summary} cannot be written, or its folder does not exist")


def _run_parent(count: int, options: RunOptions, watchdog: Watchdog) -> None:
    settings = _settings()
    # The children log into pipes; only the parent knows whether the log goes to a terminal.
    os.environ[variable_name("log", "format")] = logs.resolved(settings.log.format)
    parent = supervisor(settings, count, options)
    with (
        watchdog,
        watchdog.guard("opening or closing health and telemetry", _AROUND_S),
        stopped_by_signals() as signals,
        parent_health(settings, parent),
    ):
        signals.stop = parent.stop
        code = parent.run(lambda: watchdog.guard("one turn of the parent", 2 * TURN_LIMIT_S))
    if code:
        raise typer.Exit(code)


def _run_child(share: Share, options: RunOptions, watchdog: Watchdog) -> None:
    """A worker that reports its state to its parent, and ends when its parent does."""
    link = ParentLink()
    with stopped_by_signals() as signals:
        link.end_with_parent()
        _work(share.of(_settings(share.index)), options, signals, watchdog, link)


def _work(
    settings: Settings, options: RunOptions, signals: Signals, watchdog: Watchdog, link: ParentLink | None = None
) -> None:
    """Build a worker and run it. Until it has connected, health reports it as starting."""
    with (
        watchdog,
        watchdog.guard("opening or closing health and telemetry", _AROUND_S),
        exported_spans(worker_facts(settings)) as spans,
        ExitStack() as exports,
        worker_health(settings, link) as health,
    ):
        with watchdog.guard("starting", settings.worker.start_timeout_s):
            health.starts("checking topics and rights")
            check_registry(settings)
            check_start(kafka_config(settings))
            check_record_schema(settings)
            label_baseline(settings)  # a file that cannot be read ends the worker here, not after the model is loaded
            health.starts(LOADING)
            tasks = load_tasks(settings)
            health.starts("connecting with the brokers")
            worker = kafka_worker(
                settings, tasks, guard=watchdog.guard, until_caught_up=options.until_caught_up, tracing=spans
            )

        def connected() -> None:
            seen = observed(settings, tasks, worker)
            exports.enter_context(exported_metrics(seen))
            health.shows(view_of(worker, watchdog, seen))
            if link:
                link.tell(ProcessState.READY)
            reporting.enter_context(progress_lines(worker.counters, options.report_every_s))

        def stop() -> None:
            if link:
                link.tell(ProcessState.DRAINING)
            worker.stop()

        signals.stop = stop
        try:
            with ExitStack() as reporting:
                worker.run(connected)
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
