"""Membership of the group: what happens in a rebalance, heartbeats, and the proof that a transaction needs.

The broker fences the offsets of a transaction by member id and generation, not by who has which partition. That is enough,
because a partition leaves a member in only two ways (`cooperative-sticky`):

- The member gives it up, in its callback. Callbacks run inside `poll` and `close`, and no transaction is open when these are
  called.
- The group expels the member. Its id is then unknown for ever, and it gets a new one only after its callback for the lost
  partitions.

So while the member id stays the same, our partitions are ours through any number of generations, and a release whose offsets
were refused for their generation may be published again, in a new transaction with the newer one.

A broker that refuses a generation knows the member, which took part in the rebalance that made the newer one. The client
learns the newer generation in its own thread, without a poll, from an answer that is on its way. A member that was expelled
is refused for its id instead.
"""

from __future__ import annotations

import logging
import math
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.assignment import Assignment
from enricher.worker.kafka.metadata import ours
from enricher.worker.kafka.properties import HEARTBEAT_INTERVAL_MS
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.records import Partition
from enricher.worker.rules.offsets import names_of
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

_MAGIC = b"CGMDv2:"
"""librdkafka's private format: magic, int32 generation (little endian), group, NUL, member id, NUL, ..."""
_ANSWER_S = 0.5
"""How long the answer with the new generation may take. Usually it is there before the refusal; a recovery takes as long."""
_ASK_S = 0.002
_QUIET_S = 2.0
"""After this time without a rebalance, the next one is taken for the first of two, which are at most a second apart."""
_PER_WINDOW, _WINDOW_S = 3, 30.0
"""How often a member joins again by itself in this time: beside slow members, each rebalance may look like a first one."""
_Callback = Callable[[Any, list[TopicPartition]], None]
_INTERVAL_S = HEARTBEAT_INTERVAL_MS / 1000


class Rebalances:
    """The callbacks of one consumer, which inform the assignment and the listener.

    They run inside its `consume` and `close`, so in the loop's thread. An exception must not leave a callback, so it is
    kept, and `check` raises it.
    """

    def __init__(
        self, assignment: Assignment, listener: PartitionListener, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._assignment = assignment
        self._listener = listener
        self._raised: Exception | None = None
        self._removed: set[Partition] = set()
        """Partitions that were revoked or lost in this turn of the loop."""
        self._clock = clock
        self._changed_s = -math.inf
        """The time of the last callback."""
        self._joining = False
        """Whether this member causes the next rebalance itself, by joining again."""
        self._joined_s = deque([-math.inf] * _PER_WINDOW, _PER_WINDOW)
        """The times at which this member last joined again."""
        self._topics: list[str] = []
        self._callbacks: dict[str, _Callback] = {
            "on_assign": self._callback(self._add),
            "on_revoke": self._callback(partial(self._remove, listener.revoked)),
            "on_lost": self._callback(partial(self._remove, listener.lost)),
        }

    def subscribe(self, consumer: Consumer, topics: Sequence[str]) -> None:
        """Join the group. Raises the client's errors."""
        self._topics = [*topics]
        consumer.subscribe(self._topics, **self._callbacks)

    def begin_turn(self) -> None:
        """Begin a turn of the loop, which has handled everything that came before."""
        self._removed.clear()

    def check(self) -> None:
        """Raise the first exception of a callback, once."""
        if self._raised:
            raised, self._raised = self._raised, None
            raise raised

    # ---- inside

    def _callback(self, handle: _Callback) -> _Callback:
        def callback(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                handle(consumer, partitions)
            except Exception as error:  # noqa: BLE001  raised again by check()
                self._raised = self._raised or error  # the first may be fatal, and the cause of the later ones

        return callback

    def _add(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        first = self._is_first()
        # A client that gets a subscription while it is closed aborts the process.
        if first and not partitions and not self._assignment.leaving:
            self._join_again(consumer)
        self._assignment.add(partitions)
        added = [ours(tp) for tp in partitions]
        if back := self._removed.intersection(added):
            message = f"{names_of(sorted(back))} left and came back within one poll: their records may be mixed up"
            self._raised = self._raised or TransactionTrouble(message)
        self._listener.assigned(added)

    def _remove(
        self,
        tell: Callable[[Sequence[Partition]], None],
        _consumer: Consumer,
        partitions: list[TopicPartition],
    ) -> None:
        removed = [ours(tp) for tp in partitions]
        self._is_first()
        try:
            tell(removed)  # it makes a last transaction, and asks what the assignment knows of them
        finally:
            self._assignment.remove(removed)
            self._removed.update(removed)

    def _is_first(self) -> bool:
        """Whether this rebalance is the first for a while, and another member caused it. Notes it."""
        now_s = self._clock()
        first = now_s - self._changed_s >= _QUIET_S and now_s - self._joined_s[0] >= _WINDOW_S and not self._joining
        self._changed_s, self._joining = now_s, False
        return first

    def _join_again(self, consumer: Consumer) -> None:
        """Take part in the second rebalance at once, because this member got nothing and gave up nothing in the first.

        A partition moves in two rebalances. Its owner gives it up after the first and joins the second at once; until the
        second is over the partition stands still. By themselves, the other members (new ones, and those that keep their
        partitions) learn of the second rebalance from a heartbeat, and librdkafka lets them join no earlier than a second
        after the first (`rkcg_join_intvl`). A subscription inside the callback, before the assignment, is applied right
        after it and ends that wait. Where nothing moves it costs one more rebalance, so it is done once for all rebalances
        in a row.
        """
        self._joining = True
        self._joined_s.append(self._changed_s)
        try:
            consumer.subscribe(self._topics, **self._callbacks)
        except KafkaException as exception:  # it still joins, a second later
            log.info("joining the second rebalance later: %s", exception)


class Heartbeats:
    """Keeps heartbeats on time, by which members learn that partitions are to move. For the loop's thread.

    librdkafka sends a heartbeat when its main thread is awake and the interval is over. Left alone, that thread wakes every
    0.5 seconds, whatever the interval.
    """

    def __init__(self) -> None:
        self._next_s = 0.0

    def prompt(self, consumer: Consumer, now_s: float) -> bool | None:
        """Wake the client if it is time, and return whether it is a member of its group. None: it is not time yet."""
        if now_s < self._next_s:
            return None
        self._next_s = now_s + _INTERVAL_S
        return bool(consumer.memberid())  # the client's main thread answers this, and then looks at its timers

    def left_s(self, now_s: float) -> float:
        """How long a poll may wait until it is time again."""
        return max(0.001, self._next_s - now_s)


def leave(consumer: Consumer) -> None:
    """Close a member of a group, after it has handled the rebalances that wait for it. Raises KafkaException.

    Of about 50 members that were closed while one waited, one never returned, and held the interpreter's lock meanwhile: the
    client asks librdkafka to take the assignment, whose group is over by then, and gets no answer (confluent-kafka 2.16.1,
    `rd_kafka_assign0` within `rd_kafka_consumer_close`).
    """
    with suppress(RuntimeError):  # it is closed already
        consumer.poll(0)
    consumer.close()


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

    Raises TransactionTrouble also if the consumer has another member id: other members may have had its partitions
    meanwhile.
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
