"""A worker that dies by SIGKILL at a named point of the loop or of the transaction.

    python tests/kafka/crashing_worker.py POINT[:N] [arguments of `enricher run`]

It is `enricher run` with a stub for the model, and with three classes replaced by ones that call `CrashPoint.reached`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import Producer
from support import stub_worker

from enricher import cli
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.loop.pool import Item, Result, WorkerPool
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.records import Partition, RawRecord
from enricher.worker.wiring import workers

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
    "recovered",  # a new producer has ended the old transaction; nothing was rewound yet
    "revoking",  # partitions are being taken in an orderly rebalance
)
"""Where a worker can be made to die. `NAME:N`: the N-th time it gets there."""


@dataclass(slots=True)
class CrashPoint:
    """Counts how often its point was reached, and kills the process at the `nth` time."""

    name: str
    nth: int = 1
    _seen: int = field(default=0, init=False)

    @classmethod
    def parse(cls, text: str) -> CrashPoint:
        """Parse `NAME` or `NAME:N`. Raises ValueError with the list of names."""
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


def arm(point: CrashPoint) -> None:
    """Replace the classes that the worker of this process consists of."""
    sink = partial(TransactionalSink, producer_class=dying_producer(point))
    for module, name, made in (
        (workers, "KafkaSource", _dying_source(point)),
        (workers, "WorkerPool", _dying_pool(point)),
        (workers, "TransactionalSink", sink),
    ):
        assert hasattr(module, name), "the worker is made of other classes now"
        setattr(module, name, made)


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


def _dying_pool(point: CrashPoint) -> type[WorkerPool[Any, Any]]:
    class DyingPool(WorkerPool[Item, Result]):
        def submit(self, item: Item) -> None:
            super().submit(item)
            if self.name == "engine":
                point.reached("submitted")

        def take_results(self) -> list[Result]:
            results = super().take_results()
            if results:
                point.reached("completed" if self.name == "engine" else "tokenized")
            return results

    return DyingPool


def dying_producer(point: CrashPoint) -> type[Producer]:
    """A producer that dies in its transactions."""

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


if __name__ == "__main__":
    stub_worker.install()
    arm(CrashPoint.parse(sys.argv.pop(1)))
    sys.argv.insert(1, "run")
    cli.main()
