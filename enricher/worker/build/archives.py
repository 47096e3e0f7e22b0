"""Settings and files -> the source and the sink of a run over an archive in Parquet."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enricher.distribution import installed_version
from enricher.errors import FatalError, SettingsError
from enricher.worker.articles.formats.record_values import record_values
from enricher.worker.files import LineSource
from enricher.worker.files.exchange import AnswerSink
from enricher.worker.files.parquet import PARQUET_SUFFIX, is_parquet, require_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enricher.worker.build.loaded_tasks import Tasks
    from enricher.worker.files.parquet_input import Wanted
    from enricher.worker.files.parquet_output import ParquetOutput
    from enricher.worker.records import EnrichedRecord
    from enricher.worker.settings import Settings

_END_BYTES = 65_536
"""The end of a Parquet file describes all its columns, so files that have the same end and size are the same."""


def check_archive(settings: Settings, file: Path, output: Path | None) -> bool:
    """Whether the output will be Parquet. Raises SettingsError, before any work, for files that cannot be used."""
    archive = output is not None and output.suffix == PARQUET_SUFFIX
    if archive and not is_parquet(file):
        raise SettingsError(f"{output}: only articles in Parquet are written as Parquet, and {file} is something else")
    if output and output.is_dir():
        raise SettingsError(f"{output} is a folder: name a file for the output")
    article_source(settings, file)
    return archive


def article_source(settings: Settings, file: Path, *, first_row: int = 0) -> LineSource:
    """The articles of a file, lines or Parquet. Raises SettingsError, FatalError."""
    if not is_parquet(file):
        return LineSource(file)
    require_parquet(file)
    from enricher.worker.files.parquet_input import ParquetSource  # noqa: PLC0415  of an extra

    return ParquetSource(file, _selection(settings), first_row=first_row)


def archive_output(settings: Settings, tasks: Tasks, file: Path, output: Path) -> ParquetOutput:
    """The output of a run, or of the run that it continues. Raises SettingsError, FatalError."""
    from enricher.worker.files.parquet_input import row_group_ends  # noqa: PLC0415  of an extra
    from enricher.worker.files.parquet_output import ParquetOutput  # noqa: PLC0415  the same

    return ParquetOutput(output, group_ends=row_group_ends(file), identity=_identity(settings, tasks, file))


def archive_sink(output: ParquetOutput, source: LineSource) -> AnswerSink[Mapping[str, Any]]:
    """The sink that writes to an output in Parquet."""
    write: Callable[[EnrichedRecord], Mapping[str, Any]] = record_values
    return AnswerSink(write, output.write, committed=source.note_committed)


def _selection(settings: Settings) -> Wanted:
    from enricher.worker.files.parquet_input import Wanted  # noqa: PLC0415  of an extra

    articles, deleted = settings.articles, settings.articles.deleted
    return Wanted(
        articles.fields,
        articles.metadata,
        scalar_ids=articles.scalar_ids,
        whole=settings.output.article == "whole",
        deleted=[deleted.field, *([deleted.id] if deleted.id else [])] if deleted else (),
    )


def _identity(settings: Settings, tasks: Tasks, file: Path) -> dict[str, Any]:
    """Everything that the rows of an output depend on, each by its name in messages."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _END_BYTES))
            digest = hashlib.sha256(b"%d " % size + stream.read()).hexdigest()
    except OSError as error:
        raise FatalError(f"cannot read {file}: {error.strerror}") from error
    decide = {"articles", "output", "tasks"}
    windows = settings.batching.model_dump(include={"max_window_tokens", "overlap_tokens"})
    cards = [task.model for task in tasks.cards]
    return {
        "input": digest,
        "settings": settings.model_dump(mode="json", include=decide) | windows,
        "model": [[card.name, card.digest, card.precision] for card in cards],
        "version": installed_version(),
    }
