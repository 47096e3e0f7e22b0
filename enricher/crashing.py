"""Crash points, for tests only: the process dies by SIGKILL at a named point of the loop or of the transaction.

Switched on by `worker.crash_at`. Switched off, the worker is made of the plain classes, and nothing of this costs anything.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

from enricher.inference.lanes import Item, Lanes, Result
from enricher.kafka.source import KafkaSource
from enricher.ports import PartitionListener
from enricher.records import Partition, RawRecord

POINTS = (
    "polled",  # records were read, no ticket was made yet
    "tokenized",  # texts came back from the tokenizer
    "submitted",  # a batch went to the engine
    "completed",  # a batch came back
    "begun",  # a transaction was begun
    "produced",  # one of its records was produced
    "flushed",  # all of them are with the broker
    "offsets-sent",  # the offsets too; the commit was not asked for
    "committed",  # the broker has committed, and the worker has not noted it
    "recovered",  # a new producer has settled the old transaction; nothing was rewound yet
    "revoking",  # partitions are being taken in an orderly rebalance
)
"""Where a worker can be made to die. `NAME:N` means the N-th time that it gets there."""


@dataclass(slots=True)
class CrashPoint:
    """Counts how often its point was reached, and kills the process at the `nth` time."""

    name: str
    nth: int = 1
    _seen: int = field(default=0, init=False)

    @classmethod
    def parse(cls, text: str) -> CrashPoint:
        """`NAME` or `NAME:N`. Raises ValueError with the names that there are."""
        name, colon, nth = text.partition(":")
        if name not in POINTS or (colon and not (nth.isdecimal() and int(nth) > 0)):
            raise ValueError(f"{text!r} is no crash point; they are {', '.join(POINTS)}, each with `:N` or without")
        return cls(name, int(nth) if colon else 1)

    def reached(self, name: str) -> None:
        """Die here, if this is the point and the time: no handler runs, no buffer is flushed."""
        if name == self.name:
            self._seen += 1
            if self._seen == self.nth:
                os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Parts:
    """The classes that a worker is made of."""

    source: type[KafkaSource] = KafkaSource
    producer: type[Producer] = Producer
    lanes: type[Lanes[Any, Any]] = Lanes


def parts(crash_at: str | None) -> Parts:
    """Plain ones, or ones that die at `crash_at`."""
    return armed(CrashPoint.parse(crash_at)) if crash_at else Parts()


def armed(point: CrashPoint) -> Parts:
    """Subclasses that call `point.reached` on their way."""
    return Parts(_dying_source(point), _dying_producer(point), _dying_lanes(point))


def _dying_source(point: CrashPoint) -> type[KafkaSource]:
    class DyingListener:
        def __init__(self, listener: PartitionListener) -> None:
            self.assigned, self.lost, self._revoked = listener.assigned, listener.lost, listener.revoked

        def revoked(self, partitions: Sequence[Partition]) -> None:
            point.reached("revoking")
            self._revoked(partitions)

    class DyingSource(KafkaSource):
        def open(self, listener: PartitionListener) -> None:
            super().open(DyingListener(listener))

        def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
            records = super().poll(limit, timeout_s)
            if records:
                point.reached("polled")
            return records

        def rewind(self) -> None:
            point.reached("recovered")
            super().rewind()

    return DyingSource


def _dying_lanes(point: CrashPoint) -> type[Lanes[Any, Any]]:
    class DyingLanes(Lanes[Item, Result]):
        def submit(self, item: Item) -> None:
            super().submit(item)
            if self.name == "engine":
                point.reached("submitted")

        def completed(self) -> list[Result]:
            results = super().completed()
            if results:
                point.reached("completed" if self.name == "engine" else "tokenized")
            return results

    return DyingLanes


def _dying_producer(point: CrashPoint) -> type[Producer]:
    class DyingProducer(Producer):
        def begin_transaction(self) -> None:
            super().begin_transaction()
            point.reached("begun")

        def produce(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  the client's own signature
            super().produce(*arguments, **named)
            point.reached("produced")

        def flush(self, *arguments: Any) -> int:  # noqa: ANN401  as above
            left = super().flush(*arguments)
            point.reached("flushed")
            return left

        def send_offsets_to_transaction(self, *arguments: Any) -> None:  # noqa: ANN401  as above
            super().send_offsets_to_transaction(*arguments)
            point.reached("offsets-sent")

        def commit_transaction(self, *arguments: Any) -> None:  # noqa: ANN401  as above
            super().commit_transaction(*arguments)
            point.reached("committed")

    return DyingProducer
