"""Lets the loop follow the rule of `core/attempts.py`: count before records go on, and take them alone where one may kill.

To be alone with the device is simple to reach: forget what is in flight and rewind, as after any trouble, and from then on
`pacing.room` has a place for one record while nothing else is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from enricher.core.attempts import Attempts
from enricher.errors import TransactionTrouble
from enricher.records import DeadLetter, Partition, RawRecord, Release
from enricher.stats.counters import Counters
from enricher.worker.pacing import Pacing
from enricher.worker.ports import Sink, Source

log = logging.getLogger(__name__)


class Isolation:
    """Finds the record that kills the process. The loop tells it what arrives, and what is published."""

    def __init__(self, source: Source, sink: Sink, pacing: Pacing, counters: Counters) -> None:
        self._source = source
        self._sink = sink
        self._pacing = pacing
        self._counters = counters
        self.attempts: Attempts = pacing.attempts

    def arrived(self, records: Sequence[RawRecord]) -> None:
        """Look at the records of one poll before they are tracked. May publish marks, so it may block for a transaction.

        Raises TransactionTrouble where a suspect partition turns up among others: after a rewind they come one by one.
        """
        if self.attempts.quiet:
            return
        firsts: dict[Partition, int] = {}
        for record in records:
            firsts.setdefault(record.partition, record.offset)
        self._begin({*firsts, *self.attempts.suspects})
        self._clear(firsts)
        if self.attempts.suspects and len(records) > self._pacing.room:
            message = "one record may have killed processes: what is in flight is read again, one record at a time"
            raise TransactionTrouble(message)
        self._publish(self.attempts.counted(firsts))

    def verdict_on(self, raw: RawRecord) -> DeadLetter | None:
        """The dead letter of a record that has killed; nobody looks at its content any more."""
        if not self.attempts.suspects or not (deaths := self.attempts.verdict(raw.partition, raw.offset)):
            return None
        log.error("%s[%d] offset %d: %d processes ended with it", *raw.partition, raw.offset, deaths)
        message = (
            f"{deaths} processes ended while this record was the only one in flight: it probably kills the worker; "
            "they are counted in the metadata of the group's committed offset"
        )
        return DeadLetter("inference", "KilledWorker", message, attempts=deaths)

    def sealed(self, release: Release, leaving: Collection[Partition] = ()) -> Release:
        """The release with the marks of its offsets; partitions of `leaving` go in order, so nobody died there."""
        self._begin(release.committable)
        return self.attempts.sealed(release, leaving)

    # ---- inside

    def _begin(self, partitions: Collection[Partition]) -> None:
        for partition in self.attempts.unknown(partitions):
            start = self._source.start_of(partition)
            if start is None or not self.attempts.begin(partition, start):
                continue
            self._counters.isolations += 1
            log.warning(
                "%s[%d]: one of the next records may kill the process (offset %d: attempts %d, alone %d): "
                "this worker has one record in flight at most until it finds it",
                *partition, start.offset, start.mark.attempts, start.mark.alone,
            )  # fmt: skip

    def _clear(self, arrived: Collection[Partition]) -> None:
        """Where as many articles as may have been in flight went through alone, or the end is reached: on as usual."""
        if not self.attempts.suspects or not self._pacing.room:
            return
        ends = self._source.connection().ends
        cleared = self.attempts.cleared({at: end for at, end in ends.items() if at not in arrived})
        self._publish(cleared)
        for partition, offset in cleared.committable.items():
            log.info("%s[%d]: no record before offset %d kills the process any more", *partition, offset)

    def _publish(self, release: Release) -> None:
        """A transaction without records. Not a step forward, so it does not end a row of recoveries."""
        if not release.empty:
            self._sink.publish(release)
            self.attempts.committed(release)
            self._counters.transactions += 1
