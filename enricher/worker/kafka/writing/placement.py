"""Chooses the partition of each output: the one with its input's number.

So order per key is kept when partitions are added later. Where the output topic lacks that partition, the key decides if
`allow_fewer_partitions` says so; else the worker ends, as it would not have started. Brokers learn of added partitions one
after another, so a count that seems too small is requested again first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Producer

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.metadata import partitions_of
from enricher.worker.kafka.shared.topicwatch import TopicWatch, require_enough_partitions
from enricher.worker.records import Partition, Ticket
from enricher.worker.runtime.deadlines import Deadline

_ANY_PARTITION = -1  # librdkafka's RD_KAFKA_PARTITION_UA: the partitioner decides, by the key
_RETRY_S = 0.1


class Placement:
    """The numbers of partitions of the output topics, as the producer knows them. `watch` knows all three topics."""

    def __init__(self, config: KafkaConfig, watch: Callable[[], TopicWatch]) -> None:
        self._config = config
        self._watch = watch
        self._counts: Mapping[str, int] = {}
        self._fewer: Mapping[str, int] = {}
        """The counts of all topics when an output topic was confirmed to have fewer partitions than the input."""

    def learn(self, producer: Producer) -> None:
        """Request the counts. Raises MissingTopic, and the client's errors unmapped."""
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        timeout_s = self._config.request_timeout_s
        self._counts = {topic: len(partitions_of(producer, topic, timeout_s)) for topic in topics}

    def partition_of(self, ticket: Ticket, topic: str) -> int:
        """The partition of the ticket's output in `topic`, as an argument of `produce`."""
        number = ticket.raw.partition.number
        return number if number < self._counts[topic] else _ANY_PARTITION

    def check(self, producer: Producer, tickets: Sequence[Ticket]) -> None:
        """Ask again where an output topic seems to lack a partition that these tickets need.

        Blocks for four request timeouts at most; an administrator who adds partitions has the first one for it. Raises
        TransactionTrouble if the brokers that are asked have not all heard of the input's partitions by then, SettingsError
        if an output topic has fewer and the settings do not allow it.
        """
        partitions = (ticket.raw.partition for ticket in tickets)
        highest = max(partitions, key=lambda partition: partition.number, default=None)
        if highest is None:
            return
        watch, deadline = self._watch(), Deadline(self._config.request_timeout_s)
        while highest.number >= min(self._counts.values()):
            if watch.partitions == self._fewer and self._agrees_with(watch.partitions, highest):
                return
            if deadline.over:
                if self._agrees_with(watch.partitions, highest):
                    require_enough_partitions(self._config, watch.partitions)
                message = (
                    f"not all brokers have heard of partition {highest.number} yet: the topics have {watch.partitions}"
                )
                raise TransactionTrouble(message)
            watch.ask()
            watch.confirm()
            self.learn(producer)
            if self._config.allow_fewer_partitions and self._agrees_with(watch.partitions, highest):
                self._fewer = watch.partitions
            else:
                time.sleep(_RETRY_S)

    def _agrees_with(self, told: Mapping[str, int], highest: Partition) -> bool:
        """Whether the broker that told of all topics knows the input's partition, and the producer knows as much."""
        return highest.number < told.get(highest.topic, 0) and all(
            count >= told[topic] for topic, count in self._counts.items()
        )
