"""Asks the brokers how much is unprocessed. Joins no group, commits nothing, moves no offsets.

It needs READ on the input topic and DESCRIBE on the group (READ includes it), which is less than a worker has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from enricher.operate.inspect.follow import FirstRecords
from enricher.operate.inspect.inspector import Inspector
from enricher.operate.lag.backlog import Backlog, PartitionBacklog
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.records import RawRecord
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.runtime.deadlines import Deadline


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
        committed = self._committed_offsets(topic, numbers)
        firsts = ask.beginnings(topic, numbers)
        ends, written = (ask.ends(topic, numbers, committed_only=only) for only in (True, False))
        starts = {
            n: _start(firsts[n] if offset is None else offset, firsts[n], written[n]) for n, offset in committed.items()
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

    def _committed_offsets(self, topic: str, numbers: Sequence[int]) -> dict[int, int | None]:
        """The offsets, None where there is none or one of an earlier topic."""
        answer = self._inspector.committed_offsets(topic, numbers)
        topic_id = self._inspector.topic_id(topic)
        return {
            tp.partition: tp.offset if tp.offset >= 0 and CommitMetadata.decode(tp.metadata).is_of(topic_id) else None
            for tp in answer
        }


def _start(committed: int, first: int, written: int) -> int:
    """The offset at which a worker begins: the committed one, or at the first offset left if there is nothing at it."""
    return committed if first <= committed <= written else first


def _age_s(record: RawRecord | None, now_s: float) -> float | None:
    if record is None:
        return 0.0
    return None if record.timestamp_s is None else max(0.0, now_s - record.timestamp_s)
