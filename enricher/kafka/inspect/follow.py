"""Follows a topic (`TopicReader`) and fetches single records (`RecordFinder`, `FirstRecords`). Committed records only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, Message, TopicPartition

from enricher.errors import BrokerError
from enricher.kafka.client import KafkaConfig
from enricher.kafka.client_errors import Complaint
from enricher.kafka.damage import DAMAGED
from enricher.kafka.inspect.consumer import END_OF_PARTITION, AssignedConsumer
from enricher.kafka.inspect.inspector import Inspector
from enricher.kafka.metadata import Deadline, bounds_of, partition_of, partitions_of, raw_record
from enricher.records import Partition, RawRecord

_POLL_S = 0.1
_NOT_THERE = {
    END_OF_PARTITION,
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001  retention has passed the offset
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}
_ONE_RECORD = {
    # One record of each partition is wanted, but a broker sends whole batches.
    "fetch.message.max.bytes": 65_536,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
}


class TopicReader(AssignedConsumer):
    """Delivers the committed records of all partitions of `topic`, each partition in order.

    `newest`: start that many offsets before the end of each partition; None starts at the beginning. `ends`: the end of
    each partition when it was opened. Raises BrokerError, also if there is no such topic.
    """

    def __init__(self, config: KafkaConfig, topic: str, *, newest: int | None = 0) -> None:
        super().__init__(config, properties={"fetch.wait.max.ms": 500})
        try:
            # Asked with this consumer: a new admin client now and then takes 3 s for its first offsets (librdkafka 2.16).
            self._doing = f"reading '{topic}'"
            with self._mapped():
                found = partitions_of(self._consumer, topic, config.request_timeout_s)
                bounds = {each.number: bounds_of(self._consumer, each, config.request_timeout_s) for each in found}
            starts = {n: low if newest is None else max(low, end - newest) for n, (low, end) in bounds.items()}
            self._assign(topic, starts)
        except BaseException:
            self.close()
            raise
        self.ends: Mapping[int, int] = {number: end for number, (_low, end) in bounds.items()}
        self._unfinished = {number for number, start in starts.items() if start < self.ends[number]}
        self._seen_end: set[int] = set()

    @property
    def finished(self) -> bool:
        """True when everything up to `ends` was delivered."""
        return not self._unfinished

    @property
    def fetched(self) -> bool:
        """True when the broker has answered for every partition: proof of the right to read, even of an empty topic."""
        return self._seen_end >= set(self.ends)

    def poll(self, timeout_s: float, limit: int = 500) -> Sequence[RawRecord]:
        """Some records, at most `limit`; blocks for at most `timeout_s` for the first."""
        messages = self._consume(1, timeout_s)
        if messages and limit > 1:
            messages += self._consume(limit - 1, 0)
        return [raw_record(message) for message in messages if self._is_record(message)]

    def _is_record(self, message: Message) -> bool:
        if not self._is_answer(message):
            return False
        number, is_record = message.partition() or 0, message.error() is None
        # Transaction markers occupy offsets, so the end may lie behind the last record: then the client reports the end.
        if not is_record or (message.offset() or 0) + 1 >= self.ends[number]:
            self._unfinished.discard(number)
            self._seen_end.add(number)
        return is_record


class RecordFinder(AssignedConsumer):
    """Fetches single records. Fastest for consecutive records of one partition."""

    def __init__(self, config: KafkaConfig, *, timeout_s: float = 2.0) -> None:
        super().__init__(config, properties={"auto.offset.reset": "error"})
        self._inspector = Inspector(config, self._complaint)
        self._timeout_s = timeout_s
        self._next: tuple[Partition, int] | None = None

    def find(self, partition: Partition, offset: int, topic_id: str | None = None) -> RawRecord | None:
        """The record at `offset`; None if it is gone, may not be read, or does not come in time.

        If the topic no longer has the `topic_id`, it was created again: the record at that offset is another one.
        """
        record = self._find(partition, offset)
        # Checked afterwards: a topic that has the id now had it while its record was read.
        same = record is None or topic_id is None or self._has_id(partition.topic, topic_id)
        return record if same else None

    def close(self) -> None:
        """Close the connections."""
        self._inspector.close()
        super().close()

    def _has_id(self, topic: str, topic_id: str) -> bool:
        try:
            with self._inspector.within(self._timeout_s):
                return topic_id == self._inspector.topic_id(topic)
        except BrokerError:  # the topic is gone, or no broker answers
            return False

    def _find(self, partition: Partition, offset: int) -> RawRecord | None:
        if self._next != (partition, offset):
            self._assign(partition.topic, {partition.number: offset})
        self._next, deadline = None, Deadline(self._timeout_s)
        while deadline.left_s():
            for message in self._consume(1, _POLL_S):
                error = message.error()
                if error is None:
                    return self._check(message, partition, offset)
                if error.code() in _NOT_THERE:
                    return None
        return None

    def _check(self, message: Message, partition: Partition, offset: int) -> RawRecord | None:
        record = raw_record(message)
        self._next = (record.partition, record.offset + 1)
        # A compacted topic delivers the next record that is left.
        return record if (record.partition, record.offset) == (partition, offset) else None


class FirstRecords(AssignedConsumer):
    """Fetches the first record from given offsets on, in many partitions at once."""

    def __init__(self, config: KafkaConfig, complaint: Complaint) -> None:
        super().__init__(config, complaint, _ONE_RECORD)

    def find(self, topic: str, starts: Mapping[int, int], deadline: Deadline) -> dict[int, RawRecord]:
        """The first committed record at or after each offset; partitions without one are left out. Raises BrokerError.

        A batch that cannot be read counts as a record at the offset that was asked for, without a timestamp.
        """
        found: dict[int, RawRecord] = {}
        waiting = set(starts)
        self._assign(topic, starts)
        while waiting:
            if not (left_s := deadline.left_s()):
                names = ", ".join(map(str, sorted(waiting)))
                timeout = KafkaError(KafkaError._TIMED_OUT, f"{self._doing}: no answer in time from partitions {names}")  # noqa: SLF001  the client's name
                raise BrokerError(self._complaint.explain(timeout))
            for message in self._consume(100, min(_POLL_S, left_s)):
                number = message.partition()
                if number not in waiting or not self._is_answer(message, DAMAGED):
                    continue
                assert number is not None
                waiting.discard(number)
                error = message.error()
                if error is None:
                    found[number] = raw_record(message)
                elif error.code() != END_OF_PARTITION:
                    found[number] = RawRecord(partition_of(message), starts[number], None, None)
                with self._mapped():
                    self._consumer.incremental_unassign([TopicPartition(topic, number)])
        with self._mapped():
            self._consumer.unassign()
        return found
