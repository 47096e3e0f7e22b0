"""Finds where to resume partitions whose committed offset is gone, from the group's newest outputs.

Every output names its input's partition and offset and was committed with it, and the outputs of one partition are in the
order of these offsets. So the newest output of a partition (or dead letter, if that is newer) shows where to resume.

`newest_outputs` finds them; this says what they mean. Two things hide newer ones. An open transaction is waited for
(`stable_ends`). Compaction removes outputs, deletions of articles above all: where it may have removed the newest ones,
what is left is only a lower bound.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.reading.newest_outputs import Newest, Search
from enricher.worker.kafka.reading.resume_errors import StillSearching, cannot_tell
from enricher.worker.kafka.reading.stable_ends import StableEnds
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.errors import mapping_errors
from enricher.worker.kafka.shared.metadata import settings_of
from enricher.worker.kafka.shared.topicwatch import TopicWatch
from enricher.worker.records import Partition

log = logging.getLogger(__name__)

_SEARCH_S = 20.0
"""How long one topic is read, for all partitions together. A topic that others write to may hold any number of records."""
_MARKER = 1
"""Offsets without a record behind our newest output that are no sign of a missing one: a missing output would leave two, its
own and that of the marker which ended its transaction."""


class OutputTails:
    """Reads the ends of the output topic and of the dead-letter topic. Commits nothing and joins no group."""

    def __init__(self, config: KafkaConfig, watch: TopicWatch) -> None:
        self._config = config
        self._watch = watch
        self._ends = StableEnds(config, watch)
        self._searches: dict[str, Search] = {}
        """The searches by topic: those that are not over, and the results of those that wait for another topic's."""

    def next_offsets(self, partitions: Collection[Partition], look_s: float = _SEARCH_S) -> Mapping[Partition, int]:
        """The offset after the newest input with an output, for each partition that has outputs.

        Reads each topic for `look_s` at most; raises StillSearching if that is not enough. Raises HiddenOutputs while a
        transaction is open, SettingsError if the outputs cannot tell, BrokerError if they may not be read,
        TransactionTrouble if no broker answers.
        """
        found: dict[Partition, int] = {}
        doubtful: dict[Partition, str] = {}
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        # These partitions exist in the output topics, so outputs are in the partition of their input.
        bounds = self._ends.bounds([Partition(topic, partition.number) for topic in topics for partition in partitions])
        for topic in topics:
            of_topic = {place: bound for place, bound in bounds.items() if place.topic == topic}
            for number, newest in self._newest(topic, of_topic, look_s).items():
                partition, source = Partition(self._config.input_topic, number), newest.source
                topic_id = self._watch.topic_ids[partition.topic]
                if source and source.topic_id in {None, topic_id}:
                    found[partition] = max(found.get(partition, 0), source.offset + 1)
                if newest.recordless > _MARKER:
                    doubtful.setdefault(partition, topic)
        # The result holds for the topic as it was at the start: it may have been created again meanwhile.
        self._watch.ask()
        self._watch.confirm()
        self._check(found, doubtful)
        self.close()
        self._ends.forget(bounds)
        return found

    def unwritten(self) -> bool:
        """Whether nothing was ever written to the output topics, not even in a transaction that is open or was aborted.

        Blocks for the request timeout at most; raises TransactionTrouble.
        """
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        places = [Partition(topic, number) for topic in topics for number in range(self._watch.partitions[topic])]
        return not any(self._watch.high_watermarks(places).values())

    def close(self) -> None:
        """Give up searches that are not over, and forget what the others have found."""
        while self._searches:
            self._searches.popitem()[1].close()

    def _newest(self, topic: str, bounds: Mapping[Partition, tuple[int, int]], look_s: float) -> Mapping[int, Newest]:
        """The newest output in each partition of one topic, by its number."""
        # A partition with end 0 has never been written, not even with a transaction marker.
        written = {place: (low, end) for place, (low, end) in bounds.items() if end > 0}
        if not written:
            return {}
        newest = self._look(topic, written, look_s)
        for place, (low, _end) in written.items():
            if newest[place.number].source is None and low > 0:
                partition = Partition(self._config.input_topic, place.number)
                raise cannot_tell(self._config, partition, f"its records in '{topic}' were deleted")
        return newest

    def _look(self, topic: str, written: Mapping[Partition, tuple[int, int]], look_s: float) -> Mapping[int, Newest]:
        """Search for this long, where the last look stopped if it was for the same partitions."""
        if topic in self._searches and self._searches[topic].places != written.keys():
            self.close()
        if topic not in self._searches:
            self._searches[topic] = Search(self._config, topic, written)
        search = self._searches[topic]
        try:
            newest = search.look(look_s)
        except BaseException:
            self.close()
            raise
        if newest is not None:
            return newest
        count = search.records
        if not count:
            raise TransactionTrouble(f"no answer from '{topic}' within {look_s:g} s")
        if search.looked_s < _SEARCH_S:
            log.info("searching '%s' for the newest outputs: %d records read so far", topic, count)
            raise StillSearching(f"the newest outputs are not among {count} records at the end of '{topic}'")
        self.close()
        partition = Partition(self._config.input_topic, min(written).number)
        reason = (
            f"no output of some partition is among the {count} newest records of '{topic}', which others write to, too"
        )
        raise cannot_tell(self._config, partition, reason)

    def _check(self, found: Mapping[Partition, int], doubtful: Mapping[Partition, str]) -> None:
        """Raise SettingsError for an output of an earlier topic, or if compaction may have removed the newest output."""
        ends = self._watch.last_offsets([*found.keys() | doubtful.keys()]) if found or doubtful else {}
        for partition, offset in found.items():
            # Nothing else shows it to a worker that knows no topic ids.
            if offset > ends[partition]:
                reason = f"its newest output is of offset {offset - 1}, and the topic ends at {ends[partition]}"
                raise cannot_tell(self._config, partition, reason)
        # At the end of the input there is nothing left that could have an output.
        doubtful = {
            partition: topic for partition, topic in doubtful.items() if found.get(partition, 0) < ends[partition]
        }
        compacted = {topic: self._is_compacted(topic) for topic in sorted(set(doubtful.values()))}
        for partition, topic in doubtful.items():
            if compacted[topic]:
                reason = f"'{topic}' is compacted, and behind its newest output are offsets without a record"
                raise cannot_tell(self._config, partition, reason)

    def _is_compacted(self, topic: str) -> bool:
        """Whether the broker removes single records of the topic. Raises BrokerError if it may not be asked."""
        with mapping_errors(f"asking for the settings of '{topic}'", self._watch.client_errors, self._watch.client):
            settings = settings_of(self._watch.client, topic, self._config.request_timeout_s)
        if settings is None:
            message = (
                f"the group '{self._config.group_id}' has no committed offsets, and behind its newest output in '{topic}' "
                "are offsets without a record, which mean nothing unless the topic is compacted: allow this worker "
                f"DESCRIBE_CONFIGS on the topic '{topic}', or say where to begin with kafka.start=beginning or "
                "kafka.start=end"
            )
            raise BrokerError(message)
        return "compact" in settings.get("cleanup.policy", "")
