"""Follows a topic (`TopicReader`) and fetches single records (`RecordFinder`, `FirstRecords`). Committed records only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, Message

from enricher.errors import BrokerError
from enricher.operate.inspect.inspector import Inspector
from enricher.worker.kafka.errors import Complaint, broker_errors
from enricher.worker.kafka.metadata import bounds_of, partition_of, partitions_of, raw_record
from enricher.worker.kafka.partition import DAMAGED
from enricher.worker.kafka.partition_reader import END_OF_PARTITION, NO_END, lone_reader, may_pass
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Partition, RawRecord
from enricher.worker.runtime.deadlines import Deadline

_NOT_THERE = {
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


class TopicReader:
    """Delivers the committed records of all partitions of `topic`, each partition in order.

    `newest`: start that many offsets before the end of each partition; None starts at the beginning. `ends`: the end of
    each partition when it was opened. `answers`: errors that count as an answer of their partition, which delivers nothing
    more. Raises BrokerError, also if there is no such topic.
    """

    def __init__(
        self, config: KafkaConfig, topic: str, *, newest: int | None = 0, answers: Collection[int] = ()
    ) -> None:
        self._complaint = Complaint()
        self._doing = f"reading '{topic}'"
        self._reader = lone_reader(config, self._complaint, {"fetch.wait.max.ms": 500})
        consumer, timeout_s = self._reader.consumer, config.request_timeout_s
        try:
            # Asked with this consumer: a new admin client now and then takes 3 s for its first offsets (librdkafka 2.16).
            with broker_errors(consumer, self._doing, self._complaint):
                found = partitions_of(consumer, topic, timeout_s)
                bounds = {each.number: bounds_of(consumer, each, timeout_s) for each in found}
        except BaseException:
            self.close()
            raise
        starts = {n: low if newest is None else max(low, end - newest) for n, (low, end) in bounds.items()}
        self.ends: Mapping[int, int] = {number: end for number, (_low, end) in bounds.items()}
        self._unfinished = {number for number, start in starts.items() if start < self.ends[number]}
        self._unheard = set(self.ends)
        ranges = {number: (start, NO_END) for number, start in starts.items()}
        self._messages = self._reader.read(topic, ranges, partial(may_pass, taken=answers))

    @property
    def finished(self) -> bool:
        """True when everything up to `ends` was delivered."""
        return not self._unfinished

    @property
    def fetched(self) -> bool:
        """True when the broker has answered for every partition: proof of the right to read, even of an empty topic."""
        return not self._unheard

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def poll(self, timeout_s: float) -> Sequence[RawRecord]:
        """Some records, possibly none; blocks for at most `timeout_s` for the first."""
        records: list[RawRecord] = []
        deadline = Deadline(timeout_s)
        with broker_errors(self._reader.consumer, self._doing, self._complaint):
            for message in self._messages:
                if message is None:
                    if records or deadline.over:
                        break
                elif self._is_record(message):
                    records.append(raw_record(message))
        return records

    def _is_record(self, message: Message) -> bool:
        number, is_record = message.partition() or 0, message.error() is None
        # Transaction markers occupy offsets, so the end may lie behind the last record: then the client reports the end.
        if not is_record or (message.offset() or 0) + 1 >= self.ends[number]:
            self._unfinished.discard(number)
            self._unheard.discard(number)
        return is_record


class RecordFinder:
    """Fetches single records. Fastest for consecutive records of one partition."""

    def __init__(self, config: KafkaConfig, *, timeout_s: float = 2.0) -> None:
        self._complaint = Complaint()
        self._reader = lone_reader(config, self._complaint, {"auto.offset.reset": "error"})
        self._inspector = Inspector(config, self._complaint)
        self._timeout_s = timeout_s
        self._next: tuple[Partition, int] | None = None
        self._messages: Iterator[Message | None] = iter(())

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
        self._reader.close()

    def _has_id(self, topic: str, topic_id: str) -> bool:
        try:
            with self._inspector.within(self._timeout_s):
                return topic_id == self._inspector.topic_id(topic)
        except BrokerError:  # the topic is gone, or no broker answers
            return False

    def _find(self, partition: Partition, offset: int) -> RawRecord | None:
        if self._next != (partition, offset):
            ranges = {partition.number: (offset, NO_END)}
            self._messages = self._reader.read(partition.topic, ranges, lambda error: error.code() in _NOT_THERE)
        self._next, deadline = None, Deadline(self._timeout_s)
        with broker_errors(self._reader.consumer, f"reading '{partition.topic}'", self._complaint):
            for message in self._messages:
                if message is None:
                    if deadline.over:
                        break
                elif message.error() is None:
                    record = raw_record(message)
                    self._next = (record.partition, record.offset + 1)
                    # A compacted topic delivers the next record that is left.
                    return record if (record.partition, record.offset) == (partition, offset) else None
                else:
                    break
        return None


class FirstRecords:
    """Fetches the first record from given offsets on, in many partitions at once."""

    def __init__(self, config: KafkaConfig, complaint: Complaint) -> None:
        self._complaint = complaint
        self._reader = lone_reader(config, complaint, _ONE_RECORD)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def find(self, topic: str, starts: Mapping[int, int], deadline: Deadline) -> dict[int, RawRecord]:
        """The first committed record at or after each offset; partitions without one are left out. Raises BrokerError.

        A batch that cannot be read counts as a record at the offset that was asked for, without a timestamp.
        """
        found: dict[int, RawRecord] = {}
        doing, reader = f"reading '{topic}'", self._reader
        ranges = {number: (start, NO_END) for number, start in starts.items()}
        with broker_errors(reader.consumer, doing, self._complaint):
            for message in reader.read(topic, ranges, partial(may_pass, taken=DAMAGED), deadline=deadline):
                if message is None:
                    continue
                number, error = message.partition() or 0, message.error()
                if error is None:
                    found[number] = raw_record(message)
                elif error.code() != END_OF_PARTITION:
                    found[number] = RawRecord(partition_of(message), starts[number], None, None)
                reader.finish(number)
        if reader.left:
            names = ", ".join(map(str, sorted(reader.left)))
            timeout = KafkaError(KafkaError._TIMED_OUT, f"{doing}: no answer in time from partitions {names}")  # noqa: SLF001  the client's name
            raise BrokerError(self._complaint.explain(timeout))
        return found
