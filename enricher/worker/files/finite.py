"""The base classes of sources whose input ends, and of sinks without transactions."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, NoReturn, TypeVar

from enricher.errors import InvalidArticle
from enricher.worker.articles import letter_for
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.records import DeadLetter, EnrichedRecord, Partition, RawRecord, Release, Ticket, Tombstone
from enricher.worker.stats import Connection

Written = TypeVar("Written")
"""The type of an encoded record."""

_DELETED = DeadLetter("decode", "Deleted", "the document deletes an article (articles.deleted): it has no record")
"""The answer to a delete event, because outside of Kafka a record without a value has no form."""


class FiniteSource(ABC):
    """Delivers one partition once, from its beginning to its end. Offsets are numbers from 0. Subclasses read the records.

    The sink reports to `note_committed` what it has written; `caught_up` is False until then.
    """

    waits_for_commit = False

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._listener: PartitionListener | None = None
        self._position = 0
        """The next offset to deliver."""
        self._delivered_end = 0
        """The offset after the last record that was delivered."""
        self._ended = False
        self._committed = 0
        self._paused = self._held = False
        self._never_set = threading.Event()

    def open(self, listener: PartitionListener) -> None:
        """Deliver to this listener's worker. Raises FatalError if the input cannot be opened."""
        self._listener = listener

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """Return at most `limit` records. Blocks up to `timeout_s` for the first one, also while paused or at the end.

        The first call assigns the partition to the listener. Raises FatalError if the input cannot be read further.
        """
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.assigned([self.partition])
        if self._paused or self._held or self._ended:
            self._never_set.wait(timeout_s)
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
        """The next offset to deliver. At the end of the input it is also after offsets without a record."""
        return {self.partition: self._position} if self.partition in partitions else {}

    def note_committed(self, committable: Mapping[Partition, int]) -> None:
        """Note that the sink has written everything before these offsets."""
        self._committed = committable.get(self.partition, self._committed)

    def start_of(self, _partition: Partition) -> None:  # noqa: B027  the same for every such input
        """Return None: the input keeps no marks, so attempts are not counted."""

    def rewind(self) -> NoReturn:
        """Never called: the sink writes or ends the run."""
        raise AssertionError("without transactions there is nothing to recover from, so the source is never rewound")

    def caught_up(self) -> bool:
        """Whether the end of the input was reached and every record before it is written."""
        return self._ended and self._committed >= self._delivered_end

    def connection(self) -> Connection:
        """The connection of a source without a broker."""
        return Connection()

    def close(self) -> None:  # noqa: B027  an input in memory has nothing to close
        """Stop reading. Does not block."""


class PlainSink(ABC, Generic[Written]):
    """Writes outcomes in the order of the input, and reports the committable offsets to `committed`.

    A record that cannot be written becomes a dead letter. A delete event is written like one, and counts as none.
    """

    def __init__(self, committed: Callable[[Mapping[Partition, int]], None]) -> None:
        self._committed = committed

    def open(self) -> None:
        """Do nothing."""

    def publish(self, release: Release) -> Mapping[Ticket, DeadLetter]:
        """Write the outcomes of `release`. Returns the dead letters that were written instead of records."""
        outputs = [(ticket, self._output_of(ticket)) for ticket in release.tickets]
        self._write(outputs)
        self._committed(release.committable)
        return {
            ticket: output
            for ticket, output in outputs
            if isinstance(output, DeadLetter) and output is not ticket.outcome and output is not _DELETED
        }

    def serve(self) -> None:
        """Do nothing: there are no events."""

    def recover(self) -> NoReturn:
        """Never called: `publish` writes or ends the run."""
        raise AssertionError("without transactions there is nothing to recover from")

    def close(self) -> None:
        """Do nothing: `publish` leaves nothing unwritten."""

    @abstractmethod
    def _encode(self, record: EnrichedRecord) -> Written:
        """Encode a record. Raises InvalidArticle if that is impossible."""

    @abstractmethod
    def _write(self, outputs: Sequence[tuple[Ticket, Written | DeadLetter]]) -> None:
        """Write outputs in order. May block. Raises FatalError if that fails."""

    def _output_of(self, ticket: Ticket) -> Written | DeadLetter:
        if isinstance(ticket.outcome, DeadLetter):
            return ticket.outcome
        if isinstance(ticket.outcome, Tombstone):
            return _DELETED
        assert isinstance(ticket.outcome, EnrichedRecord), "only finished tickets are written"
        try:
            return self._encode(ticket.outcome)
        except InvalidArticle as error:
            return letter_for(error)
