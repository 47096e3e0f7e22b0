"""A source without Kafka whose input ends: one partition, with numbers as offsets. Subclasses read the records."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn

from enricher.worker.stats.snapshot import Connection

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from enricher.worker.loop.ports import PartitionListener
    from enricher.worker.records import Partition, RawRecord


class FiniteSource(ABC):
    """Delivers one partition from its beginning to its end, once.

    The sink reports what it has written to `note_committed`; until then `caught_up` is False.
    """

    waits_for_commit = False

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._listener: PartitionListener | None = None
        self._position = 0
        """The next offset to deliver."""
        self._delivered_end = 0
        """The offset behind the last record that was delivered."""
        self._ended = False
        self._committed = 0
        self._paused = self._held = False
        self._never = threading.Event()

    def open(self, listener: PartitionListener) -> None:
        """Deliver to this listener's worker. Raises FatalError if the input cannot be opened."""
        self._listener = listener

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """Return at most `limit` records; block up to `timeout_s` for the first one, also while paused or at the end.

        The first call assigns the partition to the listener. Raises FatalError if the input cannot be read further.
        """
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.assigned([self.partition])
        if self._paused or self._held or self._ended:
            self._never.wait(timeout_s)
            return ()
        return self._next_records(limit, timeout_s)

    @abstractmethod
    def _next_records(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """The next records, at most `limit`; moves `_position` and `_delivered_end`, and sets `_ended` at the end."""

    def pause(self) -> None:
        """Return no records until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Return records again."""
        self._paused = False

    def hold(self, partitions: Collection[Partition]) -> None:
        """Return no records while the only partition is among these."""
        self._held = self.partition in partitions

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The next offset to deliver; once the end was seen, it is behind offsets without a record there."""
        return {self.partition: self._position} if self.partition in partitions else {}

    def note_committed(self, committable: Mapping[Partition, int]) -> None:
        """Note that the sink has written everything before these offsets."""
        self._committed = committable.get(self.partition, self._committed)

    def start_of(self, _partition: Partition) -> None:  # noqa: B027  the same for every such input
        """Return None: such an input keeps no marks, so attempts are not counted."""

    def rewind(self) -> NoReturn:
        """Never called: the sink writes or ends the run."""
        raise AssertionError("without transactions there is nothing to recover from, so the source is never rewound")

    def caught_up(self) -> bool:
        """True once the end of the input was seen and every record before it is written."""
        return self._ended and self._committed >= self._delivered_end

    def connection(self) -> Connection:
        """The connection of a source without a broker."""
        return Connection()

    def close(self) -> None:  # noqa: B027  an input in memory has nothing to close
        """Stop reading. Does not block."""
