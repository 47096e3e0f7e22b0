"""Proof of membership in the consumer group, for transactions; and when a refused transaction may be made again.

The broker fences the offsets of a transaction by member id and generation, not by who has which partition. That is enough,
because a partition leaves a member in two ways only (`cooperative-sticky`):

- The member gives it up, in its callback. Callbacks run inside `poll` and `close`, where no transaction of before is open.
- The group expels the member. Its id is unknown for ever then, and it gets a new one only after its callback for the lost
  partitions.

So while the member id stays the same, our partitions are ours through any number of generations, and a release whose offsets
were refused for their generation may be published again, in a new transaction with the newer one.

A broker that refuses a generation knows the member: it took part in the rebalance that made the newer one. The client learns
that one in its own thread, without a poll, from an answer that is on its way. A member that was expelled is refused for its
id instead.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException

from enricher.errors import TransactionTrouble
from enricher.worker.runtime.deadlines import Deadline

_MAGIC = b"CGMDv2:"
"""librdkafka's private format: magic, int32 generation (little endian), group, NUL, member id, NUL, ..."""
_ANSWER_S = 0.5
"""How long the answer with the new generation may take. Usually it is there before the refusal; a recovery takes as long."""
_ASK_S = 0.002


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the group in one generation. `generation` is None if the client's format is unknown."""

    metadata: bytes
    """The client's group metadata, which goes with the offsets."""
    id: str
    generation: int | None


class StaleGeneration(TransactionTrouble):
    """The broker refused the offsets because the group has a newer generation, and the transaction is aborted."""

    def __init__(self, message: str, refused: Member) -> None:
        super().__init__(message)
        self.refused = refused


def is_stale(refusal: KafkaException) -> bool:
    """Whether the broker knows the member, but not in this generation, and the transaction can be aborted."""
    error = refusal.args[0]
    return isinstance(error, KafkaError) and (
        error.code() == KafkaError.ILLEGAL_GENERATION and error.txn_requires_abort() and not error.fatal()
    )


def proven(consumer: Consumer) -> Member:
    """The consumer as a current member. Raises TransactionTrouble if it is none.

    The broker does not fence offsets that come with an empty generation and member id, as before the first join or after
    an expulsion. So such metadata must never be sent.
    """
    metadata: bytes = consumer.consumer_group_metadata()
    member = Member(metadata, consumer.memberid() or "", _generation(metadata))
    if not member.id or (member.generation is not None and member.generation < 0):
        raise TransactionTrouble("this worker is not a member of its group at the moment")
    return member


def successor(consumer: Consumer, stale: StaleGeneration) -> Member:
    """The same member in a newer generation. Blocks until the client knows it; raises TransactionTrouble after a while.

    Raises TransactionTrouble also if the consumer has another member id: its partitions may have been others' meanwhile.
    """
    refused, deadline = stale.refused, Deadline(_ANSWER_S)
    while (member := proven(consumer)).id == refused.id and not deadline.over:
        if refused.generation is not None and (member.generation or 0) > refused.generation:
            return member
        time.sleep(_ASK_S)
    reason = "it is another member now" if member.id != refused.id else "the new generation is not known in time"
    raise TransactionTrouble(f"{stale}; {reason}") from stale


def _generation(metadata: bytes) -> int | None:
    """The generation in librdkafka's metadata; None if the format is unknown, since the member id is checked anyway."""
    if not metadata.startswith(_MAGIC) or len(metadata) < len(_MAGIC) + 4:
        return None
    generation: int = struct.unpack_from("<i", metadata, len(_MAGIC))[0]
    return generation
