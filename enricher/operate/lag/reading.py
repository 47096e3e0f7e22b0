"""Asks the brokers how much is unprocessed. Joins no group, commits nothing, moves no offsets.

It needs READ on the input topic and DESCRIBE on the group (READ includes it), which is less than a worker has. If the group
has no committed offsets, READ on the output topics makes the answer more precise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing

from enricher.errors import EnricherError
from enricher.operate.inspect.follow import FirstRecords
from enricher.operate.inspect.inspector import Inspector
from enricher.operate.lag.backlog import Backlog, PartitionBacklog
from enricher.worker.kafka.reading.tails import OutputTails
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.kafka.shared.topicwatch import TopicWatch
from enricher.worker.records import Partition, RawRecord
from enricher.worker.rules.commit_metadata import CommitMetadata, partitions_at_the_start
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)


class BacklogReader:
    """Reads the backlog of the group on the input topics of `config`, and keeps its connections between reads.

    `clock`: the wall clock for ages, in seconds since the epoch. Not thread-safe. Raises SettingsError if librdkafka rejects
    the properties.
    """

    def __init__(self, config: KafkaConfig, *, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        complaint = Complaint(config)
        self._inspector = Inspector(config, complaint)
        self._first_records = FirstRecords(config, complaint)
        self._watches: dict[str, TopicWatch] = {}

    def look(self) -> Backlog:
        """The backlog now. Blocks for at most the request timeout. Raises BrokerError."""
        with self._inspector.within(self._config.request_timeout_s) as deadline:
            partitions = [
                each for topic in self._config.inputs for each in self._look(topic, self._inspector, deadline)
            ]
            return Backlog(self._config.group_id, ",".join(self._config.inputs), partitions, self._inspector.members())

    def close(self) -> None:
        """Close the connections."""
        self._first_records.close()
        self._inspector.close()

    def _look(self, topic: str, ask: Inspector, deadline: Deadline) -> Sequence[PartitionBacklog]:
        numbers = ask.partitions(topic)
        # In this order, progress made meanwhile counts as unprocessed, and never the other way round.
        committed, began_with = self._committed_offsets(topic, numbers)
        firsts = ask.beginnings(topic, numbers)
        ends, written = (ask.ends(topic, numbers, committed_only=only) for only in (True, False))
        missing = [number for number, offset in committed.items() if offset is None]
        added = [number for number in missing if began_with is not None and number >= began_with]
        begun = [number for number in missing if number not in added]
        resumed = {
            **self._starts_without_commit(topic, begun, firsts, ends),
            **{number: firsts[number] for number in added},
        }
        starts = {
            n: _start(resumed[n] if offset is None else offset, firsts[n], written[n])
            for n, offset in committed.items()
        }
        oldest = self._first_records.find(topic, {n: at for n, at in starts.items() if at < ends[n]}, deadline)
        now_s = self._clock()
        return [
            PartitionBacklog(
                topic=topic,
                number=n,
                committed=committed[n],
                start=firsts[n],
                worker_start=start,
                end=ends[n],
                behind=max(0, ends[n] - record.offset) if (record := oldest.get(n)) else 0,
                age_s=_age_s(record, now_s),
                hidden=max(0, written[n] - ends[n]),
            )
            for n, start in sorted(starts.items())
        ]

    def _committed_offsets(self, topic: str, numbers: Sequence[int]) -> tuple[dict[int, int | None], int | None]:
        """The offsets, None where there is none or one of an earlier topic, and how many partitions the group began with."""
        answer = self._inspector.committed_offsets(topic, numbers)
        topic_id = self._inspector.topic_id(topic)
        offsets = {
            tp.partition: tp.offset if tp.offset >= 0 and CommitMetadata.decode(tp.metadata).is_of(topic_id) else None
            for tp in answer
        }
        return offsets, partitions_at_the_start([(tp.offset, tp.metadata) for tp in answer], topic_id)

    def _starts_without_commit(
        self, topic: str, missing: Collection[int], firsts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Mapping[int, int]:
        """The offsets at which partitions that have not begun will begin by `kafka.start`, as far as they can be determined.

        Without the right to read the output topics it is the beginning: that overstates the backlog, and never
        understates it.
        """
        if self._config.start == "end":
            return ends
        if self._config.start == "beginning" or not missing:
            return firsts
        try:
            config = self._config.of_lane(topic)
            if topic not in self._watches:
                self._watches[topic] = TopicWatch(config)
            return {**firsts, **resume_points(config, self._watches[topic], missing)}
        except EnricherError as error:
            log.debug("cannot determine where partitions without a committed offset begin: %s", error)
            return firsts


def resume_points(config: KafkaConfig, watch: TopicWatch, numbers: Collection[int]) -> Mapping[int, int]:
    """The offsets at which a worker that starts now resumes in partitions without a committed one, by the worker's rule.

    That is the offset after the newest output; partitions without outputs are left out. Blocks for some seconds. Raises
    EnricherError; SettingsError if the outputs cannot tell, in which case a worker would refuse to start.
    """
    watch.refresh()
    fewest = min(watch.partitions.values())
    wanted = [Partition(config.input_topic, number) for number in numbers if number < fewest]
    with closing(OutputTails(config, watch)) as tails:
        found = tails.next_offsets(wanted)
    return {partition.number: offset for partition, offset in found.items()}


def _start(committed: int, first: int, written: int) -> int:
    """The offset at which a worker begins: the committed one, or at the first offset left if there is nothing at it."""
    return committed if first <= committed <= written else first


def _age_s(record: RawRecord | None, now_s: float) -> float | None:
    if record is None:
        return 0.0
    return None if record.timestamp_s is None else max(0.0, now_s - record.timestamp_s)
