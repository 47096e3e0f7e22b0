"""What the client says of our partitions, in its callbacks: passed on to the assignment and to the listener.

Nothing may leave a callback, so what goes wrong in one is kept, and `check` raises it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from enricher.core.offsets import names_of
from enricher.errors import TransactionTrouble
from enricher.kafka.assignment import Assignment
from enricher.kafka.metadata import ours
from enricher.records import Partition
from enricher.worker.ports import PartitionListener


class Rebalances:
    """One consumer's callbacks. Called within its `consume` and `close`, so in the loop's thread."""

    def __init__(self, assignment: Assignment, listener: PartitionListener) -> None:
        self._assignment = assignment
        self._listener = listener
        self._raised: Exception | None = None
        self._gone: set[Partition] = set()
        """What left in this turn of the loop."""
        self._over = False

    def subscribe(self, consumer: Consumer, topic: str) -> None:
        """Join the group. Raises the client's errors."""
        consumer.subscribe(
            [topic],
            on_assign=self._told(self._take, self._listener.assigned),
            on_revoke=self._told(self._leave, self._listener.revoked),
            on_lost=self._told(self._leave, self._listener.lost),
        )

    def begin_turn(self) -> None:
        """The loop has seen everything that came before."""
        self._gone.clear()

    def check(self) -> None:
        """Raise what went wrong in a callback, once."""
        if self._raised:
            raised, self._raised = self._raised, None
            raise raised

    def end(self, partitions: Sequence[Partition]) -> None:
        """The consumer is given up, and these partitions with it: it has nothing to say any more."""
        self._over = True
        if partitions:
            self._listener.lost(partitions)

    # ---- inside

    def _told(
        self,
        change: Callable[[list[TopicPartition]], None],
        tell: Callable[[Sequence[Partition]], None],
    ) -> Callable[[Any, list[TopicPartition]], None]:
        def callback(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            if self._over:
                return
            try:
                change(partitions)
                tell([ours(tp) for tp in partitions])
            except Exception as error:  # noqa: BLE001  raised again by check()
                self._raised = self._raised or error  # the first may be fatal, a later one is its consequence

        return callback

    def _take(self, partitions: list[TopicPartition]) -> None:
        self._assignment.take(partitions)
        if back := self._gone.intersection(map(ours, partitions)):
            message = f"{names_of(sorted(back))} left and came back at once: the records are mixed up"
            self._raised = self._raised or TransactionTrouble(message)

    def _leave(self, partitions: list[TopicPartition]) -> None:
        gone = [ours(tp) for tp in partitions]
        self._assignment.leave(gone)
        self._gone.update(gone)
