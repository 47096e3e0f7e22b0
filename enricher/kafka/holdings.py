"""What is known of the partitions that are ours: where they began, how far they have delivered, and with which epochs.

Owned by the source and used in the loop's thread. Knows no client: it is told what came.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from enricher.errors import TransactionTrouble
from enricher.records import Partition, RawRecord, Start


@dataclass(slots=True)
class _Holding:
    """One partition. `next` is the offset after the last one delivered, `end` the end that was reached there."""

    start: Start | None = None
    """None until it is known where to begin; what comes before that is not read."""
    next: int | None = None
    end: int | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Offsets from which records had another leader's epoch than before, and that epoch."""


class Holdings:
    """The assigned partitions."""

    def __init__(self) -> None:
        self._held: dict[Partition, _Holding] = {}

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._held

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._held)

    @property
    def waiting(self) -> list[Partition]:
        """Partitions of which it is not known where they begin."""
        return [partition for partition, held in self._held.items() if held.start is None]

    def take(self, partitions: Iterable[Partition]) -> None:
        """Ours now, or to be begun once more; where they begin is said by `begin`."""
        self._held.update((partition, _Holding()) for partition in partitions)

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Not ours any more."""
        for partition in partitions:
            self._held.pop(partition, None)

    def begin(self, partition: Partition, start: Start, leader_epoch: int | None) -> None:
        """Records are delivered from here on."""
        epochs = [] if leader_epoch is None else [(start.offset, leader_epoch)]
        self._held[partition] = _Holding(start, None, None, epochs)

    def start_of(self, partition: Partition) -> Start | None:
        """Where it began; None while that is unknown."""
        held = self._held.get(partition)
        return held.start if held else None

    def delivered(self, record: RawRecord) -> bool:
        """Note a record. False where it is not to be read: the partition left, or has not begun.

        Raises TransactionTrouble where the log goes back: nothing that is in flight belongs to it any more.
        """
        held = self._held.get(record.partition)
        if held is None or held.start is None:
            return False
        offset, epoch = record.offset, record.leader_epoch
        self._check(record.partition, held, offset)
        held.next, held.end = offset + 1, None
        if epoch is not None and epoch >= 0 and (not held.epochs or held.epochs[-1][1] != epoch):
            held.epochs.append((offset + 1, epoch))
        return True

    def ended(self, partition: Partition, end: int) -> bool:
        """Note that a partition's end was reached; False as for `delivered`."""
        held = self._held.get(partition)
        if held is None or held.start is None:
            return False
        self._check(partition, held, end)
        held.next = held.end = end
        return True

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The end of each that has reached it, and of the others nothing."""
        return {
            partition: held.end
            for partition in partitions
            if (held := self._held.get(partition)) is not None and held.end is not None
        }

    def positions(self) -> Mapping[Partition, int]:
        """The next offset of each that has begun."""
        return {
            partition: held.start.offset if held.next is None else held.next
            for partition, held in list(self._held.items())
            if held.start is not None
        }

    def starts(self) -> Mapping[Partition, int]:
        """The offset at which each of them began. From any thread."""
        return {partition: held.start.offset for partition, held in list(self._held.items()) if held.start is not None}

    def epoch_before(self, partition: Partition, offset: int) -> int | None:
        """The leader's epoch of the record before `offset`. Forgets what lies before it: commits only grow."""
        held = self._held.get(partition)
        if held is None:
            return None
        while len(held.epochs) > 1 and held.epochs[1][0] <= offset:
            del held.epochs[0]
        return held.epochs[0][1] if held.epochs and held.epochs[0][0] <= offset else None

    @staticmethod
    def _check(partition: Partition, held: _Holding, at: int) -> None:
        if held.next is not None and at < held.next:
            where = f"{partition.topic}[{partition.number}]"
            message = f"{where} goes on at offset {at} after {held.next}: was the topic created again, or cut off?"
            raise TransactionTrouble(message)
