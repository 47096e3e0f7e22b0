"""A source and a sink in memory: another thread puts articles in and takes answers out.

The other thread decides how far it reads ahead, by asking `has_room`. Nothing here knows formats of files or of answers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from enricher.worker.files.finite_sources import FiniteSource
from enricher.worker.files.plain_sinks import PlainSink, Written
from enricher.worker.records import DeadLetter, EnrichedRecord, Partition, RawRecord, Ticket

WAIT_S = 0.5
"""The longest single wait of the other thread."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[Written]):
    """The result for the record at `offset`: what was written for it, or why nothing was."""

    offset: int
    written: Written | DeadLetter


class AnswerSink(PlainSink[Written]):
    """Hands over what `write` makes of each record, and dead letters as they are.

    `write` raises InvalidArticle for a record that cannot be written.
    """

    def __init__(
        self,
        write: Callable[[EnrichedRecord], Written],
        hand_over: Callable[[Sequence[Answer[Written]]], None],
        *,
        committed: Callable[[Mapping[Partition, int]], None],
    ) -> None:
        super().__init__(committed)
        self._encode_record = write
        self._hand_over = hand_over

    def _encode(self, record: EnrichedRecord) -> Written:
        return self._encode_record(record)

    def _write(self, outputs: Sequence[tuple[Ticket, Written | DeadLetter]]) -> None:
        self._hand_over([Answer(ticket.raw.offset, output) for ticket, output in outputs])


class Exchange(FiniteSource, Generic[Written]):
    """A source into which another thread puts records, and from which it takes the answers.

    That thread calls `has_room`, `put`, `refuse`, `end`, `wait` and `take`; the worker's thread calls the rest. At most
    `queue_records` records and `queue_bytes` bytes, plus one record, wait for the worker. About as many answers wait to be
    taken, plus those of the records that the worker has in flight.
    """

    def __init__(self, partition: Partition, *, queue_records: int = 256, queue_bytes: int = 32 * 2**20) -> None:
        super().__init__(partition)
        self._max_records = queue_records
        self._max_bytes = queue_bytes
        self._records: deque[RawRecord] = deque()
        self._record_bytes = 0
        self._answers: deque[Answer[Written]] = deque()
        self._refused: deque[Answer[Written]] = deque()
        self._next_put = self._next_taken = 0
        """The offsets of the next record to put in, and of the next answer to take."""
        self._last = False
        """Whether no more records will be put in."""
        self._over = False
        self._changed = threading.Condition()

    # ---- the other thread

    def has_room(self) -> bool:
        """Whether another record may be put in."""
        waiting = len(self._records)
        if (
            self._last
            or self._over
            or waiting >= self._max_records
            or len(self._answers) + len(self._refused) >= self._max_records
        ):
            return False
        return not waiting or self._record_bytes < self._max_bytes

    def put(self, value: bytes) -> None:
        """Give the worker a record. Never blocks."""
        with self._changed:
            self._records.append(RawRecord(self.partition, self._next_put, key=None, value=value))
            self._record_bytes += len(value)
            self._next_put += 1
            self._changed.notify_all()

    def refuse(self, letter: DeadLetter) -> None:
        """Answer the next record without the worker; `take` returns its answer in the right order."""
        self._refused.append(Answer(self._next_put, letter))
        self._next_put += 1

    def end(self) -> None:
        """Note that no more records follow."""
        with self._changed:
            self._last = True
            self._changed.notify_all()

    def take(self) -> Answer[Written] | None:
        """The next answer, in the order of the records; None if there is none yet. Never blocks."""
        with self._changed:
            answers = self._refused if self._refused and self._refused[0].offset == self._next_taken else self._answers
            if not answers:
                return None
            self._next_taken += 1
            return answers.popleft()

    def wait(self) -> None:
        """Block until there is an answer, room for a record, or the end; `WAIT_S` at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._answers or self._over or self.has_room(), WAIT_S)

    @property
    def over(self) -> bool:
        """True once no more answers come."""
        return self._over

    # ---- the worker's thread

    def hand_over(self, answers: Sequence[Answer[Written]]) -> None:
        """Let the other thread take these answers."""
        with self._changed:
            self._answers.extend(answers)
            self._changed.notify_all()

    def finish(self) -> None:
        """Note that no more answers come."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _next_records(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        with self._changed:
            self._changed.wait_for(lambda: self._records or self._last, timeout_s)
            records: list[RawRecord] = []
            while self._records and len(records) < limit:
                records.append(self._records.popleft())
                self._record_bytes -= len(records[-1].value or b"")
            if records:
                self._position = self._delivered_end = records[-1].offset + 1
                self._changed.notify_all()
            self._ended = self._last and not self._records
        return records
