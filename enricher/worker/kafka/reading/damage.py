"""Counts how often a batch was damaged: on the network, so that a second fetch helps, or in the broker's log for good.

The client itself would fetch a damaged batch for ever (seen: 1,200 times a second). Batches that are intact but cannot be
decompressed are counted here as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError

from enricher.errors import BrokerError
from enricher.worker.kafka.shared.errors import UNREADABLE
from enricher.worker.records import Partition

DAMAGED = {
    KafkaError._BAD_MSG,  # noqa: SLF001  the client's names
    UNREADABLE,
    KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001  an unknown version of the format, which no whole batch has
}
"""The client's errors for batches that it cannot deliver."""
_MAX_FETCHES = 10
_CERTAIN_FETCHES = 3
_CALM_S = 2.0
"""The time by which the responses that were on their way before the seek have arrived."""
_LASTS_S = 10.0
"""A network card that damages packets is noticed by then; a damaged log stays damaged."""


@dataclass(slots=True)
class _Stray:
    """The offset at which a partition continued instead of the one expected."""

    offset: int
    expected: int
    first_s: float
    times: int = 0


@dataclass(slots=True)
class Damage:
    """How often the batch at one partition's position was damaged."""

    offset: int | None = None
    """The batch begins here; None while nothing was damaged since the last record."""
    first_s: float = 0.0
    fetches: int = 0
    unreadable: str = ""
    """The client's error, once it is certain that it cannot decompress the batch."""
    _stray: _Stray | None = None

    def is_seen(self, error: KafkaError | None, partition: Partition, at: int, expected: int, now_s: float) -> bool:
        """True if the batch at `expected`, the partition's position, has to be fetched again because it is or was damaged.

        `error` and `at` are the message's error and offset. Raises BrokerError if the batch was damaged too often for too
        long.
        """
        if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            return self._is_stray(at, expected, now_s)
        # Not `at`, which the client may have read from the damaged batch.
        return error.code() in DAMAGED and self._note(error, partition, expected, now_s)

    def clear(self) -> None:
        """The partition delivered a record."""
        self.offset, self._stray, self.unreadable = None, None, ""

    def _note(self, error: KafkaError, partition: Partition, offset: int, now_s: float) -> bool:
        self._stray = None
        if self.offset != offset:
            self.offset, self.first_s, self.fetches, self.unreadable = offset, now_s, 0, ""
        self.fetches += 1
        if self.fetches < _MAX_FETCHES:
            return True
        if error.code() == UNREADABLE:
            self.unreadable = error.str()
        elif now_s - self.first_s >= _LASTS_S:
            message = (
                f"the batch at offset {offset} of {partition.topic}[{partition.number}] was damaged in {self.fetches} "
                f"fetches within {now_s - self.first_s:.0f} s: {error.str()}. Make an intact replica the leader. If there "
                "is none, set the group's offset behind the batch (kafka-consumer-groups --reset-offsets): its records "
                "are lost"
            )
            raise BrokerError(message)
        return True

    def _is_stray(self, offset: int, expected: int, now_s: float) -> bool:
        """Whether a partition with a damaged batch at `expected` continues at another offset, and it is not certain why.

        The client may have read a wrong next offset from the damaged batch (seen: out of range, back at the beginning, and
        again after a seek). The log may also have a gap there, or have been recreated: then several fetches find the same
        offset, without damage between them.
        """
        if self.offset is None or offset == expected:
            return False
        if self._stray is None or (self._stray.offset, self._stray.expected) != (offset, expected):
            self._stray = _Stray(offset, expected, now_s)
        self._stray.times += 1
        return self._stray.times < _CERTAIN_FETCHES or now_s - self._stray.first_s < _CALM_S
