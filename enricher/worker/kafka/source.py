"""The source: a consumer that delivers records, tells the listener about rebalances, and rewinds.

Used by the loop's thread only. Never commits: offsets are sent in the sink's transactions, as `offsets` gives them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.assignment import Assignment
from enricher.worker.kafka.catching_up import CatchingUp
from enricher.worker.kafka.errors import ClientErrors, connecting, mapping_errors, new_client, transient_error
from enricher.worker.kafka.membership import Heartbeats, Member, Rebalances, StaleGeneration, leave, proven, successor
from enricher.worker.kafka.metadata import partition_of, partitions_of, raw_record
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.statistics import Statistics
from enricher.worker.kafka.topicwatch import TopicWatch
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.records import MAX_HEADERS, Mark, Partition, RawRecord, ReachedLimit, Release, Start
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.rules.read_limits import Portions, Priority
from enricher.worker.stats import Connection

log = logging.getLogger(__name__)

_GATHER_S = 0.02
"""How long one poll waits for the first records of new partitions; the first fetch takes a few milliseconds."""


class KafkaSource:
    """Reads the input topics as a member of the consumer group.

    `until_caught_up`: `caught_up` becomes true once the group has committed the ends that partitions had at `open`.
    """

    def __init__(self, config: KafkaConfig, *, until_caught_up: bool = False) -> None:
        self._config = config
        self._client_errors = ClientErrors(config)
        self._statistics = Statistics(config.inputs)
        self._joined = False
        self._consumer = new_client(Consumer, config.consumer() | {"stats_cb": self._statistics}, self._client_errors)
        self.watch = TopicWatch(config)
        self._assignment = Assignment(self._consumer, config, self.watch, self._client_errors)
        self._partitions, self._fetching = self._assignment.partitions, self._assignment.fetching
        self._heartbeats = Heartbeats()
        self._portions, self._priority = Portions(), Priority(config.inputs)
        self._catching_up: CatchingUp | None = None
        if until_caught_up:
            committed = self._assignment.committed_offsets
            self._catching_up = CatchingUp(self._consumer, config, self.watch, self._client_errors, committed)

    def open(self, listener: PartitionListener) -> None:
        """Check the topics and join the group. Raises TransactionTrouble, after which it may be called again.

        Raises SettingsError if an output topic has fewer partitions than the input.
        """
        with (
            connecting(self._client_errors),
            mapping_errors("asking for the input topic", self._client_errors, self._consumer),
        ):
            for topic in self._config.inputs:
                partitions_of(self._consumer, topic, self._config.request_timeout_s)
        with connecting(self.watch.client_errors):
            self.watch.open()
            self._assignment.starts.note_unwritten()
            if self._catching_up:
                with mapping_errors("asking for offsets", self.watch.client_errors, self.watch.client):
                    self._catching_up.note()
        self._rebalances = Rebalances(self._assignment, listener)
        self._rebalances.subscribe(self._consumer, self._config.inputs)

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """At most `limit` records; usually only one if it may wait, for at most `timeout_s`. Calls the listener.

        Calls the client once: a rebalance in a second call would meet records that the loop has not seen yet. Raises
        TransactionTrouble if a partition left and came back, Stalled if one delivers nothing although it has records,
        BrokerError if the brokers have refused the credentials for long.
        """
        if self._client_errors.refused:
            # A restart reads passwords and gets a token again. Without records no transaction fails: nothing else ends this.
            away_s = self._statistics.connection(joined=self._joined).away_s
            if away_s >= self._config.partition_timeout_s:
                message = f"no broker for {away_s:.0f} s: {self._client_errors.last}. Needed: valid credentials"
                raise BrokerError(message)
        self._rebalances.begin_turn()
        self._assignment.tend(began_s := time.monotonic())
        with mapping_errors("reading", self._client_errors):
            # With more members than partitions, some are assigned nothing and get no callback.
            self._joined = self._heartbeats.prompt(self._consumer, began_s) or self._joined
            messages = self._consumer.consume(*self._wait(limit, timeout_s, began_s))
            self._rebalances.check()
        now_s = time.monotonic()
        if not messages:
            self._assignment.note_drain(now_s)
        records = self._records_of(messages, now_s)
        self._fetching.fetch_again()
        return self._portions.learn_from(records)

    def pause(self) -> None:
        """Deliver nothing until `resume`. Drops prefetched records, so not for short waits."""
        self._fetching.pause()

    def resume(self) -> None:
        """Deliver records again."""
        self._fetching.resume()

    def hold(self, partitions: Collection[Partition]) -> None:
        """Hold these partitions and no others: keep their records back, and deliver those of all others.

        With several input topics, the topics after one that has a backlog are held too (`rules/read_limits.py`).
        """
        now_s = time.monotonic()
        if self._config.other_inputs:
            behind = {each.topic for each in self._partitions.behind(self._statistics.ends) if each not in partitions}
            topics = self._priority.to_hold(behind, now_s)
            partitions = {*partitions, *(each for each in self._partitions if each.topic in topics)}
        self._assignment.hold(partitions, now_s)

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The ends that were reached, behind transaction markers. Partitions that have more to deliver are left out.

        Also the starts of partitions that deliver nothing before their start is committed. The ends are taken from the
        client's end-of-partition events, which come in order with the records. The client's own `position()` may be stale
        after a rebalance, and committing a stale one would lose records.
        """
        return self._partitions.to_commit(partitions)

    @property
    def waits_for_commit(self) -> bool:
        """True while a partition delivers nothing before its start is committed: the group never committed one."""
        return self._partitions.uncommitted

    def start_of(self, partition: Partition) -> Start | None:
        """The offset at which reading of a partition began last, and the mark committed with it; None while unknown."""
        return self._partitions.start_of(partition)

    def rewind(self) -> None:
        """Go back to the committed offsets of all assigned partitions. Raises TransactionTrouble, TopicReplaced, Stalled."""
        self.watch.refresh()
        self._assignment.rewind()

    def membership(self) -> Member:
        """This worker as a current member, for a transaction. Raises TransactionTrouble while it is not a member."""
        with mapping_errors("asking for the group metadata", self._client_errors):
            return proven(self._consumer)

    def await_newer_generation(self, stale: StaleGeneration) -> None:
        """Block until the member whose offsets were refused knows a newer generation. Raises TransactionTrouble."""
        with mapping_errors("asking for the group metadata", self._client_errors):
            successor(self._consumer, stale)

    def offsets(self, release: Release) -> list[TopicPartition]:
        """The release's offsets with leader epoch and metadata, as they are committed."""
        return [
            self._position(
                partition,
                offset,
                release.marks.get(partition, Mark()),
                release.reached_limits.get(partition, ReachedLimit()),
            )
            for partition, offset in release.committable.items()
        ]

    def note_commit(self, release: Release) -> None:
        """Note that these offsets are committed."""
        self._assignment.note_commit(release.committable)

    def caught_up(self) -> bool:
        """True once the group has committed the ends that partitions had at `open`. Raises TopicReplaced."""
        try:
            return self._catching_up is not None and self._catching_up.done()
        except TransactionTrouble as trouble:
            self._assignment.raise_later(trouble)
            return False

    def connection(self) -> Connection:
        """Membership, and the client's last statistics of brokers and partition ends. May be called from any thread."""
        connection = self._statistics.connection(joined=self._joined)
        silent_s = self._partitions.silent_s(time.monotonic())
        return replace(
            connection,
            ends={**connection.ends, **self._partitions.held_ends()},
            starts=self._partitions.starts(),
            topic_partitions=self.watch.partitions,
            silent_s=silent_s,
        )

    def close(self) -> None:
        """Leave the group."""
        self._joined, self._assignment.leaving = False, True
        with mapping_errors("leaving the group", self._client_errors):
            leave(self._consumer)

    # ---- inside

    def _wait(self, limit: int, timeout_s: float, now_s: float) -> tuple[int, float]:
        """How many records to wait for, and how long: `consume` waits until it has all the records it was asked for."""
        timeout_s = min(timeout_s, self._heartbeats.left_s(now_s))
        if timeout_s > 0 and self._fetching.gathers(now_s):
            return self._portions.of(limit), min(timeout_s, _GATHER_S)
        return 1 if timeout_s > 0 else self._portions.of(limit), timeout_s

    def _records_of(self, messages: Sequence[Message], now_s: float) -> list[RawRecord]:
        """The records in these messages, each once and in order. The client skips a damaged batch; this seeks back to it."""
        records: list[RawRecord] = []
        damaged = set[Partition]()
        for message in messages:
            partition, error = partition_of(message), message.error()
            at = self._partitions.get(partition)
            if partition in damaged:
                continue
            if at and at.is_damaged(error, message.offset() or 0, now_s):
                damaged.add(partition)
                self._assignment.require_readable(at)
            elif error is None:
                record = raw_record(message, self.watch.topic_ids[partition.topic], max_headers=MAX_HEADERS)
                if at and at.deliver(record.offset, record.leader_epoch, now_s):
                    records.append(record)
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's name
                doing = f"reading {partition.topic or ', '.join(self._config.inputs)}"
                log.warning("%s", transient_error(error, doing, self._client_errors))
            elif at:
                at.reach_end(message.offset() or 0, now_s)
        self._fetching.go_back(damaged)
        return records

    def _position(self, partition: Partition, offset: int, mark: Mark, reached: ReachedLimit) -> TopicPartition:
        at = self._partitions.get(partition)
        metadata = CommitMetadata(self.watch.topic_ids[partition.topic], mark, reached).encode()
        epoch = at.epoch_before(offset) if at else None
        named = {} if epoch is None else {"leader_epoch": epoch}
        return TopicPartition(partition.topic, partition.number, offset, metadata=metadata, **named)
