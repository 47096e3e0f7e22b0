"""Where a worker that starts now would begin in partitions without a committed offset: the worker's own rule, looked up.

Reading the ends of the output topics takes rights that somebody who only looks may not have; then the beginning counts,
which makes the backlog look larger than it is, and never smaller.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from confluent_kafka import TopicPartition

from enricher.core.commit_metadata import CommitMetadata
from enricher.errors import EnricherError
from enricher.kafka.client import KafkaConfig
from enricher.kafka.tails import OutputTails
from enricher.kafka.topicwatch import TopicWatch
from enricher.records import Partition

log = logging.getLogger(__name__)


def counts(tp: TopicPartition, topic_id: str | None) -> bool:
    """Whether there is a committed offset, and it does not say that it belongs to an earlier topic of this name."""
    return tp.offset >= 0 and CommitMetadata.decode(tp.metadata).is_of(topic_id)


class ResumePoints:
    """Knows them for the group and the topics of `config`; keeps its connection for the next look."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._watch: TopicWatch | None = None

    def look(self, numbers: Collection[int]) -> Mapping[int, int]:
        """The offset behind the newest output, of those that ever had one. Blocks for some seconds; raises EnricherError.

        SettingsError: the outputs cannot tell, and a worker would refuse to start.
        """
        if self._watch is None:
            self._watch = TopicWatch(self._config)
        self._watch.refresh()
        fewest = min(self._watch.partitions.values())
        wanted = [Partition(self._config.input_topic, number) for number in numbers if number < fewest]
        found = OutputTails(self._config, self._watch).next_offsets(wanted)
        return {partition.number: offset for partition, offset in found.items()}

    def starts(self, missing: Collection[int], firsts: Mapping[int, int], ends: Mapping[int, int]) -> Mapping[int, int]:
        """Where each of the partitions in `missing` begins by `kafka.start`, as far as it can be found out."""
        if not missing or self._config.start == "beginning":
            return {number: firsts[number] for number in missing}
        if self._config.start == "end":
            return {number: ends[number] for number in missing}
        try:
            found = self.look(missing)
        except EnricherError as error:
            log.debug("cannot tell where partitions without a committed offset begin: %s", error)
            found = {}
        return {number: found.get(number, firsts[number]) for number in missing}
