"""The consumer: records in, rebalances told to the listener, positions, rewind.

One thread only, the loop's. Never commits: offsets travel in the sink's transactions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from enricher.errors import BrokerError, TransactionTrouble
from enricher.kafka.border import border, connecting, constructing, mapped
from enricher.kafka.client import KafkaConfig, LastWord
from enricher.kafka.membership import proven_membership
from enricher.kafka.metadata import bounds_of, foreign, ours, partition_of, partitions_of, raw_record
from enricher.kafka.statistics import Statistics
from enricher.levels import Connection
from enricher.records import Partition, RawRecord

log = logging.getLogger(__name__)

_CAUGHT_UP_CHECK_S = 0.1  # asking costs the broker a request; ten a second are nothing to it


class Listener(Protocol):
    """Who is told about partitions (the worker)."""

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """These are ours now."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """The last chance to publish for these."""

    def lost(self, partitions: Sequence[Partition]) -> None:
        """These are somebody else's already."""


class KafkaSource:
    """Reads the input topic as a member of the consumer group.

    `until_caught_up`: `caught_up` becomes true when the group has committed the ends that were there at `open`.
    """

    def __init__(self, config: KafkaConfig, *, until_caught_up: bool = False) -> None:
        self._config = config
        self._last_word = LastWord(config)
        self._statistics = Statistics(config.input_topic)
        self._joined = False
        with constructing():
            callbacks = {"error_cb": self._last_word, "stats_cb": self._statistics}
            self._consumer = Consumer(config.consumer() | callbacks, logger=self._last_word.logger)
        self._until_caught_up = until_caught_up
        self._ends: dict[Partition, int] = {}
        self._next_check_s = 0.0
        self._paused = False
        self._owned: dict[Partition, int | None] = {}
        """Our partitions, and the offset up to which they have delivered; None before they did."""
        self._ended: dict[Partition, int] = {}
        self._gone: set[Partition] = set()
        """Partitions that left during this call of `poll`."""
        self._raised: Exception | None = None

    def open(self, listener: Listener) -> None:
        """Check the topic, note its ends if asked to, join the group. Raises TransactionTrouble: then call it again."""
        with connecting(self._last_word), border("asking for the input topic", self._last_word, self._consumer):
            self._look_around()
        self._consumer.subscribe(
            [self._config.input_topic],
            on_assign=self._told(self._take, listener.assigned),
            on_revoke=self._told(self._leave, listener.revoked),
            on_lost=self._told(self._leave, listener.lost),
        )

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """At most `limit` records, one where it had to wait (`timeout_s` at most). Calls the listener.

        One call of the client and no more: a rebalance in a second one would find records that the loop has not seen yet.
        """
        self._gone.clear()
        with border("reading", self._last_word):
            # `consume` waits until it has *all* it was asked for, so it is asked for one where it may wait.
            messages = self._consumer.consume(1, timeout_s) if timeout_s > 0 else self._consumer.consume(limit, 0)
            if self._raised:
                raised, self._raised = self._raised, None
                raise raised
            # A member with more members than partitions gets none, and is told nothing.
            self._joined = self._joined or bool(self._consumer.memberid())
        return [record for message in messages if (record := self._delivered(message))]

    def pause(self) -> None:
        """Deliver nothing until `resume`. Prefetched records are dropped and fetched again, so not for short waits."""
        if not self._paused:
            self._paused = True
            with border("pausing", self._last_word):
                self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Deliver again."""
        self._paused = False
        with border("resuming", self._last_word):
            self._consumer.resume(self._consumer.assignment())

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Where the end was reached, beyond transaction markers; without partitions that have more to deliver.

        Known by the client's end-of-partition events, which come in order with the records. Its own `position()` may be
        left over from before a rebalance, and committing a stale one would lose records.
        """
        return {partition: self._ended[partition] for partition in partitions if partition in self._ended}

    def rewind(self) -> None:
        """Go back to the committed offsets of all our partitions. Raises TransactionTrouble."""
        self._ended.clear()
        with border("rewinding", self._last_word):
            assigned = self._consumer.assignment()
            for tp in self._consumer.committed(assigned, timeout=self._config.request_timeout_s) if assigned else ():
                if tp.error:
                    raise KafkaException(tp.error)
                if tp.offset < 0:
                    tp.offset = OFFSET_BEGINNING
                self._seek(tp)

    def membership(self) -> bytes:
        """Fresh group metadata for a transaction. Raises TransactionTrouble while we are no member."""
        with border("asking for the group metadata", self._last_word):
            return proven_membership(self._consumer)

    def member_id(self) -> str:
        """What the group calls us; empty while we are no member. Not for other threads than the loop's."""
        return self._consumer.memberid() or ""

    def caught_up(self) -> bool:
        """True when the group, whichever member, has committed everything up to the ends seen at `open`."""
        if not self._until_caught_up or time.monotonic() < self._next_check_s:
            return False
        if not self._ends:
            return True
        try:
            wanted = [foreign(partition) for partition in self._ends]
            committed = self._consumer.committed(wanted, timeout=self._config.request_timeout_s)
        except KafkaException as exception:
            log.warning("cannot ask for the committed offsets: %s", self._last_word.explain(exception.args[0]))
            return False
        finally:
            self._next_check_s = time.monotonic() + _CAUGHT_UP_CHECK_S
        return all(tp.offset >= self._ends[ours(tp)] for tp in committed)

    def connection(self) -> Connection:
        """Membership, and what the client said of its brokers and its lag in its last statistics. Safe in any thread."""
        return self._statistics.connection(joined=self._joined)

    def close(self) -> None:
        """Leave the group."""
        self._joined = False
        with border("leaving the group", self._last_word):
            self._consumer.close()

    # ---- inside

    def _look_around(self) -> None:
        timeout_s = self._config.request_timeout_s
        partitions = partitions_of(self._consumer, self._config.input_topic, timeout_s)
        if self._until_caught_up:
            bounds = {partition: bounds_of(self._consumer, partition, timeout_s) for partition in partitions}
            self._ends = {partition: end for partition, (low, end) in bounds.items() if end > low}
            records = sum(end - low for low, end in bounds.values())
            log.info("to be caught up with: %d records at most, some of them may be done already", records)

    def _seek(self, tp: TopicPartition) -> None:
        try:
            self._consumer.seek(tp)
        except KafkaException as exception:
            # Assigned but not started yet: it delivered nothing, and starts at the committed offset by itself.
            not_started = exception.args[0].code() == KafkaError._STATE  # noqa: SLF001  the client's name
            if not not_started or self._owned[ours(tp)] is not None:
                raise
        else:
            self._owned[ours(tp)] = 0

    def _take(self, partitions: list[TopicPartition]) -> None:
        self._consumer.incremental_assign(partitions)
        # Either way: the client keeps a partition paused that left while it was, and never reads it when it comes back.
        (self._consumer.pause if self._paused else self._consumer.resume)(partitions)
        for partition in map(ours, partitions):
            if partition in self._gone:
                message = f"{partition.topic}[{partition.number}] left and came back at once: its records are mixed up"
                self._raised = self._raised or TransactionTrouble(message)
            self._owned[partition] = None

    def _leave(self, partitions: list[TopicPartition]) -> None:
        for partition in map(ours, partitions):
            self._owned.pop(partition, None)
            self._ended.pop(partition, None)
            self._gone.add(partition)

    def _told(
        self,
        change: Callable[[list[TopicPartition]], None],
        tell: Callable[[Sequence[Partition]], None],
    ) -> Callable[[Any, list[TopicPartition]], None]:
        """A client callback. What goes wrong in it is kept for `poll` to raise: nothing may leave a callback."""

        def callback(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                change(partitions)
                tell([ours(tp) for tp in partitions])
            except Exception as error:  # noqa: BLE001  raised again by poll()
                self._raised = self._raised or error  # the first may be fatal, a later one is its consequence

        return callback

    def _delivered(self, message: Message) -> RawRecord | None:
        """The record of a message; None for the client's events and for what is not ours any more."""
        error = message.error()
        if error is None:
            record = raw_record(message)
            if record.partition not in self._owned:
                return None
            self._advance(record.partition, record.offset, record.offset + 1)
            if self._ended:
                self._ended.pop(record.partition, None)
            return record
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's name
            if (partition := partition_of(message)) in self._owned:
                end = message.offset() or 0
                self._advance(partition, end, end)
                self._ended[partition] = end
            return None
        self._complain(error)
        return None

    def _advance(self, partition: Partition, at: int, up_to: int) -> None:
        """Note how far it has delivered. A log may begin anew: then nothing that is in flight belongs to it any more."""
        before = self._owned[partition]
        if before is not None and at < before:
            where = f"{partition.topic}[{partition.number}]"
            message = f"{where} goes on at offset {at} after {before}: was the topic created again, or cut off?"
            raise TransactionTrouble(message)
        self._owned[partition] = up_to

    def _complain(self, error: KafkaError) -> None:
        """Raise what no waiting will mend, log the rest."""
        trouble = mapped(error, f"reading {self._config.input_topic}", self._last_word)
        if error.fatal() or isinstance(trouble, BrokerError):
            raise trouble if isinstance(trouble, BrokerError) else BrokerError(str(trouble))
        log.warning("%s", trouble)
