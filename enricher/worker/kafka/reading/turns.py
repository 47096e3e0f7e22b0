"""Gives turns: a partition that delivers nothing although it has records is read alone for a moment.

Then it delivers, or it has stopped for good. `silence` has the rule for one partition, and why this is needed.
"""

from __future__ import annotations

import logging

from enricher.worker.kafka.reading.fetching import Fetching
from enricher.worker.kafka.reading.partition import State
from enricher.worker.kafka.reading.partitions import Partitions
from enricher.worker.kafka.shared.topicwatch import TopicWatch
from enricher.worker.rules.offsets import names_of

log = logging.getLogger(__name__)

_ENDS_PER_TIMEOUT = 16
"""How often the end of a silent partition is requested within the timeout."""


class Turns:
    """Gives turns to partitions that are overdue. `timeout_s`: how long one may deliver nothing."""

    def __init__(self, partitions: Partitions, fetching: Fetching, watch: TopicWatch, timeout_s: float) -> None:
        self._partitions = partitions
        self._fetching = fetching
        self._watch = watch
        self._ask_every_s = timeout_s / _ENDS_PER_TIMEOUT
        self._next_ends_s = 0.0

    def learn_ends(self, now_s: float) -> None:
        """Ask for the ends of silent and of held partitions. The answer comes in a later turn of the loop."""
        if now_s < self._next_ends_s or not (asked := self._partitions.to_ask(now_s)):
            return
        if (ends := self._watch.ends(asked)) is not None:
            self._partitions.learn(ends, asked, now_s)
            self._next_ends_s = now_s + self._ask_every_s

    def take(self, now_s: float) -> None:
        """While partitions are overdue, let the client fetch only those.

        Prefetched records of the others are dropped and fetched again. A partition that has delivered is set aside as well
        until none is overdue: with a backlog of its own it would hide that another one delivers nothing.
        """
        if overdue := self._partitions.overdue(now_s):
            aside = [each for each in self._partitions.of(State.READING) if each not in overdue]
            self._partitions.give_turn(overdue, now_s, renewed=bool(aside))
            if aside:
                log.info(
                    "reading only %s for a moment: nothing came of it while other partitions had a backlog",
                    names_of(sorted(overdue)),
                )
                for partition in aside:
                    self._partitions[partition].set_aside()
                self._fetching.stop(aside)
        elif back := self._partitions.of(State.ASIDE):
            for partition in back:
                self._partitions[partition].take_back()
            self._fetching.go_back(back)
            self._fetching.read_on(back)
