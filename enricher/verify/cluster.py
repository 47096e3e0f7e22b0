"""What a verification asks the broker: ids, ends, beginnings, committed offsets, clean-up policies. Clients of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from enricher.kafka.asking import ClientLog, Complaint, asking, silenced
from enricher.kafka.client import KafkaConfig
from enricher.kafka.errors import constructing
from enricher.kafka.metadata import NO_LEADER_YET, listed_offsets, partitions_of
from enricher.verify.committed import Committed, committed_of

_LOOK_AGAIN_S = 0.1
_PENDING_S = 1.0
_TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001  the client's name
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types here
_DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_UNKNOWN_YET = {KafkaError.UNKNOWN_TOPIC_OR_PART}  # a topic that was just created, to a broker that has not heard of it
_NO_ID = {"", "A" * 22}  # 16 bytes of zeros: what brokers before 2.8 answer
_Answer = TypeVar("_Answer")


class Cluster:
    """Asks about the topics and the group of `config`. Every method may block; raises BrokerError and SettingsError."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._complaint = Complaint()
        self._stable = _consumer(config, self._complaint, "read_committed")
        self._latest = _consumer(config, self._complaint, "read_uncommitted")
        with constructing():
            self._admin = AdminClient(silenced(config.client("admin"), self._complaint), logger=ClientLog().logger)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, in order. Raises BrokerError where there is no such topic."""
        with self._asking(f"asking for the topic '{topic}'", self._stable):
            return [
                partition.number for partition in partitions_of(self._stable, topic, self._config.request_timeout_s)
            ]

    def topic_id(self, topic: str) -> str | None:
        """Kafka's id of a topic; None where the broker gives none. Raises BrokerError where there is no such topic."""
        self.partitions(topic)

        def ask() -> str:
            future = self._admin.describe_topics(
                TopicCollection([topic]), request_timeout=self._config.request_timeout_s
            )[topic]
            return str(future.result().topic_id)

        with self._asking(f"asking for the id of the topic '{topic}'", self._admin):
            found = self._patiently(ask, _UNKNOWN_YET)
        return None if found in _NO_ID else found

    def beginnings(self, topic: str) -> dict[int, int]:
        """The first offset of each partition that retention has left."""
        return self._offsets(topic, _EARLIEST, committed_only=False)

    def ends(self, topic: str, *, committed_only: bool) -> dict[int, int]:
        """The end of each partition: the last stable offset where `committed_only`, else the high watermark."""
        return self._offsets(topic, _LATEST, committed_only=committed_only)

    def compacted(self, topic: str) -> bool | None:
        """Whether the broker drops records for newer ones of their key; None where we may not know."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        with self._asking(f"asking for the settings of '{topic}'", self._admin):
            try:
                future = self._admin.describe_configs([resource], request_timeout=self._config.request_timeout_s)[
                    resource
                ]
                entries: Mapping[str, Any] = future.result()
            except KafkaException as exception:
                if exception.args[0].code() in _DENIED:
                    return None
                raise
        return "compact" in str(entries["cleanup.policy"].value)

    def committed(self) -> Committed:
        """The group's committed offsets in the input topic, as they are now: what an open transaction may add is not in."""
        return committed_of(self._asked_committed(self._latest, self._input(), self._config.request_timeout_s))

    def settled(self, timeout_s: float) -> tuple[Committed, Committed]:
        """The committed offsets when no open transaction holds any back, and those that one still holds back.

        Waits for such transactions for at most `timeout_s`. The second part is empty where all came to an end.
        """
        tps = self._input()
        with suppress(_Pending):
            return committed_of(self._asked_committed(self._stable, tps, timeout_s)), {}
        pending = [tp for tp in tps if self._is_pending(tp)]
        committed = self.committed()
        return committed, {tp.partition: committed[tp.partition] for tp in pending}

    def close(self) -> None:
        """Let go of the connections."""
        self._stable.close()
        self._latest.close()

    # ---- inside

    def _input(self) -> list[TopicPartition]:
        topic = self._config.input_topic
        return [TopicPartition(topic, number) for number in self.partitions(topic)]

    def _is_pending(self, tp: TopicPartition) -> bool:
        try:
            self._asked_committed(self._stable, [tp], _PENDING_S)
        except _Pending:
            return True
        return False

    def _asked_committed(self, consumer: Consumer, tps: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        """Raises _Pending where only the consumer of stable offsets has no answer: the broker makes it wait."""
        with self._asking(f"asking for the committed offsets of the group '{self._config.group_id}'", consumer):
            try:
                answer = consumer.committed(tps, timeout=timeout_s)
            except KafkaException as exception:
                if consumer is self._stable and exception.args[0].code() == _TIMED_OUT:
                    raise _Pending from exception
                raise
            for tp in answer:
                if tp.error:
                    raise KafkaException(tp.error)
        return answer

    def _offsets(self, topic: str, spec: OffsetSpec, *, committed_only: bool) -> dict[int, int]:
        isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(topic, number): spec for number in self.partitions(topic)}

        def ask() -> dict[int, int]:
            return listed_offsets(self._admin, wanted, isolation, self._config.request_timeout_s)

        with self._asking(f"asking for the offsets of '{topic}'", self._admin):
            return self._patiently(ask, NO_LEADER_YET)

    def _patiently(self, ask: Callable[[], _Answer], later: Collection[int]) -> _Answer:
        """Ask again on the errors `later`, for `request_timeout_s`: the broker may know in a moment."""
        give_up_s = time.monotonic() + self._config.request_timeout_s
        while True:
            try:
                return ask()
            except KafkaException as exception:
                if exception.args[0].code() not in later or time.monotonic() > give_up_s:
                    raise
                time.sleep(_LOOK_AGAIN_S)

    def _asking(self, doing: str, client: Consumer | AdminClient) -> AbstractContextManager[None]:
        return asking(client, doing, self._complaint)


class _Pending(Exception):
    """An open transaction holds committed offsets back."""


def _consumer(config: KafkaConfig, complaint: Complaint, isolation: str) -> Consumer:
    own = {"group.id": config.group_id, "enable.auto.commit": False, "isolation.level": isolation}
    with constructing():
        return Consumer(silenced(config.client("consumer") | own, complaint), logger=ClientLog().logger)
