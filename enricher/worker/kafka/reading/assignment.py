"""The assigned partitions: where each begins, whether it is paused, and what to do if it stops delivering.

Decides where and when the client assigns, seeks, pauses and resumes. Runs in the loop's thread, like the whole source.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from enricher.errors import Stalled, TransactionTrouble
from enricher.worker.kafka.reading.partition import State
from enricher.worker.kafka.reading.partitions import Partitions
from enricher.worker.kafka.reading.start_offsets import StartFinder, StartOffset, assigned_at
from enricher.worker.kafka.reading.tails import StillSearching, UnsettledOutputs
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import ClientErrors
from enricher.worker.kafka.shared.errors import mapping_errors
from enricher.worker.kafka.shared.metadata import foreign, ours
from enricher.worker.kafka.shared.topicwatch import TopicReplaced, TopicWatch
from enricher.worker.records import Partition
from enricher.worker.rules.offsets import names_of
from enricher.worker.runtime.repeats import Repeats

log = logging.getLogger(__name__)

_FIRST_LOOKUP_S = 0.5
"""Timeout for the committed offsets inside the client's callback, which blocks the loop. Usually they take 2 ms."""
_LOOKUP_PAUSE_S = 0.25
_PAUSE_SHARE = 3.0
"""The pause while outputs are searched, as a multiple of one look: other partitions have most of the loop's time."""
_HIDDEN_PAUSE_S = 1.0
"""Between two looks at outputs that a transaction hides; each look is a few requests."""
_WARN_EVERY_S = 30.0
_GATHER_S = 1.0
"""How long after an assignment the first records are read together, see `gathers`."""
_ENDS_PER_TIMEOUT = 16
"""How often the end of a silent partition is requested within the timeout."""


class Assignment:
    """Assigns partitions to the consumer, and pauses them. A partition whose start is unknown is assigned, but paused."""

    def __init__(self, consumer: Consumer, config: KafkaConfig, watch: TopicWatch, client_errors: ClientErrors) -> None:
        self.partitions = Partitions(
            lambda partition: watch.high_watermarks([partition])[partition],
            bound_s=config.partition_timeout_s,
            start_bound_s=config.start_timeout_s,
        )
        self._consumer = consumer
        self._watch = watch
        self._client_errors = client_errors
        self._config = config
        self._starts = StartFinder(consumer, config, watch, client_errors)
        self._paused = False
        self._next_lookup_s = self._next_ends_s = self._gather_until_s = 0.0
        self._trouble: TransactionTrouble | None = None
        """Noticed where it cannot be raised, as in a callback."""
        self.needs_new_client = False
        """True if only a new client helps: `renew`."""
        self._resumed: set[Partition] = set()
        """Partitions that were paused during a rebalance and stay."""
        self.leaving = False
        """True once the client is being closed: callbacks come still, and may only give up partitions."""
        self._silent: set[Partition] = set()
        """Partitions that delivered nothing within the timeout, and nothing since, with whichever client."""
        self._warnings = Repeats(period_s=_WARN_EVERY_S)
        self._failure: TransactionTrouble | None = None
        """Why the last look-up failed."""

    @property
    def began_with(self) -> int | None:
        """How many partitions the topic had when the group began, to be committed beside offsets."""
        return self._starts.began_with

    # ---- in the client's callbacks

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Assign partitions where they begin. If that is not known at once they wait, paused, until `tend` finds out."""
        mine = [ours(tp) for tp in partitions]
        self._resumed = {*self.partitions} - {*mine}
        self.partitions.add(mine, time.monotonic())
        found: Mapping[Partition, StartOffset] = {}
        try:
            found = self._committed_starts(mine)
        finally:  # otherwise the client assigns them itself, where it chooses
            self._consumer.incremental_assign([assigned_at(partition, found.get(partition)) for partition in mine])
            # Always set both: a partition that was revoked while paused stays paused in the client when it comes back.
            begun = {partition for partition, each in found.items() if not each.start.is_over and not self._paused}
            self._consumer.resume([foreign(partition) for partition in mine if partition in begun])
            self._consumer.pause([foreign(partition) for partition in mine if partition not in begun])
        for partition, each in found.items():
            self.partitions[partition].begin(each.start, each.leader_epoch)
        self._expect(mine)

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
        if now_s >= self._next_lookup_s and self.partitions.waiting:
            self._look_up(now_s)
        if late := self.partitions.late(now_s):
            failure = f" ({self._failure})" if self._failure else ""
            self._give_up_on(late, self._config.start_timeout_s, f"its committed offset is unknown{failure}")
        if now_s >= self._next_ends_s and (asked := self.partitions.to_ask(now_s)):
            self._ask_for_ends(asked, now_s)
        if stalled := self.partitions.stalled():
            self._give_up_on(stalled, self._config.partition_timeout_s, "it has more records")
        self._take_turns(now_s)

    def delivered(self, partition: Partition) -> None:
        """The partition delivered a record, or its end."""
        if self._silent:
            self._silent.discard(partition)

    def gathers(self, now_s: float) -> bool:
        """Whether the next poll should wait for the first records of several partitions, which share a transaction then."""
        return now_s < self._gather_until_s and self.partitions.unheard

    def fetch_again(self) -> None:
        """Have the client fetch what a rebalance paused. Only when all that it gave was delivered.

        librdkafka pauses all partitions until the callbacks are over, and may leave the thread that fetches asleep for
        another second. Only new partitions of the same broker wake it, and a seek.
        """
        resumed, self._resumed = self._resumed, set()
        if resumed and not self._paused:
            with mapping_errors("seeking", self._client_errors):
                for partition in resumed.intersection(self.partitions.of(State.READING)):
                    self._goes_back(partition)

    def pause(self) -> None:
        """Deliver nothing until `resume`. Drops prefetched records, so not for short waits."""
        if not self._paused:
            self._paused = True
            for partition in self.partitions.of(State.ASIDE):
                self.partitions[partition].take_back()
            self.partitions.expect_nothing()
            with mapping_errors("pausing", self._client_errors):
                self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Deliver records again."""
        self._paused = False
        self._read_on(self.partitions.of(State.READING))

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
            self._stop_reading(stopped)
        if released:
            for partition in released:
                self.partitions[partition].release()
            self.read_again(released)
            self._read_on(released)

    def stop_finished(self, partitions: Collection[Partition]) -> None:
        """Let the client fetch no more of those among these that were read to the end of the range."""
        if finished := [each for each in self.partitions.of(State.FINISHED) if each in partitions]:
            self._stop_reading(finished)

    def read_again(self, partitions: Collection[Partition]) -> None:
        """Seek to the first record that was not delivered. Raises TransactionTrouble if the client cannot."""
        with mapping_errors("seeking", self._client_errors):
            refused = [each for each in partitions if not self._goes_back(each)]
        if refused:
            raise TransactionTrouble(f"the client did not go back to what it has not delivered of {names_of(refused)}")

    def raise_later(self, trouble: TransactionTrouble) -> None:
        """Have the next `tend` raise this."""
        self._trouble = trouble

    def check_topic(self) -> None:
        """Check whether the topic was recreated. Raises TransactionTrouble if no broker answers."""
        if self._watch.refresh():
            self._starts.forget()
            self.needs_new_client = True

    def rewind(self) -> None:
        """Go back to the committed offsets; partitions without one wait for `tend`. Raises TransactionTrouble."""
        with mapping_errors("rewinding", self._client_errors):
            partitions = [ours(tp) for tp in self._consumer.assignment()]
        self.partitions.rewind(partitions, time.monotonic())
        if partitions:
            found = self._starts.find(partitions, self._config.request_timeout_s)
            with mapping_errors("rewinding", self._client_errors):
                self._consumer.pause([foreign(partition) for partition in partitions if partition not in found])
            self._begin(found)

    def abandon(self) -> Sequence[Partition]:
        """The client is given up. Returns the partitions that were assigned."""
        partitions = list(self.partitions)
        self.partitions.remove(partitions)
        return partitions

    def renew(self, consumer: Consumer) -> None:
        """Use this client from now on. It has joined the group and has no partitions yet."""
        self._consumer = consumer
        self._starts.renew(consumer)
        self._trouble, self.needs_new_client = None, False

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """Note committed offsets: a lower answer of the broker is stale from now on."""
        self._starts.committed(offsets)
        if not offsets.keys().isdisjoint(self.partitions.waiting):  # they begin now
            self._next_lookup_s = 0.0

    # ---- inside

    def _ask_for_ends(self, partitions: Sequence[Partition], now_s: float) -> None:
        """Ask for the ends of silent and of held partitions. The answer comes in a later turn of the loop."""
        if (ends := self._watch.ends(partitions)) is not None:
            self.partitions.learn(ends, partitions, now_s)
            self._next_ends_s = now_s + self._config.partition_timeout_s / _ENDS_PER_TIMEOUT

    def _committed_starts(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """The starts of partitions with a committed offset, as far as they are known quickly: inside a callback."""
        self._next_lookup_s = 0.0
        try:
            return self._found(partitions)
        except TransactionTrouble as trouble:
            if isinstance(trouble, TopicReplaced):
                self._trouble = trouble
            log.info("the start of %s is not known yet: %s", names_of(partitions), trouble)
            return {}

    def _look_up(self, now_s: float) -> None:
        """Find out where waiting partitions begin, and read those that may be read. Raises TopicReplaced."""
        waiting, began_s, pause_s = self.partitions.waiting, time.monotonic(), _LOOKUP_PAUSE_S
        found: Mapping[Partition, StartOffset] = {}
        self._failure = None
        try:
            found = self._found(waiting)
            if missing := [partition for partition in waiting if partition not in found]:
                found = {**found, **self._determined(missing, now_s)}
        except TopicReplaced:
            raise
        except TransactionTrouble as trouble:
            self._failure = trouble
            self._say_unknown(waiting, trouble, now_s)
            if isinstance(trouble, StillSearching):
                pause_s = _PAUSE_SHARE * (time.monotonic() - began_s)
                for partition in waiting:
                    self.partitions[partition].progress_s = now_s  # the search has its own bound
        self._next_lookup_s = time.monotonic() + max(
            pause_s, _HIDDEN_PAUSE_S if self.partitions.of(State.HIDDEN) else 0.0
        )
        self._begin(found)

    def _say_unknown(self, waiting: Sequence[Partition], trouble: TransactionTrouble, now_s: float) -> None:
        """Log that a look-up failed: as a warning once that has lasted, since nothing of these partitions is read."""
        lasts_s = self.partitions.unknown_s(now_s)
        lasts = lasts_s >= _WARN_EVERY_S and self._warnings.is_new("start")
        level = logging.WARNING if lasts else logging.DEBUG
        log.log(level, "the start of %s has not been known for %.0f s: %s", names_of(waiting), lasts_s, trouble)

    def _determined(self, missing: Sequence[Partition], now_s: float) -> Mapping[Partition, StartOffset]:
        """Calls `StartFinder.determine`; leaves out partitions whose outputs an open transaction hides: those wait."""
        try:
            return self._starts.determine(missing)
        except UnsettledOutputs as unsettled:
            if self._warnings.is_new(UnsettledOutputs):
                log.warning("%s", unsettled)
            for partition in unsettled.partitions:
                self.partitions[partition].hide(now_s)
            rest = [partition for partition in missing if partition not in unsettled.partitions]
        return self._starts.determine(rest) if rest else {}

    def _read_on(self, partitions: Collection[Partition]) -> None:
        """Let the client fetch these, and expect their records."""
        self._expect(partitions)
        if not self._paused:
            with mapping_errors("resuming", self._client_errors):
                self._consumer.resume([foreign(partition) for partition in partitions])

    def _stop_reading(self, partitions: Collection[Partition]) -> None:
        with mapping_errors("pausing", self._client_errors):
            self._consumer.pause([foreign(partition) for partition in partitions])

    def _take_turns(self, now_s: float) -> None:
        """While partitions are overdue, let the client fetch only those: then they deliver, or have stopped for good.

        Prefetched records of the others are dropped and fetched again. A partition that has delivered is set aside as well
        until none is overdue: with a backlog of its own it would hide that another one delivers nothing.
        """
        if overdue := self.partitions.overdue(now_s):
            aside = [each for each in self.partitions.of(State.READING) if each not in overdue]
            self.partitions.give_turn(overdue, now_s, renewed=bool(aside))
            if aside:
                log.info(
                    "reading %s alone for a moment: nothing came of it beside a backlog", names_of(sorted(overdue))
                )
                for partition in aside:
                    self.partitions[partition].set_aside()
                self._stop_reading(aside)
        elif back := self.partitions.of(State.ASIDE):
            for partition in back:
                self.partitions[partition].take_back()
            self.read_again(back)
            self._read_on(back)

    def _found(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        self._watch.ask()
        self._watch.confirm()
        return self._starts.find(partitions, _FIRST_LOOKUP_S)

    def _begin(self, found: Mapping[Partition, StartOffset]) -> None:
        """Read from there. Partitions that the client has not started yet keep waiting, and those to be committed first."""
        for partition, each in found.items():
            if each.uncommitted:
                self.partitions[partition].find(each.start.offset, time.monotonic())
        with mapping_errors("seeking", self._client_errors):
            begun = [at for at, each in found.items() if not each.uncommitted and self._sought(each.at(at))]
        for partition in begun:
            self.partitions[partition].begin(found[partition].start, found[partition].leader_epoch)
        self._read_on([partition for partition in begun if self.partitions[partition].state is State.READING])
        self.stop_finished(begun)

    def _expect(self, partitions: Iterable[Partition]) -> None:
        """From now on they should deliver; nothing is expected during a pause."""
        if not self._paused:
            self.partitions.expect(partitions, now_s := time.monotonic())
            self._gather_until_s = now_s + _GATHER_S

    def _goes_back(self, partition: Partition) -> bool:
        """Seek to the first record that was not delivered, if the client can."""
        offset = self.partitions[partition].position
        assert offset is not None
        return self._sought(TopicPartition(*partition, offset))

    def _sought(self, tp: TopicPartition) -> bool:
        try:
            self._consumer.seek(tp)
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError._STATE:  # noqa: SLF001  the client's name
                raise
            return False
        return True

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
