"""Tries each right that a worker needs, without writing a record, not even an aborted one.

Consumers that are not `read_committed` would read aborted records. So WRITE on the output topics is not tried here, but
asked for (`Admin.allowed_operations`). Trials use their own transactional id, because the worker's would fence a running
worker, and they abort every transaction. `enricher.operate.doctor` decides what a failure means.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from enricher.errors import BrokerError
from enricher.operate.inspect.follow import TopicReader
from enricher.operate.inspect.inspector import Inspector
from enricher.worker.kafka.reading.unreadable import UNREADABLE
from enricher.worker.kafka.shared.client import KafkaConfig, transactional_id
from enricher.worker.kafka.shared.client_errors import Complaint, new_client
from enricher.worker.kafka.shared.errors import mapping_errors, without_recovery
from enricher.worker.kafka.shared.producers import short_lived_producer
from enricher.worker.records import RawRecord
from enricher.worker.rules.commit_metadata import partitions_at_the_start
from enricher.worker.runtime.deadlines import Deadline

_NEWEST = 5  # records per partition: enough to see whether keys are used, few to fetch
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Sample:
    """How many of a topic's newest records were read, and how many of them have no key."""

    records: int
    without_key: int


def doctor_id(config: KafkaConfig) -> str:
    """The transactional id of the trials: it has the group's prefix, and no worker has it."""
    return transactional_id(config.group_id, config.instance, "doctor")


def read_newest(config: KafkaConfig, topic: str) -> Sample:
    """Try READ on the topic: fetch the newest records of every partition. Raises BrokerError."""
    records = without_key = 0
    for record in newest_records(config, topic, _NEWEST):
        records += 1
        without_key += record.key is None
    return Sample(records, without_key)


def newest_records(config: KafkaConfig, topic: str, count: int) -> Generator[RawRecord]:
    """The newest `count` records of every partition, as far as they arrive. Raises BrokerError if none does in time."""
    deadline = Deadline(config.request_timeout_s)
    # An unreadable batch proves the right, too; the worker would write a dead letter.
    with closing(TopicReader(config, topic, newest=count, answers={UNREADABLE})) as reader:
        while not reader.fetched:
            yield from reader.poll(_POLL_S)
            if deadline.over and not reader.fetched:
                raise BrokerError(f"'{topic}' did not answer a fetch within {config.request_timeout_s:.0f} s")


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The group's committed offsets by partition, missing ones left out. `began_with`: as `partitions_at_the_start`."""

    by_partition: Mapping[int, int]
    began_with: int | None


def committed_offsets(config: KafkaConfig, topic: str, partitions: int) -> GroupOffsets:
    """The group's committed offsets. Raises BrokerError."""
    with closing(Inspector(config)) as inspector:
        found = inspector.committed_offsets(topic, range(partitions))
        began_with = partitions_at_the_start([(tp.offset, tp.metadata) for tp in found], inspector.topic_id(topic))
    return GroupOffsets({tp.partition: tp.offset for tp in found if tp.offset >= 0}, began_with)


def try_transactional_id(config: KafkaConfig) -> None:
    """Try WRITE on a transactional id with the worker's prefix. Raises BrokerError."""
    with without_recovery(), _transactional(config, Complaint()):
        pass


def try_commit(config: KafkaConfig, topic: str, committed: Mapping[int, int]) -> None:
    """Try READ on the group: send an offset in a transaction that is aborted. Raises BrokerError.

    `committed`: the group's offsets. One of them is sent, so even a commit would change nothing. Reading offsets needs only
    DESCRIBE; sending them needs READ, like joining. It is sent without membership: the broker then checks no generation,
    and no member is disturbed.
    """
    index, offset = next(iter(committed.items()), (0, 0))
    timeout_s, complaint = config.transaction_timeout_s, Complaint()
    with (
        closing(new_client(Consumer, config.consumer(), Complaint())) as consumer,
        without_recovery(),
        _transactional(config, complaint) as producer,
        mapping_errors(f"sending offsets for the group '{config.group_id}'", complaint, producer),
    ):
        producer.begin_transaction()
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, index, offset)], metadata, timeout_s)
        producer.abort_transaction(timeout_s)


def _transactional(config: KafkaConfig, complaint: Complaint) -> AbstractContextManager[Producer]:
    """A transactional producer for one trial."""
    properties = config.producer() | {"transactional.id": doctor_id(config)}
    timeout_s = 2 * config.transaction_timeout_s
    return short_lived_producer(properties, complaint, timeout_s, metadata_timeout_s=config.request_timeout_s)
