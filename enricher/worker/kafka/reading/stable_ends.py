"""The ends up to which outputs are searched: all that was there at first must be readable.

An open transaction, whoever's it is, hides every record behind its first one, so its end is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from enricher.worker.kafka.reading.resume_errors import HiddenOutputs, cannot_tell
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.topicwatch import TopicWatch
from enricher.worker.records import Partition
from enricher.worker.rules.offsets import names_of

OPEN_S = 960.0
"""How long an open transaction in an output topic is waited for. Brokers abort one after `transaction.max.timeout.ms` at the
latest, 15 minutes by default."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """The end of an output partition, open transactions included, when it was asked for first, and when that was."""

    end: int
    since_s: float


class StableEnds:
    """The bounds of partitions of the output topics, which are places of outputs."""

    def __init__(self, config: KafkaConfig, watch: TopicWatch) -> None:
        self._config = config
        self._watch = watch
        self._marks: dict[Partition, _Mark] = {}
        """Ends that the last stable offset has to reach. What others write later is not waited for: it is not ours, since
        nobody writes outputs of a partition whose start is unknown."""

    def bounds(self, places: Collection[Partition]) -> Mapping[Partition, tuple[int, int]]:
        """The first offset of each place and the end of what can be read, which holds all that was there at first.

        Raises HiddenOutputs while a transaction hides some of it, SettingsError if one does for too long,
        TransactionTrouble if no broker answers.
        """
        if not places:
            return {}
        now_s = time.monotonic()
        if new := [place for place in places if place not in self._marks]:
            ends = self._watch.high_watermarks(new)
            self._marks.update((place, _Mark(ends[place], now_s)) for place in new)
        lows, stable = self._watch.beginnings(places), self._watch.last_offsets(places)
        if hidden := [place for place in places if stable[place] < self._marks[place].end]:
            raise self._trouble_of(hidden, now_s)
        return {place: (lows[place], stable[place]) for place in places}

    def forget(self, places: Iterable[Partition]) -> None:
        """The outputs in these places are found."""
        for place in places:
            self._marks.pop(place, None)

    def _trouble_of(self, places: Collection[Partition], now_s: float) -> HiddenOutputs:
        """The error while transactions are open. Raises SettingsError if one of them has been open for too long."""
        oldest = min(places, key=lambda place: self._marks[place].since_s)
        open_s = now_s - self._marks[oldest].since_s
        partitions = frozenset(Partition(self._config.input_topic, place.number) for place in places)
        if open_s > OPEN_S:
            reason = (
                f"a transaction of another producer in '{oldest.topic}', partition {oldest.number}, has been open for more "
                f"than {open_s:.0f} s and hides what is behind it (kafka-transactions find-hanging, abort)"
            )
            raise cannot_tell(self._config, Partition(self._config.input_topic, oldest.number), reason)
        message = (
            f"a transaction is open in {names_of(sorted(places))} and hides newer outputs: {names_of(sorted(partitions))} "
            f"cannot resume before it ends ({open_s:.0f} of {OPEN_S:g} s)"
        )
        return HiddenOutputs(message, partitions)
