"""Which assigned partitions have stopped giving records although they have some. Pure: time and answers are arguments.

A client can lose a partition: it stays assigned, its group is stable, and nothing ever comes of it (librdkafka 5586, 5591,
2190). No error says so. The only proof is the broker's: the partition's end lies beyond what was delivered, and goes on to
do so although the client has had every opportunity to deliver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from enricher.records import Partition

_CLIENT_QUEUE_BYTES = 128_000_000
"""So much of other partitions may stand in the client's queue before a record; it is limited to a quarter of it."""
_FETCH_S = 2.0
"""After its queue was empty a client has fetched again within this time: it waits for 0.5 s at most at a broker."""


@dataclass(slots=True)
class _Sign:
    """The last sign of life of a partition: a record, its end, or the beginning of reading."""

    at_s: float
    behind_s: float | None = None
    """When the broker first said after that sign that there is more to read, or that the log is another one."""
    behind_bytes: int = 0
    """What all partitions together had delivered by then."""


class SilenceWatch:
    """Knows for how long each partition that is being read has been silent.

    `bound_s`: in its first half a silent partition is left alone, then its end is asked for; one that is behind it has the
    second half to give something.
    """

    def __init__(self, bound_s: float) -> None:
        self._half_s = bound_s / 2
        self._signs: dict[Partition, _Sign] = {}
        self._delivered_bytes = 0
        self._drained_s = float("-inf")

    def begin(self, partitions: Iterable[Partition], now_s: float) -> None:
        """Reading begins here: after an assignment, a seek, or a pause."""
        self._signs.update((partition, _Sign(now_s)) for partition in partitions)

    def end(self, partitions: Iterable[Partition]) -> None:
        """Nothing is expected of these any more: they left, or are paused."""
        for partition in partitions:
            self._signs.pop(partition, None)

    def heard(self, partition: Partition, now_s: float, size_bytes: int = 0) -> None:
        """A record of so many bytes came, or the partition's end."""
        self._delivered_bytes += size_bytes
        if sign := self._signs.get(partition):
            sign.at_s, sign.behind_s = now_s, None

    def drained(self, now_s: float) -> None:
        """The client was asked for records and had no more: nothing of other partitions stands before a record now."""
        self._drained_s = now_s

    def to_ask(self, now_s: float) -> list[Partition]:
        """Partitions that have been silent for so long that their end should be asked for."""
        return [partition for partition, sign in self._signs.items() if now_s - sign.at_s >= self._half_s]

    def told(self, ends: Mapping[Partition, int], positions: Mapping[Partition, int], now_s: float) -> None:
        """The broker's answer: the ends of silent partitions, and where we stand in each (its next offset).

        A partition without an answer has no leader now, so nothing can be expected of it; one that is at its end is fine.
        An end before our position is that of another log: the topic was made again, or cut off, and the client must notice.
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
        """Partitions that are behind their end, had every opportunity, and gave nothing within the bound."""
        return [partition for partition, sign in self._signs.items() if self._is_stalled(sign, now_s)]

    def silent(self, partitions: Iterable[Partition], now_s: float) -> list[Partition]:
        """Those of the partitions that have given no sign for the whole bound, whether there is more to read or not."""
        signs = ((partition, self._signs.get(partition)) for partition in partitions)
        return [partition for partition, sign in signs if sign and now_s - sign.at_s >= 2 * self._half_s]

    def silent_s(self, now_s: float) -> float:
        """For how long the most silent of the partitions that are known to be behind has given nothing."""
        return max([now_s - sign.at_s for sign in list(self._signs.values()) if sign.behind_s is not None], default=0.0)

    def _is_stalled(self, sign: _Sign, now_s: float) -> bool:
        if sign.behind_s is None or now_s - sign.behind_s < self._half_s:
            return False
        asked_in_vain = self._drained_s >= sign.behind_s + _FETCH_S
        return asked_in_vain or self._delivered_bytes - sign.behind_bytes > _CLIENT_QUEUE_BYTES
