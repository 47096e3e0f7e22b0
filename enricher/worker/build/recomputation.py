"""Enriches records again, from memory to memory: the same worker between a list of records and a list of JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from enricher.worker.articles import encode_record
from enricher.worker.build.article_readers import article_reader
from enricher.worker.build.workers import ReaderOf, local_worker
from enricher.worker.files import FiniteSource
from enricher.worker.files.exchange import Answer, AnswerSink
from enricher.worker.records import DeadLetter, Partition, RawRecord
from enricher.worker.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from enricher.worker.build.loaded_tasks import Tasks
    from enricher.worker.settings import Settings

_PARTITION = Partition("recomputed", 0)


def recompute(
    settings: Settings, tasks: Tasks, records: Sequence[RawRecord], *, reader: ReaderOf | None = None
) -> list[bytes | None]:
    """The JSON of the enriched record of each input, in order; None for an input that becomes a dead letter.

    `reader` reads the articles; by default it is that of the worker for the records of its topic.
    """
    source = _RecordSource(records)
    answers: list[Answer[bytes]] = []
    # Not lines, because a record with a whole article may contain line ends.
    sink = AnswerSink(encode_record, answers.extend, committed=source.note_committed)
    with Watchdog() as watchdog:
        chosen = reader or partial(article_reader, settings)
        local_worker(settings, tasks, source, sink, reader=chosen, guard=watchdog.guard).run()
    return [None if isinstance(answer.written, DeadLetter) else answer.written for answer in answers]


class _RecordSource(FiniteSource):
    """Delivers records as if they were in one partition, with their own keys and headers."""

    def __init__(self, records: Sequence[RawRecord]) -> None:
        super().__init__(_PARTITION)
        self._records = [
            replace(record, partition=_PARTITION, offset=number, leader_epoch=None)
            for number, record in enumerate(records)
        ]
        self._ended = not self._records

    def _next_records(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        del timeout_s  # they are here already
        records = self._records[self._position : self._position + limit]
        self._position = self._delivered_end = self._position + len(records)
        self._ended = self._position == len(self._records)
        return records
