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


class Statistics:
    """The consumer's `stats_cb`."""

    def __init__(self, topic: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._topic = topic
        self._clock = clock
        self._brokers: int | None = None
        self._away_since_s: float | None = None
        self._lags: dict[Partition, int] = {}

    def __call__(self, text: str) -> None:
        """Take the client's JSON."""
        told = orjson.loads(text)
        # Below 0 are the bootstrap addresses, and the connections with coordinators, which are brokers' too.
        self._brokers = sum(
            broker["state"] == "UP" for broker in told.get("brokers", {}).values() if broker["nodeid"] >= 0
        )
        if self._brokers:
            self._away_since_s = None
        elif self._away_since_s is None:
            self._away_since_s = self._clock()
        partitions = told.get("topics", {}).get(self._topic, {}).get("partitions", {}).values()
        self._lags = {
            Partition(self._topic, partition["partition"]): partition["consumer_lag"]
            for partition in partitions
            if partition["partition"] >= 0 and partition["consumer_lag"] >= 0
        }

    def connection(self, *, joined: bool) -> Connection:
        """What was said last."""
        away_s = 0.0 if self._away_since_s is None else self._clock() - self._away_since_s
        return Connection(joined, self._brokers, away_s, self._lags)
