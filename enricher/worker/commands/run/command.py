"""The command `run`: a worker; with `--processes` the parent of several workers; with `--process` one of its children."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from enricher.errors import SettingsError
from enricher.worker.commands.run.health import parent_health
from enricher.worker.commands.run.parent import RunOptions, worker_processes
from enricher.worker.commands.run.share import Share
from enricher.worker.commands.run.work import work
from enricher.worker.commands.running import stopped_by_signals
from enricher.worker.processes import end_with_parent
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.settings import Settings, load_settings, log_settings_files, variable_name
from enricher.worker.telemetry import logs

log = logging.getLogger("enricher.worker.commands.run")


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
            help="Worker processes on this machine, for models too small for one process to keep the device busy. The first "
            "that ends ends all. Each is a member of the group, named INSTANCE-0, INSTANCE-1, ...",
        ),
    ] = 1,
    summary: Annotated[
        Path | None,
        typer.Option(
            help="Write the counts as JSON to this file at the end; with --processes to NAME-0.json, NAME-1.json, ..."
        ),
    ] = None,
    report_every_s: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between two progress lines in the log.")
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
    require_writable(summary)
    if process:
        _run_child(Share.parse(process), options, watchdog)
    elif processes > 1:
        _run_parent(processes, options, watchdog)
    else:
        settings = load_and_log_settings()
        with stopped_by_signals() as signals:
            work(settings, options, signals, watchdog)


def load_and_log_settings(process: int | None = None) -> Settings:
    """Load the settings and set up the log; logs which files they come from, also if they are invalid.

    A child, which has the number of its process, does not log the files: its parent has.
    """
    try:
        settings = load_settings(log_files=False)
    except SettingsError:
        with suppress(SettingsError, OSError):  # an unreadable file: the error that is raised already says so
            log_settings_files()
        raise
    logs.set_up(settings.log.format, process=process)
    if process is None:
        log_settings_files()
    return settings


def require_writable(summary: Path | None) -> None:
    """Raise SettingsError at the start instead of at the end of a long run."""
    if summary and (summary.is_dir() or not os.access(summary.parent, os.W_OK)):
        raise SettingsError(f"--summary: {summary} cannot be written, or its folder does not exist")


def _run_parent(count: int, options: RunOptions, watchdog: Watchdog) -> None:
    settings = load_and_log_settings()
    processes = worker_processes(settings, count, options)
    with watchdog, stopped_by_signals() as signals, parent_health(settings, count, processes):
        signals.stop = processes.stop
        code = processes.run(watchdog.guard)
    if code:
        raise typer.Exit(code)


def _run_child(share: Share, options: RunOptions, watchdog: Watchdog) -> None:
    """A worker that ends when its parent does, or when its parent asks it to."""
    with stopped_by_signals() as signals:
        end_with_parent()
        work(share.of(load_and_log_settings(share.index)), options, signals, watchdog)
