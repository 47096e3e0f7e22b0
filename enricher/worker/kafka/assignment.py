"""The assigned partitions: which come and go, which are read, and what the client is told about them.

`starts` finds where they begin, `partition` has their states. Runs in the loop's thread, like the whole source.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from enricher.errors import BrokerError, Stalled, TransactionTrouble
from enricher.worker.kafka.errors import ClientErrors, mapping_errors
from enricher.worker.kafka.metadata import foreign, ours
from enricher.worker.kafka.partition import AssignedPartition, State
from enricher.worker.kafka.partitions import Partitions
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.starts import StartOffset, StartOffsets, assigned_at
from enricher.worker.kafka.topicwatch import TopicWatch
from enricher.worker.records import Partition
from enricher.worker.rules.offsets import names_of

log = logging.getLogger(__name__)

_ENDS_PER_TIMEOUT = 16
"""How often the end of a silent partition is requested within the timeout."""
_ALONE_S = 10.0
"""How long overdue partitions may deliver nothing while the others are held. A client waits at a broker for 0.5 s at most
before it fetches again, and a broker that throttles clients makes them wait for one or two seconds more."""
_GATHER_S = 1.0
"""How long after an assignment the first records of several partitions are read together, see `gathers`."""


class Assignment:
    """Takes partitions from the client's callbacks and reads them, each from its start."""

    def __init__(self, consumer: Consumer, config: KafkaConfig, watch: TopicWatch, client_errors: ClientErrors) -> None:
        self.partitions = Partitions(
            lambda partition: watch.high_watermarks([partition])[partition],
            bound_s=config.partition_timeout_s,
            start_bound_s=config.start_timeout_s,
        )
        self.fetching = Fetching(consumer, self.partitions, client_errors)
        self.starts = StartOffsets(consumer, config, self.partitions, watch, client_errors)
        self._watch = watch
        self._config = config
        self._next_ends_s = 0.0
        self._alone_since_s = math.inf
        """Since when only overdue partitions have been read."""
        self._drained_s = -math.inf
        """When the client last had no more records: no partition's data waits behind another's then."""
        self._trouble: TransactionTrouble | None = None
        """Trouble that `caught_up` noticed: only a turn of the loop recovers from it."""
        self.leaving = False
        """True once the client is being closed: callbacks still come, and may only give up partitions."""

    # ---- in the client's callbacks

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Assign partitions where they begin. If that is not known at once they wait, paused, until `tend` finds out."""
        mine = [ours(tp) for tp in partitions]
        self.partitions.add(mine, time.monotonic())
        self.starts.hurry()
        found: Mapping[Partition, StartOffset] = {}
        try:
            found = self.starts.committed_starts(mine)
        except TransactionTrouble as trouble:
            log.info("the start of %s is not known yet: %s", names_of(mine), trouble)
        finally:
            self.fetching.assign({partition: found.get(partition) for partition in mine})
        for partition, each in found.items():
            self.partitions[partition].begin(each.start, each.leader_epoch)
        self.fetching.expect(mine)

    def remove(self, partitions: Sequence[Partition]) -> None:
        """Forget these partitions, which are no longer assigned; the client unassigns them itself."""
        self.partitions.remove(partitions)

    # ---- in the loop

    def tend(self, now_s: float) -> None:
        """Find out where waiting partitions begin. Raises Stalled if that stays unknown, or if one delivers nothing."""
        if self._trouble:
            trouble, self._trouble = self._trouble, None
            raise trouble
        self._begin(self.starts.look(now_s))
        if late := self.partitions.late(now_s):
            failure = f" ({self.starts.failure})" if self.starts.failure else ""
            self._give_up_on(late, self._config.start_timeout_s, f"its committed offset is unknown{failure}")
        asked = self.partitions.to_ask(now_s) if now_s >= self._next_ends_s else []
        if asked and (ends := self._watch.ends(asked)) is not None:  # the answer to an earlier turn's question
            self.partitions.learn(ends, asked, now_s)
            self._next_ends_s = now_s + self._config.partition_timeout_s / _ENDS_PER_TIMEOUT
        if self._drained_s >= self._alone_since_s + _ALONE_S and (stalled := self.partitions.overdue(now_s)):
            self._give_up_on(stalled, self._config.partition_timeout_s, "it has more records")

    def note_drain(self, now_s: float) -> None:
        """Note that the client had nothing to deliver."""
        self._drained_s = now_s

    def hold(self, partitions: Collection[Partition], now_s: float) -> None:
        """Hold these partitions: deliver nothing of them. Read on, without a gap, in partitions that were held before.

        While a partition is overdue, all others are held too: their backlog would hide that the overdue one delivers
        nothing. A healthy partition delivers then, which ends the hold, so that reading a long backlog alone costs nothing.
        Partitions that are not read yet are held once they are. The client drops what it prefetched of a partition that it
        pauses. Raises TransactionTrouble if the client cannot go back.
        """
        # What comes before an unreadable batch is published first: only then it is certain where to step over it.
        partitions = {*partitions, *(each for each in self.partitions if self._waits_before_unreadable(each))}
        # In a pause nothing can come, however long. One that is overdue after it delivers at once when it is read alone.
        overdue = [] if self.fetching.paused else self.partitions.overdue(now_s)
        if overdue:
            partitions = {*partitions, *(each for each in self.partitions if each not in overdue)}
        released = [each for each in self.partitions.of(State.HELD) if each not in partitions]
        stopped = [each for each in self.partitions.of(State.READING) if each in partitions]
        if not overdue:
            self._alone_since_s = math.inf
        elif stopped or math.isinf(self._alone_since_s):
            self._alone_since_s = now_s
        if stopped:
            if overdue:
                log.info(
                    "reading only %s for a moment: nothing came of it while other partitions had a backlog",
                    names_of(sorted(overdue)),
                )
            for partition in stopped:
                self.partitions[partition].hold()
            self.fetching.stop(stopped)
        if released:
            for partition in released:
                self.partitions[partition].release()
            self.fetching.go_back(released)
            self.fetching.read_on(released)

    def note_commit(self, offsets: Mapping[Partition, int]) -> None:
        """Note committed offsets: a lower answer of the broker is stale from now on."""
        self.starts.note_commit(offsets)

    def require_readable(self, at: AssignedPartition) -> None:
        """Raise BrokerError if the client cannot decompress the partition's next batch, and all before it is committed."""
        if not at.damage.unreadable or self._waits_before_unreadable(at.name):
            return
        group, (topic, number) = self._config.group_id, at.name
        raise BrokerError(
            f"the client cannot unpack the batch of {topic}[{number}] at the committed offset {at.position}, in "
            f"{at.damage.fetches} fetches: {at.damage.unreadable}. Nothing is lost. Stop the workers and step over it with "
            f"`enricher offsets skip {group} {topic} --partition {number}`: each of its records becomes a dead letter"
        )

    def committed_offsets(self) -> Mapping[Partition, int]:
        """The committed offset of each partition, as far as this worker knows: where it began, or its newest commit."""
        return {partition: self._committed_offset(self.partitions[partition]) for partition in self.partitions}

    # ---- in a recovery

    def raise_later(self, trouble: TransactionTrouble) -> None:
        """Let the next `tend` raise this error."""
        self._trouble = trouble

    def rewind(self) -> None:
        """Go back to the committed offsets; partitions without one wait for `tend`.

        Raises TransactionTrouble, or Stalled if only this client gets no answer.
        """
        partitions = self.fetching.assignment()
        self.partitions.rewind(partitions, time.monotonic())
        if partitions:
            found = self.starts.find_or_end(partitions)
            self.fetching.stop([partition for partition in partitions if partition not in found])
            self._begin(found)

    # ---- inside

    def _begin(self, found: Mapping[Partition, StartOffset]) -> None:
        """Read the partitions whose start is committed; all others wait until theirs is."""
        for partition, each in found.items():
            if each.uncommitted:
                self.partitions[partition].find(each.start.offset, time.monotonic())
        if begun := {partition: each for partition, each in found.items() if not each.uncommitted}:
            self.fetching.begin(begun)

    def _waits_before_unreadable(self, name: Partition) -> bool:
        """Whether records before an unreadable batch of the partition are not committed yet."""
        at = self.partitions[name]
        return bool(at.damage.unreadable) and at.position is not None and self._committed_offset(at) < at.position

    def _committed_offset(self, at: AssignedPartition) -> int:
        return max(at.start.offset if at.start else 0, self.starts.committed_here(at.name))

    def _give_up_on(self, partitions: Sequence[Partition], after_s: float, why: str) -> None:
        """End the process: its client may have lost these partitions. They stay assigned, so attempts are taken back."""
        config = self._config
        message = (
            f"{names_of(partitions)} delivered nothing for {after_s:g} s: {why}. This process ends, and a restart reads "
            "from the committed offsets with a new client; nothing is lost. If it comes again, look at the group and its "
            f"offsets with `kafka-consumer-groups --bootstrap-server {config.bootstrap_servers} --describe --group "
            f"{config.group_id}`, and for open transactions with `kafka-transactions`"
        )
        raise Stalled(message, undelivered=True)


class Fetching:
    """Tells the client to assign, seek, pause and resume `partitions`, and notes since when it should deliver their records.

    Decides nothing. Methods raise TransactionTrouble, unless they say otherwise.
    """

    def __init__(self, consumer: Consumer, partitions: Partitions, client_errors: ClientErrors) -> None:
        self._consumer = consumer
        self._partitions = partitions
        self._client_errors = client_errors
        self.paused = False
        self._gather_until_s = 0.0
        self._resumed: set[Partition] = set()
        """Partitions that the client paused during a rebalance and that stay."""

    def assign(self, starts: Mapping[Partition, StartOffset | None]) -> None:
        """Assign partitions at their starts, and pause those without a start. Raises the client's errors.

        The client's callback must assign them in any case: otherwise the client assigns them where it chooses.
        """
        self._resumed = {*self._partitions} - starts.keys()
        self._consumer.incremental_assign([assigned_at(partition, start) for partition, start in starts.items()])
        # Always tell the client both: a partition that was revoked while paused stays paused in it when it comes back.
        reading = {p for p, start in starts.items() if start and not self.paused}
        self._consumer.resume([foreign(partition) for partition in starts if partition in reading])
        self._consumer.pause([foreign(partition) for partition in starts if partition not in reading])

    def assignment(self) -> list[Partition]:
        """The partitions that the client itself says are assigned."""
        with mapping_errors("asking for the assignment", self._client_errors):
            return [ours(tp) for tp in self._consumer.assignment()]

    def begin(self, starts: Mapping[Partition, StartOffset]) -> None:
        """Read the partitions from their starts. Partitions that the client has not started yet keep waiting."""
        with mapping_errors("seeking", self._client_errors):
            begun = [partition for partition, start in starts.items() if self._seek(start.at(partition))]
        for partition in begun:
            self._partitions[partition].begin(starts[partition].start, starts[partition].leader_epoch)
        self.read_on(begun)

    def go_back(self, partitions: Collection[Partition]) -> None:
        """Seek to the first record that was not delivered. Raises TransactionTrouble also if the client cannot seek yet."""
        if not partitions:
            return
        with mapping_errors("seeking", self._client_errors):
            refused = [partition for partition in partitions if not self._seek(self._position(partition))]
        if refused:
            raise TransactionTrouble(f"the client did not go back to what it has not delivered of {names_of(refused)}")

    def stop(self, partitions: Collection[Partition]) -> None:
        """Pause the given partitions. The client drops what it has fetched of them."""
        with mapping_errors("pausing", self._client_errors):
            self._consumer.pause([foreign(partition) for partition in partitions])

    def read_on(self, partitions: Collection[Partition]) -> None:
        """Fetch these partitions again, and expect their records."""
        self.expect(partitions)
        if not self.paused:
            with mapping_errors("resuming", self._client_errors):
                self._consumer.resume([foreign(partition) for partition in partitions])

    def expect(self, partitions: Collection[Partition]) -> None:
        """Note that these partitions should deliver from now on; during a pause nothing is expected."""
        if not self.paused:
            self._partitions.expect(partitions, now_s := time.monotonic())
            self._gather_until_s = now_s + _GATHER_S

    def gathers(self, now_s: float) -> bool:
        """Whether the next poll should wait for the first records of several partitions, which share a transaction then."""
        return now_s < self._gather_until_s and self._partitions.unheard

    def fetch_again(self) -> None:
        """Let the client fetch what a rebalance paused. Call it only when everything that the client gave was delivered.

        librdkafka pauses all partitions until the callbacks are over, and may leave the thread that fetches asleep for
        another second. Only new partitions of the same broker wake it, and a seek.
        """
        resumed, self._resumed = self._resumed, set()
        if resumed and not self.paused:
            with mapping_errors("seeking", self._client_errors):
                for partition in resumed.intersection(self._partitions.of(State.READING)):
                    self._seek(self._position(partition))

    def pause(self) -> None:
        """Deliver nothing until `resume`. Drops prefetched records, so not for short waits."""
        if not self.paused:
            self.paused = True
            with mapping_errors("pausing", self._client_errors):
                self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Deliver records again."""
        self.paused = False
        self.read_on(self._partitions.of(State.READING))

    def _position(self, partition: Partition) -> TopicPartition:
        offset = self._partitions[partition].position
        assert offset is not None
        return TopicPartition(*partition, offset)

    def _seek(self, tp: TopicPartition) -> bool:
        """Seek; False if the client has not started the partition yet."""
        try:
            self._consumer.seek(tp)
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError._STATE:  # noqa: SLF001  the client's name
                raise
            return False
        return True
