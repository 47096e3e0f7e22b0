"""Reads topics and groups without joining a group: for `lag`, `tail`, `verify`, `doctor`.

`Inspector` asks about topics and groups; `TopicReader` and `RecordFinder` read committed records only. Nothing here commits
an offset, writes a record, or decides what a worker does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from enricher.worker.kafka.errors import Complaint, broker_errors, new_client
from enricher.worker.kafka.metadata import (
    answer_to,
    bounds_of,
    listed_offsets,
    offsets_at_time,
    partitions_of,
    raw_record,
    settings_of,
    topic_id_of,
)
from enricher.worker.kafka.partition_reader import NO_END, committed_offsets, lone_consumer, lone_reader, may_pass
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Partition, RawRecord
from enricher.worker.runtime.deadlines import Deadline

_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types here
_Answer = TypeVar("_Answer")


_NOT_THERE = {
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001  retention has passed the offset
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class Inspector:
    """Asks about topics, and about the group of `config`. For one thread.

    Every method blocks for at most the request timeout (see `within`), and repeats a question that a broker cannot answer
    yet: a partition has no leader during an election. Raises BrokerError. `numbers` selects partitions; None means all.
    The constructor raises SettingsError.

    `stable`: wait until no transaction with offsets of the group is pending, instead of answering with those before it.
    """

    def __init__(self, config: KafkaConfig, complaint: Complaint | None = None, *, stable: bool = False) -> None:
        self._config = config
        self._complaint = complaint or Complaint()
        self._admin = new_client(AdminClient, config.client("admin"), self._complaint)
        isolation = "read_committed" if stable else "read_uncommitted"
        self._consumer = lone_consumer(config, self._complaint, {"isolation.level": isolation})
        self._deadline: Deadline | None = None

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[Deadline]:
        """Give all questions in the body together one time limit."""
        self._deadline = Deadline(timeout_s)
        try:
            yield self._deadline
        finally:
            self._deadline = None

    def partitions(self, topic: str) -> list[int]:
        """The partition numbers, in order. Raises BrokerError at once if there is no such topic."""

        def ask(left_s: float) -> list[int]:
            return [partition.number for partition in partitions_of(self._consumer, topic, left_s)]

        return self._ask(f"asking for the topic '{topic}'", ask, client=self._consumer)

    def topic_id(self, topic: str) -> str:
        """Kafka's id of a topic. Raises BrokerError at once if there is no such topic."""
        self.partitions(topic)
        # The topic exists, but another broker may not have heard of it yet.
        later = {KafkaError.UNKNOWN_TOPIC_OR_PART}
        doing = f"asking for the id of the topic '{topic}'"
        return self._ask(doing, lambda left_s: topic_id_of(self._admin, topic, left_s), later)

    def beginnings(self, topic: str, numbers: Sequence[int] | None = None) -> dict[int, int]:
        """The first offset of each partition that retention has left."""
        return self._offsets(topic, numbers, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def ends(self, topic: str, numbers: Sequence[int] | None = None, *, committed_only: bool) -> dict[int, int]:
        """The end of each partition: the last stable offset if `committed_only`, else the high offset."""
        isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(topic, numbers, _LATEST, isolation)

    def at_time(self, topic: str, numbers: Sequence[int], time_s: float) -> dict[int, int | None]:
        """The offset of the first record with this timestamp or a later one; None if the partition has none.

        `time_s`: seconds since the epoch.
        """
        doing = f"asking for the offsets of '{topic}' at a time"
        consumer = self._consumer
        return self._ask(
            doing, lambda left_s: offsets_at_time(consumer, topic, numbers, time_s, left_s), client=consumer
        )

    def is_compacted(self, topic: str) -> bool | None:
        """Whether the broker drops records for newer ones with the same key; None without the right to ask."""
        doing = f"asking for the settings of '{topic}'"
        settings = self._ask(doing, lambda left_s: settings_of(self._admin, topic, left_s))
        return None if settings is None else "compact" in settings["cleanup.policy"]

    def committed_offsets(self, topic: str, numbers: Sequence[int] | None = None) -> list[TopicPartition]:
        """The group's committed offsets as the client returns them, without those of pending transactions.

        Asked with a consumer: an administrator's request may not time out, see `COORDINATOR_LIMIT_S`.
        """
        tps = self._places(topic, numbers)

        def ask(left_s: float) -> list[TopicPartition]:
            return committed_offsets(self._consumer, tps, left_s)

        return self._ask(f"asking for the committed offsets of the group '{self._config.group_id}'", ask)

    def members(self) -> int:
        """How many members the group has now."""
        group = self._config.group_id

        def ask(left_s: float) -> int:
            # The deprecated request: it asks every broker and needs no coordinator, see `committed_offsets`.
            found = self._admin.list_groups(group, timeout=left_s)
            return sum(len(each.members) for each in found if each.id == group)

        return self._ask(f"asking for the members of the group '{group}'", ask)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _places(self, topic: str, numbers: Sequence[int] | None) -> list[TopicPartition]:
        return [TopicPartition(topic, each) for each in (self.partitions(topic) if numbers is None else numbers)]

    def _offsets(
        self, topic: str, numbers: Sequence[int] | None, spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[int, int]:
        wanted = dict.fromkeys(self._places(topic, numbers), spec)

        def ask(left_s: float) -> dict[int, int]:
            listed = listed_offsets(self._admin, wanted, isolation, left_s)
            return {partition.number: offset for partition, offset in listed.items()}

        return self._ask(f"asking for the offsets of '{topic}'", ask)

    def _ask(
        self,
        doing: str,
        question: Callable[[float], _Answer],
        later: Collection[int] = (),
        client: AdminClient | Consumer | None = None,
    ) -> _Answer:
        """Ask a question as `answer_to` does, within the time that is left."""
        deadline = self._deadline or Deadline(self._config.request_timeout_s)
        with broker_errors(client or self._admin, doing, self._complaint):
            return answer_to(question, deadline, later)


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
        self._timeout_s = timeout_s
        self._next: tuple[Partition, int] | None = None
        self._messages: Iterator[Message | None] = iter(())

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def find(self, partition: Partition, offset: int) -> RawRecord | None:
        """The record at `offset`; None if it is gone, may not be read, or does not come in time."""
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
