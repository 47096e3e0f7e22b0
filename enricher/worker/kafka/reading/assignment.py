"""The assigned partitions: which come and go, which are wanted, and whether one stops delivering.

`start_offsets` finds where they begin, `fetching` tells the client, `silence` has the rule for one that delivers nothing.
Runs in the loop's thread, like the whole source.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition

from enricher.errors import BrokerError, Stalled, TransactionTrouble
from enricher.worker.kafka.reading.fetching import Fetching
from enricher.worker.kafka.reading.partition import AssignedPartition, State
from enricher.worker.kafka.reading.partitions import Partitions
from enricher.worker.kafka.reading.start_offsets import StartOffset, StartOffsets
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import ClientErrors
from enricher.worker.kafka.shared.metadata import ours
from enricher.worker.kafka.shared.topicwatch import TopicReplaced, TopicWatch
from enricher.worker.records import Partition
from enricher.worker.rules.offsets import names_of

log = logging.getLogger(__name__)

_ENDS_PER_TIMEOUT = 16
"""How often the end of a silent partition is requested within the timeout."""


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
        self._trouble: TransactionTrouble | None = None
        """Trouble that was noticed where it cannot be raised, as in a callback."""
        self.needs_new_client = False
        """True if only a new client helps: `renew`."""
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
            if isinstance(trouble, TopicReplaced):
                self._trouble = trouble
            log.info("the start of %s is not known yet: %s", names_of(mine), trouble)
        finally:
            self.fetching.assign({partition: found.get(partition) for partition in mine})
        for partition, each in found.items():
            self.partitions[partition].begin(each.start, each.leader_epoch)
        self.fetching.expect(mine)

    def remove(self, partitions: Sequence[Partition]) -> None:
        """These are no longer assigned; the client unassigns them itself."""
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
        if stalled := self.partitions.stalled:
            self._give_up_on(stalled, self._config.partition_timeout_s, "it has more records")

    def hold(self, partitions: Collection[Partition], now_s: float) -> None:
        """Deliver nothing of these. Read those on that were held before, from the first record that was not delivered.

        While some are overdue, all others are held too: with a backlog of their own they would hide that one of those
        delivers nothing. Those that are not read yet are held once they are. The client drops what it prefetched of a
        partition that it pauses. Raises TransactionTrouble if it cannot go back.
        """
        # What comes before an unreadable batch is published first: only then it is certain where to step over it.
        partitions = {*partitions, *(each for each in self.partitions if self._waits_before_unreadable(each))}
        if overdue := self.partitions.overdue(now_s):
            partitions = {*partitions, *(each for each in self.partitions if each not in overdue)}
        released = [each for each in self.partitions.of(State.HELD) if each not in partitions]
        stopped = [each for each in self.partitions.of(State.READING) if each in partitions]
        if overdue:
            self.partitions.give_turn(overdue, now_s, renewed=bool(stopped))
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

    # ---- in a recovery

    def raise_later(self, trouble: TransactionTrouble) -> None:
        """Have the next `tend` raise this."""
        self._trouble = trouble

    def check_topic(self) -> None:
        """Check whether the topic was recreated. Raises TransactionTrouble if no broker answers."""
        for topic in self._watch.refresh():
            self.starts.forget(topic)
            self.needs_new_client = True

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

    def abandon(self) -> Sequence[Partition]:
        """The client is given up. Returns the partitions that were assigned."""
        partitions = list(self.partitions)
        self.partitions.remove(partitions)
        return partitions

    def renew(self, consumer: Consumer) -> None:
        """Use this client from now on. It has joined the group and has no partitions yet."""
        self.fetching.renew(consumer)
        self.starts.renew(consumer)
        self._trouble, self.needs_new_client = None, False

    # ---- inside

    def _begin(self, found: Mapping[Partition, StartOffset]) -> None:
        """Read those whose start is committed; the others wait until it is."""
        for partition, each in found.items():
            if each.uncommitted:
                self.partitions[partition].find(each.start.offset, time.monotonic())
        if begun := {partition: each for partition, each in found.items() if not each.uncommitted}:
            self.fetching.begin(begun)

    def _waits_before_unreadable(self, name: Partition) -> bool:
        """Whether records before an unreadable batch of the partition are not committed yet."""
        at = self.partitions[name]
        if not at.damage.unreadable or at.position is None or at.start is None:
            return False
        return max(at.start.offset, self.starts.committed_here(name)) < at.position

    def _give_up_on(self, partitions: Sequence[Partition], after_s: float, why: str) -> None:
        """End the process, whose client may have lost these. They stay assigned: attempts at them are taken back."""
        config = self._config
        message = (
            f"{names_of(partitions)} delivered nothing for {after_s:g} s: {why}. This process ends, and a restart reads "
            "from the committed offsets with a new client; nothing is lost. If it comes again, look at the group and its "
            f"offsets with `kafka-consumer-groups --bootstrap-server {config.bootstrap_servers} --describe --group "
            f"{config.group_id}`, and for open transactions with `kafka-transactions`"
        )
        raise Stalled(message, undelivered=True)
