"""Where reading of a partition begins: at what the group has committed, as long as that belongs to this very topic.

The client could find the committed offsets by itself, but asks once and never again where the answer is an error that it
does not know (librdkafka 5586). So we ask, and give it explicit positions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from enricher.core.commit_metadata import CommitMetadata
from enricher.core.offsets import names_of
from enricher.errors import TransactionTrouble
from enricher.kafka.client import KafkaConfig, LastWord
from enricher.kafka.errors import border
from enricher.kafka.metadata import foreign, ours
from enricher.kafka.tails import OutputTails, cannot_tell
from enricher.kafka.topicwatch import TopicWatch
from enricher.records import Mark, Partition, Start

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """Where to begin, and the leader's epoch of the record before: with it the client notices a log that was cut off."""

    start: Start
    leader_epoch: int | None = None

    def at(self, partition: Partition) -> TopicPartition:
        """The position, as the client takes it."""
        if self.leader_epoch is None:
            return TopicPartition(partition.topic, partition.number, self.start.offset)
        return TopicPartition(partition.topic, partition.number, self.start.offset, leader_epoch=self.leader_epoch)


class StartFinder:
    """Finds where partitions begin. Keeps in mind what was committed before: an answer below that is stale."""

    def __init__(self, consumer: Consumer, config: KafkaConfig, watch: TopicWatch, last_word: LastWord) -> None:
        self._consumer = consumer
        self._config = config
        self._watch = watch
        self._last_word = last_word
        self._tails = OutputTails(config, watch)
        self._floors: dict[Partition, int] = {}

    def renew(self, consumer: Consumer) -> None:
        """Ask this one from now on."""
        self._consumer = consumer

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """These were committed by us: no true answer is below them from now on."""
        self._floors.update(offsets)

    def forget(self) -> None:
        """The topic is another one: what was committed says nothing about it."""
        self._floors.clear()

    def find(
        self, partitions: Sequence[Partition], timeout_s: float, *, quick: bool = False
    ) -> Mapping[Partition, Found]:
        """Where each of them begins. Blocks for `timeout_s`, and for longer where offsets are missing.

        With `quick` those with an offset only, so that it does not.

        Raises TransactionTrouble where nobody answers or the answer is stale; where offsets are missing also SettingsError
        and BrokerError, as `OutputTails` does.
        """
        found: dict[Partition, Found] = {}
        for tp in self._committed(partitions, timeout_s):
            metadata = CommitMetadata.decode(tp.metadata)
            if tp.offset < 0 or not metadata.is_of(self._watch.topic_id):
                continue
            if tp.offset < self._floors.get(ours(tp), 0):
                message = f"the committed offset of {tp.topic}[{tp.partition}] is told as {tp.offset}, which is stale"
                raise TransactionTrouble(message)
            found[ours(tp)] = Found(Start(tp.offset, Mark(metadata.attempts, metadata.alone)), tp.leader_epoch)
        missing = [] if quick else [partition for partition in partitions if partition not in found]
        return {**found, **self._without_offset(missing)} if missing else found

    def _committed(self, partitions: Sequence[Partition], timeout_s: float) -> Sequence[TopicPartition]:
        with border("asking for the committed offsets", self._last_word):
            committed = self._consumer.committed([foreign(partition) for partition in partitions], timeout=timeout_s)
            if error := next((tp.error for tp in committed if tp.error), None):
                raise KafkaException(error)
        return committed

    def _without_offset(self, partitions: Collection[Partition]) -> Mapping[Partition, Found]:
        if self._config.start == "end":
            offsets, how = self._watch.last_offsets(partitions), "at its end (kafka.start=end)"
            self._tell(partitions, how)
        elif self._config.start == "beginning":
            offsets, how = self._watch.beginnings(partitions), "at its beginning (kafka.start=beginning)"
            self._tell(partitions, how)
        else:
            offsets = {**self._watch.beginnings(partitions), **self._resumed(partitions)}
        return {partition: Found(Start(offset, Mark())) for partition, offset in offsets.items()}

    def _resumed(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        fewest = min(self._watch.partitions.values())
        beyond = [partition for partition in partitions if partition.number >= fewest]
        if beyond and not self._group_is_known(fewest):
            reason = f"an output topic has {fewest} partitions only, so outputs of it may be in any"
            raise cannot_tell(self._config, beyond[0], reason)
        resumed = self._tails.next_offsets([partition for partition in partitions if partition.number < fewest])
        if resumed:
            places = ", ".join(f"{each.number} at {offset}" for each, offset in sorted(resumed.items()))
            log.warning(
                "the group '%s' has no committed offsets for %s, but outputs of it are there: resuming behind the newest of "
                "them (partition %s). Offsets expire when a group has had no member for offsets.retention.minutes. To begin "
                "again on purpose: kafka.start=beginning",
                self._config.group_id, names_of(sorted(resumed)), places,
            )  # fmt: skip
        return resumed

    def _group_is_known(self, partitions: int) -> bool:
        """Whether the group has an offset in any of the first partitions: then one without an offset is new."""
        asked = [Partition(self._config.input_topic, number) for number in range(partitions)]
        committed = self._committed(asked, self._config.request_timeout_s)
        topic_id = self._watch.topic_id
        return any(tp.offset >= 0 and CommitMetadata.decode(tp.metadata).is_of(topic_id) for tp in committed)

    def _tell(self, partitions: Collection[Partition], how: str) -> None:
        log.info("no committed offset for %s: reading %s", names_of(sorted(partitions)), how)
