"""The beginning of each assigned partition, its position, and the leader epochs of its records.

Belongs to the source and is used in the loop's thread. Does not know the client: it is told what was delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from enricher.errors import TransactionTrouble
from enricher.worker.records import Partition, RawRecord, Start

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Position:
    """One partition. `next`: the offset after the last delivered record. `end`: the partition's end, once it was reached."""

    start: Start | None = None
    """The beginning; None while it is unknown, or not committed. Records that come before that are dropped."""
    uncommitted: int | None = None
    """The offset to begin at once it is committed."""
    next: int | None = None
    end: int | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Changes of the leader epoch: the first offset to commit with it, and the epoch."""


class Positions:
    """The positions of the assigned partitions.

    `log_end`: asks for the end of a partition's log. Raises TransactionTrouble if no broker answers.
    """

    def __init__(self, log_end: Callable[[Partition], int]) -> None:
        self._log_end = log_end
        self._positions: dict[Partition, _Position] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._positions)

    @property
    def waiting(self) -> list[Partition]:
        """Assigned partitions whose start is unknown."""
        return [partition for partition, at in self._positions.items() if at.start is None]

    @property
    def uncommitted(self) -> bool:
        """True if a partition begins only once its start is committed."""
        return any(at.uncommitted is not None for at in self._positions.values())

    @property
    def unheard(self) -> bool:
        """True if a partition whose start is known has delivered neither a record nor its end since."""
        return any(at.start is not None and at.next is None for at in self._positions.values())

    def add(self, partitions: Iterable[Partition]) -> None:
        """These are assigned, or start again; `begin` says where."""
        self._positions.update((partition, _Position()) for partition in partitions)

    def remove(self, partitions: Iterable[Partition]) -> None:
        """These are no longer assigned."""
        for partition in partitions:
            self._positions.pop(partition, None)

    def begin(self, partition: Partition, start: Start, leader_epoch: int | None) -> None:
        """Records are delivered from `start` on. `leader_epoch`: of the record before it, if known."""
        epochs = [] if leader_epoch is None else [(start.offset, leader_epoch)]
        self._positions[partition] = _Position(start, epochs=epochs)

    def begin_later(self, partition: Partition, offset: int) -> None:
        """The partition begins here, once this offset is committed."""
        self._positions[partition] = _Position(uncommitted=offset)

    def start_of(self, partition: Partition) -> Start | None:
        """The start of the partition; None while it is unknown."""
        at = self._positions.get(partition)
        return at.start if at else None

    def delivered(self, record: RawRecord) -> bool:
        """Note a record. False if it must be dropped: its partition is not assigned, or its start is unknown.

        Raises TransactionTrouble if offsets go back, because then nothing in flight belongs to this log any more.
        """
        at = self._positions.get(record.partition)
        if at is None or at.start is None:
            return False
        offset, epoch = record.offset, record.leader_epoch
        self._check(record.partition, offset, at, at.start.offset)
        at.next, at.end = offset + 1, None
        if epoch is not None and epoch >= 0 and (not at.epochs or at.epochs[-1][1] != epoch):
            at.epochs.append((offset + 1, epoch))
        return True

    def ended(self, partition: Partition, end: int) -> bool:
        """Note that a partition's end was reached. Returns and raises as `delivered` does."""
        at = self._positions.get(partition)
        if at is None or at.start is None:
            return False
        self._check(partition, end, at, at.start.offset)
        at.next = at.end = end
        return True

    def to_commit(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The ends of the partitions that were read to their end, and uncommitted starts; the others are left out."""
        found = ((partition, self._positions.get(partition)) for partition in partitions)
        offsets = {partition: at.uncommitted if at.end is None else at.end for partition, at in found if at}
        return {partition: offset for partition, offset in offsets.items() if offset is not None}

    def next_offsets(self) -> Mapping[Partition, int]:
        """The position of each partition whose start is known."""
        return {
            partition: at.start.offset if at.next is None else at.next
            for partition, at in list(self._positions.items())
            if at.start is not None
        }

    def starts(self) -> Mapping[Partition, int]:
        """The offset at which each partition began. May be called from any thread."""
        return {partition: at.start.offset for partition, at in list(self._positions.items()) if at.start is not None}

    def epoch_before(self, partition: Partition, offset: int) -> int | None:
        """The leader epoch of the record before `offset`. Drops what lies before it, since committed offsets only grow."""
        at = self._positions.get(partition)
        if at is None:
            return None
        while len(at.epochs) > 1 and at.epochs[1][0] <= offset:
            del at.epochs[0]
        return at.epochs[0][1] if at.epochs and at.epochs[0][0] <= offset else None

    def _check(self, partition: Partition, offset: int, at: _Position, start: int) -> None:
        """Raise TransactionTrouble if the partition continues at an offset before its position.

        The client begins at the beginning if it asked for an offset that does not exist: one that it read from a damaged
        batch, or that of a log which lost its end. Only such a log is read again.
        """
        expected = start if at.next is None else at.next
        if offset >= expected:
            return
        where = f"{partition.topic}[{partition.number}]"
        if at.next is None and (end := self._log_end(partition)) < start:
            log.warning("%s has lost its end: it ends at %d, before the committed offset %d", where, end, start)
            return
        message = f"{where} continues at offset {offset} after {expected}: was the topic recreated or truncated?"
        raise TransactionTrouble(message)
