"""Where reading of a partition begins: at the group's committed offset, if it belongs to this very topic.

The client can look up committed offsets itself, but asks only once and never again after an error that it does not know
(librdkafka 5586). So this module asks, and gives the client explicit offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from enricher.core.commit_metadata import CommitMetadata
from enricher.core.offsets import names_of
from enricher.errors import TransactionTrouble
from enricher.kafka.client import KafkaConfig
from enricher.kafka.client_errors import ClientErrors
from enricher.kafka.errors import mapping_errors
from enricher.kafka.metadata import foreign, ours, without_errors
from enricher.kafka.tails import OutputTails, cannot_tell
from enricher.kafka.topicwatch import TopicWatch
from enricher.records import Mark, Partition, Start

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartOffset:
    """Where to begin, and the leader epoch of the record before: with it the client detects a truncated log."""

    start: Start
    leader_epoch: int | None = None

    def at(self, partition: Partition) -> TopicPartition:
        """As the client's type."""
        if self.leader_epoch is None:
            return TopicPartition(partition.topic, partition.number, self.start.offset)
        return TopicPartition(partition.topic, partition.number, self.start.offset, leader_epoch=self.leader_epoch)


class StartFinder:
    """Finds where partitions begin. Remembers what this worker committed, because a lower answer is stale."""

    def __init__(self, consumer: Consumer, config: KafkaConfig, watch: TopicWatch, client_errors: ClientErrors) -> None:
        self._consumer = consumer
        self._config = config
        self._watch = watch
        self._client_errors = client_errors
        self._tails = OutputTails(config, watch)
        self._floors: dict[Partition, int] = {}

    def renew(self, consumer: Consumer) -> None:
        """Ask this one from now on."""
        self._consumer = consumer

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """This worker committed these offsets: a lower answer is stale from now on."""
        self._floors.update(offsets)

    def forget(self) -> None:
        """The topic was recreated: what was committed belongs to the old one."""
        self._floors.clear()

    def find(
        self, partitions: Sequence[Partition], timeout_s: float, *, quick: bool = False
    ) -> Mapping[Partition, StartOffset]:
        """Where each partition begins. Blocks for `timeout_s`, and for longer if committed offsets are missing.

        With `quick`, partitions without a committed offset are left out, so it does not block for longer.

        Raises TransactionTrouble if the broker does not answer or the answer is stale; if offsets are missing also
        SettingsError and BrokerError, as `OutputTails` does.
        """
        found: dict[Partition, StartOffset] = {}
        for tp in self._committed(partitions, timeout_s):
            metadata = CommitMetadata.decode(tp.metadata)
            if tp.offset < 0 or not metadata.is_of(self._watch.topic_id):
                continue
            if tp.offset < self._floors.get(ours(tp), 0):
                message = (
                    f"the committed offset of {tp.topic}[{tp.partition}] is reported as {tp.offset}, which is stale"
                )
                raise TransactionTrouble(message)
            found[ours(tp)] = StartOffset(Start(tp.offset, metadata.mark), tp.leader_epoch)
        missing = [] if quick else [partition for partition in partitions if partition not in found]
        return {**found, **self._without_offset(missing)} if missing else found

    def _committed(self, partitions: Sequence[Partition], timeout_s: float) -> Sequence[TopicPartition]:
        with mapping_errors("asking for the committed offsets", self._client_errors):
            return without_errors(self._consumer.committed([foreign(each) for each in partitions], timeout=timeout_s))

    def _without_offset(self, partitions: Collection[Partition]) -> Mapping[Partition, StartOffset]:
        start = self._config.start
        offsets = (self._watch.last_offsets if start == "end" else self._watch.beginnings)(partitions)
        if start == "resume":
            offsets = {**offsets, **self._resumed(partitions)}
        else:
            names = names_of(sorted(partitions))
            log.info("no committed offset for %s: reading at its %s (kafka.start=%s)", names, start, start)
        return {partition: StartOffset(Start(offset, Mark())) for partition, offset in offsets.items()}

    def _resumed(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        fewest = min(self._watch.partitions.values())
        beyond = [partition for partition in partitions if partition.number >= fewest]
        if beyond and not self._group_is_known(fewest):
            reason = f"an output topic has only {fewest} partitions, so outputs of it may be in any of them"
            raise cannot_tell(self._config, beyond[0], reason)
        resumed = self._tails.next_offsets([partition for partition in partitions if partition.number < fewest])
        if resumed:
            places = ", ".join(f"{each.number} at {offset}" for each, offset in sorted(resumed.items()))
            log.warning(
                "the group '%s' has no committed offsets for %s, but there are outputs of it: resuming behind the newest of "
                "them (partition %s). Offsets expire when a group has no member for offsets.retention.minutes. To start "
                "from the beginning on purpose, set kafka.start=beginning",
                self._config.group_id, names_of(sorted(resumed)), places,
            )  # fmt: skip
        return resumed

    def _group_is_known(self, partitions: int) -> bool:
        """Whether the group has an offset in any of the first partitions: then a partition without one is new."""
        asked = [Partition(self._config.input_topic, number) for number in range(partitions)]
        committed = self._committed(asked, self._config.request_timeout_s)
        topic_id = self._watch.topic_id
        return any(tp.offset >= 0 and CommitMetadata.decode(tp.metadata).is_of(topic_id) for tp in committed)


def assigned_at(partition: Partition, found: StartOffset | None) -> TopicPartition:
    """Where the client begins. A paused partition waits at 0, because the client would look up a committed offset itself."""
    return found.at(partition) if found else TopicPartition(partition.topic, partition.number, 0)
