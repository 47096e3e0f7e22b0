"""Turns the client's messages into records, and decides what happens to batches that cannot be read.

Runs in the loop's thread, inside the source's `poll`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from confluent_kafka import KafkaError, Message

from enricher.worker.kafka.reading.assignment import Assignment
from enricher.worker.kafka.reading.fetching import Fetching
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import ClientErrors
from enricher.worker.kafka.shared.errors import transient_error
from enricher.worker.kafka.shared.metadata import partition_of, raw_record
from enricher.worker.kafka.shared.topicwatch import TopicWatch
from enricher.worker.records import Partition, RawRecord

log = logging.getLogger(__name__)


class Delivery:
    """Delivers each record once and in order, or raises an error that waiting does not solve."""

    def __init__(
        self,
        config: KafkaConfig,
        assignment: Assignment,
        fetching: Fetching,
        watch: TopicWatch,
        client_errors: ClientErrors,
    ) -> None:
        self._config = config
        self._assignment = assignment
        self._fetching = fetching
        self._watch = watch
        self._client_errors = client_errors

    def records_of(self, messages: Sequence[Message], now_s: float) -> list[RawRecord]:
        """The records in these messages. The client skips a damaged batch; this seeks back to it."""
        records: list[RawRecord] = []
        damaged, out_of_range = set[Partition](), set[Partition]()
        for message in messages:
            partition, error = partition_of(message), message.error()
            at = self._assignment.partitions.get(partition)
            if partition in damaged:
                continue
            if at and at.is_damaged(error, message.offset() or 0, now_s):
                damaged.add(partition)
                self._assignment.require_readable(at)
            elif error is None:
                record = raw_record(
                    message, self._watch.topic_ids[partition.topic], max_headers=self._config.max_headers
                )
                if at and at.deliver(record.offset, record.leader_epoch, now_s):
                    records.append(record)
            elif at and error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001  the client's name
                out_of_range.add(partition)
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  as above
                doing = f"reading {partition.topic or ', '.join(self._config.inputs)}"
                log.warning("%s", transient_error(error, doing, self._client_errors))
            elif at:
                at.reach_end(message.offset() or 0, now_s)
        self._fetching.go_back(damaged)
        if self._config.replay:
            self._pass_over(out_of_range)
            self._fetching.stop_finished({partition_of(message) for message in messages})
        return records

    def _pass_over(self, partitions: Collection[Partition]) -> None:
        """Go on where these begin now, and name what retention has deleted of the range."""
        if not partitions:
            return
        beginnings = self._watch.beginnings(partitions)
        for partition, beginning in beginnings.items():
            at = self._assignment.partitions[partition]
            last = beginning if at.start is None or at.start.until is None else min(beginning, at.start.until)
            if at.position is not None and at.position < last:
                log.warning(
                    "%s[%d]: offsets %d to %d of the range are gone: retention deleted them before they were replayed",
                    *partition, at.position, last - 1,
                )  # fmt: skip
        self._fetching.go_on_at(beginnings)
