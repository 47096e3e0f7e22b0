"""Reads topics without joining a group: for the commands that only look. Commits nothing, moves nobody's offsets.

`TopicReader` follows a topic, `RecordFinder` fetches single records by their place. Both see committed records only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from enricher.errors import BrokerError
from enricher.kafka.asking import ClientLog, Complaint, asking, silenced
from enricher.kafka.client import KafkaConfig
from enricher.kafka.errors import constructing, mapped
from enricher.kafka.metadata import bounds_of, partitions_of, raw_record
from enricher.kafka.topicids import topic_id_of
from enricher.kafka.unreadable import UNREADABLE
from enricher.records import Partition, RawRecord

_END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001  the client's name
# The client looks for the group's coordinator although this consumer never joins: no right on the group is needed here.
_NOT_OUR_CONCERN = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE}
_GONE = {
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001  retention has passed over the offset
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class UnreadableBatch(BrokerError):
    """The broker gave a batch that the client cannot unpack; the client does not get past it."""


class TopicReader:
    """Delivers the committed records of all partitions of `topic`, each partition in order.

    `newest`: begin with so many records before the end of each partition; None begins at the beginning.
    `ends`: the end of each partition when it was opened. Raises BrokerError, also where the topic is missing.
    """

    def __init__(self, config: KafkaConfig, topic: str, *, newest: int | None = 0) -> None:
        self._topic = topic
        self._complaint = Complaint()
        # Where retention is faster than we read, go on with what is left.
        self._consumer = _consumer(config, self._complaint, when_gone="earliest")
        self._timeout_s = config.request_timeout_s
        self._unfinished: set[int] = set()
        self._seen_end: set[int] = set()
        self.ends: Mapping[int, int] = {}
        try:
            with self._asking():
                self._start(self._bounds(), newest)
        except BaseException:
            self._consumer.close()
            raise

    @property
    def finished(self) -> bool:
        """True when everything up to `ends` was delivered."""
        return not self._unfinished

    @property
    def fetched(self) -> bool:
        """True when the broker has answered for every partition: a proof that we may read, even where there is nothing."""
        return self._seen_end >= set(self.ends)

    def poll(self, timeout_s: float, limit: int = 500) -> Sequence[RawRecord]:
        """Some records, at most `limit`; blocks for at most `timeout_s` for the first."""
        with self._asking():
            messages = self._consumer.consume(1, timeout_s)
            if messages and limit > 1:
                messages += self._consumer.consume(limit - 1, 0)
        return [raw_record(message) for message in messages if self._is_record(message)]

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _is_record(self, message: Message) -> bool:
        error, index, offset = message.error(), message.partition(), message.offset()
        if error is None or error.code() == _END_OF_PARTITION:
            assert index is not None
            assert offset is not None
            self._note(index, offset + (error is None), at_end=error is not None)
            return error is None
        if error.code() not in _NOT_OUR_CONCERN:
            trouble = mapped(error, f"reading '{self._topic}'", self._complaint)
            if error.fatal() or not error.retriable():
                raise (UnreadableBatch if error.code() == UNREADABLE else BrokerError)(str(trouble))
        return False

    def _note(self, index: int, position: int, *, at_end: bool) -> None:
        # Transaction markers occupy offsets, so the end may lie behind the last record: then the client's word counts.
        if at_end or position >= self.ends[index]:
            self._unfinished.discard(index)
            self._seen_end.add(index)

    def _start(self, bounds: Mapping[int, tuple[int, int]], newest: int | None) -> None:
        starts = {index: low if newest is None else max(low, end - newest) for index, (low, end) in bounds.items()}
        self.ends = {index: end for index, (_low, end) in bounds.items()}
        self._unfinished = {index for index, start in starts.items() if start < self.ends[index]}
        self._consumer.assign([TopicPartition(self._topic, index, start) for index, start in starts.items()])

    def _bounds(self) -> dict[int, tuple[int, int]]:
        """First offset and end (of what is committed) of each partition."""
        partitions = partitions_of(self._consumer, self._topic, self._timeout_s)
        return {partition.number: bounds_of(self._consumer, partition, self._timeout_s) for partition in partitions}

    def _asking(self) -> AbstractContextManager[None]:
        return asking(self._consumer, f"reading '{self._topic}'", self._complaint)


class RecordFinder:
    """Fetches single records. Fastest where neighbours of one partition are asked for one after the other."""

    def __init__(self, config: KafkaConfig, *, patience_s: float = 2.0) -> None:
        self._complaint = Complaint()
        self._consumer = _consumer(config, self._complaint, when_gone="error")
        with constructing():
            self._admin = AdminClient(silenced(config.client("admin"), self._complaint), logger=ClientLog().logger)
        self._patience_s = patience_s
        self._next: tuple[Partition, int] | None = None

    def find(self, partition: Partition, offset: int, topic_id: str | None = None) -> RawRecord | None:
        """The record at `offset`; None where it is gone, may not be read, or does not come within the patience.

        With a `topic_id` it is gone too where the topic has another one by now: what stands there is another record.
        """
        record = self._find(partition, offset)
        # Asked afterwards: a topic that has the id now had it while its record was read.
        wanted = record is None or topic_id is None or self._has_id(partition.topic, topic_id)
        return record if wanted else None

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _has_id(self, topic: str, topic_id: str) -> bool:
        try:
            return topic_id == topic_id_of(self._admin, topic, self._patience_s)
        except KafkaException:  # the topic is gone, or nobody says which one it is
            return False

    def _find(self, partition: Partition, offset: int) -> RawRecord | None:
        if self._next != (partition, offset):
            self._consumer.assign([TopicPartition(partition.topic, partition.number, offset)])
        self._next = None
        give_up_s = time.monotonic() + self._patience_s
        while time.monotonic() < give_up_s:
            message = self._consumer.poll(0.1)
            error = message.error() if message else None
            if error is not None and error.code() in {_END_OF_PARTITION, *_GONE}:
                return None
            if message is not None and error is None:
                return self._check(message, partition, offset)
        return None

    def _check(self, message: Message, partition: Partition, offset: int) -> RawRecord | None:
        record = raw_record(message)
        self._next = (record.partition, record.offset + 1)
        # A compacted topic delivers the next record that is left.
        return record if (record.partition, record.offset) == (partition, offset) else None


def _consumer(config: KafkaConfig, complaint: Complaint, *, when_gone: str) -> Consumer:
    properties = silenced(config.consumer(), complaint) | {"enable.partition.eof": True, "auto.offset.reset": when_gone}
    with constructing():
        return Consumer(properties, logger=ClientLog().logger)
