"""Consumers of commands, and which of their errors end a command. They join no group and commit nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from enricher.errors import FatalError
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import Complaint, new_client
from enricher.worker.kafka.shared.errors import broker_errors
from enricher.worker.kafka.shared.metadata import answer_to, without_errors
from enricher.worker.kafka.shared.partition_reader import PartitionReader
from enricher.worker.runtime.deadlines import Deadline

# The client looks up the group's coordinator although this consumer never joins: no right on the group is needed here.
_IGNORED = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE}
_PROPERTIES = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # Off by default in the client: a damaged batch that is not compressed would pass as data.
    "check.crcs": True,
    # If retention is faster than we read, continue with what is left.
    "auto.offset.reset": "earliest",
    # These count compressed bytes, which may decompress to thirty thousand times as much, so fetches are small.
    "fetch.message.max.bytes": 16_384,
    "fetch.max.bytes": 1_048_576,
    # 16 MiB per partition.
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 20,
    # An end is noticed when a fetch comes back empty, so an empty fetch must not wait long.
    "fetch.wait.max.ms": 50,
}


def lone_consumer(config: KafkaConfig, complaint: Complaint, properties: Mapping[str, Any]) -> Consumer:
    """A consumer that never commits by itself. Raises SettingsError if librdkafka rejects the properties."""
    return new_client(Consumer, _never_committing(config) | dict(properties), complaint)


def lone_reader(config: KafkaConfig, complaint: Complaint, properties: Mapping[str, Any]) -> PartitionReader:
    """Reads committed records only, unless `properties` say otherwise. Raises SettingsError as `lone_consumer` does."""
    return PartitionReader(_never_committing(config) | _PROPERTIES | dict(properties), complaint)


def committed_offsets(consumer: Consumer, tps: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    """The offsets that the consumer's group has committed. Raises KafkaException, also for a missing right on the group.

    The client reports such a right only among the consumer's messages, and the call itself times out.
    """
    try:
        return without_errors(consumer.committed(tps, timeout=timeout_s))
    except KafkaException as exception:
        errors = [message.error() for message in consumer.consume(10, 0.1)]
        refused = (each for each in errors if each and each.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)
        raise KafkaException(next(refused, exception.args[0])) from exception


def commit_as_outsider(config: KafkaConfig, complaint: Complaint, tps: list[TopicPartition]) -> None:
    """Commit offsets for a group without being a member of it, which the broker refuses as soon as it has some.

    Blocks for the request timeout at most. Raises FatalError if the group has members, BrokerError.
    """
    with (
        closing(lone_consumer(config, complaint, {})) as outsider,
        broker_errors(outsider, f"committing offsets of the group '{config.group_id}'", complaint),
    ):
        try:
            # The coordinator of a new group is not there at once.
            answer_to(lambda _: outsider.commit(offsets=tps, asynchronous=False), Deadline(config.request_timeout_s))
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:
                raise
            message = (
                f"the group '{config.group_id}' has members: stop its workers (scale them to 0, or wait for a pause between "
                "two restarts; one that was killed leaves after kafka.session_timeout_s), then run this again"
            )
            raise FatalError(message) from exception


def may_pass(error: KafkaError, taken: Collection[int] = ()) -> bool:
    """The judge of a command's `PartitionReader`: takes the errors in `taken`, and passes over those that may go away.

    Raises KafkaException for an error that retrying cannot fix.
    """
    if error.code() in taken:
        return True
    if error.code() not in _IGNORED and (error.fatal() or not error.retriable()):
        raise KafkaException(error)
    return False


def _never_committing(config: KafkaConfig) -> dict[str, Any]:
    return config.client("consumer") | {"group.id": config.group_id, "enable.auto.commit": False}
