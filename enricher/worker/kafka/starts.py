"""The start of a partition is the group's committed offset, if that belongs to this very topic.

The client can look up committed offsets itself, but asks only once and never again after an error that it does not know
(librdkafka 5586). So this module asks, and gives the client explicit offsets.

A partition without a committed offset begins at its beginning if none of its records can have an output: its output
partitions were never written, or it has no records. That start is committed before anything is read, so outputs without
an offset, even aborted ones, show that the offset was lost. Then the worker refuses, because a guess would lose or
double articles; `enricher offsets set` says where to begin. It also refuses an offset of an earlier topic of the same
name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from enricher.errors import SettingsError, Stalled, TransactionTrouble
from enricher.worker.kafka.errors import ClientErrors, mapping_errors, new_client
from enricher.worker.kafka.metadata import foreign, ours, without_errors
from enricher.worker.kafka.partitions import Partitions
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.topicwatch import TopicReplaced, TopicWatch, how_to_begin
from enricher.worker.records import Partition, Start
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.rules.offsets import names_of
from enricher.worker.runtime.repeats import Repeats

log = logging.getLogger(__name__)

_LOOKUP_S = 0.5
"""Timeout for the committed offsets, which blocks the loop, or the client's callback. Usually they take 2 ms."""
_PAUSE_S = 0.25
_WARN_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class StartOffset:
    """The offset to begin at, and the leader epoch of the record before: with it the client detects a truncated log.

    `uncommitted`: must be committed before anything is read.
    """

    start: Start
    leader_epoch: int | None = None
    uncommitted: bool = False

    def at(self, partition: Partition) -> TopicPartition:
        """The start as the client's type."""
        if self.leader_epoch is None:
            return TopicPartition(partition.topic, partition.number, self.start.offset)
        return TopicPartition(partition.topic, partition.number, self.start.offset, leader_epoch=self.leader_epoch)


class StartOffsets:
    """Finds where `partitions` begin. Remembers what this worker committed, because a lower answer is stale.

    `failure`: why the last look found nothing; None if it did not fail.
    """

    def __init__(
        self,
        consumer: Consumer,
        config: KafkaConfig,
        partitions: Partitions,
        watch: TopicWatch,
        client_errors: ClientErrors,
    ) -> None:
        self._consumer = consumer
        self._config = config
        self._partitions = partitions
        self._watch = watch
        self._client_errors = client_errors
        self._floors: dict[Partition, int] = {}
        self._unwritten: AbstractSet[Partition] = frozenset()
        self._next_s = 0.0
        self._warnings = Repeats(period_s=_WARN_EVERY_S)
        self.failure: TransactionTrouble | None = None

    # ---- what happens

    def note_unwritten(self) -> None:
        """Note which output partitions were never written before this worker joined the group. Raises TransactionTrouble.

        Outputs of two inputs may be in one partition. One member may then write to it before another has found its start,
        so only what was there before both shows that outputs were written. Offsets are not lost while a group has members.
        """
        if self._config.other_inputs:
            self._unwritten = self._unwritten_of(
                {
                    Partition(topic, number)
                    for topic in self._output_topics
                    for number in range(self._watch.partitions[topic])
                }
            )

    def note_commit(self, offsets: Mapping[Partition, int]) -> None:
        """Note offsets that this worker committed: a lower answer is stale from now on."""
        self._floors.update(offsets)
        if not offsets.keys().isdisjoint(self._partitions.waiting):  # they begin now
            self.hurry()

    def hurry(self) -> None:
        """Look up starts in the next turn, because the answer may have changed."""
        self._next_s = 0.0

    # ---- questions

    def committed_here(self, partition: Partition) -> int:
        """The highest offset that this worker has committed for the partition; 0 if none."""
        return self._floors.get(partition, 0)

    def look(self, now_s: float) -> Mapping[Partition, StartOffset]:
        """The starts that are known now, if partitions wait for theirs and a look is due.

        Raises TopicReplaced, and SettingsError if a partition has lost its offset.
        """
        if now_s < self._next_s or not (waiting := self._partitions.waiting):
            return {}
        found: Mapping[Partition, StartOffset] = {}
        self.failure = None
        try:
            found = self.committed_starts(waiting)
            if missing := [partition for partition in waiting if partition not in found]:
                found = {**found, **self._determine(missing)}
        except TransactionTrouble as trouble:
            self._note(trouble, waiting, now_s)
        self._next_s = time.monotonic() + _PAUSE_S
        return found

    def committed_starts(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """The starts of partitions with a committed offset. Blocks briefly; raises TransactionTrouble without an answer."""
        self._watch.ask()
        self._watch.confirm()
        return self.find(partitions, _LOOKUP_S)

    def find(self, partitions: Sequence[Partition], timeout_s: float) -> Mapping[Partition, StartOffset]:
        """Do what `committed_starts` does without asking whether the topics changed. Blocks for `timeout_s` at most.

        Raises TransactionTrouble also if an answer is stale, TopicReplaced if it is an offset of an earlier topic.
        """
        found: dict[Partition, StartOffset] = {}
        with mapping_errors("asking for the committed offsets", self._client_errors):
            tps = without_errors(self._consumer.committed([foreign(each) for each in partitions], timeout=timeout_s))
        self._client_errors.answered = True
        committed = {ours(tp): (tp, CommitMetadata.decode(tp.metadata)) for tp in tps if tp.offset >= 0}
        for partition, (tp, metadata) in committed.items():
            topic_id, before = self._watch.topic_ids[tp.topic], metadata.topic_id
            if before not in {None, topic_id}:
                numbers = [each.number for each, (_, its) in committed.items() if its.topic_id == before]
                remedy = how_to_begin(self._config, tp.topic, self._some(tp.topic, numbers))
                raise TopicReplaced(tp.topic, before, topic_id, remedy)
            if tp.offset < self._floors.get(partition, 0):
                message = (
                    f"the committed offset of {tp.topic}[{tp.partition}] is reported as {tp.offset}, which is stale"
                )
                raise TransactionTrouble(message)
            start = Start(tp.offset, metadata.mark, metadata.reached_limit)
            found[partition] = StartOffset(start, tp.leader_epoch)
        return found

    def find_or_end(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """Find starts for a recovery. Blocks for three request timeouts at most.

        Raises Stalled if another client gets at once the answer that this one does not get: then only a new client helps.
        Seen once after an outage: `committed` timed out for five minutes on live connections. By librdkafka's source (2.16)
        it answers `_WAIT_COORD` itself, without a request, while the group's state is not `up`, and then waits for a
        broker's or group's state to change; in the state `wait-coord` the group waits for the reply to its one question, and
        asks no other. Nothing bounds these waits but the caller's timeout, which ends none of them.
        """
        timeout_s = self._config.request_timeout_s
        try:
            return self.find(partitions, timeout_s)
        except TransactionTrouble as trouble:
            if not _timed_out(trouble):
                raise
            with (
                closing(new_client(Consumer, self._config.consumer(), self._client_errors)) as other,
                mapping_errors("asking for the committed offsets with another client", self._client_errors),
            ):
                other.committed([foreign(each) for each in partitions], timeout=timeout_s)
        try:  # the brokers may have come back in between
            return self.find(partitions, timeout_s)
        except TransactionTrouble as trouble:
            if not _timed_out(trouble):
                raise
            message = (
                f"the brokers tell another client the offsets of the group '{self._config.group_id}' at once, and this one "
                f"nothing for {timeout_s:g} s: the client is stuck. This process ends, and a restart reads from the "
                "committed offsets with a new client; nothing is lost"
            )
            raise Stalled(message) from trouble

    # ---- inside

    def _determine(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """The beginnings of partitions for which `find` has just found nothing. Blocks for some request timeouts at most.

        Raises TransactionTrouble if no broker answers, SettingsError if a partition has lost its offset.
        """
        found = {partition: self._partitions[partition].beginning for partition in partitions}
        if missing := [partition for partition, beginning in found.items() if beginning is None]:
            # In this order, what retention deletes in between is no record of an empty partition.
            ends, lows = self._watch.high_watermarks(missing), self._watch.beginnings(missing)
            empty = {partition for partition in missing if ends[partition] <= lows[partition]}
            if lost := sorted({*missing} - empty - self._new_of(missing)):
                raise self._refusal(lost)
            log.info("no committed offset and no outputs of %s: reading from the beginning", names_of(missing))
            found |= {partition: lows[partition] for partition in missing}
        return {
            partition: StartOffset(Start(offset), uncommitted=True)
            for partition, offset in found.items()
            if offset is not None
        }

    def _new_of(self, partitions: Sequence[Partition]) -> set[Partition]:
        """The partitions of which no record can have an output."""
        # A topic may lack the partition of that number, if the input has just grown.
        counts = {topic: self._watch.partitions[topic] for topic in self._output_topics}
        places = {
            partition: {
                Partition(topic, partition.number) for topic, count in counts.items() if partition.number < count
            }
            for partition in partitions
        }
        unwritten = self._unwritten | self._unwritten_of(set[Partition]().union(*places.values()))
        return {
            partition for partition in partitions if partition not in self._floors and places[partition] <= unwritten
        }

    @property
    def _output_topics(self) -> set[str]:
        return {self._config.output_topic, self._config.dead_letter_topic}

    def _unwritten_of(self, places: AbstractSet[Partition]) -> set[Partition]:
        """The partitions that were never written, not even by an aborted transaction or with records deleted since."""
        ends = self._watch.high_watermarks(places) if places else {}
        return {place for place, end in ends.items() if end == 0}

    def _refusal(self, lost: Sequence[Partition]) -> SettingsError:
        """The error for partitions of which a guess would lose or double articles."""
        group, commands = self._config.group_id, []
        for topic in sorted({partition.topic for partition in lost}):
            numbers = [partition.number for partition in lost if partition.topic == topic]
            options = "".join(f" --partition {number}" for number in self._some(topic, numbers))
            commands.append(f"enricher offsets set {group} {topic} --at behind-outputs{options}")
        return SettingsError(
            f"the group '{group}' has no committed offset for {names_of(lost)}, but there are records where their outputs "
            "would be. Either the group has lost its offsets (Kafka deletes them when a group has no member for "
            "offsets.retention.minutes, and with the topic if that is deleted and created again), or it is new and others "
            "write to the same topics. A guess would lose or double "
            f"articles: stop all workers of the group, and say where it begins: {'; '.join(commands)}. Instead of "
            "behind-outputs, `beginning` reads everything (again), and `end` only what is published from now on"
        )

    def _some(self, topic: str, numbers: Sequence[int]) -> Sequence[int]:
        """The partitions that a command must name: none if they are all of the topic."""
        return numbers if len(numbers) < self._watch.partitions[topic] else ()

    def _note(self, trouble: TransactionTrouble, waiting: Sequence[Partition], now_s: float) -> None:
        """Log the trouble as a warning once it has lasted, since nothing of these partitions is read."""
        self.failure = trouble
        lasts_s = self._partitions.unknown_s(now_s)
        lasts = lasts_s >= _WARN_EVERY_S and self._warnings.is_new("start")
        level = logging.WARNING if lasts else logging.DEBUG
        log.log(level, "the start of %s has not been known for %.0f s: %s", names_of(waiting), lasts_s, trouble)


def _timed_out(trouble: TransactionTrouble) -> bool:
    cause = trouble.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError._TIMED_OUT  # noqa: SLF001  the client's name


def assigned_at(partition: Partition, found: StartOffset | None) -> TopicPartition:
    """The partition with its first offset, for the client; 0 while that is unknown, or the client would look one up."""
    return found.at(partition) if found else TopicPartition(partition.topic, partition.number, 0)
