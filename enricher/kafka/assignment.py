"""The partitions that are ours: where each begins, paused or not, and what to do about one that falls silent.

The client assigns, seeks, pauses and resumes; this decides where and when. In the loop's thread, as all of the source.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from enricher.core.offsets import names_of
from enricher.core.silence import SilenceWatch
from enricher.errors import Stalled, TransactionTrouble
from enricher.kafka.client import KafkaConfig, LastWord
from enricher.kafka.errors import border
from enricher.kafka.holdings import Holdings
from enricher.kafka.metadata import foreign, ours
from enricher.kafka.starting import Found, StartFinder
from enricher.kafka.topicwatch import TopicReplaced, TopicWatch
from enricher.records import Partition

log = logging.getLogger(__name__)

_FIRST_LOOK_S = 0.5
"""For the committed offsets inside the client's callback, where everything else stands still. Usually it takes 2 ms."""
_LOOK_AGAIN_S = 0.25
_ENDS_PER_TIMEOUT = 16
"""How often a silent partition's end is asked for while the timeout passes."""


class Assignment:
    """What the consumer reads now. `held` says how far; a partition without a start is assigned, but paused."""

    def __init__(self, consumer: Consumer, config: KafkaConfig, watch: TopicWatch, last_word: LastWord) -> None:
        self.held = Holdings()
        self._consumer = consumer
        self._watch = watch
        self._last_word = last_word
        self._config = config
        self._starts = StartFinder(consumer, config, watch, last_word)
        self._silence = SilenceWatch(config.partition_timeout_s)
        self._paused = False
        self._next_look_s = self._next_ends_s = 0.0
        self._replaced: TopicReplaced | None = None
        """Noticed in a callback, where nothing can be done about it."""
        self.distrusted = False
        """True where only another client helps: `renew`."""
        self._silent: set[Partition] = set()
        """Partitions that were silent for too long and have given no sign of life since."""

    # ---- in the client's callbacks

    def take(self, partitions: Sequence[TopicPartition]) -> None:
        """Assign them where they begin. Where that is not known at once they wait, paused, for `tend` to find out."""
        mine = [ours(tp) for tp in partitions]
        self.held.take(mine)
        found: Mapping[Partition, Found] = {}
        try:
            found = self._looked_for(mine, quick=True)
        finally:  # else the client does it, wherever it likes
            self._consumer.incremental_assign([_position(partition, found.get(partition)) for partition in mine])
            # Either way: the client keeps a partition paused that left while it was, and never reads it when it comes back.
            reading = [foreign(partition) for partition in mine if partition in found and not self._paused]
            self._consumer.resume(reading)
            self._consumer.pause([tp for tp in map(foreign, mine) if tp not in reading])
        for partition, each in found.items():
            self.held.begin(partition, each.start, each.leader_epoch)
        self._expect(mine)

    def leave(self, partitions: Sequence[Partition]) -> None:
        """They are ours no more; the client lets go of them by itself."""
        self.held.leave(partitions)
        self._silence.end(partitions)
        self._silent.difference_update(partitions)

    # ---- in the loop

    def tend(self, now_s: float) -> None:
        """Find out where waiting partitions begin, and whether one has fallen silent.

        Raises TransactionTrouble for a partition that gives nothing, and Stalled where a new client has not helped.
        """
        if self._replaced:
            replaced, self._replaced = self._replaced, None
            raise replaced
        if (waiting := self.held.waiting) and now_s >= self._next_look_s:
            self._begin(self._looked_for(waiting, quick=False))
        if late := self._silence.silent(self.held.waiting, now_s):
            self._give_up_on(late, "nobody says where to begin")
        if silent := self._silence.to_ask(now_s):
            self._ask_for_ends(silent, now_s)
        if stalled := self._silence.stalled(now_s):
            self._give_up_on(stalled, "there is more to read, and nothing comes")

    def heard(self, partition: Partition, now_s: float, size_bytes: int = 0) -> None:
        """A record of so many bytes came, or the partition's end."""
        self._silence.heard(partition, now_s, size_bytes)
        if self._silent:
            self._silent.discard(partition)

    def drained(self, now_s: float) -> None:
        """The client had nothing more to give when it was asked."""
        self._silence.drained(now_s)

    def silent_s(self, now_s: float) -> float:
        """For how long a partition that is behind its end has given nothing; of several the longest. From any thread."""
        return self._silence.silent_s(now_s)

    def pause(self) -> None:
        """Deliver nothing until `resume`. Prefetched records are dropped and fetched again, so not for short waits."""
        if not self._paused:
            self._paused = True
            self._silence.end(self.held)
            with border("pausing", self._last_word):
                self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Deliver again."""
        self._paused = False
        waiting = self.held.waiting
        self._expect(self.held)
        with border("resuming", self._last_word):
            self._consumer.resume([tp for tp in self._consumer.assignment() if ours(tp) not in waiting])

    def read_again(self, partitions: Collection[Partition]) -> None:
        """Go back to what was not delivered yet. Raises TransactionTrouble where the client does not, and would go on."""
        positions = self.held.positions()
        with border("seeking", self._last_word):
            places = [TopicPartition(each.topic, each.number, positions[each]) for each in partitions]
            refused = [ours(place) for place in places if not self._sought(place)]
        if refused:
            raise TransactionTrouble(f"the client did not go back to a damaged batch of {names_of(refused)}")

    def look_around(self) -> None:
        """Look whether the topic is still the same. Raises TransactionTrouble where nobody says so."""
        if self._watch.refresh():
            self._starts.forget()
            self.distrusted = True

    def rewind(self) -> None:
        """Go back to the committed offsets. Raises TransactionTrouble."""
        with border("rewinding", self._last_word):
            partitions = [ours(tp) for tp in self._consumer.assignment()]
        self.held.take(partitions)
        self._expect(partitions)
        if partitions:
            self._begin(self._starts.find(partitions, self._config.request_timeout_s))

    def abandon(self) -> Sequence[Partition]:
        """Nothing is ours any more: the client is given up. Returns what was."""
        partitions = list(self.held)
        self.held.leave(partitions)
        self._silence.end(partitions)
        return partitions

    def renew(self, consumer: Consumer) -> None:
        """Use this client from now on. It has joined, and owns nothing yet."""
        self._consumer = consumer
        self._starts.renew(consumer)
        self._replaced, self.distrusted = None, False

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """Take note of what was committed: a lower answer is stale from now on."""
        self._starts.committed(offsets)

    # ---- inside

    def _ask_for_ends(self, silent: Sequence[Partition], now_s: float) -> None:
        """Whether there is more to read of them. The answer comes in a later turn."""
        if now_s >= self._next_ends_s and (ends := self._watch.ends(silent)) is not None:
            self._silence.told(ends, self.held.positions(), now_s)
            self._next_ends_s = now_s + self._config.partition_timeout_s / _ENDS_PER_TIMEOUT

    def _looked_for(self, partitions: Sequence[Partition], *, quick: bool) -> Mapping[Partition, Found]:
        """Where they begin, if that is known within a moment. The client's callback has no time for missing offsets."""
        self._next_look_s = time.monotonic() + (0.0 if quick else _LOOK_AGAIN_S)
        try:
            self._watch.ask()
            self._watch.confirm()
            found = self._starts.find(partitions, _FIRST_LOOK_S, quick=quick)
        except TransactionTrouble as trouble:
            if isinstance(trouble, TopicReplaced):
                if not quick:
                    raise
                self._replaced = trouble
            log.log(logging.INFO if quick else logging.DEBUG, "no start of %s yet: %s", names_of(partitions), trouble)
            return {}
        return found

    def _begin(self, found: Mapping[Partition, Found]) -> None:
        """Read on from there. Partitions that the client has not started yet go on waiting."""
        with border("seeking", self._last_word):
            begun = [partition for partition, each in found.items() if self._sought(each.at(partition))]
            for partition in begun:
                self.held.begin(partition, found[partition].start, found[partition].leader_epoch)
            self._expect(begun)
            if not self._paused:
                self._consumer.resume([foreign(partition) for partition in begun])

    def _expect(self, partitions: Iterable[Partition]) -> None:
        """From now on they should give something; during a pause nothing is expected of any."""
        if not self._paused:
            self._silence.begin(partitions, time.monotonic())

    def _sought(self, tp: TopicPartition) -> bool:
        try:
            self._consumer.seek(tp)
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError._STATE:  # noqa: SLF001  the client's name
                raise
            return False
        return True

    def _give_up_on(self, partitions: Sequence[Partition], why: str) -> None:
        """Once by a new client, then by ending the process."""
        again = self._silent.intersection(partitions)
        self._silent.update(partitions)
        self.distrusted = True
        message = f"nothing came of {names_of(partitions)} for {self._config.partition_timeout_s:g} s: {why}"
        if again:
            raise Stalled(f"{message}; a new client has not helped")
        raise TransactionTrouble(message)


def _position(partition: Partition, found: Found | None) -> TopicPartition:
    """Where the client is to begin. Not the committed offset, which it would ask for: a paused partition stays at 0."""
    return found.at(partition) if found else TopicPartition(partition.topic, partition.number, 0)
