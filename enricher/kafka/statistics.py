"""What the client says of itself every few seconds: brokers that it is connected with, and how far behind it is.

librdkafka's statistics (STATISTICS.md), of which four fields are read. Served in `poll`, read from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import orjson

from enricher.levels import Connection
from enricher.records import Partition

INTERVAL_MS = 5_000
"""How often. Parsing them costs 0.1 ms."""
_STALE_S = 3 * INTERVAL_MS / 1000


class Statistics:
    """The consumer's `stats_cb`."""

    def __init__(self, topic: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._topic = topic
        self._clock = clock
        self._brokers: int | None = None
        self._away_since_s: float | None = None
        self._ends: dict[Partition, int] = {}
        self._told_s = clock()

    def __call__(self, text: str) -> None:
        """Take the client's JSON."""
        told = orjson.loads(text)
        self._told_s = self._clock()
        # Below 0 are the bootstrap addresses, and the connections with coordinators, which are brokers' too.
        self._brokers = sum(
            broker["state"] == "UP" for broker in told.get("brokers", {}).values() if broker["nodeid"] >= 0
        )
        if self._brokers:
            self._away_since_s = None
        elif self._away_since_s is None:
            self._away_since_s = self._clock()
        partitions = told.get("topics", {}).get(self._topic, {}).get("partitions", {}).values()
        # The client's own `consumer_lag` knows nothing of offsets that a producer commits.
        self._ends = {
            Partition(self._topic, partition["partition"]): partition["ls_offset"]
            for partition in partitions
            if partition["partition"] >= 0 and partition["ls_offset"] >= 0
        }

    def connection(self, *, joined: bool) -> Connection:
        """What was said last. Of brokers nothing is known any more when it was long ago: a recovery does not poll."""
        now_s = self._clock()
        away_s = 0.0 if self._away_since_s is None else now_s - self._away_since_s
        fresh = now_s - self._told_s < _STALE_S
        return Connection(joined, self._brokers if fresh else None, away_s, self._ends)
