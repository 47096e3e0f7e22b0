"""Reads the output topic as a member of the indexers' group, and commits the records that are in the index.

At least once: an offset is committed after the answer to its document, and a record that comes again is refused by its
version. The ids of the topic and of the index are committed with each offset: a topic that is created again begins at 0, and
an index that is created again, or another one, lacks the records that were committed before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from enricher.errors import BrokerError, FatalError, RecoveryExhausted, TransactionTrouble
from enricher.worker.kafka.catching_up import CatchingUp
from enricher.worker.kafka.errors import ClientErrors, connecting, mapping_errors, new_client, our_error
from enricher.worker.kafka.membership import leave
from enricher.worker.kafka.metadata import foreign, ours, partition_of, raw_record
from enricher.worker.kafka.partition_reader import END_OF_PARTITION
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.statistics import Statistics
from enricher.worker.kafka.topicwatch import TopicWatch
from enricher.worker.records import Partition, RawRecord
from enricher.worker.runtime.repeats import Repeats
from enricher.worker.stats import Connection

log = logging.getLogger(__name__)

_REPEAT_S = 60.0
_CONFIRM_S, _CONFIRM_IDLE_S = 1.0, 5.0
_MOST_ROW = 10**9
Callback = Callable[[Any, list[TopicPartition]], None]


class OutputReader:
    """A consumer. For one thread, except for `connection`, `partitions` and `lags`.

    `config` has the indexers' group, and the output topic as its input topic. `give_up_s`: for how long commits may fail.
    `most_row`: the most dead letters in a row that are taken over from a commit: the row may have ended in another
    partition.
    """

    def __init__(
        self, config: KafkaConfig, *, give_up_s: float, most_row: int = 0, until_caught_up: bool = False
    ) -> None:
        self._config = config
        self._topic = config.input_topic
        self._give_up_s = give_up_s
        self._most_row = most_row
        self._until_caught_up = until_caught_up
        self._client_errors = ClientErrors(config)
        self._watch = TopicWatch(config, remedy="A restart reads it from its beginning")
        self._repeats = Repeats(period_s=_REPEAT_S)
        self._stash: list[Message] = []
        """Messages that came while the consumer was paused. They do not count as read, so no commit includes them."""
        self._next: dict[Partition, int] = {}
        """The next offset to read of each of our partitions from which something was read."""
        self._committed: dict[Partition, int] = {}
        self._ours: set[Partition] = set()
        self._paused = False
        self._raised: BaseException | None = None
        self._failing_since_s: float | None = None
        self._confirmed_s = 0.0
        self._index_id = ""
        self._to_read_again: set[Partition] = set()
        """Partitions, of all members, whose last commit was for another index."""
        self.row = 0
        """The number of dead letters in a row. The indexer sets it, and it is committed with the offsets."""
        self.rebalances = 0
        self.joined = False
        """Whether this consumer is a member of the group."""

    def open(self, index_id: str) -> None:
        """Check the topic and join the group. `index_id`: the id of the index that is written from now on.

        Raises TransactionTrouble, after which it may be called again; BrokerError.
        """
        self.joined = self._paused = False
        self._index_id = index_id
        self._statistics = Statistics([self._topic])
        self._consumer = new_client(
            Consumer, self._config.consumer() | {"stats_cb": self._statistics}, self._client_errors
        )
        self._catching_up: CatchingUp | None = None
        try:
            with connecting(self._watch.client_errors):
                self._watch.refresh()
                if self._until_caught_up:
                    partitions = range(self._watch.partitions[self._topic])
                    self._to_read_again = {Partition(self._topic, number) for number in partitions}
                    self._catching_up = CatchingUp(
                        self._consumer, self._config, self._watch, self._client_errors, lambda: self._committed
                    )
                    with mapping_errors("asking for offsets", self._watch.client_errors, self._watch.client):
                        self._catching_up.note()
            with mapping_errors("joining the group", self._client_errors):
                self._consumer.subscribe(
                    [self._topic], on_assign=self._callback(self._add), on_revoke=self._callback(self._remove),
                    on_lost=self._callback(self._remove),
                )  # fmt: skip
        except BaseException:
            self._consumer.close()
            raise

    def close(self) -> None:
        """Leave the group. Records that were read and not committed come again."""
        self._drop(self._ours)
        try:
            with mapping_errors("leaving the group", self._client_errors):
                leave(self._consumer)
        except TransactionTrouble as trouble:
            log.warning("%s", trouble)

    # ---- reading

    def poll(self, limit: int, wait_s: float) -> list[RawRecord]:
        """At most `limit` records; waits only for the first one."""
        if self._paused:
            self._paused = False
            self._consumer.resume(list(map(foreign, self._ours)))
        self.joined = self.joined or bool(self._consumer.memberid())  # a member without partitions gets no callback
        messages, self._stash = self._stash, []
        messages = messages or self._consume(1, wait_s)
        if messages and limit > len(messages):
            messages += self._consume(limit - len(messages), 0)
        return [record for message in messages if (record := self._record(message))]

    def serve(self, wait_s: float) -> None:
        """Wait without reading, but as a member of the group, so that partitions can be revoked meanwhile."""
        if not self._paused:
            self._paused = True
            self._consumer.pause(list(map(foreign, self._ours)))
        until_s = time.monotonic() + wait_s
        while True:
            self._stash += self._consume(1, min(0.25, max(0.0, until_s - time.monotonic())))
            if time.monotonic() >= until_s:
                return

    def owns(self, partition: Partition) -> bool:
        """Whether the partition is ours now."""
        return partition in self._ours

    def _consume(self, limit: int, wait_s: float) -> list[Message]:
        with mapping_errors("reading", self._client_errors):
            messages = self._consumer.consume(limit, wait_s)
        if self._raised:
            raised, self._raised = self._raised, None
            raise raised
        return messages

    def _record(self, message: Message) -> RawRecord | None:
        partition, offset, error = partition_of(message), message.offset() or 0, message.error()
        if error is None:
            self._next[partition] = offset + 1
            return raw_record(message)
        if error.code() == END_OF_PARTITION:
            self._next[partition] = offset  # after transaction markers
            return None
        trouble = our_error(error, f"reading '{self._topic}'", self._client_errors)
        if isinstance(trouble, FatalError) or error.fatal():
            raise trouble if isinstance(trouble, FatalError) else BrokerError(str(trouble))
        if self._repeats.is_new(error.code()):
            log.warning("%s", trouble)
        return None

    # ---- committing

    def commit(self) -> None:
        """Commit everything that `poll` has returned. Raises RecoveryExhausted if that fails for too long.

        Raises TopicReplaced if the topic was created again meanwhile: nothing is committed then.
        """
        offsets = {
            each: offset
            for each, offset in self._next.items()
            if each in self._ours and offset != self._committed.get(each)
        }
        try:
            self._confirm(_CONFIRM_S if offsets else _CONFIRM_IDLE_S)
            if not offsets:
                return
            with mapping_errors("committing", self._client_errors):
                self._consumer.commit(
                    offsets=[self._position(each, at) for each, at in offsets.items()], asynchronous=False
                )
        except TransactionTrouble as trouble:
            if offsets:
                self._note_failure(trouble)
            return
        self._failing_since_s = None
        self._committed |= offsets

    def _confirm(self, every_s: float) -> None:
        """Check, at most every `every_s`, that the topic is still the same: the client may not notice another one."""
        if time.monotonic() - self._confirmed_s < every_s:
            return
        self._watch.ask()
        self._watch.confirm()
        self._confirmed_s = time.monotonic()

    def _note_failure(self, trouble: TransactionTrouble) -> None:
        """Note a failure, such as a rebalance. The same offsets, or higher ones, are committed next time."""
        now_s = time.monotonic()
        self._failing_since_s = self._failing_since_s or now_s
        if now_s - self._failing_since_s > self._give_up_s:
            message = f"offsets could not be committed for {self._give_up_s:g} s: {trouble}"
            raise RecoveryExhausted(message) from trouble
        if self._repeats.is_new("commit"):
            log.warning("offsets are committed later: %s", trouble)

    def _position(self, partition: Partition, offset: int) -> TopicPartition:
        row = min(self.row, _MOST_ROW)
        metadata = f"{self._watch.topic_id or '-'} {self._index_id} {row}"
        return TopicPartition(partition.topic, partition.number, offset, metadata=metadata)

    # ---- where we are

    def caught_up(self) -> bool:
        """Whether the group has committed what was in the topic at the start; always False without `until_caught_up`."""
        try:
            return self._catching_up is not None and self._catching_up.done() and not self._must_read_again()
        except TransactionTrouble as trouble:  # the topic is missing: the next commit notices it
            log.warning("cannot find out whether the group has caught up: %s", trouble)
            return False

    def _must_read_again(self) -> bool:
        """Whether the last commit of some partition is still for another index."""
        if not self._to_read_again:
            return False
        with mapping_errors("asking for committed offsets", self._client_errors):
            committed = self._consumer.committed(
                list(map(foreign, self._to_read_again)), timeout=self._config.request_timeout_s
            )
        self._to_read_again = {ours(tp) for tp in committed if tp.offset >= 0 and self._is_of_another_index(tp)}
        return bool(self._to_read_again)

    def _is_of_another_index(self, committed: TopicPartition) -> bool:
        """Whether a commit was for another index. A commit without an id comes from an operator who sets offsets."""
        return _ids_in(committed)[1] not in {"", self._index_id}

    @property
    def partitions(self) -> int:
        """The number of our partitions."""
        return len(self._ours)

    def connection(self) -> Connection:
        """The state of the connection."""
        return self._statistics.connection(joined=self.joined)

    def lags(self) -> Mapping[Partition, int]:
        """Offsets between the committed one and the end, for partitions of which both are known."""
        ends = self.connection().ends
        return {each: max(0, ends[each] - at) for each, at in self._committed.copy().items() if each in ends}

    # ---- rebalances, inside `consume`

    def _callback(self, change: Callback) -> Callback:
        def callback(consumer: Consumer, tps: list[TopicPartition]) -> None:
            self.rebalances += 1
            try:
                change(consumer, tps)
            except Exception as error:  # noqa: BLE001  raised again by the next read
                self._raised = self._raised or error

        return callback

    def _add(self, consumer: Consumer, tps: list[TopicPartition]) -> None:
        committed: list[TopicPartition] = []
        if tps:
            with mapping_errors("asking for committed offsets", self._client_errors):
                committed = consumer.committed(tps, timeout=self._config.request_timeout_s)
        for tp in committed:
            topic_id, _, row = _ids_in(tp)
            self.row = max(self.row, min(row, self._most_row))
            self._ours.add(ours(tp))
            self._next.pop(ours(tp), None)  # from an earlier assignment
            if tp.offset >= 0 and topic_id not in {"", "-", self._watch.topic_id}:
                log.warning(
                    "%s[%d]: the topic was created again, and is read from its beginning", tp.topic, tp.partition
                )
                tp.offset = 0
            elif tp.offset >= 0 and self._is_of_another_index(tp):
                log.warning(
                    "%s[%d]: the group's offsets were committed for another index, or this one was created again, so the "
                    "partition is read from its beginning", tp.topic, tp.partition
                )  # fmt: skip
                tp.offset = 0
                continue
            if tp.offset >= 0:
                self._committed[ours(tp)] = tp.offset
        consumer.incremental_assign(committed)
        if self._paused and committed:
            consumer.pause(committed)

    def _remove(self, consumer: Consumer, tps: list[TopicPartition]) -> None:
        self._drop({ours(tp) for tp in tps})
        consumer.incremental_unassign(tps)

    def _drop(self, gone: set[Partition]) -> None:
        self._ours = self._ours - gone
        self._stash = [each for each in self._stash if partition_of(each) in self._ours]
        for each in gone:
            self._next.pop(each, None)
            self._committed.pop(each, None)


def _ids_in(committed: TopicPartition) -> tuple[str, str, int]:
    """The ids of topic and index, and the dead letters in a row, in a commit; empty and 0 if they are missing."""
    topic_id, index_id, row = [*(committed.metadata or "").split(" "), "", "", ""][:3]
    return topic_id, index_id, int(row) if row.isdecimal() else 0
