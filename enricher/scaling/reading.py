"""Asks the brokers what is unprocessed. Joins no group, commits nothing, moves nobody's offsets.

It needs READ on the input topic and DESCRIBE on the group, which READ on it includes: less than a worker has. Where the
group has no committed offsets, READ on the output topics tells more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from enricher.errors import BrokerError
from enricher.kafka.asking import ClientLog, Complaint, asking, silenced
from enricher.kafka.client import KafkaConfig
from enricher.kafka.damage import DAMAGED
from enricher.kafka.errors import constructing, mapped
from enricher.kafka.metadata import listed_offsets, partition_of, partitions_of, raw_record
from enricher.kafka.topicids import topic_id_of
from enricher.records import RawRecord
from enricher.scaling.backlog import Backlog, PartitionBacklog
from enricher.scaling.starting import ResumePoints, counts

_END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001  the client's name
# The client looks for the group's coordinator although this consumer never joins: no right on the group is needed here.
_NOT_OUR_CONCERN = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE}
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types here
# Passing states of a broker that the client does not mark as such in the answers to an administrator.
_LATER = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_LOOK_AGAIN_S = 0.1
_POLL_S = 0.1
_FETCH = {
    # One record of each partition is wanted, and a broker sends whole batches of them.
    "fetch.message.max.bytes": 65_536,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    # Where there is nothing to read, this is how long the answer takes.
    "fetch.wait.max.ms": 50,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
}
_Answer = TypeVar("_Answer")


class BacklogReader:
    """Looks at the input topic of `config` as its group stands in it; keeps its connections for the next look.

    `clock` is the wall clock that ages are told by. Not safe for several threads. Raises SettingsError where librdkafka
    does not take the properties.
    """

    def __init__(self, config: KafkaConfig, *, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        self._complaint = Complaint(config)
        log = ClientLog()
        with constructing():
            self._admin = AdminClient(silenced(config.client("admin"), self._complaint), logger=log.logger)
            self._consumer = Consumer(silenced(config.consumer() | _FETCH, self._complaint), logger=log.logger)
            # Asks for offsets that a pending transaction holds back too, which the other one would wait for.
            latest = config.consumer() | {"isolation.level": "read_uncommitted"}
            self._latest = Consumer(silenced(latest, self._complaint), logger=log.logger)
        self._resume_points = ResumePoints(config)

    def look(self, timeout_s: float | None = None) -> Backlog:
        """What is unprocessed now. Blocks for at most `timeout_s`, the request timeout if None. Raises BrokerError."""
        topic = self._config.input_topic
        patience = _Patience(timeout_s or self._config.request_timeout_s, self._asking)
        with self._asking(f"asking for the topic '{topic}'", self._consumer):
            tps = [
                TopicPartition(topic, each.number) for each in partitions_of(self._consumer, topic, patience.left_s())
            ]
        # In this order: what moves meanwhile is then taken for unprocessed, and never the other way round.
        committed = self._committed(tps, patience)
        firsts = self._offsets(tps, _EARLIEST, patience, IsolationLevel.READ_UNCOMMITTED)
        ends = self._offsets(tps, _LATEST, patience, IsolationLevel.READ_COMMITTED)
        written = self._offsets(tps, _LATEST, patience, IsolationLevel.READ_UNCOMMITTED)
        missing = [number for number, offset in committed.items() if offset is None]
        resumed = self._resume_points.starts(missing, firsts, ends)
        starts = {
            n: _start(resumed[n] if committed[n] is None else committed[n], first, written[n])
            for n, first in firsts.items()
        }
        oldest = self._oldest({n: start for n, start in starts.items() if start < ends[n]}, patience)
        now_s = self._clock()
        partitions = tuple(
            PartitionBacklog(
                number=n,
                committed=committed[n],
                start=start,
                end=ends[n],
                behind=max(0, ends[n] - record.offset) if (record := oldest.get(n)) else 0,
                age_s=_age_s(record, now_s),
                hidden=max(0, written[n] - ends[n]),
            )
            for n, start in sorted(starts.items())
        )
        return Backlog(self._config.group_id, topic, partitions, self._workers(patience))

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()
        self._latest.close()

    # ---- inside

    def _committed(self, tps: list[TopicPartition], patience: _Patience) -> dict[int, int | None]:
        """As they are now: what an open transaction may add is not in.

        Of the consumer: an administrator's request to a coordinator that is not there yet ends the process when it times out
        (librdkafka 2.16, an assertion in rdkafka_queue.h).
        """
        group = self._config.group_id

        def ask(left_s: float) -> dict[int, int | None]:
            try:
                answer = self._latest.committed(tps, timeout=left_s)
            except KafkaException as exception:
                raise KafkaException(self._refusal() or exception.args[0]) from exception
            for tp in answer:
                if tp.error:
                    raise KafkaException(tp.error)
            topic_id = topic_id_of(self._admin, self._config.input_topic, left_s)
            return {tp.partition: tp.offset if counts(tp, topic_id) else None for tp in answer}

        return patience.ask(f"asking for the committed offsets of the group '{group}'", self._admin, ask)

    def _refusal(self) -> KafkaError | None:
        """Where a right on the group is missing, the consumer says so only among its messages."""
        for message in self._latest.consume(10, 0.1):
            error = message.error()
            if error and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                return error
        return None

    def _offsets(
        self, tps: list[TopicPartition], spec: OffsetSpec, patience: _Patience, isolation: IsolationLevel
    ) -> dict[int, int]:
        def ask(left_s: float) -> dict[int, int]:
            wanted = dict.fromkeys(tps, spec)
            return listed_offsets(self._admin, wanted, isolation, left_s)

        return patience.ask(f"asking for the offsets of '{self._config.input_topic}'", self._admin, ask)

    def _workers(self, patience: _Patience) -> int:
        group = self._config.group_id

        def ask(left_s: float) -> int:
            # The older of two questions, for the reason above: it asks every broker, and needs no coordinator.
            found = self._admin.list_groups(group, timeout=left_s)
            return sum(len(each.members) for each in found if each.id == group)

        return patience.ask(f"asking for the members of the group '{group}'", self._admin, ask)

    def _oldest(self, starts: Mapping[int, int], patience: _Patience) -> dict[int, RawRecord]:
        """The first committed record at or behind each of the offsets; a partition without one is not in it."""
        topic, waiting = self._config.input_topic, set(starts)
        doing = f"reading '{topic}'"
        found: dict[int, RawRecord] = {}
        with self._asking(doing, self._consumer):
            self._consumer.assign([TopicPartition(topic, number, start) for number, start in starts.items()])
            while waiting:
                if not (left_s := patience.left_s()):
                    names = ", ".join(map(str, sorted(waiting)))
                    raise BrokerError(self._explained(f"{doing}: no answer in time from partitions {names}"))
                for message in self._consumer.consume(100, min(_POLL_S, left_s)):
                    number = message.partition()
                    if number in waiting and self._is_answer(message, doing):
                        assert number is not None
                        waiting.discard(number)
                        if record := _record_of(message, starts[number]):
                            found[number] = record
                        self._consumer.incremental_unassign([TopicPartition(topic, number)])
            self._consumer.unassign()
        return found

    def _is_answer(self, message: Message, doing: str) -> bool:
        """True for a record, for the end, and for what cannot be read; raises BrokerError where no asking would help."""
        error = message.error()
        if error is None or error.code() == _END_OF_PARTITION or error.code() in DAMAGED:
            return True
        if error.code() not in _NOT_OUR_CONCERN and (error.fatal() or not error.retriable()):
            raise BrokerError(str(mapped(error, doing, self._complaint)))
        return False

    def _explained(self, message: str) -> str:
        return self._complaint.explain(KafkaError(KafkaError._TIMED_OUT, message))  # noqa: SLF001  the client's name

    def _asking(self, doing: str, client: Consumer | AdminClient) -> AbstractContextManager[None]:
        return asking(client, doing, self._complaint)


class _Patience:
    """The time that one look has left, for all of its questions together."""

    def __init__(
        self, timeout_s: float, asking_of: Callable[[str, Consumer | AdminClient], AbstractContextManager[None]]
    ) -> None:
        self._until_s = time.monotonic() + timeout_s
        self._asking = asking_of

    def left_s(self) -> float:
        """Seconds, never below 0."""
        return max(0.0, self._until_s - time.monotonic())

    def ask(self, doing: str, client: AdminClient, question: Callable[[float], _Answer]) -> _Answer:
        """Asks again while the broker may know later: a partition that changes its leader has none for a moment."""
        with self._asking(doing, client):
            while True:
                try:
                    return question(max(_LOOK_AGAIN_S, self.left_s()))
                except KafkaException as exception:
                    error = exception.args[0]
                    passing = error.retriable() or error.code() in _LATER
                    if not passing or self.left_s() < _LOOK_AGAIN_S:
                        raise
                    time.sleep(_LOOK_AGAIN_S)


def _record_of(message: Message, start: int) -> RawRecord | None:
    """None at the end. What cannot be read counts from `start` on, and nobody knows how old it is."""
    if (error := message.error()) is None:
        return raw_record(message)
    return RawRecord(partition_of(message), start, None, None) if error.code() in DAMAGED else None


def _start(committed: int | None, first: int, written: int) -> int:
    """Where a worker begins: behind the commit, or where there is none, or nothing there, at what is left."""
    return committed if committed is not None and first <= committed <= written else first


def _age_s(record: RawRecord | None, now_s: float) -> float | None:
    if record is None:
        return 0.0
    return None if record.timestamp_s is None else max(0.0, now_s - record.timestamp_s)
