"""Turns the client's messages into records, and decides what happens to batches that cannot be read.

Runs in the loop's thread, inside the source's `poll`. `Assignment` knows which
partitions are assigned and where each begins.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from confluent_kafka import KafkaError, Message

from enricher.worker.kafka.reading.assignment import Assignment
from enricher.worker.kafka.reading.damage import DamageWatch
from enricher.worker.kafka.reading.unreadable import UnreadableBatches
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import ClientErrors
from enricher.worker.kafka.shared.errors import transient_error
from enricher.worker.kafka.shared.metadata import partition_of, raw_record
from enricher.worker.kafka.shared.topicwatch import TopicWatch
from enricher.worker.records import Partition, RawRecord

log = logging.getLogger(__name__)


class Delivery:
    """Delivers each record once and in order, or raises an error that waiting does not solve."""

    def __init__(
        self, config: KafkaConfig, assignment: Assignment, watch: TopicWatch, client_errors: ClientErrors
    ) -> None:
        self._config = config
        self._assignment = assignment
        self._positions = assignment.positions
        self._watch = watch
        self._client_errors = client_errors
        self._damage = DamageWatch()
        self._unreadable = UnreadableBatches(config)

    def records_of(self, messages: Sequence[Message], limit: int, now_s: float) -> list[RawRecord]:
        """The records in these messages. The client skips a damaged batch; this seeks back to it.

        `limit`: how many records were asked for.
        """
        records: list[RawRecord] = []
        damaged: set[Partition] = set()
        for message in messages:
            if damaged and partition_of(message) in damaged:
                continue
            if self._is_damaged(message, now_s):
                damaged.add(partition_of(message))
                records += self._stand_ins(message, max(1, limit - len(records)), now_s)
            elif record := self._delivered(message, now_s):
                records.append(record)
        if damaged:
            self._assignment.read_again(damaged)
        return records

    def _is_damaged(self, message: Message, now_s: float) -> bool:
        """Whether the batch must be read again. The client may also be at a wrong offset because of a damaged batch."""
        error = message.error()
        if error is None and not self._damage:
            return False
        partition = partition_of(message)
        expected = self._positions.next_offsets().get(partition)
        return expected is not None and self._damage.is_seen(error, partition, message.offset() or 0, expected, now_s)

    def _stand_ins(self, message: Message, limit: int, now_s: float) -> list[RawRecord]:
        """Records that stand for unreadable ones, once it is certain that they are unreadable.

        The client stays in front of their batch, so the rest of it follows in later turns.
        """
        error, partition = message.error(), partition_of(message)
        if error is None or not self._damage.is_unreadable(error, partition):
            return []
        expected = self._positions.next_offsets()[partition]
        span = self._unreadable.span(partition, expected, error, message.offset() or 0)
        records = self._unreadable.stand_ins(partition, span[:limit], self._watch.topic_id)
        for record in records:
            self._positions.delivered(record)
        self._assignment.delivered(partition, now_s)
        self._damage.passed(partition, self._positions.next_offsets()[partition], more=len(span) > len(records))
        return records

    def _delivered(self, message: Message, now_s: float) -> RawRecord | None:
        """The record of a message; None for events of the client and for partitions that are no longer assigned."""
        error = message.error()
        if error is None:
            record = raw_record(message, self._watch.topic_id, max_headers=self._config.max_headers)
            if not self._positions.delivered(record):
                return None
            self._assignment.delivered(record.partition, now_s)
            self._damage.whole(record.partition)
            return record
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's name
            partition = partition_of(message)
            if self._positions.ended(partition, message.offset() or 0):
                self._assignment.delivered(partition, now_s)
        else:
            log.warning("%s", transient_error(error, f"reading {self._config.input_topic}", self._client_errors))
        return None
