"""Applies the rule of `rules/attempts.py`: count attempts, and take records one at a time if one may kill the process.

To get a record alone with the device, the loop forgets what is in flight and reads it again; from then on `pacing.capacity`
is one record, and only while no other is processed. Records that wait for a schema are not processed, and the records behind
them in their partition wait too: nothing can be counted there before the first record is committed. When the schema has
come, they are read again, one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from enricher.worker.loop.pacing import Pacing
from enricher.worker.loop.ports import Sink, Source
from enricher.worker.records import DeadLetter, Partition, RawRecord, Release
from enricher.worker.rules.attempts import Attempts
from enricher.worker.stats import Counters

log = logging.getLogger(__name__)


class Isolation:
    """Finds the record that kills the process, by counting attempts in the committed offsets' metadata."""

    def __init__(self, source: Source, sink: Sink, pacing: Pacing, counters: Counters) -> None:
        self._source = source
        self._sink = sink
        self._pacing = pacing
        self._counters = counters
        self.attempts: Attempts = pacing.attempts

    def may_process(self, records: Sequence[RawRecord]) -> bool:
        """Count an attempt at the records of one poll before they are tracked, or at records whose schemas arrived.

        False if a partition is suspect and there is more than one record to process: the loop must read everything in flight
        again, and then gets one record at a time. May publish marks, so it blocks for one transaction and raises its errors.
        """
        if self.attempts.quiet:
            return True
        firsts: dict[Partition, int] = {}
        for record in records:
            firsts.setdefault(record.partition, record.offset)
        self._begin({*firsts, *self.attempts.suspects})
        self._clear(firsts)
        if self.attempts.suspects:
            if len(records) > self._pacing.capacity:
                return False
            waiting = self._pacing.waiting_tickets()
            firsts = {partition: first for partition, first in firsts.items() if partition not in waiting}
        self._publish(self.attempts.count_attempts(firsts))
        return True

    def verdict_on(self, raw: RawRecord) -> DeadLetter | None:
        """The dead letter of a record that has killed processes, made without looking at its content; else None."""
        if not self.attempts.suspects or not (deaths := self.attempts.verdict(raw.partition, raw.offset)):
            return None
        log.error(
            "%s[%d] offset %d: %d processes ended while it was the only record in flight",
            *raw.partition,
            raw.offset,
            deaths,
        )
        message = (
            f"{deaths} processes ended while this record was the only one in flight: it probably kills the worker "
            "(counted in the metadata of the group's committed offset)"
        )
        return DeadLetter("inference", "KilledWorker", message, attempts=deaths)

    def seal(self, release: Release, leaving: Collection[Partition] = ()) -> Release:
        """Add marks to the offsets of a release. Partitions in `leaving` are given up in order, which is no death."""
        self._begin(release.committable)
        return self.attempts.seal(release, {*leaving, *self._pacing.only_waiting()})

    def take_back(self, partitions: Collection[Partition]) -> None:
        """Take back the attempts of this process, which ends for a reason that no record can cause.

        Call it after a recovery: where the offset or the mark is not the one counted here, nothing is written. Blocks
        for one transaction and raises its errors; then the end of the process counts.
        """
        self.attempts.expect(partitions)
        self._begin(partitions)
        self._publish(self.attempts.seal(Release((), {}), partitions))

    # ---- inside

    def _begin(self, partitions: Collection[Partition]) -> None:
        for partition in self.attempts.unknown(partitions):
            start = self._source.start_of(partition)
            if start is None or not self.attempts.begin(partition, start):
                continue
            self._counters.isolations += 1
            log.warning(
                "%s[%d]: one of the next records may kill the process (offset %d: %d processes "
                "ended there, %d of them with this record alone in flight): taking one record at a time until it is found",
                *partition, start.offset, start.mark.attempts, start.mark.alone,
            )  # fmt: skip

    def _clear(self, arrived: Collection[Partition]) -> None:
        """Clear suspects once all articles that may have been in flight went through alone, or the end is reached."""
        if not self.attempts.suspects or not self._pacing.capacity:
            return
        ends = self._source.connection().ends
        cleared = self.attempts.clear({at: end for at, end in ends.items() if at not in arrived})
        self._publish(cleared)
        for partition, offset in cleared.committable.items():
            log.info("%s[%d]: no record before offset %d kills the process", *partition, offset)

    def _publish(self, release: Release) -> None:
        """Commit a transaction without records. It is no progress, so recoveries in a row still count."""
        if not release.empty:
            self._sink.publish(release)
            self.attempts.note_committed(release)
            self._counters.transactions += 1
