"""Reads a few fields of librdkafka's statistics (STATISTICS.md): connected brokers, and the ends of partitions.

The client calls back inside `poll`; the result may be read from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

import orjson

from enricher.worker.kafka.properties import STATISTICS_INTERVAL_MS
from enricher.worker.records import Partition
from enricher.worker.stats import Connection, Unstable

_STALE_S = 3 * STATISTICS_INTERVAL_MS / 1000


class Statistics:
    """The consumer's `stats_cb`."""

    def __init__(self, topics: Collection[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._topics = topics
        self._clock = clock
        self._brokers: int | None = None
        self._away_since_s: float | None = None
        self.ends: Mapping[Partition, int] = {}
        """The last stable offsets of the partitions that are fetched; open transactions hide what lies behind."""
        self._unstable: dict[Partition, Unstable] = {}
        self._stood_since: dict[Partition, tuple[int, float]] = {}
        """Partitions whose last stable offset is below the end offset: that offset, and since when it has not moved."""
        self._told_s = clock()

    def __call__(self, text: str) -> None:
        """Parse the client's JSON."""
        told = orjson.loads(text)
        self._told_s = self._clock()
        # Ids below 0 are bootstrap addresses and extra connections to coordinators, which are counted as brokers already.
        self._brokers = sum(
            broker["state"] == "UP" for broker in told.get("brokers", {}).values() if broker["nodeid"] >= 0
        )
        if self._brokers:
            self._away_since_s = None
        elif self._away_since_s is None:
            self._away_since_s = self._clock()
        partitions = {
            Partition(topic, each["partition"]): each
            for topic in self._topics
            for each in told.get("topics", {}).get(topic, {}).get("partitions", {}).values()
            if each["partition"] >= 0
        }
        # The client's `consumer_lag` does not know offsets that a producer commits.
        self.ends = {partition: each["ls_offset"] for partition, each in partitions.items() if each["ls_offset"] >= 0}
        # The offsets of a partition that is no longer fetched are as old as its last fetch.
        highs = {
            partition: each["hi_offset"] for partition, each in partitions.items() if each["fetch_state"] == "active"
        }
        self._note_unstable({partition: high for partition, high in highs.items() if partition in self.ends})

    def connection(self, *, joined: bool) -> Connection:
        """The last statistics. If they are old, as in a recovery, which does not poll, `brokers` is None."""
        now_s = self._clock()
        away_s = 0.0 if self._away_since_s is None else now_s - self._away_since_s
        fresh = now_s - self._told_s < _STALE_S
        brokers = self._brokers if fresh else None
        return Connection(joined, brokers, away_s, self.ends, unstable=self._unstable)

    def _note_unstable(self, highs: Mapping[Partition, int]) -> None:
        """Compare the end offsets with the last stable offsets: only this shows a hanging transaction."""
        stood_since, unstable = {}, {}
        for partition, high in highs.items():
            stable = self.ends[partition]
            if high <= stable:
                unstable[partition] = Unstable()
                continue
            before, since_s = self._stood_since.get(partition, (stable, self._told_s))
            stood_since[partition] = stable, since_s if before == stable else self._told_s
            unstable[partition] = Unstable(high - stable, self._told_s - stood_since[partition][1])
        self._stood_since, self._unstable = stood_since, unstable
