"""What a transaction needs of the consumer: group metadata that really proves membership, offsets, the topics.

The broker accepts offsets *unfenced* when generation and member id are empty (before the first join, after having been
thrown out), so such metadata must never be sent.
"""

from __future__ import annotations

import struct
from typing import Protocol

from confluent_kafka import Consumer, TopicPartition

from enricher.errors import TransactionTrouble
from enricher.kafka.topicwatch import TopicWatch
from enricher.records import Release


class Group(Protocol):
    """The consumer's side of a transaction (`KafkaSource`)."""

    @property
    def watch(self) -> TopicWatch:
        """What knows the topics."""

    def membership(self) -> bytes:
        """Fresh group metadata. Raises TransactionTrouble while this worker is no member."""

    def offsets(self, release: Release) -> list[TopicPartition]:
        """The release's offsets as they are to be committed."""

    def committed(self, release: Release) -> None:
        """They are committed."""


_MAGIC = b"CGMDv2:"  # librdkafka's private format: magic, int32 generation (little endian), group, member, ...


def proven_membership(consumer: Consumer) -> bytes:
    """Fresh group metadata of a consumer that is a member of its group now; TransactionTrouble if it is not."""
    metadata: bytes = consumer.consumer_group_metadata()
    if not consumer.memberid() or _generation(metadata) < 0:
        message = "this worker is no member of its group at the moment"
        raise TransactionTrouble(message)
    return metadata


def _generation(metadata: bytes) -> int:
    """The generation in librdkafka's metadata; 0 where the format is unknown, since the member id is checked anyway."""
    if not metadata.startswith(_MAGIC) or len(metadata) < len(_MAGIC) + 4:
        return 0
    generation: int = struct.unpack_from("<i", metadata, len(_MAGIC))[0]
    return generation
