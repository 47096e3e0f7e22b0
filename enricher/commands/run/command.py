"""The command `run`: alone it is a worker; with `--processes` the parent of several; with `--process` one of those."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import orjson
import typer

from enricher.app import (
    Exports,
    exports,
    kafka_config,
    kafka_worker,
    load_model,
    log_format,
    observed,
    set_early_log_form,
    set_up_log,
)
from enricher.commands.run.health import parent_health, view_of, worker_health
from enricher.commands.run.parent import Wish, supervisor
from enricher.commands.run.reporting import describe, progress_lines
from enricher.commands.run.share import Share
from enricher.commands.run.signals import stopped_by_signals
from enricher.errors import SettingsError
from enricher.health import LOADING, WorkerHealth
from enricher.kafka.precheck import check_start
from enricher.processes import ParentLink, ProcessState
from enricher.runtime.watchdog import Watchdog
from enricher.settings import Settings, load_settings, log_files, variable_name
from enricher.worker.loop import Worker

log = logging.getLogger("enricher.commands.run")


def run(
    *,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="End when everything that was in the input topic at the start is published (for backfills and tests).",
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Worker processes on this machine, under one parent that restarts dead ones; for models too small to fill "
            "the device from one. Each is a member of the group, named INSTANCE-0, INSTANCE-1, ...",
        ),
    ] = 1,
    summary: Annotated[
        Path | None,
        typer.Option(
            help="Write the counts as JSON to this file at the end; with --processes NAME-0.json, NAME-1.json, ..."
        ),
    ] = None,
    report_every_s: Annotated[float, typer.Option(min=0.1, help="Seconds between two lines of progress.")] = 10.0,
    process: Annotated[str | None, typer.Option(hidden=True, help="INDEX/COUNT: a child of --processes.")] = None,
) -> None:
    """Read articles from Kafka, enrich them, write the records and commit, exactly once."""
    set_early_log_form()
    wish = Wish(until_caught_up, summary, report_every_s)
    _require_writable(summary)
    if process:
        _run_child(Share.parse(process), wish)
    elif processes > 1:
        _run_parent(processes, wish)
    else:
        _run_alone(_settings(), wish)


def _settings() -> Settings:
    """What is in force; sets up the log, and tells in it the files behind that, also where they are wrong."""
    try:
        settings = load_settings(tell_files=False)
    except SettingsError:
        with suppress(SettingsError, OSError):  # a file that cannot be read, which the error tells already
            log_files()
        raise
    set_up_log(settings)
    log_files()
    return settings


def _require_writable(summary: Path | None) -> None:
    """Now, and not at the end of a long run."""
    if summary and (summary.is_dir() or not os.access(summary.parent, os.W_OK)):
        raise SettingsError(f"--summary: {summary} cannot be written, or its folder is not there")


def _run_alone(settings: Settings, wish: Wish) -> None:
    with (
        stopped_by_signals() as signals,
        exports(settings) as leaving,
        Watchdog() as watchdog,
        worker_health(settings) as health,
    ):
        worker, connected = _built(settings, wish, watchdog, health, leaving)
        signals.stop(worker)
        _run(worker, wish, connected)


def _run_parent(count: int, wish: Wish) -> None:
    settings = _settings()
    # The children write into pipes of ours: only we know whether a person reads it.
    os.environ[variable_name("log", "format")] = log_format(settings)
    parent = supervisor(settings, count, wish)
    with stopped_by_signals() as signals, parent_health(settings, parent):
        signals.stop(parent)
        code = parent.run()
    if code:
        raise typer.Exit(code)


def _run_child(share: Share, wish: Wish) -> None:
    """A worker that tells its parent how it stands, and ends with it."""
    link = ParentLink()
    with stopped_by_signals() as signals, Watchdog() as watchdog:
        link.end_with_parent()
        whole = load_settings(tell_files=False)  # its parent has told them
        set_up_log(whole, share.index)
        settings = share.of(whole)
        with exports(settings) as leaving, worker_health(settings, link) as health:
            worker, connected = _built(settings, wish, watchdog, health, leaving)
            telling = _Telling(link, worker, connected)
            signals.stop(telling)
            _run(worker, wish, telling.connected)


@dataclass(frozen=True, slots=True)
class _Telling:
    """A worker whose parent is told when it has connected, and when it is asked to end."""

    link: ParentLink
    worker: Worker
    shows: Callable[[], None]

    def connected(self) -> None:
        self.shows()
        self.link.tell(ProcessState.READY)

    def stop(self) -> None:
        self.link.tell(ProcessState.DRAINING)
        self.worker.stop()


def _built(
    settings: Settings, wish: Wish, watchdog: Watchdog, health: WorkerHealth, leaving: Exports
) -> tuple[Worker, Callable[[], None]]:
    """A worker, and what it calls once it has connected: until then it is seen as starting."""
    health.starts("looking at topics and rights")
    check_start(kafka_config(settings))
    health.starts(LOADING)
    model = load_model(settings)
    health.starts("connecting with the brokers")
    worker = kafka_worker(
        settings, model, until_caught_up=wish.until_caught_up, guard=watchdog.guard, tracing=leaving.tracing
    )

    def connected() -> None:
        seen = observed(settings, model, worker)
        leaving.metrics_of(seen)
        health.shows(view_of(worker, watchdog, seen))

    return worker, connected


def _run(worker: Worker, wish: Wish, connected: Callable[[], None]) -> None:
    def begin() -> None:
        connected()
        reporting.enter_context(progress_lines(worker.counters, wish.report_every_s))

    try:
        with ExitStack() as reporting:
            worker.run(begin)
    finally:
        if wish.summary:
            _write(wish.summary, orjson.dumps(worker.counters.as_dict()))
    log.info("done: %s", describe(worker.counters))


def _write(summary: Path, counts: bytes) -> None:
    """What ended the run is worth more than its counts, so trouble with these never takes its place."""
    try:
        summary.write_bytes(counts)
    except OSError as error:
        log.error("cannot write the summary %s: %s", summary, error.strerror)  # noqa: TRY400  the reason is all there is
