"""Batches that are damaged: by the network, and a second look is enough, or in the broker's log, and no look will ever do.

The client asks again at once, for ever (seen: 1,200 times a second).
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from enricher.errors import BrokerError
from enricher.records import Partition

_DAMAGED = {
    KafkaError._BAD_MSG,  # noqa: SLF001  the client's names
    KafkaError._BAD_COMPRESSION,  # noqa: SLF001
    KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001  an unknown version of the format, which no whole batch has
}
_REPEATS = 10
_LASTS_S = 10.0
"""A network card that damages packets is noticed by others within this; a damaged log stays as it is."""


class DamageWatch:
    """Counts how often the same batch of a partition was damaged."""

    def __init__(self) -> None:
        self._seen: dict[Partition, tuple[int, float, int]] = {}
        """The offset, when it was damaged first, and how often since."""

    def noted(self, error: KafkaError, partition: Partition, offset: int, now_s: float) -> bool:
        """True where `error` is about a damaged batch at `offset`, and it may be whole at the next look.

        Raises BrokerError where it has been damaged too often, for too long.
        """
        if error.code() not in _DAMAGED:
            return False
        known, first_s, times = self._seen.get(partition, (offset, now_s, 0))
        if known != offset:
            first_s, times = now_s, 0
        self._seen[partition] = offset, first_s, times + 1
        if times + 1 >= _REPEATS and now_s - first_s >= _LASTS_S:
            message = (
                f"the batch at offset {offset} of {partition.topic}[{partition.number}] is damaged, {times + 1} times in "
                f"{now_s - first_s:.0f} s: {error.str()}. Is another replica whole (make it the leader)? Else set the "
                "group's offset behind the batch (kafka-consumer-groups --reset-offsets): its records are lost"
            )
            raise BrokerError(message)
        return True

    def whole(self, partition: Partition) -> None:
        """A record came of this partition."""
        if self._seen:
            self._seen.pop(partition, None)
