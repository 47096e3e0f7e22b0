"""Enriches records again, from memory to memory: the same worker between a list of records and a list of JSON values."""

from __future__ import annotations

import io
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from enricher.worker.build.building import local_worker
from enricher.worker.build.reading import article_reader
from enricher.worker.files import LineSink
from enricher.worker.records import Partition, RawRecord, Release
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.stats.snapshot import Connection

if TYPE_CHECKING:
    from enricher.worker.build.tasks import Tasks
    from enricher.worker.loop.ports import PartitionListener
    from enricher.worker.records import DeadLetter, ModelCard, Ticket
    from enricher.worker.settings import Settings

_PARTITION = Partition("recomputed", 0)


def recomputed(settings: Settings, tasks: Tasks, records: Sequence[RawRecord]) -> list[bytes | None]:
    """The JSON of the enriched record of each input, in order; None for an input that becomes a dead letter."""
    source = _RecordSource(records)
    sink = _ValueSink(tasks.card, source)
    with Watchdog() as watchdog:
        reader = partial(article_reader, settings)
        local_worker(settings, tasks, source, sink, reader=reader, guard=watchdog.guard).run()
    return [sink.values.get(number) for number in range(len(records))]


class _RecordSource:
    """Delivers records as if they were one partition; their keys and headers are those that they had."""

    waits_for_commit = False

    def __init__(self, records: Sequence[RawRecord]) -> None:
        self._records = [
            replace(record, partition=_PARTITION, offset=number, leader_epoch=None)
            for number, record in enumerate(records)
        ]
        self._listener: PartitionListener | None = None
        self._position = self._committed = 0
        self._paused = self._held = False
        self._never = threading.Event()

    def open(self, listener: PartitionListener) -> None:
        self._listener = listener

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.assigned([_PARTITION])
        if self._paused or self._held or self._position == len(self._records):
            self._never.wait(timeout_s)
            return ()
        records = self._records[self._position : self._position + limit]
        self._position += len(records)
        return records

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def hold(self, partitions: Collection[Partition]) -> None:
        self._held = _PARTITION in partitions

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        return {_PARTITION: self._position} if _PARTITION in partitions else {}

    def start_of(self, _partition: Partition) -> None:
        """None: a list keeps no marks, so attempts are not counted."""

    def rewind(self) -> NoReturn:
        raise AssertionError("a list has no transactions to recover from, so it is never rewound")

    def note_committed(self, committable: Mapping[Partition, int]) -> None:
        self._committed = committable.get(_PARTITION, self._committed)

    def caught_up(self) -> bool:
        return self._committed >= len(self._records)

    def connection(self) -> Connection:
        return Connection()

    def close(self) -> None:
        """Nothing is open."""


class _ValueSink(LineSink):
    """Keeps the values of records by their number; a whole article in one may contain line ends, so there are no lines."""

    def __init__(self, card: ModelCard, source: _RecordSource) -> None:
        super().__init__(io.BytesIO(), io.BytesIO(), card=card, committed=source.note_committed)
        self.values: dict[int, bytes] = {}
        self._source = source

    def publish(self, release: Release) -> Mapping[Ticket, DeadLetter]:
        for ticket in release.tickets:
            written = self._line_or_letter(ticket)
            if isinstance(written, bytes):
                self.values[ticket.raw.offset] = written.removesuffix(b"\n")
        self._source.note_committed(release.committable)
        return {}
