"""A consumer that is assigned partitions: it joins no group and commits nothing. The readers of this package build on it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from enricher.errors import BrokerError
from enricher.kafka.client import KafkaConfig
from enricher.kafka.client_errors import Complaint, new_client
from enricher.kafka.errors import broker_errors, mapped
from enricher.kafka.unreadable import UNREADABLE

END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001  the client's name
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


class UnreadableBatch(BrokerError):
    """The broker sent a batch that the client cannot unpack and does not get past."""


def lone_consumer(config: KafkaConfig, complaint: Complaint, properties: Mapping[str, Any]) -> Consumer:
    """A consumer that never commits by itself. Raises SettingsError if librdkafka rejects the properties."""
    own = {"group.id": config.group_id, "enable.auto.commit": False, **properties}
    return new_client(Consumer, config.client("consumer") | own, complaint)


class AssignedConsumer:
    """Reads partitions of one topic at a time, committed records only unless `properties` say otherwise.

    The constructor raises SettingsError if librdkafka rejects the properties.
    """

    def __init__(
        self, config: KafkaConfig, complaint: Complaint | None = None, properties: Mapping[str, Any] | None = None
    ) -> None:
        self._complaint = complaint or Complaint()
        self._consumer = lone_consumer(config, self._complaint, _PROPERTIES | dict(properties or {}))
        self._doing = ""

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _assign(self, topic: str, starts: Mapping[int, int], doing: str = "") -> None:
        self._doing = doing or f"reading '{topic}'"
        with self._mapped():
            self._consumer.assign([TopicPartition(topic, number, start) for number, start in starts.items()])

    def _mapped(self) -> AbstractContextManager[None]:
        """Around calls of the client: its errors become BrokerError."""
        return broker_errors(self._consumer, self._doing, self._complaint)

    def _consume(self, limit: int, timeout_s: float) -> list[Message]:
        """Messages, records or not; blocks for at most `timeout_s`. Raises BrokerError."""
        with self._mapped():
            return self._consumer.consume(limit, timeout_s)

    def _is_answer(self, message: Message, also: Collection[int] = ()) -> bool:
        """True for a record, an end of partition, and the errors in `also`; False for errors that pass.

        Raises BrokerError for an error that no retry mends.
        """
        error = message.error()
        if error is None or error.code() == END_OF_PARTITION or error.code() in also:
            return True
        if error.code() not in _IGNORED and (error.fatal() or not error.retriable()):
            trouble = mapped(error, self._doing, self._complaint)
            raise (UnreadableBatch if error.code() == UNREADABLE else BrokerError)(str(trouble))
        return False
