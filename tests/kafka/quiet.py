"""A consumer that never delivers a record, for the tests of what is made of that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka.clients import config_for
from support.topics import Topics

from enricher.worker.kafka.errors import ClientErrors
from enricher.worker.kafka.topicwatch import TopicWatch
from enricher.worker.records import Partition

TOPICS = Topics("127.0.0.1:1", "articles", "entities", "dead-letters", "group", {})
CONFIG = config_for(TOPICS, partition_timeout_s=60)
CLIENT_ERRORS = ClientErrors(CONFIG)
PLACE, OTHER = Partition(TOPICS.input, 3), Partition(TOPICS.input, 4)


class Quiet:
    """A consumer that accepts everything, and a watch that reports ten records in each partition."""

    topic_ids = MappingProxyType({TOPICS.input: None})
    partitions = MappingProxyType({TOPICS.input: 5})

    def __init__(self) -> None:
        self.assigned: list[TopicPartition] = []
        self.sought: list[TopicPartition] = []
        self.paused: set[Partition] = set()
        self.refuses_to_seek = False
        self.offset = 0
        """What it says that the group has committed, of each partition."""
        self.metadata = ""
        """What it says was committed with it."""
        self.trouble: Exception | None = None
        """What it answers when it is asked for committed offsets, instead of that."""

    def __getattr__(self, _name: str) -> Any:  # noqa: ANN401  what is not answered here does nothing
        return lambda *_: None

    @property
    def consumer(self) -> Consumer:
        """As the code under test takes it."""
        return cast("Consumer", self)

    @property
    def watch(self) -> TopicWatch:
        """As the code under test takes it."""
        return cast("TopicWatch", self)

    def committed(self, places: Sequence[TopicPartition], timeout: float) -> Sequence[TopicPartition]:  # noqa: ARG002
        """The same of all."""
        if self.trouble:
            raise self.trouble
        return [TopicPartition(each.topic, each.partition, self.offset, self.metadata) for each in places]

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        """Ours now."""
        self.assigned += places

    def seek(self, place: TopicPartition) -> None:
        """Fetch from there."""
        if self.refuses_to_seek:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append(place)

    def pause(self, places: Sequence[TopicPartition]) -> None:
        """Fetch nothing of these."""
        self.paused.update(Partition(each.topic, each.partition) for each in places)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        """Fetch these."""
        self.paused.difference_update(Partition(each.topic, each.partition) for each in places)

    def assignment(self) -> Sequence[TopicPartition]:
        """What is ours."""
        return self.assigned

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Ten records each."""
        return dict.fromkeys(partitions, 10)


def no_answer() -> KafkaException:
    """What a consumer raises if the group's coordinator does not answer."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT))
