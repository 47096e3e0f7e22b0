"""Tries each right that a worker needs, without writing a record, not even an aborted one.

Consumers that are not `read_committed` would read aborted records. So WRITE on the output topics is not tried here, but
asked for (`Admin.allowed_operations`). Trials use their own transactional id, because the worker's would fence a running
worker, and they abort every transaction. `enricher.commands.doctor` decides what a failure means.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from enricher.core.commit_metadata import partitions_at_the_start
from enricher.errors import BrokerError
from enricher.kafka.client import KafkaConfig, transactional_id
from enricher.kafka.client_errors import Complaint, new_client
from enricher.kafka.closing import CLOSE_WAIT_S, close_in_background
from enricher.kafka.errors import broker_errors
from enricher.kafka.inspect.consumer import UnreadableBatch
from enricher.kafka.inspect.follow import TopicReader
from enricher.kafka.inspect.inspector import Inspector
from enricher.records import RawRecord

_NEWEST = 5  # records per partition: enough to see whether keys are used, few to fetch


@dataclass(frozen=True, slots=True)
class Sample:
    """How many of a topic's newest records were read, and how many of them have no key."""

    records: int
    without_key: int


def doctor_id(config: KafkaConfig) -> str:
    """The transactional id of the trials: it has the group's prefix, and no worker has it."""
    return transactional_id(config.group_id, config.instance, "doctor")


def read_newest(config: KafkaConfig, topic: str) -> Sample:
    """READ on the topic: fetch the newest records of every partition. Raises BrokerError."""
    records = without_key = 0
    for record in newest_records(config, topic, _NEWEST):
        records += 1
        without_key += record.key is None
    return Sample(records, without_key)


def newest_records(config: KafkaConfig, topic: str, count: int) -> Iterator[RawRecord]:
    """The newest `count` records of every partition, as far as they arrive. Raises BrokerError if none does in time."""
    give_up_s = time.monotonic() + config.request_timeout_s
    # An unreadable batch proves the right, too; the worker would write a dead letter.
    with closing(TopicReader(config, topic, newest=count)) as reader, suppress(UnreadableBatch):
        while not reader.fetched:
            yield from reader.poll(0.2)
            if time.monotonic() > give_up_s:
                raise BrokerError(f"'{topic}' did not answer a fetch within {config.request_timeout_s:.0f} s")


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The group's committed offsets by partition, missing ones left out. `began_with`: as `partitions_at_the_start`."""

    by_partition: Mapping[int, int]
    began_with: int | None


def committed_offsets(config: KafkaConfig, topic: str, partitions: int) -> GroupOffsets:
    """What the group has committed. Raises BrokerError."""
    with closing(Inspector(config)) as inspector:
        found = inspector.committed_offsets(topic, range(partitions))
        began_with = partitions_at_the_start([(tp.offset, tp.metadata) for tp in found], inspector.topic_id(topic))
    return GroupOffsets({tp.partition: tp.offset for tp in found if tp.offset >= 0}, began_with)


def try_transactional_id(config: KafkaConfig) -> None:
    """WRITE on a transactional id with the worker's prefix. Raises BrokerError."""
    with _transactional(config, "opening a transactional producer"):
        pass


def try_commit(config: KafkaConfig, topic: str, committed: Mapping[int, int]) -> None:
    """READ on the group: send an offset in a transaction that is aborted. Raises BrokerError.

    `committed`: the group's offsets. One of them is sent, so even a commit would change nothing. Reading offsets needs only
    DESCRIBE; sending them needs READ, like joining. It is sent without membership: the broker then checks no generation,
    and no member is disturbed.
    """
    index, offset = next(iter(committed.items()), (0, 0))
    timeout_s = config.transaction_timeout_s
    with (
        closing(new_client(Consumer, config.consumer(), Complaint())) as consumer,
        _transactional(config, f"sending offsets for the group '{config.group_id}'") as producer,
    ):
        producer.begin_transaction()
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, index, offset)], metadata, timeout_s)
        producer.abort_transaction(timeout_s)


@contextmanager
def _transactional(config: KafkaConfig, doing: str) -> Iterator[Producer]:
    """A transactional producer for one trial. Maps what it raises in the body."""
    complaint = Complaint()
    producer = new_client(Producer, config.producer() | {"transactional.id": doctor_id(config)}, complaint)
    try:
        with broker_errors(producer, doing, complaint):
            # Metadata first: without it init_transactions sometimes takes half a second longer.
            producer.list_topics(timeout=config.request_timeout_s)
            producer.init_transactions(2 * config.transaction_timeout_s)
            yield producer
    finally:
        close_in_background(producer).join(CLOSE_WAIT_S)
