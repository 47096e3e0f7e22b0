"""The assigned partitions: which come and go, which the loop wants, and what to do if one stops delivering.

`lookups` finds where they begin, `fetching` tells the client, `turns` notices one that delivers nothing. Runs in the loop's
thread, like the whole source.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition

from enricher.errors import Stalled, TransactionTrouble
from enricher.worker.kafka.reading.fetching import Fetching
from enricher.worker.kafka.reading.lookups import Lookups
from enricher.worker.kafka.reading.partition import State
from enricher.worker.kafka.reading.partitions import Partitions
from enricher.worker.kafka.reading.start_offsets import StartFinders, StartOffset
from enricher.worker.kafka.reading.turns import Turns
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import ClientErrors
from enricher.worker.kafka.shared.metadata import ours
from enricher.worker.kafka.shared.topicwatch import TopicReplaced, TopicWatch
from enricher.worker.records import Partition
from enricher.worker.rules.offsets import names_of

log = logging.getLogger(__name__)


class Assignment:
    """Takes partitions from the client's callbacks and reads them, each from its start."""

    def __init__(self, consumer: Consumer, config: KafkaConfig, watch: TopicWatch, client_errors: ClientErrors) -> None:
        self.partitions = Partitions(
            lambda partition: watch.high_watermarks([partition])[partition],
            bound_s=config.partition_timeout_s,
            start_bound_s=config.start_timeout_s,
        )
        self.fetching = Fetching(consumer, self.partitions, client_errors)
        self._starts = StartFinders(consumer, config, watch, client_errors)
        self._lookups = Lookups(self.partitions, self._starts, watch)
        self._turns = Turns(self.partitions, self.fetching, watch, config.partition_timeout_s)
        self._watch = watch
        self._config = config
        self._trouble: TransactionTrouble | None = None
        """Trouble that was noticed where it cannot be raised, as in a callback."""
        self.needs_new_client = False
        """True if only a new client helps: `renew`."""
        self.leaving = False
        """True once the client is being closed: callbacks still come, and may only give up partitions."""
        self._silent: set[Partition] = set()
        """Partitions that were given up on and have delivered nothing since, with whichever client."""

    def began_with(self, topic: str) -> int | None:
        """How many partitions the topic had when the group began, to be committed beside offsets."""
        return self._starts.of_topic(topic).began_with

    # ---- in the client's callbacks

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Assign partitions where they begin. If that is not known at once they wait, paused, until `tend` finds out."""
        mine = [ours(tp) for tp in partitions]
        self.partitions.add(mine, time.monotonic())
        self._lookups.hurry()
        found: Mapping[Partition, StartOffset] = {}
        try:
            found = self._lookups.committed_starts(mine)
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
        self._starts.stop_searching()
        self._silent.difference_update(partitions)

    # ---- in the loop

    def tend(self, now_s: float) -> None:
        """Find out where waiting partitions begin, and whether one delivers nothing although it should.

        Raises TransactionTrouble for such a partition, and Stalled if a new client has not helped.
        """
        if self._trouble:
            trouble, self._trouble = self._trouble, None
            raise trouble
        self._begin(self._lookups.look(now_s))
        if late := self.partitions.late(now_s):
            failure = f" ({self._lookups.failure})" if self._lookups.failure else ""
            self._give_up_on(late, self._config.start_timeout_s, f"its committed offset is unknown{failure}")
        self._turns.learn_ends(now_s)
        if stalled := self.partitions.stalled:
            self._give_up_on(stalled, self._config.partition_timeout_s, "it has more records")
        self._turns.take(now_s)

    def note_delivery(self, partition: Partition) -> None:
        """The partition delivered a record, or its end."""
        if self._silent:
            self._silent.discard(partition)

    def hold(self, partitions: Collection[Partition]) -> None:
        """Deliver nothing of these. Read those on that were held before, from the first record that was not delivered.

        Those that are not read yet are held once they are. The client drops what it prefetched of a partition that it
        pauses. Raises TransactionTrouble if it cannot go back.
        """
        released = [each for each in self.partitions.of(State.HELD) if each not in partitions]
        may_stop = {State.READING, State.ASIDE}
        stopped = [each for each in partitions if (at := self.partitions.get(each)) and at.state in may_stop]
        if stopped:
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
        self._starts.note_commit(offsets)
        if not offsets.keys().isdisjoint(self.partitions.waiting):  # they begin now
            self._lookups.hurry()

    # ---- in a recovery

    def raise_later(self, trouble: TransactionTrouble) -> None:
        """Have the next `tend` raise this."""
        self._trouble = trouble

    def check_topic(self) -> None:
        """Check whether the topic was recreated. Raises TransactionTrouble if no broker answers."""
        for topic in self._watch.refresh():
            self._starts.of_topic(topic).forget()
            self.needs_new_client = True

    def rewind(self) -> None:
        """Go back to the committed offsets; partitions without one wait for `tend`. Raises TransactionTrouble."""
        partitions = self.fetching.assignment()
        self.partitions.rewind(partitions, time.monotonic())
        if partitions:
            found = self._starts.find(partitions, self._config.request_timeout_s)
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
        self._starts.renew(consumer)
        self._trouble, self.needs_new_client = None, False

    # ---- inside

    def _begin(self, found: Mapping[Partition, StartOffset]) -> None:
        """Read those whose start is committed; the others wait until it is."""
        for partition, each in found.items():
            if each.uncommitted:
                self.partitions[partition].find(each.start.offset, time.monotonic())
        if begun := {partition: each for partition, each in found.items() if not each.uncommitted}:
            self.fetching.begin(begun)

    def _give_up_on(self, partitions: Sequence[Partition], after_s: float, why: str) -> None:
        """Ask for a new client; if that has not helped before, end the process."""
        again = self._silent.intersection(partitions)
        self._silent.update(partitions)
        message = f"{names_of(partitions)} delivered nothing for {after_s:g} s: {why}"
        if again:
            message += "; a new client has not helped"
            raise Stalled(message, undelivered=True)  # the partitions stay: attempts at them are taken back
        self.needs_new_client = True
        raise TransactionTrouble(message)
