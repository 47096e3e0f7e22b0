"""Batches that are damaged: by the network, and a second look is enough, or in the broker's log, and no look will ever do.

The client asks again at once, for ever (seen: 1,200 times a second). Those that are whole and cannot be unpacked are
counted here as well; what becomes of them is decided in `unreadable`.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from enricher.errors import BrokerError
from enricher.kafka.unreadable import UNREADABLE
from enricher.records import Partition

DAMAGED = {
    KafkaError._BAD_MSG,  # noqa: SLF001  the client's names
    UNREADABLE,
    KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001  an unknown version of the format, which no whole batch has
}
"""What the client says of batches that it cannot give."""
_REPEATS = 10
_CERTAIN = 3
"""Looks at a batch with a right checksum that cannot be unpacked. One would do; nobody is in a hurry to give it up."""
_CALM_S = 2.0
"""What the client still had under way when it was sent back has come by then."""
_LASTS_S = 10.0
"""A network card that damages packets is noticed by others within this; a damaged log stays as it is."""


class DamageWatch:
    """Counts how often the same batch of a partition was damaged."""

    def __init__(self) -> None:
        self._seen: dict[Partition, tuple[int, float, int]] = {}
        """The offset, when it was damaged first, and how often since."""
        self._strays: dict[Partition, tuple[int, int, float, int]] = {}
        """Where a partition went on instead, where it should have, since when it does so, and at how many looks."""

    def __bool__(self) -> bool:
        """Whether a batch was damaged of which nothing whole has come yet."""
        return bool(self._seen)

    def is_seen(self, error: KafkaError | None, partition: Partition, at: int, expected: int, now_s: float) -> bool:
        """True where a message says that the batch at `expected` is damaged, or was, and another look at it is needed.

        `error` and `at` are the message's; `expected` is where the partition should go on. Raises BrokerError where the
        batch has been damaged too often, for too long.
        """
        if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            return self._is_stray(partition, at, expected, now_s)
        # Not `at`: the client may have read it from the damaged batch.
        return error.code() in DAMAGED and self._noted(error, partition, expected, now_s)

    def is_unreadable(self, error: KafkaError | None, partition: Partition) -> bool:
        """Whether the batch that `is_seen` was told of last cannot be unpacked at any look."""
        return error is not None and error.code() == UNREADABLE and self._seen[partition][2] >= _CERTAIN

    def passed(self, partition: Partition, expected: int, *, more: bool) -> None:
        """Such a batch was given up as far as `expected`; `more` of it stands there, and needs no more looks."""
        first_s = self._seen.pop(partition)[1]
        if more:
            self._seen[partition] = expected, first_s, _CERTAIN

    def whole(self, partition: Partition) -> None:
        """A record came of this partition."""
        if self._seen:
            self._seen.pop(partition, None)
            self._strays.pop(partition, None)

    def _noted(self, error: KafkaError, partition: Partition, offset: int, now_s: float) -> bool:
        self._strays.pop(partition, None)
        known, first_s, times = self._seen.get(partition, (offset, now_s, 0))
        if known != offset:
            first_s, times = now_s, 0
        self._seen[partition] = offset, first_s, times + 1
        if error.code() != UNREADABLE and times + 1 >= _REPEATS and now_s - first_s >= _LASTS_S:
            message = (
                f"the batch at offset {offset} of {partition.topic}[{partition.number}] is damaged, {times + 1} times in "
                f"{now_s - first_s:.0f} s: {error.str()}. Is another replica whole (make it the leader)? Else set the "
                "group's offset behind the batch (kafka-consumer-groups --reset-offsets): its records are lost"
            )
            raise BrokerError(message)
        return True

    def _is_stray(self, partition: Partition, offset: int, expected: int, now_s: float) -> bool:
        """Whether a partition with a damaged batch at `expected` goes on at another offset, and that is not certain yet.

        A client that read its next offset from the damaged batch may have got lost (seen: out of range, back at the
        beginning, and once more after it was sent back). The log may also have a gap there, or be another: then several
        looks find the same, and no damage between them.
        """
        if partition not in self._seen or offset == expected:
            return False
        at, wanted, first_s, times = self._strays.get(partition, (offset, expected, now_s, 0))
        if (at, wanted) != (offset, expected):
            first_s, times = now_s, 0
        self._strays[partition] = offset, expected, first_s, times + 1
        return times + 1 < _CERTAIN or now_s - first_s < _CALM_S
