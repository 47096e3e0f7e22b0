"""Settings and files -> the source and the sink of a run over an archive in Parquet."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from enricher.errors import SettingsError
from enricher.worker.articles.record_values import record_values
from enricher.worker.files import LineSource
from enricher.worker.files.exchange import AnswerSink
from enricher.worker.files.line_source import PARQUET_SUFFIX, is_parquet, require_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enricher.worker.files.parquet import ParquetOutput, Wanted
    from enricher.worker.records import EnrichedRecord
    from enricher.worker.settings import Settings


def check_archive(settings: Settings, file: Path, output: Path | None) -> bool:
    """Whether the output will be Parquet. Raises SettingsError, before any work, for files that cannot be used."""
    archive = output is not None and output.suffix == PARQUET_SUFFIX
    if archive and not is_parquet(file):
        raise SettingsError(f"{output}: only articles in Parquet are written as Parquet, and {file} is something else")
    if output and output.is_dir():
        raise SettingsError(f"{output} is a folder: name a file for the output")
    article_source(settings, file)
    return archive


def article_source(settings: Settings, file: Path) -> LineSource:
    """The articles of a file, lines or Parquet. Raises SettingsError, FatalError."""
    if not is_parquet(file):
        return LineSource(file)
    require_parquet(file)
    from enricher.worker.files.parquet import ParquetSource  # noqa: PLC0415  of an extra

    return ParquetSource(file, _selection(settings))


def archive_output(stream: BinaryIO) -> closing[ParquetOutput]:
    """An output in Parquet, complete when the body ends, however it ends. Raises FatalError."""
    from enricher.worker.files.parquet import ParquetOutput  # noqa: PLC0415  of an extra

    return closing(ParquetOutput(stream))


def archive_sink(output: ParquetOutput, source: LineSource) -> AnswerSink[Mapping[str, Any]]:
    """The sink that writes to an output in Parquet."""
    write: Callable[[EnrichedRecord], Mapping[str, Any]] = record_values
    return AnswerSink(write, output.write, committed=source.note_committed)


def _selection(settings: Settings) -> Wanted:
    from enricher.worker.files.parquet import Wanted  # noqa: PLC0415  of an extra

    articles, deleted = settings.articles, settings.articles.deleted
    return Wanted(
        articles.fields,
        articles.metadata,
        scalar_ids=articles.scalar_ids,
        whole=settings.output.article == "whole",
        deleted=[deleted.field, *([deleted.id] if deleted.id else [])] if deleted else (),
    )
