"""Finds assigned partitions that deliver no records although they have some.

A client can lose a partition: it stays assigned, the group is stable, but no record arrives (librdkafka 5586, 5591, 2190)
and no error is reported. The only proof comes from the broker: the partition's end is beyond what was delivered, and stays
beyond it although the client has had every opportunity to deliver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from enricher.records import Partition

_CLIENT_QUEUE_BYTES = 128_000_000
"""Upper bound of other partitions' data before a record in the client's queue, which is limited to a quarter of it."""
_FETCH_S = 2.0
"""Within this time after its queue was empty, a client has fetched again: it waits at a broker for 0.5 s at most."""


@dataclass(slots=True)
class _Sign:
    """A partition's last sign of life: a record, its end reached, or the start of reading."""

    at_s: float
    behind_s: float | None = None
    """When the broker first reported, after that sign, that there is more to read or that the log is another one."""
    behind_bytes: int = 0
    """Bytes that all partitions had delivered by then."""


class SilenceWatch:
    """Knows how long each partition that is being read has been silent.

    After the first half of `bound_s` a silent partition's end is requested; one that is behind its end has the second half
    to deliver a record.
    """

    def __init__(self, bound_s: float) -> None:
        self._half_s = bound_s / 2
        self._signs: dict[Partition, _Sign] = {}
        self._delivered_bytes = 0
        self._drained_s = float("-inf")

    def begin(self, partitions: Iterable[Partition], now_s: float) -> None:
        """Note that reading begins: after an assignment, a seek, or a pause."""
        self._signs.update((partition, _Sign(now_s)) for partition in partitions)

    def end(self, partitions: Iterable[Partition]) -> None:
        """Note that no more records are expected: the partitions left, or are paused."""
        for partition in partitions:
            self._signs.pop(partition, None)

    def heard(self, partition: Partition, now_s: float, size_bytes: int = 0) -> None:
        """Note that a record of `size_bytes` arrived, or that the partition's end was reached."""
        self._delivered_bytes += size_bytes
        if sign := self._signs.get(partition):
            sign.at_s, sign.behind_s = now_s, None

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
                sign.behind_s = None
            elif end == positions.get(partition, end):
                sign.at_s, sign.behind_s = now_s, None
            elif sign.behind_s is None:
                sign.behind_s, sign.behind_bytes = now_s, self._delivered_bytes

    def stalled(self, now_s: float) -> list[Partition]:
        """Partitions that are behind their end and delivered nothing within the bound despite every opportunity."""
        return [partition for partition, sign in self._signs.items() if self._is_stalled(sign, now_s)]

    def silent(self, partitions: Iterable[Partition], now_s: float) -> list[Partition]:
        """The given partitions that showed no sign of life for the whole bound, whether there is more to read or not."""
        signs = ((partition, self._signs.get(partition)) for partition in partitions)
        return [partition for partition, sign in signs if sign and now_s - sign.at_s >= 2 * self._half_s]

    def silent_s(self, now_s: float) -> float:
        """The longest silence among partitions that are known to be behind, in seconds."""
        return max([now_s - sign.at_s for sign in list(self._signs.values()) if sign.behind_s is not None], default=0.0)

    def _is_stalled(self, sign: _Sign, now_s: float) -> bool:
        if sign.behind_s is None or now_s - sign.behind_s < self._half_s:
            return False
        asked_in_vain = self._drained_s >= sign.behind_s + _FETCH_S
        return asked_in_vain or self._delivered_bytes - sign.behind_bytes > _CLIENT_QUEUE_BYTES
