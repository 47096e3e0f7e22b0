"""Finds assigned partitions that deliver no records although they have some.

A client can lose a partition: it stays assigned, the group is stable, but no record arrives (librdkafka 5586, 5591, 2190)
and no error is reported. The only proof comes from the broker: the partition's end is beyond what was delivered, and stays
beyond it although the client has had every opportunity to deliver.

Beside a backlog a healthy partition may be silent for long: its records stand in the client's queue behind those of others,
or the client does not fetch it (seen: with large batches it fetched one of four partitions for half a minute, and the others
not at all). So a partition that is overdue is given a turn, in which the client fetches no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from enricher.worker.records import Partition

_FETCH_S = 2.0
"""Within this time after its queue was empty, a client has fetched again: it waits at a broker for 0.5 s at most."""


@dataclass(slots=True)
class _Sign:
    """A partition's last sign of life: a record, its end reached, or the start of reading."""

    at_s: float
    behind_s: float | None = None
    """When the broker first reported, after that sign, that there is more to read or that the log is another one."""
    turn_s: float | None = None
    """When its turn began, after that."""

    def settle(self) -> None:
        """Note that nothing is to be expected before the broker reports again."""
        self.behind_s = self.turn_s = None


class SilenceWatch:
    """Knows how long each partition that is being read has been silent.

    After the first half of `bound_s` a silent partition's end is requested; one that is behind its end has the second half
    to deliver a record. After that it is overdue, and gets a turn.
    """

    def __init__(self, bound_s: float) -> None:
        self._half_s = bound_s / 2
        self._signs: dict[Partition, _Sign] = {}
        self._drained_s = float("-inf")

    def begin(self, partitions: Iterable[Partition], now_s: float) -> None:
        """Note that reading begins: after an assignment, a seek, or a pause."""
        self._signs.update((partition, _Sign(now_s)) for partition in partitions)

    def end(self, partitions: Iterable[Partition]) -> None:
        """Note that no more records are expected: the partitions left, or are paused."""
        for partition in partitions:
            self._signs.pop(partition, None)

    def heard(self, partition: Partition, now_s: float) -> None:
        """Note that a record arrived, or that the partition's end was reached."""
        if sign := self._signs.get(partition):
            sign.at_s = now_s
            sign.settle()

    def drained(self, now_s: float) -> None:
        """Note that the client had no more records: now no data of other partitions is ahead of a record."""
        self._drained_s = now_s

    def to_ask(self, now_s: float) -> list[Partition]:
        """Partitions that have been silent long enough to request their end."""
        return [partition for partition, sign in self._signs.items() if now_s - sign.at_s >= self._half_s]

    def told(self, ends: Mapping[Partition, int], positions: Mapping[Partition, int], now_s: float) -> None:
        """Note the broker's answer: the ends of silent partitions, and our position in each (its next offset).

        A partition without an answer has no leader now, so no record can be expected; one at its end is fine. An end before
        our position belongs to another log: the topic was recreated or truncated, and the client must notice.
        """
        for partition in self.to_ask(now_s):
            sign, end = self._signs[partition], ends.get(partition)
            if end is None:
                sign.settle()
            elif end == positions.get(partition, end):
                sign.at_s = now_s
                sign.settle()
            elif sign.behind_s is None:
                sign.behind_s = now_s

    def overdue(self, now_s: float) -> list[Partition]:
        """Partitions that are behind their end and delivered nothing within the bound."""
        return [
            partition
            for partition, sign in self._signs.items()
            if sign.behind_s is not None and now_s - sign.behind_s >= self._half_s
        ]

    def give_turn(self, partitions: Iterable[Partition], now_s: float, *, renewed: bool) -> None:
        """Note that the client fetches only these, which are overdue. `renewed`: only from now on, else since before."""
        for sign in [self._signs[partition] for partition in partitions]:
            if renewed or sign.turn_s is None:
                sign.turn_s = now_s

    def stalled(self) -> list[Partition]:
        """Partitions that delivered nothing in their turn either, although the client had nothing else to do."""
        return [
            partition
            for partition, sign in self._signs.items()
            if sign.turn_s is not None and self._drained_s >= sign.turn_s + _FETCH_S
        ]

    def silent(self, partitions: Iterable[Partition], now_s: float) -> list[Partition]:
        """The given partitions that showed no sign of life for the whole bound, whether there is more to read or not."""
        signs = ((partition, self._signs.get(partition)) for partition in partitions)
        return [partition for partition, sign in signs if sign and now_s - sign.at_s >= 2 * self._half_s]

    def silent_s(self, now_s: float) -> float:
        """The longest silence among partitions that are known to be behind, in seconds."""
        return max([now_s - sign.at_s for sign in list(self._signs.values()) if sign.behind_s is not None], default=0.0)
