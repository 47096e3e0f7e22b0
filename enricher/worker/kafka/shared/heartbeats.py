"""Keeps the consumer's heartbeats on time: by them members learn that partitions are to move.

librdkafka sends a heartbeat when its main thread is awake and the interval is over. Left alone, that thread wakes every 0.5
seconds, whatever the interval.
"""

from __future__ import annotations

from confluent_kafka import Consumer

INTERVAL_MS = 250
"""`heartbeat.interval.ms`. A partition whose owner leaves stands still for up to this long; deploy/scaling.md has what it
costs the brokers."""
_INTERVAL_S = INTERVAL_MS / 1000


class Heartbeats:
    """Wakes the client's main thread once per interval. For the loop's thread."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def prompt(self, consumer: Consumer, now_s: float) -> bool | None:
        """Wake the client if it is time, and return whether it is a member of its group. None: it is not time yet."""
        if now_s < self._next_s:
            return None
        self._next_s = now_s + _INTERVAL_S
        return bool(consumer.memberid())  # the client's main thread answers this, and then looks at its timers

    def left_s(self, now_s: float) -> float:
        """How long a poll may wait until it is time again."""
        return max(0.001, self._next_s - now_s)
