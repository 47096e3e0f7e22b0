"""`enricher enrich FILE`: the same worker without Kafka, between files of JSON lines or Parquet."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack, closing, redirect_stdout
from pathlib import Path
from typing import Annotated, BinaryIO, TypeGuard

import typer

from enricher.errors import FatalError, NotEnriched, SettingsError
from enricher.worker.articles.record_values import record_values
from enricher.worker.commands.running import describe, interrupt_code, progress_lines, stopped_by_signals
from enricher.worker.files import STDIN, LineSink, LineSource, partial_name, whole_file
from enricher.worker.files.exchange import AnswerSink
from enricher.worker.files.finite_sources import PARQUET_SUFFIX, is_parquet, other_format, require_parquet
from enricher.worker.loop.ports import Sink
from enricher.worker.runtime.watchdog import START_TIMEOUT_S, ProcessTimer, Watchdog
from enricher.worker.settings import Settings, load_settings
from enricher.worker.stats import Counters
from enricher.worker.wiring.formats import load_transforms
from enricher.worker.wiring.loaded_tasks import load_tasks
from enricher.worker.wiring.workers import file_worker

log = logging.getLogger(__name__)

_PROGRESS_S = 5.0


def enrich(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(help="JSON lines, one article each, plain or gzip, or a Parquet file; `-` is standard input."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="File for the enriched records: JSON lines, or Parquet if its name ends in .parquet. Default: standard "
            "output.",
        ),
    ] = None,
    dead_letters: Annotated[
        Path | None,
        typer.Option(
            help="File for the lines that cannot be enriched, with reasons. Default: only the reasons, on standard error."
        ),
    ] = None,
    *,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 10 if any line could not be enriched, not only if all could not."),
    ] = False,
) -> None:
    """Enrich a file of articles without Kafka: an archive, a first try, or one article to debug.

    The columns of a Parquet file are the fields of its articles (`articles.fields`). An output in Parquet has one row for
    each of the input, in its order.

    The files of --out and --dead-letters get their names once they are complete; until then, and after Ctrl-C or an
    error, the part written so far is in FILE.partial. Exit codes: 0 if the whole input was read, 10 if none of its lines
    could be enriched (with --strict: if any could not), 130 after Ctrl-C, 143 after SIGTERM.
    """
    settings = load_settings()
    load_transforms(settings)
    _require_different(file, output, dead_letters)
    _require_readable(file)
    archive = _is_archive(file, output)
    if archive and dead_letters:
        raise SettingsError("--dead-letters: what cannot be enriched is a row of the Parquet output, with the reason")
    source = _source(settings, file)
    counters = _run(context, settings, source, output, dead_letters, archive=archive)
    bad = counters.dead_letters.total()
    if bad and (strict or not counters.records):
        known = "" if counters.records else other_format(source.first_line)
        raise NotEnriched(
            f"{bad} of {bad + counters.records} lines could not be enriched{known and f'. {file}: {known}'}"
        )


def _run(
    context: typer.Context,
    settings: Settings,
    source: LineSource,
    output: Path | None,
    dead_letters: Path | None,
    *,
    archive: bool,
) -> Counters:
    """Enrich the file. The outputs are opened before the model is loaded, which takes longer."""
    guarding = Watchdog(timer=context.find_object(ProcessTimer))
    with stopped_by_signals(interrupt_code) as signals, ExitStack() as files, guarding as watchdog:
        records = _open(files, output, sys.stdout.buffer)
        sink: Sink
        if archive:
            from enricher.worker.files.parquet import ParquetOutput  # noqa: PLC0415  of an extra

            rows = files.enter_context(closing(ParquetOutput(records)))
            sink = AnswerSink(record_values, rows.write, committed=source.note_committed)
        else:
            letters = _open(files, dead_letters, sys.stderr.buffer)
            # Standard error is a log, which holds no lines.
            sink = LineSink(records, letters, committed=source.note_committed, keep_lines=dead_letters is not None)
        with watchdog.guard("starting", START_TIMEOUT_S):
            tasks = load_tasks(settings, every_shape=False)
        worker = file_worker(settings, tasks, source, sink, guard=watchdog.guard)
        signals.stop = worker.stop
        # A transform may print, and standard output has records.
        with progress_lines(worker.counters, _PROGRESS_S), redirect_stdout(sys.stderr):
            worker.run()
        log.info("done: %s", describe(worker.counters))
        if signals.received and not source.caught_up():
            raise typer.Exit(interrupt_code(signals.received))
    return worker.counters


def _is_archive(file: Path, output: Path | None) -> bool:
    """Whether the output will be Parquet. Raises SettingsError, before any work, for files that cannot be used."""
    archive = output is not None and output.suffix == PARQUET_SUFFIX
    if archive and not is_parquet(file):
        raise SettingsError(f"{output}: only articles in Parquet are written as Parquet, and {file} is something else")
    if output and output.is_dir():
        raise SettingsError(f"{output} is a folder: name a file for the output")
    return archive


def _source(settings: Settings, file: Path) -> LineSource:
    """The articles of a file, lines or Parquet. Raises SettingsError, FatalError."""
    if not is_parquet(file):
        return LineSource(file)
    require_parquet(file)
    from enricher.worker.files.parquet import ParquetSource, Wanted  # noqa: PLC0415  of an extra

    articles, deleted = settings.articles, settings.articles.deleted
    wanted = Wanted(
        articles.fields,
        articles.metadata,
        scalar_ids=articles.scalar_ids,
        # A transform may need any column.
        whole=settings.output.article == "whole" or settings.articles.transform is not None,
        deleted=[deleted.field, *([deleted.id] if deleted.id else [])] if deleted else (),
    )
    return ParquetSource(file, wanted)


def _require_readable(file: Path) -> None:
    """Fail before the model is loaded. A pipe is not tried: it can be opened only once."""
    if file == STDIN or file.is_fifo():
        return
    try:
        file.open("rb").close()
    except OSError as error:
        raise FatalError(f"cannot open {file}: {error.strerror}") from error


def _require_different(file: Path, *outputs: Path | None) -> None:
    """Refuse to open a file twice: opening it for writing empties it. Devices such as `/dev/null` may be named twice."""
    named = [path for path in outputs if _is_file(path)]
    files = [path.resolve() for path in (file, *named) if _is_file(path)] + [partial_name(path) for path in named]
    if len(set(files)) < len(files):
        message = "the input, --out and --dead-letters must be different files, and none another's FILE.partial"
        raise SettingsError(message)


def _is_file(path: Path | None) -> TypeGuard[Path]:
    return path is not None and path != STDIN and (path.is_file() or not path.exists())


def _open(files: ExitStack, path: Path | None, default: BinaryIO) -> BinaryIO:
    if path is None or path == STDIN:
        return sys.stdout.buffer if path else default
    return files.enter_context(whole_file(path))
