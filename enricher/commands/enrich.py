"""`enricher enrich FILE`: the same pipeline without Kafka, JSON lines in, JSON lines out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from enricher.app import file_worker, load_model
from enricher.commands.run import describe, progress_lines, repeated, stopped_by_signals
from enricher.errors import FatalError, SettingsError
from enricher.files import LineSink, LineSource
from enricher.settings import load_settings
from enricher.worker import Worker

log = logging.getLogger(__name__)

_STANDARD = Path("-")


def enrich(
    file: Annotated[
        Path, typer.Argument(help="JSON lines, one article each; `-` for standard input, gzip is unpacked.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where records go. Default: standard output.")
    ] = None,
    dead_letters: Annotated[
        Path | None, typer.Option(help="Where lines that cannot be enriched go, with reasons. Default: standard error.")
    ] = None,
) -> None:
    """Enrich a file of articles without Kafka: for a first try, and for debugging one article."""
    _require_different(file, output, dead_letters)
    with stopped_by_signals() as signals, ExitStack() as files:
        settings = load_settings()
        model = load_model(settings)
        source = LineSource(file)
        records = _opened(files, output, sys.stdout.buffer)
        reasons = _opened(files, dead_letters, sys.stderr.buffer)
        sink = LineSink(records, reasons, card=model.card, committed=source.note_committed)
        worker = file_worker(settings, model, source, sink)
        signals.stop(worker)
        with _progress(worker, source):
            worker.run()


def _require_different(*paths: Path | None) -> None:
    """To open a file to write empties it. Devices may stand there twice: `/dev/null`."""
    files = [path.resolve() for path in paths if path and path != _STANDARD and (path.is_file() or not path.exists())]
    if len(set(files)) < len(files):
        raise SettingsError("the input, --output and --dead-letters must be different files")


def _opened(files: ExitStack, path: Path | None, default: BinaryIO) -> BinaryIO:
    if path is None or path == _STANDARD:
        return sys.stdout.buffer if path else default
    try:
        return files.enter_context(path.open("wb"))
    except OSError as error:
        raise FatalError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def _progress(worker: Worker, source: LineSource) -> Iterator[None]:
    """A bar on a terminal, a line now and then elsewhere; the counts at the end."""
    console = Console(stderr=True)
    with _bar(console, worker, source) if console.is_terminal else progress_lines(worker.tally, every_s=5.0):
        yield
    log.info("done: %s", describe(worker.tally))


@contextmanager
def _bar(console: Console, worker: Worker, source: LineSource) -> Iterator[None]:
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task, tally = progress.add_task("loading", total=None), worker.tally

        def refresh() -> None:
            text = f"{tally.published} articles, {tally.windows} windows, {tally.dead_letters.total()} dead letters"
            progress.update(task, total=source.total_bytes, completed=source.bytes_read, description=text)

        with repeated(refresh, every_s=0.2):
            yield
