"""The consumer: records in, rebalances told to the listener, positions, rewind.

One thread only, the loop's. Never commits: offsets travel in the sink's transactions; `offsets` says what goes with them.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from confluent_kafka import Consumer, TopicPartition

from enricher.core.commit_metadata import CommitMetadata
from enricher.core.portions import Portions
from enricher.errors import TransactionTrouble
from enricher.kafka.assignment import Assignment
from enricher.kafka.catching_up import CatchingUp
from enricher.kafka.client import KafkaConfig, LastWord
from enricher.kafka.delivery import Delivery
from enricher.kafka.errors import border, connecting, constructing
from enricher.kafka.metadata import partitions_of
from enricher.kafka.rebalances import Rebalances
from enricher.kafka.statistics import Statistics
from enricher.kafka.topicwatch import TopicWatch
from enricher.records import Mark, Partition, RawRecord, Release, Start
from enricher.stats.snapshot import Connection
from enricher.worker.ports import PartitionListener

log = logging.getLogger(__name__)


class KafkaSource:
    """Reads the input topic as a member of the consumer group.

    `until_caught_up`: `caught_up` becomes true when the group has committed the ends that were there at `open`.
    """

    def __init__(self, config: KafkaConfig, *, until_caught_up: bool = False) -> None:
        self._config = config
        self._last_word = LastWord(config)
        self._statistics = Statistics(config.input_topic)
        self._joined = False
        self._consumer = self._connected()
        self.watch = TopicWatch(config)
        self._assignment = Assignment(self._consumer, config, self.watch, self._last_word)
        self._held = self._assignment.held
        self._delivery = Delivery(config, self._assignment, self.watch, self._last_word)
        self._portions = Portions()
        self._catching_up: CatchingUp | None = None
        if until_caught_up:
            self._catching_up = CatchingUp(self._consumer, self._last_word, config.request_timeout_s)
        self.member_ids: set[str] = set()
        """What the group has called us. One that threw us out may have an old one of ours for a session timeout."""

    def open(self, listener: PartitionListener) -> None:
        """Check the topics, note the ends if asked to, join the group. Raises TransactionTrouble: then call it again.

        Raises SettingsError where an output topic has fewer partitions than the input.
        """
        with connecting(self._last_word), border("asking for the input topic", self._last_word, self._consumer):
            partitions = partitions_of(self._consumer, self._config.input_topic, self._config.request_timeout_s)
            if self._catching_up:
                self._catching_up.note(partitions)
        with connecting(self.watch.last_word):
            self.watch.open()
        self._join(listener)

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """At most `limit` records, one where it had to wait (`timeout_s` at most). Calls the listener.

        One call of the client and no more: a rebalance in a second one would find records that the loop has not seen yet.
        Raises TransactionTrouble where records are mixed up or do not come, Stalled where they still do not come.
        """
        self._rebalances.begin_turn()
        self._assignment.tend(time.monotonic())
        with border("reading", self._last_word):
            # `consume` waits until it has *all* it was asked for, so it is asked for one where it may wait.
            messages = self._consumer.consume(1 if timeout_s > 0 else self._portions.of(limit), timeout_s)
            self._rebalances.check()
            # A member with more members than partitions gets none, and is told nothing.
            self._joined = self._joined or bool(self._consumer.memberid())
        now_s = time.monotonic()
        if not messages:
            self._assignment.drained(now_s)
        return self._portions.noted(self._delivery.records_of(messages, limit, now_s))

    def pause(self) -> None:
        """Deliver nothing until `resume`. Prefetched records are dropped and fetched again, so not for short waits."""
        self._assignment.pause()

    def resume(self) -> None:
        """Deliver again."""
        self._assignment.resume()

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Where the end was reached, beyond transaction markers; without partitions that have more to deliver.

        Known by the client's end-of-partition events, which come in order with the records. Its own `position()` may be
        left over from before a rebalance, and committing a stale one would lose records.
        """
        return self._held.ends(partitions)

    def start_of(self, partition: Partition) -> Start | None:
        """Where reading of a partition of ours began last, and what stood beside that offset; None while unknown."""
        return self._held.start_of(partition)

    def rewind(self) -> None:
        """Go back to the committed offsets of all our partitions. Raises TransactionTrouble.

        Where the topic is another one than before, by its id, its beginning is where to go. Then, and where a partition fell
        silent, with a new client: the old one may know the leaders of the old topic for ever (librdkafka 4898).
        """
        self._assignment.look_around()
        if self._assignment.distrusted:
            self._renew()
        else:
            self._assignment.rewind()

    def membership(self) -> bytes:
        """Fresh group metadata for a transaction. Raises TransactionTrouble while we are no member."""
        self.member_ids.add(self.member_id())
        with border("asking for the group metadata", self._last_word):
            return _proven_membership(self._consumer)

    def offsets(self, release: Release) -> list[TopicPartition]:
        """The release's offsets as they are to be committed: with the leader's epoch and the metadata string."""
        return [
            self._position(partition, offset, release.marks.get(partition, Mark()))
            for partition, offset in release.committable.items()
        ]

    def committed(self, release: Release) -> None:
        """Take note that these offsets are committed."""
        self._assignment.committed(release.committable)

    def member_id(self) -> str:
        """What the group calls us; empty while we are no member. Not for other threads than the loop's."""
        return self._consumer.memberid() or ""

    def caught_up(self) -> bool:
        """True when the group, whichever member, has committed everything up to the ends seen at `open`."""
        return self._catching_up is not None and self._catching_up.done()

    def connection(self) -> Connection:
        """Membership, and what the client said of its brokers and its lag in its last statistics. Safe in any thread."""
        connection = self._statistics.connection(joined=self._joined)
        silent_s = self._assignment.silent_s(time.monotonic())
        partitions = self.watch.partitions
        return replace(connection, starts=self._held.starts(), topic_partitions=partitions, silent_s=silent_s)

    def close(self) -> None:
        """Leave the group."""
        self._joined = False
        with border("leaving the group", self._last_word):
            self._consumer.close()

    # ---- inside

    def _connected(self) -> Consumer:
        callbacks = {"error_cb": self._last_word, "stats_cb": self._statistics}
        with constructing():
            return Consumer(self._config.consumer() | callbacks, logger=self._last_word.logger)

    def _join(self, listener: PartitionListener) -> None:
        self._listener = listener
        self._rebalances = Rebalances(self._assignment, listener)
        self._rebalances.subscribe(self._consumer, self._config.input_topic)

    def _renew(self) -> None:
        """Leave the group, and join it with another client. Raises TransactionTrouble: then call it again."""
        self._rebalances.end(self._assignment.abandon())
        old, self._consumer = self._consumer, self._connected()
        self._joined = False
        with border("leaving the group", self._last_word):
            old.close()
        with border("joining the group again", self._last_word):
            self._join(self._listener)
        self._assignment.renew(self._consumer)
        if self._catching_up:
            self._catching_up.renew(self._consumer)

    def _position(self, partition: Partition, offset: int, mark: Mark) -> TopicPartition:
        metadata = CommitMetadata(self.watch.topic_id, mark.attempts, mark.alone).encode()
        epoch = self._held.epoch_before(partition, offset)
        named = {} if epoch is None else {"leader_epoch": epoch}
        return TopicPartition(partition.topic, partition.number, offset, metadata=metadata, **named)


_MAGIC = b"CGMDv2:"
"""librdkafka's private format: magic, int32 generation (little endian), group, member id, ..."""


def _proven_membership(consumer: Consumer) -> bytes:
    """The group metadata of a current member. Raises TransactionTrouble for any other consumer.

    The broker does not fence offsets that come with an empty generation and member id, as before the first join or after
    an expulsion. So such metadata must never be sent.
    """
    metadata: bytes = consumer.consumer_group_metadata()
    if not consumer.memberid() or _generation(metadata) < 0:
        raise TransactionTrouble("this worker is not a member of its group at the moment")
    return metadata


def _generation(metadata: bytes) -> int:
    """The generation in librdkafka's metadata; 0 if the format is unknown, since the member id is checked anyway."""
    if not metadata.startswith(_MAGIC) or len(metadata) < len(_MAGIC) + 4:
        return 0
    generation: int = struct.unpack_from("<i", metadata, len(_MAGIC))[0]
    return generation
