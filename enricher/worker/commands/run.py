"""`enricher run`: a worker from its settings to its end, with its health; or the parent of several, each a child process.

With `--processes N` the parent starts this command N times with `--process`. What a worker is made of is in `wiring/`, and
how its probes answer in `health/`; here is only the order of what happens.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import orjson
import typer

from enricher.errors import SettingsError
from enricher.worker.commands.running import Signals, describe, progress_lines, repeating, stopped_by_signals
from enricher.worker.health.routes import Route, common_probes, page_routes, probe_routes
from enricher.worker.health.samples import EVERY_S
from enricher.worker.health.server import HealthServer, connectable
from enricher.worker.health.worker_health import LOADING, View, Waits, WorkerHealth
from enricher.worker.inference.device.hardware import available_cores, resolve_device
from enricher.worker.kafka.precheck import check_start
from enricher.worker.kafka.tokens import wait_for_token
from enricher.worker.loop.loop import Worker
from enricher.worker.processes import Processes, end_with_parent
from enricher.worker.runtime.watchdog import START_TIMEOUT_S, ProcessTimer, Watchdog
from enricher.worker.settings import Settings, load_settings, log_settings_file, variable_name
from enricher.worker.settings.worker import USUAL_PORT, USUAL_PROBE_PORT, HealthSettings
from enricher.worker.telemetry import logs
from enricher.worker.telemetry.observed import Observed
from enricher.worker.telemetry.otlp import export_spans
from enricher.worker.wiring.formats import check_formats, check_record_schema
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.wiring.loaded_tasks import load_tasks
from enricher.worker.wiring.workers import kafka_worker, observe, worker_facts

log = logging.getLogger(__name__)


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
            log_settings_file()
        raise
    logs.set_up(settings.log.format, process=process)
    if process is None:
        log_settings_file()
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


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of the command line that the parent passes on to its children."""

    until_caught_up: bool
    summary: Path | None
    report_every_s: float


def worker_processes(settings: Settings, count: int, options: RunOptions) -> Processes:
    """The worker processes, `count` of them; their `run` starts them."""
    return Processes(
        [child_command(Share(index, count), options) for index in range(count)],
        # A drain ends with a transaction, which may take up to the transaction timeout.
        grace_s=settings.worker.drain_timeout_s + settings.kafka.transaction_timeout_s,
        until_done=options.until_caught_up,
    )


def child_command(share: Share, options: RunOptions) -> Sequence[str]:
    """The command line of one child."""
    level = logging.getLogger().level
    verbosity = ["--verbose"] if level <= logging.DEBUG else ["--quiet"] if level >= logging.WARNING else []
    return [
        *(sys.executable, "-m", "enricher", *verbosity),
        *("run", "--process", str(share), "--report-every-s", str(options.report_every_s)),
        *(["--until-caught-up"] if options.until_caught_up else []),
        *(["--summary", str(child_summary(options.summary, share.index))] if options.summary else []),
    ]


def child_summary(summary: Path, index: int) -> Path:
    """The file for one child's counts: `counts.json` becomes `counts-0.json`."""
    return summary.with_name(f"{summary.stem}-{index}{summary.suffix}")


@dataclass(frozen=True, slots=True)
class Share:
    """Process `index` of `count`, written as `0/4`."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Share:
        """Parse the written form. Raises SettingsError."""
        index, _, count = text.partition("/")
        if index.isdecimal() and count.isdecimal() and int(index) < int(count):
            return cls(int(index), int(count))
        message = f"--process is set by the parent of several processes and takes INDEX/COUNT, not '{text}'"
        raise SettingsError(message)

    def of(self, settings: Settings) -> Settings:
        """The settings of this process: its instance name, its ports, and by default only its share of the cores."""
        kafka, model, worker = settings.kafka, settings.model, settings.worker
        cores, concurrency = available_cores(), model.concurrency
        if concurrency is None and resolve_device(model.device) == "cpu":
            concurrency = max(1, cores // self.count)
        tokenizer_threads = worker.tokenizer_threads or max(1, min(4, cores // (2 * self.count)))
        return settings.model_copy(
            update={
                "kafka": kafka.model_copy(update={"instance": f"{kafka.instance}-{self.index}"}),
                "model": model.model_copy(update={"concurrency": concurrency}),
                "worker": worker.model_copy(update={"tokenizer_threads": tokenizer_threads}),
                "health": self.of_health(settings.health),
            }
        )

    def of_health(self, health: HealthSettings) -> HealthSettings:
        """The settings of health with the ports of this process, which must be free."""
        port, probe_port = health.port or USUAL_PORT, health.probe_port or USUAL_PROBE_PORT
        return health.model_copy(update={"port": port + self.index, "probe_port": probe_port + 1 + self.index})


AROUND_S = 90.0
"""The bound of opening and closing health and telemetry, outside other guards: the last export of spans may take 30 s."""


def work(
    settings: Settings,
    options: RunOptions,
    signals: Signals,
    watchdog: Watchdog,
) -> None:
    """Build a worker and run it. Until it has connected, health reports it as starting."""
    with (
        watchdog,
        watchdog.guard("opening or closing health and telemetry", AROUND_S),
        export_spans(worker_facts(settings)) as spans,
        worker_health(settings) as health,
    ):
        with watchdog.guard("starting", START_TIMEOUT_S):
            health.note_step("checking topics and rights")
            check_formats(settings)
            config = kafka_config(settings)
            wait_for_token(config.login, settings.worker.recovery_timeout_s)
            check_start(config)
            check_record_schema(settings)
            health.note_step(LOADING)
            tasks = load_tasks(settings)
            health.note_step("connecting with the brokers")
            worker = kafka_worker(
                settings,
                tasks,
                guard=watchdog.guard,
                until_caught_up=options.until_caught_up,
                tracing=spans,
            )

        def on_connected() -> None:
            seen = observe(settings, tasks, worker)
            health.show(view_of(worker, watchdog, seen))
            reporting.enter_context(progress_lines(worker.counters, options.report_every_s))

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


@contextmanager
def worker_health(settings: Settings) -> Iterator[WorkerHealth]:
    """Serve a worker's health while the body runs, which begins before the model is loaded."""
    health = WorkerHealth(worker_facts(settings))
    with serve_health(page_routes(health), probe_routes(health), settings.health), repeating(health.sample, EVERY_S):
        yield health


@contextmanager
def parent_health(settings: Settings, count: int, processes: Processes) -> Iterator[None]:
    """Serve the common probes of `count` processes; each serves its own, and its page and metrics."""
    shares = [Share(index, count).of_health(settings.health) for index in range(count)]

    def ports() -> Mapping[int, int]:
        return {index: port for index in processes.running() if (port := shares[index].probe_port)}

    if not settings.health.enabled:
        yield
        return
    with _probe_server(common_probes(connectable(settings.health.host), ports), settings.health) as server:
        log.info("probes of all processes: %slivez, /readyz and /startupz", server.url)
        yield


def view_of(worker: Worker, watchdog: Watchdog, seen: Observed) -> View:
    """A worker as its health reads it."""
    pacing, recovery = worker.pacing, worker.recovery
    return View(
        observed=seen,
        watched=watchdog.call_in_progress,
        waits=lambda: Waits(pacing.engine_waits_s, pacing.tokenizer_waits_s, pacing.engine_timeout_s),
        recoveries=lambda: tuple(recovery.noted),
    )


@contextmanager
def serve_health(pages: Mapping[str, Route], probes: Mapping[str, Route], settings: HealthSettings) -> Iterator[None]:
    """Serve pages and probes on the ports of the settings, if that is enabled, while the body runs."""
    if not settings.enabled:
        yield
        return
    with (
        HealthServer(
            pages, host=settings.host, port=settings.port, usual_port=USUAL_PORT, setting="health.port"
        ) as page,
        _probe_server(probes, settings) as probe,
    ):
        log.info("status page %s, metrics at /metrics; probes %slivez, /readyz and /startupz", page.url, probe.url)
        yield


def _probe_server(probes: Mapping[str, Route], settings: HealthSettings) -> HealthServer:
    return HealthServer(
        probes, host=settings.host, port=settings.probe_port, usual_port=USUAL_PROBE_PORT, setting="health.probe_port"
    )
